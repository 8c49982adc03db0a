/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/ranks.h"
#include "base/exit_status.h"
#include "base/thread.h"
#include "launch/crash.h"
#include "launch/line.h"
#include "launch/say.h"
#include "launch/signals.h"
#include "launch/try_job.h"
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

/* At exit, and by main.c: a plugin or a library that called exit(0) or _exit(0) before the run was done makes no success. */
TT_EXPORT void tt_ranks_leave(void);
void tt_ranks_leave(void)
{
    static atomic_flag entered = ATOMIC_FLAG_INIT;
    static const char why[] = "a plugin or a library called exit() before the run was done; start "
                              "again to continue from the last checkpoint";
    tt_error e = {0};
    if (atomic_load(&training) != (long)getpid()) /* the run is done, or this is a child that a
                                                     plugin has forked */
        return;
    atexit(tt_ranks_leave);                    /* in place of the one that this thread took */
    while (atomic_flag_test_and_set(&entered)) /* another rank's thread called exit, too */
        pause();
    snprintf(e.text, sizeof e.text, "%s", why);
    if (prints_error(TT_EIO, why))
        tt_say_error(TT_EIO, &e);
    _exit(tt_exit_status(TT_EIO));
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

void tt_ranks_guard(void)
{
    static bool registered;
    for (int i = 0; !registered && i < EXIT_CALLS; i++)
        atexit(tt_ranks_leave);
    if (!registered)
        at_quick_exit(tt_ranks_leave);
    registered = true;
    atomic_store(&training, (long)getpid());
    tt_crash_asks(prints_crash);
}

void tt_ranks_unguard(void)
{
    atomic_store(&training, 0);
}

/* ---- all ranks in this process ---- */

/* Fails if a stop signal was received while the run was prepared. */
static tt_status not_stopped(tt_error *err)
{
    const int sig = tt_signals_stop();
    return sig ? tt_fail_stopped(sig, err) : TT_OK;
}

static tt_try_opts try_opts(const tt_start_plan *p)
{
    return (tt_try_opts){p->o, p->setup.world, (double)p->setup.core.comm.init_timeout_seconds};
}

static tt_run_opts run_opts(const tt_start_plan *p, const tt_try_opts *tries)
{
    return (tt_run_opts){.restart = p->restart,
                         .stepped = p->restart ? tt_line_say_step : NULL,
                         .resume = !p->o->no_resume,
                         .verbose = p->o->verbose,
                         .progress = p->o->verbose >= 0,
                         .stop = tt_signals_stop,
                         .save = tt_signals_save,
                         .try_job = tt_try_job,
                         .try_user = tries};
}

/* The launcher's signals are this process's, which ends with the launcher. */
static tt_status follow_launcher(int rank, tt_error *err)
{
    TT_TRY(tt_launch_follow(err));
    tt_line_connect(rank);
    tt_signals_from(tt_line_heard);
    tt_signals_on_second(second_signal);
    if (tt_line_is_there()) /* mpirun sends SIGTERM to the remaining ranks when one has ended */
        tt_signals_trust_parent();
    return TT_OK;
}

/* Makes the graphs of the setup. */
static tt_status compile(tt_start_plan *p, tt_error *err)
{
    const int64_t begin = tt_now_ns();
    const tt_status s = tt_setup_train(&p->setup, err);
    tt_log(TT_DEBUG, "time", "job read and plugins listed: %.3f s; graph made: %.3f s",
           1e-9 * (double)p->read_ns, 1e-9 * (double)(p->made_ns + tt_now_ns() - begin));
    return s;
}

static tt_status train_all(tt_start_plan *p, tt_error *err)
{
    tt_setup *s = &p->setup;
    const tt_try_opts tries = try_opts(p);
    const tt_run_opts ro = run_opts(p, &tries);
    if (s->world > TT_START_MOST_RANKS)
        return tt_job_fail(s->job, "comm.backend", err,
                           "the parallelism needs %d ranks, but at most %d can be threads of this "
                           "process; start processes on more machines",
                           s->world, TT_START_MOST_RANKS);
    TT_TRY(not_stopped(err));
    return tt_train(s, &ro, err);
}

/* Plugins are not used any more. */
static void close_plugins(tt_start_plan *p)
{
    tt_registry_free(p->registry);
    p->registry = NULL;
    tt_ranks_unguard();
}

tt_status tt_ranks_run(tt_start_plan *p, tt_error *err)
{
    if (p->restart)
        TT_TRY(follow_launcher(0, err));
    tt_status st = p->registry ? TT_OK : tt_start_setup(p, 0, 0, err);
    if (st == TT_OK)
        st = compile(p, err);
    if (st == TT_OK)
        st = p->o->dry_run ? p->o->print_plan(p->o->user, &p->setup, err) : train_all(p, err);
    if (p->restart)
        tt_signals_closing();
    close_plugins(p);
    if (st == TT_OK)
        tt_line_say(TT_LINE_DONE);
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
    tt_say_error(st, &e);
    _exit(tt_exit_status(st));
}

/* Prints that a rank was lost. */
static void lost(const char *text)
{
    tt_error e = {0};
    tt_say_error(TT_FAIL(&e, TT_ECOMM, "%s", text), &e);
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

static tt_status join_and_train(tt_start_plan *p, tt_session *session, tt_error *err)
{
    tt_setup *s = &p->setup;
    const tt_launch *l = &p->launch;
    tt_processes_opts po = {.launch = l, .session = session, .concurrent = s->overlap};
    tt_dist d;
    TT_TRY(find_remote(s, l, &po, err));
    TT_TRY(tt_processes_join(&po, &d, err));
    const tt_try_opts tries = try_opts(p);
    tt_run_opts ro = run_opts(p, &tries);
    d.stop = ro.stop;
    ro.dist = &d;
    tt_say_from(p->o->verbose, l->rank, l->world);
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
    tt_say_error(st, err);
    return st;
}

/* Each rank makes its own setup; if it fails on all ranks, the lowest one prints the error. */
tt_status tt_ranks_run_process(tt_start_plan *p, tt_error *err)
{
    const tt_launch *l = &p->launch;
    tt_session *session = NULL;
    tt_say_from(p->o->verbose, l->rank, l->world);
    if (l->rank)
        tt_log_setup(TT_ERROR, l->rank, l->world, false); /* only rank 0 prints the warnings */
    TT_TRY(follow_launcher(l->rank, err));
    if (p->nproc && p->nproc != l->world)
        tt_log(TT_DEBUG, "train", "--nproc %d: %s has started %d", p->nproc, l->launcher, l->world);
    p->nproc = l->world;
    tt_status st = tt_start_setup(p, l->local_world, l->rank, err);
    if (st == TT_OK)
        st = compile(p, err);
    const tt_session_opts sessions = {
        .launch = l,
        .timeout_s = st == TT_OK ? (double)p->setup.core.comm.init_timeout_seconds : 30,
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
        close_plugins(p);
        return st == TT_OK ? met : st;
    }
    atomic_store(&ranks, session);
    if (st != TT_OK && l->local_rank && !tt_error_place(err->text))
        tt_error_context(err, "rank %d", l->rank);
    st = tt_session_agree(session, st, err);
    if (st == TT_OK)
        st = join_and_train(p, session, err);
    st = settle(session, l, st, err);
    tt_signals_closing(); /* mpirun may end this rank when another rank has exited before it */
    atomic_store(&ranks, NULL);
    tt_session_close(session, st == TT_OK);
    close_plugins(p);
    if (st == TT_OK)
        tt_line_say(TT_LINE_DONE);
    return st;
}
