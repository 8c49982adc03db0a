/* SPDX-License-Identifier: Apache-2.0 */
#include "cost/cost.h"
#include "graph/rows.h"
#include <string.h>

/* ---- work ---- */

/* The sequences of the token dim that a rank holds. The first atoms cut between sequences. */
static int64_t local_sequences(const tt_graph *g, const tt_value *v, int d)
{
    int64_t n_sequences = v->type.dims[d].lines;
    for (int i = 0; i < v->place.n[d]; i++) {
        const int32_t n = g->mesh->atom_size[TT_ATOM(v->place.atom[d][i])];
        if (n_sequences % n)
            break;
        n_sequences /= n;
    }
    return n_sequences;
}

/* Of the rows that a rank has room for those that hold a slot (docs/design/experts.md). */
static int64_t expert_rows(const tt_graph *g, int64_t room, bool later)
{
    return (int64_t)((double)room * tt_expert_rows_share(g, g->expert_skew, later) + 0.5);
}

/* The type of a rank's part of v, which an op's cost rule gets. shape NULL: the largest part. */
static tt_type local_type(const tt_graph *g, const tt_value *v, const int64_t *shape)
{
    tt_type out = v->type;
    for (int d = 0; g->placed && d < out.n_dims; d++) {
        out.dims[d].size =
            shape ? shape[d] : tt_chunk(g->mesh, &v->type.dims[d], v->place.atom[d], v->place.n[d]);
        const char *label = d == 0 && out.dims[d].label ? out.dims[d].label : "";
        if (!strcmp(label, TT_LABEL_ROWS) || !strcmp(label, TT_LABEL_LATER_ROWS))
            out.dims[d].size = expert_rows(g, out.dims[d].size, strcmp(label, TT_LABEL_ROWS) != 0);
        if (!strcmp(label, TT_LABEL_REPLICA_ROWS))
            out.dims[d].size =
                (int64_t)((double)out.dims[d].size * tt_replica_rows_share(g, g->expert_skew) +
                          0.5);
        if (out.dims[d].lines > 1)
            out.dims[d].lines = local_sequences(g, v, d);
    }
    return out;
}

/* A product of operands with two different dtypes is computed in f32. */
static tt_dtype computes_in(const tt_node *n)
{
    const tt_dtype first = n->n_in ? n->in[0]->type.dtype : TT_F32;
    const bool product = n->n_in > 1 && tt_op_class_of(n->op) == TT_CLASS_MATMUL;
    return product && n->in[1]->type.dtype != first ? TT_F32 : first;
}

/* An element of a product takes 2 FLOPs per term of its sum, one of attention 4 per key that it sees, half
 * of the sequence, and one of its derivative 10. */
static double depth_of(const tt_work *w, const tt_type *out)
{
    const double n = out ? (double)tt_type_numel(out) : 0;
    const bool has = w->cls == TT_CLASS_MATMUL || w->cls == TT_CLASS_ATTENTION ||
                     w->cls == TT_CLASS_ATTENTION_BACKWARD;
    return has && n > 0 ? w->flops / n / (w->cls == TT_CLASS_ATTENTION_BACKWARD ? 5 : 2) : 0;
}

static tt_work work_of(const tt_graph *g, const tt_node *n, const tt_tensor *in,
                       const tt_tensor *out)
{
    tt_work w = {.cls = tt_op_class_of(n->op), .dtype = computes_in(n)};
    tt_type ins[TT_MAX_INS], outs[TT_MAX_OUTS];
    const tt_type *at[TT_MAX_INS];
    if (n->step)
        w.sent = tt_step_elements(g, n) * (double)tt_dtype_size(n->out[0]->type.dtype);
    if (n->role == TT_NODE_EXPANDED || !n->op->cost || (n->op->flags & TT_OP_VIEW))
        return w;
    for (int i = 0; i < n->n_in; i++) {
        ins[i] = local_type(g, n->in[i], in ? in[i].shape : NULL);
        at[i] = &ins[i];
    }
    for (int i = 0; i < n->n_out; i++)
        outs[i] = local_type(g, n->out[i], out ? out[i].shape : NULL);
    const tt_shape_query q = {
        .struct_size = sizeof q, .n_in = n->n_in, .in = at, .attrs = n->attrs, .op = n->op->name};
    const tt_cost c = n->op->cost(&q, outs);
    w.flops = c.flops;
    w.bytes = c.bytes;
    w.depth = depth_of(&w, n->n_out ? &outs[0] : NULL);
    return w;
}

tt_work tt_node_work(const tt_graph *g, const tt_node *n)
{
    return work_of(g, n, NULL, NULL);
}

tt_work tt_node_work_of(const tt_graph *g, const tt_node *n, const tt_tensor *in,
                        const tt_tensor *out)
{
    return work_of(g, n, in, out);
}

/* ---- computing ---- */

static bool is_attention(const tt_work *w)
{
    return w->cls == TT_CLASS_ATTENTION || w->cls == TT_CLASS_ATTENTION_BACKWARD;
}

static double reachable_flops(const tt_work *w, const tt_machine *m)
{
    const double peak = tt_machine_flops(m, w->dtype);
    if (w->cls != TT_CLASS_MATMUL && m->flops_vector > 0)
        return m->flops_vector;
    const double ramp = is_attention(w) ? m->attention_ramp : m->matmul_ramp;
    const double part = w->depth > 0 ? w->depth / (w->depth + ramp) : 1;
    if (w->cls == TT_CLASS_ATTENTION_BACKWARD && m->attention_backward_efficiency > 0)
        return peak * part * m->attention_backward_efficiency;
    return peak * part * (is_attention(w) ? m->attention_efficiency : m->matmul_efficiency);
}

static double memory_seconds(double bytes, const tt_machine *m)
{
    const double speed = m->memory_bandwidth * m->memory_efficiency;
    return speed > 0 ? bytes / speed : 0;
}

double tt_work_seconds(const tt_work *w, const tt_machine *m)
{
    const tt_ratios *r = m->ratios;
    if (r) {
        const double flop = is_attention(w) ? r->attention_flop : r->flop;
        return TT_MAXV(w->flops * flop, w->bytes * r->byte);
    }
    if (w->flops <= 0 && w->bytes <= 0)
        return 0;
    const double peak = reachable_flops(w, m), math = peak > 0 ? w->flops / peak : 0;
    const double memory = memory_seconds(w->bytes, m);
    return m->op_latency + TT_MAXV(math, memory);
}

/* ---- communication ---- */

/* Bandwidth per rank in a group over these atoms, and the latency of a message to another rank. A ring
 * over several nodes leaves a node through the network cards of all members on that node. */
static void link_of(const tt_graph *g, const tt_atom_list *atoms, const tt_machine *m,
                    double *bandwidth, double *latency)
{
    int ranks[64];
    const int n = tt_mesh_degree(g->mesh, atoms), seen = TT_MIN(n, (int)TT_COUNT(ranks));
    const int64_t per_node = TT_MAXV(m->ranks_per_node, 1);
    tt_atom_list few = *atoms; /* the first members show how the group lies on nodes */
    while (few.n > 0 && tt_mesh_degree(g->mesh, &few) > seen)
        memmove(few.atom, few.atom + 1, --few.n * sizeof few.atom[0]);
    const int k = few.n ? tt_mesh_group(g->mesh, 0, &few, ranks) : 1;
    int here = 0;
    for (int i = 0; i < k; i++)
        here += few.n ? ranks[i] < per_node : 1;
    const bool one_node = few.n == atoms->n && here == k;
    const double reached = m->net_efficiency > 0 ? m->net_efficiency : m->network_efficiency;
    *bandwidth = m->link_bandwidth * m->network_efficiency;
    if (!one_node)
        *bandwidth = TT_MIN(*bandwidth, m->net_bandwidth * reached * TT_MAXV(here, 1));
    *latency = one_node ? m->link_latency : m->net_latency;
}

static int tree_depth(int n)
{
    int hops = 0;
    while (1 << hops < n)
        hops++;
    return hops;
}

/* The turns of a ring: an all-reduce is a reduce-scatter and an all-gather; small ones go through a tree
 * instead, whose depth is the latency's. */
static double turns_of(tt_step_kind kind, int n_ranks)
{
    return kind == TT_STEP_ALL_GATHER || kind == TT_STEP_REDUCE_SCATTER ? n_ranks - 1 : 0;
}

static double collective_seconds(const tt_graph *g, const tt_node *n, const tt_machine *m)
{
    double bandwidth, latency;
    const tt_lower_step *s = n->step;
    const double sent = tt_node_work(g, n).sent;
    if (m->ratios)
        return sent * m->ratios->byte_sent;
    if (tt_step_is_local(s->kind))
        return 0;
    link_of(g, &s->atoms, m, &bandwidth, &latency);
    if (s->kind == TT_STEP_SHIFT)
        return latency + sent / bandwidth;
    const int n_ranks = tt_mesh_degree(g->mesh, &s->atoms);
    latency *= tree_depth(n_ranks);
    return latency + m->turn_latency * turns_of(s->kind, n_ranks) + sent / bandwidth;
}

static double pipeline_link(const tt_graph *g, const tt_machine *m, double *latency)
{
    double bandwidth;
    const tt_axis *pp = tt_mesh_axis(g->mesh, "pp");
    const tt_atom_list none = {0};
    link_of(g, pp ? &pp->atoms : &none, m, &bandwidth, latency);
    *latency *= tree_depth(pp ? tt_mesh_degree(g->mesh, &pp->atoms) : 1);
    return bandwidth;
}

double tt_message_seconds(const tt_graph *g, double bytes, const tt_machine *m)
{
    double latency;
    if (m->ratios)
        return bytes * m->ratios->byte_sent;
    const double bandwidth = pipeline_link(g, m, &latency);
    return latency + bytes / bandwidth;
}

/* Bytes of a rank's part of v; if only a chunk's rows exist, of these rows. */
static double bytes_of(const tt_graph *g, const tt_value *v)
{
    const tt_type t = local_type(g, v, NULL);
    double n = (double)tt_dtype_size(t.dtype);
    for (int d = 0; d < t.n_dims; d++)
        n *=
            (double)(d == 0 && v->chunked ? TT_MIN(t.dims[d].size, g->chunk_rows) : t.dims[d].size);
    return n;
}

/* The time of a join or a sum: the bytes that it copies or adds pass through memory. */
static double async_tp_seconds(const tt_graph *g, const tt_node *n, const tt_machine *m)
{
    const bool sum = n->step->kind == TT_STEP_SUM;
    double bytes = sum ? bytes_of(g, n->out[0]) : 0;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->within != n->out[0])
            bytes += (sum ? 1 : 2) * bytes_of(g, n->in[i]);
    return bytes > 0 ? m->op_latency + memory_seconds(bytes, m) : 0;
}

/* Is it a copy between the device and host memory? */
static bool is_host_copy(const tt_node *n)
{
    return n->op == &tt_op_offload || n->op == &tt_op_reload ||
           ((n->op == &tt_op_load || n->op == &tt_op_assign) && n->state->offloaded);
}

/* A copy between the device and host memory runs concurrently, as a collective does. */
static double host_copy_seconds(const tt_graph *g, const tt_node *n, const tt_machine *m)
{
    const tt_value *v = n->op == &tt_op_assign ? n->in[0] : n->out[0];
    return m->host_bandwidth > 0 && !m->ratios ? bytes_of(g, v) / m->host_bandwidth : 0;
}

tt_seconds tt_node_seconds(const tt_graph *g, const tt_node *n, const tt_machine *m)
{
    if (n->op == &tt_op_transfer)
        return (tt_seconds){0};
    if (is_host_copy(n))
        return (tt_seconds){.comm = host_copy_seconds(g, n, m)};
    if (n->step && n->step->kind >= TT_STEP_JOIN && !m->ratios)
        return (tt_seconds){.compute = async_tp_seconds(g, n, m)};
    if (n->step)
        return (tt_seconds){.comm = collective_seconds(g, n, m)};
    const tt_work w = tt_node_work(g, n);
    return (tt_seconds){.compute = tt_work_seconds(&w, m)};
}
