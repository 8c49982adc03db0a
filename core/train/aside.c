/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "checkpoint/exports.h"
#include "train/loop.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files that an earlier run left in the folder are kept, but apart from those of this run. A run
 * that starts at step 0 moves all of them to dump_folder/before-N, which is a complete run folder.
 * A run that goes back to an older step (checkpoint.load_step) moves the later steps there, so that
 * the next start continues from this branch. Checkpoints outside dump_folder are moved to
 * FOLDER.before-N, next to their folder, with a file that names dump_folder/before-N: `ttrun gc` removes no folder
 * elsewhere that lacks it. */

typedef struct aside {
    tt_loop *l;
    tt_arena *a;
    const char *dump, *steps; /* real paths; steps NULL: there is no such folder */
    const char *inside;       /* path of the steps folder within dump; NULL: it lies elsewhere */
    const char *to;           /* dump/before-N */
    const char *steps_to;     /* the folder that the step folders are moved to */
    tt_str what;              /* the names of what was moved so far, for the log */
} aside;

static const char *real(tt_arena *a, const char *path)
{
    char at[PATH_MAX];
    return realpath(path, at) ? tt_arena_str(a, at) : NULL;
}

/* The first entry of a folder that is named step-N with N > after; NULL: there is none. Names with
 * a suffix (step-3.tmp) are not checkpoints. */
static const char *step_after(tt_arena *a, const char *folder, int64_t after)
{
    const char *found = NULL;
    DIR *d = folder ? opendir(folder) : NULL;
    for (struct dirent *e = d ? readdir(d) : NULL; e && !found; e = readdir(d))
        if (tt_step_of_name(e->d_name, NULL) > after)
            found = tt_arena_str(a, e->d_name);
    if (d)
        closedir(d);
    return found;
}

static void aside_paths(aside *x, int64_t i)
{
    x->to = tt_arena_printf(x->a, "%s/before-%lld", x->dump, (long long)i);
    x->steps_to = x->inside || !x->steps
                      ? tt_path_join(x->a, x->to, x->inside ? x->inside : "checkpoint")
                      : tt_arena_printf(x->a, "%s.before-%lld", x->steps, (long long)i);
}

/* The largest number of a before-N in dump_folder; 0: there is none. */
static int64_t last_aside(const aside *x)
{
    const char **names = NULL;
    size_t n = 0;
    int64_t most = 0;
    if (tt_folder_names(x->a, x->dump, NULL, &names, &n, NULL) != TT_OK)
        return 0;
    for (size_t i = 0; i < n; i++) {
        char *end;
        if (strncmp(names[i], "before-", 7))
            continue;
        const long long v = strtoll(names[i] + 7, &end, 10);
        most = *end ? most : TT_MAXV(most, (int64_t)v);
    }
    return most;
}

#define N_OUTPUTS 9

/* What a start at step 0 moves besides checkpoints: first the exports, then the files and folders of dump_folder. */
static size_t outputs_of(const aside *x, const char *names[N_OUTPUTS])
{
    const tt_core_config *c = &x->l->s->core;
    const char *const all[N_OUTPUTS] = {"hf",
                                        "metrics.jsonl",
                                        "experts.json",
                                        "early_stopping.txt",
                                        c->metrics.save_tb_folder,
                                        "report.html",
                                        c->profiling.save_traces_folder,
                                        c->comm.save_traces_folder,
                                        c->profiling.save_memory_snapshot_folder};
    size_t n = 0;
    for (size_t i = 0; i < N_OUTPUTS; i++)
        if (all[i] && all[i][0] && all[i][0] != '/')
            names[n++] = all[i];
    return n;
}

/* Whether the last before-N is that of a start which was killed while it moved the files: run.json,
 * which is moved last, is still here, and nothing here is there too. */
static bool is_unfinished(const aside *x)
{
    const char *names[N_OUTPUTS];
    const size_t n = outputs_of(x, names);
    if (!tt_path_exists(x->to) || tt_path_exists(tt_path_join(x->a, x->to, "run.json")) ||
        !tt_path_exists(tt_path_join(x->a, x->dump, "run.json")))
        return false;
    for (size_t i = 0; i < n; i++)
        if (tt_path_exists(tt_path_join(x->a, x->to, names[i])) &&
            tt_path_exists(tt_path_join(x->a, x->dump, names[i])))
            return false;
    return step_after(x->a, x->steps, -1) == NULL; /* checkpoints are moved first */
}

static tt_status open_aside(tt_loop *l, aside *x, tt_error *err)
{
    const tt_core_config *c = &l->s->core;
    *x = (aside){.l = l, .a = l->rank.arena};
    x->dump = real(x->a, c->dump_folder);
    if (!x->dump)
        return TT_FAIL(err, TT_EIO, "%s: %s", c->dump_folder, strerror(errno));
    x->steps = real(x->a, tt_path_join(x->a, c->dump_folder, c->checkpoint.folder));
    x->inside = x->steps ? tt_path_below(x->dump, x->steps) : NULL;
    int64_t i = last_aside(x);
    aside_paths(x, TT_MAXV(i, (int64_t)1));
    if (i && !l->resumed && is_unfinished(x))
        return TT_OK;
    for (aside_paths(x, ++i); tt_path_exists(x->to) || tt_path_exists(x->steps_to);)
        aside_paths(x, ++i);
    return TT_OK;
}

static tt_status move_unsynced(aside *x, const char *from, const char *to, tt_error *err)
{
    TT_TRY(tt_mkdirs(tt_path_dir(x->a, to), err));
    if (rename(from, to))
        return TT_FAIL(err, TT_EIO, "%s: cannot be renamed to %s: %s", from, to, strerror(errno));
    return TT_OK;
}

/* A rename between folders is durable when both are; the new one may have been made for it, with those above it. */
static tt_status move(aside *x, const char *from, const char *to, tt_error *err)
{
    TT_TRY(move_unsynced(x, from, to, err));
    const char *top = x->steps ? tt_path_dir(x->a, x->steps) : x->dump;
    for (const char *f = tt_path_dir(x->a, to);; f = tt_path_dir(x->a, f)) {
        TT_TRY(tt_fsync_path(f, err));
        if (!strcmp(f, x->dump) || !strcmp(f, top) || strlen(f) <= 1)
            break;
    }
    return tt_fsync_path(tt_path_dir(x->a, from), err);
}

static void aside_note(aside *x, const char *what)
{
    tt_str_printf(&x->what, "%s%s", x->what.n ? ", " : "", what);
}

/* Into the checkpoints that lie, or will lie, in steps_to. */
static tt_status mark_as_ours(aside *x, const char *folder, tt_error *err)
{
    if (x->inside)
        return TT_OK;
    const char *text = tt_arena_printf(x->a, "%s\n", x->to);
    return tt_write_file_atomic(tt_path_join(x->a, folder, TT_ASIDE_MARK), text, strlen(text), err);
}

/* Moves every step folder with a step later than `after`. */
static tt_status move_steps(aside *x, const char *from, const char *to, int64_t after,
                            tt_error *err)
{
    for (const char *name; (name = step_after(x->a, from, after));)
        TT_TRY(move(x, tt_path_join(x->a, from, name), tt_path_join(x->a, to, name), err));
    return TT_OK;
}

/* Whether a file or a folder is not empty. */
static bool holds_something(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return false;
    if (!S_ISDIR(st.st_mode))
        return st.st_size > 0;
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (d)
        closedir(d);
    return n > 0;
}

static tt_status move_output(aside *x, const char *name, tt_error *err)
{
    const char *from = tt_path_join(x->a, x->dump, name);
    if (!holds_something(from))
        return TT_OK;
    TT_TRY(move_unsynced(x, from, tt_path_join(x->a, x->to, name), err));
    aside_note(x, name);
    return TT_OK;
}

/* Moves the whole folder by one rename, except the lock file, which this run holds. */
static tt_status move_checkpoints(aside *x, tt_error *err)
{
    const char *held = tt_path_join(x->a, x->steps_to, ".lock.saves");
    if (!step_after(x->a, x->steps, -1))
        return TT_OK;
    aside_note(x,
               x->inside ? "checkpoints" : tt_arena_printf(x->a, "checkpoints in %s", x->steps_to));
    if (x->inside && !x->inside[0])
        return move_steps(x, x->steps, tt_path_join(x->a, x->to, "checkpoint"), -1, err);
    TT_TRY(mark_as_ours(x, x->steps, err));
    TT_TRY(move(x, x->steps, x->steps_to, err));
    TT_TRY(tt_mkdirs(x->steps, err));
    return tt_path_exists(held) ? move(x, held, x->l->folder->saves_path, err) : TT_OK;
}

/* The copies of tokenizer and model files are needed by the steps that were moved, and replaced file by file later: a
 * second link is a copy. */
static tt_status link_files(aside *x, const char *name, tt_error *err)
{
    const char *from = tt_path_join(x->a, x->dump, name), *to = tt_path_join(x->a, x->to, name);
    const char **names = NULL;
    size_t n = 0;
    if (!holds_something(from))
        return TT_OK;
    TT_TRY(tt_mkdirs(to, err));
    TT_TRY(tt_folder_names(x->a, from, NULL, &names, &n, err));
    for (size_t i = 0; i < n; i++) {
        char *text = NULL;
        size_t bytes = 0;
        const char *file = tt_path_join(x->a, from, names[i]);
        const char *copy = tt_path_join(x->a, to, names[i]);
        struct stat st;
        if (stat(file, &st) || !S_ISREG(st.st_mode) || !link(file, copy) || errno == EEXIST)
            continue;
        TT_TRY(tt_read_file(file, 0, &text, &bytes, err)); /* no links here */
        const tt_status s = tt_write_file_atomic(copy, text, bytes, err);
        free(text);
        TT_TRY(s);
    }
    return TT_OK;
}

/* A start at step 0. Checkpoints are moved first: if this process is killed after that, the next
 * start begins at step 0 too. */
static tt_status start_over(aside *x, tt_error *err)
{
    const tt_core_config *c = &x->l->s->core;
    const char *outputs[N_OUTPUTS];
    const size_t n = outputs_of(x, outputs);
    if (c->checkpoint.enable) {
        TT_TRY(move_checkpoints(x, err));
        if (step_after(x->a, tt_path_join(x->a, x->dump, "hf"), -1))
            TT_TRY(move_output(x, "hf", err));
    }
    for (size_t i = 1; i < n; i++)
        TT_TRY(move_output(x, outputs[i], err));
    if (!x->what.n)
        return TT_OK;
    TT_TRY(link_files(x, "tokenizer", err));
    TT_TRY(link_files(x, "model", err));
    if (tt_path_exists(tt_path_join(x->a, x->dump, "run.json")))
        TT_TRY(move_unsynced(x, tt_path_join(x->a, x->dump, "run.json"),
                             tt_path_join(x->a, x->to, "run.json"), err));
    TT_TRY(tt_fsync_path(x->dump, err)); /* one for all outputs: each rename is whole by itself */
    tt_log(TT_INFO, "checkpoint", "%sthe run before this one is now in %s: %s",
           x->l->o->resume ? "" : "--resume never: ", x->to, tt_str_get(&x->what));
    return TT_OK;
}

static tt_status copy_output(aside *x, const char *name, tt_error *err)
{
    char *text = NULL;
    size_t n = 0;
    const char *from = tt_path_join(x->a, x->dump, name), *to = tt_path_join(x->a, x->to, name);
    if (!tt_path_exists(from))
        return TT_OK;
    TT_TRY(tt_read_file(from, 0, &text, &n, err));
    const tt_status s = tt_write_file_atomic(to, text, n, err);
    free(text);
    return s;
}

/* A start from an older step. The metrics sinks truncate their files, so a whole copy is kept. */
static tt_status go_back(aside *x, tt_error *err)
{
    const int64_t after = x->l->step;
    const char *hf = tt_path_join(x->a, x->dump, "hf");
    if (!step_after(x->a, x->steps, after))
        return TT_OK;
    TT_TRY(tt_mkdirs(x->to, err));
    TT_TRY(copy_output(x, "metrics.jsonl", err));
    TT_TRY(copy_output(x, "experts.json", err));
    TT_TRY(copy_output(x, "run.json", err));
    TT_TRY(link_files(x, "tokenizer", err));
    TT_TRY(link_files(x, "model", err));
    if (step_after(x->a, hf, after)) {
        TT_TRY(move_steps(x, hf, tt_path_join(x->a, x->to, "hf"), after, err));
        TT_TRY(tt_exports_link_newest(hf, err));
    }
    TT_TRY(move_steps(x, x->steps, x->steps_to, after, err));
    TT_TRY(mark_as_ours(x, x->steps_to, err));
    tt_log(TT_INFO, "checkpoint",
           "checkpoint.load_step: the steps after %lld, which this run discards, are now in %s",
           (long long)after, x->inside ? x->to : x->steps_to);
    return TT_OK;
}

tt_status tt_loop_set_aside(tt_loop *l, tt_error *err)
{
    aside x;
    if (!l->main)
        return TT_OK;
    TT_TRY(open_aside(l, &x, err));
    tt_status s = TT_OK;
    if (!l->resumed)
        s = start_over(&x, err);
    else if (l->s->core.checkpoint.load_step == l->step)
        s = go_back(&x, err);
    tt_str_free(&x.what);
    return s;
}
