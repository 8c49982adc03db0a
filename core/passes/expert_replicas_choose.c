/* SPDX-License-Identifier: Apache-2.0 */
#include "cost/cost.h"
#include "passes/expert_replicas.h"

/* How many replicas the experts of a described graph get. */

/* The layers of a graph, and the one with the largest experts. */
typedef struct layers {
    int64_t n, experts;
    double slots, width;   /* of a micro-batch, on all ranks; elements of a row */
    double weights;        /* of one expert, elements */
    double weights_of_all; /* … in all layers together */
} layers;

static double weights_of(const tt_graph *g, const tt_value *counts)
{
    double n = 0;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *m = g->nodes.items[i];
        if (m->op == &tt_op_grouped_linear && m->in[2] == counts)
            n += (double)m->in[1]->type.dims[1].size * (double)m->in[1]->type.dims[2].size;
    }
    return n;
}

static layers find_layers(const tt_graph *g)
{
    layers l = {0};
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->op == &tt_op_expert_rows)
            l.width = TT_MAXV(l.width, (double)n->out[0]->type.dims[1].size);
        if (n->op != &tt_op_expert_route)
            continue;
        const tt_dim *t = n->in[0]->type.dims;
        const double w = weights_of(g, n->out[1]);
        l.n++;
        l.experts = TT_MAXV(l.experts, ((const tt_attrs_dims *)n->attrs)->dims[0].size);
        l.slots = TT_MAXV(l.slots, (double)t[0].size * (double)t[1].size);
        l.weights = TT_MAXV(l.weights, w);
        l.weights_of_all += w;
    }
    return l;
}

/* Of one replica per layer on a rank: the weights, and the gradients of one layer, or, kept for the step's
 * micro-batches, of all. */
static double replica_bytes(const layers *l, const tt_replica_opts *o, bool per_step)
{
    const double compute = (double)tt_dtype_size(o->compute),
                 all = l->weights_of_all / (double)TT_MAXV(o->stages, 1),
                 kept = o->again && !per_step ? l->weights : all;
    return kept * compute + (per_step ? all : l->weights) * (double)tt_dtype_size(TT_F32);
}

/* What a micro-batch costs in a layer on the busiest rank: the products of its rows, the rows that it gets and
 * sends, and the all-reduces of replicas. Forward and backward. */
static double cost_of(const layers *l, const tt_replica_opts *o, int64_t n, bool per_step)
{
    const tt_ratios *r = tt_machine_order.ratios;
    const double ranks = (double)o->ranks, parts = (double)TT_MAXV(o->parts, 1),
                 size = (double)tt_dtype_size(o->compute);
    double hot, busiest;
    tt_expert_shares((tt_expert_replicas){.n = n, .of = l->experts}, ranks, o->skew, &hot,
                     &busiest);
    const double sent = l->slots / parts * ranks * busiest, rows = sent + l->slots / parts * hot;
    double rings = o->again ? 3 : 2; /* forward, perhaps again, and gradients */
    if (per_step)
        rings = 2 / (double)o->micro_batches;
    const double reduced = 2 * (ranks - 1) / ranks * (double)n * l->weights;
    return 6 * rows * l->weights * r->flop +
           4 * sent * l->width * size * (ranks - 1) / ranks * r->byte_sent +
           reduced * size * rings * r->byte_sent;
}

static bool fits(const layers *l, const tt_replica_opts *o, int64_t n, bool per_step)
{
    return o->most_bytes <= 0 || replica_bytes(l, o, per_step) * (double)n <= (double)o->most_bytes;
}

static void choose_cheapest(const layers *l, const tt_replica_opts *o, tt_expert_replicas *out)
{
    double least = cost_of(l, o, 0, false);
    for (int k = o->micro_batches > 1; k >= 0; k--)
        for (int64_t n = 1; n <= l->experts && fits(l, o, n, k); n++) {
            const double c = cost_of(l, o, n, k);
            if (c < least) {
                least = c;
                out->n = n;
                out->per_step = k;
            }
        }
}

tt_status tt_replicas_choose(const tt_graph *g, const tt_replica_opts *o, tt_expert_replicas *out,
                             tt_error *err)
{
    const layers l = find_layers(g);
    *out = (tt_expert_replicas){.of = l.experts};
    if (!o->n || !l.n || o->ranks < 2)
        return TT_OK;
    if (o->n == TT_REPLICAS_AUTO) {
        choose_cheapest(&l, o, out);
        return TT_OK;
    }
    const double each = replica_bytes(&l, o, false), bytes = each * (double)o->n;
    if (o->n > l.experts)
        return TT_FAIL(err, TT_EINVAL,
                       "parallelism.expert_replicas: a layer has %lld experts, so no %lld of them "
                       "can have replicas",
                       (long long)l.experts, (long long)o->n);
    if (!fits(&l, o, o->n, false))
        return TT_FAIL(err, TT_EINVAL,
                       "parallelism.expert_replicas: %lld take %.3g GB on a rank, more than "
                       "expert_replicas_gb allows; take %lld at most, or auto",
                       (long long)o->n, bytes * 1e-9,
                       (long long)((double)o->most_bytes / TT_MAXV(each, 1)));
    out->n = o->n;
    out->per_step = o->micro_batches > 1 && fits(&l, o, o->n, true);
    return TT_OK;
}
