/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include <string.h>

/* What passes build that needs ops: a parameter as it is computed with (fetch, R6), a value that is
 * written to state (assign, R7), and a scalar that is stored like another value. This file is above
 * core/graph/ops. */

static tt_value *fetched_before(tt_builder *b, const tt_param_info *p)
{
    for (int i = (int)(intptr_t)tt_map_get(b->last_fetch, p->name); i > 0;
         i = b->fetches.items[i - 1].before) {
        const tt_fetch_key *k = &b->fetches.items[i - 1];
        if (k->param == p && k->block == b->block && k->when == b->when)
            return k->value;
    }
    return NULL;
}

static tt_value *remember(tt_builder *b, tt_param_info *p, tt_value *v)
{
    const int last = (int)(intptr_t)tt_map_get(b->last_fetch, p->name);
    const tt_fetch_key k = {p, b->block, b->when, v, last};
    tt_vec_push(b->arena, &b->fetches, k);
    tt_map_set(b->last_fetch, p->name, (void *)(intptr_t)b->fetches.n);
    return v;
}

/* The parameter's own numbers, or its codes, in the placement for computing. */
static tt_value *fetch_stored(tt_builder *b, tt_param_info *p)
{
    tt_node *leaf = tt_node_new(b, &tt_op_param, NULL, 0, &p->type, &p->stored, 1);
    leaf->param = p;
    tt_value *v = leaf->out[0];
    const bool numbers = !p->codes && !p->absmax_of;
    if (numbers && p->type.dtype != b->g->precision.compute) {
        /* on the shard: the gather moves the cast */
        const bool was = tt_builder_follow(b, true), inner = b->inner;
        b->inner = false; /* as the fetch */
        v = tt_cast(b, v, b->g->precision.compute);
        b->inner = inner;
        tt_builder_follow(b, was);
        if (b->failed)
            return v;
        v->node->param = p;
    }
    tt_node *n = tt_identity_node(b, &tt_op_fetch, v, &p->compute);
    n->param = p;
    p->stages |= UINT64_C(1) << b->when->stage;
    return n->out[0];
}

/* The weight [out,in] that the codes stand for. The last block of a row may be short. */
static tt_value *decoded(tt_builder *b, tt_param_info *p)
{
    const tt_attrs_codes a = {(int32_t)p->codes, (int32_t)b->g->precision.compute};
    tt_value *in[] = {fetch_stored(b, p), fetch_stored(b, p->absmax)}, *v = NULL;
    const size_t first = b->g->nodes.n;
    const bool was = tt_builder_follow(b, true), inner = b->inner;
    b->inner = false;
    tt_op(b, "decode_codes", in, 2, &a, &v, 1);
    if (p->codes == TT_CODES_NF4) {
        const int64_t blocks = p->type.dims[1].size, cols = p->whole.dims[1].size;
        const bool whole = blocks * TT_NF4_BLOCK == cols;
        const tt_dim padded[] = {p->whole.dims[0], TT_DIM(blocks * TT_NF4_BLOCK, NULL)};
        if (!whole)
            v = tt_slice(b, tt_reshape(b, v, padded, 2), 1, 0, cols);
        v = tt_reshape(b, v, p->whole.dims, 2);
    }
    b->inner = inner;
    tt_builder_follow(b, was);
    for (size_t i = first; i < b->g->nodes.n; i++)
        b->g->nodes.items[i]->param = p;
    return v;
}

tt_value *tt_fetch(tt_builder *b, tt_param_info *p)
{
    tt_value *v = fetched_before(b, p);
    if (v)
        return v;
    return remember(b, p, p->codes ? decoded(b, p) : fetch_stored(b, p));
}

tt_value *tt_fetch_value(tt_builder *b, tt_param_info *p, tt_value *v, const tt_placement *to)
{
    if (b->failed)
        return v;
    tt_node *n = tt_identity_node(b, &tt_op_fetch, v, to);
    n->param = p;
    return n->out[0];
}

void tt_state_assign(tt_builder *b, tt_state *s, tt_value *v)
{
    if (b->failed)
        return;
    v = tt_redistribute(b, tt_cast(b, v, s->type.dtype), &s->place);
    tt_node *n = tt_node_new(b, &tt_op_assign, &v, 1, NULL, NULL, 0);
    n->state = s;
}

void tt_state_assign_members(tt_builder *b, tt_state *s, int first, tt_value *v)
{
    tt_state_assign(b, s, v);
    if (!b->failed)
        b->g->nodes.items[b->g->nodes.n - 1]->accumulate_index = first;
}

tt_value *tt_broadcast_like(tt_builder *b, tt_value *scalar, tt_value *like)
{
    if (b->failed)
        return tt_placeholder(b);
    tt_attrs_dims a = {.n_dims = like->type.n_dims};
    memcpy(a.dims, like->type.dims, sizeof a.dims);
    tt_type t = like->type;
    t.dtype = scalar->type.dtype;
    tt_placement place = like->place;
    place.partial = 0;
    place.partial_max = 0;
    scalar = tt_to_stage(b, scalar);
    tt_node *n = tt_node_new(b, &tt_op_broadcast, &scalar, 1, &t, &place, 1);
    n->attrs = tt_arena_dup(b->arena, &a, sizeof a);
    return n->out[0];
}
