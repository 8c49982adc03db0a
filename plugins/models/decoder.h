/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_H
#define TT_MODELS_DECODER_H
#include "decoder_hf.h"
#include <math.h>

/* What Llama and the models derived from it share: a pre-norm decoder with grouped-query attention,
 * SwiGLU and rotary positions, under Hugging Face's names. A model's own file has its flavors, its
 * defaults and its differences. T tokens, D width, H heads, K key/value heads, hd head width, F
 * hidden width, V vocabulary. Source: Touvron et al. 2023, arXiv:2302.13971. */

/* Initial values of the embedding and the output layer (head), and of the weights of one layer:
 * `up` for up_proj, `out` for those that write to the residual stream, `plain` for the others. */
typedef struct {
    tt_init embedding, head, plain, up, out;
} decoder_init;

/* How a model differs from the others. */
typedef struct {
    bool qkv_bias; /* q_proj, k_proj and v_proj have a bias */
    bool qk_norm;  /* each query and key head is normalized before the rotary positions */
    decoder_init (*init)(const decoder *c, int64_t layer);
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

/* Queries or keys x [T,n*hd]: normalizes each head by one weight [hd] if the model does so, then
 * rotates it. */
static inline tt_value *decoder_turn(tt_builder *b, const decoder_kind *kind, const decoder *c,
                                     tt_value *x, const char *norm)
{
    const tt_dim hd = TT_DIM(c->head_dim, NULL);
    const tt_param_opts ones = {
        .init = {TT_INIT_CONSTANT, 1.0, 0.0, 0.0},
          .tags = "norm"
    };
    if (kind->qk_norm)
        x = tt_rms_norm_w(b, x, tt_param(b, norm, &hd, 1, &ones), c->norm_eps);
    return tt_rope(b, x, tt_input(b, "pos"), &c->rope);
}

static inline tt_value *decoder_attention(tt_builder *b, const decoder_kind *kind, const decoder *c,
                                          const decoder_init *init, tt_value *x, /* [T,D] */
                                          int64_t window)
{
    const int64_t hd = c->head_dim;
    const tt_dim D = TT_DIM(c->dim, "embed");
    const tt_dim H = TT_DIM_UNIT(c->n_heads * hd, "heads", hd),
                 K = TT_DIM_UNIT(c->n_kv_heads * hd, "kv_heads", hd);
    const tt_linear_opts in = {.bias = kind->qkv_bias, .init = init->plain};
    const tt_linear_opts out = {.init = init->out};
    const tt_attention_opts opts = {.window = window, .dropout = c->attention_dropout};
    tt_scope(b, "self_attn");
    (void)tt_input(b, "pos"); /* [T] */
    tt_value *q = decoder_turn(b, kind, c, tt_linear(b, x, "q_proj", H, &in), "q_norm.weight");
    tt_value *k = decoder_turn(b, kind, c, tt_linear(b, x, "k_proj", K, &in), "k_norm.weight");
    tt_value *v = tt_linear(b, x, "v_proj", K, &in); /* [T,K*hd] */
    tt_value *y = tt_linear(b, tt_attention(b, q, k, v, hd, &opts), "o_proj", D, &out);
    tt_scope_end(b);
    return y;
}

static inline tt_value *decoder_mlp(tt_builder *b, const decoder *c, const decoder_init *init,
                                    tt_value *x)
{
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->hidden_dim, "ffn");
    const tt_linear_opts plain = {.init = init->plain}, up = {.init = init->up},
                         out = {.init = init->out};
    tt_scope(b, "mlp");
    tt_value *gate = tt_silu(b, tt_linear(b, x, "gate_proj", F, &plain));
    tt_value *h = tt_mul(b, gate, tt_linear(b, x, "up_proj", F, &up)); /* [T,F] */
    tt_value *y = tt_linear(b, h, "down_proj", D, &out);
    tt_scope_end(b);
    return y;
}

static inline void decoder_describe(const decoder_kind *kind, const decoder *c, tt_builder *b)
{
    const tt_dim V = TT_DIM(c->vocab_size, "vocab"), table[] = {V, TT_DIM(c->dim, "embed")};
    const decoder_init ends = kind->init(c, 0);
    const tt_param_opts embedding = {.init = ends.embedding, .tags = "embedding"};
    tt_value *w = tt_param(b, "model.embed_tokens.weight", table, 2, &embedding);
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), w); /* [T,D] */
    for (int64_t i = 0; i < c->n_layers; i++) {
        const decoder_init init = kind->init(c, i);
        tt_block(b, "model.layers.%lld", (long long)i);
        tt_value *h = tt_rms_norm(b, x, "input_layernorm", c->norm_eps);
        x = tt_add(b, x, decoder_attention(b, kind, c, &init, h, decoder_window(c, i)));
        h = tt_rms_norm(b, x, "post_attention_layernorm", c->norm_eps);
        x = tt_add(b, x, decoder_mlp(b, c, &init, h));
        tt_block_end(b);
    }
    x = tt_rms_norm(b, x, "model.norm", c->norm_eps);
    tt_output(b, "logits",
              c->tie_embeddings
                  ? tt_linear_w(b, x, w)
                  : tt_linear(b, x, "lm_head", V, &(tt_linear_opts){.init = ends.head}));
}

#endif
