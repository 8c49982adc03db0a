/* SPDX-License-Identifier: Apache-2.0 */
/* A model with buffers: running means that its forward reads, updated once per step. Built and used
 * by test_buffers.sh. */
#include <ttrun/model.h>

typedef struct {
    int64_t dim, layers, heads, ffn, vocab;
} config;

static const tt_option options[] = {
    TT_OPTION(config, dim, TT_OPT_INT, "32", 2, 65536, "width"),
    TT_OPTION(config, layers, TT_OPT_INT, "4", 1, 1000, "blocks"),
    TT_OPTION(config, heads, TT_OPT_INT, "4", 1, 1024, "heads"),
    TT_OPTION(config, ffn, TT_OPT_INT, "48", 1, 65536, "MLP width"),
    TT_OPTION(config, vocab, TT_OPT_INT, "262", 1, 100000000, "tokens"),
};

/* 0.9 old + 0.1 new */
static tt_value *running(tt_builder *b, tt_value *buffer, tt_value *stat, void *user)
{
    (void)user;
    return tt_add(b, tt_scale(b, buffer, 0.9), tt_scale(b, stat, 0.1));
}

static tt_value *count(tt_builder *b, tt_value *buffer, tt_value *stat, void *user)
{
    (void)user;
    return tt_add(b, buffer, stat);
}

/* What is left of the sum over 2^20 tokens' worth of its statistic, if no unit of it was lost. */
static tt_value *units(tt_builder *b, tt_value *buffer, tt_value *stat, void *user)
{
    (void)buffer;
    (void)user;
    return tt_cast(b, tt_mod(b, stat, tt_const(b, 1048576, TT_F64)), TT_F32);
}

/* x [T,…] minus the running mean of its rows */
static tt_value *centered(tt_builder *b, tt_value *x, const char *name, tt_dim dim)
{
    tt_value *mean = tt_buffer(b, name, &dim, 1, NULL);
    tt_buffer_update(b, mean, tt_mean(b, x, 0, 0), running, NULL);
    return tt_sub(b, x, mean);
}

static tt_value *attention(tt_builder *b, const config *c, tt_value *x)
{
    const int64_t hd = c->dim / c->heads;
    const tt_dim H = TT_DIM_UNIT(c->dim, "heads", hd);
    tt_value *y =
        tt_attention(b, tt_linear(b, x, "q_proj", H, NULL), tt_linear(b, x, "k_proj", H, NULL),
                     tt_linear(b, x, "v_proj", H, NULL), hd, NULL);
    return tt_linear(b, y, "o_proj", TT_DIM(c->dim, "embed"), NULL);
}

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = (const config *)cfg;
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->ffn, "ffn");
    const tt_dim V = TT_DIM(c->vocab, "vocab");
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed_tokens", V, D, NULL);
    /* one that every block reads, and that the last block's statistic becomes */
    tt_buffer_opts start = TT_ZERO;
    start.init.kind = TT_INIT_CONSTANT;
    start.init.a = 0.5;
    tt_value *shared = tt_buffer(b, "shared", &D, 1, &start);
    for (int64_t i = 0; i < c->layers; i++) {
        tt_block(b, "layers.%lld", (long long)i);
        x = tt_add(b, x, attention(b, c, tt_rms_norm(b, x, "input_norm", 1e-5)));
        tt_value *h = tt_rms_norm(b, tt_add(b, x, shared), "post_norm", 1e-5);
        h = tt_silu(b, centered(b, tt_linear(b, h, "up", F, NULL), "mean", F)); /* cut over tp */
        x = tt_add(b, x, centered(b, tt_linear(b, h, "down", D, NULL), "out_mean", D));
        if (i == c->layers - 1)
            tt_buffer_update(b, shared, tt_mean(b, x, 0, 0), running, NULL);
        tt_block_end(b);
    }
    tt_value *steps = tt_buffer(b, "steps", NULL, 0, NULL);
    tt_buffer_update(b, steps, tt_const(b, 1, TT_F32), count, NULL);
    tt_value *sum = tt_buffer(b, "units", NULL, 0, NULL);
    const double each = 16777217; /* an f32 has no such number */
    tt_buffer_update_sum(b, sum, tt_const(b, each * (double)tt_value_type(x)->dims[0].size, TT_F64),
                         units, NULL);
    x = tt_rms_norm(b, x, "norm", 1e-5);
    tt_value *logits = tt_linear(b, x, "lm_head", V, NULL);
    /* so that a difference of the counter would show */
    tt_output(b, "logits",
              tt_mul(b, logits, tt_add(b, tt_const(b, 1, TT_F32), tt_scale(b, steps, 0.01))));
}

static int64_t vocab_size(const void *cfg)
{
    return ((const config *)cfg)->vocab;
}

static int64_t attention_width(const void *cfg)
{
    return 2 * ((const config *)cfg)->layers * ((const config *)cfg)->dim;
}

static const tt_flavor size = {"debugmodel", "{}"};
static const tt_model_vt vt = {sizeof(vt), &size, 1, NULL, describe, vocab_size, attention_width};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_MODEL, "buffered", "running means", config, options, &vt),
};
TT_PLUGIN("buffers", "1.0", components);
