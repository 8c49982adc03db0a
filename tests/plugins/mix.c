/* SPDX-License-Identifier: Apache-2.0 */
/* mix: a model of attention and mixtures of experts: softmax router, top k, SwiGLU experts with a bias, a shared layer. T
 * tokens, D width, F hidden width. With `skew` all tokens go to the first experts; with `turned` an op gets
 * operands whose first dim is not the rows. Built by test_experts.sh against the public headers alone. */
#include <ttrun/model.h>

typedef struct {
    int64_t dim, hidden, layers, heads, experts, top_k, vocab;
    int skew, turned;
} config;

static const tt_option options[] = {
    TT_OPTION(config, dim, TT_OPT_INT, "32", 1, 4096, "width"),
    TT_OPTION(config, hidden, TT_OPT_INT, "24", 1, 4096, "width of an expert"),
    TT_OPTION(config, layers, TT_OPT_INT, "2", 1, 64, "blocks"),
    TT_OPTION(config, heads, TT_OPT_INT, "4", 1, 64, "heads"),
    TT_OPTION(config, experts, TT_OPT_INT, "8", 1, 64, "experts"),
    TT_OPTION(config, top_k, TT_OPT_INT, "2", 1, 64, "experts per token"),
    TT_OPTION(config, vocab, TT_OPT_INT, "262", 1, 1e6, "tokens"),
    TT_OPTION(config, skew, TT_OPT_BOOL, "false", 0, 0, "all tokens go to the first experts"),
    TT_OPTION(config, turned, TT_OPT_BOOL, "false", 0, 0,
              "a dim of an expert's values stands before the rows"),
};
static const tt_flavor flavors[] = {
    {"debugmodel", "{}"}
};

typedef struct {
    tt_value *gate, *up, *down, *bias;
    int turned;
} weights;

static tt_value *expert(tt_builder *b, const tt_expert_rows *rows, const void *user)
{
    const weights *w = (const weights *)user;
    tt_value *g = tt_silu(b, tt_grouped_linear(b, rows->x, w->gate, rows->counts));
    g = tt_mul(b, g, tt_grouped_linear(b, rows->x, w->up, rows->counts));
    if (w->turned) {
        static const int perm[2] = {1, 0};
        g = tt_transpose(b, tt_tanh(b, tt_transpose(b, g, perm)), perm);
    }
    const tt_dim *d = tt_value_type(g)->dims, pairs[3] = {d[0], TT_DIM(1, NULL), d[1]};
    g = tt_reshape(b, tt_reshape(b, g, pairs, 3), d, 2); /* names the number of rows */
    return tt_add(b, tt_grouped_linear(b, g, w->down, rows->counts),
                  tt_gather(b, w->bias, rows->expert));
}

static tt_value *mixture(tt_builder *b, const config *c, tt_value *x)
{
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->hidden, "ffn"),
                 E = TT_DIM(c->experts, "experts");
    const tt_dim in[3] = {E, F, D}, out[3] = {E, D, F}, of[2] = {E, D};
    tt_value *p = tt_softmax(b, tt_linear(b, x, "router", TT_DIM(c->experts, NULL), NULL)), *best,
             *id;
    weights w;
    w.turned = c->turned;
    w.gate = tt_param(b, "gate", in, 3, NULL);
    w.up = tt_param(b, "up", in, 3, NULL);
    w.down = tt_param(b, "down", out, 3, NULL);
    w.bias = tt_param(b, "bias", of, 2, NULL);
    tt_top_k(b, p, c->top_k, &best, &id);
    if (c->skew)
        id = tt_mul(b, id, tt_const(b, 0.0, TT_I32));
    return tt_experts(b, x, id, best, c->experts, expert, &w);
}

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = (const config *)cfg;
    const int64_t hd = c->dim / c->heads;
    const tt_dim D = TT_DIM(c->dim, "embed"), V = TT_DIM(c->vocab, "vocab");
    const tt_dim H = TT_DIM_UNIT(c->heads * hd, "heads", hd),
                 K = TT_DIM_UNIT(c->heads * hd, "kv_heads", hd);
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed_tokens", V, D, NULL);
    for (int64_t i = 0; i < c->layers; i++) {
        tt_block(b, "layers.%lld", (long long)i);
        tt_value *h = tt_rms_norm(b, x, "norm1", 1e-5);
        tt_value *q = tt_linear(b, h, "q", H, NULL), *k = tt_linear(b, h, "k", K, NULL),
                 *v = tt_linear(b, h, "v", K, NULL);
        x = tt_add(b, x, tt_linear(b, tt_attention(b, q, k, v, hd, NULL), "o", D, NULL));
        h = tt_rms_norm(b, x, "norm2", 1e-5);
        tt_value *shared = tt_linear(b, h, "shared", D, NULL);
        x = tt_add(b, x, tt_add(b, shared, mixture(b, c, h)));
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
    return ((const config *)cfg)->dim;
}

static const tt_model_vt vt = {
    sizeof(vt), flavors, 1, NULL, describe, vocab_size, attention_width, NULL,
};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_MODEL, "mix", "attention and experts", config, options, &vt),
};
TT_PLUGIN("mix", "0.1", components);
