/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/hf_context.h"
#include "interchange/hf_job.h"
#include "setup/setup.h"
#include <string.h>

#define MAX_CONFIG_BYTES ((size_t)4 << 20)
#define MOST_POSITIONS 1e15

int64_t tt_hf_positions(const tt_json *config)
{
    static const char *const keys[] = {"max_position_embeddings", "n_positions", "max_seq_len"};
    for (size_t i = 0; i < TT_COUNT(keys); i++) {
        const tt_json *v = tt_json_get(config, keys[i]);
        if (v && v->type == TT_JSON_INT && v->integer > 0)
            return v->integer;
    }
    return 0;
}

static const char *text_at(const tt_json *object, const char *key)
{
    const tt_json *v = tt_json_get(object, key);
    return v && v->type == TT_JSON_STRING ? v->string : "";
}

/* A positive number; 0: there is none. */
static double number_at(const tt_json *object, const char *key)
{
    const tt_json *v = tt_json_get(object, key);
    return v && (v->type == TT_JSON_INT || v->type == TT_JSON_REAL) && v->real > 0 ? v->real : 0;
}

/* rope_scaling of transformers 4, or rope_parameters of version 5, where layers that see all tokens may have their own. */
static const tt_json *scaling_of(const tt_json *config)
{
    const tt_json *four = tt_json_get(config, "rope_scaling"),
                  *five = tt_json_get(config, "rope_parameters"),
                  *full = tt_json_get(five, "full_attention");
    return four && four->type == TT_JSON_OBJECT ? four : full ? full : five;
}

int64_t tt_hf_context(const tt_json *config)
{
    static const char original[] = "original_max_position_embeddings";
    const tt_json *scaling = scaling_of(config);
    const char *type = text_at(scaling, "rope_type"), *family = text_at(config, "model_type");
    const int64_t most = tt_hf_positions(config);
    const double factor = number_at(scaling, "factor"), inside = number_at(scaling, original),
                 first = inside > 0 ? inside : number_at(config, original);
    double n = (double)most;
    if (!*type)
        type = text_at(scaling, "type");
    if ((!strcmp(type, "linear") || !strcmp(type, "dynamic")) && factor > 0 &&
        strncmp(family, "gemma3", 6) != 0)
        n *= factor;
    else if (!strcmp(type, "yarn") && factor > 0)
        n = (first > 0 ? first : n) * factor;
    else if ((!strcmp(type, "longrope") || !strcmp(type, "su")) && first > 0)
        n = first;
    return n < MOST_POSITIONS ? (int64_t)n : most;
}

tt_status tt_hf_context_of(const char *folder, tt_arena *a, int64_t *out, tt_error *err)
{
    const char *path = tt_path_join(a, folder, "config.json");
    const tt_json *root = NULL;
    *out = 0;
    TT_TRY(tt_json_read(a, path, MAX_CONFIG_BYTES, &root, err));
    if (root->type == TT_JSON_OBJECT)
        *out = tt_hf_context(tt_hf_text_config(root));
    return TT_OK;
}
