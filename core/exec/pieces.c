/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include <string.h>

#define GRAIN 16384 /* elements of a sum for a thread at a time */

/* The two ends of what goes piece by piece (core/passes/pieces.c), on this rank: pieces become a
 * whole where they lie, and what the members gave to this rank's piece is summed as a
 * reduce-scatter does it, in member order. */

bool tt_exec_lies_there(const tt_node *n)
{
    if (n->step->kind != TT_STEP_JOIN)
        return tt_plan_is_slice(n);
    for (int j = 0; j < n->n_in; j++)
        if (n->in[j]->within != n->out[0])
            return false;
    return true;
}

/* Input i of a sum came from the member that is i steps of the ring before this one. */
static int member_before(const tt_exec *x, const tt_collective *c, const tt_atom_list *atoms, int i)
{
    tt_atom_list turned = *atoms;
    int32_t coords[TT_MAX_ATOMS];
    memcpy(coords, x->coords, sizeof coords);
    tt_turn_atoms(x->o.mesh, i, 0, turned.atom, turned.n);
    for (int k = 0; k < turned.n; k++) {
        const int a = TT_ATOM(turned.atom[k]), size = x->o.mesh->atom_size[a];
        coords[a] = (coords[a] + size - (int)TT_TURN(turned.atom[k])) % size;
    }
    const int rank = tt_mesh_rank(x->o.mesh, coords);
    int m = 0;
    while (c->group.ranks[m] != rank)
        m++;
    return m;
}

tt_status tt_exec_bind_pieces(tt_exec *x, tt_instr *i, tt_error *err)
{
    tt_collective *c = i->collective;
    const tt_node *n = i->node;
    if (c->kind == TT_STEP_JOIN)
        return TT_OK;
    TT_TRY(tt_exec_group(x, &n->step->atoms, &c->group, err));
    TT_ASSERT(n->n_in == c->group.n && n->n_in <= TT_MAX_PIECES);
    c->order = tt_arena_array(x->arena, (size_t)n->n_in, sizeof *c->order);
    for (int j = 0; j < n->n_in; j++)
        c->order[member_before(x, c, &n->step->atoms, j)] = j;
    return tt_reduce_members(NULL, NULL, 0, 0, n->out[0]->type.dtype, TT_SUM, err);
}

static void join(const tt_instr *i, const tt_tensor *in, const tt_tensor *out)
{
    for (int j = 0; j < i->n_in; j++) {
        if (i->node->in[j]->within == i->node->out[0] || !in[j].shape[0])
            continue;
        const size_t bytes = (size_t)tt_tensor_numel(&in[j]) * tt_dtype_size(out->dtype),
                     row = bytes / (size_t)in[j].shape[0];
        memcpy((char *)out->data + (size_t)(in[j].begin[0] - out->begin[0]) * row, in[j].data,
               bytes);
    }
}

typedef struct summing {
    const tt_collective *c;
    const tt_tensor *in, *out;
} summing;

static void sum_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const summing *s = arg;
    const size_t at = (size_t)begin * tt_dtype_size(s->out->dtype);
    const void *parts[TT_MAX_PIECES];
    (void)thread;
    for (int m = 0; m < s->c->group.n; m++)
        parts[m] = (const char *)s->in[s->c->order[m]].data + at;
    (void)tt_reduce_members((char *)s->out->data + at, parts, s->c->group.n, end - begin,
                            s->out->dtype, TT_SUM, NULL); /* the dtype was asked for before */
}

void tt_exec_run_pieces(const tt_exec *x, const tt_instr *i, const tt_tensor *in,
                        const tt_tensor *out)
{
    summing s = {i->collective, in, out};
    if (i->collective->kind == TT_STEP_JOIN)
        join(i, in, out);
    else
        tt_parallel_for(x->o.pool, tt_tensor_numel(out), GRAIN, sum_range, &s);
}
