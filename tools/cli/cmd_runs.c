/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "checkpoint/checkpoint.h"
#include "cli/cli.h"
#include "cli/from_checkpoint.h"
#include "cli/runs.h"
#include "report/report.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ttrun runs: lists run folders. ttrun gc: removes runs that were set aside, and caches. */

static const char *folder_of(const tt_cli *cli)
{
    return cli->n_words ? cli->words[0] : tt_runs_default();
}

/* ---- runs ---- */

static const char *time_text(tt_arena *a, int64_t seconds)
{
    char text[32] = "-";
    const time_t t = (time_t)seconds;
    struct tm tm;
    if (seconds && localtime_r(&t, &tm))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M", &tm);
    return tt_arena_str(a, text);
}

static void print_json(const tt_runs *runs, tt_str *o)
{
    tt_str_addc(o, '[');
    for (size_t i = 0; i < runs->n; i++) {
        const tt_run_entry *e = &runs->items[i];
        char wall[32];
        tt_wall_iso((double)e->written, wall);
        tt_str_add(o, i ? ",\n{\"path\":" : "\n{\"path\":");
        tt_str_json(o, e->path);
        tt_str_add(o, ",\"spec\":");
        tt_str_json(o, e->spec);
        tt_str_printf(o, ",\"step\":%lld,\"steps\":%lld,\"loss\":", (long long)e->step,
                      (long long)e->steps);
        tt_str_json_number(o, e->loss);
        tt_str_printf(o, ",\"written\":\"%s\",\"bytes\":%lld,\"state\":\"%s\",\"older_of\":", wall,
                      (long long)e->bytes, tt_run_states[e->state]);
        if (e->older_of)
            tt_str_json(o, e->older_of);
        else
            tt_str_add(o, "null");
        tt_str_addc(o, '}');
    }
    tt_str_add(o, "\n]\n");
}

static void print_table(tt_arena *a, const tt_runs *runs, tt_str *o)
{
    int width = 4;
    for (size_t i = 0; i < runs->n; i++)
        width = TT_MAXV(width, (int)strlen(runs->items[i].path));
    tt_str_printf(o, "%-*s  %-10s %15s %9s  %-16s %8s  %s\n", width, "run", "spec", "step", "loss",
                  "last write", "size", "state");
    for (size_t i = 0; i < runs->n; i++) {
        const tt_run_entry *e = &runs->items[i];
        const char *step = e->step < 0 ? "-" : tt_arena_printf(a, "%lld", (long long)e->step);
        const char *steps = e->steps < 0 ? "" : tt_arena_printf(a, "/%lld", (long long)e->steps);
        const char *loss = isnan(e->loss) ? "-" : tt_arena_printf(a, "%.5f", e->loss);
        tt_str_printf(o, "%-*s  %-10s %15s %9s  %-16s %8s  %s%s\n", width, e->path, e->spec,
                      tt_arena_printf(a, "%s%s", step, steps), loss, time_text(a, e->written),
                      tt_bytes_text(a, e->bytes), tt_run_states[e->state],
                      e->older_of ? ", set aside" : "");
    }
}

/* Of the one run that was asked for: its starts. */
static void print_starts(tt_arena *a, const char *folder, const tt_runs *runs, tt_str *o)
{
    tt_run_facts facts;
    tt_str starts = {0};
    if (tt_run_facts_read(folder, a, &facts))
        tt_report_starts_text(facts.root, runs->n && runs->items[0].state == TT_RUN_RUNNING,
                              &starts);
    if (starts.n)
        tt_str_printf(o, "\nstarts:\n%s", tt_str_get(&starts));
    tt_str_free(&starts);
}

static tt_status run_runs(tt_cli *cli, tt_error *err)
{
    tt_runs runs;
    tt_str o = {0};
    const char *folder = folder_of(cli);
    TT_TRY(tt_runs_find(folder, cli->arena, &runs, err));
    if (cli->json)
        print_json(&runs, &o);
    else if (runs.n)
        print_table(cli->arena, &runs, &o);
    else
        tt_str_printf(&o, "no runs below %s\n", folder);
    if (!cli->json)
        print_starts(cli->arena, folder, &runs, &o);
    tt_cli_print(&o);
    tt_str_free(&o);
    return TT_OK;
}

const tt_command tt_cmd_runs = {.name = "runs",
                                .forms = "[FOLDER]",
                                .doc =
                                    "list the runs below a folder: step, loss, last write, size, "
                                    "state, those set aside; of a run's own folder also its starts",
                                .run = run_runs,
                                .words = 1,
                                .no_job = true};

/* ---- gc ---- */

typedef struct collector {
    const tt_cli *cli;
    bool yes;
    int64_t bytes;
    size_t n;
    tt_str o;
} collector;

static void count_removed(collector *c, const char *path)
{
    const int64_t bytes = tt_tree_bytes(path, NULL);
    tt_str_printf(&c->o, "%s  %s (%lld bytes)\n", path, tt_bytes_text(c->cli->arena, bytes),
                  (long long)bytes);
    c->bytes += bytes;
    c->n++;
}

/* Removes what lies below a folder. */
static tt_status collect(collector *c, const char *folder, const char *path, tt_error *err)
{
    count_removed(c, path);
    return c->yes ? tt_remove_below(folder, path, err) : TT_OK;
}

/* run.json names the folder of checkpoints, and who may write run.json must not have others' folders removed: what lies
 * elsewhere than below the folder that is asked for has a file that says which run it was. */
static tt_status collect_elsewhere(collector *c, const tt_run_entry *e, tt_error *err)
{
    char asked[PATH_MAX], also[PATH_MAX], run[PATH_MAX + 1];
    if (!e->also || !realpath(e->also, also) || !realpath(e->path, run))
        return TT_OK;
    const char *below = realpath(folder_of(c->cli), asked) ? tt_path_below(asked, also) : NULL;
    if (below && *below)
        return collect(c, asked, also, err);
    strcat(run, "\n");
    if (!tt_has_mark(also, TT_ASIDE_MARK, run)) {
        tt_log(TT_WARN, "train",
               "%s is left as it is: it lies outside of %s, and nothing in it says that it "
               "belongs to %s; remove it yourself if it does",
               also, folder_of(c->cli), e->path);
        return TT_OK;
    }
    count_removed(c, also);
    return c->yes ? tt_remove_marked(also, TT_ASIDE_MARK, run, err) : TT_OK;
}

/* Removes the older runs of one run but the `keep` newest, while it holds the run's locks, so that
 * no run begins there meanwhile. */
static tt_status collect_run(collector *c, const tt_runs *runs, size_t at, int64_t keep,
                             tt_error *err)
{
    int fds[2] = {-1, -1};
    tt_error why = {0};
    if (runs->n <= at + 1 || !runs->items[at + 1].older_of)
        return TT_OK;
    tt_status s = tt_run_hold(runs->items[at].path, fds, &why);
    if (s == TT_EBUSY) {
        tt_log(TT_WARN, "train", "%s: nothing of this run is removed", why.text);
        return TT_OK;
    }
    if (s != TT_OK)
        return TT_FAIL(err, s, "%s", why.text);
    int64_t k = 0;
    for (size_t i = at + 1; s == TT_OK && i < runs->n && runs->items[i].older_of; i++)
        if (k++ >= keep) {
            s = collect_elsewhere(c, &runs->items[i], err);
            if (s == TT_OK)
                s = collect(c, runs->items[at].path, runs->items[i].path, err);
        }
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return s;
}

/* Files of the caches: tokens, kernels. A run that has one open keeps it. */
static tt_status collect_cache(collector *c, tt_error *err)
{
    tt_arena *a = c->cli->arena;
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const char *folder = base && *base == '/'   ? tt_path_join(a, base, "ttrun")
                         : home && *home == '/' ? tt_path_join(a, home, ".cache/ttrun")
                                                : NULL;
    const char **names = NULL;
    size_t n = 0;
    if (!folder || !tt_path_exists(folder))
        return TT_OK;
    TT_TRY(tt_folder_names(a, folder, NULL, &names, &n, err));
    for (size_t i = 0; i < n; i++) {
        const char *end = strrchr(names[i], '.');
        const bool ours = (end && (!strcmp(end, ".tokens") || !strcmp(end, ".key"))) ||
                          !strcmp(names[i], "cubin");
        if (ours)
            TT_TRY(collect(c, folder, tt_path_join(a, folder, names[i]), err));
    }
    return TT_OK;
}

static tt_status gc(collector *c, tt_error *err)
{
    const tt_cli *cli = c->cli;
    int64_t keep = 0;
    tt_runs runs;
    TT_TRY(tt_cli_integer(cli, "keep", 0, INT32_MAX, &keep, err));
    TT_TRY(tt_runs_find(folder_of(cli), cli->arena, &runs, err));
    for (size_t i = 0; i < runs.n; i++)
        if (!runs.items[i].older_of)
            TT_TRY(collect_run(c, &runs, i, keep, err));
    return tt_cli_option(cli, "cache") ? collect_cache(c, err) : TT_OK;
}

static tt_status run_gc(tt_cli *cli, tt_error *err)
{
    collector c = {.cli = cli, .yes = tt_cli_option(cli, "yes") && !tt_cli_option(cli, "dry-run")};
    const tt_status s = gc(&c, err);
    if (s == TT_OK && !c.n)
        tt_str_printf(&c.o, "nothing to remove below %s\n", folder_of(cli));
    else if (s == TT_OK)
        tt_str_printf(&c.o, "%s%s (%lld bytes)%s\n", c.yes ? "removed " : "would remove ",
                      tt_bytes_text(cli->arena, c.bytes), (long long)c.bytes,
                      c.yes ? "" : "; nothing was removed: add --yes");
    tt_cli_print(&c.o);
    tt_str_free(&c.o);
    return s;
}

static const tt_cli_row gc_rows[] = {
    TT_CLI_VALUE("keep", "N", "0",
                 "leave the newest N of the runs that were set aside, per folder"),
    TT_CLI_FLAG("cache", "also remove the caches of tokens and of compiled kernels"),
    TT_CLI_FLAG("yes", "remove; without it the command only prints what it would remove"),
    TT_CLI_FLAG("dry-run", "remove nothing, also with --yes"),
};
const tt_command tt_cmd_gc = {
    .name = "gc",
    .forms = "[FOLDER]",
    .doc = "remove runs that were set aside, and caches; without --yes only show them",
    .rows = gc_rows,
    .n_rows = TT_COUNT(gc_rows),
    .run = run_gc,
    .words = 1,
    .no_job = true};
