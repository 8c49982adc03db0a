/* SPDX-License-Identifier: Apache-2.0 */
/* retnet: retention written from ops, with causal decay per head and a mask of documents. T tokens,
 * B sequences of S tokens, H heads of hd. Sun et al. 2023, arXiv:2307.08621. */
#include <math.h>
#include <stdlib.h>
#include <ttrun/model.h>

typedef struct {
    int64_t dim, layers, heads, hidden, vocab;
} config;

static const tt_option options[] = {
    {"dim",        "width",  TT_OPT_INT, offsetof(config, dim),    "32",  2, 65536, NULL, 0, NULL},
    {"n_layers",   "blocks", TT_OPT_INT, offsetof(config, layers), "2",   1, 1000,  NULL, 0, NULL},
    {"n_heads",    "heads",  TT_OPT_INT, offsetof(config, heads),  "4",   1, 1024,  NULL, 0, NULL},
    {"hidden_dim", "MLP",    TT_OPT_INT, offsetof(config, hidden), "48",  1, 1e6,   NULL, 0, NULL},
    {"vocab_size", "tokens", TT_OPT_INT, offsetof(config, vocab),  "262", 1, 1e8,   NULL, 0, NULL},
};
static const tt_flavor flavors[] = {
    {"debugmodel", "{}"}
};

static tt_status finish(void *cfg, tt_error *err)
{
    config *c = (config *)cfg;
    if (c->dim % c->heads != 0)
        return TT_FAIL(err, TT_EINVAL, "dim %lld must be a multiple of n_heads", (long long)c->dim);
    return TT_OK;
}

static tt_dim sequences(tt_value *x)
{
    return TT_DIM(tt_value_type(x)->dims[0].lines, "sequences");
}

static tt_dim positions(tt_value *x)
{
    const tt_dim T = tt_value_type(x)->dims[0];
    return TT_DIM(T.size / T.lines, NULL);
}

/* [T, H*hd] → [B, H, S, hd] */
static tt_value *apart(tt_builder *b, tt_value *x, tt_dim H, tt_dim hd)
{
    static const int perm[4] = {0, 2, 1, 3};
    const tt_dim dims[4] = {sequences(x), positions(x), H, hd};
    return tt_transpose(b, tt_reshape(b, x, dims, 4), perm);
}

/* [H, S, S]: decay^(i - j) of query i and key j, 0 where j is later */
static tt_value *decay_of(tt_builder *b, tt_dim H, tt_dim S)
{
    const tt_dim dims[3] = {H, S, S};
    float *d = (float *)calloc((size_t)(H.size * S.size * S.size), sizeof(float));
    if (!d)
        return tt_builder_fail(b, TT_ENOMEM, "no memory for the decay");
    for (int64_t h = 0; h < H.size; h++)
        for (int64_t i = 0; i < S.size; i++)
            for (int64_t j = 0; j <= i; j++)
                d[(h * S.size + i) * S.size + j] =
                    powf(1.0f - powf(2.0f, -3.0f - (float)h), (float)(i - j));
    tt_value *v = tt_const_array(b, d, dims, 3);
    free(d);
    return v;
}

/* [B, 1, S, S]: 1 where query and key are of one document */
static tt_value *one_document(tt_builder *b)
{
    tt_value *seg = tt_input(b, "seg");
    const tt_dim one = TT_DIM(1, NULL), B = sequences(seg), S = positions(seg);
    const tt_dim query[4] = {B, one, S, one}, key[4] = {B, one, one, S};
    return tt_cast(b, tt_equal(b, tt_reshape(b, seg, query, 4), tt_reshape(b, seg, key, 4)),
                   TT_F32);
}

static tt_value *retention(tt_builder *b, const config *c, tt_value *x)
{
    static const int perm[4] = {0, 2, 1, 3};
    const tt_dim H = TT_DIM(c->heads, "heads"), hd = TT_DIM(c->dim / c->heads, NULL);
    const tt_dim both = TT_DIM_UNIT(c->dim, "heads", hd.size);
    tt_value *q = apart(b, tt_linear(b, x, "q_proj", both, NULL), H, hd);
    tt_value *k = apart(b, tt_linear(b, x, "k_proj", both, NULL), H, hd);
    tt_value *v = apart(b, tt_linear(b, x, "v_proj", both, NULL), H, hd);
    tt_value *s = tt_scale(b, tt_matmul(b, q, k, 0, 1), 1.0 / sqrt((double)hd.size));
    s = tt_mul(b, tt_mul(b, s, decay_of(b, H, positions(x))), one_document(b));
    tt_value *y = tt_transpose(b, tt_matmul(b, s, v, 0, 0), perm);
    const tt_dim joined[2] = {tt_value_type(x)->dims[0], both};
    return tt_linear(b, tt_reshape(b, y, joined, 2), "o_proj", TT_DIM(c->dim, "embed"), NULL);
}

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = (const config *)cfg;
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->hidden, "ffn");
    const tt_dim V = TT_DIM(c->vocab, "vocab");
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed_tokens", V, D, NULL);
    for (int64_t i = 0; i < c->layers; i++) {
        tt_block(b, "layers.%lld", (long long)i);
        tt_value *h = tt_rms_norm(b, x, "norm", 1e-5);
        tt_value *f = tt_silu(b, tt_linear(b, h, "up_proj", F, NULL));
        x = tt_add(b, x, retention(b, c, h));
        x = tt_add(b, x, tt_linear(b, f, "down_proj", D, NULL));
        tt_block_end(b);
    }
    x = tt_rms_norm(b, x, "norm", 1e-5);
    tt_output(b, "logits", tt_linear(b, x, "lm_head", V, NULL));
}

static int64_t vocab_size(const void *cfg)
{
    return ((const config *)cfg)->vocab;
}

static int64_t attention_width(const void *cfg)
{
    return 2 * ((const config *)cfg)->layers * ((const config *)cfg)->dim;
}

static const tt_model_vt vt = {
    sizeof(vt), flavors,    TT_COUNT(flavors), finish,
    describe,   vocab_size, attention_width,   "n_layers",
};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_MODEL, "retnet", "retention", config, options, &vt),
};
TT_PLUGIN("retnet", "0.1", components);
