/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "graph/ops/internal.h"

/* attention_ring: attention whose keys and values are cut inside sequences, like its queries, and go from
 * rank to rank in a ring (Liu et al. 2023, arXiv:2310.01889). The op always expands (R5), for n ranks
 * into n steps: in step i a rank computes attention of its queries over the keys of the rank that is i
 * further. attention_merge adds the result to that of the steps before, in the order 0 to n-1. In the
 * backward dk and dv move with their keys, and every rank adds its share to them: in steps 1 to n-1,
 * and last in step 0, where they are back on their own rank. The keys and values of a step are sent
 * before the previous step computes, so that both happen at the same time. So for every n a rank has
 * its own keys and values and those of two other ranks. Shares are added in f32. */

typedef struct ring {
    tt_builder *b;
    const tt_mesh *m;
    tt_attrs_attention attrs; /* of a step */
    int first;                /* of the token dim's atoms: those from here on are the ring */
} ring;

static ring ring_of(tt_builder *b, const tt_shape_query *query, const tt_value *q)
{
    ring r = {
        .b = b, .m = tt_builder_graph(b)->mesh, .attrs = *(const tt_attrs_attention *)query->attrs};
    tt_atom_list cuts = {.n = q->place.n[0]}, moving = {0};
    for (int i = 0; i < cuts.n; i++)
        cuts.atom[i] = q->place.atom[0][i];
    r.first = tt_prefix_dividing(r.m, &cuts, q->type.dims[0].lines);
    for (int i = r.first; i < cuts.n; i++) {
        moving.atom[moving.n++] = cuts.atom[i];
        if (r.m->atom_size[TT_ATOM(cuts.atom[i])] > TT_MAX_SHIFT + 1)
            tt_builder_fail(
                b, TT_EUNSUPPORTED,
                "a ring over %d ranks, but at most %d are possible: take allgather or ulysses for "
                "context_parallel_rotate_method",
                (int)r.m->atom_size[TT_ATOM(cuts.atom[i])], TT_MAX_SHIFT + 1);
    }
    r.attrs.ring = moving.n ? tt_mesh_degree(r.m, &moving) : 0;
    return r;
}

/* v's parts as they lie in that step. A node of its own each time: the backward's must not keep the
 * forward's. */
static tt_value *shifted(const ring *r, tt_value *v, int step)
{
    tt_placement p = v->place;
    tt_shift_atoms(r->m, step, r->first, p.atom[0], p.n[0]);
    if (tt_placement_equal(&p, &v->place))
        return v;
    return tt_node_new(r->b, &tt_op_redistribute, &v, 1, &v->type, &p, 1)->out[0];
}

/* The input, which may have any placement. */
static tt_value *input_shifted(const ring *r, tt_value *v, int step)
{
    tt_placement p = v->place;
    tt_shift_atoms(r->m, step, r->first, p.atom[0], p.n[0]);
    return tt_redistribute(r->b, v, &p);
}

/* Keys of another number of tokens are not cut as the queries are, so they do not go round: they are
 * gathered, as without a ring. */
static bool keys_stay(const tt_shape_query *q)
{
    const tt_dim *t = &q->in[0]->dims[0], *s = &q->in[1]->dims[0];
    return t->size != s->size || t->lines != s->lines;
}

static void expand(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs)
{
    if (keys_stay(q)) {
        tt_op(b, "attention", in, q->n_in, q->attrs, outs, 2);
        return;
    }
    ring r = ring_of(b, q, in[0]);
    tt_value *k = in[1], *v = in[2], *k_next = k, *v_next = v, *out = NULL, *lse = NULL;
    const int biased = r.attrs.bias != 0, drops = tt_attention_drops(&r.attrs);
    const bool sinks = q->n_in - biased - drops == 8;
    for (int i = 0; i == 0 || i < r.attrs.ring; i++, k = k_next, v = v_next) {
        tt_value *y[2];
        if (i + 1 < r.attrs.ring) { /* sent while this step computes */
            k_next = shifted(&r, k, i + 1);
            v_next = shifted(&r, v, i + 1);
        }
        r.attrs.ring_step = i;
        tt_value *ins[10] = {
            in[0], k, v, in[3], in[4], input_shifted(&r, in[5], i), input_shifted(&r, in[6], i)};
        int n = 7;
        if (sinks && i == 0) /* they count once */
            ins[n++] = in[7];
        if (biased)
            ins[n++] = in[q->n_in - 1 - drops];
        if (drops) /* of the queries, which stay */
            ins[n++] = in[q->n_in - 1];
        tt_op(b, "attention", ins, n, &r.attrs, y, 2);
        if (i == 0) {
            out = y[0];
            lse = y[1];
            continue;
        }
        tt_value *both[4] = {tt_cast_up(b, out), lse, y[0], y[1]};
        tt_op(b, "attention_merge", both, 4, NULL, y, 2);
        out = y[0];
        lse = y[1];
    }
    outs[0] = tt_cast(b, out, q->in[0]->dtype);
    outs[1] = lse;
}

/* Added at once: fused into one sum at the end, the shares of all steps would have to be kept. */
static tt_value *plus(tt_builder *b, tt_value *sum, tt_value *x)
{
    x = tt_cast_up(b, x);
    if (!sum)
        return x;
    sum = tt_add(b, sum, x);
    if (!tt_builder_error(b))
        sum->node->not_later = true;
    return sum;
}

/* n_out: 3, or 4 with dbias, to which every step adds its share; its keys do not move */
static void expand_some_bwd(tt_builder *b, const tt_shape_query *q, int n_out, tt_value *const *in,
                            tt_value **outs)
{
    const char *op = n_out == 4 ? "attention_bias_bwd" : "attention_bwd";
    if (keys_stay(q)) {
        tt_op(b, op, in, q->n_in, q->attrs, outs, n_out);
        return;
    }
    ring r = ring_of(b, q, in[0]);
    const int n = r.attrs.ring ? r.attrs.ring : 1;
    tt_value *k = shifted(&r, in[1], 1 % n), *v = shifted(&r, in[2], 1 % n), *k_next, *v_next;
    tt_value *d[4] = {NULL, NULL, NULL, NULL};
    for (int at = 1; at <= n; at++, k = k_next, v = v_next) {
        const int i = at % n;
        tt_value *y[4];
        k_next = at + 1 < n ? shifted(&r, k, at + 1) : in[1];
        v_next = at + 1 < n ? shifted(&r, v, at + 1) : in[2];
        r.attrs.ring_step = i;
        tt_value *ins[12] = {in[0],
                             k,
                             v,
                             in[3],
                             in[4],
                             in[5],
                             in[6],
                             in[7],
                             input_shifted(&r, in[8], i),
                             input_shifted(&r, in[9], i),
                             q->n_in > 10 ? in[10] : NULL,
                             q->n_in > 11 ? in[11] : NULL};
        for (int j = 1; j < 3 && d[j]; j++)
            d[j] = shifted(&r, d[j], i);
        tt_op(b, op, ins, q->n_in, &r.attrs, y, n_out);
        for (int j = 0; j < n_out; j++)
            d[j] = plus(b, d[j], y[j]);
    }
    for (int j = 0; j < n_out; j++)
        outs[j] = tt_cast(b, d[j], q->in[j < 3 ? j : 10]->dtype);
}

static void expand_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs)
{
    expand_some_bwd(b, q, 3, in, outs);
}

static void expand_bias_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                            tt_value **outs)
{
    expand_some_bwd(b, q, 4, in, outs);
}

static void rule_attention_ring(const tt_shape_query *q, char *rule, size_t size)
{
    if (keys_stay(q)) {
        tt_attention_rule(q, rule, size);
        return;
    }
    snprintf(rule, size, "t=(b q) h=(k g), t k, t k, t, t, t, t%s -> t h, t h",
             tt_attention_rule_sinks_and_bias(q, 7));
}

static void rule_some_bwd(const tt_shape_query *q, const char *dbias, char *rule, size_t size)
{
    if (keys_stay(q)) {
        tt_attention_rule_bwd(q, dbias, rule, size);
        return;
    }
    snprintf(rule, size,
             "t=(b q) h=(k g), t k, t k, t h, t h, t h, t, t, t, t%s -> t h, t k, t k%s",
             tt_attention_rule_sinks_and_bias(q, 10), dbias);
}

static void rule_ring_bwd(const tt_shape_query *q, char *rule, size_t size)
{
    rule_some_bwd(q, "", rule, size);
}

static void rule_ring_bias_bwd(const tt_shape_query *q, char *rule, size_t size)
{
    rule_some_bwd(q, ", h n", rule, size);
}

static void vjp_attention_ring(tt_builder *b, tt_vjp *c)
{
    tt_attention_vjp(b, c, "attention_ring_bwd", "attention_ring_bias_bwd");
}

/* ---- attention_merge: out_a, lse_a, out_b, lse_b of two sets of keys → out, lse of both ---- */

static tt_status infer_merge(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 4, 4, err));
    for (int i = 0; i < 4; i++) {
        TT_TRY(tt_want_rank(q, i, "out and lse", 2, err));
        TT_TRY(tt_want_float(q, i, "out and lse", err));
        TT_TRY(tt_want_equal(q, i, 0, 0, 0, err));
    }
    TT_TRY(tt_want_same(q, 0, 2, err));
    TT_TRY(tt_want_same(q, 1, 3, err));
    const tt_dim *d = q->in[0]->dims;
    if (d[1].size != d[1].unit * q->in[1]->dims[1].size)
        return tt_infer_fail(q, err, "lse must have one column per head of out");
    out[0] = *q->in[0];
    out[1] = *q->in[1];
    return TT_OK;
}

/* Of both sets the larger lse is taken out; a query that sees no key at all keeps out 0, lse -inf.
 */
static void decompose_merge(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                            tt_value **outs)
{
    const tt_dtype f = q->in[1]->dtype;
    const tt_dim *o = q->in[0]->dims, heads = q->in[1]->dims[1];
    const tt_dim apart[3] = {o[0], heads, TT_DIM(o[1].unit, NULL)};
    tt_value *none = tt_const(b, -1e30, f);
    tt_value *top = tt_maximum(b, tt_maximum(b, in[1], in[3]), none);
    tt_value *w[2], *part[2];
    for (int i = 0; i < 2; i++)
        w[i] = tt_exp(b, tt_sub(b, in[1 + 2 * i], top));
    tt_value *sum = tt_add(b, w[0], w[1]);
    tt_value *safe = tt_maximum(b, sum, tt_const(b, 1.0, f)); /* the larger is 1 */
    for (int i = 0; i < 2; i++)
        part[i] = tt_mul(b, tt_reshape(b, in[2 * i], apart, 3),
                         tt_unsqueeze_last(b, tt_div(b, w[i], safe)));
    outs[0] = tt_cast(b, tt_reshape(b, tt_add(b, part[0], part[1]), o, 2), q->in[0]->dtype);
    outs[1] = tt_add(b, top, tt_log_e(b, sum));
}

static tt_cost cost_merge(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 2, 3.0 * tt_numel(q->in[0]) + 30.0 * tt_numel(q->in[1]));
}

const tt_op_def tt_op_attention_merge = {
    .struct_size = sizeof(tt_op_def),
    .name = "attention_merge",
    .operands = "out, lse of each of two sets of keys "
                "→ out, lse of their union",
    .doc = "attention over the union of two sets of keys, from the results for each set",
    .rule = "t h, t h, t h, t h -> t h, t h",
    .flags = TT_OP_HEAVY,
    .n_out = 2,
    .infer = infer_merge,
    .decompose = decompose_merge,
    .cost = cost_merge,
    .cls = TT_CLASS_ATTENTION};
const tt_op_def tt_op_attention_ring = {
    .struct_size = sizeof(tt_op_def),
    .name = "attention_ring",
    .operands = "as attention → out, lse",
    .attributes = "tt_attrs_attention",
    .doc = "attention in a ring of ranks: keys and values pass from rank to rank, until each query "
           "has seen all that it may see",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_HEAVY,
    .attrs_size = sizeof(tt_attrs_attention),
    .n_out = 2,
    .infer = tt_attention_infer,
    .rule_for = rule_attention_ring,
    .vjp = vjp_attention_ring,
    .expand_letters = "",
    .expand = expand,
    .cost = tt_attention_cost,
    .print_attrs = tt_attention_print,
    .cls = TT_CLASS_ATTENTION};
const tt_op_def tt_op_attention_ring_bwd = {.struct_size = sizeof(tt_op_def),
                                            .name = "attention_ring_bwd",
                                            .operands = "as attention_bwd → dq, dk, dv",
                                            .attributes = "tt_attrs_attention",
                                            .doc =
                                                "derivative of attention_ring's out to q, k and v",
                                            .rule_for = rule_ring_bwd,
                                            .flags = TT_OP_MIXES_TOKENS,
                                            .attrs_size = sizeof(tt_attrs_attention),
                                            .n_out = 3,
                                            .infer = tt_attention_infer_bwd,
                                            .expand_letters = "",
                                            .expand = expand_bwd,
                                            .cost = tt_attention_cost_bwd,
                                            .print_attrs = tt_attention_print,
                                            .cls = TT_CLASS_ATTENTION_BACKWARD};
const tt_op_def tt_op_attention_ring_bias_bwd = {
    .struct_size = sizeof(tt_op_def),
    .name = "attention_ring_bias_bwd",
    .operands = "as attention_bias_bwd → dq, dk, dv, dbias",
    .attributes = "tt_attrs_attention",
    .doc = "derivative of attention_ring's out to q, k, v and the bias",
    .rule_for = rule_ring_bias_bwd,
    .flags = TT_OP_MIXES_TOKENS,
    .attrs_size = sizeof(tt_attrs_attention),
    .n_out = 4,
    .infer = tt_attention_infer_bias_bwd,
    .expand_letters = "",
    .expand = expand_bias_bwd,
    .cost = tt_attention_cost_bwd,
    .print_attrs = tt_attention_print,
    .cls = TT_CLASS_ATTENTION_BACKWARD};
