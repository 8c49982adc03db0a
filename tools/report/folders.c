/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "report/folders.h"
#include "checkpoint/checkpoint.h"
#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH 6
#define MAX_RUN_JSON ((size_t)64 << 20)
#define MAX_LOCKS ((size_t)16 << 20) /* bytes of /proc/locks */

const char *const tt_run_states[4] = {"running", "done", "stopped", "failed"};

/* ---- finding ---- */

typedef struct finder {
    tt_arena *a;
    bool older;
    tt_found_runs *out;
} finder;

int64_t tt_run_older_number(const char *name)
{
    char *end;
    if (strncmp(name, "before-", 7) || name[7] < '1' || name[7] > '9')
        return -1;
    const long long n = strtoll(name + 7, &end, 10);
    return *end ? -1 : n;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Adds the older runs, newest first. */
static void add_older(const finder *f, const char *run, const char *name, const char *const *names,
                      size_t n)
{
    for (int64_t last = INT64_MAX, best;; last = best) {
        best = -1;
        for (size_t i = 0; i < n; i++)
            if (tt_run_older_number(names[i]) < last)
                best = TT_MAXV(best, tt_run_older_number(names[i]));
        if (best < 0)
            return;
        const tt_found_run older = {tt_arena_printf(f->a, "%s/before-%lld", run, (long long)best),
                                    tt_arena_printf(f->a, "%s/before-%lld", name, (long long)best),
                                    run, best};
        if (is_folder(older.path))
            tt_vec_push(f->a, f->out, older);
    }
}

static bool has_run(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], "run.json") || !strcmp(names[i], "metrics.jsonl") ||
            !strcmp(names[i], ".lock"))
            return true;
    return false;
}

/* name: of the folder below the path that was asked for; "" for that itself. */
static tt_status walk(const finder *f, const char *folder, const char *name, int depth,
                      tt_error *err)
{
    const char **names = NULL;
    size_t n = 0;
    tt_error why = {0};
    if (tt_folder_names(f->a, folder, NULL, &names, &n, &why) != TT_OK)
        /* below the path, a folder that may not be read has no runs of ours */
        return depth ? TT_OK : TT_FAIL(err, TT_ENOTFOUND, "%s", why.text);
    if (has_run(names, n)) {
        const char *slash = strrchr(folder, '/');
        const char *own = *name ? name : slash && slash[1] ? slash + 1 : folder;
        const tt_found_run run = {folder, own, NULL, 0};
        tt_vec_push(f->a, f->out, run);
        if (f->older)
            add_older(f, folder, own, names, n);
        return TT_OK;
    }
    for (size_t i = 0; i < n && depth < MAX_DEPTH; i++) {
        const char *path = tt_path_join(f->a, folder, names[i]);
        if (names[i][0] != '.' && is_folder(path))
            TT_TRY(walk(f, path, *name ? tt_path_join(f->a, name, names[i]) : names[i], depth + 1,
                        err));
    }
    return TT_OK;
}

static tt_status find_in(const finder *f, const char *path, tt_error *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return walk(f, tt_arena_strn(f->a, path, n), "", 0, err);
}

/* Of a glob, the files that are no folders are left out. */
tt_status tt_run_folders_find(const char *path, bool older, tt_arena *a, tt_found_runs *out,
                              tt_error *err)
{
    glob_t g = {0};
    const finder f = {a, older, out};
    tt_status s = TT_OK;
    if (tt_path_exists(path))
        return find_in(&f, path, err);
    if (glob(path, GLOB_ONLYDIR, NULL, &g) != 0)
        s = TT_FAIL(err, TT_ENOTFOUND, "%s: no such folder", path);
    for (size_t i = 0; s == TT_OK && i < g.gl_pathc; i++) {
        struct stat st;
        if (stat(g.gl_pathv[i], &st) == 0 && S_ISDIR(st.st_mode))
            s = find_in(&f, g.gl_pathv[i], err);
    }
    globfree(&g);
    return s;
}

/* ---- what the files say ---- */

static const char *text_of(const tt_json *object, const char *key, const char *otherwise)
{
    const tt_json *v = tt_json_get(object, key);
    return v && v->type == TT_JSON_STRING ? v->string : otherwise;
}

/* tt_run_folder_end() writes the status of a start: one without a status runs, or was killed. */
static void look_at_last_start(const tt_json *root, tt_run_facts *out)
{
    static const char failed[] = "failed: ";
    const tt_json *list = tt_json_get(root, "starts");
    if (!list || list->type != TT_JSON_ARRAY || !list->n)
        return;
    const char *status = text_of(list->items[list->n - 1], "status", NULL);
    out->failed = status && !strncmp(status, failed, sizeof failed - 1);
    out->no_end = !status;
}

bool tt_run_facts_read(const char *run, tt_arena *a, tt_run_facts *out)
{
    struct stat st;
    const tt_json *root = NULL;
    const char *path = tt_path_join(a, run, "run.json");
    *out = (tt_run_facts){.spec = "", .checkpoints = "checkpoint", .steps = -1};
    if (stat(path, &st) || !S_ISREG(st.st_mode)) /* a pipe would block */
        return false;
    (void)tt_json_read(a, path, MAX_RUN_JSON, &root, NULL);
    const tt_json *job = tt_json_get(root, "job");
    const tt_json *steps = tt_json_get(tt_json_get(job, "training"), "steps");
    out->spec = text_of(job, "spec", out->spec);
    out->checkpoints = text_of(tt_json_get(job, "checkpoint"), "folder", out->checkpoints);
    if (steps && steps->type == TT_JSON_INT)
        out->steps = steps->integer;
    look_at_last_start(root, out);
    out->root = root;
    return root != NULL;
}

int64_t tt_run_newest_checkpoint(const char *folder)
{
    int64_t most = -1;
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        most = TT_MAXV(most, tt_step_of_name(e->d_name, NULL));
    if (d)
        closedir(d);
    return most;
}

/* Lines of /proc/locks: "1: FLOCK ADVISORY WRITE 42 fe:00:1234 0 EOF". */
bool tt_run_is_locked(const char *run)
{
    static const char *const locks[] = {".lock", ".lock.ranks"};
    char *text = NULL, *save = NULL, want[2][32] = {"", ""};
    size_t n;
    bool found = false, any = false;
    for (int i = 0; i < 2; i++) {
        struct stat st;
        tt_str path = {0};
        tt_str_printf(&path, "%s/%s", run, locks[i]);
        if (stat(path.s, &st) == 0) {
            snprintf(want[i], sizeof want[i], ":%llu ", (unsigned long long)st.st_ino);
            any = true;
        }
        tt_str_free(&path);
    }
    if (!any || tt_read_file("/proc/locks", MAX_LOCKS, &text, &n, NULL) != TT_OK)
        return false;
    for (char *l = strtok_r(text, "\n", &save); l && !found; l = strtok_r(NULL, "\n", &save))
        found = strstr(l, "FLOCK") && strstr(l, "WRITE") && !strstr(l, "->") &&
                ((*want[0] && strstr(l, want[0])) || (*want[1] && strstr(l, want[1])));
    free(text);
    return found;
}

tt_run_state tt_run_state_of(bool live, const tt_run_facts *f, double step, int64_t saved)
{
    if (live)
        return TT_RUN_RUNNING;
    if (f->failed)
        return TT_RUN_FAILED;
    const bool all = f->steps >= 0 && step >= (double)f->steps;
    return all && (!f->no_end || saved >= f->steps) ? TT_RUN_DONE : TT_RUN_STOPPED;
}
