/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_ROPE_CONFIG_H
#define TT_MODELS_ROPE_CONFIG_H
#include "rope_scaling.h"

/* Writes the scaling of rotary positions into a config.json. */

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

static inline void rope_add_list(json_text *t, const char *key, const double *x, int64_t n)
{
    json_add(t, ", \"%s\": [", key);
    for (int64_t i = 0; i < n; i++) {
        json_add(t, i ? ", " : "");
        json_add_number(t, x[i]);
    }
    json_add(t, "]");
}

/* Writes the members rope_scaling and, if the scaling implies it, max_position_embeddings. */
static inline void rope_add_scaling(json_text *t, const tt_rope_opts *r, const rope_factors *f)
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
        {"attention_factor", r->attention_factor},
        {"mscale",           f->mscale          },
        {"mscale_all_dim",   f->mscale_all_dim  }
    };
    static const char *const names[] = {[TT_ROPE_LINEAR] = "linear",
                                        [TT_ROPE_LLAMA3] = "llama3",
                                        [TT_ROPE_YARN] = "yarn",
                                        [TT_ROPE_LONGROPE] = "longrope"};
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
    if (r->scaling == TT_ROPE_LONGROPE) {
        rope_add_list(t, "short_factor", f->short_factor, f->n_short);
        rope_add_list(t, "long_factor", f->long_factor, f->n_long);
    }
    json_add(t, "%s}", r->no_truncate ? ", \"truncate\": false" : "");
    if (original > 0.0)
        json_add(t, ",\n  \"max_position_embeddings\": %.0f", rope_longest(r));
}

#endif
