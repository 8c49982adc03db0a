/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/exchange.h"
#include <string.h>

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

/* ---- rows of an all-to-all ---- */

/* The number of boxes before box m in the order of dims 0 and 1. */
static int place_among(const tt_box *boxes, int n, int m)
{
    int before = 0;
    for (int i = 0; i < n; i++)
        before += boxes[i].begin[0] < boxes[m].begin[0] ||
                  (boxes[i].begin[0] == boxes[m].begin[0] && boxes[i].begin[1] < boxes[m].begin[1]);
    return before;
}

static void make_rows(tt_arena *a, tt_exchange *e)
{
    const int n = e->group.n;
    e->sent_part = tt_arena_array(a, (size_t)n, sizeof *e->sent_part);
    e->received_part = tt_arena_array(a, (size_t)n, sizeof *e->received_part);
    for (int m = 0; m < n; m++) {
        e->sent_part[m] = place_among(e->send_box, n, m);
        e->received_part[m] = place_among(e->recv_box, n, m);
    }
    e->room = e->send_box[0].end[1] - e->send_box[0].begin[1];
    e->packed = e->unpacked = false;
}

/* Sets the boxes and counts of one side by `rows`, whose equal parts are the members'. */
static tt_status set_rows(const tt_exchange *e, const tt_tensor *rows, const int *part,
                          tt_box *boxes, int64_t *counts, tt_error *err)
{
    const int64_t n = tt_tensor_numel(rows) / e->group.n;
    for (int m = 0; m < e->group.n; m++) {
        const int32_t *of = (const int32_t *)rows->data + part[m] * n;
        int64_t sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += of[i];
        if (sum < 0 || sum > e->room)
            return TT_FAIL(err, TT_EINTERNAL, "%lld rows for a member, and room for %lld",
                           (long long)sum, (long long)e->room);
        boxes[m].end[1] = boxes[m].begin[1] + sum;
        counts[m] = tt_box_numel(&boxes[m], 3);
    }
    return TT_OK;
}

static tt_status begin_rows(tt_exchange *e, const tt_exchange_call *c, tt_error *err)
{
    TT_TRY(set_rows(e, &c->in[1], e->sent_part, e->send_box, e->counts, err));
    TT_TRY(set_rows(e, &c->in[2], e->received_part, e->recv_box, e->recv_counts, err));
    if (c->clear)
        memset(c->out->data, 0, (size_t)tt_tensor_bytes(c->out));
    return TT_OK;
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

/* In member order, as a reduce-scatter does it. */
static tt_status sum_pieces(const tt_exchange *e, const tt_exchange_call *c, tt_error *err)
{
    const void *parts[TT_MAX_PIECES];
    for (int m = 0; m < e->group.n; m++)
        parts[m] = c->in[e->order[m]].data;
    return tt_move_reduce(c->mover, c->out->data, parts, e->group.n, tt_tensor_numel(c->out),
                          c->out->dtype, TT_SUM, err);
}

/* Pieces that lie in their place already stay there. */
static tt_status join_pieces(const tt_exchange_call *c, tt_error *err)
{
    const tt_tensor *in = c->in, *out = c->out;
    for (int j = 0; j < c->n_in; j++) {
        if (!in[j].shape[0])
            continue;
        const size_t bytes = (size_t)tt_tensor_bytes(&in[j]), row = bytes / (size_t)in[j].shape[0];
        char *to = (char *)out->data + (size_t)(in[j].begin[0] - out->begin[0]) * row;
        TT_TRY(tt_move_copy(c->mover, to, in[j].data, bytes, err));
    }
    return TT_OK;
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
    if (s->kind == TT_STEP_ALL_TO_ALL && o->n_in == 3)
        make_rows(a, e);
    return TT_OK;
}

/* A box of a local tensor to an array of its own, or back; *packed moves to the end of that array. */
static tt_status copy_packed(const tt_mover *m, const tt_tensor *t, const tt_box *b, char **packed,
                             bool pack, tt_error *err)
{
    tt_box whole = {{0}, {0}};
    char *p = *packed;
    memcpy(whole.end, t->shape, sizeof *whole.end * (size_t)t->n_dims);
    *packed += (size_t)tt_box_numel(b, t->n_dims) * tt_dtype_size(t->dtype);
    return pack ? tt_move_box(m, b, t->data, &whole, p, b, t->n_dims, t->dtype, err)
                : tt_move_box(m, b, p, b, t->data, &whole, t->n_dims, t->dtype, err);
}

/* *from: what the call sends. */
static tt_status pack_boxes(const tt_exchange *e, const tt_exchange_call *c, void **from,
                            tt_error *err)
{
    char *p = c->scratch;
    *from = e->packed ? c->in->data : c->scratch;
    for (int m = 0; !e->packed && m < e->group.n; m++)
        TT_TRY(copy_packed(c->mover, c->in, &e->send_box[m], &p, true, err));
    return TT_OK;
}

static tt_status unpack_boxes(const tt_exchange *e, const tt_exchange_call *c, char *packed,
                              tt_error *err)
{
    for (int m = 0; !e->unpacked && m < e->group.n; m++)
        TT_TRY(copy_packed(c->mover, c->out, &e->recv_box[m], &packed, false, err));
    return TT_OK;
}

tt_status tt_exchange_run(tt_exchange *e, const tt_exchange_call *c, tt_error *err)
{
    const tt_tensor *in = c->in, *out = c->out;
    const size_t in_bytes = (size_t)tt_tensor_bytes(in), a = (size_t)c->alignment;
    char *packed_out = c->scratch ? c->scratch + (in_bytes + a - 1) / a * a : NULL, *slice;
    void *to = e->unpacked ? out->data : packed_out, *from = in->data;
    switch (e->kind) {
    case TT_STEP_MASK: /* the program copies or fills */
        return TT_OK;
    case TT_STEP_SLICE:
        slice = out->data;
        return copy_packed(c->mover, in, e->send_box, &slice, true, err);
    case TT_STEP_JOIN:
        return join_pieces(c, err);
    case TT_STEP_SUM:
        return sum_pieces(e, c, err);
    case TT_STEP_ALL_REDUCE:
        TT_TRY(tt_move_copy(c->mover, out->data, in->data, in_bytes, err));
        return c->vt->all_reduce(c->comm, out->data, tt_tensor_numel(out), out->dtype, e->reduce,
                                 err);
    case TT_STEP_REDUCE_SCATTER:
        TT_TRY(pack_boxes(e, c, &from, err));
        return c->vt->reduce_scatter(c->comm, from, out->data, e->counts, in->dtype, e->reduce,
                                     err);
    case TT_STEP_ALL_GATHER:
        TT_TRY(c->vt->all_gather(c->comm, in->data, to, e->counts, in->dtype, err));
        break;
    case TT_STEP_ALL_TO_ALL:
        if (e->sent_part)
            TT_TRY(begin_rows(e, c, err));
        /* fallthrough */
    case TT_STEP_SHIFT: /* to one rank only */
        TT_TRY(pack_boxes(e, c, &from, err));
        TT_TRY(c->vt->all_to_all(c->comm, from, e->counts, to, e->recv_counts, in->dtype, err));
        break;
    }
    return unpack_boxes(e, c, packed_out, err);
}
