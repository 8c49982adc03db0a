/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_HF_H
#define TT_MODELS_DECODER_HF_H
#include "decoder_options.h"
#include "rope_config.h"

/* Writes config.json for the models of decoder.h. */

#define DECODER_SILU "\"hidden_act\": \"silu\""

/* more: the activation and the members that only this model has, as text without a comma at either
 * end. */
static inline tt_status decoder_config_json(const decoder *c, const char *architecture,
                                            const char *model_type, const char *more, char *json,
                                            size_t size, tt_error *err)
{
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
    json_text t = {json, size, 0};
    json_begin_config(&t, architecture, model_type);
    for (size_t i = 0; i < TT_COUNT(sizes); i++)
        json_add(&t, ",\n  \"%s\": %lld", sizes[i].key, (long long)sizes[i].value);
    json_add(&t, ",\n  %s,\n  ", more);
    json_add_real(&t, "attention_dropout", c->attention_dropout);
    json_add(&t, ",\n  \"initializer_range\": 0.02,\n  ");
    json_add_real(&t, "rms_norm_eps", c->norm_eps);
    json_add(&t, ",\n  ");
    json_add_real(&t, "rope_theta", c->rope_theta);
    rope_add_scaling(&t, &c->rope, &c->factors);
    json_add(&t, ",\n  \"tie_word_embeddings\": %s", c->tie_embeddings ? "true" : "false");
    return json_end_config(&t, model_type, err);
}

/* The same, with the members of DECODER_WINDOW_OPTIONS after `more`, which here ends in a comma. */
static inline tt_status decoder_config_json_windows(const decoder *c, const char *architecture,
                                                    const char *model_type, const char *more,
                                                    char *json, size_t size, tt_error *err)
{
    char text[8192];
    json_text t = {text, sizeof text, 0};
    json_add(&t, DECODER_SILU ",\n  %s\"use_sliding_window\": %s,\n  \"max_window_layers\": %lld",
             more, c->window ? "true" : "false", (long long)c->max_window_layers);
    json_add(&t, c->window ? ",\n  \"sliding_window\": %lld" : ",\n  \"sliding_window\": null",
             (long long)c->window);
    if (decoder_said(c->layer_types))
        json_add(&t, ",\n  \"layer_types\": %s", c->layer_types);
    if (t.n >= t.size)
        return TT_FAIL(err, TT_EINVAL, "%s: its layer_types are longer than %zu bytes", model_type,
                       t.size);
    return decoder_config_json(c, architecture, model_type, text, json, size, err);
}

/* Adds layer_types: the argument's list, or the one that follows from the other arguments. */
static inline void decoder_add_layer_types(json_text *t, const decoder *c)
{
    json_add(t, ",\n  \"layer_types\": ");
    if (decoder_said(c->layer_types)) {
        json_add(t, "%s", c->layer_types);
        return;
    }
    for (int64_t i = 0; i < c->n_layers; i++)
        json_add(t, "%s\"%s_attention\"", i ? ", " : "[",
                 decoder_window(c, i) ? "sliding" : "full");
    json_add(t, "]");
}

/* Fails if the text does not fit. */
static inline tt_status decoder_text_fits(const json_text *t, tt_error *err)
{
    if (t->n >= t->size)
        return TT_FAIL(err, TT_EINVAL, "its lists of layers are longer than %zu bytes", t->size);
    return TT_OK;
}

/* The values that a config.json of Qwen 2 and 3 has by default when these keys are missing. */
#define DECODER_QWEN_DEFAULTS(head_dim)                                                            \
    "{\"hidden_size\": 4096, \"intermediate_size\": 22016, \"num_hidden_layers\": 32, "            \
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"head_dim\": " head_dim ", "       \
    "\"vocab_size\": 151936, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "                    \
    "\"tie_word_embeddings\": false}"

/* A model's extensions by id: its tables hf and gguf, and Meta's names or NULL. */
static inline const void *decoder_extension(const char *id, const tt_model_hf *hf,
                                            const tt_model_gguf *gguf, const tt_model_meta *meta)
{
    return strcmp(id, TT_MODEL_HF) == 0     ? (const void *)hf
           : strcmp(id, TT_MODEL_GGUF) == 0 ? (const void *)gguf
           : strcmp(id, TT_MODEL_META) == 0 ? (const void *)meta
                                            : NULL;
}

/* The vtable of a model of decoder.h. */
#define DECODER_VT(flavors, finish, describe)                                                      \
    {                                                                                              \
        sizeof(tt_model_vt), (flavors), TT_COUNT(flavors), (finish), (describe),                   \
            decoder_vocab_size, decoder_attention_width, "n_layers"                                \
    }

#endif
