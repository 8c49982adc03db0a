/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/train.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The list "starts" of run.json: when, where and from which step the run was started each time, what of the job
 * was other than the time before, and how it ended. A start that was killed has no end. */

#define MOST_STARTS 1000 /* older ones are dropped */
#define MOST_BYTES ((size_t)256 << 20)

/* ---- the git commit ---- */

/* The text of a small file below a .git folder, without its newline; NULL: there is no such file. */
static char *git_text(tt_arena *a, const char *git, const char *name)
{
    char *text = NULL;
    size_t n;
    if (tt_read_file(tt_path_join(a, git, name), 1 << 20, &text, &n, NULL) != TT_OK)
        return NULL;
    char *copy = tt_arena_strn(a, text, strcspn(text, "\r\n"));
    free(text);
    return copy;
}

static const char *packed_ref(tt_arena *a, const char *git, const char *ref)
{
    char *text = NULL;
    size_t n;
    const char *found = NULL;
    if (tt_read_file(tt_path_join(a, git, "packed-refs"), 64 << 20, &text, &n, NULL) != TT_OK)
        return NULL;
    for (const char *p = strstr(text, ref); p && !found; p = strstr(p + 1, ref))
        if (p - text >= 41 && p[-1] == ' ' && strchr("\r\n", p[strlen(ref)]))
            found = tt_arena_strn(a, p - 41, 40);
    free(text);
    return found;
}

const char *tt_git_commit(tt_arena *a, const char *folder)
{
    char at[PATH_MAX];
    if (!realpath(folder, at))
        return NULL;
    for (;;) {
        const char *git = tt_path_join(a, at, ".git");
        const char *head = git_text(a, git, "HEAD");
        if (head && strncmp(head, "ref: ", 5))
            return head;
        if (head) {
            const char *commit = git_text(a, git, head + 5);
            return commit ? commit : packed_ref(a, git, head + 5);
        }
        char *slash = strrchr(at, '/');
        if (!slash || slash == at)
            return NULL;
        *slash = 0;
    }
}

/* ---- starts ---- */

/* The run.json of the time before; NULL: there is none, or none that can be read, and a line says so. */
static const tt_json *last_record(tt_arena *a, const char *run)
{
    const tt_json *root = NULL;
    const char *path = tt_path_join(a, run, "run.json");
    tt_error why = {0};
    if (!tt_path_exists(path) || tt_json_read_object(a, path, MOST_BYTES, &root, &why) == TT_OK)
        return root;
    tt_log(
        TT_WARN, "train",
        "%s: the list of the run's earlier starts is lost, and what of the job has changed since "
        "is not known",
        why.text);
    return NULL;
}

static void add_earlier(const tt_json *record, tt_str *o)
{
    const tt_json *list = record ? tt_json_get(record, "starts") : NULL;
    const size_t n = list && list->type == TT_JSON_ARRAY ? list->n : 0;
    for (size_t i = n < MOST_STARTS ? 0 : n - MOST_STARTS + 1; i < n; i++) {
        tt_json_write(list->items[i], o);
        tt_str_addc(o, ',');
    }
}

/* "changed": lines of how the job differs from the one of the time before. */
static void add_changes(const tt_setup *s, const tt_json *record, tt_str *o)
{
    const tt_json *before = record ? tt_json_get(record, "job") : NULL;
    tt_str was = {0}, diff = {0};
    if (!before)
        return;
    tt_json_write(before, &was);
    tt_job_changes(tt_str_get(&was), s->job, &diff);
    tt_str_add(o, ",\"changed\":[");
    for (char *line = diff.s, *end; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        tt_str_add(o, line == diff.s ? "" : ",");
        tt_str_json(o, line);
    }
    tt_str_add(o, "]");
    tt_str_free(&was);
    tt_str_free(&diff);
}

void tt_history_begin(const tt_run_folder *f, const tt_setup *s, int64_t step, tt_str *o)
{
    tt_arena *a = tt_arena_new();
    const tt_json *record = last_record(a, f->path);
    const char *commit = tt_git_commit(a, tt_job_dir(s->job));
    char host[256] = "", wall[32];
    gethostname(host, sizeof host - 1);
    tt_wall_iso(f->started, wall);
    tt_str_add(o, "[");
    add_earlier(record, o);
    tt_str_printf(o, "{\"started\":\"%s\",\"from_step\":%lld,\"world\":%d,\"host\":", wall,
                  (long long)step, s->world);
    tt_str_json(o, host);
    tt_str_printf(o, ",\"pid\":%ld,\"ttrun\":", (long)getpid());
    tt_str_json(o, TT_BUILD_VERSION);
    tt_str_add(o, ",\"git\":");
    if (commit)
        tt_str_json(o, commit);
    else
        tt_str_add(o, "null");
    if (f->restart && f->restart->number) {
        tt_str_printf(o, ",\"restart\":{\"number\":%d,\"of\":%d,\"cause\":", f->restart->number,
                      f->restart->of);
        tt_str_json(o, f->restart->cause);
        tt_str_addc(o, '}');
    }
    add_changes(s, record, o);
    tt_arena_free(a);
}

void tt_history_end(int64_t step, const char *status, tt_str *o)
{
    char wall[32];
    tt_wall_iso(tt_wall_seconds(), wall);
    tt_str_printf(o, ",\"ended\":\"%s\",\"to_step\":%lld,\"status\":", wall, (long long)step);
    tt_str_json(o, status);
}
