/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <math.h>

/* Cross-entropy as one op, and as three parts for a sharded vocabulary. x [T,v]; labels are global:
 * this rank holds columns [begin, begin + v). */

static int64_t local_label(const tt_tensor *x, const tt_tensor *labels,
                           int64_t t) /* -1: another rank has the column, or the label is ignored */
{
    int64_t i = ref_index(labels, t) - x->begin[1];
    return i >= 0 && i < x->shape[1] ? i : -1;
}

static double row_max(const tt_tensor *x, int64_t t)
{
    double m = -(double)INFINITY;
    for (int64_t v = 0; v < x->shape[1]; v++) {
        double z = ref_load(x, t * x->shape[1] + v);
        if (z > m || isnan(z))
            m = z;
        if (isnan(m))
            return m;
    }
    return m;
}

static double row_sum_exp(const tt_tensor *x, int64_t t, double m)
{
    double sum = 0.0;
    for (int64_t v = 0; v < x->shape[1]; v++)
        sum += exp(ref_load(x, t * x->shape[1] + v) - m);
    return sum;
}

static double picked(const tt_tensor *x, const tt_tensor *labels, int64_t t)
{
    int64_t i = local_label(x, labels, t);
    return i < 0 ? 0.0 : ref_load(x, t * x->shape[1] + i);
}

tt_status ref_cross_entropy(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0];
    (void)backend, (void)err;
    for (int64_t t = 0; t < x->shape[0]; t++) {
        double m = row_max(x, t), lse = m + log(row_sum_exp(x, t, m));
        ref_store(&c->out[0], t,
                  ref_index(&c->in[1], t) >= 0 ? lse - picked(x, &c->in[1], t) : 0.0);
        ref_store(&c->out[1], t, lse);
    }
    return TT_OK;
}

tt_status ref_cross_entropy_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0];
    int64_t n = x->shape[1];
    (void)backend, (void)err;
    for (int64_t t = 0; t < x->shape[0]; t++) {
        bool counted = ref_index(&c->in[1], t) >= 0;
        double lse = ref_load(&c->in[2], t), d = ref_load(&c->in[3], t);
        int64_t at = local_label(x, &c->in[1], t);
        for (int64_t v = 0; v < n; v++)
            ref_store(&c->out[0], t * n + v,
                      counted ? (exp(ref_load(x, t * n + v) - lse) - (v == at ? 1.0 : 0.0)) * d
                              : 0.0);
    }
    return TT_OK;
}

tt_status ref_max_last(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    for (int64_t t = 0; t < c->in[0].shape[0]; t++)
        ref_store(&c->out[0], t, row_max(&c->in[0], t));
    return TT_OK;
}

tt_status ref_sum_exp(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    for (int64_t t = 0; t < c->in[0].shape[0]; t++)
        ref_store(&c->out[0], t, row_sum_exp(&c->in[0], t, ref_load(&c->in[1], t)));
    return TT_OK;
}

tt_status ref_pick(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    for (int64_t t = 0; t < c->in[0].shape[0]; t++)
        ref_store(&c->out[0], t, picked(&c->in[0], &c->in[1], t));
    return TT_OK;
}

tt_status ref_pick_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    ref_clear(&c->out[0]);
    for (int64_t t = 0; t < c->in[0].shape[0]; t++) {
        int64_t i = local_label(&c->in[0], &c->in[1], t);
        if (i >= 0)
            ref_store(&c->out[0], t * c->in[0].shape[1] + i, ref_load(&c->in[2], t));
    }
    return TT_OK;
}
