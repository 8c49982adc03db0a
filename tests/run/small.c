/* SPDX-License-Identifier: Apache-2.0 */
/* A model, an optimizer and a converter with the smaller things of the SDK: numbers to log, dropout,
 * arrays of constants, names in an update. Built and used by test_sdk.sh. */
#include <string.h>
#include <ttrun/converter.h>
#include <ttrun/model.h>
#include <ttrun/optimizer.h>

typedef struct {
    double drop;
    bool table; /* SDK headers bring bool */
} config;

static const tt_option options[] = {
    TT_OPTION(config, drop, TT_OPT_FLOAT, "0", 0, 2, "dropout"),
    TT_OPTION(config, table, TT_OPT_BOOL, "false", 0, 0, "add an array of constants"),
};

static tt_value *scaled(tt_builder *b, const config *c, tt_value *x, tt_dim F)
{
    float values[48];
    for (int i = 0; i < 48; i++)
        values[i] = c->table ? (float)(i % 5) / 4 : 0.5f;
    tt_value *one = tt_const_array(b, values, &F, 1);
    return tt_mul(b, x, c->table ? one : tt_const(b, 0.5, TT_F32));
}

/* A number that has a bit for every element of a mask of tokens, exactly in f32: the elements that are drawn,
 * weighted by position and feature. */
static tt_value *drawn(tt_builder *b)
{
    float values[32];
    for (int i = 0; i < 32; i++)
        values[i] = (float)(i % 7);
    const tt_dim D = TT_DIM(32, "embed"), T = tt_value_type(tt_input(b, "pos"))->dims[0];
    const tt_dim mask[] = {T, D}, column[] = {T, TT_DIM(1, NULL)};
    tt_value *at = tt_reshape(b, tt_cast(b, tt_input(b, "pos"), TT_F32), column, 2);
    tt_value *less = tt_less(b, tt_random(b, mask, 2, "mask", 0), tt_const(b, 0.5, TT_F32));
    tt_value *w = tt_mul(b, at, tt_const_array(b, values, &D, 1));
    tt_value *x = tt_select(b, less, w, tt_const(b, 0, TT_F32));
    return tt_mean(b, tt_mean(b, x, 0, 0), 0, 0);
}

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = (const config *)cfg;
    const tt_dim D = TT_DIM(32, "embed"), F = TT_DIM(48, "ffn"), V = TT_DIM(262, "vocab");
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed_tokens", V, D, NULL);
    for (int i = 0; i < 4; i++) {
        tt_block(b, "layers.%d", i);
        tt_value *h = tt_linear(b, tt_rms_norm(b, x, "norm", 1e-5), "up", F, NULL);
        h = tt_dropout(b, tt_silu(b, scaled(b, c, h, F)), c->drop, "drop");
        if (i == 1)
            tt_log_metric(b, "mean/up", tt_mean(b, tt_mean(b, h, 0, 0), 0, 0));
        x = tt_add(b, x, tt_linear(b, h, "down", D, NULL));
        tt_block_end(b);
    }
    if (c->drop > 0)
        tt_log_metric(b, "drawn", drawn(b));
    tt_loss_term(b, "size", tt_mean(b, tt_mean(b, tt_mul(b, x, x), 0, 0), 0, 0), 1e-3);
    tt_output(b, "logits", tt_linear(b, tt_rms_norm(b, x, "norm", 1e-5), "lm_head", V, NULL));
}

static int64_t vocab_size(const void *cfg)
{
    (void)cfg;
    return 262;
}
static const tt_flavor size = {"debugmodel", "{}"};
static const tt_model_vt model_vt = {sizeof(model_vt), &size,      1,         NULL,
                                     describe,         vocab_size, vocab_size};

typedef struct {
    double lr, decay;
} rates;

static const tt_option rate_options[] = {
    TT_OPTION(rates, lr, TT_OPT_FLOAT, "1e-2", 0, 1e3, "rate"),
    {"weight_decay", "unused", TT_OPT_FLOAT, offsetof(rates, decay), "0", 0, 1, NULL, 0, NULL},
};

/* Gradient descent that leaves norms alone, which it knows by their tag and name. */
static void describe_update(const void *cfg, tt_builder *b, const tt_update *u)
{
    (void)cfg;
    for (int64_t i = 0; i < u->n_params; i++)
        if (strstr(u->tags[i], "norm")) {
            if (!strstr(u->names[i], "norm.weight"))
                tt_builder_fail(b, TT_EINVAL, "%s has the tag of a norm", u->names[i]);
            return;
        }
    tt_assign(b, u->param, tt_sub(b, u->param, tt_mul(b, tt_cast(b, u->lr, TT_F32), u->grad)));
}
static const tt_optimizer_vt optimizer_vt = {sizeof(optimizer_vt), describe_update, NULL};

/* Converts one layer only, found by its full name. */
static tt_value *linear(const void *cfg, tt_builder *b, const char *name, tt_value *x, tt_value *w)
{
    (void)cfg;
    if (strcmp(name, "layers.2.up.weight") != 0)
        return NULL;
    return tt_scale(b, tt_linear_w(b, x, w), 0.0);
}
static const tt_converter_vt converter_vt = {.struct_size = sizeof(converter_vt), .linear = linear};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_MODEL, "small", "a model", config, options, &model_vt),
    TT_COMPONENT(TT_KIND_OPTIMIZER, "small", "descent", rates, rate_options, &optimizer_vt),
    TT_COMPONENT_PLAIN(TT_KIND_CONVERTER, "small", "one layer", &converter_vt),
};
TT_PLUGIN_LICENSED("small", "1.0", "MIT", components);
