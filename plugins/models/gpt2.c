/* SPDX-License-Identifier: Apache-2.0 */
#include "json_text.h"
#include <math.h>
#include <stdbool.h>
#include <ttrun/model.h>

/* gpt2: a pre-norm decoder with LayerNorm, learned positions, GELU and biases. T tokens, D width, H
 * heads, hd head width, F hidden width, V vocabulary, P positions. Source: Radford et al. 2019,
 * "Language Models are Unsupervised Multitask Learners". Names and initial values are Hugging
 * Face's, whose files store weights as [in, out], and q, k and v in one tensor. */

typedef struct {
    int64_t dim, n_layers, n_heads, hidden_dim, vocab_size, n_positions;
    double norm_eps, embd_pdrop, resid_pdrop, attn_pdrop;
    bool tie_embeddings;
} config;

#define MAX_DIM 16777216.0 /* 2^24: a product of two sizes is far below the limit of int64 */

static const tt_option options[] = {
    TT_OPTION_MORE(config, dim, TT_OPT_INT, "256", 1, MAX_DIM, NULL, 0, "n_embd",
                   "width of the residual stream"),
    TT_OPTION_MORE(config, n_layers, TT_OPT_INT, "6", 1, 65536, NULL, 0, "n_layer",
                   "number of blocks"),
    TT_OPTION_MORE(config, n_heads, TT_OPT_INT, "8", 1, 65536, NULL, 0, "n_head",
                   "heads, a divisor of dim"),
    TT_OPTION_MORE(config, hidden_dim, TT_OPT_INT, "null", 1, MAX_DIM, NULL, TT_OPT_NULLABLE,
                   "n_inner", "width of the feed-forward layer; null: 4 dim"),
    TT_OPTION(config, vocab_size, TT_OPT_INT, "2048", 1, 2147483647.0,
              "rows of the embedding, at least the tokenizer's"),
    TT_OPTION(config, n_positions, TT_OPT_INT, "1024", 1, 2147483647.0,
              "rows of the position table, at least training.seq_len"),
    TT_OPTION_MORE(config, norm_eps, TT_OPT_FLOAT, "1e-5", 1e-30, 1, NULL, 0, "layer_norm_epsilon",
                   "epsilon of the norms"),
    TT_OPTION_MORE(config, tie_embeddings, TT_OPT_BOOL, "true", 0, 0, NULL, 0,
                   "tie_word_embeddings", "the output layer is the embedding"),
    TT_OPTION(config, embd_pdrop, TT_OPT_FLOAT, "0", 0, 1,
              "in training, the share of the embeddings' elements that is set to 0"),
    TT_OPTION(config, resid_pdrop, TT_OPT_FLOAT, "0", 0, 1,
              "the same, of what attention and the feed-forward layer add to the residual stream"),
    TT_OPTION(config, attn_pdrop, TT_OPT_FLOAT, "0", 0, 1, "the same, of the attention weights"),
};

#define FLAVOR(name, dim, layers, heads)                                                           \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"vocab_size\": 50257, \"n_positions\": 1024}"                                    \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"n_layers\": 6, \"n_heads\": 8, \"vocab_size\": 2048}"},
    FLAVOR("124M", 768, 12, 12),
    FLAVOR("350M", 1024, 24, 16),
    FLAVOR("774M", 1280, 36, 20),
    FLAVOR("1558M", 1600, 48, 25),
};

static tt_status gpt2_finish(void *cfg, tt_error *err)
{
    config *c = cfg;
    if (c->dim % c->n_heads != 0)
        return TT_FAIL(err, TT_EINVAL, "model.args.n_heads: %lld does not divide dim %lld",
                       (long long)c->n_heads, (long long)c->dim);
    if (c->hidden_dim == INT64_MIN)
        c->hidden_dim = 4 * c->dim;
    return TT_OK;
}

static int64_t vocab_size(const void *cfg)
{
    return ((const config *)cfg)->vocab_size;
}

static int64_t attention_width(const void *cfg)
{
    const config *c = cfg;
    return c->n_layers * 2 * c->dim; /* heads × (hd + hd) */
}

/* ---- the forward pass ---- */

static tt_init normal(double std)
{
    return (tt_init){TT_INIT_NORMAL, std, 0.0, 0.0};
}

/* Initial values of weights that write to the residual stream. */
static double deep(const config *c)
{
    return 0.02 / sqrt(2.0 * (double)c->n_layers);
}

/* Where the files keep a linear layer: from row `begin` of a fused tensor; NULL: under its own
 * name. */
typedef struct {
    char weight[80], bias[80];
} fused;

/* x [T,in] · Wᵀ + bias. */
static tt_value *linear(tt_builder *b, tt_value *x, const char *name, tt_dim out, double std,
                        const fused *in, int64_t begin)
{
    char weight[64], bias[64];
    const tt_dim dims[] = {out, tt_value_type(x)->dims[1]};
    const tt_storage w = {
        .name = in ? in->weight : NULL, .transpose = 1, .file_begin = (int32_t)begin};
    const tt_storage v = {.name = in ? in->bias : NULL, .file_begin = (int32_t)begin};
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    (void)tt_param(b, weight, dims, 2,
                   &(tt_param_opts){.init = normal(std), .storage = &w, .n_storage = 1});
    (void)tt_param(
        b, bias, &out, 1,
        &(tt_param_opts){
            .init = {.kind = TT_INIT_CONSTANT}, .tags = "bias", .storage = &v, .n_storage = 1});
    /* finds the two parameters by name */
    return tt_linear(b, x, name, out, &(tt_linear_opts){.bias = 1});
}

static tt_value *attention(tt_builder *b, const config *c, tt_value *x, int64_t layer) /* x [T,D] */
{
    const int64_t hd = c->dim / c->n_heads;
    const tt_dim H = TT_DIM_UNIT(c->dim, "heads", hd), K = TT_DIM_UNIT(c->dim, "kv_heads", hd);
    fused f;
    snprintf(f.weight, sizeof f.weight, "transformer.h.%lld.attn.c_attn.weight", (long long)layer);
    snprintf(f.bias, sizeof f.bias, "transformer.h.%lld.attn.c_attn.bias", (long long)layer);
    tt_scope(b, "attn");
    tt_value *q = linear(b, x, "q", H, 0.02, &f, 0); /* [T,H*hd], as k and v */
    tt_value *k = linear(b, x, "k", K, 0.02, &f, c->dim);
    tt_value *v = linear(b, x, "v", K, 0.02, &f, 2 * c->dim);
    const tt_attention_opts opts = {.dropout = c->attn_pdrop};
    tt_value *y = linear(b, tt_attention(b, q, k, v, hd, &opts), "c_proj", TT_DIM(c->dim, "embed"),
                         deep(c), NULL, 0);
    y = tt_dropout(b, y, c->resid_pdrop, "resid_dropout");
    tt_scope_end(b);
    return y;
}

static tt_value *mlp(tt_builder *b, const config *c, tt_value *x)
{
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->hidden_dim, "ffn");
    tt_scope(b, "mlp");
    tt_value *h = tt_gelu_tanh(b, linear(b, x, "c_fc", F, 0.02, NULL, 0)); /* [T,F] */
    tt_value *y = linear(b, h, "c_proj", D, deep(c), NULL, 0);
    y = tt_dropout(b, y, c->resid_pdrop, "dropout");
    tt_scope_end(b);
    return y;
}

static void gpt2_describe(const void *cfg, tt_builder *b)
{
    const config *c = cfg;
    const tt_dim D = TT_DIM(c->dim, "embed");
    const tt_dim tokens[] = {TT_DIM(c->vocab_size, "vocab"), D};
    const tt_dim places[] = {TT_DIM(c->n_positions, "positions"), D};
    const tt_param_opts table = {.init = normal(0.02), .tags = "embedding"};
    tt_value *pos = tt_input(b, "pos"); /* [T], 0 to seq_len - 1 */
    const tt_dim *T = &tt_value_type(pos)->dims[0];
    if (T->lines > 0 && T->size / T->lines > c->n_positions)
        tt_builder_fail(b, TT_EINVAL,
                        "training.seq_len: %lld tokens, but gpt2 has learned only %lld positions; "
                        "shorten it or raise model.args.n_positions",
                        (long long)(T->size / T->lines), (long long)c->n_positions);
    tt_value *w = tt_param(b, "transformer.wte.weight", tokens, 2, &table);
    tt_value *p = tt_param(b, "transformer.wpe.weight", places, 2, &table);
    tt_value *x = tt_add(b, tt_embedding_w(b, tt_input(b, "ids"), w), tt_embedding_w(b, pos, p));
    x = tt_dropout(b, x, c->embd_pdrop, "transformer.drop");
    for (int64_t i = 0; i < c->n_layers; i++) {
        tt_block(b, "transformer.h.%lld", (long long)i);
        x = tt_add(b, x, attention(b, c, tt_layer_norm(b, x, "ln_1", c->norm_eps), i));
        x = tt_add(b, x, mlp(b, c, tt_layer_norm(b, x, "ln_2", c->norm_eps)));
        tt_block_end(b);
    }
    x = tt_layer_norm(b, x, "transformer.ln_f", c->norm_eps);
    tt_output(b, "logits",
              c->tie_embeddings
                  ? tt_linear_w(b, x, w)
                  : tt_linear(b, x, "lm_head", tokens[0], &(tt_linear_opts){.init = normal(0.02)}));
}

/* ---- Hugging Face ---- */

static tt_status gpt2_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const config *c = cfg;
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        {"n_embd",      c->dim        },
        {"n_layer",     c->n_layers   },
        {"n_head",      c->n_heads    },
        {"n_inner",     c->hidden_dim },
        {"n_positions", c->n_positions},
        {"n_ctx",       c->n_positions},
        {"vocab_size",  c->vocab_size }
    };
    json_text t = {json, size, 0};
    json_begin_config(&t, "GPT2LMHeadModel", "gpt2");
    for (size_t i = 0; i < TT_COUNT(sizes); i++)
        json_add(&t, ",\n  \"%s\": %lld", sizes[i].key, (long long)sizes[i].value);
    json_add(&t, ",\n  \"activation_function\": \"gelu_new\",\n  \"initializer_range\": 0.02,\n  ");
    json_add_real(&t, "resid_pdrop", c->resid_pdrop);
    json_add(&t, ",\n  ");
    json_add_real(&t, "embd_pdrop", c->embd_pdrop);
    json_add(&t, ",\n  ");
    json_add_real(&t, "attn_pdrop", c->attn_pdrop);
    json_add(&t, ",\n  ");
    json_add_real(&t, "layer_norm_epsilon", c->norm_eps);
    json_add(&t, ",\n  \"tie_word_embeddings\": %s", c->tie_embeddings ? "true" : "false");
    return json_end_config(&t, "gpt2", err);
}

/* All three names mean the same function, the tanh approximation. */
static const tt_model_hf hf = {
    sizeof hf,
    "gpt2",
    "{\"n_embd\": 768, \"n_layer\": 12, \"n_head\": 12, \"n_positions\": 1024, \"vocab_size\": "
    "50257, "
    "\"layer_norm_epsilon\": 1e-5, \"tie_word_embeddings\": true, \"embd_pdrop\": 0.1, "
    "\"resid_pdrop\": 0.1, \"attn_pdrop\": 0.1}",
    "{\"activation_function\": [\"gelu_new\", \"gelu_pytorch_tanh\", \"gelu_fast\"], "
    "\"scale_attn_weights\": true, \"scale_attn_by_inverse_layer_idx\": false, "
    "\"reorder_and_upcast_attn\": false, \"add_cross_attention\": false, "
    "\"quantization_config\": null}",
    gpt2_config_json,
    "transformer."};

static const tt_tensor_name gguf_names[] = {
    {"transformer.wte.weight",             "token_embd.weight",        0, 0},
    {"transformer.wpe.weight",             "position_embd.weight",     0, 1},
    {"lm_head.weight",                     "output.weight",            0, 0},
    {"transformer.ln_f.weight",            "output_norm.weight",       0, 0},
    {"transformer.h.*.ln_1.weight",        "blk.*.attn_norm.weight",   0, 0},
    {"transformer.h.*.attn.c_attn.weight", "blk.*.attn_qkv.weight",    0, 0},
    {"transformer.h.*.attn.c_proj.weight", "blk.*.attn_output.weight", 0, 0},
    {"transformer.h.*.ln_2.weight",        "blk.*.ffn_norm.weight",    0, 0},
    {"transformer.h.*.mlp.c_fc.weight",    "blk.*.ffn_up.weight",      0, 0},
    {"transformer.h.*.mlp.c_proj.weight",  "blk.*.ffn_down.weight",    0, 0},
    {"transformer.ln_f.bias",              "output_norm.bias",         0, 0},
    {"transformer.h.*.ln_1.bias",          "blk.*.attn_norm.bias",     0, 0},
    {"transformer.h.*.attn.c_attn.bias",   "blk.*.attn_qkv.bias",      0, 0},
    {"transformer.h.*.attn.c_proj.bias",   "blk.*.attn_output.bias",   0, 0},
    {"transformer.h.*.ln_2.bias",          "blk.*.ffn_norm.bias",      0, 0},
    {"transformer.h.*.mlp.c_fc.bias",      "blk.*.ffn_up.bias",        0, 0},
    {"transformer.h.*.mlp.c_proj.bias",    "blk.*.ffn_down.bias",      0, 0},
};

static tt_status gguf_keys(const void *cfg, char *json, size_t size, tt_error *err)
{
    const config *c = cfg;
    json_text t = {json, size, 0};
    json_add(
        &t,
        "{\"context_length\": %lld, \"block_count\": %lld, \"embedding_length\": %lld, "
        "\"feed_forward_length\": %lld, \"attention.head_count\": %lld, \"vocab_size\": %lld, ",
        (long long)c->n_positions, (long long)c->n_layers, (long long)c->dim,
        (long long)c->hidden_dim, (long long)c->n_heads, (long long)c->vocab_size);
    json_add_real(&t, "attention.layer_norm_epsilon", c->norm_eps);
    json_add(&t, "}");
    return t.n < t.size ? TT_OK
                        : TT_FAIL(err, TT_EINVAL, "its GGUF keys are longer than %zu bytes", size);
}

static const tt_model_gguf gguf = {.struct_size = sizeof gguf,
                                   .architecture = "gpt2",
                                   .names = gguf_names,
                                   .n_names = TT_COUNT(gguf_names),
                                   .name_size = sizeof gguf_names[0],
                                   .keys_json = gguf_keys};

static const void *gpt2_extension(const char *id)
{
    if (strcmp(id, TT_MODEL_GGUF) == 0)
        return &gguf;
    return strcmp(id, TT_MODEL_HF) == 0 ? &hf : NULL;
}

static const tt_model_vt vt = {sizeof vt,     flavors,    TT_COUNT(flavors), gpt2_finish,
                               gpt2_describe, vocab_size, attention_width,   "n_layers"};

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "gpt2", "GPT-2: learned positions, LayerNorm, GELU, biases",
                     config, options, &vt, gpt2_extension),
};

TT_PLUGIN("gpt2", "1.0", components);
