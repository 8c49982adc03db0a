/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"

/* The choice of a router. This file is above core/graph/ops: it builds with the public functions of
 * <ttrun/builder.h>, as a model does. */

/* scores [T,E] at assign [T,k]: k picks of one element of each row */
static tt_value *pick_choices(tt_builder *b, tt_value *const *xs, int n, void *user)
{
    const tt_dim T = xs[1]->type.dims[0], one[] = {T, TT_DIM(1, NULL)};
    const int64_t k = xs[1]->type.dims[1].size;
    tt_value **parts = tt_arena_array(b->arena, (size_t)k, sizeof(tt_value *));
    (void)n, (void)user;
    for (int64_t j = 0; j < k; j++) {
        tt_value *index = tt_reshape(b, tt_slice(b, xs[1], 1, j, j + 1), one, 1);
        parts[j] = tt_reshape(b, tt_pick(b, xs[0], index), one, 2);
    }
    return k == 1 ? parts[0] : tt_concat(b, parts, (int)k, 1);
}

static void pick_choices_vjp(tt_builder *b, tt_value *const *xs, int n, tt_value *y, tt_value *dy,
                             tt_value **dxs, void *user)
{
    const tt_attrs_dims width = {.n_dims = 1, .dims = {xs[0]->type.dims[1]}};
    tt_value *ins[] = {xs[1], dy}, *dx = NULL;
    (void)n, (void)y, (void)user;
    tt_op(b, "top_k_bwd", ins, 2, &width, &dx, 1);
    dxs[0] = tt_cast(b, dx, xs[0]->type.dtype);
}

/* (t*k + j) mod E as i32 [T,k] */
static tt_value *in_turn(tt_builder *b, tt_dim T, int64_t k, int64_t n_experts)
{
    const tt_dim dims[] = {T, TT_DIM(k, NULL)};
    tt_value *t = tt_iota(b, dims, 2, 0, TT_I32), *j = tt_iota(b, dims, 2, 1, TT_I32);
    tt_value *e = tt_const(b, (double)n_experts, TT_I32);
    t = tt_mul(b, tt_mod(b, t, e), tt_const(b, (double)k, TT_I32)); /* no overflow for long T */
    return tt_mod(b, tt_add(b, t, j), e);
}

void tt_choose_experts(tt_builder *b, tt_value *scores, tt_value *choice, int64_t k,
                       tt_value **assign, tt_value **weights)
{
    const bool lacks =
        tt_builder_lacks_result(b, assign, "tt_choose_experts: the pointer to the experts");
    if (tt_builder_lacks_result(b, weights, "tt_choose_experts: the pointer to the weights") ||
        lacks || b->failed ||
        tt_builder_lacks(b, scores, "tt_choose_experts: the tensor of scores"))
        return;
    if (scores->type.n_dims != 2 || k < 1 || k > scores->type.dims[1].size) {
        tt_builder_fail(b, TT_EINVAL,
                        "tt_choose_experts: %lld choices of scores that must be [T,E], E at least "
                        "as many",
                        (long long)k);
        return;
    }
    if (!choice && !b->opts.force_load_balance) {
        tt_top_k(b, scores, k, weights, assign);
        return;
    }
    if (b->opts.force_load_balance)
        *assign = in_turn(b, scores->type.dims[0], k, scores->type.dims[1].size);
    else
        tt_top_k(b, tt_stop_gradient(b, choice), k, weights, assign);
    tt_value *xs[] = {scores, *assign};
    const bool by_hand = b->g->custom_vjp;
    *weights = tt_custom_vjp(b, xs, 2, pick_choices, pick_choices_vjp, NULL);
    b->g->custom_vjp = by_hand; /* this is the derivative, only written for all choices at once */
}
