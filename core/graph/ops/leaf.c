/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <math.h>
#include <string.h>
#include <ttrun/random.h>

/* const and iota have no operands, random at most the rows' indices; cast and stop_gradient return their operand, in another dtype and
 * with derivative 0. */

static tt_status infer_const(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_const *a = q->attrs;
    TT_TRY(tt_want_inputs(q, 0, 0, err));
    if ((unsigned)a->dtype >= TT_N_DTYPES)
        return tt_infer_fail(q, err, "unknown dtype %d", (int)a->dtype);
    out[0] = tt_type_make(a->dtype, NULL, 0);
    return TT_OK;
}

static tt_status infer_iota(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_dims *a = q->attrs;
    TT_TRY(tt_want_inputs(q, 0, 0, err));
    if (a->n_dims != 1 || a->dims[0].size < 0 || a->dims[0].size > INT32_MAX)
        return tt_infer_fail(q, err, "takes one dim of at most %d elements", INT32_MAX);
    out[0] = tt_type_make(TT_I32, a->dims, 1);
    return TT_OK;
}

static tt_status infer_random(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_random *a = q->attrs;
    TT_TRY(tt_want_inputs(q, 0, 1, err));
    if (a->dims.n_dims < 0 || a->dims.n_dims > TT_MAX_DIMS)
        return tt_infer_fail(q, err, "a value has at most %d dims, not %d", TT_MAX_DIMS,
                             a->dims.n_dims);
    if (a->stream == NULL)
        return tt_infer_fail(
            q, err, "the stream has no name; give it one, so that its numbers are its own");
    if (q->n_in) {
        TT_TRY(tt_want_rank(q, 0, "index", 1, err));
        TT_TRY(tt_want_i32(q, 0, "index", err));
        if (a->dims.n_dims < 1 || a->dims.dims[0].size != q->in[0]->dims[0].size)
            return tt_infer_fail(q, err, "index must have an element for each row of the result");
    }
    out[0] = tt_type_make(TT_F32, a->dims.dims, a->dims.n_dims);
    return TT_OK;
}

static void rule_random(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    tt_rule_add(&t, q->n_in ? "a ->" : "->");
    tt_rule_dims(&t, ((const tt_attrs_random *)q->attrs)->dims.n_dims, -1, NULL);
}

static tt_status infer_cast(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_cast *a = q->attrs;
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    if ((unsigned)a->to >= TT_N_DTYPES)
        return tt_infer_fail(q, err, "unknown dtype %d", (int)a->to);
    out[0] = *q->in[0];
    out[0].dtype = a->to;
    return TT_OK;
}

static tt_status infer_same(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    out[0] = *q->in[0];
    return TT_OK;
}

static void vjp_cast(tt_builder *b, tt_vjp *c)
{
    tt_dtype from = tt_value_type(c->in[0])->dtype;
    if (tt_dtype_is_float(from) && tt_dtype_is_float(tt_value_type(c->out[0])->dtype))
        c->din[0] = tt_cast(b, c->dout[0], from);
}

static tt_cost cost_random(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 60.0 * tt_numel(&out[0]));
}

static void print_const(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "%.9g", ((const tt_attrs_const *)attrs)->value);
}

static void print_iota(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "n=%lld", (long long)((const tt_attrs_dims *)attrs)->dims[0].size);
}

static void print_random(const void *attrs, char *text, size_t size)
{
    const tt_attrs_random *a = attrs;
    snprintf(text, size, "stream=%s%s", a->stream, a->normal ? " normal" : "");
}

static void print_cast(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "to=%s", tt_dtype_name(((const tt_attrs_cast *)attrs)->to));
}

const tt_op_def tt_op_const = {.struct_size = sizeof(tt_op_def),
                               .name = "const",
                               .operands = "→ scalar",
                               .attributes = "tt_attrs_const",
                               .doc = "a scalar with the value and the dtype of the attributes",
                               .rule = "->",
                               .flags = TT_OP_NO_GRADIENT,
                               .attrs_size = sizeof(tt_attrs_const),
                               .n_out = 1,
                               .infer = infer_const,
                               .cost = tt_cost_move,
                               .print_attrs = print_const};
const tt_op_def tt_op_iota = {.struct_size = sizeof(tt_op_def),
                              .name = "iota",
                              .operands = "→ i[n]",
                              .attributes = "tt_attrs_dims (n)",
                              .doc = "0, 1, … n - 1, by global index",
                              .rule = "-> n",
                              .flags = TT_OP_NO_GRADIENT | TT_OP_BY_PLACE,
                              .attrs_size = sizeof(tt_attrs_dims),
                              .n_out = 1,
                              .infer = infer_iota,
                              .cost = tt_cost_move,
                              .print_attrs = print_iota};
const tt_op_def tt_op_random = {
    .struct_size = sizeof(tt_op_def),
    .name = "random",
    .operands = "[index i[T]] → dims, f32",
    .attributes = "tt_attrs_random",
    .doc =
        "random numbers, uniform in [0,1) or standard normal; each depends on the seed, the "
        "step, the stream and its index in the global tensor only; with index, row t counts as row "
        "index[t]",
    .flags = TT_OP_NO_GRADIENT | TT_OP_BY_PLACE,
    .attrs_size = sizeof(tt_attrs_random),
    .n_out = 1,
    .infer = infer_random,
    .rule_for = rule_random,
    .cost = cost_random,
    .print_attrs = print_random};
const tt_op_def tt_op_cast = {.struct_size = sizeof(tt_op_def),
                              .name = "cast",
                              .operands = "x → x in the dtype of the attributes",
                              .attributes = "tt_attrs_cast",
                              .doc = "x in the same or a wider floating dtype",
                              .rule = "* -> *",
                              .flags = TT_OP_POINTWISE | TT_OP_CAST,
                              .linear_inputs = 1,
                              .attrs_size = sizeof(tt_attrs_cast),
                              .n_out = 1,
                              .infer = infer_cast,
                              .vjp = vjp_cast,
                              .cost = tt_cost_move,
                              .print_attrs = print_cast};
const tt_op_def tt_op_cast_down = {
    .struct_size = sizeof(tt_op_def),
    .name = "cast_down",
    .operands = "x → x in the dtype of the attributes; the same kernel as cast",
    .attributes = "tt_attrs_cast",
    .doc = "x in a narrower floating dtype, or from or to an integer dtype; it rounds, so it is "
           "not linear (R1)",
    .rule = "* -> *",
    .flags = TT_OP_POINTWISE | TT_OP_CAST,
    .attrs_size = sizeof(tt_attrs_cast),
    .n_out = 1,
    .infer = infer_cast,
    .vjp = vjp_cast,
    .cost = tt_cost_move,
    .print_attrs = print_cast};
const tt_op_def tt_op_stop_gradient = {.struct_size = sizeof(tt_op_def),
                                       .name = "stop_gradient",
                                       .operands = "x → as x",
                                       .doc = "x itself; its derivative is 0",
                                       .rule = "* -> *",
                                       .flags =
                                           TT_OP_NO_GRADIENT | TT_OP_VIEW | TT_OP_STOPS_GRADIENT,
                                       .linear_inputs = 1,
                                       .n_out = 1,
                                       .infer = infer_same,
                                       .cost = tt_cost_move};

tt_value *tt_const(tt_builder *b, double value, tt_dtype dtype)
{
    tt_attrs_const a = {.value = value, .dtype = dtype};
    return tt_emit(b, "const", NULL, 0, &a);
}

/* The op has one dim, so that it depends on the order of tokens only if it counts them, and pointwise
 * ops that read it alone broadcast it without storing it. */
tt_value *tt_iota(tt_builder *b, const tt_dim *dims, int n_dims, int dim, tt_dtype dtype)
{
    const int at = dim < 0 ? dim + n_dims : dim;
    if (n_dims < 1 || n_dims > TT_MAX_DIMS || at < 0 || at >= n_dims)
        return tt_builder_fail(b, TT_EINVAL, "iota: there is no dim %d among %d", dim, n_dims);
    if (tt_builder_lacks(b, dims, "tt_iota: the list of dims"))
        return tt_placeholder(b);
    tt_attrs_dims a = {.n_dims = 1, .dims = {dims[at]}};
    tt_dim column[TT_MAX_DIMS];
    for (int i = at; i < n_dims; i++)
        column[i - at] = i == at ? dims[at] : TT_DIM(1, NULL);
    tt_value *n = tt_cast(b, tt_emit(b, "iota", NULL, 0, &a), dtype);
    return tt_broadcast_to(b, tt_reshape(b, n, column, n_dims - at), dims, n_dims);
}

tt_value *tt_cast(tt_builder *b, tt_value *x, tt_dtype to)
{
    if (tt_builder_lacks(b, x, "tt_cast: the value"))
        return tt_placeholder(b);
    tt_dtype from = tt_value_type(x)->dtype;
    tt_attrs_cast a = {.to = to};
    if (from == to)
        return x;
    bool up = tt_dtype_is_float(from) && tt_dtype_is_float(to) && tt_dtype_promote(from, to) == to;
    return tt_emit1(b, up ? "cast" : "cast_down", x, &a);
}

tt_value *tt_stop_gradient(tt_builder *b, tt_value *x)
{
    return tt_emit1(b, "stop_gradient", x, NULL);
}

/* The key is a hash of seed, name and step, so that streams are independent. */
uint64_t tt_random_key(uint64_t seed, int64_t step, const char *stream)
{
    return tt_rng_key_make(seed, stream, (uint64_t)step).k;
}

uint64_t tt_random_stream(const char *stream)
{
    return tt_hash64(stream, strlen(stream), 0);
}

/* Element `index` of the stream. */
double tt_random_at(uint64_t seed, int64_t step, const char *stream, uint64_t index, int normal)
{
    const double u = tt_random_uniform(tt_random_key(seed, step, stream), index);
    return normal ? tt_normal_quantile(u) : u;
}
