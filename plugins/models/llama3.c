/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/model.h>

/* llama3: a pre-norm decoder with grouped-query attention, SwiGLU and rotary positions; Hugging
 * Face's names. T tokens, D width, H heads, K key/value heads, hd head width, F hidden width, V
 * vocabulary. Source: Grattafiori et al. 2024, arXiv:2407.21783; sizes and initial values as
 * torchtitan's. */

typedef struct {
    int64_t dim, n_layers, n_heads, n_kv_heads, head_dim, hidden_dim, multiple_of, vocab_size;
    double ffn_dim_multiplier, norm_eps, rope_theta;
    const char *rope_scaling;
    bool tie_embeddings;
    tt_rope_opts rope; /* from rope_scaling, by finish() */
} config;

#define MAX_DIM 16777216.0 /* 2^24: products of two sizes stay far inside int64 */

static const tt_option options[] = {
    TT_OPTION_MORE(config, dim, TT_OPT_INT, "256", 1, MAX_DIM, NULL, 0, "hidden_size",
                   "width of the residual stream"),
    TT_OPTION_MORE(config, n_layers, TT_OPT_INT, "6", 1, 65536, NULL, 0, "num_hidden_layers",
                   "number of blocks"),
    TT_OPTION_MORE(config, n_heads, TT_OPT_INT, "16", 1, 65536, NULL, 0, "num_attention_heads",
                   "query heads"),
    TT_OPTION_MORE(config, n_kv_heads, TT_OPT_INT, "null", 1, 65536, NULL, TT_OPT_NULLABLE,
                   "num_key_value_heads",
                   "key and value heads, a divisor of n_heads; null: n_heads"),
    TT_OPTION_MORE(config, head_dim, TT_OPT_INT, "null", 2, 65536, NULL, TT_OPT_NULLABLE, NULL,
                   "width of a head, even; null: dim/n_heads"),
    TT_OPTION_MORE(config, hidden_dim, TT_OPT_INT, "null", 1, MAX_DIM, NULL, TT_OPT_NULLABLE,
                   "intermediate_size",
                   "width of the feed-forward layer; null: 8/3 dim times ffn_dim_multiplier, "
                   "rounded up to multiple_of"),
    TT_OPTION(config, multiple_of, TT_OPT_INT, "256", 1, MAX_DIM,
              "hidden_dim's rule rounds up to a multiple of this"),
    TT_OPTION(config, ffn_dim_multiplier, TT_OPT_FLOAT, "1.0", 1e-3, 1e3,
              "factor in hidden_dim's rule"),
    TT_OPTION(config, vocab_size, TT_OPT_INT, "2048", 1, 2147483647.0,
              "rows of the embedding, at least the tokenizer's"),
    TT_OPTION_MORE(config, norm_eps, TT_OPT_FLOAT, "1e-5", 1e-30, 1, NULL, 0, "rms_norm_eps",
                   "epsilon of the norms"),
    TT_OPTION(config, rope_theta, TT_OPT_FLOAT, "500000.0", 1, 1e18,
              "base of the rotary frequencies"),
    TT_OPTION_MORE(config, rope_scaling, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "null, or as in Hugging Face's config.json: {\"rope_type\": \"llama3\", "
                   "\"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                   "\"original_max_position_embeddings\": 8192}; also linear and yarn"),
    TT_OPTION_MORE(config, tie_embeddings, TT_OPT_BOOL, "false", 0, 0, NULL, 0,
                   "tie_word_embeddings", "the output layer is the embedding"),
};

/* The released sizes share a vocabulary, 8 key/value heads and llama3 scaling; hidden_dim follows
 * by the rule. */
#define FLAVOR(name, dim, layers, heads, multiplier, multiple, tied, factor)                       \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": 8, \"ffn_dim_multiplier\": " #multiplier                          \
              ", \"multiple_of\": " #multiple                                                      \
              ", \"vocab_size\": 128256, \"tie_embeddings\": " #tied ", " SCALING(#factor) "}"     \
    }
#define SCALING(factor)                                                                            \
    "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": " factor                            \
    ", \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "                                      \
    "\"original_max_position_embeddings\": 8192}"
#define DEBUG "{\"dim\": 256, \"n_layers\": 6, \"n_heads\": 16, \"vocab_size\": 2048, "

static const tt_flavor flavors[] = {
    {"debugmodel", DEBUG SCALING("8.0") "}"},
    FLAVOR("1B", 2048, 16, 32, 1.5, 256, true, 32.0),
    FLAVOR("3B", 3072, 28, 24, 1.0, 256, true, 32.0),
    FLAVOR("8B", 4096, 32, 32, 1.3, 1024, false, 8.0),
    FLAVOR("70B", 8192, 80, 64, 1.3, 4096, false, 8.0),
    FLAVOR("405B", 16384, 126, 128, 1.2, 4096, false, 8.0),
};

/* ---- rope_scaling: a flat object of strings, numbers and booleans ---- */

typedef struct {
    const char *at; /* the unread rest */
    char text[64];  /* the token read last: a string's contents, a number, a word, or one of {}:, */
    char kind;      /* '"' string, '0' number, 'a' word, the character itself, 0 at the end */
} reader;

static bool read_token(reader *r)
{
    r->at += strspn(r->at, " \t\r\n");
    const char *begin = r->at, *end;
    if (*begin == '"') {
        begin++;
        end = begin + strcspn(begin, "\"\\");
        if (*end != '"')
            return false;
        r->kind = '"';
        r->at = end + 1;
    } else if (*begin == '\0' || strchr("{}:,", *begin)) {
        r->kind = *begin;
        end = r->at = begin + (*begin != '\0');
    } else {
        end = r->at = begin + strcspn(begin, "{}:,\"[] \t\r\n");
        r->kind = (*begin >= '0' && *begin <= '9') || *begin == '-' ? '0' : 'a';
    }
    const size_t n = (size_t)(end - begin);
    if (n >= sizeof r->text || (n == 0 && (r->kind == '0' || r->kind == 'a')))
        return false;
    memcpy(r->text, begin, n);
    r->text[n] = '\0';
    return true;
}

static tt_status set_type(const char *type, tt_rope_opts *out, tt_error *err)
{
    static const struct {
        const char *name;
        tt_rope_scaling value;
    } types[] = {
        {"default", TT_ROPE_NONE  },
        {"linear",  TT_ROPE_LINEAR},
        {"llama3",  TT_ROPE_LLAMA3},
        {"yarn",    TT_ROPE_YARN  }
    };
    for (size_t i = 0; i < TT_COUNT(types); i++) {
        if (strcmp(type, types[i].name) == 0) {
            out->scaling = types[i].value;
            return TT_OK;
        }
    }
    return TT_FAIL(err, TT_EINVAL,
                   "model.args.rope_scaling.rope_type: \"%s\" is not built; use default, linear, "
                   "llama3 or yarn",
                   type);
}

static tt_status set_member(const char *key, const reader *value, tt_rope_opts *out, tt_error *err)
{
    const struct {
        const char *name;
        double *at;
    } numbers[] = {
        {"factor",                           &out->factor               },
        {"low_freq_factor",                  &out->low_freq_factor      },
        {"high_freq_factor",                 &out->high_freq_factor     },
        {"original_max_position_embeddings", &out->original_max_position},
        {"beta_fast",                        &out->beta_fast            },
        {"beta_slow",                        &out->beta_slow            },
        {"attention_factor",                 &out->attention_factor     }
    };
    if ((strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0) && value->kind == '"')
        return set_type(value->text, out, err);
    if (strcmp(key, "truncate") == 0 && value->kind == 'a') {
        const bool yes = strcmp(value->text, "true") == 0;
        if (!yes && strcmp(value->text, "false") != 0)
            return TT_FAIL(err, TT_EINVAL,
                           "model.args.rope_scaling.truncate: \"%s\" is not true or false",
                           value->text);
        out->no_truncate = !yes;
        return TT_OK;
    }
    for (size_t i = 0; i < TT_COUNT(numbers); i++) {
        if (strcmp(key, numbers[i].name) != 0)
            continue;
        char *end = NULL;
        const double x = strtod(value->text, &end);
        if (value->kind != '0' || *end != '\0' || !(x > 0.0) || x > 1e18)
            return TT_FAIL(err, TT_EINVAL,
                           "model.args.rope_scaling.%s: \"%s\" is not a positive number", key,
                           value->text);
        *numbers[i].at = x;
        return TT_OK;
    }
    return TT_FAIL(
        err, TT_EINVAL,
        "model.args.rope_scaling.%s: unknown key or wrong type; known: rope_type, factor, "
        "low_freq_factor, high_freq_factor, original_max_position_embeddings, beta_fast, "
        "beta_slow, "
        "attention_factor, truncate",
        key);
}

static tt_status read_rope_scaling(const char *json, tt_rope_opts *out, tt_error *err)
{
    reader r = {.at = json};
    bool ok = read_token(&r) && r.kind == '{' && read_token(&r);
    while (ok && r.kind == '"') {
        char key[sizeof r.text];
        memcpy(key, r.text, sizeof key);
        ok = read_token(&r) && r.kind == ':' && read_token(&r) && r.kind && strchr("\"0a", r.kind);
        if (!ok)
            break;
        TT_TRY(set_member(key, &r, out, err));
        ok =
            read_token(&r) && (r.kind == '}' || (r.kind == ',' && read_token(&r) && r.kind == '"'));
    }
    if (!ok || r.kind != '}' || !read_token(&r) || r.kind != '\0')
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.rope_scaling: wanted null or a flat object such as "
                       "{\"rope_type\": \"llama3\", \"factor\": 8}, got %.80s",
                       json);
    const double low = out->low_freq_factor != 0.0 ? out->low_freq_factor : 1.0;
    const double high = out->high_freq_factor != 0.0 ? out->high_freq_factor : 4.0;
    if (out->scaling == TT_ROPE_LLAMA3 && !(low < high))
        return TT_FAIL(
            err, TT_EINVAL,
            "model.args.rope_scaling: low_freq_factor %g is not below high_freq_factor %g", low,
            high);
    return TT_OK;
}

/* ---- sizes ---- */

static tt_status finish(void *cfg, tt_error *err)
{
    config *c = cfg;
    if (c->n_kv_heads == INT64_MIN)
        c->n_kv_heads = c->n_heads;
    if (c->n_heads % c->n_kv_heads != 0)
        return TT_FAIL(err, TT_EINVAL, "model.args.n_kv_heads: %lld does not divide n_heads %lld",
                       (long long)c->n_kv_heads, (long long)c->n_heads);
    if (c->head_dim == INT64_MIN) {
        if (c->dim % c->n_heads != 0)
            return TT_FAIL(
                err, TT_EINVAL,
                "model.args.dim: %lld is no multiple of n_heads %lld; change one or set head_dim",
                (long long)c->dim, (long long)c->n_heads);
        c->head_dim = c->dim / c->n_heads;
    }
    if (c->head_dim % 2 != 0)
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.head_dim: %lld is odd, and rotary positions turn pairs; make "
                       "dim/n_heads even "
                       "or set head_dim",
                       (long long)c->head_dim);
    if (c->hidden_dim == INT64_MIN) {
        const int64_t wanted = (int64_t)(c->ffn_dim_multiplier * (double)(8 * c->dim / 3));
        c->hidden_dim = (wanted + c->multiple_of - 1) / c->multiple_of * c->multiple_of;
        if (c->hidden_dim < 1)
            c->hidden_dim = c->multiple_of;
    }
    c->rope = (tt_rope_opts){.head_dim = c->head_dim, .theta = c->rope_theta};
    if (c->rope_scaling && strcmp(c->rope_scaling, "null") != 0)
        return read_rope_scaling(c->rope_scaling, &c->rope, err);
    return TT_OK;
}

static int64_t vocab_size(const void *cfg)
{
    return ((const config *)cfg)->vocab_size;
}

static int64_t attention_width(const void *cfg)
{
    const config *c = cfg;
    return c->n_layers * c->n_heads * (c->head_dim + c->head_dim);
}

/* ---- the forward pass ---- */

/* Weights that write to the residual stream, and w3, shrink with depth. */
static tt_linear_opts deep_init(int64_t layer)
{
    return (tt_linear_opts){
        .init = {TT_INIT_TRUNC_NORMAL, 0.02 / sqrt(2.0 * (double)(layer + 1)), 0.0, 0.0}
    };
}

static const tt_linear_opts plain = {
    .init = {TT_INIT_TRUNC_NORMAL, 0.02, 0.0, 0.0}
};

static tt_value *attention(tt_builder *b, const config *c, tt_value *x, int64_t layer) /* x [T,D] */
{
    const int64_t hd = c->head_dim;
    const tt_dim D = TT_DIM(c->dim, "embed");
    const tt_dim H = TT_DIM_UNIT(c->n_heads * hd, "heads", hd),
                 K = TT_DIM_UNIT(c->n_kv_heads * hd, "kv_heads", hd);
    const tt_linear_opts deep = deep_init(layer);
    tt_scope(b, "self_attn");
    tt_value *pos = tt_input(b, "pos");                                            /* [T] */
    tt_value *q = tt_rope(b, tt_linear(b, x, "q_proj", H, &plain), pos, &c->rope); /* [T,H*hd] */
    tt_value *k = tt_rope(b, tt_linear(b, x, "k_proj", K, &plain), pos, &c->rope); /* [T,K*hd] */
    tt_value *v = tt_linear(b, x, "v_proj", K, &plain);
    tt_value *y = tt_linear(b, tt_attention(b, q, k, v, hd, NULL), "o_proj", D, &deep);
    tt_scope_end(b);
    return y;
}

static tt_value *mlp(tt_builder *b, const config *c, tt_value *x, int64_t layer)
{
    const tt_dim D = TT_DIM(c->dim, "embed"), F = TT_DIM(c->hidden_dim, "ffn");
    const tt_linear_opts deep = deep_init(layer);
    tt_scope(b, "mlp");
    tt_value *gate = tt_silu(b, tt_linear(b, x, "gate_proj", F, &plain));
    tt_value *h = tt_mul(b, gate, tt_linear(b, x, "up_proj", F, &deep)); /* [T,F] */
    tt_value *y = tt_linear(b, h, "down_proj", D, &deep);
    tt_scope_end(b);
    return y;
}

static void describe(const void *cfg, tt_builder *b)
{
    const config *c = cfg;
    const tt_dim V = TT_DIM(c->vocab_size, "vocab"), table[] = {V, TT_DIM(c->dim, "embed")};
    const double std = 1.0 / sqrt((double)c->dim);
    const tt_init head = {TT_INIT_TRUNC_NORMAL, std, -3.0 * std, 3.0 * std};
    const tt_param_opts embedding = {
        .init = c->tie_embeddings ? head : (tt_init){TT_INIT_NORMAL, 1.0, 0.0, 0.0},
        .tags = "embedding"
    };
    tt_value *w = tt_param(b, "model.embed_tokens.weight", table, 2, &embedding);
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), w); /* [T,D] */
    for (int64_t i = 0; i < c->n_layers; i++) {
        tt_block(b, "model.layers.%lld", (long long)i);
        x = tt_add(b, x, attention(b, c, tt_rms_norm(b, x, "input_layernorm", c->norm_eps), i));
        x = tt_add(b, x, mlp(b, c, tt_rms_norm(b, x, "post_attention_layernorm", c->norm_eps), i));
        tt_block_end(b);
    }
    x = tt_rms_norm(b, x, "model.norm", c->norm_eps);
    tt_output(b, "logits",
              c->tie_embeddings ? tt_linear_w(b, x, w)
                                : tt_linear(b, x, "lm_head", V, &(tt_linear_opts){.init = head}));
}

/* ---- Hugging Face ---- */

/* Text within size; *n stays beyond it once it does not fit. */
static void append(char *json, size_t size, size_t *n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int more = *n < size ? vsnprintf(json + *n, size - *n, fmt, ap) : 0;
    va_end(ap);
    *n = more < 0 ? size : *n + (size_t)more;
}

/* A number that readers take for a float, as short as it reads back. */
static void append_real(char *json, size_t size, size_t *n, const char *key, double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", x);
    if (strtod(text, NULL) != x)
        snprintf(text, sizeof text, "%.17g", x);
    append(json, size, n, "\"%s\": %s%s", key, text, strpbrk(text, ".e") ? "" : ".0");
}

static void append_scaling(char *json, size_t size, size_t *n, const tt_rope_opts *r)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"factor",           r->factor          },
        {"low_freq_factor",  r->low_freq_factor },
        {"high_freq_factor", r->high_freq_factor},
        {"beta_fast",        r->beta_fast       },
        {"beta_slow",        r->beta_slow       },
        {"attention_factor", r->attention_factor}
    };
    static const char *const names[] = {
        [TT_ROPE_LINEAR] = "linear", [TT_ROPE_LLAMA3] = "llama3", [TT_ROPE_YARN] = "yarn"};
    append(json, size, n, ",\n  \"rope_scaling\": ");
    if (r->scaling == TT_ROPE_NONE) {
        append(json, size, n, "null");
        return;
    }
    append(json, size, n, "{\"rope_type\": \"%s\"", names[r->scaling]);
    for (size_t i = 0; i < TT_COUNT(numbers); i++) {
        if (numbers[i].value == 0.0)
            continue;
        append(json, size, n, ", ");
        append_real(json, size, n, numbers[i].key, numbers[i].value);
    }
    if (r->original_max_position > 0.0)
        append(json, size, n, ", \"original_max_position_embeddings\": %.0f",
               r->original_max_position);
    append(json, size, n, "%s}", r->no_truncate ? ", \"truncate\": false" : "");
    if (r->original_max_position > 0.0)
        append(json, size, n, ",\n  \"max_position_embeddings\": %.0f",
               r->original_max_position * (r->factor > 1.0 ? r->factor : 1.0));
}

static tt_status config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const config *c = cfg;
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        {"hidden_size",         c->dim       },
        {"intermediate_size",   c->hidden_dim},
        {"num_hidden_layers",   c->n_layers  },
        {"num_attention_heads", c->n_heads   },
        {"num_key_value_heads", c->n_kv_heads},
        {"head_dim",            c->head_dim  },
        {"vocab_size",          c->vocab_size}
    };
    size_t n = 0;
    append(json, size, &n,
           "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\"");
    for (size_t i = 0; i < TT_COUNT(sizes); i++)
        append(json, size, &n, ",\n  \"%s\": %lld", sizes[i].key, (long long)sizes[i].value);
    append(json, size, &n,
           ",\n  \"hidden_act\": \"silu\",\n  \"attention_bias\": false,\n  \"mlp_bias\": "
           "false,\n  \"attention_dropout\": 0.0,\n  \"initializer_range\": 0.02,\n  ");
    append_real(json, size, &n, "rms_norm_eps", c->norm_eps);
    append(json, size, &n, ",\n  ");
    append_real(json, size, &n, "rope_theta", c->rope_theta);
    append_scaling(json, size, &n, &c->rope);
    append(json, size, &n, ",\n  \"tie_word_embeddings\": %s\n}",
           c->tie_embeddings ? "true" : "false");
    if (n >= size)
        return TT_FAIL(err, TT_EINVAL, "llama3: its config.json is longer than %zu bytes", size);
    return TT_OK;
}

static const tt_model_hf hf = {
    sizeof hf, "llama",
    "{\"hidden_size\": 4096, \"intermediate_size\": 11008, \"num_hidden_layers\": 32, "
    "\"num_attention_heads\": 32, \"vocab_size\": 32000, \"rms_norm_eps\": 1e-6, "
    "\"rope_theta\": 10000.0, \"tie_word_embeddings\": false}",
    "{\"hidden_act\": \"silu\", \"attention_bias\": false, \"mlp_bias\": false, "
    "\"quantization_config\": null}",
    config_json};

static const void *extension(const char *id)
{
    return strcmp(id, TT_MODEL_HF) == 0 ? &hf : NULL;
}

static const tt_model_vt vt = {sizeof vt, flavors,    TT_COUNT(flavors), finish,
                               describe,  vocab_size, attention_width};

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "llama3",
                     "Llama 3: grouped-query attention, SwiGLU, rotary positions", config, options,
                     &vt, extension),
};

TT_PLUGIN("llama3", "1.0", components);
