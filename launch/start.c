/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/start.h"
#include "base/number.h"
#include "base/thread.h"
#include "launch/launch.h"
#include "launch/nodes_options.h"
#include "launch/ranks.h"
#include "launch/signals.h"
#include "launch/supervise.h"
#include <stdlib.h>
#include <string.h>

tt_status tt_start_load(tt_start_plan *p, tt_error *err)
{
    const tt_start_opts *o = p->o;
    const int64_t begin = tt_now_ns();
    if (p->job)
        return TT_OK;
    TT_TRY(tt_job_load(o->arena, o->job, o->overrides, o->n_overrides, &p->job, err));
    p->read_ns = tt_now_ns() - begin;
    return TT_OK;
}

tt_status tt_start_setup(tt_start_plan *p, int ranks_here, int rank, tt_error *err)
{
    const tt_setup_opts so = {.spec = p->o->spec,
                              .nproc = p->nproc,
                              .ranks_here = ranks_here,
                              .rank = rank,
                              .mode = TT_MODE_TRAIN,
                              .data = true};
    tt_ranks_guard();
    TT_TRY(tt_start_load(p, err));
    const int64_t begin = tt_now_ns();
    TT_TRY(tt_registry_new_for_job(&p->o->plugins, p->job, &p->registry, err));
    const int64_t listed = tt_now_ns();
    const tt_status s = tt_setup_make(&so, p->registry, p->job, p->o->arena, &p->setup, err);
    p->read_ns += listed - begin;
    p->made_ns = tt_now_ns() - listed;
    return s;
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

/* Makes the setup, and finds what starts the ranks. Errors of the job are reported here, once. A supervisor starts
 * processes without mpirun. */
static tt_status plan_start(tt_start_plan *p, bool supervised, tt_error *err)
{
    const tt_setup *s = &p->setup;
    TT_TRY(tt_start_setup(p, 0, 0, err));
    const char *backend = s->core.comm.backend;
    const char *launcher = launcher_of(s);
    const bool automatic = !strcmp(backend, "auto");
    const bool here = !strcmp(backend, "local") || !strcmp(s->core.comm.host, "local") ||
                      (automatic && p->nproc < 2);
    /* Ranks of one process reach each other's devices, and may share one. */
    const bool own = s->data_comm.component,
               threads = !own && tt_setup_has_device(s) && s->world <= TT_START_MOST_RANKS;
    if (here || (launcher && !strcmp(launcher, "threads")) || (automatic && threads))
        return TT_OK;
    p->mpirun = !supervised && tt_launch_has_mpirun();
    if (launcher && !strcmp(launcher, "mpirun") && !p->mpirun)
        return needs_mpirun(backend, supervised, err);
    if (!p->mpirun && !supervised && automatic && !own)
        tt_log(TT_INFO, "train", "no mpirun on this machine");
    else
        p->processes = p->nodes.n > 1 || s->world > 1;
    return TT_OK;
}

static tt_status start_ranks(const tt_start_plan *p, tt_error *err)
{
    const tt_launch_opts o = {.n = p->setup.world,
                              .mpirun = p->mpirun,
                              .init_timeout_s = (double)p->setup.core.comm.init_timeout_seconds};
    tt_launch_signals signals;
    TT_TRY(tt_launch_signals_open(&signals, err));
    const tt_status s = tt_launch_ranks(p->o, &o, &signals, err);
    tt_launch_signals_close(&signals);
    return s;
}

/* ---- under a supervisor ---- */

/* How many ranks this machine has room for: its devices, else the cores that this process may use. */
static int room_for_ranks(void *user)
{
    const tt_start_plan *p = user;
    const tt_part *backend = &p->setup.backend;
    const tt_backend_vt *b = backend->component->vtable;
    int n = 0;
    if (tt_setup_has_device(&p->setup) && TT_HAS(b, tt_backend_vt, devices) && b->devices)
        n = b->devices(backend->config);
    return n > 0 ? n : tt_cpu_count();
}

/* --nproc MIN:MAX: the degrees of the job, which no number of ranks has to fit yet. The job then has the mesh
 * of MAX ranks, or of the most below that fit. */
static tt_status read_degrees(tt_start_plan *p, tt_refit_job *out, tt_error *err)
{
    tt_core_config core;
    tt_refit full;
    TT_TRY(tt_start_load(p, err));
    TT_TRY(tt_core_config_parse(p->job, &core, err));
    const tt_parallelism_config *d = &core.parallelism;
    *out = (tt_refit_job){.pp = d->pipeline_parallel_degree,
                          .dp_replicate = d->data_parallel_replicate_degree,
                          .dp_shard = d->data_parallel_shard_degree,
                          .cp = d->context_parallel_degree,
                          .tp = d->tensor_parallel_degree,
                          .ep = d->expert_parallel_degree,
                          .local_batch = core.training.local_batch_size,
                          .global_batch = core.training.global_batch_size};
    TT_TRY(tt_refit_mesh(out, p->least, p->nproc, p->nproc, &full, err));
    const int64_t degrees[] = {full.dp_replicate, full.dp_shard, full.global_batch};
    static const char *const keys[] = {"parallelism.data_parallel_replicate_degree",
                                       "parallelism.data_parallel_shard_degree",
                                       "training.global_batch_size"};
    for (size_t i = 0; i < TT_COUNT(keys); i++)
        TT_TRY(tt_job_override(p->job, keys[i],
                               tt_arena_printf(p->o->arena, "%lld", (long long)degrees[i]), err));
    p->nproc = full.world;
    return TT_OK;
}

static tt_status plan_supervisor(tt_start_plan *p, tt_supervise_opts *o, tt_error *err)
{
    const tt_checkpoint_config *c = &p->setup.core.checkpoint;
    if (o->nodes)
        TT_TRY(tt_nodes_take_job(p, err));
    if (p->least)
        TT_TRY(read_degrees(p, &o->job, err));
    TT_TRY(plan_start(p, true, err));
    if (o->nodes && !p->processes)
        return TT_FAIL(
            err, TT_EINVAL,
            "--nnodes: ranks that are threads of one process (comm.backend local) cannot "
            "be on several machines; take auto or tcp");
    o->n = p->setup.world;
    o->threads = !p->processes;
    if (c->enable)
        o->checkpoints = tt_path_join(p->o->arena, p->setup.core.dump_folder, c->folder);
    o->saves = c->enable && !c->load_only;
    o->copies = c->peer_copy_interval > 0 && (!o->nodes || o->nodes->restarts);
    o->init_timeout_s = (double)p->setup.core.comm.init_timeout_seconds;
    return TT_OK;
}

/* What goes wrong here on one machine ends all of them. */
static tt_status restarting(tt_start_plan *p, tt_error *err)
{
    const char *most = p->o->max_restarts ? p->o->max_restarts : "0";
    const bool nodes = p->nodes.n > 1;
    int64_t n = 0;
    if (!tt_read_whole(most, strlen(most), 0, 1000000, &n))
        return TT_FAIL(err, TT_EINVAL, "--max-restarts: expected 0 to 1000000, got \"%s\"", most);
    p->nodes.restarts = n > 0;
    tt_supervise_opts o = {.most_restarts = (int)n,
                           .least = p->least,
                           .room = room_for_ranks,
                           .user = p,
                           .nodes = nodes ? &p->nodes : NULL};
    *err = p->o->no_job;
    const tt_status st = err->code != TT_OK ? err->code : plan_supervisor(p, &o, err);
    tt_ranks_unguard();
    if (st != TT_OK)
        return nodes ? tt_nodes_cannot(&p->nodes, err) : st;
    return tt_supervise(p->o, &o, err);
}

/* --max-restarts and --nproc MIN:MAX go together, and a supervisor starts all ranks. */
static tt_status check_supervisor(const tt_start_plan *p, tt_error *err)
{
    if (p->o->max_restarts && p->launch.launcher)
        return TT_FAIL(
            err, TT_EINVAL,
            "--max-restarts: %s has started this rank; start ttrun alone, with --nproc for "
            "the number of ranks",
            p->launch.launcher);
    if (!p->o->max_restarts && p->least)
        return TT_FAIL(err, TT_EINVAL,
                       "--nproc %d:%d: a range needs --max-restarts; without it give one number",
                       p->least, p->nproc);
    return TT_OK;
}

static tt_status plan_and_start(tt_start_plan *p, tt_error *err)
{
    TT_TRY(plan_start(p, false, err));
    if (!p->processes)
        return tt_ranks_run(p, err);
    tt_ranks_unguard();
    return start_ranks(p, err);
}

static tt_status dry_run(tt_start_plan *p, tt_error *err)
{
    tt_refit_job degrees;
    if (p->least)
        TT_TRY(read_degrees(p, &degrees, err));
    if (p->launch.world > 1 && !p->nproc)
        p->nproc = p->launch.world;
    return p->launch.rank ? TT_OK : tt_ranks_run(p, err);
}

static tt_status start(tt_start_plan *p, tt_error *err)
{
    const tt_start_opts *o = p->o;
    TT_TRY(tt_launch_read(getenv, &p->launch, err));
    if (!p->restart)
        TT_TRY(tt_nodes_take(p, err));
    if (p->nodes.n > 1 && !o->dry_run) {
        tt_signals_install();
        return restarting(p, err);
    }
    if (o->no_job.code != TT_OK)
        return (*err = o->no_job).code;
    if (!p->restart && p->nodes.n < 2)
        TT_TRY(check_supervisor(p, err));
    if (p->launch.world == 1 && !p->nproc)
        TT_TRY(tt_launch_alone(getenv, err));
    if (o->dry_run)
        return dry_run(p, err);
    tt_signals_install();
    if (p->launch.world > 1)
        return tt_ranks_run_process(p, err);
    if (p->restart)
        return tt_ranks_run(p, err);
    if (o->json)
        tt_log(TT_WARN, "train",
               "--json changes nothing here: metrics.jsonl in the run's folder has an object per "
               "step");
    return o->max_restarts ? restarting(p, err) : plan_and_start(p, err);
}

tt_status tt_start(const tt_start_opts *o, tt_error *err)
{
    tt_restart restart;
    tt_start_plan p = {.o = o, .nproc = o->nproc, .least = o->nproc_least, .nodes = {.n = 1}};
    if (tt_supervised(o->arena, &restart))
        p.restart = &restart;
    const tt_status s = start(&p, err);
    tt_registry_free(p.registry);
    tt_ranks_unguard();
    return s;
}
