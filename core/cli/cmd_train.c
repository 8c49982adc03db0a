/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"
#include "cli/cmd_plan.h"
#include "cli/crash.h"
#include "cli/launch.h"
#include "cli/line.h"
#include "cli/signals.h"
#include "cli/try_job.h"
#include "device/device.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a process that ends before the run is done ---- */

/* Read by signal handlers: the process that trains, and the session of its rank. */
static _Atomic long training; /* pid; 0: none */
static _Atomic(tt_session *) ranks;

/* Whether this process prints the error: with several ranks on this machine only the one that
 * failed first does, and the others exit with the same status. */
static bool prints_error(tt_status s, const char *why)
{
    tt_session *all = atomic_load(&ranks);
    const bool mine = !all || tt_session_claim(all, s, why, true);
    if (all)
        tt_session_stop(all, why);
    return mine;
}

/* Called in a signal handler. */
static void second_signal(int sig)
{
    const bool mine = prints_error(TT_ESIGNAL, "a second signal");
    if (tt_line_is_there())
        tt_line_say((char)sig); /* the launcher ends all ranks and prints the error */
    else if (mine)
        tt_signals_say_second(sig);
}

/* At exit: if a plugin or one of its libraries called exit(0) before the run was done, the process
 * must not end with success. */
static void on_exit_call(void)
{
    static atomic_flag entered = ATOMIC_FLAG_INIT;
    static const char why[] = "a plugin or a library called exit() before the run was done; start "
                              "again to continue from the last checkpoint";
    tt_error e = {0};
    if (atomic_load(&training) != (long)getpid()) /* the run is done, or this is a child that a
                                                     plugin has forked */
        return;
    atexit(on_exit_call);                      /* in place of the one that this thread took */
    while (atomic_flag_test_and_set(&entered)) /* another rank's thread called exit, too */
        pause();
    snprintf(e.text, sizeof e.text, "%s", why);
    if (prints_error(TT_EIO, why))
        tt_cli_report(TT_EIO, &e);
    _exit(tt_cli_exit_status(TT_EIO));
}

/* Called in a signal handler. */
static bool prints_crash(const char *why)
{
    return prints_error(TT_EIO, why);
}

/* A thread that calls exit() takes one handler off the list before it calls it, and ends the process if
 * none is left. The handler puts one back, so there need only be as many as threads are between these
 * two at the same moment, however many threads call exit(). */
#define EXIT_CALLS 32

static void guard(void)
{
    static bool registered;
    for (int i = 0; !registered && i < EXIT_CALLS; i++)
        atexit(on_exit_call);
    registered = true;
    atomic_store(&training, (long)getpid());
    tt_crash_asks(prints_crash);
}

/* Fails if a stop signal was received while the run was prepared. */
static tt_status not_stopped(tt_error *err)
{
    const int sig = tt_signals_stop();
    return sig ? TT_FAIL(err, TT_ESIGNAL, "stopped by %s before step 1", tt_signal_name(sig))
               : TT_OK;
}

static tt_try_opts try_opts(const tt_cli *cli, const tt_setup *s)
{
    return (tt_try_opts){cli, s->world, (double)s->core.comm.init_timeout_seconds};
}

static tt_run_opts run_opts(const tt_cli *cli, const tt_try_opts *tries)
{
    return (tt_run_opts){.resume = !cli->no_resume,
                         .verbose = cli->verbose,
                         .progress = cli->verbose >= 0,
                         .stop = tt_signals_stop,
                         .save = tt_signals_save,
                         .try_job = tt_cli_try_job,
                         .try_user = tries};
}

/* Runs all ranks in this process: there is one, or they are threads. */
static tt_status run_here(tt_cli *cli, tt_error *err)
{
    tt_registry *r = NULL;
    tt_setup s;
    const tt_setup_opts so = tt_cli_training(cli);
    guard();
    tt_status st = tt_cli_setup(cli, &so, &r, &s, err);
    if (st == TT_OK && !cli->dry_run && s.world > TT_CLI_MOST_RANKS)
        st = tt_job_fail(s.job, "comm.backend", err,
                         "the parallelism needs %d ranks, but at most %d can be threads of this "
                         "process; start processes on more machines",
                         s.world, TT_CLI_MOST_RANKS);
    if (st == TT_OK && cli->dry_run) {
        tt_setup_notices(&s);
        st = tt_setup_find_data(&s, err);
        if (st == TT_OK)
            st = tt_cli_plan(cli, &s, err);
    } else if (st == TT_OK) {
        const tt_try_opts tries = try_opts(cli, &s);
        const tt_run_opts ro = run_opts(cli, &tries);
        if ((st = not_stopped(err)) == TT_OK)
            st = tt_train(&s, &ro, err);
    }
    tt_registry_free(r);
    atomic_store(&training, 0);
    return st;
}

/* ---- one rank of many processes ---- */

/* Called when this rank's main thread does not notice that the run was stopped. */
static void overdue(tt_session *s)
{
    tt_error e = {0};
    tt_session_stopped(s, &e);
    tt_session_claim(s, TT_ECOMM, e.text, false);
    const tt_status st = tt_session_first_failure(s, &e);
    tt_cli_report(st, &e);
    _exit(tt_cli_exit_status(st));
}

/* Prints that a rank was lost. */
static void lost(const char *text)
{
    tt_error e = {0};
    tt_cli_report(TT_FAIL(&e, TT_ECOMM, "%s", text), &e);
}

/* The host's communicator. */
static tt_status find_remote(const tt_setup *s, const tt_launch *l, tt_processes_opts *o,
                             tt_error *err)
{
    const char *key = tt_setup_host_key(s);
    if (!strcmp(s->host_comm, "local"))
        return tt_job_fail(
            s->job, key, err,
            "local: ranks are threads of one process, but %s started %d processes; use auto, shm "
            "or a comm plugin (mpi)",
            l->launcher, l->world);
    if (!strcmp(s->host_comm, "shm") && l->local_world != l->world)
        return tt_job_fail(s->job, key, err,
                           "shm: only %d of %d ranks are on this machine; use auto or a comm "
                           "plugin (mpi)",
                           l->local_world, l->world);
    o->all_remote = !tt_comm_is_core(s->host_comm);
    o->remote = s->comm.component ? s->comm.component->vtable : NULL;
    o->remote_config = s->comm.config;
    return TT_OK;
}

static tt_status join_and_train(tt_cli *cli, tt_setup *s, const tt_launch *l, tt_session *session,
                                tt_error *err)
{
    tt_processes_opts po = {.launch = l, .session = session, .concurrent = s->overlap};
    tt_dist d;
    TT_TRY(find_remote(s, l, &po, err));
    TT_TRY(tt_processes_join(&po, &d, err));
    const tt_try_opts tries = try_opts(cli, s);
    tt_run_opts ro = run_opts(cli, &tries);
    ro.dist = &d;
    tt_cli_log_setup(cli, l->rank, l->world);
    const tt_status st = tt_train(s, &ro, err);
    tt_dist_leave(&d);
    return st;
}

/* One rank prints a failure, and all exit with its status. All ranks know of a stop signal, and
 * rank 0 prints it. */
static tt_status settle(tt_session *session, const tt_launch *l, tt_status st, tt_error *err)
{
    if (st == TT_OK)
        return st;
    if (st == TT_ESIGNAL) {
        if (l->rank)
            err->text[0] = 0;
    } else {
        tt_session_claim(session, st, err->text, st != TT_ECOMM);
        tt_session_stop(session, err->text);
        st = tt_session_first_failure(session, err);
    }
    tt_cli_report(st, err);
    return st;
}

/* Each rank makes its own setup; if it fails on all ranks, the lowest one prints the error. */
static tt_status run_process(tt_cli *cli, const tt_launch *l, tt_error *err)
{
    tt_registry *r = NULL;
    tt_session *session = NULL;
    tt_setup s;
    tt_cli_log_setup(cli, l->rank, l->world);
    if (l->rank)
        tt_log_setup(TT_ERROR, l->rank, l->world, false); /* only rank 0 prints the warnings */
    TT_TRY(tt_launch_follow(err));
    tt_line_connect();
    tt_signals_from(tt_line_heard);
    tt_signals_on_second(second_signal);
    if (tt_line_is_there()) /* mpirun sends SIGTERM to the remaining ranks when one has ended */
        tt_signals_trust_parent();
    if (cli->nproc && cli->nproc != l->world)
        tt_log(TT_DEBUG, "train", "--nproc %d: %s has started %d", cli->nproc, l->launcher,
               l->world);
    cli->nproc = l->world;
    tt_setup_opts so = tt_cli_training(cli);
    so.ranks_here = l->local_world;
    so.rank = l->rank;
    guard();
    tt_status st = tt_cli_setup(cli, &so, &r, &s, err);
    const tt_session_opts sessions = {
        .launch = l,
        .timeout_s = st == TT_OK ? (double)s.core.comm.init_timeout_seconds : 30,
        .stop = tt_signals_stop,
        .overdue = overdue,
        .lost = lost};
    tt_error e = {0};
    const tt_status met = tt_session_open(&sessions, &session, &e);
    if (met != TT_OK) {
        if (st == TT_OK)
            *err = e;
        if (st == TT_OK && met == TT_ESIGNAL && l->rank)
            err->text[0] = 0;
        tt_registry_free(r);
        atomic_store(&training, 0);
        return st == TT_OK ? met : st;
    }
    atomic_store(&ranks, session);
    if (st != TT_OK && l->local_rank && !tt_error_place(err->text))
        tt_error_context(err, "rank %d", l->rank);
    st = tt_session_agree(session, st, err);
    if (st == TT_OK)
        st = join_and_train(cli, &s, l, session, err);
    st = settle(session, l, st, err);
    tt_signals_closing(); /* mpirun may end this rank when another rank has exited before it */
    atomic_store(&ranks, NULL);
    tt_session_close(session, st == TT_OK);
    tt_registry_free(r);
    atomic_store(&training, 0);
    if (st == TT_OK)
        tt_line_say(TT_LINE_DONE);
    return st;
}

/* ---- starting the ranks ---- */

static bool of_device(const tt_setup *s)
{
    return tt_device_of(s->backend.component->vtable, NULL).vt != NULL;
}

/* The launcher that a communicator of the setup needs; NULL: none needs one. */
static const char *launcher_of(const tt_setup *s)
{
    const tt_part *const parts[] = {&s->data_comm, &s->comm};
    for (size_t i = 0; i < TT_COUNT(parts); i++) {
        const tt_comm_vt *vt = parts[i]->component ? parts[i]->component->vtable : NULL;
        if (vt && TT_HAS(vt, tt_comm_vt, launcher) && vt->launcher)
            return vt->launcher;
    }
    return NULL;
}

/* Whether the job wants processes, and how many. Errors of the job are reported here, once. */
static tt_status wants_processes(tt_cli *cli, int *n, bool *mpirun, double *init_timeout_s,
                                 tt_error *err)
{
    const char *backend = NULL, *host = NULL;
    tt_job *job;
    tt_registry *r = NULL;
    tt_setup s;
    *n = 0;
    TT_TRY(tt_job_load(cli->arena, cli->job, cli->overrides, cli->n_overrides, &job, err));
    TT_TRY(tt_job_string(job, "comm.backend", "auto", &backend, err));
    TT_TRY(tt_job_string(job, "comm.host", "auto", &host, err));
    const bool automatic = !strcmp(backend, "auto");
    if (!strcmp(backend, "local") || !strcmp(host, "local") || (automatic && cli->nproc < 2))
        return TT_OK;
    tt_setup_opts so = tt_cli_training(cli);
    so.compile = false;
    const tt_status st = tt_cli_setup(cli, &so, &r, &s, err);
    const char *launcher = st == TT_OK ? launcher_of(&s) : NULL;
    if (launcher)
        launcher = tt_arena_str(cli->arena, launcher);
    /* Ranks of one process reach each other's devices, and may share one. */
    const bool own = st == TT_OK && s.data_comm.component,
               threads = st == TT_OK && !own && of_device(&s) && s.world <= TT_CLI_MOST_RANKS;
    tt_registry_free(r);
    TT_TRY(st);
    if ((launcher && !strcmp(launcher, "threads")) || (automatic && threads))
        return TT_OK;
    *init_timeout_s = (double)s.core.comm.init_timeout_seconds;
    *mpirun = tt_launch_has_mpirun();
    if (!*mpirun && automatic && !own)
        tt_log(TT_INFO, "train", "no mpirun on this machine");
    else if (!*mpirun && launcher && !strcmp(launcher, "mpirun"))
        return TT_FAIL(err, TT_ENOTFOUND,
                       "comm.backend %s: there is no mpirun; install one (Debian: openmpi-bin), or "
                       "take shm",
                       backend);
    else
        *n = s.world;
    return TT_OK;
}

static tt_status cmd_train_run(tt_cli *cli, tt_error *err)
{
    tt_launch l;
    int n = 0;
    double init_timeout_s = 0;
    bool mpirun = false;
    TT_TRY(tt_cli_take_job(cli, 0, &tt_cmd_train, err));
    TT_TRY(tt_cli_hold_job(cli, err));
    if (tt_cli_option(cli, "profile"))
        tt_cli_override(cli, "profiling.enable", "true");
    TT_TRY(tt_launch_read(getenv, &l, err));
    if (l.world == 1 && !cli->nproc)
        TT_TRY(tt_launch_alone(getenv, err));
    if (cli->dry_run)
        return l.rank ? TT_OK : run_here(cli, err);
    tt_signals_install();
    if (l.world > 1)
        return run_process(cli, &l, err);
    if (cli->json)
        tt_log(TT_WARN, "train",
               "--json changes nothing here: metrics.jsonl in the run's folder has an object per "
               "step");
    TT_TRY(wants_processes(cli, &n, &mpirun, &init_timeout_s, err));
    return n > 1 ? tt_launch_ranks(cli, n, mpirun, init_timeout_s, err) : run_here(cli, err);
}

static const tt_cli_row rows[] = {
    TT_CLI_FLAG("profile",
                "trace every tenth step and the last one, in profile/ of the run's folder"),
};
const tt_command tt_cmd_train = {
    .name = "train",
    .forms = "JOB.json|DIR [--section.key VALUE]...",
    .doc = "train as a job file says; continue if the run's folder has checkpoints",
    .rows = rows,
    .n_rows = TT_COUNT(rows),
    .run = cmd_train_run,
    .words = 1};
