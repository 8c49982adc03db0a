/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DELTA_NET_H
#define TT_MODELS_DELTA_NET_H
#include "decoder_block.h"

/* The gated delta net, a layer in the place of attention: a short convolution of queries, keys and values, the gated
 * delta rule, and a norm that a gate multiplies. K groups of R heads: a group has one query and one key, its heads each
 * a value, a gate z, a decay a and a rate b. T tokens, D width. Source: Yang et al. 2024, arXiv:2412.06464; names,
 * order of rows and the epsilon of the lengths as transformers'. */

typedef struct {
    int64_t key_heads, value_heads;       /* K, and K*R */
    int64_t key_head_dim, value_head_dim; /* dk, dv */
    int64_t taps;                         /* of the convolution */
} delta_net;

#define DELTA_NET_LENGTH_EPS 1e-6

static inline tt_status delta_net_finish(const delta_net *c, tt_error *err)
{
    if (c->value_heads % c->key_heads != 0)
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.linear_num_value_heads: %lld is not a multiple of "
                       "linear_num_key_heads %lld",
                       (long long)c->value_heads, (long long)c->key_heads);
    return TT_OK;
}

/* Columns [begin, begin + size) of each group of x [T,K,..] */
static inline tt_value *delta_net_columns(tt_builder *b, tt_value *x, int64_t begin, int64_t size)
{
    return tt_slice(b, x, 2, begin, begin + size);
}

/* x [T,K,n] → the same after the convolution and silu. Its weight is rows from `row` on of the file's conv1d.weight
 * [channels,1,taps]. */
static inline tt_value *delta_net_convolve(tt_builder *b, const delta_net *c, int64_t layer,
                                           tt_value *x, const char *name, int64_t row)
{
    char file[96];
    tt_dim dims[3];
    for (int d = 0; d < 3; d++)
        dims[d] = tt_value_type(x)->dims[d];
    const tt_dim D = TT_DIM_UNIT(dims[1].size * dims[2].size, "heads", dims[2].size),
                 K = TT_DIM(c->taps, NULL), w[] = {D, TT_DIM(1, NULL), K}, flat[] = {D, K},
                 joined[] = {dims[0], D};
    const tt_storage rows = {.name = file, .file_begin = (int32_t)row};
    /* PyTorch's default of a convolution */
    const double bound = 1.0 / sqrt((double)c->taps);
    const tt_param_opts opts = {
        .init = {TT_INIT_UNIFORM, 0.0, -bound, bound},
          .storage = &rows, .n_storage = 1
    };
    snprintf(file, sizeof file, "model.layers.%lld.linear_attn.conv1d.weight", (long long)layer);
    tt_value *taps = tt_reshape(b, tt_param(b, name, w, 3, &opts), flat, 2);
    x = tt_silu(b, tt_conv1d(b, tt_reshape(b, x, joined, 2), taps));
    return tt_reshape(b, x, dims, 3);
}

/* scale x / √(Σx² + eps) for each head of x [T,K,dk] */
static inline tt_value *delta_net_unit(tt_builder *b, tt_value *x, double scale)
{
    const tt_dim width = TT_DIM(tt_value_type(x)->dims[2].size, NULL);
    const double n = (double)width.size;
    tt_value *w = tt_broadcast_to(b, tt_const(b, scale / sqrt(n), TT_F32), &width, 1);
    return tt_rms_norm_w(b, x, w, DELTA_NET_LENGTH_EPS / n);
}

/* The parameter of a number per head, as f32 [K,R]. */
static inline tt_value *delta_net_per_head(tt_builder *b, const delta_net *c, const char *name,
                                           const tt_init *init, const char *tags)
{
    const int64_t R = c->value_heads / c->key_heads;
    const tt_dim H = TT_DIM_UNIT(c->value_heads, "heads", R),
                 apart[] = {TT_DIM(c->key_heads, "heads"), TT_DIM(R, NULL)};
    tt_value *w = tt_param(b, name, &H, 1, &(tt_param_opts){.init = *init, .tags = tags});
    return tt_reshape(b, tt_cast(b, w, TT_F32), apart, 2);
}

/* a [T,K,R] → the log of the decay, -exp(A_log) softplus(a + dt_bias), f32. A_log begins between 0 and log 16. */
static inline tt_value *delta_net_decay(tt_builder *b, const delta_net *c, tt_value *a)
{
    const tt_init logs = {TT_INIT_UNIFORM, 0.0, 0.0, log(16.0)},
                  ones = {TT_INIT_CONSTANT, 1.0, 0.0, 0.0};
    tt_value *rate = tt_exp(b, delta_net_per_head(b, c, "A_log", &logs, "decay"));
    tt_value *bias = delta_net_per_head(b, c, "dt_bias", &ones, "bias");
    tt_value *step = tt_softplus(b, tt_add(b, tt_cast(b, a, TT_F32), bias));
    return tt_neg(b, tt_mul(b, rate, step));
}

/* o, z [T,K,R,dv] → RMSNorm of o, times silu(z) */
static inline tt_value *delta_net_norm(tt_builder *b, tt_value *o, tt_value *z, double eps)
{
    const tt_dim width = TT_DIM(tt_value_type(o)->dims[3].size, NULL);
    const tt_param_opts ones = {
        .init = {TT_INIT_CONSTANT, 1.0, 0.0, 0.0},
          .tags = "norm"
    };
    o = tt_rms_norm_w(b, o, tt_param(b, "norm.weight", &width, 1, &ones), eps);
    return tt_mul(b, o, tt_silu(b, z));
}

static inline tt_value *delta_net_layer(tt_builder *b, const delta_net *c, const decoder *d,
                                        const decoder_init *init, int64_t layer,
                                        tt_value *x) /* [T,D] */
{
    const int64_t G = c->key_heads, R = c->value_heads / G, dk = c->key_head_dim,
                  dv = c->value_head_dim;
    const int64_t qkvz = 2 * dk + 2 * R * dv;
    const tt_dim T = tt_value_type(x)->dims[0], K = TT_DIM(G, "heads");
    const tt_dim all[] = {T, K, TT_DIM(qkvz, NULL)}, two[] = {T, K, TT_DIM(2 * R, NULL)},
                 heads[] = {T, K, TT_DIM(R, NULL), TT_DIM(dv, NULL)},
                 joined[] = {T, TT_DIM_UNIT(G * R * dv, "heads", R * dv)};
    const tt_linear_opts in = {.init = init->plain}, out = {.init = init->out};
    tt_scope(b, "linear_attn");
    tt_value *p = tt_linear(b, x, "in_proj_qkvz", TT_DIM_UNIT(G * qkvz, "heads", qkvz), &in);
    p = tt_reshape(b, p, all, 3);
    tt_value *ba = tt_linear(b, x, "in_proj_ba", TT_DIM_UNIT(2 * G * R, "heads", 2 * R), &in);
    ba = tt_reshape(b, ba, two, 3);
    tt_value *q = delta_net_columns(b, p, 0, dk), *k = delta_net_columns(b, p, dk, dk);
    tt_value *v = delta_net_columns(b, p, 2 * dk, R * dv);
    tt_value *z = tt_reshape(b, delta_net_columns(b, p, 2 * dk + R * dv, R * dv), heads, 4);
    q = delta_net_convolve(b, c, layer, q, "conv1d.q_weight", 0);
    k = delta_net_convolve(b, c, layer, k, "conv1d.k_weight", G * dk);
    v = delta_net_convolve(b, c, layer, v, "conv1d.v_weight", 2 * G * dk);
    tt_value *rate = tt_sigmoid(b, delta_net_columns(b, ba, 0, R));
    tt_value *o = tt_delta_rule(b, delta_net_unit(b, q, 1.0 / sqrt((double)dk)),
                                delta_net_unit(b, k, 1.0), tt_reshape(b, v, heads, 4),
                                delta_net_decay(b, c, delta_net_columns(b, ba, R, R)), rate);
    o = tt_reshape(b, delta_net_norm(b, o, z, d->norm_eps), joined, 2);
    x = tt_linear(b, o, "out_proj", TT_DIM(d->dim, "embed"), &out);
    tt_scope_end(b);
    return x;
}

#endif
