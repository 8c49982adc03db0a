/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include "graph/copies.h"
#include <string.h>
#include <ttrun/converter.h>

/* Buffers: state of a model that is not a parameter, and its update once per step. */

static tt_state *new_buffer(tt_builder *b, const char *full, const tt_type *t,
                            const tt_buffer_opts *o)
{
    static const tt_buffer_opts none;
    const tt_placement whole = {0};
    tt_state *s = tt_state_new(b->g, TT_STATE_BUFFER, full, t, &whole);
    o = o ? o : &none;
    s->init = o->init;
    s->transient = o->transient;
    s->exported = o->exported;
    if (s->init.kind == TT_INIT_TRUNC_NORMAL && s->init.a <= 0)
        s->init = (tt_init){.kind = TT_INIT_CONSTANT};
    if (s->init.kind == TT_INIT_TRUNC_NORMAL && s->init.lo >= 0 && s->init.hi <= 0)
        s->init.lo = -2, s->init.hi = 2;
    return s;
}

/* The value of a buffer, which is declared unless it exists. */
static tt_value *read_buffer(tt_builder *b, const char *full, const tt_dim *dims, int n_dims,
                             const tt_buffer_opts *opts)
{
    tt_type t = {.dtype = TT_F32, .n_dims = n_dims};
    int64_t numel = 1;
    if (n_dims < 0 || n_dims > TT_MAX_DIMS - 1)
        return tt_builder_fail(b, TT_EINVAL, "buffer %s: %d dims; a buffer has at most %d", full,
                               n_dims, TT_MAX_DIMS - 1);
    for (int i = 0; i < n_dims; i++) {
        t.dims[i] = dims[i];
        if (dims[i].size < 1 || dims[i].unit < 1 || dims[i].size % dims[i].unit ||
            !tt_mul_i64(numel, dims[i].size, &numel))
            return tt_builder_fail(b, TT_EINVAL, "buffer %s: dim %d of size %lld in units of %lld",
                                   full, i, (long long)dims[i].size, (long long)dims[i].unit);
    }
    if (tt_map_get(b->param_values, full))
        return tt_builder_fail(b, TT_EINVAL, "buffer %s: a parameter has that name", full);
    tt_state *s = tt_graph_state(b->g, TT_STATE_BUFFER, full);
    if (s && !tt_type_has_dims(&s->type, dims, n_dims))
        return tt_builder_fail(b, TT_EINVAL, "buffer %s is declared twice with other dims", full);
    return tt_state_read(b, s ? s : new_buffer(b, full, &t, opts));
}

tt_value *tt_buffer(tt_builder *b, const char *name, const tt_dim *dims, int n_dims,
                    const tt_buffer_opts *opts)
{
    if (tt_local_refuses(b, "tt_buffer") || tt_builder_lacks(b, name, "tt_buffer: the name") ||
        tt_builder_lacks_list(b, dims, n_dims, "tt_buffer: the list of dims"))
        return tt_placeholder(b);
    const char *full = b->scope[0] ? tt_arena_printf(b->arena, "%s.%s", b->scope, name)
                                   : tt_arena_str(b->arena, name);
    if (b->g->placed)
        return tt_builder_fail(b, TT_EINVAL, "buffer %s: only describe() declares buffers", full);
    return read_buffer(b, full, dims, n_dims, opts);
}

typedef enum statistic { MEAN, MAXIMUM, SUM } statistic;

/* Is stat that of the same product of another interleaved micro-batch, which then becomes a copy? */
static bool next_copy(tt_builder *b, tt_buffer_entry *e, tt_value *stat)
{
    const int c = 1 + e->more;
    tt_value *v = tt_cast(b, stat, e->whole_sum ? TT_F64 : TT_F32);
    if (!e->state->of_converter || c >= b->g->interleaved)
        return false;
    e->more++; /* several states may have one statistic, and so the same copies of it */
    if (c < tt_value_n_copies(e->stat))
        return tt_value_copy(e->stat, c) == v;
    tt_value_add_copy(b->g, e->stat, v);
    return true;
}

/* A block that multiplies a weight several times (DoRA with dropout) has one state for these products, which gets the
 * maximum of all. */
static bool next_product(tt_builder *b, tt_buffer_entry *e, tt_value *stat)
{
    if (!e->state->of_converter || b->g->interleaved > 1 || !e->stat->node || !stat->node ||
        e->stat->node->block != stat->node->block ||
        !tt_type_has_dims(&e->stat->type, stat->type.dims, stat->type.n_dims))
        return false;
    e->stat = tt_maximum(b, e->stat, tt_cast(b, stat, TT_F32));
    return true;
}

static void update(tt_builder *b, tt_value *buffer, tt_value *stat, statistic of, tt_buffer_fn fn,
                   void *user)
{
    if (tt_builder_lacks(b, buffer, "the update of a buffer: the buffer") ||
        tt_builder_lacks(b, stat, "the update of a buffer: the statistic") ||
        tt_builder_lacks(b, fn ? b : NULL, "the update of a buffer: the function"))
        return;
    const tt_node *n = buffer->node;
    if (n->op != &tt_op_state || n->state->kind != TT_STATE_BUFFER) {
        tt_builder_fail(
            b, TT_EINVAL,
            "the update of a buffer: the first value is not a buffer; pass what tt_buffer or "
            "tt_converter_state returned");
        return;
    }
    for (int d = 0; d < stat->type.n_dims; d++)
        if (stat->type.dims[d].label && !strcmp(stat->type.dims[d].label, TT_LABEL_TOKENS)) {
            tt_builder_fail(b, TT_EINVAL,
                            "the update of %s: the statistic has a token dim; reduce it first",
                            n->state->name);
            return;
        }
    for (size_t i = 0; i < b->g->buffer_updates.n; i++)
        if (b->g->buffer_updates.items[i].state == n->state) {
            tt_buffer_entry *e = &b->g->buffer_updates.items[i];
            if (!next_copy(b, e, stat) && !next_product(b, e, stat))
                tt_builder_fail(b, TT_EINVAL, "buffer %s is updated twice%s", n->state->name,
                                b->g->interleaved > 1 ? " in a micro-batch, which "
                                                        "training.intra_layer_micro_batch above 1 "
                                                        "does not allow"
                                                      : "");
            return;
        }
    const tt_buffer_entry e = {.state = n->state,
                               .stat = tt_cast(b, stat, of == SUM ? TT_F64 : TT_F32),
                               .max = of == MAXIMUM,
                               .whole_sum = of == SUM,
                               .fn = fn,
                               .user = user};
    tt_vec_push(b->arena, &b->g->buffer_updates, e);
}

void tt_buffer_update(tt_builder *b, tt_value *buffer, tt_value *stat, tt_buffer_fn fn, void *user)
{
    if (!tt_local_refuses(b, "tt_buffer_update"))
        update(b, buffer, stat, MEAN, fn, user);
}

void tt_buffer_update_sum(tt_builder *b, tt_value *buffer, tt_value *stat, tt_buffer_fn fn,
                          void *user)
{
    if (!tt_local_refuses(b, "tt_buffer_update_sum"))
        update(b, buffer, stat, SUM, fn, user);
}

/* ---- state of converters ---- */

const char *tt_builder_owner(tt_builder *b, const char *converter)
{
    const char *was = b->owner;
    b->owner = converter;
    return was;
}

const char *const tt_product_roles[TT_N_PRODUCT_ROLES] = {
    [TT_PRODUCT_FORWARD] = "forward",
    [TT_PRODUCT_GRAD_INPUT] = "grad_input",
    [TT_PRODUCT_GRAD_WEIGHT] = "grad_weight",
};

static bool outside_of_product(tt_builder *b, const char *what)
{
    if (!b->failed && !b->owner)
        tt_builder_fail(b, TT_EINVAL, "%s: only a converter's product() may call it", what);
    return b->failed;
}

tt_value *tt_converter_state(tt_builder *b, const tt_product *p, const char *name,
                             const tt_dim *dims, int n_dims, const tt_init *init)
{
    tt_buffer_opts o = {.init = {.kind = TT_INIT_CONSTANT}};
    if (outside_of_product(b, "tt_converter_state"))
        return tt_placeholder(b);
    if (init)
        o.init = *init;
    const char *full = tt_arena_printf(b->arena, "converters.%s.%s.%s.%s", b->owner, p->param,
                                       tt_product_roles[p->role], name);
    tt_value *v = read_buffer(b, full, dims, n_dims, &o);
    if (!b->failed)
        v->node->state->of_converter = true;
    return v;
}

void tt_converter_update(tt_builder *b, tt_value *state, tt_value *stat, tt_buffer_fn fn,
                         void *user)
{
    if (!outside_of_product(b, "tt_converter_update"))
        update(b, state, stat, MAXIMUM, fn, user);
}

tt_value *tt_const_array(tt_builder *b, const float *values, const tt_dim *dims, int n_dims)
{
    const tt_buffer_opts o = {.init = {.kind = TT_INIT_CONSTANT}, .transient = 1};
    int64_t n = 1;
    if (b->failed || tt_builder_lacks(b, values, "tt_const_array: the list of values") ||
        tt_builder_lacks_list(b, dims, n_dims, "tt_const_array: the list of dims"))
        return tt_placeholder(b);
    size_t number = b->g->states.n;
    const char *of = b->local ? b->local->def->name : "", *full;
    do /* the placed graph has constants of describe() and of local decompositions */
        full = tt_arena_printf(b->arena, "%s%s%s%sconstant.%zu", b->scope, b->scope[0] ? "." : "",
                               of, of[0] ? "." : "", number++);
    while (b->local && tt_graph_state(b->g, TT_STATE_BUFFER, full));
    if (b->g->placed && !b->local)
        return tt_builder_fail(b, TT_EINVAL, "%s: only describe() makes constant arrays", full);
    tt_value *v = read_buffer(b, full, dims, n_dims, &o);
    if (b->failed)
        return v;
    for (int i = 0; i < n_dims; i++)
        n *= dims[i].size; /* read_buffer has checked it */
    v->node->state->values = tt_arena_dup(b->arena, values, (size_t)n * sizeof *values);
    return v;
}
