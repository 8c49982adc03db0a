/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLUGIN_DELAYED_H
#define TT_PLUGIN_DELAYED_H
#include "low.h"

/* Delayed scaling: an operand's scale follows from the largest values of the steps before this one, so
 * that it is known before the operand is. Formulas of TransformerEngine (transformer_engine/pytorch/
 * quantization.py, _default_sf_compute, _default_get_amax_and_update_history):
 *   after each step   history = its last `length` maxima; amax = their largest, or the last one alone
 *                     scale   = largest number of the format / amax, at most FLT_MAX; it stays as it was
 *                               if amax is 0, infinite or NaN
 *   before the first  scale   = 1
 * A state holds them for n scales (1, or one per expert): [length + 1, n], oldest first, then the scale;
 * 0 stands for the scale before the first step. */

typedef struct delayed_rule {
    tt_low_format format; /* e4m3 or e5m2 */
    int most_recent;      /* the last maximum alone */
} delayed_rule;

/* The format's largest number. */
static inline double delayed_largest(const delayed_rule *r)
{
    return r->format == TT_LOW_E5M2 ? 57344.0 : 448.0;
}

/* The next value of the state [length + 1, n], from the n maxima of this step. */
static inline tt_value *delayed_next(tt_builder *b, tt_value *state, tt_value *amax, void *user)
{
    const delayed_rule *r = (const delayed_rule *)user;
    const tt_type *t = tt_value_type(state);
    const int64_t length = t->dims[0].size - 1;
    const tt_dim one[2] = {TT_DIM(1, NULL), t->dims[1]};
    amax = tt_reshape(b, amax, one, 2);
    tt_value *was = tt_slice(b, state, 0, length, length + 1), *history = amax, *last[2];
    if (length > 1) {
        tt_value *both[2] = {tt_slice(b, state, 0, 1, length), amax};
        history = tt_concat(b, both, 2, 0);
    }
    if (!r->most_recent)
        amax = tt_max(b, history, 0, 1);
    tt_value *scale = tt_div(b, tt_const(b, delayed_largest(r), TT_F32), amax);
    scale = tt_minimum(b, scale, tt_const(b, (double)FLT_MAX, TT_F32));
    scale = tt_select(b, tt_less(b, tt_const(b, 0.0, TT_F32), amax), scale, was);
    scale = tt_select(b, tt_less_equal(b, amax, tt_const(b, (double)FLT_MAX, TT_F32)), scale, was);
    last[0] = history;
    last[1] = scale;
    return tt_concat(b, last, 2, 0);
}

/* By what x is multiplied in this step, in the dims of o's scales; registers the update of its state,
 * "a" or "b", after the step. r must outlive the graph. */
static inline tt_value *delayed_factor(tt_builder *b, const tt_product *p, low_side side,
                                       tt_value *x, const tt_quantize_opts *o, int64_t length,
                                       delayed_rule *r)
{
    tt_value *amax = tt_amax(b, x, o);
    const tt_type *t = tt_value_type(amax);
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= t->dims[d].size;
    const tt_dim dims[2] = {TT_DIM(length + 1, NULL), TT_DIM(n, NULL)};
    tt_value *state = tt_converter_state(b, p, side == LOW_A ? "amax_a" : "amax_b", dims, 2, NULL);
    tt_converter_update(b, state, amax, delayed_next, r); /* reduced over ranks once per step */
    tt_value *scale = tt_slice(b, state, 0, length, length + 1);
    tt_value *known = tt_less(b, tt_const(b, 0.0, TT_F32), scale);
    scale = tt_select(b, known, scale, tt_const(b, 1.0, TT_F32));
    return tt_reshape(b, scale, t->dims, t->n_dims);
}

#endif
