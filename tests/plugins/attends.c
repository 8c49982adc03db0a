/* SPDX-License-Identifier: Apache-2.0 */
/* attends: a decoder whose attention is of a form that no shipped model has: with ALiBi's bias, with T5's
 * learned one, as a prefix-LM, or over every second token of the sample (pooled). */
#include <string.h>
#include <ttrun/model.h>

typedef struct {
    int64_t dim, layers, heads, kv_heads, vocab, length;
    const char *form;
} config;

static const tt_option options[] = {
    {"dim",        "width",        TT_OPT_INT,  offsetof(config, dim),      "32",        2, 65536, NULL, 0, NULL},
    {"n_layers",   "blocks",       TT_OPT_INT,  offsetof(config, layers),   "2",         1, 1000,  NULL, 0, NULL},
    {"n_heads",    "heads",        TT_OPT_INT,  offsetof(config, heads),    "4",         1, 1024,  NULL, 0, NULL},
    {"n_kv_heads", "kv heads",     TT_OPT_INT,  offsetof(config, kv_heads), "2",         1, 1024,  NULL, 0, NULL},
    {"vocab_size", "tokens",       TT_OPT_INT,  offsetof(config, vocab),    "262",       1, 1e8,   NULL, 0, NULL},
    {"max_length", "positions",    TT_OPT_INT,  offsetof(config, length),   "256",       1, 1e6,   NULL, 0, NULL},
    {"form",       "of attention", TT_OPT_ENUM, offsetof(config, form),     "\"alibi\"", 0, 0,
     "alibi|t5|prefix|pooled",                                                                           0, NULL},
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

static bool is(const config *c, const char *form)
{
    return strcmp(c->form, form) == 0;
}

/* Every second token of each sequence: [T, …] → [T/2, …]. */
static tt_value *every_second(tt_builder *b, tt_value *x)
{
    const tt_type *t = tt_value_type(x);
    const tt_dim T = t->dims[0], width = t->n_dims > 1 ? t->dims[1] : TT_DIM(1, NULL);
    const tt_dim apart[4] = {TT_DIM(T.lines, "sequences"), TT_DIM(T.size / T.lines / 2, NULL),
                             TT_DIM(2, NULL), width};
    const tt_dim joined[2] = {tt_dim_make(T.size / 2, "tokens", 1, T.lines), width};
    x = tt_slice(b, tt_reshape(b, x, apart, t->n_dims + 2), 2, 0, 1);
    return tt_reshape(b, x, joined, t->n_dims);
}

static tt_value *attend(tt_builder *b, const config *c, tt_value *x, tt_value *bias)
{
    const int64_t hd = c->dim / c->heads;
    const tt_dim Q = TT_DIM_UNIT(c->dim, "heads", hd),
                 K = TT_DIM_UNIT(c->kv_heads * hd, "kv_heads", hd);
    tt_attention_opts opts = {.scale = is(c, "t5") ? 1.0 : 0.0, .bias = bias};
    tt_value *from = x, *q = tt_linear(b, x, "q_proj", Q, NULL);
    if (is(c, "prefix"))
        opts.prefix = tt_const(b, 5, TT_I32);
    if (is(c, "pooled")) {
        from = every_second(b, x);
        opts.pos_k = every_second(b, tt_input(b, "pos"));
        opts.seg_k = every_second(b, tt_input(b, "seg"));
    }
    tt_value *k = tt_linear(b, from, "k_proj", K, NULL), *v = tt_linear(b, from, "v_proj", K, NULL);
    tt_value *y = tt_attention(b, q, k, v, hd, &opts);
    return tt_linear(b, y, "o_proj", TT_DIM(c->dim, "embed"), NULL);
}

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = (const config *)cfg;
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(2 * c->dim, "ffn"),
                 H = TT_DIM(c->heads, "heads");
    const tt_dim V = TT_DIM(c->vocab, "vocab");
    const tt_t5_bias_opts t5 = {
        .buckets = 8, .max_distance = 20, .init = {TT_INIT_NORMAL, 0.5, 0, 0}
    };
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed_tokens", V, D, NULL);
    tt_value *bias = is(c, "alibi") ? tt_alibi(b, H, c->length, 0)
                     : is(c, "t5")  ? tt_t5_bias(b, "relative_bias", H, c->length, &t5)
                                    : NULL;
    for (int64_t i = 0; i < c->layers; i++) {
        tt_block(b, "layers.%lld", (long long)i);
        tt_value *h = tt_rms_norm(b, x, "norm", 1e-5);
        tt_value *f = tt_silu(b, tt_linear(b, h, "up_proj", F, NULL));
        x = tt_add(b, x, attend(b, c, h, bias));
        x = tt_add(b, x, tt_linear(b, f, "down_proj", D, NULL));
        tt_block_end(b);
    }
    tt_output(b, "logits", tt_linear(b, tt_rms_norm(b, x, "norm", 1e-5), "lm_head", V, NULL));
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
    TT_COMPONENT(TT_KIND_MODEL, "attends", "unusual forms of attention", config, options, &vt),
};
TT_PLUGIN("attends", "0.1", components);
