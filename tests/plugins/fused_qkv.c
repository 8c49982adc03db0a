/* SPDX-License-Identifier: Apache-2.0 */
/* fused_qkv: attention whose queries, keys and values are rows of one weight and one bias; for tests of QK-clip, which
 * must find them there. Head by head the rows are its query's, key's and value's if `by_head`, else all heads'
 * queries come first. T tokens, D width, H heads, V vocabulary. */
#include <ttrun/model.h>

typedef struct {
    int64_t dim, layers, heads, vocab;
    bool by_head;
} config;

static const tt_option options[] = {
    {"dim",        "width",     TT_OPT_INT,  offsetof(config, dim),     "32",    2, 65536, NULL, 0, NULL},
    {"n_layers",   "blocks",    TT_OPT_INT,  offsetof(config, layers),  "2",     1, 1000,  NULL, 0, NULL},
    {"n_heads",    "heads",     TT_OPT_INT,  offsetof(config, heads),   "4",     1, 1024,  NULL, 0, NULL},
    {"vocab_size", "tokens",    TT_OPT_INT,  offsetof(config, vocab),   "262",   1, 1e8,   NULL, 0, NULL},
    {"by_head",    "row order", TT_OPT_BOOL, offsetof(config, by_head), "false", 0, 0,     NULL, 0, NULL},
};

/* Part i, [T,D], of x [T,3*D] */
static tt_value *part(tt_builder *b, const config *c, tt_value *x, int i)
{
    const int64_t hd = c->dim / c->heads;
    const tt_dim tokens = tt_value_type(x)->dims[0],
                 heads[3] = {tokens, TT_DIM(c->heads, "heads"), TT_DIM(3 * hd, NULL)},
                 joined[2] = {tokens, TT_DIM_UNIT(c->dim, "heads", hd)};
    if (c->by_head)
        x = tt_slice(b, tt_reshape(b, x, heads, 3), 2, i * hd, (i + 1) * hd);
    else
        x = tt_slice(b, x, 1, i * c->dim, (i + 1) * c->dim);
    return tt_reshape(b, x, joined, 2);
}

static tt_value *attention(tt_builder *b, const config *c, tt_value *x) /* x [T,D] */
{
    const int64_t hd = c->dim / c->heads;
    tt_rope_opts rope = {.head_dim = hd};
    tt_linear_opts biased = {.bias = 1};
    tt_value *pos = tt_input(b, "pos");
    tt_value *all = tt_linear(
        b, x, "qkv",
        c->by_head ? TT_DIM_UNIT(3 * c->dim, "heads", 3 * hd) : TT_DIM(3 * c->dim, NULL), &biased);
    tt_value *q = tt_rope(b, part(b, c, all, 0), pos, &rope),
             *k = tt_rope(b, part(b, c, all, 1), pos, &rope);
    return tt_linear(b, tt_attention(b, q, k, part(b, c, all, 2), hd, NULL), "out",
                     TT_DIM(c->dim, "embed"), NULL);
}

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = cfg;
    const tt_dim D = TT_DIM(c->dim, "embed"), V = TT_DIM(c->vocab, "vocab");
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed_tokens", V, D, NULL); /* [T,D] */
    for (int64_t i = 0; i < c->layers; i++) {
        tt_block(b, "layers.%lld", (long long)i);
        x = tt_add(b, x, attention(b, c, tt_rms_norm(b, x, "input_norm", 1e-5)));
        tt_block_end(b);
    }
    tt_output(b, "logits", tt_linear(b, tt_rms_norm(b, x, "norm", 1e-5), "lm_head", V, NULL));
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
static const tt_model_vt vt = {sizeof vt, &size, 1, NULL, describe, vocab, width, "n_layers"};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_MODEL, "fused_qkv", "one weight for q, k and v", config, options, &vt)};
TT_PLUGIN("fused_qkv", "1.0", components);
