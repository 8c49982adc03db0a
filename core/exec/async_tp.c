/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include <string.h>

#define GRAIN 16384 /* elements of a sum for a thread at a time */

/* The two ends of what goes piece by piece (core/passes/async_tp.c), on this rank: pieces become a
 * whole where they lie, and what the members gave to this rank's piece is summed as a
 * reduce-scatter does it, in member order. */

/* Input i of a sum came from the member that is i steps of the ring before this one. */
static int member_before(const tt_exec *x, const tt_collective *c, const tt_atom_list *atoms, int i)
{
    tt_atom_list shifted = *atoms;
    int32_t coords[TT_MAX_ATOMS];
    memcpy(coords, x->p->coords, sizeof coords);
    tt_shift_atoms(x->p->mesh, i, 0, shifted.atom, shifted.n);
    for (int k = 0; k < shifted.n; k++) {
        const int a = TT_ATOM(shifted.atom[k]), size = x->p->mesh->atom_size[a];
        coords[a] = (coords[a] + size - (int)TT_SHIFT(shifted.atom[k])) % size;
    }
    const int rank = tt_mesh_rank(x->p->mesh, coords);
    int m = 0;
    while (c->group.ranks[m] != rank)
        m++;
    return m;
}

tt_status tt_exec_bind_async_tp(tt_exec *x, tt_bound *b, tt_error *err)
{
    tt_collective *c = b->collective;
    const tt_atom_list *atoms = &b->instr->step->atoms;
    if (c->kind == TT_STEP_JOIN)
        return TT_OK;
    TT_TRY(tt_exec_group(x, atoms, &c->group, err));
    TT_ASSERT(b->n_in == c->group.n && b->n_in <= TT_MAX_PIECES);
    c->order = tt_arena_array(x->arena, (size_t)b->n_in, sizeof *c->order);
    for (int j = 0; j < b->n_in; j++)
        c->order[member_before(x, c, atoms, j)] = j;
    return tt_reduce_members(NULL, NULL, 0, 0, b->out[0].tensor.dtype, TT_SUM, err);
}

/* Pieces that lie in their place already are left alone. */
static void join(const tt_bound *b, const tt_tensor *in, const tt_tensor *out)
{
    for (int j = 0; j < b->n_in; j++) {
        if (!in[j].shape[0])
            continue;
        const size_t bytes = (size_t)tt_tensor_numel(&in[j]) * tt_dtype_size(out->dtype),
                     row = bytes / (size_t)in[j].shape[0];
        char *to = (char *)out->data + (size_t)(in[j].begin[0] - out->begin[0]) * row;
        if (to != in[j].data)
            memcpy(to, in[j].data, bytes);
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

void tt_exec_run_async_tp(const tt_exec *x, const tt_bound *b, const tt_tensor *in,
                          const tt_tensor *out)
{
    summing s = {b->collective, in, out};
    if (b->collective->kind == TT_STEP_JOIN)
        join(b, in, out);
    else
        tt_parallel_for(x->o.pool, tt_tensor_numel(out), GRAIN, sum_range, &s);
}
