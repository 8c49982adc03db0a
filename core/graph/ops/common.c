/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <string.h>

/* Functions that op definitions share: checks of operands, texts of sharding rules, costs, and short
 * forms of tt_op. */

double tt_numel(const tt_type *t)
{
    return (double)tt_type_numel(t);
}

tt_status tt_want_inputs(const tt_shape_query *q, int min, int max, tt_error *err)
{
    if (q->n_in >= min && q->n_in <= max)
        return TT_OK;
    if (min == max)
        return TT_FAIL(err, TT_EINVAL, "%s: takes %d inputs, got %d", q->op, min, q->n_in);
    return TT_FAIL(err, TT_EINVAL, "%s: takes %d to %d inputs, got %d", q->op, min, max, q->n_in);
}

tt_status tt_want_rank(const tt_shape_query *q, int i, const char *what, int n_dims, tt_error *err)
{
    if (q->in[i]->n_dims == n_dims)
        return TT_OK;
    return tt_infer_fail(q, err, "%s must have %d dim%s", what, n_dims, n_dims == 1 ? "" : "s");
}

tt_status tt_want_min_rank(const tt_shape_query *q, int i, const char *what, int n_dims,
                           tt_error *err)
{
    if (q->in[i]->n_dims >= n_dims)
        return TT_OK;
    return tt_infer_fail(q, err, "%s must have at least %d dim%s", what, n_dims,
                         n_dims == 1 ? "" : "s");
}

tt_status tt_want_float(const tt_shape_query *q, int i, const char *what, tt_error *err)
{
    if (tt_dtype_is_float8(q->in[i]->dtype))
        return tt_infer_fail(q, err, "%s is %s, which ops that compute do not take; cast it to f32",
                             what, tt_dtype_name(q->in[i]->dtype));
    if (tt_dtype_is_float(q->in[i]->dtype))
        return TT_OK;
    return tt_infer_fail(q, err, "%s must be of a floating dtype; cast it", what);
}

tt_status tt_want_i32(const tt_shape_query *q, int i, const char *what, tt_error *err)
{
    if (q->in[i]->dtype == TT_I32)
        return TT_OK;
    return tt_infer_fail(q, err, "%s must be i32", what);
}

tt_status tt_want_equal(const tt_shape_query *q, int i, int di, int j, int dj, tt_error *err)
{
    const tt_type *a = q->in[i], *b = q->in[j];
    if (tt_dim_same_size(&a->dims[di], &b->dims[dj]))
        return TT_OK;
    return tt_infer_fail(q, err, "dim %d of input %d and dim %d of input %d differ: %lld and %lld",
                         di, i, dj, j, (long long)a->dims[di].size, (long long)b->dims[dj].size);
}

tt_status tt_want_same(const tt_shape_query *q, int i, int j, tt_error *err)
{
    if (q->in[i]->n_dims != q->in[j]->n_dims)
        return tt_infer_fail(q, err, "inputs %d and %d must have the same dims", i, j);
    for (int d = 0; d < q->in[i]->n_dims; d++)
        TT_TRY(tt_want_equal(q, i, d, j, d, err));
    return TT_OK;
}

int tt_dim_index(int dim, int n)
{
    return dim < 0 && dim >= -n ? dim + n : dim;
}

tt_status tt_want_dim(const tt_shape_query *q, int i, int dim, int *out, tt_error *err)
{
    int n = q->in[i]->n_dims, d = dim < 0 ? dim + n : dim;
    if (d < 0 || d >= n)
        return tt_infer_fail(q, err, "there is no dim %d among %d", dim, n);
    *out = d;
    return TT_OK;
}

tt_dtype tt_dtype_promote(tt_dtype a, tt_dtype b)
{
    bool fa = tt_dtype_is_float(a), fb = tt_dtype_is_float(b);
    if (a == b)
        return a;
    if (fa != fb)
        return fa ? a : b;
    if (fa)
        return a == TT_F64 || b == TT_F64 ? TT_F64 : TT_F32;
    if (a == TT_BOOL)
        return b;
    if (b == TT_BOOL)
        return a;
    return a == TT_I64 || b == TT_I64 ? TT_I64 : TT_I32; /* i32 and u8 */
}

tt_type tt_type_make(tt_dtype dtype, const tt_dim *dims, int n_dims)
{
    tt_type t;
    memset(&t, 0, sizeof t);
    t.dtype = dtype;
    t.n_dims = n_dims;
    for (int i = 0; i < n_dims; i++)
        t.dims[i] = dims[i];
    return t;
}

/* Broadcasts the dims of t, aligned at the right, into out. Of two equal dims the one with a label
 * stays. */
static bool broadcast_dims(tt_type *out, const tt_type *t)
{
    int shift = t->n_dims - out->n_dims;
    if (shift > 0) { /* t has more dims: move those of out to the right */
        for (int i = out->n_dims - 1; i >= 0; i--)
            out->dims[i + shift] = out->dims[i];
        for (int i = 0; i < shift; i++)
            out->dims[i] = t->dims[i];
        out->n_dims = t->n_dims;
    }
    for (int i = 0; i < t->n_dims; i++) {
        tt_dim *o = &out->dims[out->n_dims - t->n_dims + i];
        const tt_dim *d = &t->dims[i];
        if (o->size != d->size && o->size != 1 && d->size != 1)
            return false;
        if ((o->size == 1 && d->size != 1) ||
            (o->size == d->size && o->label == NULL && d->label != NULL))
            *o = *d;
    }
    return true;
}

tt_status tt_broadcast_type(const tt_shape_query *q, bool skip_first, tt_type *out, tt_error *err)
{
    tt_type t = tt_type_make(TT_F32, NULL, 0);
    bool has[2] = {false, false}; /* is there a scalar, a tensor */
    tt_dtype of[2] = {TT_F32, TT_F32};
    for (int i = 0; i < q->n_in; i++) {
        if (!broadcast_dims(&t, q->in[i]))
            return tt_infer_fail(q, err, "the operands do not broadcast against each other");
        if (i == 0 && skip_first)
            continue;
        int k = q->in[i]->n_dims > 0;
        of[k] = has[k] ? tt_dtype_promote(of[k], q->in[i]->dtype) : q->in[i]->dtype;
        has[k] = true;
    }
    t.dtype = has[1] ? of[1] : of[0];
    if (has[0] && has[1] && tt_dtype_is_float(of[0]) && !tt_dtype_is_float(of[1]))
        t.dtype = of[0];
    *out = t;
    return TT_OK;
}

void tt_rule_add(tt_rule_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int k = t->n < t->size ? vsnprintf(t->s + t->n, t->size - t->n, fmt, ap) : 0;
    va_end(ap);
    t->n += k > 0 ? (size_t)k : 0;
}

void tt_rule_dims(tt_rule_text *t, int n, int at, const char *letter)
{
    for (int i = 0; i < n; i++) {
        if (i == at && letter != NULL)
            tt_rule_add(t, " %s", letter);
        else
            tt_rule_add(t, " %c", 'a' + i);
    }
}

/* A dim of size 1 gets its own letter, which must be whole. Other dims have the letter of the output's
 * dim at the same position. */
void tt_rule_broadcast(const tt_shape_query *q, int n_out, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    int n = 0, own = 0;
    for (int i = 0; i < q->n_in; i++)
        n = TT_MAXV(n, q->in[i]->n_dims);
    bool stretched[TT_MAX_DIMS] = {false};
    for (int i = 0; i < q->n_in; i++) {
        const tt_type *in = q->in[i];
        if (i > 0)
            tt_rule_add(&t, ",");
        for (int d = 0; d < in->n_dims; d++) {
            int at = n - in->n_dims + d;
            if (in->dims[d].size == 1)
                tt_rule_add(&t, " !u%d", own++);
            else {
                stretched[at] = true;
                tt_rule_add(&t, " %c", 'a' + at);
            }
        }
    }
    tt_rule_add(&t, " ->");
    for (int o = 0; o < n_out; o++) {
        if (o > 0)
            tt_rule_add(&t, ",");
        for (int d = 0; d < n; d++)
            tt_rule_add(&t, " %s%c", stretched[d] ? "" : "!", 'a' + d);
    }
}

tt_cost tt_cost_make(const tt_shape_query *q, const tt_type *out, int n_out, double flops)
{
    tt_cost c = {.flops = flops, .bytes = 0.0};
    for (int i = 0; i < q->n_in; i++)
        c.bytes += tt_numel(q->in[i]) * (double)tt_dtype_size(q->in[i]->dtype);
    for (int i = 0; i < n_out; i++)
        c.bytes += tt_numel(&out[i]) * (double)tt_dtype_size(out[i].dtype);
    return c;
}

tt_cost tt_cost_move(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 0.0);
}

tt_value *tt_emit(tt_builder *b, const char *op, tt_value *const *ins, int n, const void *attrs)
{
    tt_value *out = NULL;
    tt_op(b, op, ins, n, attrs, &out, 1);
    return out;
}

tt_value *tt_emit1(tt_builder *b, const char *op, tt_value *x, const void *attrs)
{
    return tt_emit(b, op, &x, 1, attrs);
}

tt_value *tt_emit2(tt_builder *b, const char *op, tt_value *x, tt_value *y, const void *attrs)
{
    tt_value *ins[2] = {x, y};
    return tt_emit(b, op, ins, 2, attrs);
}

tt_value *tt_emit3(tt_builder *b, const char *op, tt_value *x, tt_value *y, tt_value *z,
                   const void *attrs)
{
    tt_value *ins[3] = {x, y, z};
    return tt_emit(b, op, ins, 3, attrs);
}

tt_dim tt_last_dim(const tt_value *v)
{
    const tt_type *t = tt_value_type(v);
    return t->n_dims > 0 ? t->dims[t->n_dims - 1] : TT_DIM(1, NULL);
}
