/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include <string.h>

/* The functions on which the other files of core/graph are built: nodes, state, structural ops, the
 * builder's error, and where the next nodes belong. This file calls no other file of core/graph than
 * when.c. */

/* ---- structural ops: the core alone builds them, and they have no kernel ---- */

static tt_status no_infer(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    (void)out;
    return TT_FAIL(err, TT_EINVAL, "op %s is built by the core alone", q->op);
}

#define STRUCTURAL_OPS(OP)                                                                         \
    OP(param, "a parameter as stored")                                                             \
    OP(input, "an input of the step: each data rank has its sequences")                            \
    OP(state, "read named state")                                                                  \
    OP(fetch, "a parameter as computed with")                                                      \
    OP(redistribute, "the same value, stored otherwise")                                           \
    OP(transfer, "the same value on another stage")                                                \
    OP(accumulate, "add to an accumulator")                                                        \
    OP(assign, "write state")                                                                      \
    OP(load, "a state in host memory, copied to the device")                                       \
    OP(offload, "a value of the forward, copied to host memory")                                   \
    OP(reload, "what offload has copied, back on the device")                                      \
    OP(custom, "ops with a derivative of their own")                                               \
    OP(stage_sum, "the sum of one scalar per stage")                                               \
    OP(collective, "one step of a lowered redistribute")

#define DEFINE(op, doc_)                                                                           \
    const tt_op_def tt_op_##op = {.struct_size = sizeof(tt_op_def),                                \
                                  .name = #op,                                                     \
                                  .doc = (doc_),                                                   \
                                  .rule = "",                                                      \
                                  .n_out = 1,                                                      \
                                  .infer = no_infer};
STRUCTURAL_OPS(DEFINE)

bool tt_op_is_structural(const char *name)
{
#define ADDRESS(op, doc) &tt_op_##op,
    static const tt_op_def *const ops[] = {STRUCTURAL_OPS(ADDRESS)};
    for (size_t i = 0; i < TT_COUNT(ops); i++)
        if (!strcmp(name, ops[i]->name))
            return true;
    return false;
}

bool tt_node_is_cast(const tt_node *n)
{
    return (n->op->flags & TT_OP_CAST) != 0;
}

/* ---- nodes and state ---- */

tt_node *tt_node_new(tt_builder *b, const tt_op_def *op, tt_value *const *in, int n_in,
                     const tt_type *types, const tt_placement *places, int n_out)
{
    tt_graph *g = b->g;
    tt_node *n = tt_arena_alloc(b->arena, sizeof *n);
    n->id = g->n_ids++;
    n->op = op;
    n->n_in = n_in;
    n->n_out = n_out;
    n->in = tt_arena_array(b->arena, (size_t)n_in + 1, sizeof *n->in);
    if (n_in)
        memcpy(n->in, in, (size_t)n_in * sizeof *in);
    n->out = tt_arena_array(b->arena, (size_t)n_out + 1, sizeof *n->out);
    for (int i = 0; i < n_out; i++) {
        tt_value *v = tt_arena_alloc(b->arena, sizeof *v);
        v->id = g->n_values++;
        v->type = types[i];
        if (places)
            v->place = places[i];
        v->node = n;
        v->out = i;
        n->out[i] = v;
    }
    n->when = b->when;
    n->block = b->block;
    n->scope = b->scope;
    n->follow = b->follow;
    n->finest = b->finest;
    n->again = b->again && n_out > 0 && tt_dtype_is_float(types[0].dtype);
    n->role = b->inner ? TT_NODE_INNER : TT_NODE_PLAIN;
    n->accumulate_index = -1;
    tt_vec_push(b->arena, &g->nodes, n);
    return n;
}

void tt_expanded_node(tt_builder *b, const tt_op_def *def, tt_value *const *in, int n_in,
                      const void *attrs, tt_value *const *outs)
{
    tt_node *v = tt_node_new(b, def, in, n_in, NULL, NULL, 0);
    v->role = TT_NODE_EXPANDED;
    v->attrs = attrs;
    v->n_out = def->n_out;
    v->out = tt_arena_dup(b->arena, outs, sizeof *outs * (size_t)def->n_out);
}

tt_value *tt_value_root(tt_value *v)
{
    while (v->node && v->node->op == &tt_op_redistribute)
        v = v->node->in[0];
    return v;
}

bool tt_value_per_token(const tt_graph *g, const tt_value *v)
{
    const tt_dim *d = v->type.dims;
    return v->type.n_dims >= 1 && d->size == g->tokens && d->lines == g->sequences &&
           (!d->label || !strcmp(d->label, TT_LABEL_TOKENS)); /* no table of as many rows */
}

const tt_type *tt_value_type(const tt_value *v)
{
    static const tt_type none = {.dtype = TT_F32}; /* of NULL: the next op refuses it */
    return v ? &v->type : &none;
}

tt_state *tt_state_new(tt_graph *g, tt_state_kind kind, const char *name, const tt_type *type,
                       const tt_placement *place)
{
    tt_state *s = tt_arena_alloc(g->arena, sizeof *s);
    s->id = (int)g->states.n;
    s->kind = kind;
    s->name = tt_arena_str(g->arena, name);
    s->type = *type;
    s->place = *place;
    tt_vec_push(g->arena, &g->states, s);
    return s;
}

tt_state *tt_graph_state(const tt_graph *g, tt_state_kind kind, const char *name)
{
    for (size_t i = 0; i < g->states.n; i++)
        if (g->states.items[i]->kind == kind && !strcmp(g->states.items[i]->name, name))
            return g->states.items[i];
    return NULL;
}

tt_state *tt_stack_grad(const tt_stack *s, int stage)
{
    for (int i = 0; i < s->n_grads; i++)
        if (s->grads[i]->stages >> stage & 1)
            return s->grads[i];
    return s->grad;
}

/* ---- the error of a builder: the first one stays ---- */

/* The value that a function returns after an error: f32 [1, 1]. A builder that has failed builds no
 * more nodes, so no one reads it. */
tt_value *tt_placeholder(tt_builder *b)
{
    tt_value *v = tt_arena_alloc(b->arena, sizeof *v);
    v->type.dtype = TT_F32;
    v->type.n_dims = 2;
    v->type.dims[0] = TT_DIM(1, NULL);
    v->type.dims[1] = TT_DIM(1, NULL);
    v->id = -1;
    return v;
}

tt_value *tt_builder_fail(tt_builder *b, tt_status code, const char *fmt, ...)
{
    if (!b->failed) {
        va_list ap;
        va_start(ap, fmt);
        char *text = tt_arena_vprintf(b->arena, fmt ? fmt : "an error without a text", ap);
        va_end(ap);
        b->failed = true;
        tt_fail(&b->err, code, "%s", text);
        if (b->scope && b->scope[0])
            tt_error_context(&b->err, "in %s", b->scope);
        if (b->context)
            tt_error_context(&b->err, "%s", b->context);
    }
    return tt_placeholder(b);
}

tt_status tt_builder_finish(tt_builder *b, tt_error *err)
{
    if (!b->failed)
        return TT_OK;
    if (err)
        *err = b->err;
    return b->err.code;
}

const tt_error *tt_builder_error(const tt_builder *b)
{
    return b->failed ? &b->err : NULL;
}

const char *tt_builder_context(tt_builder *b, const char *what)
{
    const char *was = b->context;
    b->context = what ? tt_arena_str(b->arena, what) : NULL;
    return was;
}

/* ---- where the nodes that are built next belong ---- */

void tt_builder_at(tt_builder *b, tt_region region, int stage, int block, const char *scope)
{
    tt_when w = *b->when;
    w.region = region;
    w.stage = stage;
    b->when = tt_when_intern(b->g, w);
    b->block = block;
    b->scope = scope ? scope : "";
}

const char *tt_builder_scope(const tt_builder *b)
{
    return b->scope;
}

bool tt_builder_follow(tt_builder *b, bool follow)
{
    bool was = b->follow;
    b->follow = follow;
    return was;
}

bool tt_builder_finest(tt_builder *b, bool finest)
{
    bool was = b->finest;
    b->finest = finest;
    return was;
}

void tt_builder_chunk_loop(tt_builder *b, bool in)
{
    tt_when w = *b->when;
    w.in_chunk_loop = in;
    b->when = tt_when_intern(b->g, w);
}

void tt_builder_inner(tt_builder *b, bool inner)
{
    b->inner = inner;
}

void tt_builder_again(tt_builder *b, bool again)
{
    b->again = again;
}

void tt_builder_measured(tt_builder *b, bool measured)
{
    tt_when w = *b->when;
    w.measured = measured;
    b->when = tt_when_intern(b->g, w);
}

bool tt_builder_measures(const tt_builder *b)
{
    return b->when->measured;
}

void tt_builder_early_update(tt_builder *b, bool early)
{
    tt_when w = *b->when;
    w.early_update = early;
    b->when = tt_when_intern(b->g, w);
}

void tt_builder_replicated(tt_builder *b, uint64_t stages)
{
    tt_when w = *b->when;
    w.replicated_stages = stages;
    b->when = tt_when_intern(b->g, w);
}
