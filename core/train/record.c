/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "setup/recomputed.h"
#include "train/train.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* run.json: what runs, with which plugins, files and job, its starts (history.c), and which checkpoints and exports it has. The lists are
 * made from the folders themselves, after each save, so they name what is there. */

struct tt_run_record {
    pthread_mutex_t lock; /* the loop describes the run, the thread that saves lists the steps */
    char *before;         /* the text before the lists; NULL: the run is not described yet */
    char *job;            /* that after them */
    char *starts,
        *ended; /* of the list of starts: all, without the newest one's end, and that end */
};

tt_run_record *tt_run_record_new(void)
{
    tt_run_record *r = calloc(1, sizeof *r);
    if (r)
        pthread_mutex_init(&r->lock, NULL);
    return r;
}

void tt_run_record_free(tt_run_record *r)
{
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    free(r->before);
    free(r->job);
    free(r->starts);
    free(r->ended);
    free(r);
}

/* ---- lists ---- */

static int by_number(const void *a, const void *b)
{
    const int64_t x = tt_step_of_name(*(const char *const *)a, NULL),
                  y = tt_step_of_name(*(const char *const *)b, NULL);
    return x < y ? -1 : x > y;
}

static bool is_step(const char *name)
{
    return tt_step_of_name(name, NULL) >= 0;
}

/* The steps of a folder, ascending. last: the file of a step that is written last. */
static void list_steps(tt_str *o, tt_arena *a, const tt_run_folder *f, const char *folder,
                       const char *last)
{
    const char **names = NULL;
    size_t n = 0;
    tt_str_add(o, "[");
    if (tt_path_exists(folder) && tt_folder_names(a, folder, is_step, &names, &n, NULL) == TT_OK &&
        n > 0)
        qsort(names, n, sizeof *names, by_number);
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        char wall[32];
        const char *path = tt_path_join(a, folder, names[i]);
        if (stat(tt_path_join(a, path, last), &st) != 0)
            continue;
        tt_wall_iso((double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec, wall);
        tt_str_printf(o, "%s{\"step\":%lld,\"path\":", first ? "" : ",",
                      (long long)tt_step_of_name(names[i], NULL));
        const char *below = tt_path_below(f->path, path);
        tt_str_json(o, below ? below : path);
        tt_str_printf(o, ",\"bytes\":%lld,\"saved\":\"%s\"}", (long long)tt_folder_bytes(path),
                      wall);
        first = false;
    }
    tt_str_add(o, "]");
}

static tt_status write_locked(const tt_run_folder *f, tt_error *err)
{
    const tt_run_record *r = f->record;
    tt_arena *a = tt_arena_new();
    tt_str o = {0};
    tt_str_add(&o, r->before);
    tt_str_add(&o, ",\"checkpoints\":");
    list_steps(&o, a, f, f->checkpoints, "trainer.json");
    tt_str_add(&o, ",\"exports\":");
    list_steps(&o, a, f, tt_path_join(a, f->path, "hf"), "config.json");
    if (r->starts) {
        tt_str_add(&o, ",\"starts\":");
        tt_str_add(&o, r->starts);
        tt_str_add(&o, r->ended ? r->ended : "");
        tt_str_add(&o, "}]");
    }
    tt_str_add(&o, ",\"job\":");
    tt_str_add(&o, r->job);
    tt_str_add(&o, "}\n");
    const tt_status s =
        tt_write_file_atomic(tt_path_join(a, f->path, "run.json"), tt_str_get(&o), o.n, err);
    tt_str_free(&o);
    tt_arena_free(a);
    return s;
}

static char *replaced(char *old, const char *text)
{
    free(old);
    return strdup(text);
}

/* before, job: new texts; NULL: those of the last time, and nothing is written if there was none. */
static tt_status write_record(const tt_run_folder *f, const char *before, const char *job,
                              tt_error *err)
{
    tt_run_record *r = f->record;
    tt_status s = TT_OK;
    pthread_mutex_lock(&r->lock);
    if (before) {
        r->before = replaced(r->before, before);
        r->job = replaced(r->job, job);
        if (!r->before || !r->job)
            s = TT_FAIL(err, TT_ENOMEM, "no memory for run.json");
    }
    if (s == TT_OK && r->before && r->job)
        s = write_locked(f, err);
    pthread_mutex_unlock(&r->lock);
    return s;
}

/* ---- the description ---- */

static void describe_part(tt_str *o, const tt_setup *s, const tt_part *p)
{
    if (!p->component)
        return;
    tt_str_add(o, o->s[o->n - 1] == '[' ? "" : ",");
    tt_str_add(o, "{\"kind\":");
    tt_str_json(o, tt_kind_name(p->component->kind));
    tt_str_add(o, ",\"name\":");
    tt_str_json(o, p->name);
    tt_str_add(o, ",\"file\":");
    tt_str_json(o, p->file ? p->file : "");
    const char *version = tt_registry_version(s->registry, p->component);
    tt_str_add(o, ",\"version\":");
    tt_str_json(o, version ? version : "");
    tt_mapping m;
    if (p->file && tt_map_file(p->file, &m, NULL) == TT_OK) {
        char hash[33];
        tt_hash128_hex(m.p, m.n, hash);
        tt_str_printf(o, ",\"xxh3_128\":\"%s\"", hash);
        tt_unmap_file(&m);
    }
    tt_str_add(o, "}");
}

/* The copies of tokenizer and model files in the run folder, with their hashes. */
static void describe_files(tt_str *o, tt_arena *a, const char *run, const char *folder)
{
    const char *path = tt_path_join(a, run, folder);
    const char **names = NULL;
    size_t n = 0;
    if (!tt_path_exists(path) || tt_folder_names(a, path, NULL, &names, &n, NULL) != TT_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        tt_mapping m;
        char hash[33];
        if (tt_map_file(tt_path_join(a, path, names[i]), &m, NULL) != TT_OK)
            continue;
        tt_hash128_hex(m.p, m.n, hash);
        tt_unmap_file(&m);
        tt_str_add(o, o->s[o->n - 1] == '{' ? "" : ",");
        tt_str_json(o, tt_arena_printf(a, "%s/%s", folder, names[i]));
        tt_str_printf(o, ":\"%s\"", hash);
    }
}

static void describe_machine(tt_str *o, const tt_setup *s, const char *backend)
{
    struct utsname u;
    tt_arena *a = tt_arena_new();
    const char *commit = tt_git_commit(a, tt_job_dir(s->job));
    tt_str_add(o, ",\"git\":");
    if (commit)
        tt_str_json(o, commit);
    else
        tt_str_add(o, "null");
    tt_str_add(o, ",\"backend\":");
    tt_str_json(o, backend);
    if (!uname(&u)) {
        tt_str_add(o, ",\"system\":");
        tt_str_json(o, tt_arena_printf(a, "%s %s %s", u.sysname, u.release, u.machine));
    }
    tt_arena_free(a);
}

/* debug.save_config_file */
static tt_status save_job(const tt_run_folder *f, const tt_setup *s, tt_error *err)
{
    if (!s->core.debug.save_config_file)
        return TT_OK;
    tt_arena *a = tt_arena_new();
    tt_str job = {0};
    tt_error why = {0};
    tt_job_print(s->job, false, &job);
    tt_status st = tt_write_file_atomic(tt_path_join(a, f->path, s->core.debug.save_config_file),
                                        tt_str_get(&job), job.n, &why);
    if (st != TT_OK)
        st = tt_job_fail(s->job, "debug.save_config_file", err, "%s", why.text);
    tt_str_free(&job);
    tt_arena_free(a);
    return st;
}

tt_status tt_run_folder_describe(const tt_run_folder *f, const tt_setup *s, const char *backend,
                                 const char *changes, tt_error *err)
{
    TT_TRY(save_job(f, s, err));
    tt_str o = {0}, job = {0};
    char host[256] = "", wall[32];
    gethostname(host, sizeof host - 1);
    tt_wall_iso(f->started, wall);
    tt_str_add(&o, "{\"ttrun\":");
    tt_str_json(&o, TT_BUILD_VERSION);
    tt_str_add(&o, ",\"host\":");
    tt_str_json(&o, host);
    tt_str_printf(
        &o, ",\"pid\":%ld,\"started\":\"%s\",\"world\":%d,\"threads\":%lld,\"parameters\":%lld",
        (long)getpid(), wall, s->world, (long long)s->threads, (long long)s->size.parameters);
    describe_machine(&o, s, backend);
    tt_str_add(&o, ",\"mesh\":{");
    for (int i = 0; i < s->mesh.n_atoms; i++)
        tt_str_printf(&o, "%s\"%s\":%d", i ? "," : "", s->mesh.atom_name[i],
                      (int)s->mesh.atom_size[i]);
    tt_str_add(&o, "},\"plugins\":[");
    const tt_part *parts[] = {&s->model,     &s->loss,       &s->optimizer, &s->lr_scheduler,
                              &s->tokenizer, &s->dataloader, &s->backend};
    for (size_t i = 0; i < TT_COUNT(parts); i++)
        describe_part(&o, s, parts[i]);
    for (int i = 0; i < s->n_metrics; i++)
        describe_part(&o, s, &s->metrics[i]);
    for (int i = 0; i < s->n_converters; i++)
        describe_part(&o, s, &s->converters[i]);
    for (int i = 0; s->has_validation && i < s->n_validation; i++)
        describe_part(&o, s, &s->validation[i].data);
    for (int i = 0; i < s->n_hooks; i++)
        describe_part(&o, s, &s->hooks[i]);
    describe_part(&o, s, &s->comm);
    for (int i = 0; i < s->n_kernel_parts; i++)
        describe_part(&o, s, &s->kernel_parts[i]);
    tt_arena *a = tt_arena_new();
    tt_str_add(&o, "],\"files\":{");
    describe_files(&o, a, f->path, "tokenizer");
    describe_files(&o, a, f->path, "model");
    tt_arena_free(a);
    tt_str_printf(&o, "}%s%s", changes ? ",\"ctl\":" : "", changes ? changes : "");
    tt_recomputed_json(s, &o);
    tt_job_print(s->job, false, &job);
    const tt_status st = write_record(f, tt_str_get(&o), tt_str_get(&job), err);
    tt_str_free(&o);
    tt_str_free(&job);
    return st;
}

void tt_run_folder_begin(const tt_run_folder *f, const tt_setup *s, int64_t step)
{
    tt_str o = {0};
    tt_history_begin(f, s, step, &o);
    pthread_mutex_lock(&f->record->lock);
    f->record->starts = replaced(f->record->starts, tt_str_get(&o));
    pthread_mutex_unlock(&f->record->lock);
    tt_str_free(&o);
}

tt_status tt_run_folder_end(const tt_run_folder *f, int64_t step, const char *status, tt_error *err)
{
    tt_str o = {0};
    tt_history_end(step, status, &o);
    pthread_mutex_lock(&f->record->lock);
    f->record->ended = replaced(f->record->ended, tt_str_get(&o));
    pthread_mutex_unlock(&f->record->lock);
    tt_str_free(&o);
    return tt_run_folder_list(f, err);
}

tt_status tt_run_folder_list(const tt_run_folder *f, tt_error *err)
{
    return f->record ? write_record(f, NULL, NULL, err) : TT_OK;
}
