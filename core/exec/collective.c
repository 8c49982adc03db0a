/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include <math.h>
#include <string.h>

/* One lowered step on this rank: pack boxes, call the communicator, unpack. Exact boxes, so uneven
 * shards need no padding: counts differ by member. */

tt_status tt_exec_group(tt_exec *x, const tt_atom_list *atoms, tt_group_comm *out, tt_error *err)
{
    const uint16_t mask = tt_atom_list_mask(atoms);
    for (size_t i = 0; i < x->group_atoms.n; i++)
        if (x->group_atoms.items[i] == mask) {
            *out = x->groups.items[i];
            return TT_OK;
        }
    TT_TRY(tt_dist_group(x->o.dist, x->p->mesh, atoms, x->arena, out, err));
    tt_vec_push(x->arena, &x->groups, *out);
    tt_vec_push(x->arena, &x->group_atoms, mask);
    return TT_OK;
}

/* Rows of `inner` contiguous elements between a box inside a tensor and a packed buffer. */
static char *copy_box(const tt_tensor *t, const tt_box *b, char *packed, bool pack)
{
    const size_t size = tt_dtype_size(t->dtype);
    const int n = t->n_dims;
    int64_t idx[TT_MAX_DIMS] = {0}, stride[TT_MAX_DIMS];
    if (tt_box_numel(b, n) == 0)
        return packed;
    int inner = n;
    int64_t run = 1;
    for (int d = n - 1; d >= 0; d--)
        stride[d] = d == n - 1 ? 1 : stride[d + 1] * t->shape[d + 1];
    while (inner > 0) { /* trailing whole dims are one run */
        inner--;
        run *= b->end[inner] - b->begin[inner];
        if (b->end[inner] - b->begin[inner] != t->shape[inner])
            break;
    }
    const size_t bytes = (size_t)run * size;
    for (;;) {
        int64_t at = 0;
        for (int d = 0; d < n; d++)
            at += (b->begin[d] + (d < inner ? idx[d] : 0)) * stride[d];
        char *p = (char *)t->data + (size_t)at * size;
        memcpy(pack ? packed : p, pack ? p : packed, bytes);
        packed += bytes;
        int d = inner - 1;
        while (d >= 0 && ++idx[d] == b->end[d] - b->begin[d])
            idx[d--] = 0;
        if (d < 0)
            return packed;
    }
}

/* Intersection of two global boxes, relative to the first one's begin. */
static void relative(const tt_box *mine, const tt_box *other, int n, tt_box *out)
{
    tt_box both = {0};
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

/* A tensor's box, of any rank's coordinates. */
static void box_of(const tt_exec *x, const tt_instr *i, const tt_placement *p,
                   const int32_t *coords, tt_box *out)
{
    const tt_type *t = i->type;
    tt_box_of(x->p->mesh, t->dims, t->n_dims, p, coords, out);
}

static void boxes_of(const tt_exec *x, const tt_instr *i, tt_collective *c, const tt_box *src,
                     const tt_box *dst, int n_dims)
{
    const tt_lower_step *s = i->step;
    for (int m = 0; m < c->group.n; m++) {
        int32_t coords[TT_MAX_ATOMS];
        tt_box other_src, other_dst;
        tt_mesh_coords(x->p->mesh, c->group.ranks[m], coords);
        box_of(x, i, &s->src, coords, &other_src);
        box_of(x, i, &s->dst, coords, &other_dst);
        relative(src, &other_dst, n_dims, &c->send_box[m]);
        relative(dst, &other_src, n_dims, &c->recv_box[m]);
        if (s->kind == TT_STEP_ALL_GATHER)
            c->counts[m] = tt_box_numel(&other_src, n_dims);
        else if (s->kind == TT_STEP_REDUCE_SCATTER)
            c->counts[m] = tt_box_numel(&other_dst, n_dims);
        else
            c->counts[m] = tt_box_numel(&c->send_box[m], n_dims);
        c->recv_counts[m] = tt_box_numel(&c->recv_box[m], n_dims);
    }
}

tt_status tt_exec_bind_collective(tt_exec *x, tt_bound *b, tt_error *err)
{
    const tt_lower_step *s = b->instr->step;
    const int n_dims = b->out[0].tensor.n_dims;
    tt_collective *c = tt_arena_alloc(x->arena, sizeof *c);
    tt_box src, dst;
    b->collective = c;
    c->kind = s->kind;
    if (b->kind == TT_INSTR_FILL) {
        c->reduce = s->dst.partial_max ? TT_MAX : TT_SUM;
        return TT_OK;
    }
    c->reduce = s->src.partial_max ? TT_MAX : TT_SUM;
    if (s->kind >= TT_STEP_JOIN)
        return tt_exec_bind_async_tp(x, b, err);
    box_of(x, b->instr, &s->src, x->p->coords, &src);
    box_of(x, b->instr, &s->dst, x->p->coords, &dst);
    if (s->kind == TT_STEP_SLICE) {
        c->send_box = tt_arena_alloc(x->arena, sizeof *c->send_box);
        relative(&src, &dst, n_dims, c->send_box);
        return TT_OK;
    }
    TT_TRY(tt_exec_group(x, &s->atoms, &c->group, err));
    const size_t n = (size_t)c->group.n;
    c->counts = tt_arena_array(x->arena, n, sizeof *c->counts);
    c->recv_counts = tt_arena_array(x->arena, n, sizeof *c->recv_counts);
    c->send_box = tt_arena_array(x->arena, n, sizeof *c->send_box);
    c->recv_box = tt_arena_array(x->arena, n, sizeof *c->recv_box);
    boxes_of(x, b->instr, c, &src, &dst, n_dims);
    c->packed = in_order(c->send_box, c->group.n, &b->in[0].tensor);
    c->unpacked = in_order(c->recv_box, c->group.n, &b->out[0].tensor);
    return TT_OK;
}

void tt_exec_fill_neutral(const tt_tensor *t, tt_reduce op)
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

static void *pack(const tt_collective *c, const tt_tensor *in, char *buf)
{
    char *p = buf;
    if (c->packed)
        return in->data;
    for (int m = 0; m < c->group.n; m++)
        p = copy_box(in, &c->send_box[m], p, true);
    return buf;
}

static void unpack(const tt_collective *c, const tt_tensor *out, char *buf)
{
    for (int m = 0; !c->unpacked && m < c->group.n; m++)
        buf = copy_box(out, &c->recv_box[m], buf, false);
}

tt_status tt_exec_run_collective(const tt_exec *x, const tt_bound *b, const tt_tensor *in,
                                 const tt_tensor *out, tt_comm *comm, tt_error *err)
{
    const tt_collective *c = b->collective;
    const size_t in_bytes = (size_t)tt_tensor_numel(in) * tt_dtype_size(in->dtype);
    char *s1 = b->scratch, *s2 = s1 + (in_bytes + 63) / 64 * 64;
    const tt_comm_vt *vt = x->o.dist->vt;
    tt_status st = TT_OK;
    switch (c->kind) {
    case TT_STEP_MASK: /* COPY or FILL */
        return TT_OK;
    case TT_STEP_SLICE:
        copy_box(in, c->send_box, out->data, true);
        return TT_OK;
    case TT_STEP_JOIN:
    case TT_STEP_SUM:
        tt_exec_run_async_tp(x, b, in, out);
        return TT_OK;
    case TT_STEP_ALL_REDUCE:
        memcpy(out->data, in->data, in_bytes);
        return vt->all_reduce(comm, out->data, tt_tensor_numel(out), out->dtype, c->reduce, err);
    case TT_STEP_ALL_GATHER: {
        char *to = c->unpacked ? out->data : s2;
        st = vt->all_gather(comm, in->data, to, c->counts, in->dtype, err);
        break;
    }
    case TT_STEP_REDUCE_SCATTER:
        return vt->reduce_scatter(comm, pack(c, in, s1), out->data, c->counts, in->dtype, c->reduce,
                                  err);
    case TT_STEP_ALL_TO_ALL:
    case TT_STEP_SHIFT: /* all to one */
        st = vt->all_to_all(comm, pack(c, in, s1), c->counts, c->unpacked ? out->data : s2,
                            c->recv_counts, in->dtype, err);
        break;
    }
    if (st == TT_OK)
        unpack(c, out, s2);
    return st;
}
