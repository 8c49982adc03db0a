/* SPDX-License-Identifier: Apache-2.0 */
/* places: a decoder with one more term per block, written from ops. Most forms depend on a token's place
 * in the token dim, which context parallelism may change; the last ones do not. T tokens, B sequences of
 * S tokens, D width. */
#include <stdlib.h>
#include <string.h>
#include <ttrun/model.h>
#include <ttrun/ops.h>

typedef struct {
    int64_t dim, layers, vocab;
    const char *form;
} config;

#define FORMS                                                                                      \
    "shift|pad|roll|cumsum|max|iota|constant|reshape|lines|gather|lookup|pick|largest|transposed|" \
    "random|random_rows|flat|custom|heads|broadcast|sums|pairs|positions"

static const tt_option options[] = {
    {"dim",        "width",  TT_OPT_INT,  offsetof(config, dim),    "32",        2, 65536, NULL,  0, NULL},
    {"n_layers",   "blocks", TT_OPT_INT,  offsetof(config, layers), "2",         1, 1000,  NULL,  0, NULL},
    {"vocab_size", "tokens", TT_OPT_INT,  offsetof(config, vocab),  "262",       1, 1e8,   NULL,  0, NULL},
    {"form",       "which",  TT_OPT_ENUM, offsetof(config, form),   "\"shift\"", 0, 0,     FORMS, 0, NULL},
};
static const tt_flavor flavors[] = {
    {"debugmodel", "{}"}
};

/* v [n] as [n, 1] or [1, n] */
static tt_value *column(tt_builder *b, tt_value *v, int row)
{
    const tt_dim n = tt_value_type(v)->dims[0], one = TT_DIM(1, NULL),
                 dims[2] = {row ? one : n, row ? n : one};
    return tt_reshape(b, v, dims, 2);
}

/* 1/n, 2/n, … 1 as a constant [n, 1] */
static tt_value *ramp(tt_builder *b, tt_dim n)
{
    const tt_dim dims[2] = {n, TT_DIM(1, NULL)};
    float *v = (float *)malloc((size_t)n.size * sizeof(float));
    if (!v)
        return tt_builder_fail(b, TT_ENOMEM, "no memory for the constant");
    for (int64_t i = 0; i < n.size; i++)
        v[i] = (float)(i + 1) / (float)n.size;
    tt_value *c = tt_const_array(b, v, dims, 2);
    free(v);
    return c;
}

/* x of the token before in the batch, as a model of one sequence per batch may write it */
static tt_value *shifted(tt_builder *b, tt_value *x, int64_t T)
{
    tt_value *parts[2] = {tt_slice(b, x, 0, T - 1, T), tt_slice(b, x, 0, 0, T - 1)};
    const tt_type *t = tt_value_type(x);
    return tt_reshape(b, tt_concat(b, parts, 2, 0), t->dims, t->n_dims);
}

static tt_value *twice(tt_builder *b, tt_value *const *xs, int n, void *user)
{
    (void)n;
    (void)user;
    return tt_scale(b, xs[0], 2.0);
}

/* Gives later tokens more gradient. */
static void by_place(tt_builder *b, tt_value *const *xs, int n, tt_value *y, tt_value *dy,
                     tt_value **dxs, void *user)
{
    (void)n;
    (void)y;
    (void)user;
    const tt_dim rows = TT_DIM(tt_value_type(xs[0])->dims[0].size, NULL);
    dxs[0] = tt_mul(b, dy, column(b, tt_scale(b, tt_iota(b, &rows, 1, 0, TT_F32), 0.05), 0));
}

/* Forms that depend on the places of tokens. x [T,D] */
static tt_value *by_places(tt_builder *b, const char *form, tt_value *x)
{
    const tt_type *t = tt_value_type(x);
    const tt_dim T = t->dims[0], D = t->dims[1], lines = TT_DIM(T.lines, NULL),
                 S = TT_DIM(T.size / T.lines, NULL), one = TT_DIM(1, NULL);
    const tt_dim apart[3] = {lines, S, D}, swapped[2] = {D, TT_DIM(T.size, NULL)};
    const int perm[2] = {1, 0};
    tt_value *ids = tt_input(b, "ids");
    if (!strcmp(form, "shift"))
        return shifted(b, x, T.size);
    if (!strcmp(form, "pad"))
        return tt_reshape(b, tt_slice(b, tt_pad(b, x, 0, 3, 0, 0.0), 0, 0, T.size), t->dims, 2);
    if (!strcmp(form, "roll"))
        return tt_roll(b, x, 0, 5);
    if (!strcmp(form, "cumsum"))
        return tt_reshape(b, tt_scale(b, tt_cumsum(b, tt_reshape(b, x, apart, 3), 1, NULL), 0.1),
                          t->dims, 2);
    if (!strcmp(form, "max")) /* of each half of the batch */
        return tt_add(b, x, tt_max(b, tt_slice(b, x, 0, 0, T.size / 2), 0, 1));
    if (!strcmp(form, "iota"))
        return tt_mul(b, x, column(b, tt_scale(b, tt_iota(b, &swapped[1], 1, 0, TT_F32), 0.01), 0));
    if (!strcmp(form, "constant"))
        return tt_mul(b, x, ramp(b, T));
    if (!strcmp(form, "reshape"))
        return tt_reshape(b, tt_mul(b, tt_reshape(b, x, apart, 3), ramp(b, S)), t->dims, 2);
    if (!strcmp(form, "lines")) /* the mean over the batch at each position */
        return tt_reshape(
            b, tt_add(b, tt_reshape(b, x, apart, 3), tt_mean(b, tt_reshape(b, x, apart, 3), 0, 1)),
            t->dims, 2);
    if (!strcmp(form, "gather")) /* row ids[t] of the tokens */
        return tt_gather(b, x, tt_mod(b, ids, tt_const(b, (double)T.size, TT_I32)));
    if (!strcmp(form, "lookup"))
        return tt_embedding_w(b, tt_mod(b, ids, tt_const(b, (double)T.size, TT_I32)), x);
    if (!strcmp(form, "pick")) { /* x_t · x_j of the token j = ids[t] */
        tt_value *s = tt_matmul(b, x, x, 0, 1);
        s = tt_pick(b, s, tt_mod(b, ids, tt_const(b, (double)T.size, TT_I32)));
        return tt_mul(b, x, tt_tanh(b, column(b, s, 0)));
    }
    if (!strcmp(form, "largest")) { /* the place of the largest id */
        tt_value *at = tt_argmax(b, tt_cast(b, tt_reshape(b, ids, &swapped[1], 1), TT_F32), 0, 1);
        return tt_mul(b, x, tt_scale(b, tt_cast(b, at, TT_F32), 0.05));
    }
    if (!strcmp(form, "transposed"))
        return tt_transpose(
            b, tt_roll(b, tt_reshape(b, tt_transpose(b, x, perm), swapped, 2), 1, 7), perm);
    if (!strcmp(form, "random"))
        return tt_mul(b, x, tt_random(b, t->dims, 2, "noise", 0));
    if (!strcmp(form, "random_rows")) { /* a dim without a label */
        const tt_dim rows[2] = {TT_DIM(T.size, NULL), one};
        return tt_mul(b, x, tt_random(b, rows, 2, "noise", 0));
    }
    if (!strcmp(form, "flat")) { /* [T*D] */
        const tt_dim flat = TT_DIM(T.size * D.size, NULL);
        return tt_reshape(b, tt_roll(b, tt_reshape(b, x, &flat, 1), 0, 3 * D.size), t->dims, 2);
    }
    return NULL;
}

/* Forms that give the same for every order. */
static tt_value *by_tokens(tt_builder *b, const char *form, tt_value *x)
{
    const tt_type *t = tt_value_type(x);
    const tt_dim T = t->dims[0], D = t->dims[1], H = TT_DIM(4, NULL), hd = TT_DIM(D.size / 4, NULL);
    const tt_dim heads[3] = {T, H, hd};
    const int perm[3] = {1, 0, 2};
    if (!strcmp(form, "heads")) { /* turned within each head, summed over heads */
        tt_value *y = tt_roll(b, tt_transpose(b, tt_reshape(b, x, heads, 3), perm), 2, 3);
        y = tt_add(b, y, tt_sum(b, y, 0, 1));
        return tt_reshape(b, tt_transpose(b, y, perm), t->dims, 2);
    }
    if (!strcmp(form, "broadcast")) {
        tt_value *g = tt_broadcast_to(b, tt_param(b, "gate", &D, 1, NULL), t->dims, 2);
        return tt_mul(b, tt_mul(b, x, g), tt_broadcast_to(b, tt_const(b, 0.5, TT_F32), t->dims, 2));
    }
    if (!strcmp(form, "sums")) /* the sum and the maximum over the batch */
        return tt_add(b, x, tt_add(b, tt_scale(b, tt_sum(b, x, 0, 1), 0.01), tt_max(b, x, 0, 1)));
    if (!strcmp(
            form,
            "pairs")) { /* Σ_j [pos_j ≤ pos_t, seg_j = seg_t] x_j: pairs of tokens, by positions */
        tt_value *pos = tt_input(b, "pos"), *seg = tt_input(b, "seg");
        tt_value *sees =
            tt_mul(b, tt_cast(b, tt_less_equal(b, column(b, pos, 1), column(b, pos, 0)), TT_F32),
                   tt_cast(b, tt_equal(b, column(b, seg, 1), column(b, seg, 0)), TT_F32));
        return tt_scale(b, tt_matmul(b, sees, x, 0, 0), 0.05);
    }
    return tt_mul(
        b, x,
        column(b, tt_scale(b, tt_cast(b, tt_input(b, "pos"), TT_F32), 0.01), 0)); /* positions */
}

static tt_value *term(tt_builder *b, const config *c, tt_value *x)
{
    tt_value *y = by_places(b, c->form, x);
    if (!strcmp(c->form, "custom"))
        return tt_custom_vjp(b, &x, 1, twice, by_place, NULL);
    return y ? y : by_tokens(b, c->form, x);
}

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = (const config *)cfg;
    const tt_dim D = TT_DIM(c->dim, "embed"), V = TT_DIM(c->vocab, "vocab");
    const tt_dim Q = TT_DIM_UNIT(c->dim, "heads", c->dim / 4),
                 K = TT_DIM_UNIT(c->dim, "kv_heads", c->dim / 4);
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed_tokens", V, D, NULL);
    for (int64_t i = 0; i < c->layers; i++) {
        tt_block(b, "layers.%lld", (long long)i);
        tt_value *h = tt_rms_norm(b, x, "norm", 1e-5);
        tt_value *y =
            tt_attention(b, tt_linear(b, h, "q_proj", Q, NULL), tt_linear(b, h, "k_proj", K, NULL),
                         tt_linear(b, h, "v_proj", K, NULL), c->dim / 4, NULL);
        x = tt_add(b, x, tt_linear(b, y, "o_proj", D, NULL));
        x = tt_add(b, x, tt_linear(b, tt_silu(b, term(b, c, h)), "down_proj", D, NULL));
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
    sizeof(vt), flavors, TT_COUNT(flavors), NULL, describe, vocab_size, attention_width, "n_layers",
};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_MODEL, "places", "terms by the places of tokens", config, options, &vt),
};
TT_PLUGIN("places", "0.1", components);
