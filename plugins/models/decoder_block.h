/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_BLOCK_H
#define TT_MODELS_DECODER_BLOCK_H
#include "decoder_hf.h"
#include <math.h>

/* One block of the models of decoder.h, attention and a gated feed-forward layer, and how the models
 * differ in it. T tokens, D width, H heads, K key/value heads, hd head width, F hidden width. */

/* Initial values of the embedding and the output layer (head), and of the weights of one layer:
 * `up` for up_proj, `out` for those that write to the residual stream, `plain` for the others. */
typedef struct {
    tt_init embedding, head, plain, up, out;
} decoder_init;

/* Names of the norms before and after attention and the feed-forward layer; NULL: there is none. */
typedef struct {
    const char *attention_in, *attention_out, *mlp_in, *mlp_out;
} decoder_norms;

static const decoder_norms decoder_norms_before = {"input_layernorm", NULL,
                                                   "post_attention_layernorm", NULL};

/* What q_norm and k_norm normalize before the rotary positions. */
typedef enum {
    DECODER_QK_NOT,
    DECODER_QK_HEADS, /* each head, by one weight [hd] */
    DECODER_QK_ALL    /* all heads together, by a weight [H*hd] or [K*hd] */
} decoder_qk_norm;

/* How a model differs from the others. */
typedef struct decoder_kind {
    bool qkv_bias; /* q_proj, k_proj and v_proj have a bias, o_proj has none */
    decoder_qk_norm qk_norm;
    const decoder_norms *norms; /* NULL: decoder_norms_before */
    bool norms_from_one;        /* norms multiply by 1 + weight, and the weight begins with 0 */
    bool sinks;            /* each head has a learned logit that only enters the softmax's sum */
    bool scaled_embedding; /* embeddings are multiplied by the root of D */
    bool fused;            /* files hold q, k and v, and gate and up, in one tensor each */
    const char *mlp_scope; /* of the feed-forward layer's names; NULL: "mlp" */
    tt_value *(*activation)(tt_builder *b, tt_value *gate); /* NULL: tt_silu */
    decoder_init (*init)(const decoder *c, int64_t layer);
    /* (optional) The attention of a block; NULL: decoder_attention(). */
    tt_value *(*attention)(tt_builder *b, const struct decoder_kind *kind, const decoder *c,
                           const decoder_init *init, int64_t layer, tt_value *x);
    /* (optional) The feed-forward layer of a block; NULL: decoder_mlp(). state: as given to
     * decoder_describe_with(). */
    tt_value *(*feed_forward)(tt_builder *b, const struct decoder_kind *kind, const decoder *c,
                              const decoder_init *init, int64_t layer, tt_value *x, void *state);
} decoder_kind;

/* normal(0.02); with more layers, a smaller deviation for weights that write to the residual
 * stream. */
static inline decoder_init decoder_init_normal(const decoder *c, int64_t layer)
{
    (void)layer;
    const tt_init plain = {TT_INIT_NORMAL, 0.02, 0.0, 0.0};
    const tt_init out = {TT_INIT_NORMAL, 0.02 / sqrt(2.0 * (double)c->n_layers), 0.0, 0.0};
    return (decoder_init){plain, plain, plain, plain, out};
}

/* normal(0.02) for all weights, as transformers'. */
static inline decoder_init decoder_init_flat(const decoder *c, int64_t layer)
{
    (void)c, (void)layer;
    const tt_init plain = {TT_INIT_NORMAL, 0.02, 0.0, 0.0};
    return (decoder_init){plain, plain, plain, plain, plain};
}

/* ---- layers ---- */

/* RMSNorm of x by the parameter <name>.weight [width], whose size is x's last dim's or hd. */
static inline tt_value *decoder_norm_by(tt_builder *b, const decoder_kind *kind, const decoder *c,
                                        tt_value *x, const char *name, tt_dim width)
{
    char weight[64];
    const tt_param_opts opts = {
        .init = {TT_INIT_CONSTANT, kind->norms_from_one ? 0.0 : 1.0, 0.0, 0.0},
          .tags = "norm"
    };
    snprintf(weight, sizeof weight, "%s.weight", name);
    tt_value *w = tt_param(b, weight, &width, 1, &opts);
    if (kind->norms_from_one) /* in f32, where 1 + w keeps all of w */
        w = tt_add(b, tt_cast(b, w, TT_F32), tt_const(b, 1.0, TT_F32));
    return tt_rms_norm_w(b, x, w, c->norm_eps);
}

/* name NULL: x itself */
static inline tt_value *decoder_norm(tt_builder *b, const decoder_kind *kind, const decoder *c,
                                     tt_value *x, const char *name)
{
    return name ? decoder_norm_by(b, kind, c, x, name, TT_DIM(c->dim, "embed")) : x;
}

/* A linear layer; its weight is rows from `begin` on of the files' tensor `file`, or, if that is
 * NULL, a tensor of its own. */
static inline tt_value *decoder_linear(tt_builder *b, tt_value *x, const char *name, tt_dim out,
                                       const tt_linear_opts *opts, const char *file, int64_t begin)
{
    char weight[64];
    const tt_dim dims[] = {out, tt_value_type(x)->dims[1]};
    const tt_storage rows = {.name = file, .file_begin = (int32_t)begin};
    snprintf(weight, sizeof weight, "%s.weight", name);
    if (file) /* tt_linear finds it by name */
        (void)tt_param(b, weight, dims, 2,
                       &(tt_param_opts){.init = opts->init, .storage = &rows, .n_storage = 1});
    return tt_linear(b, x, name, out, opts);
}

/* Queries or keys x [T,n*hd]: normalizes and rotates them as the model and the layer do. */
static inline tt_value *decoder_turn(tt_builder *b, const decoder_kind *kind, const decoder *c,
                                     int64_t layer, tt_value *x, const char *norm)
{
    const tt_dim all = tt_value_type(x)->dims[1], head = TT_DIM(c->head_dim, NULL);
    const tt_rope_opts rope = decoder_rope(c, layer, tt_builder_length(b));
    if (kind->qk_norm != DECODER_QK_NOT)
        x = decoder_norm_by(b, kind, c, x, norm, kind->qk_norm == DECODER_QK_ALL ? all : head);
    return decoder_rotates(c, layer) ? decoder_rotate(b, c, x, &rope) : x;
}

/* The parameter sinks [H]. */
static inline tt_value *decoder_sinks(tt_builder *b, const decoder *c, const decoder_init *init)
{
    const tt_dim H = TT_DIM(c->n_heads, "heads");
    return tt_param(b, "sinks", &H, 1, &(tt_param_opts){.init = init->plain, .tags = "sinks"});
}

static inline tt_value *decoder_attention(tt_builder *b, const decoder_kind *kind, const decoder *c,
                                          const decoder_init *init, int64_t layer,
                                          tt_value *x) /* [T,D] */
{
    const int64_t hd = c->head_dim, nq = c->n_heads * hd, nk = c->n_kv_heads * hd;
    const tt_dim D = TT_DIM(c->dim, "embed");
    const tt_dim H = TT_DIM_UNIT(nq, "heads", hd), K = TT_DIM_UNIT(nk, "kv_heads", hd);
    const tt_linear_opts in = {.bias = kind->qkv_bias || c->attention_bias, .init = init->plain};
    const tt_linear_opts out = {.bias = c->attention_bias, .init = init->out};
    tt_attention_opts opts = {
        .window = decoder_window(c, layer),
        .dropout = c->attention_dropout,
        .softcap = c->attn_logit_softcapping > 0.0 ? c->attn_logit_softcapping : 0.0,
        .scale = c->query_pre_attn_scalar > 0 ? 1.0 / sqrt((double)c->query_pre_attn_scalar) : 0.0};
    char qkv[96];
    snprintf(qkv, sizeof qkv, "model.layers.%lld.self_attn.qkv_proj.weight", (long long)layer);
    const char *file = kind->fused ? qkv : NULL;
    tt_scope(b, "self_attn");
    (void)tt_input(b, "pos"); /* [T] */
    if (kind->sinks)
        opts.sinks = decoder_sinks(b, c, init);
    tt_value *q = decoder_linear(b, x, "q_proj", H, &in, file, 0);
    q = decoder_turn(b, kind, c, layer, q, "q_norm");
    tt_value *k = decoder_linear(b, x, "k_proj", K, &in, file, nq);
    k = decoder_turn(b, kind, c, layer, k, "k_norm");
    tt_value *v = decoder_linear(b, x, "v_proj", K, &in, file, nq + nk); /* [T,K*hd] */
    tt_value *y = tt_linear(b, tt_attention(b, q, k, v, hd, &opts), "o_proj", D, &out);
    tt_scope_end(b);
    return y;
}

static inline tt_value *decoder_mlp(tt_builder *b, const decoder_kind *kind, const decoder *c,
                                    const decoder_init *init, int64_t layer, tt_value *x)
{
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->hidden_dim, "ffn");
    const tt_linear_opts plain = {.bias = c->mlp_bias, .init = init->plain},
                         up = {.bias = c->mlp_bias, .init = init->up},
                         out = {.bias = c->mlp_bias, .init = init->out};
    char both[96];
    snprintf(both, sizeof both, "model.layers.%lld.mlp.gate_up_proj.weight", (long long)layer);
    const char *file = kind->fused ? both : NULL;
    tt_scope(b, "%s", kind->mlp_scope ? kind->mlp_scope : "mlp");
    tt_value *gate = decoder_linear(b, x, "gate_proj", F, &plain, file, 0); /* [T,F] */
    gate = kind->activation ? kind->activation(b, gate) : tt_silu(b, gate);
    tt_value *h = tt_mul(b, gate, decoder_linear(b, x, "up_proj", F, &up, file, c->hidden_dim));
    tt_value *y = tt_linear(b, h, "down_proj", D, &out);
    tt_scope_end(b);
    return y;
}

/* x [T,D] through attention and feed-forward layer; the block has begun */
static inline tt_value *decoder_block_inside(tt_builder *b, const decoder_kind *kind,
                                             const decoder *c, int64_t layer, tt_value *x,
                                             void *state)
{
    const decoder_norms *norms = kind->norms ? kind->norms : &decoder_norms_before;
    const decoder_init init = kind->init(c, layer);
    tt_value *h = decoder_norm(b, kind, c, x, norms->attention_in);
    h = (kind->attention ? kind->attention : decoder_attention)(b, kind, c, &init, layer, h);
    x = tt_add(b, x, decoder_norm(b, kind, c, h, norms->attention_out));
    h = decoder_norm(b, kind, c, x, norms->mlp_in);
    h = kind->feed_forward ? kind->feed_forward(b, kind, c, &init, layer, h, state)
                           : decoder_mlp(b, kind, c, &init, layer, h);
    return tt_add(b, x, decoder_norm(b, kind, c, h, norms->mlp_out));
}

/* x [T,D] after block `layer` */
static inline tt_value *decoder_block(tt_builder *b, const decoder_kind *kind, const decoder *c,
                                      int64_t layer, tt_value *x, void *state)
{
    tt_block(b, "model.layers.%lld", (long long)layer);
    x = decoder_block_inside(b, kind, c, layer, x, state);
    tt_block_end(b);
    return x;
}

#endif
