/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/compile.h"
#include "passes/narrow.h"
#include "passes/qk_clip.h"
#include <stdlib.h>
#include <string.h>

/* The order of the passes. Training: describe → interleave → place → metrics → expert_loads → chunk (mark) → measure → autodiff → convert →
 * convert_tidy → narrow → merge_max → chunk (move) → update → share → recompute → store → hoist → lower → order → split → fuse → epilogue →
 * rope_fusion → async_tp → overlap → offload → offload_values → extents. Decoding: describe → place, with incremental forms → lower →
 * order → fuse → epilogue → rope_fusion. */

typedef struct compiler {
    const tt_compile_opts *o;
    tt_arena *a;
    int n_dumped;
    tt_decode *decode;
    tt_offload_shares shares;
} compiler;

static tt_status dump(compiler *c, const tt_graph *g, const char *pass, tt_error *err)
{
    if (!c->o->dump_folder)
        return TT_OK;
    tt_str text = {0};
    tt_graph_print(g, &text);
    const char *name = tt_arena_printf(c->a, "%02d-%s.txt", c->n_dumped++, pass);
    tt_status s = tt_mkdirs(c->o->dump_folder, err);
    if (s == TT_OK)
        s = tt_write_file_atomic(tt_path_join(c->a, c->o->dump_folder, name), tt_str_get(&text),
                                 text.n, err);
    tt_str_free(&text);
    return s;
}

static bool generates(const tt_compile_opts *o)
{
    return o->mode == TT_MODE_LOGITS || o->mode == TT_MODE_DECODE;
}

static tt_builder_opts builder_opts(const tt_compile_opts *o)
{
    return (tt_builder_opts){.ops = o->ops,
                             .line = o->line,
                             .use = o->mode == TT_MODE_TRAIN ? TT_BUILD_TRAIN
                                    : generates(o)           ? TT_BUILD_GENERATE
                                                             : TT_BUILD_EVAL,
                             .inputs = o->inputs,
                             .n_inputs = o->n_inputs,
                             .open_input = o->open_input,
                             .open_user = o->open_user,
                             .tokens = o->sequences * o->seq_len,
                             .sequences = o->sequences,
                             .length = o->mode == TT_MODE_DECODE ? o->decode.length : o->seq_len,
                             .precision = o->precision,
                             .context = o->context,
                             .latents =
                                 o->mode == TT_MODE_DECODE && o->decode.cache == TT_CACHE_LATENT,
                             .force_load_balance = o->force_load_balance,
                             .expert_room = o->expert_room,
                             .log_experts = o->log_experts && o->mode == TT_MODE_TRAIN,
                             .alignment = o->alignment,
                             .device = o->device,
                             .has_kernel = o->has_kernel,
                             .supports = o->supports,
                             .has_kernel_user = o->backend_user,
                             .convert_linear = o->convert_linear,
                             .convert_user = o->convert_user};
}

/* In how many passes experts are computed: by the ranks that share them. */
static int expert_passes(const tt_compile_opts *o)
{
    const tt_axis *ep = tt_mesh_axis(o->mesh, "ep");
    return ep && !generates(o)
               ? tt_expert_passes(o->expert_room, tt_mesh_degree(o->mesh, &ep->atoms))
               : 1;
}

/* Converters know a product by the parameter that it reads, and replicas read none. */
static tt_status expert_replicas(const tt_compile_opts *o, tt_builder *b, tt_error *err)
{
    if (o->mode != TT_MODE_TRAIN || !o->replicas.n)
        return TT_OK;
    if (o->convert.n)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "parallelism.expert_replicas: converters of products do not reach replicas; "
                       "set it to 0, or remove the converters");
    return tt_pass_expert_replicas(b, &o->replicas, err);
}

static tt_status describe(compiler *c, tt_graph **out, tt_error *err)
{
    const tt_compile_opts *o = c->o;
    tt_builder_opts bo = builder_opts(o);
    tt_builder *b = tt_builder_new(c->a, &bo);
    if (o->model_name)
        tt_builder_context(b, o->model_name);
    o->model->describe(o->model_config, b);
    if (o->described && !tt_builder_error(b))
        o->described(o->convert_user, b);
    tt_builder_context(b, NULL);
    tt_graph *g = tt_builder_graph(b);
    if (!generates(o) && !tt_builder_error(b))
        g->loss = (o->mode == TT_MODE_REFERENCE ? o->loss->reference
                                                : o->loss->describe)(o->loss_config, b);
    TT_TRY(tt_builder_finish(b, err));
    TT_TRY(expert_replicas(o, b, err));
    TT_TRY(tt_pass_expert_passes(b, expert_passes(o), err));
    if (!tt_map_get(g->outputs, "logits"))
        return TT_FAIL(err, TT_EINVAL, "%s: describe() wrote no output \"logits\"",
                       o->model_name ? o->model_name : "the model");
    for (size_t i = 0; i < g->params.n; i++)
        if (o->group_of)
            g->params.items[i]->group = o->group_of(o->group_user, g->params.items[i]);
    if (o->freeze)
        TT_TRY(o->freeze(o->freeze_user, g, o->mode == TT_MODE_TRAIN, err));
    if (o->mode != TT_MODE_TRAIN)
        tt_pass_drop_unread(g);
    else if (o->update.qk_clip > 0)
        TT_TRY(tt_qk_clip_find(g, o->update.qk_clip, err));
    if (!generates(o))
        tt_graph_find_order(b);
    if (o->mode == TT_MODE_TRAIN)
        TT_TRY(tt_pass_interleave(g, o->interleaved, err));
    TT_TRY(tt_graph_verify(g, "describe", err));
    TT_TRY(dump(c, g, "describe", err));
    *out = g;
    return TT_OK;
}

/* Converters replace products of the forward, and of the backward if there is one. */
static tt_status convert(compiler *c, tt_builder *b, tt_error *err)
{
    if (!c->o->convert.n)
        return TT_OK;
    const tt_narrow_opts no = {.fetches = c->o->recompute.fetches};
    const int first = tt_builder_graph(b)->n_ids;
    TT_TRY(tt_pass_convert(b, &c->o->convert, err));
    TT_TRY(tt_pass_convert_tidy(b, first, err));
    TT_TRY(dump(c, tt_builder_graph(b), "convert", err));
    TT_TRY(tt_pass_narrow(b, &no, err));
    TT_TRY(tt_pass_merge_max(b, TT_FORWARD, c->o->several && c->o->mode == TT_MODE_TRAIN, err));
    return dump(c, tt_builder_graph(b), "narrow", err);
}

/* The input by which the loss weighs tokens; NULL: there is none. */
static const char *loss_weights(const tt_compile_opts *o)
{
    const bool has = o->loss && TT_HAS(o->loss, tt_loss_vt, weights) && o->loss->weights;
    return has ? o->loss->weights(o->loss_config) : NULL;
}

static tt_status after_place(compiler *c, tt_builder *b, tt_error *err)
{
    const tt_compile_opts *o = c->o;
    tt_graph *g = tt_builder_graph(b);
    if (o->mode != TT_MODE_TRAIN)
        tt_pass_stacks(g, !o->foreign_params);
    if (generates(o))
        return tt_pass_decode_logits(c->decode, b, err);
    const tt_chunk_opts co = {o->chunk_bytes, o->can_accumulate, o->supports, o->backend_user};
    TT_TRY(tt_pass_chunk_mark(g, &co, err));
    if (o->mode == TT_MODE_REFERENCE)
        TT_TRY(tt_pass_per_token(b, err));
    else
        TT_TRY(tt_pass_metrics(b, loss_weights(o), err));
    TT_TRY(dump(c, g, "metrics", err));
    if (o->mode != TT_MODE_TRAIN) {
        TT_TRY(convert(c, b, err));
        if (o->convert.n)
            tt_pass_chunk_check(g, &co);
        return TT_OK;
    }
    TT_TRY(tt_pass_expert_loads(b, err));
    if (o->measure_logits || g->qk_clip) {
        TT_TRY(tt_pass_measure_logits(b, g->qk_clip != NULL, o->measure_logits, err));
        TT_TRY(dump(c, g, "measure", err));
    }
    TT_TRY(tt_pass_buffer_sums(b, err));
    TT_TRY(tt_pass_autodiff(b, &o->autodiff, err));
    TT_TRY(dump(c, g, "autodiff", err));
    if (g->replicas.per_step) {
        TT_TRY(tt_pass_hoist(g, true, err));
        TT_TRY(dump(c, g, "replicas", err));
    }
    TT_TRY(convert(c, b, err));
    TT_TRY(tt_pass_buffer_sums(b, err)); /* of converters */
    TT_TRY(tt_pass_chunk_move(g, &co, err));
    TT_TRY(tt_pass_update(b, &o->update, err));
    TT_TRY(tt_pass_buffers(b, err));
    TT_TRY(tt_pass_merge_max(b, TT_EPILOGUE, false, err));
    TT_TRY(tt_pass_share(g, err));
    TT_TRY(dump(c, g, "update", err));
    tt_recompute_opts ro = o->recompute;
    ro.shares = &c->shares;
    TT_TRY(tt_pass_recompute(g, &ro, err));
    TT_TRY(dump(c, g, "recompute", err));
    const tt_store_opts so = {.dtype = o->store_dtype, .apart = o->split_backward};
    TT_TRY(tt_pass_store(b, &so, err));
    if (so.dtype != TT_F32)
        TT_TRY(dump(c, g, "store", err));
    if (!o->hoist)
        return TT_OK;
    TT_TRY(tt_pass_hoist(g, false, err));
    return dump(c, g, "hoist", err);
}

/* Copies to and from host memory, between nodes whose order is final. */
static tt_status offload(compiler *c, tt_graph *g, tt_error *err)
{
    const tt_compile_opts *o = c->o;
    if (o->mode != TT_MODE_TRAIN)
        return TT_OK;
    if (o->update.offload) {
        TT_TRY(tt_pass_offload(g, err));
        TT_TRY(dump(c, g, "offload", err));
    }
    tt_offload_opts values = o->offload;
    values.shares = c->shares;
    if (values.mode == TT_OFFLOAD_NONE || (values.mode == TT_OFFLOAD_SHARES && !values.shares.n))
        return TT_OK;
    TT_TRY(tt_pass_offload_values(g, &values, err));
    if (o->recompute.found)
        tt_offload_describe(g, values.machine, o->recompute.found);
    return dump(c, g, "offload_values", err);
}

/* What a described graph says of itself besides its nodes. */
static void take_described(tt_graph *g, const tt_graph *described)
{
    g->replicas = described->replicas;
    g->ordered = described->ordered;
    g->qk_clip = described->qk_clip;
    g->interleaved = described->interleaved;
}

/* The passes after describe. */
static tt_status transform(compiler *c, const tt_graph *described, tt_graph **out, tt_error *err)
{
    const tt_compile_opts *o = c->o;
    tt_builder_opts bo = builder_opts(o);
    bo.convert_linear = NULL; /* describe() has converted them */
    tt_builder *b = tt_builder_new_placed(c->a, &bo, o->mesh, o->labels);
    tt_graph *g = tt_builder_graph(b);
    tt_place_opts po = {.n_stages = o->n_stages,
                        .replace = c->decode ? tt_pass_decode_replace : NULL,
                        .replace_user = c->decode,
                        .convert = generates(o) ? NULL : &o->convert};
    int *block_stage = NULL;
    if (o->block_stage)
        block_stage =
            tt_arena_dup(c->a, o->block_stage, (size_t)described->n_blocks * sizeof *block_stage);
    else if (o->n_stages > 1)
        TT_TRY(tt_cut_blocks(described, o->n_stages, o->stage_begin, c->a, &block_stage, err));
    po.block_stage = g->block_stage = block_stage;
    g->expert_room = o->expert_room;
    take_described(g, described);
    tt_graph_run_numbers(g);
    TT_TRY(tt_pass_place(described, &po, b, err));
    TT_TRY(dump(c, g, "place", err));
    TT_TRY(after_place(c, b, err));
    TT_TRY(tt_pass_lower(g, err));
    TT_TRY(dump(c, g, "lower", err));
    TT_TRY(tt_pass_order(g, err));
    TT_TRY(dump(c, g, "order", err));
    if (o->split_backward)
        TT_TRY(tt_pass_split(g, err));
    const tt_fuse_opts fo = {
        .pointwise =
            !o->no_fusion && (!o->has_kernel || o->has_kernel(o->backend_user, tt_op_fused.name)),
        .can_accumulate = o->can_accumulate,
        .has_kernel = o->has_kernel,
        .supports = o->supports,
        .user = o->backend_user};
    TT_TRY(tt_pass_fuse(g, &fo, err));
    TT_TRY(dump(c, g, "fuse", err));
    TT_TRY(tt_pass_epilogue(g, &fo, err));
    TT_TRY(tt_pass_rope_fusion(g, &fo, err));
    TT_TRY(dump(c, g, "epilogue", err));
    if (o->async_tp && !generates(o)) {
        TT_TRY(tt_pass_async_tp(g, err));
        TT_TRY(dump(c, g, "async_tp", err));
    }
    if (o->overlap) {
        TT_TRY(tt_pass_overlap(g, &o->overlapping, err));
        TT_TRY(dump(c, g, "overlap", err));
    }
    if (o->mode == TT_MODE_TRAIN && o->update.early) {
        TT_TRY(tt_pass_early(g, err));
        TT_TRY(dump(c, g, "early", err));
    }
    TT_TRY(offload(c, g, err));
    if (!o->device) /* the host cannot read counts in a device's memory without waiting for it */
        tt_pass_extents(g);
    tt_loss_scale_mark(g);
    *out = g;
    return TT_OK;
}

/* One sequence of the largest length. */
static tt_status compile_logits(const tt_compile_opts *o, int64_t length, tt_arena *a,
                                tt_graph **out, tt_error *err)
{
    tt_compile_opts whole = *o;
    whole.mode = TT_MODE_LOGITS;
    whole.sequences = 1;
    whole.seq_len = length;
    TT_TRY(tt_compile(&whole, a, out, err));
    (*out)->length = length;
    return TT_OK;
}

/* A described graph for decoding. */
typedef struct decoding {
    tt_compile_opts few;
    tt_graph *described;
    tt_decode *decode;
    int64_t length;
    double bytes; /* per token */
} decoding;

/* An error of TT_EUNSUPPORTED in `why` says which op has no incremental form. */
static tt_status describe_decode(const tt_compile_opts *o, tt_cache cache, tt_arena *a,
                                 decoding *out, tt_error *why, tt_error *err)
{
    *out = (decoding){.few = *o};
    out->few.decode.cache = cache;
    out->few.sequences = o->decode.rows;
    out->few.seq_len = 1; /* each token is a sequence of its own and attends to no other */
    out->few.dump_folder = NULL;
    compiler c = {.o = &out->few, .a = a};
    TT_TRY(describe(&c, &out->described, err));
    out->few.dump_folder = o->dump_folder;
    out->length = TT_MIN(o->decode.length, tt_decode_positions(out->described));
    const tt_decode_opts *d = &o->decode;
    const tt_status s =
        tt_pass_decode_find(out->described, d->slots, d->picked > 0 ? d->picked : d->slots,
                            out->length, a, &out->decode, why);
    if (s == TT_OK)
        out->bytes = tt_decode_token_bytes(out->decode);
    return s == TT_EUNSUPPORTED ? TT_OK : s;
}

/* Of the two descriptions, the one that keeps fewer bytes per token; keys and values of heads, whose
 * logits have the bits of the whole context, if both keep as many. */
static tt_status choose_cache(const tt_compile_opts *o, tt_arena *a, decoding *heads, decoding *out,
                              tt_error *why, tt_error *err)
{
    TT_TRY(describe_decode(o, TT_CACHE_HEADS, a, heads, why, err));
    *out = *heads;
    if (o->decode.cache == TT_CACHE_HEADS || !heads->decode)
        return TT_OK;
    decoding latent;
    TT_TRY(describe_decode(o, TT_CACHE_LATENT, a, &latent, why, err));
    const bool differs = latent.decode && latent.bytes != heads->bytes;
    if (o->decode.cache == TT_CACHE_LATENT && !differs)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "--cache latent: the keys and values of this model's heads are no products "
                       "of a latent vector, or a converter or the backend prevents it; take auto");
    if (differs && (o->decode.cache == TT_CACHE_LATENT || latent.bytes < heads->bytes))
        *out = latent;
    return TT_OK;
}

static tt_status compile_decode(const tt_compile_opts *o, tt_arena *a, tt_graph **out,
                                tt_error *err)
{
    decoding heads, d;
    tt_error why = {0};
    tt_status s = TT_EUNSUPPORTED;
    TT_TRY(choose_cache(o, a, &heads, &d, &why, err));
    compiler c = {.o = &d.few, .a = a, .decode = d.decode};
    if (d.decode) {
        TT_TRY(dump(&c, d.described, "describe", err));
        s = transform(&c, d.described, out, &why);
    }
    if (s == TT_EUNSUPPORTED) {
        tt_log(TT_WARN, "infer", "%s: every token computes its whole context again", why.text);
        return compile_logits(o, d.length, a, out, err);
    }
    if (s == TT_OK)
        (*out)->heads_bytes = heads.bytes;
    else if (err)
        *err = why;
    return s;
}

tt_status tt_compile(const tt_compile_opts *o, tt_arena *a, tt_graph **out, tt_error *err)
{
    compiler c = {.o = o, .a = a};
    tt_graph *described = NULL;
    if (o->mode == TT_MODE_DECODE)
        return compile_decode(o, a, out, err);
    TT_TRY(describe(&c, &described, err));
    return transform(&c, described, out, err);
}

/* The name of the parameter that this node's output is: as stored, cast, fetched, or gathered
 * once per step. NULL: it is no parameter. */
static const char *given(const tt_node *n)
{
    if (n->op == &tt_op_state && n->state->kind == TT_STATE_GATHERED)
        return n->state->gathered ? n->state->gathered->name : NULL;
    return n->param ? n->param->name : NULL;
}

/* … or is made of by ops of one operand (a transpose, a cast) */
static const char *weight_of(const tt_value *v)
{
    const tt_node *n = v->node;
    while (!given(n) && n->n_in == 1)
        n = n->in[0]->node;
    return given(n);
}

typedef struct reads {
    bool looked_up, multiplied;
    double idle; /* of experts: the share that a token does not choose */
} reads;

/* The choices of a token for the experts of a product: the width of what sorted its rows. 0: not known. */
static int64_t choices_of(const tt_node *product)
{
    const tt_node *n = product->in[2]->node;
    while (n->n_in && n->op != &tt_op_expert_sort && n->op != &tt_op_dispatch_sort)
        n = n->in[0]->node; /* what moved the counts */
    return n->n_in && n->in[0]->type.n_dims == 2 ? n->in[0]->type.dims[1].size : 0;
}

/* How each parameter is read. One that is only looked up (an embedding) is never multiplied. */
static tt_map *find_reads(const tt_graph *g, tt_arena *a)
{
    tt_map *all = tt_map_new(a);
    for (size_t i = 0; i < g->params.n; i++)
        tt_map_set(all, g->params.items[i]->name, tt_arena_alloc(a, sizeof(reads)));
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        /* with one operand it is a cast, a fetch, a collective or the like */
        const bool counts = n->when->region == TT_FORWARD && n->n_in > 1 && n->op != &tt_op_assign;
        for (int j = 0; counts && j < n->n_in; j++) {
            const char *name = weight_of(n->in[j]);
            reads *r = name ? tt_map_get(all, name) : NULL;
            if (!r || (n->param && !strcmp(n->param->name, name)))
                continue;
            if (j == tt_op_lookup_table(n->op))
                r->looked_up = true;
            else
                r->multiplied = true;
            const int64_t k = n->op == &tt_op_grouped_linear && j == 1 ? choices_of(n) : 0;
            if (k)
                r->idle = 1 - (double)k / (double)n->in[1]->type.dims[0].size;
        }
    }
    return all;
}

tt_status tt_model_measure(const tt_graph *g, int64_t attention_width, int64_t seq_len,
                           tt_model_size *out)
{
    tt_model_size s = {0};
    int64_t frozen = 0; /* of the multiplied ones */
    double idle = 0;    /* FLOPs of the experts that a token does not choose */
    tt_arena *own = tt_arena_new();
    const tt_map *all = find_reads(g, own);
    for (size_t i = 0; i < g->params.n; i++) {
        if (g->params.items[i]->absmax_of)
            continue;
        const int64_t n = tt_type_numel(&g->params.items[i]->whole);
        const reads *r = tt_map_get(all, g->params.items[i]->name);
        s.parameters += n;
        s.trained += g->params.items[i]->frozen ? 0 : n;
        if (r->looked_up && !r->multiplied)
            s.embedding += n;
        else if (g->params.items[i]->frozen)
            frozen += n;
        idle += r->idle * (double)n * (g->params.items[i]->frozen ? 4 : 6);
    }
    tt_arena_free(own);
    s.flops_per_token = 6.0 * (double)(s.parameters - s.embedding) - 2.0 * (double)frozen - idle +
                        6.0 * (double)attention_width * (double)seq_len;
    *out = s;
    return TT_OK;
}
