/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"
#include "base/thread.h"
#include "cli/cmd_plan.h"
#include "interchange/assets.h"
#include "launch/crash.h"
#include "launch/launch.h"
#include "launch/line.h"
#include "launch/nodes.h"
#include "launch/nodes_options.h"
#include "launch/signals.h"
#include "launch/supervise.h"
#include "launch/try_job.h"
#include "setup/tokenizer.h"
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
TT_EXPORT void tt_cli_leaves(void);
void tt_cli_leaves(void)
{
    static atomic_flag entered = ATOMIC_FLAG_INIT;
    static const char why[] = "a plugin or a library called exit() before the run was done; start "
                              "again to continue from the last checkpoint";
    tt_error e = {0};
    if (atomic_load(&training) != (long)getpid()) /* the run is done, or this is a child that a
                                                     plugin has forked */
        return;
    atexit(tt_cli_leaves);                     /* in place of the one that this thread took */
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
        atexit(tt_cli_leaves);
    if (!registered)
        at_quick_exit(tt_cli_leaves);
    registered = true;
    atomic_store(&training, (long)getpid());
    tt_crash_asks(prints_crash);
}

/* Fails if a stop signal was received while the run was prepared. */
static tt_status not_stopped(tt_error *err)
{
    const int sig = tt_signals_stop();
    return sig ? tt_fail_stopped(sig, err) : TT_OK;
}

static tt_try_opts try_opts(const tt_cli *cli, const tt_setup *s)
{
    return (tt_try_opts){cli, s->world, (double)s->core.comm.init_timeout_seconds};
}

static tt_run_opts run_opts(const tt_cli *cli, const tt_restart *restart, const tt_try_opts *tries)
{
    return (tt_run_opts){.restart = restart,
                         .stepped = restart ? tt_line_say_step : NULL,
                         .resume = !cli->no_resume,
                         .verbose = cli->verbose,
                         .progress = cli->verbose >= 0,
                         .stop = tt_signals_stop,
                         .save = tt_signals_save,
                         .try_job = tt_cli_try_job,
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

/* What of the data a run would find wrong before step 1, without reading all of it: files that are
 * not there, a tokenizer that cannot be opened or has more tokens than the model. */
static tt_status check_data(const tt_cli *cli, const tt_setup *s, tt_error *err)
{
    const tt_dataloader_vt *loader = s->dataloader.component->vtable;
    tt_tokenizer_info info;
    void *self = NULL;
    TT_TRY(tt_setup_find_data(s, err));
    if (!loader->needs_tokenizer)
        return TT_OK;
    if (!cli->no_resume)
        tt_assets_use_kept_tokenizer(s, s->core.dump_folder);
    TT_TRY(tt_setup_tokenizer(s, &self, &info, err));
    ((const tt_tokenizer_vt *)s->tokenizer.component->vtable)->close(self);
    return TT_OK;
}

/* Runs all ranks in this process: there is one, or they are threads. restart: NULL, or as a supervisor has
 * started this process. */
static tt_status run_here(tt_cli *cli, const tt_restart *restart, tt_error *err)
{
    tt_registry *r = NULL;
    tt_setup s;
    const tt_setup_opts so = tt_cli_training(cli);
    if (restart)
        TT_TRY(follow_launcher(0, err));
    guard();
    tt_status st = tt_cli_setup(cli, &so, &r, &s, err);
    if (st == TT_OK && !cli->dry_run && s.world > TT_CLI_MOST_RANKS)
        st = tt_job_fail(s.job, "comm.backend", err,
                         "the parallelism needs %d ranks, but at most %d can be threads of this "
                         "process; start processes on more machines",
                         s.world, TT_CLI_MOST_RANKS);
    if (st == TT_OK && cli->dry_run) {
        tt_setup_notices(&s);
        st = check_data(cli, &s, err);
        if (st == TT_OK)
            st = tt_cli_plan(cli, &s, err);
    } else if (st == TT_OK) {
        const tt_try_opts tries = try_opts(cli, &s);
        const tt_run_opts ro = run_opts(cli, restart, &tries);
        if ((st = not_stopped(err)) == TT_OK)
            st = tt_train(&s, &ro, err);
    }
    if (restart)
        tt_signals_closing();
    tt_registry_free(r);
    atomic_store(&training, 0);
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

static tt_status join_and_train(tt_cli *cli, tt_setup *s, const tt_launch *l,
                                const tt_restart *restart, tt_session *session, tt_error *err)
{
    tt_processes_opts po = {.launch = l, .session = session, .concurrent = s->overlap};
    tt_dist d;
    TT_TRY(find_remote(s, l, &po, err));
    TT_TRY(tt_processes_join(&po, &d, err));
    const tt_try_opts tries = try_opts(cli, s);
    tt_run_opts ro = run_opts(cli, restart, &tries);
    d.stop = ro.stop;
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
static tt_status run_process(tt_cli *cli, const tt_launch *l, const tt_restart *restart,
                             tt_error *err)
{
    tt_registry *r = NULL;
    tt_session *session = NULL;
    tt_setup s;
    tt_cli_log_setup(cli, l->rank, l->world);
    if (l->rank)
        tt_log_setup(TT_ERROR, l->rank, l->world, false); /* only rank 0 prints the warnings */
    TT_TRY(follow_launcher(l->rank, err));
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
        st = join_and_train(cli, &s, l, restart, session, err);
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

/* How the ranks of a job are started. */
typedef struct start_plan {
    int n;       /* processes; 0: none, all ranks run in this one */
    int world;   /* ranks; not known where n is 0 and there is no supervisor */
    bool mpirun; /* mpirun starts them */
    double init_timeout_s;
    const char *checkpoints; /* NULL: nothing is saved */
    bool saves;              /* a stop saves the step */
    bool copies;             /* checkpoint.peer_copy_interval is set */
} start_plan;

static tt_status needs_mpirun(const char *backend, bool supervised, tt_error *err)
{
    if (supervised)
        return TT_FAIL(
            err, TT_EINVAL,
            "--max-restarts: comm.backend %s needs mpirun, which ends when a rank does; take "
            "auto, shm or local",
            backend);
    return TT_FAIL(err, TT_ENOTFOUND,
                   "comm.backend %s: there is no mpirun; install one (Debian: openmpi-bin), or "
                   "take shm",
                   backend);
}

/* Errors of the job are reported here, once. A supervisor starts processes without mpirun. */
static tt_status plan_start(tt_cli *cli, bool supervised, start_plan *out, tt_error *err)
{
    const char *backend = NULL, *host = NULL;
    tt_job *job;
    tt_registry *r = NULL;
    tt_setup s;
    *out = (start_plan){0};
    TT_TRY(tt_job_load(cli->arena, cli->job, cli->overrides, cli->n_overrides, &job, err));
    TT_TRY(tt_job_string(job, "comm.backend", "auto", &backend, err));
    TT_TRY(tt_job_string(job, "comm.host", "auto", &host, err));
    const bool automatic = !strcmp(backend, "auto");
    const bool here =
        !strcmp(backend, "local") || !strcmp(host, "local") || (automatic && cli->nproc < 2);
    if (here && !supervised)
        return TT_OK;
    tt_setup_opts so = tt_cli_training(cli);
    so.compile = false;
    const tt_status st = tt_cli_setup(cli, &so, &r, &s, err);
    const char *launcher = st == TT_OK ? launcher_of(&s) : NULL;
    const bool by_mpirun = launcher && !strcmp(launcher, "mpirun"),
               in_threads = launcher && !strcmp(launcher, "threads");
    /* Ranks of one process reach each other's devices, and may share one. */
    const bool own = st == TT_OK && s.data_comm.component, threads = st == TT_OK && !own &&
                                                                     tt_setup_has_device(&s) &&
                                                                     s.world <= TT_CLI_MOST_RANKS;
    tt_registry_free(r);
    TT_TRY(st);
    out->world = s.world;
    out->init_timeout_s = (double)s.core.comm.init_timeout_seconds;
    out->copies = s.core.checkpoint.peer_copy_interval > 0;
    out->saves = s.core.checkpoint.enable && !s.core.checkpoint.load_only;
    if (s.core.checkpoint.enable)
        out->checkpoints = tt_path_join(cli->arena, s.core.dump_folder, s.core.checkpoint.folder);
    if (here || in_threads || (automatic && threads))
        return TT_OK;
    out->mpirun = !supervised && tt_launch_has_mpirun();
    if (by_mpirun && !out->mpirun)
        return needs_mpirun(backend, supervised, err);
    if (!out->mpirun && !supervised && automatic && !own)
        tt_log(TT_INFO, "train", "no mpirun on this machine");
    else
        out->n = s.world;
    return TT_OK;
}

static tt_status start_ranks(tt_cli *cli, const start_plan *p, tt_error *err)
{
    const tt_launch_opts o = {.n = p->n, .mpirun = p->mpirun, .init_timeout_s = p->init_timeout_s};
    tt_launch_signals signals;
    TT_TRY(tt_launch_signals_open(&signals, err));
    const tt_status s = tt_launch_ranks(cli, &o, &signals, err);
    tt_launch_signals_close(&signals);
    return s;
}

/* ---- under a supervisor ---- */

/* How many ranks this machine has room for: its devices, else the cores that this process may use. */
static int room_for_ranks(void *user)
{
    tt_cli *cli = user;
    tt_registry *r = NULL;
    tt_setup s;
    tt_error ignored = {0};
    int n = 0;
    tt_setup_opts so = tt_cli_training(cli);
    so.compile = false;
    if (tt_cli_setup(cli, &so, &r, &s, &ignored) == TT_OK) {
        const tt_backend_vt *b = s.backend.component->vtable;
        if (tt_setup_has_device(&s) && TT_HAS(b, tt_backend_vt, devices) && b->devices)
            n = b->devices(s.backend.config);
    }
    tt_registry_free(r);
    return n > 0 ? n : tt_cpu_count();
}

/* --nproc MIN:MAX: the degrees of the job, which no number of ranks has to fit yet. The job then has the mesh
 * of MAX ranks, or of the most below that fit. */
static tt_status read_degrees(tt_cli *cli, tt_refit_job *out, tt_error *err)
{
    tt_job *job;
    tt_core_config core;
    tt_refit full;
    TT_TRY(tt_job_load(cli->arena, cli->job, cli->overrides, cli->n_overrides, &job, err));
    TT_TRY(tt_core_config_parse(job, &core, err));
    const tt_parallelism_config *p = &core.parallelism;
    *out = (tt_refit_job){.pp = p->pipeline_parallel_degree,
                          .dp_replicate = p->data_parallel_replicate_degree,
                          .dp_shard = p->data_parallel_shard_degree,
                          .cp = p->context_parallel_degree,
                          .tp = p->tensor_parallel_degree,
                          .ep = p->expert_parallel_degree,
                          .local_batch = core.training.local_batch_size,
                          .global_batch = core.training.global_batch_size};
    TT_TRY(tt_refit_mesh(out, cli->nproc_least, cli->nproc, cli->nproc, &full, err));
    const int64_t degrees[] = {full.dp_replicate, full.dp_shard, full.global_batch};
    static const char *const keys[] = {"parallelism.data_parallel_replicate_degree",
                                       "parallelism.data_parallel_shard_degree",
                                       "training.global_batch_size"};
    for (size_t i = 0; i < TT_COUNT(keys); i++)
        tt_cli_override(cli, keys[i], tt_arena_printf(cli->arena, "%lld", (long long)degrees[i]));
    cli->nproc = full.world;
    return TT_OK;
}

static tt_status plan_supervisor(tt_cli *cli, const tt_nodes_opts *nodes, tt_supervise_opts *o,
                                 tt_error *err)
{
    start_plan p;
    if (o->least)
        TT_TRY(read_degrees(cli, &o->job, err));
    TT_TRY(plan_start(cli, true, &p, err));
    if (nodes && p.n < 1)
        return TT_FAIL(
            err, TT_EINVAL,
            "--nnodes: ranks that are threads of one process (comm.backend local) cannot "
            "be on several machines; take auto or tcp");
    o->n = p.world;
    o->threads = !nodes && p.n < 2;
    o->checkpoints = p.checkpoints;
    o->saves = p.saves;
    o->copies = p.copies && (!nodes || nodes->restarts);
    o->init_timeout_s = p.init_timeout_s;
    return TT_OK;
}

/* nodes: NULL, or the machines that the ranks are on; st: whether the job could be read, else err says why. What
 * goes wrong here on one machine ends all of them. */
static tt_status restarting(tt_cli *cli, const char *most, tt_nodes_opts *nodes, tt_status st,
                            tt_error *err)
{
    int64_t n = 0;
    if (!tt_read_whole(most, strlen(most), 0, 1000000, &n))
        return TT_FAIL(err, TT_EINVAL, "--max-restarts: expected 0 to 1000000, got \"%s\"", most);
    tt_supervise_opts o = {.most_restarts = (int)n,
                           .least = cli->nproc_least,
                           .n = cli->nproc,
                           .room = room_for_ranks,
                           .user = cli,
                           .nodes = nodes};
    if (nodes)
        nodes->restarts = n > 0;
    if (st == TT_OK && nodes)
        st = tt_nodes_take_job(cli, nodes, err);
    if (st == TT_OK)
        st = plan_supervisor(cli, nodes, &o, err);
    if (st != TT_OK)
        return nodes ? tt_nodes_cannot(nodes, err) : st;
    return tt_supervise(cli, &o, err);
}

/* --max-restarts and --nproc MIN:MAX go together, and a supervisor starts all ranks. */
static tt_status check_supervisor(const tt_cli *cli, const char *most, const char *launcher,
                                  tt_error *err)
{
    if (most && launcher)
        return TT_FAIL(
            err, TT_EINVAL,
            "--max-restarts: %s has started this rank; start ttrun alone, with --nproc for "
            "the number of ranks",
            launcher);
    if (!most && cli->nproc_least)
        return TT_FAIL(err, TT_EINVAL,
                       "--nproc %d:%d: a range needs --max-restarts; without it give one number",
                       cli->nproc_least, cli->nproc);
    return TT_OK;
}

static tt_status take_job(tt_cli *cli, tt_error *err)
{
    TT_TRY(tt_cli_take_job(cli, 0, &tt_cmd_train, err));
    TT_TRY(tt_cli_hold_job(cli, err));
    if (tt_cli_option(cli, "profile"))
        tt_cli_override(cli, "profiling.enable", "true");
    return TT_OK;
}

static tt_status cmd_train_run(tt_cli *cli, tt_error *err)
{
    tt_launch l;
    tt_restart restart;
    start_plan p;
    tt_refit_job degrees;
    const char *most = tt_cli_option(cli, "max-restarts");
    const bool supervised = tt_supervised(cli->arena, &restart);
    tt_nodes_opts nodes = {.n = 1};
    TT_TRY(tt_launch_read(getenv, &l, err));
    if (!supervised)
        TT_TRY(tt_nodes_take(cli, &l, &nodes, err));
    const tt_status job = take_job(cli, err);
    if (nodes.n > 1 && !cli->dry_run) {
        tt_signals_install();
        return restarting(cli, most ? most : "0", &nodes, job, err);
    }
    TT_TRY(job);
    if (!supervised && nodes.n < 2)
        TT_TRY(check_supervisor(cli, most, l.launcher, err));
    if (l.world == 1 && !cli->nproc)
        TT_TRY(tt_launch_alone(getenv, err));
    if (cli->dry_run && cli->nproc_least)
        TT_TRY(read_degrees(cli, &degrees, err));
    if (cli->dry_run && l.world > 1 && !cli->nproc)
        cli->nproc = l.world;
    if (cli->dry_run)
        return l.rank ? TT_OK : run_here(cli, NULL, err);
    tt_signals_install();
    if (l.world > 1)
        return run_process(cli, &l, supervised ? &restart : NULL, err);
    if (supervised)
        return run_here(cli, &restart, err);
    if (cli->json)
        tt_log(TT_WARN, "train",
               "--json changes nothing here: metrics.jsonl in the run's folder has an object per "
               "step");
    if (most)
        return restarting(cli, most, NULL, TT_OK, err);
    TT_TRY(plan_start(cli, false, &p, err));
    return p.n > 1 ? start_ranks(cli, &p, err) : run_here(cli, NULL, err);
}

static const tt_cli_row rows[] = {
    TT_CLI_FLAG("profile",
                "trace every tenth step and the last one, in profile/ of the run's folder"),
    TT_CLI_VALUE("max-restarts", "N", "no supervisor",
                 "restart all ranks from the newest checkpoint when one dies or hangs"),
    TT_CLI_VALUE("nnodes", "N", "1",
                 "machines: a ttrun on each starts --nproc ranks; MIN:MAX: as many as are there"),
    TT_CLI_VALUE("node-rank", "R", "0", "which of them this is, from 0"),
    TT_CLI_VALUE("master-addr", "HOST", NULL, "where node 0 is: a name or an address"),
    TT_CLI_VALUE("master-port", "PORT", "29500", "its port; ranks use the next one, too"),
    TT_CLI_VALUE("rdzv-endpoint", "HOST:PORT", NULL, "both in one"),
    TT_CLI_VALUE("rdzv-id", "TEXT", NULL, "name of the run: a node with another one is refused"),
    TT_CLI_VALUE("rdzv-timeout", "SECONDS", "comm.init_timeout_seconds",
                 "how long nodes wait for each other"),
    TT_CLI_VALUE("rdzv-last-call", "SECONDS", "30",
                 "of --nnodes MIN:MAX: how long the first start waits for more nodes than MIN"),
};
const tt_command tt_cmd_train = {
    .name = "train",
    .forms = "JOB.json|DIR [--section.key VALUE]...",
    .doc = "train as a job file says; continue if the run's folder has checkpoints",
    .rows = rows,
    .n_rows = TT_COUNT(rows),
    .run = cmd_train_run,
    .words = 1};
