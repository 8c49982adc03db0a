/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* rms_norm:   y = x / sqrt(mean(x² over D) + eps) * w    Zhang & Sennrich 2019, arXiv:1910.07467
 * layer_norm: y = (x - mean) / sqrt(var + eps) * w + b   Ba et al. 2016, arXiv:1607.06450
 *   x [..,D], w [D], b [D]. rms_norm's w may be [hd] if the unit of x's last dim is hd: then
 *   each head has its own norm. The math is in f32 and rounded once. D must be whole, or, with a norm
 *   per head, may be cut between heads; all other dims may be cut. */

static bool per_head(const tt_shape_query *q)
{
    const tt_dim *x = &q->in[0]->dims[q->in[0]->n_dims - 1], *w = &q->in[1]->dims[0];
    return x->size != w->size ||
           x->unit != w->unit; /* with one head the sizes are equal, but not the units */
}

static tt_status want_norm(const tt_shape_query *q, int n_in, bool heads_allowed, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, n_in, n_in, err));
    TT_TRY(tt_want_min_rank(q, 0, "x", 1, err));
    TT_TRY(tt_want_float(q, 0, "x", err));
    TT_TRY(tt_want_rank(q, 1, "the weight", 1, err));
    const tt_dim *d = &q->in[0]->dims[q->in[0]->n_dims - 1];
    int64_t w = q->in[1]->dims[0].size;
    if (d->size == w)
        return TT_OK;
    if (!heads_allowed)
        return tt_infer_fail(q, err, "the weight must have the size of x's last dim");
    if (w <= 0 || d->size % w != 0 || d->unit % w != 0)
        return tt_infer_fail(
            q, err,
            "the weight must have the size of x's last dim, or of its unit (a norm per head; "
            "the unit is %lld)",
            (long long)d->unit);
    return TT_OK;
}

static tt_status infer_rms(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(want_norm(q, 2, true, err));
    out[0] = *q->in[0];
    return TT_OK;
}

static tt_status infer_layer(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(want_norm(q, 3, false, err));
    TT_TRY(tt_want_same(q, 1, 2, err));
    out[0] = *q->in[0];
    return TT_OK;
}

static tt_type weight_gradient(const tt_type *w)
{
    return tt_type_make(tt_dtype_accumulate(w->dtype), w->dims, 1);
}

static tt_status infer_rms_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(want_norm(q, 3, true, err));
    TT_TRY(tt_want_same(q, 0, 2, err));
    out[0] = *q->in[0];
    out[1] = weight_gradient(q->in[1]);
    return TT_OK;
}

static tt_status infer_layer_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(want_norm(q, 3, false, err));
    TT_TRY(tt_want_same(q, 0, 2, err));
    out[0] = *q->in[0];
    out[2] = out[1] = weight_gradient(q->in[1]);
    return TT_OK;
}

/* "a !i, i -> a i", or per head "a h, !w -> a h"; backward with dy and the weights' gradients. */
static void write_rule(const tt_shape_query *q, int n_weights, bool bwd, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    bool heads = per_head(q);
    int n = q->in[0]->n_dims;
    tt_rule_dims(&t, n, n - 1, heads ? "h" : "!i");
    for (int i = 0; i < (bwd ? 1 : n_weights); i++)
        tt_rule_add(&t, ", %s", heads ? "!w" : "i");
    if (bwd) {
        tt_rule_add(&t, ",");
        tt_rule_dims(&t, n, n - 1, heads ? "h" : "i");
    }
    tt_rule_add(&t, " ->");
    tt_rule_dims(&t, n, n - 1, heads ? "h" : "i");
    for (int i = 0; bwd && i < n_weights; i++)
        tt_rule_add(&t, ", %s", heads ? "w" : "i");
}

static void rule_rms(const tt_shape_query *q, char *rule, size_t size)
{
    write_rule(q, 1, false, rule, size);
}

static void rule_rms_bwd(const tt_shape_query *q, char *rule, size_t size)
{
    write_rule(q, 1, true, rule, size);
}

static void rule_layer(const tt_shape_query *q, char *rule, size_t size)
{
    write_rule(q, 2, false, rule, size);
}

static void rule_layer_bwd(const tt_shape_query *q, char *rule, size_t size)
{
    write_rule(q, 2, true, rule, size);
}

static void vjp_rms(tt_builder *b, tt_vjp *c)
{
    tt_value *ins[3] = {c->in[0], c->in[1], c->dout[0]}, *outs[2] = {NULL, NULL};
    tt_op(b, "rms_norm_bwd", ins, 3, c->attrs, outs, 2);
    for (int i = 0; i < 2; i++)
        if (c->want[i])
            c->din[i] = outs[i];
}

static void vjp_layer(tt_builder *b, tt_vjp *c)
{
    tt_value *ins[3] = {c->in[0], c->in[1], c->dout[0]}, *outs[3] = {NULL, NULL, NULL};
    tt_op(b, "layer_norm_bwd", ins, 3, c->attrs, outs, 3);
    for (int i = 0; i < 3; i++)
        if (c->want[i])
            c->din[i] = outs[i];
}

/* ---- decompositions ---- */

static tt_value *inverse_root(tt_builder *b, tt_value *x,
                              double eps) /* 1 / sqrt(mean(x²) + eps) [..,1] */
{
    tt_value *ms = tt_mean(b, tt_mul(b, x, x), -1, 1);
    return tt_rsqrt(b, tt_add(b, ms, tt_const(b, eps, tt_value_type(x)->dtype)));
}

/* x as [.., heads, hd] when the norm is per head */
static tt_value *to_heads(tt_builder *b, const tt_shape_query *q, tt_value *x)
{
    tt_dim dims[TT_MAX_DIMS];
    int n = q->in[0]->n_dims;
    if (!per_head(q) || n == TT_MAX_DIMS)
        return x;
    for (int i = 0; i < n; i++)
        dims[i] = q->in[0]->dims[i];
    tt_dim d = dims[n - 1];
    int64_t hd = q->in[1]->dims[0].size;
    dims[n - 1] = TT_DIM_UNIT(d.size / hd, d.label, d.unit / hd);
    dims[n] = q->in[1]->dims[0];
    return tt_reshape(b, x, dims, n + 1);
}

static tt_value *from_heads(tt_builder *b, const tt_shape_query *q, tt_value *y)
{
    if (per_head(q))
        y = tt_reshape(b, y, q->in[0]->dims, q->in[0]->n_dims);
    return tt_cast(b, y, q->in[0]->dtype);
}

static double eps_of(const tt_shape_query *q)
{
    return ((const tt_attrs_norm *)q->attrs)->eps;
}

static tt_value *sum_to_last(tt_builder *b, tt_value *x) /* [..,D] → [D] */
{
    while (tt_value_type(x)->n_dims > 1)
        x = tt_sum(b, x, 0, 0);
    return x;
}

static void decompose_rms(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                          tt_value **outs)
{
    tt_value *x = to_heads(b, q, tt_cast_up(b, in[0]));
    outs[0] = from_heads(b, q, tt_mul(b, tt_mul(b, x, inverse_root(b, x, eps_of(q))), in[1]));
}

static void decompose_rms_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                              tt_value **outs)
{ /* r = 1/rms, g = dy w: dx = r g - x r³ mean(g x), dw = Σ dy x r */
    tt_value *x = to_heads(b, q, tt_cast_up(b, in[0])), *dy = to_heads(b, q, tt_cast_up(b, in[2]));
    tt_value *r = inverse_root(b, x, eps_of(q)), *g = tt_mul(b, dy, in[1]);
    tt_value *m = tt_mul(b, tt_mean(b, tt_mul(b, g, x), -1, 1), tt_mul(b, r, tt_mul(b, r, r)));
    outs[0] = from_heads(b, q, tt_sub(b, tt_mul(b, g, r), tt_mul(b, x, m)));
    outs[1] = sum_to_last(b, tt_mul(b, dy, tt_mul(b, x, r)));
}

static void decompose_layer(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                            tt_value **outs)
{
    tt_value *x = tt_cast_up(b, in[0]), *u = tt_sub(b, x, tt_mean(b, x, -1, 1));
    tt_value *y = tt_mul(b, tt_mul(b, u, inverse_root(b, u, eps_of(q))), in[1]);
    outs[0] = tt_cast(b, tt_add(b, y, in[2]), q->in[0]->dtype);
}

static void decompose_layer_bwd(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                tt_value **outs)
{ /* h = (x - mean) r, g = dy w: dx = r (g - mean(g) - h mean(g h)), dw = Σ dy h, db = Σ dy */
    tt_value *x = tt_cast_up(b, in[0]), *dy = tt_cast_up(b, in[2]);
    tt_value *u = tt_sub(b, x, tt_mean(b, x, -1, 1)), *r = inverse_root(b, u, eps_of(q));
    tt_value *h = tt_mul(b, u, r), *g = tt_mul(b, dy, in[1]);
    tt_value *t = tt_sub(b, g, tt_mean(b, g, -1, 1));
    tt_value *dx = tt_mul(b, r, tt_sub(b, t, tt_mul(b, h, tt_mean(b, tt_mul(b, g, h), -1, 1))));
    outs[0] = tt_cast(b, dx, q->in[0]->dtype);
    outs[1] = sum_to_last(b, tt_mul(b, dy, h));
    outs[2] = sum_to_last(b, dy);
}

static tt_cost cost_forward(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 5.0 * tt_numel(&out[0]));
}

static tt_cost cost_rms_bwd(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 2, 12.0 * tt_numel(&out[0]));
}

static tt_cost cost_layer_bwd(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 3, 15.0 * tt_numel(&out[0]));
}

static void print_norm(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "eps=%.9g", ((const tt_attrs_norm *)attrs)->eps);
}

#define NORM(id, operands_, doc_, n_out_, infer_, rule_, vjp_, decompose_, cost_)                  \
    const tt_op_def tt_op_##id = {.struct_size = sizeof(tt_op_def),                                \
                                  .name = #id,                                                     \
                                  .operands = operands_,                                           \
                                  .attributes = "tt_attrs_norm",                                   \
                                  .doc = doc_,                                                     \
                                  .attrs_size = sizeof(tt_attrs_norm),                             \
                                  .n_out = n_out_,                                                 \
                                  .infer = infer_,                                                 \
                                  .rule_for = rule_,                                               \
                                  .vjp = vjp_,                                                     \
                                  .decompose = decompose_,                                         \
                                  .cost = cost_,                                                   \
                                  .print_attrs = print_norm}
NORM(rms_norm, "x f[T,D], w f[D] → [T,D]; w f[hd]: each head by itself",
     "x / sqrt(mean(x²) + eps) times w, the mean over the last dim", 1, infer_rms, rule_rms,
     vjp_rms, decompose_rms, cost_forward);
NORM(rms_norm_bwd, "x, w, dy → dx [T,D], dw [D]", "derivative of rms_norm to x and w", 2,
     infer_rms_bwd, rule_rms_bwd, NULL, decompose_rms_bwd, cost_rms_bwd);
NORM(layer_norm, "x f[T,D], w f[D], b f[D] → [T,D]",
     "(x - mean(x)) / sqrt(variance(x) + eps) times w plus b, over the last dim", 1, infer_layer,
     rule_layer, vjp_layer, decompose_layer, cost_forward);
NORM(layer_norm_bwd, "x, w, dy → dx [T,D], dw [D], db [D]",
     "derivative of layer_norm to x, w and b", 3, infer_layer_bwd, rule_layer_bwd, NULL,
     decompose_layer_bwd, cost_layer_bwd);

tt_value *tt_rms_norm_w(tt_builder *b, tt_value *x, tt_value *w, double eps)
{
    tt_attrs_norm a = {.eps = eps};
    return tt_emit2(b, "rms_norm", x, w, &a);
}

tt_value *tt_layer_norm_w(tt_builder *b, tt_value *x, tt_value *w, tt_value *bias, double eps)
{
    tt_attrs_norm a = {.eps = eps};
    if (bias == NULL) {
        const tt_type *t = tt_value_type(w);
        bias = tt_broadcast_to(b, tt_const(b, 0.0, t->dtype), t->dims, t->n_dims);
    }
    return tt_emit3(b, "layer_norm", x, w, bias, &a);
}

static tt_value *norm_param(tt_builder *b, tt_value *x, const char *name, const char *what,
                            double value, const char *tags)
{
    char param[256];
    if (tt_builder_lacks(b, name, "the name of a norm"))
        return tt_placeholder(b);
    if (tt_value_type(x)->n_dims < 1)
        return tt_builder_fail(b, TT_EINVAL, "norm %s: x must have at least 1 dim", name);
    if (snprintf(param, sizeof param, "%s.%s", name, what) >= (int)sizeof param)
        return tt_builder_fail(b, TT_EINVAL, "norm: the name \"%.60s…\" is too long", name);
    tt_dim d = tt_last_dim(x);
    tt_param_opts opts = {
        .init = {.kind = TT_INIT_CONSTANT, .a = value},
          .tags = tags
    };
    return tt_param(b, param, &d, 1, &opts);
}

tt_value *tt_rms_norm(tt_builder *b, tt_value *x, const char *name, double eps)
{
    return tt_rms_norm_w(b, x, norm_param(b, x, name, "weight", 1.0, "norm"), eps);
}

tt_value *tt_layer_norm(tt_builder *b, tt_value *x, const char *name, double eps)
{
    tt_value *w = norm_param(b, x, name, "weight", 1.0, "norm");
    return tt_layer_norm_w(b, x, w, norm_param(b, x, name, "bias", 0.0, "norm,bias"), eps);
}
