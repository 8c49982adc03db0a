/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_MOE_H
#define TT_MODELS_MOE_H
#include "moe_losses.h"

/* The layer that all mixtures of experts share: a router, experts with gated feed-forward layers, and
 * experts that all tokens share. A model calls moe_layer() in each block and moe_add_losses() after
 * the last one. T tokens, D width, E experts, k choices of each token, F hidden width of an expert.
 * Sources: Shazeer et al. 2017, arXiv:1701.06538; Jiang et al. 2024, arXiv:2401.04088; Dai et al.
 * 2024, arXiv:2401.06066. */

#define MOE_SWIGLU_LIMIT 7.0
#define MOE_SWIGLU_ALPHA 1.702

/* gate, up [R,F] → silu(gate) * up; gpt_oss's: with g = min(gate, 7), u = up within ±7,
 * (u + 1) * g * sigmoid(1.702 g). */
static inline tt_value *moe_swiglu(tt_builder *b, const moe_config *c, tt_value *gate, tt_value *up)
{
    if (!c->clamped)
        return tt_mul(b, tt_silu(b, gate), up);
    const tt_dtype dtype = tt_value_type(gate)->dtype;
    gate = tt_minimum(b, gate, tt_const(b, MOE_SWIGLU_LIMIT, dtype));
    up = tt_clamp(b, up, -MOE_SWIGLU_LIMIT, MOE_SWIGLU_LIMIT);
    tt_value *glu = tt_mul(b, gate, tt_sigmoid(b, tt_scale(b, gate, MOE_SWIGLU_ALPHA)));
    return tt_mul(b, tt_add(b, up, tt_const(b, 1.0, dtype)), glu);
}

/* What the rows of the experts are computed from. */
typedef struct {
    const moe_config *c;
    const moe_names *names;
    const moe_init *init;
    int64_t layer;
    tt_dim embed;
} moe_experts_user;

#define MOE_FILE_NAME 128

/* The parameter experts.<proj>.<end> [E,…]: in files a tensor of each expert. */
static inline tt_value *moe_param(tt_builder *b, const moe_experts_user *u, const char *proj,
                                  const char *end, const tt_dim *dims, int n_dims,
                                  const tt_init *init)
{
    const size_t n = (size_t)u->c->experts;
    char name[MOE_FILE_NAME];
    tt_storage *st = calloc(n, sizeof *st);
    char *files = malloc(n * MOE_FILE_NAME);
    tt_value *v;
    snprintf(name, sizeof name, "experts.%s.%s", proj, end);
    for (size_t e = 0; st && files && e < n; e++) {
        char *file = files + e * MOE_FILE_NAME;
        snprintf(file, MOE_FILE_NAME, "model.layers.%lld.%s.experts.%zu.%s.%s", (long long)u->layer,
                 u->names->scope, e, proj, end);
        st[e] = (tt_storage){file, (int64_t)e, 1, TT_STORAGE_ITEM, 0};
    }
    const tt_param_opts opts = {.init = *init, .tags = "experts", .storage = st, .n_storage = n};
    v = st && files ? tt_param(b, name, dims, n_dims, &opts)
                    : tt_builder_fail(b, TT_ENOMEM, "no memory for the names of %zu experts", n);
    free(files);
    free(st);
    return v;
}

/* x [R,i] → [R,o] by the weights experts.<proj>.weight [E,o,i], and biases [E,o] if there are any. */
static inline tt_value *moe_linear(tt_builder *b, const moe_experts_user *u,
                                   const tt_expert_rows *rows, tt_value *x, const char *proj,
                                   tt_dim out, tt_dim in, const tt_init *init)
{
    const tt_dim dims[] = {TT_DIM(u->c->experts, "experts"), out, in};
    static const tt_init zeros = {TT_INIT_CONSTANT, 0.0, 0.0, 0.0};
    tt_value *w = moe_param(b, u, proj, "weight", dims, 3, init);
    tt_value *y = tt_grouped_linear(b, x, w, rows->counts);
    if (!u->c->expert_bias)
        return y;
    w = moe_param(b, u, proj, "bias", dims, 2, &zeros);
    return tt_add(b, y, tt_gather(b, w, rows->expert));
}

static inline tt_value *moe_rows(tt_builder *b, const tt_expert_rows *rows, const void *user)
{
    const moe_experts_user *u = user;
    const moe_names *n = u->names;
    const tt_dim F = TT_DIM(u->c->hidden_dim, "ffn"), D = u->embed;
    tt_value *gate = moe_linear(b, u, rows, rows->x, n->gate_proj, F, D, &u->init->gate);
    tt_value *up = moe_linear(b, u, rows, rows->x, n->up_proj, F, D, &u->init->up);
    tt_value *h = moe_swiglu(b, u->c, gate, up); /* [R,F] */
    return moe_linear(b, u, rows, h, n->down_proj, D, F, &u->init->down);
}

/* The feed-forward layer of width S*F that all tokens go through. */
static inline tt_value *moe_shared(tt_builder *b, const moe_experts_user *u, tt_value *x)
{
    const tt_dim F = TT_DIM(u->c->hidden_dim * u->c->shared_experts, "ffn");
    const tt_linear_opts gate = {.init = u->init->gate}, up = {.init = u->init->up},
                         down = {.init = u->init->down};
    tt_scope(b, "%s", u->names->shared);
    tt_value *h = tt_linear(b, x, u->names->gate_proj, F, &gate);
    h = moe_swiglu(b, u->c, h, tt_linear(b, x, u->names->up_proj, F, &up));
    h = tt_linear(b, h, u->names->down_proj, u->embed, &down);
    tt_scope_end(b);
    return h;
}

/* x [T,D] → [T,D], inside of block `layer`: the sum of the chosen experts' outputs by their weights,
 * plus the shared experts'. c outlives the graph. sums: what the losses need, {0} before the first
 * layer. */
static inline tt_value *moe_layer(tt_builder *b, const moe_config *c, const moe_names *names,
                                  const moe_init *init, int64_t layer, tt_value *x, moe_sums *sums)
{
    const moe_experts_user u = {c, names, init, layer, tt_value_type(x)->dims[1]};
    tt_scope(b, "%s", names->scope);
    const moe_routing r = moe_route(b, c, names, init, x);
    moe_count_losses(b, c, &r, sums);
    tt_value *y = tt_experts(b, x, r.assign, r.weights, c->experts, moe_rows, &u);
    if (c->shared_experts > 0)
        y = tt_add(b, y, moe_shared(b, &u, x));
    tt_scope_end(b);
    return y;
}

#endif
