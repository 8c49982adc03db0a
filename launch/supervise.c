/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/supervise.h"
#include "base/thread.h"
#include "checkpoint/checkpoint.h"
#include "launch/line.h"
#include "launch/nodes.h"
#include "launch/supervise_copies.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The supervisor: a loop around tt_launch_ranks(), which starts ranks and waits for their end. */

#define SECOND_NS INT64_C(1000000000)
#define EARLY_MOST                                                                                 \
    2 /* starts in a row that end before a step is done, until there is one rank fewer */

typedef struct supervisor {
    const tt_start_opts *start;
    const tt_supervise_opts *o;
    tt_launch_signals signals;
    int used;             /* of the budget */
    int64_t whole;        /* the newest checkpoint when the budget was whole */
    int64_t saved;        /* the newest checkpoint when ranks ended last; 0: none */
    int idle;             /* starts in a row that a new checkpoint or copy has not followed */
    tt_error first, last; /* failures since the budget was whole; code TT_OK: none */
    /* the ranks that run now */
    int64_t from,
        step;   /* where they go on from, and the newest step that is done; -1: not known yet */
    bool began; /* some start has gone on: the folder holds this run, whatever --resume says */
    int64_t failed_ns;  /* when the ranks before them had failed; 0: not to be told any more */
    int early;          /* starts in a row that ended before a step was done */
    int most;           /* ranks that may be started */
    tt_refit mesh;      /* world 0: the job's */
    tt_machines *nodes; /* NULL: all ranks are on this machine */
    bool news;          /* nodes have come that may take part */
    bool leaving;       /* the ranks were told to stop, so that these nodes take part */
    char came[128];     /* why the ranks that run now were started, where it is no failure; or "" */
    tt_held copies;     /* of the states of the ranks, where all are on this machine */
} supervisor;

static int64_t newest_step(const supervisor *s)
{
    int64_t *steps, newest = 0;
    size_t n = 0;
    tt_arena *a = tt_arena_new();
    const char *folder = s->o->checkpoints;
    if (folder && tt_path_exists(folder) && tt_ckpt_list(folder, a, &steps, &n, NULL) == TT_OK && n)
        newest = steps[n - 1];
    tt_arena_free(a);
    return newest;
}

/* ---- the mesh ---- */

/* Each node gets as many ranks; a mesh that cannot be divided so is followed by the next smaller one. */
static tt_status fit_nodes(const supervisor *s, int most, tt_refit *out, tt_error *err)
{
    const tt_supervise_opts *o = s->o;
    int nodes, local, k = most;
    for (; k >= o->least; k = out->world - 1) {
        TT_TRY(tt_refit_mesh(&o->job, o->least, k, o->n, out, err));
        if (tt_nodes_divide(s->nodes, out->world, &nodes, &local))
            return TT_OK;
    }
    return TT_FAIL(err, TT_EINVAL,
                   "no mesh of %d to %d ranks that fits the job can be divided evenly among %d "
                   "nodes; start another number of ranks per node",
                   o->least, most, tt_nodes_here(s->nodes));
}

static tt_status choose_mesh(supervisor *s, tt_error *err)
{
    const tt_supervise_opts *o = s->o;
    if (!o->least)
        return TT_OK;
    const int room = s->nodes ? tt_nodes_here(s->nodes) * o->nodes->nproc : o->room(o->user);
    const int most = TT_MAXV(TT_MIN(room, s->most), o->least);
    return s->nodes ? fit_nodes(s, most, &s->mesh, err)
                    : tt_refit_mesh(&o->job, o->least, most, o->n, &s->mesh, err);
}

/* The words that ranks get in addition. */
static int add_words(const supervisor *s, const char **words)
{
    tt_arena *a = s->start->arena;
    const tt_refit *m = &s->mesh;
    int n = 0;
    if (s->began) {
        words[n++] = "--resume";
        words[n++] = "auto";
    }
    if (!m->world)
        return n;
    words[n++] = "--nproc";
    words[n++] = tt_arena_printf(a, "%d", m->world);
    words[n++] = "--parallelism.data_parallel_replicate_degree";
    words[n++] = tt_arena_printf(a, "%d", m->dp_replicate);
    words[n++] = "--parallelism.data_parallel_shard_degree";
    words[n++] = tt_arena_printf(a, "%d", m->dp_shard);
    words[n++] = "--training.global_batch_size";
    words[n++] = tt_arena_printf(a, "%lld", (long long)m->global_batch);
    return n;
}

/* "", or ", with 3 of 4 ranks (data_parallel_replicate 1, data_parallel_shard 3)". */
static const char *mesh_text(const supervisor *s)
{
    const tt_refit *m = &s->mesh;
    if (!m->world || m->world == s->o->n)
        return "";
    return tt_arena_printf(
        s->start->arena,
        ", with %d of %d ranks (data_parallel_replicate %d, data_parallel_shard %d)", m->world,
        s->o->n, m->dp_replicate, m->dp_shard);
}

/* ---- one start ---- */

static int world_of(const supervisor *s)
{
    return s->mesh.world ? s->mesh.world : s->o->n;
}

static void stepped(void *user, int64_t step)
{
    supervisor *s = user;
    if (s->from < 0)
        s->from = step;
    s->step = step;
    s->began = true;
    if (s->failed_ns && step > s->from) {
        tt_log(TT_INFO, "supervisor", "step %lld is done %.2f s after the failure", (long long)step,
               1e-9 * (double)(tt_now_ns() - s->failed_ns));
        s->failed_ns = 0;
    }
    if (s->nodes)
        tt_nodes_tidy_copies(s->nodes);
    else
        tt_held_tidy(&s->copies, world_of(s));
}

/* In the environment of ranks: which restart of how many, and why. */
static const char *variable_of(const supervisor *s)
{
    return tt_arena_printf(s->start->arena, "%d %d %s", s->used, s->o->most_restarts,
                           s->came[0] ? s->came
                           : s->used  ? s->last.text
                                      : "");
}

static tt_status run_once(supervisor *s, int *stopped, tt_error *err)
{
    const char *words[16];
    const tt_launch_opts o = {.n = world_of(s),
                              .threads = s->o->threads || s->mesh.world == 1,
                              .init_timeout_s = s->o->init_timeout_s,
                              .supervisor = variable_of(s),
                              .words = words,
                              .n_words = add_words(s, words),
                              .copies = s->copies.fds,
                              .before = s->copies.before,
                              .n_before = s->copies.n_before,
                              .stepped = stepped,
                              .user = s,
                              .stopped = stopped};
    s->from = s->step = -1;
    *err = (tt_error){0};
    return tt_launch_ranks(s->start, &o, &s->signals, err);
}

/* Whether the ranks have to stop after this step, because there are nodes for a larger mesh. */
static bool must_leave(void *user)
{
    supervisor *s = user;
    tt_refit larger;
    tt_error ignored = {0};
    if (tt_nodes_came(s->nodes, s->came, sizeof s->came))
        s->news = true;
    if (!s->news || s->from < 0 || s->step <= s->from || !s->o->saves)
        return false;
    s->news = false;
    s->most = s->o->n;
    const int room = tt_nodes_here(s->nodes) * s->o->nodes->nproc;
    s->leaving = fit_nodes(s, TT_MIN(room, s->most), &larger, &ignored) == TT_OK &&
                 larger.world > s->mesh.world;
    return s->leaving;
}

/* Of a machine's ranks where there are others; start: as node 0 has announced it. */
static tt_status run_part(supervisor *s, const tt_nodes_start *start, int *stopped, tt_error *err)
{
    const char *words[16];
    bool died = false;
    s->began = start->resume;
    s->mesh = start->mesh;
    int n_before;
    const int *copies = tt_nodes_begin_copies(s->nodes),
              *before = tt_nodes_copies_before(s->nodes, &n_before);
    const tt_launch_opts o = {.n = tt_nodes_ranks(s->nodes),
                              .init_timeout_s = s->o->init_timeout_s,
                              .supervisor = start->text,
                              .words = words,
                              .n_words = add_words(s, words),
                              .copies = copies,
                              .before = before,
                              .n_before = n_before,
                              .stepped = stepped,
                              .user = s,
                              .nodes = s->nodes,
                              .must_end = tt_nodes_must_end,
                              .must_leave =
                                  s->o->least && tt_nodes_is_first(s->nodes) ? must_leave : NULL,
                              .stopped = stopped,
                              .died = &died};
    s->from = s->step = -1;
    *err = (tt_error){0};
    const tt_status st = tt_launch_ranks(s->start, &o, &s->signals, err);
    return tt_nodes_ended(s->nodes, st, died, stopped, err);
}

/* Node 0, --nnodes MIN:MAX: who takes part. */
static void say_who(const supervisor *s)
{
    char list[512];
    const tt_refit *m = &s->mesh;
    tt_nodes_list(s->nodes, list, sizeof list);
    tt_log(TT_INFO, "supervisor",
           "nodes %s: %d rank%s, data_parallel_replicate %d, data_parallel_shard %d, global batch "
           "%lld",
           list, m->world, m->world > 1 ? "s" : "", m->dp_replicate, m->dp_shard,
           (long long)m->global_batch);
}

/* The run cannot go on with the nodes that are left: the line begins with the failure that was first. */
static tt_status cannot_go_on(const supervisor *s, tt_status st, tt_error *err)
{
    const tt_error last = *err;
    if (st == TT_OK || st == TT_ESIGNAL || s->first.code == TT_OK)
        return st;
    return TT_FAIL(err, s->first.code, "%s; then %s", s->first.text, last.text);
}

/* The step from which copies in memory are of use; -1: none are. */
static int64_t least_copy(const supervisor *s)
{
    return (s->start->no_resume && !s->began) || s->early ? -1 : newest_step(s);
}

/* Node 0. Sets *stopped when the run must not go on. */
static tt_status run_nodes(supervisor *s, int *stopped, tt_error *err)
{
    tt_nodes_start start = {.resume = s->began};
    s->leaving = s->news = false;
    tt_status st = tt_nodes_gather(s->nodes, err);
    if (st == TT_OK)
        st = choose_mesh(s, err);
    if (st != TT_OK) {
        *stopped = 1;
        return cannot_go_on(s, st, err);
    }
    start.mesh = s->mesh;
    start.copies = least_copy(s);
    snprintf(start.text, sizeof start.text, "%.1000s", variable_of(s));
    tt_nodes_announce(s->nodes, world_of(s), &start);
    if (s->o->least)
        say_who(s);
    s->came[0] = 0;
    return run_part(s, &start, stopped, err);
}

/* The other nodes: does as node 0 says. */
static tt_status follow(supervisor *s, tt_error *err)
{
    long before = 0;
    for (int n = 0;; n++) {
        int stopped = 0;
        tt_nodes_start start = {0};
        char *cause;
        TT_TRY(tt_nodes_hear(s->nodes, &start, err));
        if (start.over)
            return TT_OK;
        const long number = strtol(start.text, &cause, 10), of = strtol(cause, &cause, 10);
        cause += *cause == ' ';
        if (n && number > before)
            tt_log(TT_WARN, "supervisor", "%s; restart %ld of %ld", cause, number, of);
        else if (n && *cause)
            tt_log(TT_WARN, "supervisor", "%s; starts again", cause);
        before = number;
        (void)run_part(s, &start, &stopped, err);
    }
}

/* ---- between two starts ---- */

/* The failure's text without the advice that it ends with, which the supervisor follows. */
static void keep_failure(tt_error *to, const tt_error *err)
{
    static const char advice[] = "; start again to continue from the last checkpoint";
    *to = *err;
    char *at = strstr(to->text, advice);
    if (at)
        memmove(at, at + sizeof advice - 1, strlen(at + sizeof advice - 1) + 1);
}

static void count_failure(supervisor *s, const tt_error *err)
{
    const int64_t saved = newest_step(s);
    keep_failure(&s->last, err);
    s->came[0] = 0;
    s->idle = saved != s->saved ? 0 : s->idle + 1;
    s->early = s->step > s->from ? 0 : s->early + 1;
    s->saved = saved;
    s->whole = TT_MIN(s->whole, saved); /* --resume never has moved the earlier steps aside */
    if (saved - s->whole >= TT_SUPERVISE_STEPS) {
        s->used = 0;
        s->whole = saved;
        s->first = (tt_error){0};
    }
    if (s->first.code == TT_OK)
        s->first = s->last;
    if (s->early >= EARLY_MOST && s->mesh.world > s->o->least) {
        s->most = s->mesh.world - 1;
        s->early = 0;
    }
}

/* Waits, so that what fails at once does not do so without end. Returns a stop signal, or 0. */
static int rest(const supervisor *s)
{
    const int doubled = TT_MIN(s->idle - 2, 10);
    const int64_t seconds = s->idle < 2 ? 0 : TT_MIN(INT64_C(1) << doubled, TT_SUPERVISE_MOST_S);
    const int64_t until = tt_now_ns() + seconds * SECOND_NS;
    struct pollfd f = {s->signals.fd, POLLIN, 0};
    if (seconds)
        tt_log(TT_INFO, "supervisor", "waits %lld s", (long long)seconds);
    for (;;) {
        const int64_t left = until - tt_now_ns();
        int sig;
        if (poll(&f, 1, left > 0 ? (int)(left / 1000000) + 1 : 0) > 0)
            while ((sig = tt_launch_signals_next(&s->signals)) != 0)
                if (sig != SIGUSR1) /* everything that there is to save is saved */
                    return sig;
        if (left <= 0)
            return 0;
    }
}

static tt_status give_up(const supervisor *s, tt_error *err)
{
    const bool other = strcmp(s->first.text, s->last.text) != 0;
    const int n = s->o->most_restarts;
    if (!n)
        return TT_FAIL(err, s->first.code, "%s; start again to continue from the last checkpoint",
                       s->first.text);
    return TT_FAIL(err, s->first.code,
                   "%s; given up after %d restart%s, between which fewer than %d "
                   "steps were saved%s%s",
                   s->first.text, n, n == 1 ? "" : "s", TT_SUPERVISE_STEPS,
                   other ? "; the last failure: " : "", other ? s->last.text : "");
}

/* The step that the next start likely finds in the nodes' memory, if no other node comes before it. */
static int64_t next_copy(const supervisor *s, int world)
{
    tt_refit next = {.world = world};
    tt_error ignored = {0};
    const int room = tt_nodes_here(s->nodes) * s->o->nodes->nproc;
    if (s->early || (s->o->least && fit_nodes(s, TT_MIN(room, s->most), &next, &ignored) != TT_OK))
        return -1;
    return next.world == world ? tt_nodes_newest_copy(s->nodes, world)
                               : tt_nodes_own_copy(s->nodes);
}

/* Where the next start goes on from; world: the ranks of the one before. Copies that a start did not get beyond may
 * be why it has failed. */
static int64_t next_from(supervisor *s, int world)
{
    if (s->start->no_resume && !s->began)
        return 0;
    if (s->nodes)
        return TT_MAXV(s->saved, next_copy(s, world));
    const int64_t copied = s->early ? -1 : tt_held_newest(&s->copies, world);
    if (s->early)
        tt_held_forget(&s->copies);
    else if (world_of(s) != world)
        tt_held_change_mesh(&s->copies, world);
    return TT_MAXV(s->saved, copied);
}

static tt_status prepare_restart(supervisor *s, tt_error *err)
{
    const int world = world_of(s);
    s->failed_ns = tt_now_ns();
    if (s->used == s->o->most_restarts)
        return give_up(s, err);
    s->used++;
    if (!s->nodes)
        TT_TRY(choose_mesh(s, err));
    const int64_t from = next_from(s, world);
    if (s->from >= 0 && from > s->from)
        s->idle = 0; /* copies in memory have moved the run on, without a checkpoint */
    tt_log(TT_WARN, "supervisor", "%s; restart %d of %d from step %lld%s", s->last.text, s->used,
           s->o->most_restarts, (long long)from, s->nodes ? "" : mesh_text(s));
    const int sig = rest(s);
    if (sig)
        return TT_FAIL(err, TT_ESIGNAL, "stopped by %s before restart %d of %d",
                       tt_signal_name(sig), s->used, s->o->most_restarts);
    return TT_OK;
}

/* The ranks have saved and stopped, so that nodes that have come take part. */
static void start_larger(supervisor *s)
{
    s->saved = newest_step(s);
    s->idle = s->early = 0;
    s->failed_ns = tt_now_ns();
    tt_log(TT_WARN, "supervisor", "%s; starts again from step %lld", s->came, (long long)s->saved);
}

static tt_status supervise(supervisor *s, tt_error *err)
{
    tt_status st = s->nodes ? TT_OK : choose_mesh(s, err);
    if (st == TT_OK && s->mesh.world)
        tt_log(TT_INFO, "supervisor",
               "%d ranks of %d to %d: data_parallel_replicate %d, data_parallel_shard %d, global "
               "batch "
               "%lld",
               s->mesh.world, s->o->least, s->o->n, s->mesh.dp_replicate, s->mesh.dp_shard,
               (long long)s->mesh.global_batch);
    while (st == TT_OK) {
        int stopped = 0;
        st = s->nodes ? run_nodes(s, &stopped, err) : run_once(s, &stopped, err);
        if (s->leaving && st == TT_ESIGNAL && !stopped) {
            start_larger(s);
            st = TT_OK;
            continue;
        }
        if (stopped || !tt_launch_restarts(st))
            return st;
        count_failure(s, err);
        st = prepare_restart(s, err);
    }
    return st;
}

static void open_copies(supervisor *s)
{
    if (s->nodes && s->o->copies)
        tt_nodes_keep_copies(s->nodes);
    else if (s->o->copies)
        tt_held_open(&s->copies, s->o->n);
}

tt_status tt_supervise(const tt_start_opts *start, const tt_supervise_opts *o, tt_error *err)
{
    supervisor s = {.start = start, .o = o, .most = o->n};
    TT_TRY(tt_launch_signals_open(&s.signals, err));
    const tt_status met = o->nodes ? tt_nodes_open(o->nodes, &s.signals, &s.nodes, err) : TT_OK;
    if (met != TT_OK) {
        tt_launch_signals_close(&s.signals);
        return met;
    }
    open_copies(&s);
    s.saved = s.whole = newest_step(&s);
    const bool first = !s.nodes || tt_nodes_is_first(s.nodes);
    const tt_status st = first ? supervise(&s, err) : follow(&s, err);
    if (s.nodes && first)
        tt_nodes_finish(s.nodes, st, err);
    tt_nodes_close(s.nodes);
    tt_held_close(&s.copies);
    tt_launch_signals_close(&s.signals);
    return st;
}

/* Takes numbers off the begin of the text; returns how many. */
static int take_descriptors(char **text, int *fds, int most)
{
    char *end;
    int n = 0;
    for (; n < most; *text = end) {
        const int fd = (int)strtol(*text, &end, 10);
        if (end == *text)
            break;
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fds[n++] = fd;
    }
    return n;
}

static void take_copies(tt_arena *a, tt_restart *out)
{
    const char *value = getenv(TT_COPIES_VARIABLE);
    char *text = value ? tt_arena_str(a, value) : ""; /* "3 4 5/6 7" */
    const int most = (int)strlen(text) / 2 + 1;
    out->copies = tt_arena_array(a, (size_t)most, sizeof *out->copies);
    out->before = tt_arena_array(a, (size_t)most, sizeof *out->before);
    out->n_copies = take_descriptors(&text, out->copies, most);
    text += *text == '/';
    out->n_before = take_descriptors(&text, out->before, most);
    unsetenv(TT_COPIES_VARIABLE);
}

bool tt_supervised(tt_arena *a, tt_restart *out)
{
    const char *text = getenv(TT_SUPERVISOR_VARIABLE);
    char *end;
    *out = (tt_restart){0};
    if (!text)
        return false;
    out->number = (int)strtol(text, &end, 10);
    out->of = (int)strtol(end, &end, 10);
    out->cause = tt_arena_str(a, end + (*end == ' '));
    take_copies(a, out);
    unsetenv(TT_SUPERVISOR_VARIABLE); /* a command of the job may start another run */
    tt_line_is_supervisors();
    return true;
}
