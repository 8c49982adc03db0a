/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: a pre-norm decoder. T tokens, D width, V vocabulary. */
#include <ttrun/model.h>

typedef struct {
    int64_t dim, layers, heads, hidden, vocab;
} config;

static const tt_option options[] = {
    {"dim",        "width",      TT_OPT_INT, offsetof(config, dim),    "64",  2, 65536, NULL, 0, NULL},
    {"n_layers",   "blocks",     TT_OPT_INT, offsetof(config, layers), "2",   1, 1000,  NULL, 0, NULL},
    {"n_heads",    "heads",      TT_OPT_INT, offsetof(config, heads),  "4",   1, 1024,  NULL, 0, NULL},
    {"hidden_dim", "MLP width",  TT_OPT_INT, offsetof(config, hidden), "256", 1, 1e6,   NULL, 0, NULL},
    {"vocab_size", "vocabulary", TT_OPT_INT, offsetof(config, vocab),  "262", 1, 1e8,   NULL, 0, NULL},
};

/* Named sizes: the job's model.flavor. */
static const tt_flavor flavors[] = {
    {"debugmodel", "{}"                                                   }, /* the default */
    {"larger",     "{\"dim\": 256, \"n_layers\": 6, \"hidden_dim\": 1024}"},
};

/* Checks that the ranges above cannot express. */
static tt_status finish(void *cfg, tt_error *err)
{
    config *c = (config *)cfg;
    if (c->dim % (2 * c->heads) != 0)
        return TT_FAIL(err, TT_EINVAL, "dim %lld must be a multiple of 2*n_heads",
                       (long long)c->dim);
    return TT_OK;
}

static tt_value *attention(tt_builder *b, const config *c, tt_value *x) /* x [T,D] */
{
    const int64_t hd = c->dim / c->heads;
    const tt_dim H = TT_DIM_UNIT(c->dim, "heads", hd);
    tt_rope_opts rope = TT_ZERO;
    rope.head_dim = hd;
    tt_value *pos = tt_input(b, "pos"); /* [T]; restarts at each document */
    tt_value *q = tt_rope(b, tt_linear(b, x, "q_proj", H, NULL), pos, &rope);
    tt_value *k = tt_rope(b, tt_linear(b, x, "k_proj", H, NULL), pos, &rope);
    tt_value *v = tt_linear(b, x, "v_proj", H, NULL);
    tt_value *y = tt_attention(b, q, k, v, hd, NULL);
    return tt_linear(b, y, "o_proj", TT_DIM(c->dim, "embed"), NULL);
}

/* The forward pass. The core adds gradients, sharding, pipelining and precision. */
static void describe(const void *cfg, tt_builder *b)
{
    const config *c = (const config *)cfg;
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->hidden, "ffn");
    const tt_dim V = TT_DIM(c->vocab, "vocab");
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed_tokens", V, D, NULL); /* [T,D] */
    for (int64_t i = 0; i < c->layers; i++) {
        tt_block(b, "layers.%lld", (long long)i);
        x = tt_add(b, x, attention(b, c, tt_rms_norm(b, x, "attention_norm", 1e-5)));
        tt_value *h = tt_linear(b, tt_rms_norm(b, x, "mlp_norm", 1e-5), "up_proj", F, NULL);
        x = tt_add(b, x, tt_linear(b, tt_silu(b, h), "down_proj", D, NULL));
        tt_block_end(b);
    }
    x = tt_rms_norm(b, x, "norm", 1e-5);
    tt_output(b, "logits", tt_linear(b, x, "lm_head", V, NULL)); /* [T,V] */
}

static int64_t vocab_size(const void *cfg)
{
    return ((const config *)cfg)->vocab;
}

/* layers * heads * (d_qk + d_v): the attention's part of the FLOPs */
static int64_t attention_width(const void *cfg)
{
    return 2 * ((const config *)cfg)->layers * ((const config *)cfg)->dim;
}

static const tt_model_vt vt = {
    sizeof(vt), flavors,    TT_COUNT(flavors), finish,
    describe,   vocab_size, attention_width,   "n_layers",
};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_MODEL, "@NAME@", "a small decoder", config, options, &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
