/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/exchange.h"
#include <math.h>
#include <string.h>

#define GRAIN 16384 /* elements of a sum that a thread takes at a time */

bool tt_exchange_has_group(tt_step_kind k)
{
    return !tt_step_is_local(k) || k == TT_STEP_SUM;
}

/* ---- which boxes ---- */

/* The intersection of two global boxes, relative to the begin of the first one. */
static void relative_box(const tt_box *mine, const tt_box *other, int n, tt_box *out)
{
    tt_box both = {{0}, {0}};
    if (!tt_box_intersect(mine, other, n, &both)) {
        memset(out, 0, sizeof *out);
        return;
    }
    for (int d = 0; d < n; d++) {
        out->begin[d] = both.begin[d] - mine->begin[d];
        out->end[d] = both.end[d] - mine->begin[d];
    }
}

/* Do the boxes, in member order, lie one after the other in the tensor? */
static bool in_order(const tt_box *boxes, int n_boxes, const tt_tensor *t)
{
    int64_t at = 0;
    for (int i = 0; i < n_boxes; i++) {
        if (tt_box_numel(&boxes[i], t->n_dims) == 0)
            continue;
        if (t->n_dims == 0)
            return n_boxes == 1;
        if (boxes[i].begin[0] != at)
            return false;
        at = boxes[i].end[0];
        for (int d = 1; d < t->n_dims; d++)
            if (boxes[i].begin[d] != 0 || boxes[i].end[d] != t->shape[d])
                return false;
    }
    return true;
}

static void step_boxes(const tt_exchange_opts *o, const int32_t *coords, tt_box *src, tt_box *dst)
{
    tt_box_of(o->mesh, o->dims, o->out->n_dims, &o->step->src, coords, src);
    tt_box_of(o->mesh, o->dims, o->out->n_dims, &o->step->dst, coords, dst);
}

static void member_boxes(const tt_exchange_opts *o, tt_exchange *e)
{
    const int n_dims = o->out->n_dims;
    tt_box src, dst, other_src, other_dst;
    step_boxes(o, o->coords, &src, &dst);
    for (int m = 0; m < e->group.n; m++) {
        int32_t coords[TT_MAX_ATOMS];
        tt_mesh_coords(o->mesh, e->group.ranks[m], coords);
        step_boxes(o, coords, &other_src, &other_dst);
        relative_box(&src, &other_dst, n_dims, &e->send_box[m]);
        relative_box(&dst, &other_src, n_dims, &e->recv_box[m]);
        if (e->kind == TT_STEP_ALL_GATHER)
            e->counts[m] = tt_box_numel(&other_src, n_dims);
        else if (e->kind == TT_STEP_REDUCE_SCATTER)
            e->counts[m] = tt_box_numel(&other_dst, n_dims);
        else
            e->counts[m] = tt_box_numel(&e->send_box[m], n_dims);
        e->recv_counts[m] = tt_box_numel(&e->recv_box[m], n_dims);
    }
    e->packed = in_order(e->send_box, e->group.n, o->in);
    e->unpacked = in_order(e->recv_box, e->group.n, o->out);
}

/* ---- a sum of what the members gave to this rank's piece (core/passes/async_tp.c) ---- */

/* Input i came from the member that is i steps of the ring before this rank. */
static int member_before(const tt_exchange_opts *o, int i)
{
    tt_atom_list shifted = o->step->atoms;
    int32_t coords[TT_MAX_ATOMS];
    memcpy(coords, o->coords, sizeof coords);
    tt_shift_atoms(o->mesh, i, 0, shifted.atom, shifted.n);
    for (int k = 0; k < shifted.n; k++) {
        const int a = TT_ATOM(shifted.atom[k]), size = o->mesh->atom_size[a];
        coords[a] = (coords[a] + size - (int)TT_SHIFT(shifted.atom[k])) % size;
    }
    const int rank = tt_mesh_rank(o->mesh, coords);
    int m = 0;
    while (o->group.ranks[m] != rank)
        m++;
    return m;
}

static tt_status make_sum(const tt_exchange_opts *o, tt_arena *a, tt_exchange *e, tt_error *err)
{
    TT_ASSERT(o->n_in == e->group.n && o->n_in <= TT_MAX_PIECES);
    e->order = tt_arena_array(a, (size_t)o->n_in, sizeof *e->order);
    for (int j = 0; j < o->n_in; j++)
        e->order[member_before(o, j)] = j;
    return tt_reduce_members(NULL, NULL, 0, 0, o->out->dtype, TT_SUM, err);
}

typedef struct exchange_sum {
    const tt_exchange *e;
    const tt_tensor *in, *out;
} exchange_sum;

/* In member order, as a reduce-scatter does it. */
static void sum_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const exchange_sum *s = arg;
    const size_t at = (size_t)begin * tt_dtype_size(s->out->dtype);
    const void *parts[TT_MAX_PIECES];
    (void)thread;
    for (int m = 0; m < s->e->group.n; m++)
        parts[m] = (const char *)s->in[s->e->order[m]].data + at;
    (void)tt_reduce_members((char *)s->out->data + at, parts, s->e->group.n, end - begin,
                            s->out->dtype, TT_SUM, NULL); /* make_sum() checked the dtype */
}

/* Pieces that lie in their place already stay there. */
static void join_pieces(const tt_tensor *in, int n_in, const tt_tensor *out)
{
    for (int j = 0; j < n_in; j++) {
        if (!in[j].shape[0])
            continue;
        const size_t bytes = (size_t)tt_tensor_numel(&in[j]) * tt_dtype_size(out->dtype),
                     row = bytes / (size_t)in[j].shape[0];
        char *to = (char *)out->data + (size_t)(in[j].begin[0] - out->begin[0]) * row;
        if (to != in[j].data)
            memcpy(to, in[j].data, bytes);
    }
}

/* ---- the step ---- */

tt_status tt_exchange_make(const tt_exchange_opts *o, tt_arena *a, tt_exchange *out, tt_error *err)
{
    const tt_lower_step *s = o->step;
    tt_exchange *e = out;
    *e = (tt_exchange){.kind = s->kind, .group = o->group};
    e->reduce = (o->in ? s->src : s->dst).partial_max ? TT_MAX : TT_SUM;
    if (!o->in || s->kind == TT_STEP_JOIN || s->kind == TT_STEP_MASK)
        return TT_OK;
    if (s->kind == TT_STEP_SUM)
        return make_sum(o, a, e, err);
    const size_t n = s->kind == TT_STEP_SLICE ? 1 : (size_t)e->group.n;
    e->send_box = tt_arena_array(a, n, sizeof *e->send_box);
    if (s->kind == TT_STEP_SLICE) {
        tt_box src, dst;
        step_boxes(o, o->coords, &src, &dst);
        relative_box(&src, &dst, o->out->n_dims, e->send_box);
        return TT_OK;
    }
    e->counts = tt_arena_array(a, n, sizeof *e->counts);
    e->recv_counts = tt_arena_array(a, n, sizeof *e->recv_counts);
    e->recv_box = tt_arena_array(a, n, sizeof *e->recv_box);
    member_boxes(o, e);
    return TT_OK;
}

void tt_exchange_fill(const tt_tensor *t, tt_reduce op)
{
    const int64_t n = tt_tensor_numel(t);
    if (op == TT_SUM || t->dtype != TT_F32) {
        memset(t->data, 0, (size_t)n * tt_dtype_size(t->dtype));
        return;
    }
    float *p = t->data;
    for (int64_t i = 0; i < n; i++)
        p[i] = -INFINITY;
}

/* A box of a local tensor to an array of its own, or back; returns the end of that array. */
static char *copy_packed(const tt_tensor *t, const tt_box *b, char *packed, bool pack)
{
    const size_t size = tt_dtype_size(t->dtype);
    tt_box whole = {{0}, {0}};
    memcpy(whole.end, t->shape, sizeof *whole.end * (size_t)t->n_dims);
    if (pack)
        tt_box_copy(b, t->data, &whole, packed, b, t->n_dims, size);
    else
        tt_box_copy(b, packed, b, t->data, &whole, t->n_dims, size);
    return packed + (size_t)tt_box_numel(b, t->n_dims) * size;
}

static void *pack_boxes(const tt_exchange *e, const tt_tensor *in, char *buf)
{
    char *p = buf;
    if (e->packed)
        return in->data;
    for (int m = 0; m < e->group.n; m++)
        p = copy_packed(in, &e->send_box[m], p, true);
    return buf;
}

static void unpack_boxes(const tt_exchange *e, const tt_tensor *out, char *buf)
{
    for (int m = 0; !e->unpacked && m < e->group.n; m++)
        buf = copy_packed(out, &e->recv_box[m], buf, false);
}

tt_status tt_exchange_run(const tt_exchange *e, const tt_comm_vt *vt, tt_comm *comm, tt_pool *pool,
                          const tt_tensor *in, int n_in, const tt_tensor *out, char *scratch,
                          tt_error *err)
{
    const size_t in_bytes = (size_t)tt_tensor_bytes(in);
    char *packed_out = scratch ? scratch + (in_bytes + 63) / 64 * 64 : NULL;
    void *to = e->unpacked ? out->data : packed_out;
    exchange_sum sum = {e, in, out};
    tt_status st = TT_OK;
    switch (e->kind) {
    case TT_STEP_MASK: /* the program copies or fills */
        return TT_OK;
    case TT_STEP_SLICE:
        copy_packed(in, e->send_box, out->data, true);
        return TT_OK;
    case TT_STEP_JOIN:
        join_pieces(in, n_in, out);
        return TT_OK;
    case TT_STEP_SUM:
        tt_parallel_for(pool, tt_tensor_numel(out), GRAIN, sum_range, &sum);
        return TT_OK;
    case TT_STEP_ALL_REDUCE:
        memcpy(out->data, in->data, in_bytes);
        return vt->all_reduce(comm, out->data, tt_tensor_numel(out), out->dtype, e->reduce, err);
    case TT_STEP_REDUCE_SCATTER:
        return vt->reduce_scatter(comm, pack_boxes(e, in, scratch), out->data, e->counts, in->dtype,
                                  e->reduce, err);
    case TT_STEP_ALL_GATHER:
        st = vt->all_gather(comm, in->data, to, e->counts, in->dtype, err);
        break;
    case TT_STEP_ALL_TO_ALL:
    case TT_STEP_SHIFT: /* to one rank only */
        st = vt->all_to_all(comm, pack_boxes(e, in, scratch), e->counts, to, e->recv_counts,
                            in->dtype, err);
        break;
    }
    if (st == TT_OK)
        unpack_boxes(e, out, packed_out);
    return st;
}
