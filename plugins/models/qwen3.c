/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdbool.h>
#include <ttrun/model.h>

/* qwen3 (dense): Llama's block with a norm of each query and key head before the rotary positions,
 * and heads whose width is independent of the stream's; Hugging Face's names. T tokens, D width, H
 * heads, K key/value heads, hd head width, F hidden width, V vocabulary. Source: Yang et al. 2025,
 * arXiv:2505.09388; initial values as torchtitan's. */

typedef struct {
    int64_t dim, n_layers, n_heads, n_kv_heads, head_dim, hidden_dim, vocab_size;
    double norm_eps, rope_theta;
    bool tie_embeddings;
} config;

#define MAX_DIM 16777216.0 /* 2^24: products of two sizes stay far inside int64 */

static const tt_option options[] = {
    TT_OPTION_MORE(config, dim, TT_OPT_INT, "256", 1, MAX_DIM, NULL, 0, "hidden_size",
                   "width of the residual stream"),
    TT_OPTION_MORE(config, n_layers, TT_OPT_INT, "8", 1, 65536, NULL, 0, "num_hidden_layers",
                   "number of blocks"),
    TT_OPTION_MORE(config, n_heads, TT_OPT_INT, "16", 1, 65536, NULL, 0, "num_attention_heads",
                   "query heads"),
    TT_OPTION_MORE(config, n_kv_heads, TT_OPT_INT, "8", 1, 65536, NULL, 0, "num_key_value_heads",
                   "key and value heads, a divisor of n_heads"),
    TT_OPTION(config, head_dim, TT_OPT_INT, "128", 2, 65536, "width of a head, even"),
    TT_OPTION_MORE(config, hidden_dim, TT_OPT_INT, "3072", 1, MAX_DIM, NULL, 0, "intermediate_size",
                   "width of the feed-forward layer"),
    TT_OPTION(config, vocab_size, TT_OPT_INT, "2048", 1, 2147483647.0,
              "rows of the embedding, at least the tokenizer's"),
    TT_OPTION_MORE(config, norm_eps, TT_OPT_FLOAT, "1e-6", 1e-30, 1, NULL, 0, "rms_norm_eps",
                   "epsilon of the norms"),
    TT_OPTION(config, rope_theta, TT_OPT_FLOAT, "1000000.0", 1, 1e18,
              "base of the rotary frequencies"),
    TT_OPTION_MORE(config, tie_embeddings, TT_OPT_BOOL, "true", 0, 0, NULL, 0,
                   "tie_word_embeddings", "the output layer is the embedding"),
};

/* All share 8 key/value heads of 128 and a vocabulary. */
#define FLAVOR(name, dim, layers, heads, hidden, tied)                                             \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": 8, \"hidden_dim\": " #hidden                                      \
              ", \"vocab_size\": 151936, \"tie_embeddings\": " #tied "}"                           \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"n_layers\": 8, \"n_heads\": 16, \"n_kv_heads\": 8, "
                   "\"hidden_dim\": 3072, \"vocab_size\": 2048}"},
    FLAVOR("0.6B", 1024, 28, 16, 3072, true),
    FLAVOR("1.7B", 2048, 28, 16, 6144, true),
    FLAVOR("4B", 2560, 36, 32, 9728, true),
    FLAVOR("8B", 4096, 36, 32, 12288, false),
    FLAVOR("14B", 5120, 40, 40, 17408, false),
    FLAVOR("32B", 5120, 64, 64, 25600, false),
};

static tt_status finish(void *cfg, tt_error *err)
{
    const config *c = cfg;
    if (c->n_heads % c->n_kv_heads != 0)
        return TT_FAIL(err, TT_EINVAL, "model.args.n_kv_heads: %lld does not divide n_heads %lld",
                       (long long)c->n_kv_heads, (long long)c->n_heads);
    if (c->head_dim % 2 != 0)
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.head_dim: %lld is odd, and rotary positions turn pairs; make "
                       "it even",
                       (long long)c->head_dim);
    return TT_OK;
}

static int64_t vocab_size(const void *cfg)
{
    return ((const config *)cfg)->vocab_size;
}

static int64_t attention_width(const void *cfg)
{
    const config *c = cfg;
    return c->n_layers * c->n_heads * (c->head_dim + c->head_dim);
}

/* ---- the forward pass ---- */

static const tt_linear_opts plain = {
    .init = {TT_INIT_NORMAL, 0.02, 0.0, 0.0}
};

/* Weights that write to the residual stream. */
static tt_linear_opts deep(const config *c)
{
    return (tt_linear_opts){
        .init = {TT_INIT_NORMAL, 0.02 / sqrt(2.0 * (double)c->n_layers), 0.0, 0.0}
    };
}

/* x [T,n*hd]: each head normed by one weight [hd], then turned. */
static tt_value *norm_and_turn(tt_builder *b, const config *c, tt_value *x, const char *norm)
{
    const tt_dim hd = TT_DIM(c->head_dim, NULL);
    const tt_rope_opts rope = {.head_dim = c->head_dim, .theta = c->rope_theta};
    tt_value *w = tt_param(b, norm, &hd, 1,
                           &(tt_param_opts){
                               .init = {TT_INIT_CONSTANT, 1.0, 0.0, 0.0},
                                 .tags = "norm"
    });
    return tt_rope(b, tt_rms_norm_w(b, x, w, c->norm_eps), tt_input(b, "pos"), &rope);
}

static tt_value *attention(tt_builder *b, const config *c, tt_value *x) /* x [T,D] */
{
    const int64_t hd = c->head_dim;
    const tt_dim D = TT_DIM(c->dim, "embed");
    const tt_dim H = TT_DIM_UNIT(c->n_heads * hd, "heads", hd),
                 K = TT_DIM_UNIT(c->n_kv_heads * hd, "kv_heads", hd);
    const tt_linear_opts out = deep(c);
    tt_scope(b, "self_attn");
    tt_value *q = norm_and_turn(b, c, tt_linear(b, x, "q_proj", H, &plain), "q_norm.weight");
    tt_value *k = norm_and_turn(b, c, tt_linear(b, x, "k_proj", K, &plain), "k_norm.weight");
    tt_value *v = tt_linear(b, x, "v_proj", K, &plain); /* [T,K*hd] */
    tt_value *y = tt_linear(b, tt_attention(b, q, k, v, hd, NULL), "o_proj", D, &out);
    tt_scope_end(b);
    return y;
}

static tt_value *mlp(tt_builder *b, const config *c, tt_value *x)
{
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->hidden_dim, "ffn");
    const tt_linear_opts out = deep(c);
    tt_scope(b, "mlp");
    tt_value *gate = tt_silu(b, tt_linear(b, x, "gate_proj", F, &plain));
    tt_value *h = tt_mul(b, gate, tt_linear(b, x, "up_proj", F, &plain)); /* [T,F] */
    tt_value *y = tt_linear(b, h, "down_proj", D, &out);
    tt_scope_end(b);
    return y;
}

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = cfg;
    const tt_dim V = TT_DIM(c->vocab_size, "vocab"), table[] = {V, TT_DIM(c->dim, "embed")};
    const tt_param_opts embedding = {.init = plain.init, .tags = "embedding"};
    tt_value *w = tt_param(b, "model.embed_tokens.weight", table, 2, &embedding);
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), w); /* [T,D] */
    for (int64_t i = 0; i < c->n_layers; i++) {
        tt_block(b, "model.layers.%lld", (long long)i);
        x = tt_add(b, x, attention(b, c, tt_rms_norm(b, x, "input_layernorm", c->norm_eps)));
        x = tt_add(b, x, mlp(b, c, tt_rms_norm(b, x, "post_attention_layernorm", c->norm_eps)));
        tt_block_end(b);
    }
    x = tt_rms_norm(b, x, "model.norm", c->norm_eps);
    tt_output(b, "logits",
              c->tie_embeddings ? tt_linear_w(b, x, w) : tt_linear(b, x, "lm_head", V, &plain));
}

static const tt_model_vt vt = {sizeof vt, flavors,    TT_COUNT(flavors), finish,
                               describe,  vocab_size, attention_width};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_MODEL, "qwen3",
                 "Qwen 3, dense: Llama's block with normed query and key heads", config, options,
                 &vt),
};

TT_PLUGIN("qwen3", "1.0", components);
