/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"
#include "device/device.h"
#include "setup/setup_impl.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* setup, second half: makes the backend, the mesh, the batch sizes and the graphs. */

tt_status tt_setup_backend(tt_setup *s, tt_backend_section *out, tt_error *err)
{
    static const char *const core[] = {"name", "threads", "kernels", NULL};
    const char *name = NULL;
    const tt_component *c;
    tt_error why = {0};
    TT_TRY(tt_job_string(s->job, "backend.name", "auto", &name, err));
    if (!strcmp(name, "auto"))
        TT_TRY(tt_setup_choose_backend(s, core, &c, err));
    else if (tt_registry_find(s->registry, TT_KIND_BACKEND, name, &c, &why) != TT_OK)
        return tt_job_fail(s->job, "backend.name", err, "%s", why.text);
    s->backend = (tt_part){c, tt_arena_alloc(s->arena, c->config_size + 1), c->name,
                           tt_registry_file(s->registry, c)};
    const char **own = tt_arena_array(s->arena, c->n_options + 1, sizeof *own);
    for (size_t i = 0; i < c->n_options; i++)
        own[i] = tt_component_option(c, i)->name;
    TT_TRY(tt_job_section(s->job, "backend", c->options, c->n_options, c->option_size, core,
                          s->backend.config, err));
    TT_TRY(tt_backend_section_parse(s->job, own, out, err));
    return tt_setup_kernels(s, &out->kernels, err);
}

static int64_t default_threads(const tt_setup_opts *o, int world)
{
    int64_t n = o->ranks_here ? tt_cpu_share(o->ranks_here) : TT_MAXV(tt_cpu_count() / world, 1);
    const char *limit = getenv("OMP_NUM_THREADS");
    const long most = limit ? atol(limit) : 0;
    return most > 0 ? TT_MIN(n, most) : n;
}

/* Ranks that are threads of one process lend each other their cores. */
static int64_t helpers(const tt_setup *s, const tt_setup_opts *o)
{
    const tt_backend_vt *vt = s->backend.component->vtable;
    if (o->ranks_here || o->machine || !vt->host_memory || s->threads > TT_POOL_MOST)
        return 0;
    return tt_lending_helpers(s->world, (int)s->threads);
}

/* Whether collectives run concurrently with computation. By default they do so on the CPU only if a
 * core is left for the thread that communicates. */
static bool overlaps(const tt_setup *s, const tt_machine *machine)
{
    const tt_backend_vt *vt = s->backend.component->vtable;
    if (s->world < 2 || s->core.comm.overlap != TT_OVERLAP_AUTO)
        return s->world > 1 && s->core.comm.overlap == TT_OVERLAP_ON;
    return s->async_tp || machine || !vt->host_memory || tt_cpu_share(s->ranks_here) > s->threads;
}

/* Whether tensor parallelism is asynchronous: the job asks for it, and there are collectives that
 * it can hide. */
static bool uses_async_tp(const tt_setup *s)
{
    const tt_parallelism_config *p = &s->core.parallelism;
    if (!p->enable_async_tensor_parallel)
        return false;
    const bool can = p->tensor_parallel_degree > 1 && p->enable_sequence_parallel;
    if (!can)
        tt_log(TT_WARN, "train",
               "parallelism.enable_async_tensor_parallel has no effect: it needs "
               "tensor_parallel_degree above 1 and enable_sequence_parallel");
    else if (s->core.comm.overlap == TT_OVERLAP_OFF)
        tt_log(TT_WARN, "train",
               "parallelism.enable_async_tensor_parallel: comm.overlap is off, so pieces are sent "
               "one by one and hide nothing");
    return can;
}

tt_status tt_setup_mesh(tt_setup *s, const tt_setup_opts *o, tt_error *err)
{
    const tt_parallelism_config *p = &s->core.parallelism;
    tt_mesh_degrees d = {(int32_t)p->pipeline_parallel_degree,
                         (int32_t)p->data_parallel_replicate_degree,
                         (int32_t)p->data_parallel_shard_degree,
                         (int32_t)p->context_parallel_degree,
                         (int32_t)p->tensor_parallel_degree,
                         (int32_t)p->expert_parallel_degree,
                         0};
    int64_t world = (int64_t)d.pp * d.dp_replicate * d.cp * d.tp * TT_MAXV(d.dp_shard, 1);
    tt_error why = {0};
    if (o->nproc > 0)
        world = o->nproc;
    if (world > 1 << 20)
        return tt_job_fail(s->job, "parallelism", err, "%lld ranks are too many", (long long)world);
    s->world = (int)world;
    if (tt_mesh_make(&d, s->world, s->shape.kv_heads, s->arena, &s->mesh, &why) != TT_OK) {
        d.ep = 1; /* which key is wrong? */
        const bool ep = !tt_mesh_make(&d, s->world, s->shape.kv_heads, s->arena, &s->mesh, NULL);
        return tt_setup_fail(s->job, ep ? "parallelism.expert_parallel_degree" : "parallelism",
                             why.text, err);
    }
    if (s->spec->rules)
        TT_TRY(tt_label_table_parse(s->spec->rules, s->spec->n_rules, &s->labels, err));
    else
        tt_label_table_default(&s->labels);
    s->labels.sequence_parallel = p->enable_sequence_parallel;
    s->data_world = d.dp_replicate * d.dp_shard;
    s->pipeline_ranks = d.pp;
    if (!s->threads)
        s->threads = default_threads(o, s->world);
    s->ranks_here = o->ranks_here ? o->ranks_here : s->world;
    s->helpers = helpers(s, o);
    s->async_tp = uses_async_tp(s);
    s->overlap = overlaps(s, o->machine);
    s->machine = o->machine;
    TT_TRY(tt_setup_batch(s, err));
    d.sequences =
        (int32_t)TT_MIN(s->local, INT32_MAX); /* the same mesh again, now with the number of
                                                 sequences, which decides how cp is split into atoms */
    TT_TRY(tt_mesh_make(&d, s->world, s->shape.kv_heads, s->arena, &s->mesh, err));
    return tt_setup_pipeline(s, err);
}

/* ---- questions to the backend that need no memory or threads ---- */

static bool has_kernel(void *user, const char *op)
{
    return tt_setup_kernel(user, op) != NULL;
}

static bool supports(void *user, const tt_kernel_call *c)
{
    tt_setup *s = user;
    const tt_kernel *k = tt_setup_kernel(s, c->op);
    tt_kernel_call asked = *c;
    asked.backend = s->target;
    return k && (!k->supports || k->supports(&asked));
}

static bool can_accumulate(void *user, const char *op)
{
    const tt_kernel *k = tt_setup_kernel(user, op);
    return k && k->can_accumulate;
}

/* Whom a plan asks: a rank's backend once it is open, else the setup's target. */
typedef struct answers {
    const tt_setup *s;
    void *backend;
} answers;

static const tt_kernel *kernel_of(const answers *a, const char *op)
{
    return a->backend && tt_setup_has_target(a->s) ? tt_find_kernel(&a->s->kernels, a->backend, op)
                                                   : tt_setup_kernel_settled(a->s, op);
}

static size_t scratch(void *user, const tt_kernel_call *c)
{
    static tt_checks checks; /* that are asked for */
    const answers *a = user;
    const tt_kernel *k = kernel_of(a, c->op);
    tt_kernel_call asked = *c;
    asked.backend = a->backend ? a->backend : a->s->target;
    asked.checks = a->s->core.debug.check_products == TT_CHECK_OFF ? NULL : &checks;
    return k && k->scratch_bytes ? k->scratch_bytes(&asked, (int)(a->s->threads + a->s->helpers))
                                 : 0;
}

static int in_place(void *user, const char *op)
{
    const tt_kernel *k = kernel_of(user, op);
    return k ? k->in_place : 0;
}

/* debug.dump_program: writes DIR/program-rank3.txt, or eval-rank3.txt, or decode-rank3.txt. */
static tt_status dump_program(const tt_setup *s, const tt_plan *p, tt_error *err)
{
    const char *folder = s->core.debug.dump_program, *what = "program";
    char name[64];
    tt_str text = {0};
    if (!folder)
        return TT_OK;
    if (p->graph->slots)
        what = "decode";
    else if (p->graph == s->eval_graph && s->eval_graph != s->graph)
        what = "eval";
    snprintf(name, sizeof name, "/%s-rank%d.txt", what, tt_mesh_rank(&s->mesh, p->program->coords));
    tt_program_print(p->program, &text);
    tt_status st = tt_mkdirs(folder, err);
    if (st == TT_OK) {
        tt_str path = {0};
        tt_str_add(&path, folder);
        tt_str_add(&path, name);
        st = tt_write_file_atomic(tt_str_get(&path), tt_str_get(&text), text.n, err);
        tt_str_free(&path);
    }
    tt_str_free(&text);
    return st;
}

/* like: another rank's plan of this graph, or NULL. backend: as in tt_setup_rank_plan. */
static tt_status make_plan(const tt_setup *s, const tt_graph *g, const tt_schedule *schedule,
                           int pp_rank, const int32_t *coords, void *backend, const tt_plan *like,
                           tt_arena *a, tt_plan **out, tt_error *err)
{
    answers asked = {s, backend};
    const tt_plan_opts o = {.schedule = schedule,
                            .scratch = scratch,
                            .in_place = s->apart ? NULL : in_place,
                            .user = &asked,
                            .pp_rank = pp_rank,
                            .coords = coords,
                            .replays = s->core.debug.replay_interval > 0,
                            .like = like};
    return tt_plan_make(g, &o, a, out, err);
}

tt_status tt_setup_plan(const tt_setup *s, const tt_graph *g, const tt_schedule *schedule,
                        int pp_rank, tt_arena *a, tt_plan **out, tt_error *err)
{
    TT_TRY(make_plan(s, g, schedule, pp_rank, NULL, NULL, NULL, a, out, err));
    return dump_program(s, *out, err);
}

tt_status tt_setup_rank_plan(const tt_setup *s, const tt_graph *g, const tt_schedule *schedule,
                             int rank, void *backend, tt_arena *a, tt_plan **out, tt_error *err)
{
    const tt_axis *pp = tt_mesh_axis(&s->mesh, "pp");
    int32_t coords[TT_MAX_ATOMS];
    tt_mesh_coords(&s->mesh, rank, coords);
    TT_TRY(make_plan(s, g, schedule, pp ? coords[TT_ATOM(pp->atoms.atom[0])] : 0, coords, backend,
                     NULL, a, out, err));
    return dump_program(s, *out, err);
}

static tt_status plan_like(const tt_setup *s, int pp_rank, const tt_plan *like, tt_arena *a,
                           tt_plan **out, tt_error *err)
{
    return make_plan(s, s->graph, s->schedule, pp_rank, NULL, NULL, like, a, out, err);
}

tt_status tt_setup_try_plan(const tt_setup *s, const tt_graph *g, int pp_rank, const tt_plan *like,
                            tt_arena *a, tt_plan **out, tt_error *err)
{
    return make_plan(s, g, s->schedule, pp_rank, NULL, NULL, like, a, out, err);
}

tt_status tt_setup_plan_all(const tt_setup *s, tt_arena *a, tt_plan ***out, tt_error *err)
{
    tt_plan **plans = tt_arena_array(a, (size_t)s->pipeline_ranks, sizeof *plans);
    for (int p = 0; p < s->pipeline_ranks; p++) {
        TT_TRY(plan_like(s, p, p ? plans[0] : NULL, a, &plans[p], err));
        TT_TRY(dump_program(s, plans[p], err));
    }
    *out = plans;
    return TT_OK;
}

/* ---- graphs ---- */

/* Whether gathered parameters are kept for the step. By default they are only if a pipeline would
 * gather them again for every micro-batch (torchtitan's default). */
bool tt_setup_keeps_parameters(const tt_setup *s)
{
    const tt_reshard r = s->core.parallelism.fsdp_reshard_after_forward;
    return r == TT_RESHARD_NEVER || (r == TT_RESHARD_DEFAULT && s->n_stages > 1);
}

/* Whether gradients are reduced once per step. Only if the job asks for it, because gradients of a
 * pipeline and of one rank are otherwise added in the same order. */
static bool sinks_reductions(const tt_setup *s)
{
    return s->calls > 1 && s->core.parallelism.fsdp_reshard_after_forward == TT_RESHARD_NEVER;
}

static tt_context context(const tt_setup *s)
{
    static const tt_context by_method[] = {[TT_ROTATE_ALLGATHER] = TT_CONTEXT_GATHER,
                                           [TT_ROTATE_RING] = TT_CONTEXT_RING,
                                           [TT_ROTATE_ALLTOALL] = TT_CONTEXT_RING,
                                           [TT_ROTATE_ULYSSES] = TT_CONTEXT_HEADS};
    return by_method[s->core.parallelism.context_parallel_rotate_method];
}

static tt_precision precision(const tt_training_config *t)
{
    return (tt_precision){.param = t->dtype,
                          .compute = t->mixed_precision_param,
                          .reduce = t->mixed_precision_reduce};
}

static tt_loss_scale_opts loss_scale(const tt_training_config *t)
{
    if (t->mixed_precision_param != TT_F16)
        return (tt_loss_scale_opts){0};
    return (tt_loss_scale_opts){.initial = t->loss_scale, .window = t->loss_scale_window};
}

static tt_autodiff_opts autodiff(const tt_setup *s)
{
    return (tt_autodiff_opts){.sink = sinks_reductions(s),
                              .at_once = (s->overlap || s->early_step) && s->calls == 1,
                              .early = s->early_step,
                              .loss_scale = loss_scale(&s->core.training)};
}

/* Finds an op that the core does not have in the plugins. */
static const tt_op_def *plugin_op(void *user, const char *name)
{
    const tt_setup *s = user;
    const tt_component *c;
    if (tt_registry_find(s->registry, TT_KIND_OP, name, &c, NULL) != TT_OK)
        return NULL;
    return ((const tt_op_vt *)c->vtable)->def;
}

void tt_setup_ops(tt_setup *s)
{
    s->ops.core = tt_core_ops(&s->ops.n_core);
    s->ops.lookup = plugin_op;
    s->ops.lookup_user = s;
}

static void fingerprint(tt_setup *s)
{
    tt_str t = {0};
    char text[256];
    for (size_t i = 0; i < s->graph->params.n; i++) {
        if (s->graph->params.items[i]->converter) /* other converters, the same model */
            continue;
        tt_type_print(&s->graph->params.items[i]->whole, text, sizeof text);
        tt_str_printf(&t, "%s %s\n", s->graph->params.items[i]->name, text);
    }
    for (size_t i = 0; i < s->graph->states.n; i++) {
        const tt_state *x = s->graph->states.items[i];
        if (x->kind != TT_STATE_BUFFER || x->transient || x->of_trainer || x->of_converter)
            continue;
        tt_type_print(&x->type, text, sizeof text);
        tt_str_printf(&t, "buffer %s %s\n", x->name, text);
    }
    tt_hash128_hex(tt_str_get(&t), t.n, s->model_fingerprint);
    tt_str_free(&t);
}

/* Bytes of logits per token chunk: they stay in the last-level cache. */
#define LOGITS_CHUNK_BYTES (4 << 20)

/* A graph of validation's samples has a batch, a length and lines of its own; one that `ttrun eval` runs has those
 * of the training. */
static bool validates(const tt_setup *s, tt_mode mode)
{
    return s->n_validation &&
           (mode == TT_MODE_EVAL || (mode == TT_MODE_REFERENCE && s->refers_to_sets));
}

static int64_t seq_len_of(const tt_setup *s, tt_mode mode)
{
    return validates(s, mode) ? s->eval_seq_len : s->core.training.seq_len;
}

static int64_t sequences_of(const tt_setup *s, tt_mode mode)
{
    if (mode == TT_MODE_LOGITS)
        return 1;
    return (validates(s, mode) ? s->eval_local : s->local) * s->data_world;
}

/* Tokens per segment, if every sample is one and no rank has a part of a sample; else 0. */
static int64_t line_of(const tt_setup *s, tt_mode mode)
{
    const bool of_sets = validates(s, mode);
    const bool known = mode == TT_MODE_TRAIN || mode == TT_MODE_EVAL || mode == TT_MODE_REFERENCE;
    bool one = of_sets || tt_setup_one_segment(&s->dataloader);
    for (int i = 0; of_sets && i < s->n_validation; i++)
        one = one && tt_setup_one_segment(&s->validation[i].data);
    return known && one && s->core.parallelism.context_parallel_degree == 1 ? seq_len_of(s, mode)
                                                                            : 0;
}

static tt_update_opts update_opts(const tt_setup *s)
{
    const tt_training_config *t = &s->core.training;
    return (tt_update_opts){.groups = s->groups,
                            .n_groups = s->n_groups,
                            .max_norm = t->max_norm,
                            .norm_order = t->clip_norm_order,
                            .skip_nonfinite = t->skip_nonfinite,
                            .skip_norm = t->max_grad_norm_skip,
                            .offload = tt_setup_offloads_states(s),
                            .state_dtype = s->state_dtype,
                            .ema_weight = isnan(t->ema_decay) ? 0 : 1 - t->ema_decay,
                            .measure = s->core.metrics.norms != TT_NORMS_OFF ||
                                       s->core.debug.health_check_freq > 0,
                            .measure_updates = s->core.metrics.norms != TT_NORMS_OFF,
                            .early = s->early_step,
                            .live = !t->ema_evaluate,
                            .qk_clip = s->qk_clip};
}

static void debug_opts(const tt_setup *s, tt_compile_opts *o)
{
    o->force_load_balance = s->core.debug.moe_force_load_balance;
    o->log_experts = s->core.metrics.log_experts;
    tt_setup_expert_opts(s, o);
    o->no_fusion = s->core.debug.disable_fusion || s->core.debug.detect_nan;
}

tt_status tt_setup_compile_graph(tt_setup *s, tt_mode mode, const tt_recompute_opts *recompute,
                                 const char *dump, bool quiet, tt_arena *a, tt_graph **out,
                                 tt_error *err)
{
    tt_offload_opts offload;
    TT_TRY(tt_setup_offload(s, recompute, &offload, err));
    TT_TRY(tt_setup_kernels_check(s, err));
    tt_compile_opts o = {
        .mode = mode,
        .foreign_params = s->graph != NULL, /* parameters of the graph that was compiled before */
        .ops = &s->ops,
        .model = s->model.component->vtable,
        .model_config = s->model.config,
        .model_name = tt_arena_printf(s->arena, "model %s", s->model.name),
        .loss = s->loss.component->vtable,
        .loss_config = s->loss.config,
        .mesh = &s->mesh,
        .labels = &s->labels,
        .sequences = sequences_of(s, mode),
        .seq_len = seq_len_of(s, mode),
        .line = line_of(s, mode),
        .decode = s->decode,
        .n_stages = s->n_stages,
        .stage_begin = s->stage_begin,
        .block_stage = s->graph && s->graph->n_stages == s->n_stages ? s->graph->block_stage : NULL,
        .split_backward = s->schedule->splits,
        .precision = precision(&s->core.training),
        .context = context(s),
        .alignment = tt_device_alignment(s->backend.component->vtable),
        .device = tt_setup_has_device(s),
        .update = update_opts(s),
        .group_of = tt_group_of,
        .group_user = s,
        .freeze = tt_freeze,
        .freeze_user = s,
        .recompute = *recompute,
        .store_dtype = s->core.activation_checkpoint.store_dtype,
        .measure_logits = s->core.metrics.attention_max_logits,
        .interleaved = (int)s->core.training.intra_layer_micro_batch,
        .several = s->calls > 1,
        .hoist = tt_setup_keeps_parameters(s) && s->calls > 1,
        .autodiff = autodiff(s),
        .async_tp = s->async_tp,
        .overlap = s->overlap,
        .overlapping = {.machine = s->machine},
        .offload = offload,
        .chunk_bytes = LOGITS_CHUNK_BYTES,
        .has_kernel = has_kernel,
        .supports = supports,
        .can_accumulate = can_accumulate,
        .backend_user = s,
        .dump_folder = dump,
    };
    debug_opts(s, &o);
    tt_setup_input_opts(s, &o);
    tt_setup_convert_opts(s, &o);
    TT_TRY(tt_compile(&o, a, out, err));
    return tt_setup_kernels_settle(s, *out, quiet, err);
}

/* The planner adds up bytes in 64 bits, so this checks that they fit. */
static tt_status check_addressable(const tt_setup *s, tt_error *err)
{
    const double most = 8e18;
    double bytes = 0;
    for (size_t i = 0; i < s->graph->nodes.n; i++)
        for (int k = 0; k < s->graph->nodes.items[i]->n_out; k++) {
            const tt_type *t = &s->graph->nodes.items[i]->out[k]->type;
            double n = (double)tt_dtype_size(t->dtype);
            for (int d = 0; d < t->n_dims; d++)
                n *= (double)t->dims[d].size;
            bytes += n;
        }
    if (bytes < most)
        return TT_OK;
    return tt_job_fail(s->job, "model.args", err,
                       "too large: the values of a step have %.3g bytes, more than can be "
                       "addressed",
                       bytes);
}

/* The programs that compute what the loss's reference() says, of samples of the training and of validation. */
static tt_status compile_references(tt_setup *s, const tt_recompute_opts *recompute, bool quiet,
                                    tt_error *err)
{
    if (!s->has_reference)
        return TT_OK;
    TT_TRY(tt_setup_compile_graph(s, TT_MODE_REFERENCE, recompute, NULL, quiet, s->arena,
                                  &s->reference_graph, err));
    s->eval_reference_graph = s->reference_graph;
    if (!s->has_validation)
        return TT_OK;
    tt_setup *of_sets = tt_arena_dup(s->arena, s, sizeof *s); /* the graph refers to its mesh */
    of_sets->refers_to_sets = true;
    if (seq_len_of(of_sets, TT_MODE_REFERENCE) == seq_len_of(s, TT_MODE_REFERENCE) &&
        sequences_of(of_sets, TT_MODE_REFERENCE) == sequences_of(s, TT_MODE_REFERENCE) &&
        line_of(of_sets, TT_MODE_REFERENCE) == line_of(s, TT_MODE_REFERENCE))
        return TT_OK;
    return tt_setup_compile_graph(of_sets, TT_MODE_REFERENCE, recompute, NULL, quiet, s->arena,
                                  &s->eval_reference_graph, err);
}

tt_status tt_setup_compile(tt_setup *s, const tt_setup_opts *o, tt_error *err)
{
    const tt_model_vt *vt = s->model.component->vtable;
    s->decode = o->decode;
    TT_TRY(tt_setup_check_size(s, tt_memory_here(), err));
    TT_TRY(tt_setup_target(s, err));
    tt_recompute_opts recompute = {0};
    if (o->mode == TT_MODE_TRAIN) {
        TT_TRY(tt_setup_check_step(s, err));
        TT_TRY(tt_setup_recompute(s, err));
        tt_setup_recompute_opts(s, &recompute);
        recompute.found = &s->recomputed;
    }
    const char *dump = o->rank || o->quiet ? NULL : s->core.debug.dump_graph;
    TT_TRY(
        tt_setup_compile_graph(s, o->mode, &recompute, dump, o->quiet, s->arena, &s->graph, err));
    TT_TRY(check_addressable(s, err));
    fingerprint(s);
    TT_TRY(tt_setup_check_converters(s, o->mode == TT_MODE_TRAIN && !o->quiet, err));
    if (!o->quiet)
        tt_setup_notice_graph(s);
    if (o->mode == TT_MODE_TRAIN)
        TT_TRY(tt_groups_check(s, err));
    const int64_t width = vt->attention_width ? vt->attention_width(s->model.config) : 0;
    TT_TRY(tt_model_measure(s->graph, width, s->core.training.seq_len, &s->size));
    if (o->mode != TT_MODE_TRAIN)
        s->eval_graph = s->graph;
    else if (s->has_validation)
        TT_TRY(tt_setup_compile_graph(s, TT_MODE_EVAL, &recompute, NULL, o->quiet, s->arena,
                                      &s->eval_graph, err));
    if (o->mode == TT_MODE_TRAIN)
        TT_TRY(compile_references(s, &recompute, o->quiet, err));
    if (o->mode == TT_MODE_TRAIN || o->mode == TT_MODE_EVAL)
        tt_setup_token_order(s);
    s->eval_schedule = tt_schedule_forward(s->schedule, 1, s->arena);
    return TT_OK;
}
