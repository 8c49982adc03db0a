/* SPDX-License-Identifier: Apache-2.0 */
/* gla: gated linear attention after a short convolution, written from the recurrence. T tokens, H heads
 * with a state [dk, dv] each: S[t] = g[t] S[t-1] + k[t] vᵀ[t], o[t] = Sᵀ[t] q[t]. Every second block
 * has one fixed decay a head instead of gates, as RetNet has. Yang et al. 2023, arXiv:2312.06635. With
 * WHOLE the model also looks at whole sequences, so generation computes the context for every token. */
#include <math.h>
#include <ttrun/model.h>

typedef struct {
    int64_t dim, layers, heads, key, hidden, vocab;
} config;

static const tt_option options[] = {
    {"dim",        "width",         TT_OPT_INT, offsetof(config, dim),    "32",  2, 65536, NULL, 0, NULL},
    {"n_layers",   "blocks",        TT_OPT_INT, offsetof(config, layers), "2",   1, 1000,  NULL, 0, NULL},
    {"n_heads",    "heads",         TT_OPT_INT, offsetof(config, heads),  "4",   1, 1024,  NULL, 0, NULL},
    {"key_dim",    "keys per head", TT_OPT_INT, offsetof(config, key),    "6",   1, 1024,  NULL, 0, NULL},
    {"hidden_dim", "MLP",           TT_OPT_INT, offsetof(config, hidden), "48",  1, 1e6,   NULL, 0, NULL},
    {"vocab_size", "tokens",        TT_OPT_INT, offsetof(config, vocab),  "262", 1, 1e8,   NULL, 0, NULL},
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

/* x [T,D] → [T, H, rows, columns], of which one is 1 */
static tt_value *heads_of(tt_builder *b, tt_value *x, const char *name, tt_dim H, int64_t rows,
                          int64_t columns)
{
    const tt_dim joined = TT_DIM_UNIT(H.size * rows * columns, "heads", rows * columns);
    const tt_dim dims[4] = {tt_value_type(x)->dims[0], H, TT_DIM(rows, NULL),
                            TT_DIM(columns, NULL)};
    return tt_reshape(b, tt_linear(b, x, name, joined, NULL), dims, 4);
}

/* 1 - 2^(-2-h) of head h, [1,H,1,1] */
static tt_value *fixed_decay(tt_builder *b, tt_dim H)
{
    const tt_dim one = TT_DIM(1, NULL), dims[4] = {one, H, one, one};
    float decay[1024];
    for (int64_t h = 0; h < H.size; h++)
        decay[h] = 1.0f - ldexpf(1.0f, -2 - (int)h);
    return tt_const_array(b, decay, dims, 4);
}

static tt_value *mix(tt_builder *b, const config *c, tt_value *x, int64_t layer)
{
    const tt_dim T = tt_value_type(x)->dims[0], D = TT_DIM(c->dim, "embed"),
                 H = TT_DIM(c->heads, "heads"), taps[2] = {D, TT_DIM(3, NULL)},
                 joined[2] = {T, TT_DIM_UNIT(c->dim, "heads", c->dim / c->heads)};
    const tt_param_opts po = {
        .init = {TT_INIT_NORMAL, 0.3, 0, 0}
    };
    x = tt_silu(b, tt_conv1d(b, x, tt_param(b, "taps", taps, 2, &po)));
    tt_value *q = heads_of(b, x, "q_proj", H, c->key, 1),
             *k = heads_of(b, x, "k_proj", H, c->key, 1),
             *v = heads_of(b, x, "v_proj", H, 1, c->dim / c->heads);
    tt_value *g =
        layer % 2 ? fixed_decay(b, H) : tt_sigmoid(b, heads_of(b, x, "g_proj", H, c->key, 1));
    tt_value *s = tt_scan(b, g, tt_mul(b, k, v)); /* [T, H, dk, dv] */
    tt_value *o = tt_scale(b, tt_sum(b, tt_mul(b, q, s), 2, 0), 1.0 / sqrt((double)c->key));
    return tt_linear(b, tt_reshape(b, o, joined, 2), "o_proj", D, NULL);
}

static tt_value *look_at_sequences(tt_builder *b, tt_value *x)
{
#ifdef WHOLE
    const tt_dim T = tt_value_type(x)->dims[0], D = tt_value_type(x)->dims[1], both[2] = {T, D};
    const tt_dim dims[3] = {TT_DIM(T.lines, NULL), TT_DIM(T.size / T.lines, NULL), D};
    return tt_reshape(b, tt_scale(b, tt_reshape(b, x, dims, 3), 1.0), both, 2);
#else
    return (void)b, x;
#endif
}

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = (const config *)cfg;
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->hidden, "ffn");
    const tt_dim V = TT_DIM(c->vocab, "vocab");
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed_tokens", V, D, NULL);
    for (int64_t i = 0; i < c->layers; i++) {
        tt_block(b, "layers.%lld", (long long)i);
        x = tt_add(b, x, mix(b, c, tt_rms_norm(b, look_at_sequences(b, x), "norm", 1e-5), i));
        tt_value *f = tt_linear(b, tt_rms_norm(b, x, "mlp_norm", 1e-5), "up_proj", F, NULL);
        x = tt_add(b, x, tt_linear(b, tt_silu(b, f), "down_proj", D, NULL));
        tt_block_end(b);
    }
    x = tt_rms_norm(b, x, "norm", 1e-5);
    tt_output(b, "logits", tt_linear(b, x, "lm_head", V, NULL));
}

static int64_t vocab_size(const void *cfg)
{
    return ((const config *)cfg)->vocab;
}

static int64_t attention_width(const void *cfg) /* no attention */
{
    return (void)cfg, 0;
}

static const tt_model_vt vt = {
    sizeof(vt), flavors,    TT_COUNT(flavors), finish,
    describe,   vocab_size, attention_width,   "n_layers",
};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_MODEL, "gla", "gated linear attention", config, options, &vt),
};
TT_PLUGIN("gla", "0.1", components);
