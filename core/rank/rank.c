/* SPDX-License-Identifier: Apache-2.0 */
#include "rank/rank.h"
#include "comm/async.h"
#include "comm/data_comm.h"
#include "rank/device_memory.h"
#include "rank/host_memory.h"
#include <string.h>

/* Opens one rank: its backend, thread pool, plan and program. */

static int coordinate(const tt_setup *s, int rank, const char *axis)
{
    int32_t c[TT_MAX_ATOMS];
    const tt_axis *x = tt_mesh_axis(&s->mesh, axis);
    int at = 0;
    tt_mesh_coords(&s->mesh, rank, c);
    for (int i = 0; x && i < x->atoms.n; i++)
        at = at * s->mesh.atom_size[TT_ATOM(x->atoms.atom[i])] + c[TT_ATOM(x->atoms.atom[i])];
    return at;
}

static tt_exec_opts exec_opts(const tt_rank *r, tt_dist *d, const tt_plan *p, tt_exec *parent,
                              tt_exec *from)
{
    return (tt_exec_opts){.program = p->program,
                          .dist = d,
                          .kernels = &r->s->kernels,
                          .device = r->device,
                          .pool = r->pool,
                          .seed = (uint64_t)r->s->core.training.seed,
                          .parent = parent,
                          .poison = r->s->core.debug.poison,
                          .detect_nan = r->s->core.debug.detect_nan,
                          .no_capture = r->s->core.debug.capture == TT_CAPTURE_OFF,
                          .check_products =
                              r->s->core.debug.check_products != TT_CHECK_OFF && !parent,
                          .sync = r->s->core.debug.sync,
                          .late = r->late && !parent,
                          .from = from};
}

static tt_status compare_plans(const tt_rank *r, tt_error *err)
{
    int64_t h[2] = {(int64_t)(r->plan->hash >> 1), -(int64_t)(r->plan->hash >> 1)};
    if (!r->dist.vt)
        return TT_OK;
    const int64_t mine = h[0];
    TT_TRY(r->dist.vt->all_reduce(r->dist.all, h, 2, TT_I64, TT_MAX, err));
    if (h[0] == mine && -h[1] == mine)
        return TT_OK;
    return TT_FAIL(
        err, TT_EINTERNAL,
        "the ranks made different plans: run the same ttrun, plugins and job on all of them");
}

/* The plan is not changed: it is made already and must be equal on all ranks, whichever
 * communicator they use. */
static void note_overlap(const tt_rank *r)
{
    if (r->s->overlap && r->dist.vt && tt_device_is_host(&r->device) && !tt_async_can(&r->dist))
        tt_log(TT_WARN, "train",
               "comm.overlap: this MPI serves only one thread (no MPI_THREAD_MULTIPLE), so "
               "collectives do not overlap with computing");
}

static void note_offload(const tt_rank *r)
{
    if (r->s->core.training.enable_cpu_offload && tt_device_is_host(&r->device))
        tt_log(TT_INFO, "train",
               "training.enable_cpu_offload: backend %s computes in host memory, so nothing moves",
               r->s->backend.name);
    if (r->s->core.activation_checkpoint.offload && tt_device_is_host(&r->device))
        tt_log(
            TT_INFO, "train",
            "activation_checkpoint.offload: backend %s computes in host memory, so nothing moves",
            r->s->backend.name);
}

static void note_activations(const tt_rank *r)
{
    const tt_offloaded f = tt_program_offloaded(r->plan->program);
    if (!r->s->core.activation_checkpoint.offload || tt_device_is_host(&r->device))
        return;
    const tt_activation_checkpoint_config *c = &r->s->core.activation_checkpoint;
    if (!f.values && c->mode == TT_CHECKPOINT_BUDGET && c->offload == TT_ACTIVATIONS_HIDDEN)
        tt_log(TT_INFO, "train",
               "activation_checkpoint.offload: nothing is offloaded: within the budget, no copy "
               "makes a step faster");
    else if (f.values)
        tt_log(
            TT_INFO, "train",
            "activation_checkpoint.offload: %lld activations of a micro-batch, %.3f GiB, wait for "
            "the backward in host memory",
            (long long)f.values, (double)f.bytes / (1 << 30));
    else
        tt_log(
            TT_WARN, "train",
            "activation_checkpoint.offload: nothing is offloaded: no stage has two layers, or no "
            "copy is worth it (auto: or would hide behind computation)");
}

/* Hooks see each step before the next one begins, debugging waits for each instruction, and a step
 * that is skipped must not update, nor one whose backward updates, after one that is not finite. */
static bool metrics_late(const tt_rank *r)
{
    const tt_core_config *c = &r->s->core;
    if (c->metrics.lag && tt_device_is_host(&r->device))
        tt_log(TT_INFO, "train",
               "metrics.lag: backend %s computes in this thread, so nothing is late",
               r->s->backend.name);
    return c->metrics.lag && !tt_device_is_host(&r->device) && !r->s->n_hooks &&
           !r->s->graph->loss_scale && !r->s->graph->skipped && !r->s->early_step &&
           !c->debug.poison && !c->debug.detect_nan && !c->debug.sync;
}

bool tt_rank_trains(const tt_setup *s, const tt_plan *p)
{
    return p->update.n || (s->early_step && p->graph == s->graph && s->graph != s->eval_graph);
}

/* A device's memory is checked before each program, a host's once: its ranks share it. */
static tt_status check_memory(const tt_rank *r, const tt_plan *p, tt_error *err)
{
    if (!tt_device_is_host(&r->device))
        return tt_device_memory_check(r->s, p, &r->device, err);
    return p == r->plan ? tt_host_memory_check(r->s, p, r->eval_plan, err) : TT_OK;
}

static tt_status make_plans(tt_rank *r, bool with_eval, tt_error *err)
{
    const tt_setup *s = r->s;
    r->programs = tt_arena_new();
    TT_TRY(tt_setup_rank_plan(s, s->graph, s->schedule, r->dist.rank, r->backend, r->programs,
                              &r->plan, err));
    if (!with_eval || !s->eval_graph || s->eval_graph == s->graph)
        return TT_OK;
    return tt_setup_rank_plan(s, s->eval_graph, s->eval_schedule, r->dist.rank, r->backend,
                              r->programs, &r->eval_plan, err);
}

/* beside: the rank's programs that run and that these replace, NULL: there are none. */
static tt_status make_execs(tt_rank *r, tt_dist *d, const tt_rank *beside, tt_error *err)
{
    tt_exec_opts o = exec_opts(r, d, r->plan, NULL, beside ? beside->exec : NULL);
    TT_TRY(check_memory(r, r->plan, err));
    TT_TRY(tt_exec_new(&o, &r->exec, err));
    if (!r->eval_plan)
        return TT_OK;
    TT_TRY(check_memory(r, r->eval_plan, err));
    o = exec_opts(r, d, r->eval_plan, r->exec, beside ? beside->eval : NULL);
    return tt_exec_new(&o, &r->eval, err);
}

tt_status tt_rank_open_beside(const tt_rank *r, tt_dist *d, const tt_graph *g, tt_arena *a,
                              tt_exec **out, tt_error *err)
{
    tt_plan *p = NULL;
    TT_TRY(tt_setup_rank_plan(r->s, g, r->s->eval_schedule, d->rank, r->backend, a, &p, err));
    if (!tt_device_is_host(&r->device))
        TT_TRY(tt_device_memory_check(r->s, p, &r->device, err));
    const tt_exec_opts o = exec_opts(r, d, p, r->exec, NULL);
    return tt_exec_new(&o, out, err);
}

static tt_status open_programs(tt_rank *r, bool with_eval, tt_error *err)
{
    note_offload(r);
    note_overlap(r);
    r->late = metrics_late(r);
    TT_TRY(make_plans(r, with_eval, err));
    note_activations(r);
    TT_TRY(compare_plans(r, err));
    return make_execs(r, &r->dist, NULL, err);
}

static void close_execs(tt_rank *r)
{
    tt_exec_free(r->eval);
    tt_exec_free(r->exec);
    r->eval = r->exec = NULL;
}

void tt_rank_programs_close(tt_rank *r)
{
    close_execs(r);
    tt_arena_free(r->programs);
    r->plan = r->eval_plan = NULL;
    r->programs = NULL;
}

tt_status tt_rank_plan(const tt_rank *r, const tt_setup *s, bool with_eval, tt_rank *out,
                       tt_error *err)
{
    *out = *r;
    out->s = s;
    out->exec = out->eval = NULL;
    out->plan = out->eval_plan = NULL;
    return make_plans(out, with_eval, err);
}

/* A host's memory must have room for what the new programs do not share with those that run, beside these and the
 * copy that a save writes from; a device's is asked for what is free. */
static tt_status check_room(const tt_rank *next, const tt_rank *beside, const tt_exec *shared,
                            tt_error *err)
{
    const double have = tt_memory_here(), ranks = (double)next->s->ranks_here,
                 need = ranks * (double)(tt_exec_own_bytes(next->plan->program, shared) +
                                         tt_program_bytes(beside->plan->program)) +
                        tt_saves_bytes(beside->s, (double)tt_save_bytes(beside->s, beside->plan),
                                       beside->s->ranks_here);
    if (!tt_device_is_host(&next->device) || need <= have)
        return TT_OK;
    return TT_FAIL(
        err, TT_ENOMEM,
        "the program does not fit beside the one that runs: both take %.1f GiB, and there "
        "are %.1f here",
        need / (1 << 30), have / (1 << 30));
}

tt_status tt_rank_prepare(tt_rank *next, tt_rank *beside, tt_error *err)
{
    const bool evals = !next->eval_plan || beside->eval;
    if (!tt_device_is_host(&next->device) || next->s->core.debug.poison || !evals)
        return TT_OK;
    TT_TRY(check_room(next, beside, beside->exec, err));
    const tt_status s = make_execs(next, &beside->dist, beside, err);
    if (s != TT_EBUSY)
        return s;
    close_execs(next);
    tt_log(TT_DEBUG, "train", "the next program is made between two steps: %s", err->text);
    return TT_OK;
}

/* Whether all ranks have made their programs beside the ones that run. [collective] */
static tt_status all_prepared(const tt_rank *next, tt_dist *d, bool *out, tt_error *err)
{
    int32_t lack = !next->exec;
    TT_TRY(tt_dist_reduce(d, &lack, 1, TT_I32, TT_MAX, err));
    *out = !lack;
    return TT_OK;
}

tt_status tt_rank_start(tt_rank *next, const tt_rank *beside, tt_dist *d, tt_error *err)
{
    bool prepared = false;
    TT_TRY(compare_plans(next, err));
    TT_TRY(all_prepared(next, d, &prepared, err));
    if (prepared)
        return TT_OK;
    close_execs(next);
    TT_TRY(tt_agree_or_go_on(d, check_room(next, beside, NULL, err), err));
    return make_execs(next, d, NULL, err);
}

static tt_status prepare_backend(const tt_rank *r, tt_error *err)
{
    const tt_part *p = &r->s->backend;
    const tt_backend_vt *vt = p->component->vtable;
    if (!TT_HAS(vt, tt_backend_vt, prepare) || !vt->prepare)
        return TT_OK;
    return TT_PLUGIN_CALL(vt->prepare(r->backend, err), err, "backend", p->name);
}

/* The communicator of tensors. */
static tt_status open_data(tt_rank *r, tt_error *err)
{
    const tt_setup *s = r->s;
    const tt_part *c = &s->data_comm;
    if (c->component && tt_device_is_host(&r->device))
        return tt_job_fail(s->job, "comm.backend", err,
                           "%s: it needs memory of a device, and the backend %s uses host memory",
                           c->name, s->backend.name);
    const tt_kernel *reduce = tt_device_is_host(&r->device)
                                  ? NULL
                                  : tt_find_kernel(&s->kernels, r->backend, TT_OP_REDUCE_MEMBERS);
    const tt_data_opts o = {.device = r->device,
                            .comm = c->component ? c->component->vtable : NULL,
                            .if_works = s->data_comm_if_works,
                            .name = c->name,
                            .config = c->config,
                            .backend_name = s->backend.name,
                            .reduce_members = reduce,
                            .timeout_s = (double)s->core.comm.init_timeout_seconds,
                            .concurrent = s->overlap};
    return tt_dist_open_data(&r->dist, &o, err);
}

tt_status tt_rank_open(const tt_setup *s, const tt_dist *d, bool with_eval, tt_rank *out,
                       tt_error *err)
{
    const tt_backend_vt *vt = s->backend.component->vtable;
    tt_rank *r = out;
    memset(r, 0, sizeof *r);
    r->s = s;
    r->arena = tt_arena_new();
    r->dist = *d;
    r->pp = coordinate(s, d->rank, "pp");
    r->data_rank = coordinate(s, d->rank, "dp");
    r->counts = !r->pp && !coordinate(s, d->rank, "cp") && !coordinate(s, d->rank, "tp");
    const tt_backend_env env = {.struct_size = sizeof env,
                                .n_threads = (int)s->threads,
                                .rank = d->rank,
                                .world = d->world,
                                .local_rank = d->local_rank,
                                .local_world = d->local_world};
    tt_status st = d->lending ? tt_lending_pool(d->lending, &r->pool, err)
                              : tt_pool_new((int)s->threads, &r->pool, err);
    if (st == TT_OK)
        st = TT_PLUGIN_CALL(vt->open(s->backend.config, &env, &r->backend, err), err, "backend",
                            s->backend.name);
    if (st == TT_OK) {
        r->device = tt_device_of(vt, r->backend);
        st = tt_device_enter(&r->device, err);
    }
    if (st == TT_OK)
        st = open_data(r, err);
    if (st == TT_OK)
        st = open_programs(r, with_eval, err);
    if (st == TT_OK)
        st = prepare_backend(r, err);
    if (st == TT_OK)
        st = tt_rank_init_buffers(r, err);
    r->failed = st != TT_OK;
    if (r->failed)
        tt_rank_close(r);
    return st;
}

void tt_rank_close(tt_rank *r)
{
    if (!r->s)
        return;
    const tt_backend_vt *vt = r->s->backend.component->vtable;
    tt_rank_programs_close(r);
    tt_dist_close_data(&r->dist, !r->failed);
    if (r->backend)
        vt->close(r->backend);
    tt_pool_free(r->pool);
    tt_arena_free(r->arena);
    r->s = NULL;
}
