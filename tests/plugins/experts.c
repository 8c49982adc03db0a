/* SPDX-License-Identifier: Apache-2.0 */
/* experts: a model whose MLP has a weight for each of E experts; a token goes to expert id mod E, and
 * through a layer that all share. T
 * tokens, D width, F hidden width. Built by test_products.sh against the public headers alone. */
#include <ttrun/model.h>

typedef struct {
    int64_t dim, hidden, experts, vocab;
} config;

static const tt_option options[] = {
    TT_OPTION(config, dim, TT_OPT_INT, "32", 1, 4096, "width"),
    TT_OPTION(config, hidden, TT_OPT_INT, "48", 1, 4096, "width of an expert"),
    TT_OPTION(config, experts, TT_OPT_INT, "4", 1, 64, "experts"),
    TT_OPTION(config, vocab, TT_OPT_INT, "262", 1, 1e6, "tokens"),
};
static const tt_flavor flavors[] = {
    {"debugmodel", "{}"}
};

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = (const config *)cfg;
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->hidden, "ffn");
    const tt_dim E = TT_DIM(c->experts, NULL), V = TT_DIM(c->vocab, "vocab");
    const tt_dim up[3] = {E, F, D}, down[3] = {E, D, F};
    const tt_param_opts tagged = {.tags = "experts,first"}, plain = {.tags = "experts"};
    tt_value *ids = tt_input(b, "ids"), *order, *counts;
    tt_value *x = tt_embedding(b, ids, "embed_tokens", V, D, NULL);
    const tt_dim T = tt_value_type(x)->dims[0];
    const tt_dim one[2] = {T, TT_DIM(1, NULL)};
    tt_block(b, "layers.0");
    tt_value *n = tt_const(b, (double)c->experts, TT_I32);
    tt_expert_sort(b, tt_reshape(b, tt_mod(b, ids, n), one, 2), c->experts, &order, &counts);
    tt_value *h = tt_rms_norm(b, x, "norm", 1e-5);
    x = tt_add(b, x, tt_linear(b, h, "shared", D, NULL));
    tt_value *rows = tt_gather(b, h, order);
    rows = tt_silu(b, tt_grouped_linear(b, rows, tt_param(b, "up", up, 3, &tagged), counts));
    rows = tt_grouped_linear(b, rows, tt_param(b, "down", down, 3, &plain), counts);
    x = tt_add(b, x, tt_scatter_add(b, rows, order, T));
    tt_block_end(b);
    tt_output(b, "logits", tt_linear(b, tt_rms_norm(b, x, "norm", 1e-5), "lm_head", V, NULL));
}

static int64_t vocab_size(const void *cfg)
{
    return ((const config *)cfg)->vocab;
}

static int64_t attention_width(const void *cfg)
{
    (void)cfg;
    return 0;
}

static const tt_model_vt vt = {
    sizeof(vt), flavors, 1, NULL, describe, vocab_size, attention_width, NULL,
};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_MODEL, "experts", "experts", config, options, &vt),
};
TT_PLUGIN("experts", "0.1", components);
