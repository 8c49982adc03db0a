/* SPDX-License-Identifier: Apache-2.0 */
/* mini: a pre-norm decoder with grouped-query attention. T tokens, D width, V vocabulary. */
#include <ttrun/model.h>

typedef struct {
    int64_t dim, layers, heads, kv, ffn, vocab;
} config;

static const tt_option options[] = {
    {"dim",        "width",       TT_OPT_INT, offsetof(config, dim),    "64",  2, 65536, NULL, 0, NULL},
    {"n_layers",   "blocks",      TT_OPT_INT, offsetof(config, layers), "2",   1, 1000,  NULL, 0, NULL},
    {"n_heads",    "query heads", TT_OPT_INT, offsetof(config, heads),  "4",   1, 1024,  NULL, 0, NULL},
    {"n_kv_heads", "key heads",   TT_OPT_INT, offsetof(config, kv),     "2",   1, 1024,  NULL, 0, NULL},
    {"hidden_dim", "MLP width",   TT_OPT_INT, offsetof(config, ffn),    "192", 1, 65536, NULL, 0, NULL},
    {"vocab_size", "tokens",      TT_OPT_INT, offsetof(config, vocab),  "262", 1, 1e8,   NULL, 0, NULL},
};

static tt_value *attention(tt_builder *b, const config *c, tt_value *x) /* x [T,D] */
{
    const int64_t hd = c->dim / c->heads;
    const tt_dim H = TT_DIM_UNIT(c->dim, "heads", hd), K = TT_DIM_UNIT(c->kv * hd, "kv_heads", hd);
    tt_rope_opts rope = TT_ZERO;
    rope.head_dim = hd;
    tt_value *pos = tt_input(b, "pos"); /* [T]; restarts at each document */
    tt_value *q = tt_rope(b, tt_linear(b, x, "q_proj", H, NULL), pos, &rope);
    tt_value *k = tt_rope(b, tt_linear(b, x, "k_proj", K, NULL), pos, &rope);
    tt_value *y = tt_attention(b, q, k, tt_linear(b, x, "v_proj", K, NULL), hd, NULL);
    return tt_linear(b, y, "o_proj", TT_DIM(c->dim, "embed"), NULL);
}

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = (const config *)cfg;
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->ffn, "ffn");
    const tt_dim V = TT_DIM(c->vocab, "vocab");
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed_tokens", V, D, NULL); /* [T,D] */
    for (int64_t i = 0; i < c->layers; i++) {
        tt_block(b, "layers.%lld", (long long)i); /* unit of fetch, recomputation, pipeline split */
        x = tt_add(b, x, attention(b, c, tt_rms_norm(b, x, "input_norm", 1e-5)));
        tt_value *h = tt_rms_norm(b, x, "post_norm", 1e-5);
        h = tt_mul(b, tt_silu(b, tt_linear(b, h, "gate", F, NULL)), tt_linear(b, h, "up", F, NULL));
        x = tt_add(b, x, tt_linear(b, h, "down", D, NULL));
        tt_block_end(b);
    }
    x = tt_rms_norm(b, x, "norm", 1e-5);
    tt_output(b, "logits", tt_linear(b, x, "lm_head", V, NULL)); /* [T,V] */
}

static int64_t vocab(const void *cfg)
{
    return ((const config *)cfg)->vocab;
}
static int64_t width(const void *cfg)
{
    return 2 * ((const config *)cfg)->layers * ((const config *)cfg)->dim;
}
static const tt_flavor size = {"debugmodel", "{}"};
static const tt_model_vt vt = {sizeof(vt), &size, 1, NULL, describe, vocab, width, "n_layers"};
static const tt_component c[] = {TT_COMPONENT(TT_KIND_MODEL, "mini", "GQA", config, options, &vt)};
TT_PLUGIN("mini", "1.0", c);
