/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_ROPE_SCALING_H
#define TT_MODELS_ROPE_SCALING_H
#include "json_text.h"
#include <stdbool.h>
#include <ttrun/model.h>

/* model.args.rope_scaling, as in Hugging Face's config.json: an object of strings, numbers,
 * booleans and, for LongRoPE, two lists of numbers. It is parsed into tt_rope_opts here;
 * rope_config.h writes it back. */

#define ROPE_MAX_PAIRS 512

/* LongRoPE's divisors of the frequencies, for sequences of up to the original context length and for
 * longer ones; and DeepSeek's members of YaRN, which only multi-head latent attention has (mla.h). */
typedef struct {
    int64_t n_short, n_long;
    double short_factor[ROPE_MAX_PAIRS], long_factor[ROPE_MAX_PAIRS];
    bool takes_mscale; /* set before reading: mscale and mscale_all_dim are known keys */
    double mscale, mscale_all_dim; /* of yarn; 0: not given */
} rope_factors;

typedef struct {
    const char *at; /* the text not yet read */
    char text[64];  /* the last token: a string's contents, a number, a word, or one of {}[]:, */
    char kind;      /* '"' string, '0' number, 'a' word, the character itself, 0 at the end */
    rope_factors *factors;
} rope_reader;

static inline bool rope_read_token(rope_reader *r)
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
    } else if (*begin == '\0' || strchr("{}[]:,", *begin)) {
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

static inline tt_status rope_set_type(const char *type, tt_rope_opts *out, tt_error *err)
{
    static const struct {
        const char *name;
        tt_rope_scaling value;
    } types[] = {
        {"default",  TT_ROPE_NONE    },
        {"linear",   TT_ROPE_LINEAR  },
        {"llama3",   TT_ROPE_LLAMA3  },
        {"yarn",     TT_ROPE_YARN    },
        {"longrope", TT_ROPE_LONGROPE},
        {"su",       TT_ROPE_LONGROPE}  /* an older name */
    };
    for (size_t i = 0; i < TT_COUNT(types); i++) {
        if (strcmp(type, types[i].name) == 0) {
            out->scaling = types[i].value;
            return TT_OK;
        }
    }
    return TT_FAIL(err, TT_EINVAL,
                   "model.args.rope_scaling.rope_type: \"%s\" is not built; use default, linear, "
                   "llama3, yarn or longrope",
                   type);
}

/* Reads the rest of a list of positive numbers, whose '[' has been read. */
static inline tt_status rope_read_list(rope_reader *r, const char *key, double *out, int64_t *n,
                                       tt_error *err)
{
    bool ok = true, more = true;
    for (*n = 0; ok && more; ++*n) {
        char *end = NULL;
        ok = *n < ROPE_MAX_PAIRS && rope_read_token(r) && r->kind == '0';
        if (!ok)
            break;
        out[*n] = strtod(r->text, &end);
        ok = *end == '\0' && out[*n] > 0.0 && out[*n] < 1e18 && rope_read_token(r) &&
             strchr(",]", r->kind);
        more = r->kind == ',';
    }
    if (!ok)
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.rope_scaling.%s: wanted a list of 1 to %d positive numbers", key,
                       ROPE_MAX_PAIRS);
    return TT_OK;
}

/* Reads the value that begins with the token that was read last. */
static inline tt_status rope_set_member(const char *key, rope_reader *value, tt_rope_opts *out,
                                        tt_error *err)
{
    rope_factors *f = value->factors;
    const struct {
        const char *name;
        double *at;
    } numbers[] = {
        {"mscale",                           &f->mscale                 },
        {"mscale_all_dim",                   &f->mscale_all_dim         },
        {"factor",                           &out->factor               },
        {"low_freq_factor",                  &out->low_freq_factor      },
        {"high_freq_factor",                 &out->high_freq_factor     },
        {"original_max_position_embeddings", &out->original_max_position},
        {"beta_fast",                        &out->beta_fast            },
        {"beta_slow",                        &out->beta_slow            },
        {"attention_factor",                 &out->attention_factor     }
    };
    if ((strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0) && value->kind == '"')
        return rope_set_type(value->text, out, err);
    if (strcmp(key, "short_factor") == 0 && value->kind == '[')
        return rope_read_list(value, key, f->short_factor, &f->n_short, err);
    if (strcmp(key, "long_factor") == 0 && value->kind == '[')
        return rope_read_list(value, key, f->long_factor, &f->n_long, err);
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
        if (strcmp(key, numbers[i].name) != 0 || (i < 2 && !f->takes_mscale))
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
        "beta_slow, attention_factor, truncate, short_factor, long_factor",
        key);
}

/* Checks that the members fit together. `out` has the rotary dim. */
static inline tt_status rope_check_scaling(tt_rope_opts *out, const rope_factors *f, tt_error *err)
{
    const char *name = out->scaling == TT_ROPE_LONGROPE ? "longrope"
                       : out->scaling == TT_ROPE_YARN   ? "yarn"
                                                        : "linear";
    const bool needs = out->scaling != TT_ROPE_NONE && out->scaling != TT_ROPE_LLAMA3;
    if (out->factor == 0.0 && needs &&
        (out->scaling != TT_ROPE_LONGROPE || out->attention_factor == 0.0))
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.rope_scaling: %s needs a factor, as in {\"rope_type\": \"%s\", "
                       "\"factor\": 4}",
                       name, name);
    if (out->scaling == TT_ROPE_LONGROPE &&
        (f->n_short != out->rotary_dim / 2 || f->n_long != out->rotary_dim / 2 ||
         out->original_max_position == 0.0))
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.rope_scaling: longrope needs original_max_position_embeddings, "
                       "and short_factor and long_factor with %lld numbers each, half of what is "
                       "rotated of a head; they have %lld and %lld",
                       (long long)(out->rotary_dim / 2), (long long)f->n_short,
                       (long long)f->n_long);
    const double low = out->low_freq_factor != 0.0 ? out->low_freq_factor : 1.0;
    const double high = out->high_freq_factor != 0.0 ? out->high_freq_factor : 4.0;
    if (out->scaling == TT_ROPE_LLAMA3 && !(low <= high))
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.rope_scaling: low_freq_factor %g is above high_freq_factor %g",
                       low, high);
    return TT_OK;
}

/* Reads the JSON text into *out, whose rotary_dim is set, and *factors. */
static inline tt_status rope_read_scaling(const char *json, tt_rope_opts *out,
                                          rope_factors *factors, tt_error *err)
{
    rope_reader r = {.at = json, .factors = factors};
    bool ok = rope_read_token(&r) && r.kind == '{' && rope_read_token(&r);
    while (ok && r.kind == '"') {
        char key[sizeof r.text];
        memcpy(key, r.text, sizeof key);
        ok = rope_read_token(&r) && r.kind == ':' && rope_read_token(&r) && r.kind &&
             strchr("\"0a[", r.kind);
        if (!ok)
            break;
        TT_TRY(rope_set_member(key, &r, out, err));
        ok = rope_read_token(&r) &&
             (r.kind == '}' || (r.kind == ',' && rope_read_token(&r) && r.kind == '"'));
    }
    if (!ok || r.kind != '}' || !rope_read_token(&r) || r.kind != '\0')
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.rope_scaling: wanted null or a flat object such as "
                       "{\"rope_type\": \"llama3\", \"factor\": 8}, got %.80s",
                       json);
    if (out->scaling == TT_ROPE_YARN && factors->n_long > 0)
        out->scaling = TT_ROPE_LONGROPE; /* the first releases of Phi-3 called it so */
    return rope_check_scaling(out, factors, err);
}

#endif
