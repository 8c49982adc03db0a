/* SPDX-License-Identifier: Apache-2.0 */
/* retnet: retention written from ops, with causal decay per head and a mask of documents. T tokens,
 * B sequences of S tokens, H heads of hd. Sun et al. 2023, arXiv:2307.08621. With the option
 * one_op the model calls the op "retention" instead. That op has no kernel; its local decomposition
 * consists of the same ops. */
#include <math.h>
#include <stdlib.h>
#include <ttrun/model.h>
#include <ttrun/op.h>

#ifndef ONE_OP
#define ONE_OP "false" /* the default of the option */
#endif

typedef struct {
    int64_t dim, layers, heads, hidden, vocab;
    bool one_op;
} config;

static const tt_option options[] = {
    {"dim",        "width",  TT_OPT_INT,  offsetof(config, dim),    "32",   2, 65536, NULL, 0, NULL},
    {"n_layers",   "blocks", TT_OPT_INT,  offsetof(config, layers), "2",    1, 1000,  NULL, 0, NULL},
    {"n_heads",    "heads",  TT_OPT_INT,  offsetof(config, heads),  "4",    1, 1024,  NULL, 0, NULL},
    {"hidden_dim", "MLP",    TT_OPT_INT,  offsetof(config, hidden), "48",   1, 1e6,   NULL, 0, NULL},
    {"vocab_size", "tokens", TT_OPT_INT,  offsetof(config, vocab),  "262",  1, 1e8,   NULL, 0, NULL},
    {"one_op",     "op",     TT_OPT_BOOL, offsetof(config, one_op), ONE_OP, 0, 0,     NULL, 0, NULL},
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
static tt_value *one_document(tt_builder *b, tt_value *seg)
{
    const tt_dim one = TT_DIM(1, NULL), B = sequences(seg), S = positions(seg);
    const tt_dim query[4] = {B, one, S, one}, key[4] = {B, one, one, S};
    return tt_cast(b, tt_equal(b, tt_reshape(b, seg, query, 4), tt_reshape(b, seg, key, 4)),
                   TT_F32);
}

/* q, k, v [T, H*hd], seg [T] → [T, H*hd]: in[0] to in[3] */
static tt_value *retention(tt_builder *b, tt_value *const *in)
{
    static const int perm[4] = {0, 2, 1, 3};
    const tt_type *t = tt_value_type(in[0]);
    const tt_dim hd = TT_DIM(t->dims[1].unit, NULL);
    const tt_dim H = TT_DIM(t->dims[1].size / hd.size, "heads");
    tt_value *q = apart(b, in[0], H, hd), *k = apart(b, in[1], H, hd), *v = apart(b, in[2], H, hd);
    tt_value *s = tt_scale(b, tt_matmul(b, q, k, 0, 1), 1.0 / sqrt((double)hd.size));
    s = tt_mul(b, decay_of(b, H, positions(in[0])), tt_mul(b, s, one_document(b, in[3])));
    tt_value *y = tt_transpose(b, tt_matmul(b, tt_cast(b, s, t->dtype), v, 0, 0), perm);
    return tt_reshape(b, y, t->dims, 2);
}

static tt_value *mix(tt_builder *b, const config *c, tt_value *x)
{
    const tt_dim both = TT_DIM_UNIT(c->dim, "heads", c->dim / c->heads);
    tt_value *in[4] = {tt_linear(b, x, "q_proj", both, NULL), tt_linear(b, x, "k_proj", both, NULL),
                       tt_linear(b, x, "v_proj", both, NULL), tt_input(b, "seg")};
    tt_value *y = NULL;
    if (c->one_op)
        tt_op(b, "retention", in, 4, NULL, &y, 1);
    else
        y = retention(b, in);
    return tt_linear(b, y, "o_proj", TT_DIM(c->dim, "embed"), NULL);
}

/* ---- the op ---- */

static tt_status infer(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    if (q->n_in != 4 || q->in[0]->n_dims != 2 || q->in[3]->n_dims != 1)
        return TT_FAIL(err, TT_EINVAL, "%s: operands are q, k, v [T, H*hd] and seg [T]", q->op);
    out[0] = *q->in[0];
    return TT_OK;
}

static void decompose(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs)
{
    (void)q;
    outs[0] = retention(b, in);
}

/* Whole sequences (b) and heads (h) may be on different ranks, the positions of a sequence (q) not. */
#define RULE "t=(b !q) h, t=(b !q) h, t=(b !q) h, t=(b !q) -> t=(b !q) h"

static const tt_op_def def =
    TT_OP_DEF("retention", "decayed linear attention", RULE,
              TT_OP_LOCAL | TT_OP_MIXES_TOKENS | TT_OP_ORDERED, infer, NULL, decompose, NULL);
static const tt_op_vt op_vt = {sizeof(op_vt), &def};

/* ---- the model ---- */

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
        x = tt_add(b, x, mix(b, c, h));
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
    TT_COMPONENT_PLAIN(TT_KIND_OP, "retention", "decayed linear attention", &op_vt),
};
TT_PLUGIN("retnet", "0.1", components);
