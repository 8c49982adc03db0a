/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_ROPE_SCALING_H
#define TT_MODELS_ROPE_SCALING_H
#include "json_text.h"
#include <stdbool.h>
#include <ttrun/model.h>

/* model.args.rope_scaling, as in Hugging Face's config.json: a flat object of strings, numbers and
 * booleans. It is parsed into tt_rope_opts here, and written back. */

typedef struct {
    const char *at; /* the text not yet read */
    char text[64];  /* the last token: a string's contents, a number, a word, or one of {}:, */
    char kind;      /* '"' string, '0' number, 'a' word, the character itself, 0 at the end */
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

static inline tt_status rope_set_type(const char *type, tt_rope_opts *out, tt_error *err)
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

static inline tt_status rope_set_member(const char *key, const rope_reader *value,
                                        tt_rope_opts *out, tt_error *err)
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
        return rope_set_type(value->text, out, err);
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

static inline tt_status rope_read_scaling(const char *json, tt_rope_opts *out, tt_error *err)
{
    rope_reader r = {.at = json};
    bool ok = rope_read_token(&r) && r.kind == '{' && rope_read_token(&r);
    while (ok && r.kind == '"') {
        char key[sizeof r.text];
        memcpy(key, r.text, sizeof key);
        ok = rope_read_token(&r) && r.kind == ':' && rope_read_token(&r) && r.kind &&
             strchr("\"0a", r.kind);
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
    if (out->factor == 0.0 && (out->scaling == TT_ROPE_YARN || out->scaling == TT_ROPE_LINEAR))
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.rope_scaling: %s needs a factor, as in {\"rope_type\": \"%s\", "
                       "\"factor\": 4}",
                       out->scaling == TT_ROPE_YARN ? "yarn" : "linear",
                       out->scaling == TT_ROPE_YARN ? "yarn" : "linear");
    const double low = out->low_freq_factor != 0.0 ? out->low_freq_factor : 1.0;
    const double high = out->high_freq_factor != 0.0 ? out->high_freq_factor : 4.0;
    if (out->scaling == TT_ROPE_LLAMA3 && !(low < high))
        return TT_FAIL(
            err, TT_EINVAL,
            "model.args.rope_scaling: low_freq_factor %g is not below high_freq_factor %g", low,
            high);
    return TT_OK;
}

/* ---- writing ---- */

/* The original context length that the scaling starts from (0: not given), and the extended one. */
static inline double rope_original(const tt_rope_opts *r)
{
    if (r->original_max_position > 0.0)
        return r->original_max_position;
    return r->scaling >= TT_ROPE_LLAMA3 ? 8192.0 : 0.0; /* tt_rope_opts' default */
}

static inline double rope_longest(const tt_rope_opts *r)
{
    return rope_original(r) * (r->factor > 1.0 ? r->factor : 1.0);
}

/* Writes the members rope_scaling and, if the scaling implies it, max_position_embeddings. */
static inline void rope_add_scaling(json_text *t, const tt_rope_opts *r)
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
    const double original = rope_original(r);
    json_add(t, ",\n  \"rope_scaling\": ");
    if (r->scaling == TT_ROPE_NONE) {
        json_add(t, "null");
        return;
    }
    json_add(t, "{\"rope_type\": \"%s\"", names[r->scaling]);
    for (size_t i = 0; i < TT_COUNT(numbers); i++) {
        if (numbers[i].value == 0.0)
            continue;
        json_add(t, ", ");
        json_add_real(t, numbers[i].key, numbers[i].value);
    }
    if (original > 0.0)
        json_add(t, ", \"original_max_position_embeddings\": %.0f", original);
    json_add(t, "%s}", r->no_truncate ? ", \"truncate\": false" : "");
    if (original > 0.0)
        json_add(t, ",\n  \"max_position_embeddings\": %.0f", rope_longest(r));
}

#endif
