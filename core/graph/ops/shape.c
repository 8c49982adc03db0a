/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* transpose, slice, concat, roll, broadcast move elements and change none. All are linear. */

static tt_status infer_transpose(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_perm *a = q->attrs;
    unsigned seen = 0;
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    tt_type t = *q->in[0];
    for (int i = 0; i < t.n_dims; i++) {
        int p = a->perm[i];
        if (p < 0 || p >= t.n_dims || (seen >> p & 1u))
            return tt_infer_fail(q, err, "perm must name each dim once");
        seen |= 1u << p;
        t.dims[i] = q->in[0]->dims[p];
    }
    out[0] = t;
    return TT_OK;
}

static void rule_transpose(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_perm *a = q->attrs;
    tt_rule_text t = {.s = rule, .size = size};
    int n = q->in[0]->n_dims;
    tt_rule_dims(&t, n, -1, NULL);
    tt_rule_add(&t, " ->");
    for (int i = 0; i < n; i++)
        tt_rule_add(&t, " %c", 'a' + (int)a->perm[i]);
}

static void vjp_transpose(tt_builder *b, tt_vjp *c)
{
    const tt_attrs_perm *a = c->attrs;
    int inverse[TT_MAX_DIMS] = {0};
    for (int i = 0; i < tt_value_type(c->in[0])->n_dims; i++)
        inverse[a->perm[i]] = i;
    c->din[0] = tt_transpose(b, c->dout[0], inverse);
}

/* ---- slice ---- */

static tt_status infer_slice(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_slice *a = q->attrs;
    int dim = 0;
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_dim(q, 0, a->dim, &dim, err));
    tt_type t = *q->in[0];
    tt_dim *d = &t.dims[dim];
    if (a->begin < 0 || a->end < a->begin || a->end > d->size)
        return tt_infer_fail(q, err, "[%lld, %lld) is not inside dim %d of %lld",
                             (long long)a->begin, (long long)a->end, dim, (long long)d->size);
    if (a->begin != 0 || a->end != d->size) {
        bool aligned = a->begin % d->unit == 0 && a->end % d->unit == 0;
        *d = tt_dim_make(a->end - a->begin, d->label, aligned ? d->unit : 1, 1);
    }
    out[0] = t;
    return TT_OK;
}

static tt_status infer_slice_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_slice *a = q->attrs;
    int dim = 0;
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_dim(q, 0, a->dim, &dim, err));
    tt_type t = *q->in[0];
    if (t.dims[dim].size != a->end - a->begin || a->begin < 0 || a->end > a->full.size)
        return tt_infer_fail(q, err, "[%lld, %lld) of %lld does not fit dim %d",
                             (long long)a->begin, (long long)a->end, (long long)a->full.size, dim);
    t.dims[dim] = a->full;
    out[0] = t;
    return TT_OK;
}

/* The sliced dim must be whole in input and output, because the parts of a slice are not slices of the
 * parts. */
static void rule_slice(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_slice *a = q->attrs;
    tt_rule_text t = {.s = rule, .size = size};
    int n = q->in[0]->n_dims, dim = a->dim < 0 ? a->dim + n : a->dim;
    tt_rule_dims(&t, n, dim, "!r");
    tt_rule_add(&t, " ->");
    tt_rule_dims(&t, n, dim, "!s");
}

static void vjp_slice(tt_builder *b, tt_vjp *c)
{
    tt_attrs_slice a = *(const tt_attrs_slice *)c->attrs;
    const tt_type *x = tt_value_type(c->in[0]);
    a.full = x->dims[a.dim < 0 ? a.dim + x->n_dims : a.dim];
    c->din[0] = tt_emit1(b, "slice_bwd", c->dout[0], &a);
}

static void print_slice(const void *attrs, char *text, size_t size)
{
    const tt_attrs_slice *a = attrs;
    snprintf(text, size, "dim=%d begin=%lld end=%lld", (int)a->dim, (long long)a->begin,
             (long long)a->end);
}

/* ---- concat ---- */

static tt_status infer_concat(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_concat *a = q->attrs;
    int dim = 0;
    TT_TRY(tt_want_inputs(q, 1, TT_MAX_INS, err));
    TT_TRY(tt_want_dim(q, 0, a->dim, &dim, err));
    tt_type t = *q->in[0];
    tt_dim *d = &t.dims[dim];
    *d = tt_dim_make(d->size, d->label, d->unit, 1);
    for (int i = 1; i < q->n_in; i++) {
        const tt_type *x = q->in[i];
        if (x->n_dims != t.n_dims)
            return tt_infer_fail(q, err, "the inputs must have the same number of dims");
        for (int k = 0; k < t.n_dims; k++)
            if (k != dim)
                TT_TRY(tt_want_equal(q, 0, k, i, k, err));
        if (!tt_add_i64(d->size, x->dims[dim].size, &d->size))
            return tt_infer_fail(q, err, "the sum of the sizes overflows");
        if (x->dims[dim].unit != d->unit)
            d->unit = 1;
        t.dtype = tt_dtype_promote(t.dtype, x->dtype);
    }
    out[0] = t;
    return TT_OK;
}

static void rule_concat(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_concat *a = q->attrs;
    tt_rule_text t = {.s = rule, .size = size};
    int n = q->in[0]->n_dims, dim = a->dim < 0 ? a->dim + n : a->dim;
    for (int i = 0; i < q->n_in; i++) {
        char letter[16];
        snprintf(letter, sizeof letter, "!p%d", i);
        if (i > 0)
            tt_rule_add(&t, ",");
        tt_rule_dims(&t, n, dim, letter);
    }
    tt_rule_add(&t, " ->");
    tt_rule_dims(&t, n, dim, "!r");
}

static void vjp_concat(tt_builder *b, tt_vjp *c)
{
    const tt_attrs_concat *a = c->attrs;
    int64_t at = 0;
    for (int i = 0; i < c->n_in; i++) {
        const tt_type *x = tt_value_type(c->in[i]);
        int64_t n = x->dims[a->dim < 0 ? a->dim + x->n_dims : a->dim].size;
        if (c->want[i])
            c->din[i] = tt_vjp_fit(b, tt_slice(b, c->dout[0], a->dim, at, at + n), c->in[i]);
        at += n;
    }
}

static void print_concat(const void *attrs, char *text, size_t size)
{
    snprintf(text, size, "dim=%d", (int)((const tt_attrs_concat *)attrs)->dim);
}

/* ---- roll ---- */

static tt_status infer_roll(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_roll *a = q->attrs;
    int dim = 0;
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_dim(q, 0, a->dim, &dim, err));
    const int64_t n = q->in[0]->dims[dim].size;
    if (a->shift < 0 || (a->shift >= n && a->shift != 0))
        return tt_infer_fail(q, err, "the shift %lld is not in [0, %lld)", (long long)a->shift,
                             (long long)n);
    out[0] = *q->in[0];
    return TT_OK;
}

static void rule_roll(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_roll *a = q->attrs;
    tt_rule_text t = {.s = rule, .size = size};
    int n = q->in[0]->n_dims, dim = a->dim < 0 ? a->dim + n : a->dim;
    tt_rule_dims(&t, n, dim, "!r");
    tt_rule_add(&t, " ->");
    tt_rule_dims(&t, n, dim, "r");
}

static void vjp_roll(tt_builder *b, tt_vjp *c)
{
    const tt_attrs_roll *a = c->attrs;
    c->din[0] = tt_roll(b, c->dout[0], a->dim, -a->shift);
}

static void print_roll(const void *attrs, char *text, size_t size)
{
    const tt_attrs_roll *a = attrs;
    snprintf(text, size, "dim=%d shift=%lld", (int)a->dim, (long long)a->shift);
}

/* ---- broadcast ---- */

static tt_status infer_broadcast(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_dims *a = q->attrs;
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    const tt_type *x = q->in[0];
    int shift = a->n_dims - x->n_dims;
    if (a->n_dims > TT_MAX_DIMS || shift < 0)
        return tt_infer_fail(q, err, "cannot broadcast to %d dims", (int)a->n_dims);
    for (int i = 0; i < x->n_dims; i++)
        if (x->dims[i].size != 1 && x->dims[i].size != a->dims[shift + i].size)
            return tt_infer_fail(q, err, "dim %d cannot stretch to %lld", i,
                                 (long long)a->dims[shift + i].size);
    out[0] = tt_type_make(x->dtype, a->dims, a->n_dims);
    return TT_OK;
}

static void rule_broadcast(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_dims *a = q->attrs;
    tt_rule_text t = {.s = rule, .size = size};
    const tt_type *x = q->in[0];
    int shift = a->n_dims - x->n_dims;
    for (int i = 0; i < x->n_dims; i++) {
        if (x->dims[i].size == 1)
            tt_rule_add(&t, " !u%d", i);
        else
            tt_rule_add(&t, " %c", 'a' + shift + i);
    }
    tt_rule_add(&t, " ->");
    for (int i = 0; i < a->n_dims; i++)
        tt_rule_add(&t, " %s%c", a->dims[i].size == 1 ? "!" : "", 'a' + i);
}

static void vjp_broadcast(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_vjp_fit(b, c->dout[0], c->in[0]);
}

#define SHAPE_OP(id, operands_, doc_, linear_, flags_, attrs_, infer_, rule_, vjp_, print_)        \
    const tt_op_def tt_op_##id = {.struct_size = sizeof(tt_op_def),                                \
                                  .name = #id,                                                     \
                                  .operands = operands_,                                           \
                                  .attributes = #attrs_,                                           \
                                  .doc = doc_,                                                     \
                                  .flags = flags_,                                                 \
                                  .linear_inputs = linear_,                                        \
                                  .attrs_size = sizeof(attrs_),                                    \
                                  .n_out = 1,                                                      \
                                  .infer = infer_,                                                 \
                                  .rule_for = rule_,                                               \
                                  .vjp = vjp_,                                                     \
                                  .cost = tt_cost_move,                                            \
                                  .print_attrs = print_}
SHAPE_OP(transpose, "x → dims in the order of perm",
         "x with its dims in another order: dim i of the result is x's dim perm[i]", 1, 0,
         tt_attrs_perm, infer_transpose, rule_transpose, vjp_transpose, NULL);
SHAPE_OP(slice, "x → as x, with end - begin elements in dim",
         "the elements from begin to before end along one dim", 1, 0, tt_attrs_slice, infer_slice,
         rule_slice, vjp_slice, print_slice);
SHAPE_OP(slice_bwd, "dy → as dy, with the size of `full` in dim",
         "derivative of slice to x: dy from begin to before end along one dim, 0 elsewhere", 1, 0,
         tt_attrs_slice, infer_slice_bwd, rule_slice, NULL, print_slice);
SHAPE_OP(concat, "x, y, … → as x, with the sum of the sizes in dim",
         "the values one after the other along one dim", TT_LINEAR_JOINT, 0, tt_attrs_concat,
         infer_concat, rule_concat, vjp_concat, print_concat);
SHAPE_OP(roll, "x → as x", "turned along one dim: y[(i + shift) mod n] = x[i]", 1, 0, tt_attrs_roll,
         infer_roll, rule_roll, vjp_roll, print_roll);
SHAPE_OP(broadcast, "x → dims",
         "x repeated along dims that it lacks or where it has size 1, aligned at the right", 1,
         TT_OP_NAMES_DIMS, tt_attrs_dims, infer_broadcast, rule_broadcast, vjp_broadcast, NULL);

tt_value *tt_transpose(tt_builder *b, tt_value *x, const int *perm)
{
    tt_attrs_perm a = {{0}};
    if (tt_builder_lacks(b, perm, "tt_transpose: the list of dims"))
        return tt_placeholder(b);
    for (int i = 0; i < tt_value_type(x)->n_dims; i++)
        a.perm[i] = perm[i];
    return tt_emit1(b, "transpose", x, &a);
}

tt_value *tt_slice(tt_builder *b, tt_value *x, int dim, int64_t begin, int64_t end)
{
    tt_attrs_slice a = {
        .dim = tt_dim_index(dim, tt_value_type(x)->n_dims), .begin = begin, .end = end};
    return tt_emit1(b, "slice", x, &a);
}

tt_value *tt_concat(tt_builder *b, tt_value *const *xs, int n, int dim)
{
    const int run = (n - 1) / TT_MAX_INS + 1; /* an op takes TT_MAX_INS values */
    tt_value *parts[TT_MAX_INS];
    int k = 0;
    if (n < 1)
        return tt_builder_fail(b, TT_EINVAL, "concat: takes at least one value, got %d", n);
    if (tt_builder_lacks(b, xs, "concat: the list of values"))
        return tt_placeholder(b);
    for (int i = 0; run > 1 && i < n; i += run)
        parts[k++] = tt_concat(b, xs + i, TT_MIN(run, n - i), dim);
    if (run > 1)
        return tt_concat(b, parts, k, dim);
    tt_attrs_concat a = {.dim = tt_dim_index(dim, tt_value_type(xs[0])->n_dims)};
    if (n == 1 && a.dim >= 0 && a.dim < tt_value_type(xs[0])->n_dims)
        return xs[0];
    return tt_emit(b, "concat", xs, n, &a);
}

tt_value *tt_roll(tt_builder *b, tt_value *x, int dim, int64_t shift)
{
    const tt_type *t = tt_value_type(x);
    tt_attrs_roll a = {.dim = dim < 0 ? dim + t->n_dims : dim};
    if (a.dim < 0 || a.dim >= t->n_dims)
        return tt_builder_fail(b, TT_EINVAL, "roll: there is no dim %d among %d", dim, t->n_dims);
    const int64_t n = t->dims[a.dim].size;
    a.shift = n > 0 ? (shift % n + n) % n : 0;
    return a.shift == 0 ? x : tt_emit1(b, "roll", x, &a);
}

tt_value *tt_broadcast_to(tt_builder *b, tt_value *x, const tt_dim *dims, int n_dims)
{
    const tt_type *t = tt_value_type(x);
    if (n_dims < 0 || n_dims > TT_MAX_DIMS)
        return tt_builder_fail(b, TT_EINVAL, "broadcast: a value has at most %d dims, not %d",
                               TT_MAX_DIMS, n_dims);
    if (tt_builder_lacks_list(b, dims, n_dims, "broadcast: the list of dims"))
        return tt_placeholder(b);
    if (tt_builder_lacks(b, x, "tt_broadcast_to: the value"))
        return tt_placeholder(b);
    tt_attrs_dims a = {.n_dims = n_dims};
    bool same = t->n_dims == n_dims;
    for (int i = 0; i < n_dims; i++) {
        a.dims[i] = dims[i];
        same = same && t->dims[i].size == dims[i].size;
    }
    return same ? x : tt_emit1(b, "broadcast", x, &a);
}
