/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* The files that lie beside a tokenizer and name its special tokens. */

const char *const hf_config_names[HF_N_CONFIGS] = {"tokenizer_config.json",
                                                   "special_tokens_map.json", "added_tokens.json"};

void hf_configs_release(hf_configs *c)
{
    for (int i = 0; i < HF_N_CONFIGS; i++) {
        free(c->names[i]);
        json_decref(c->roots[i]);
    }
    *c = (hf_configs){{NULL}, {NULL}};
}

const json_t *hf_configs_token(const hf_configs *c, const char *key, hf_config_file *file)
{
    const json_t *config = c->roots[HF_TOKENIZER_CONFIG];
    const json_t *v = json_object_get(config, "added_tokens_decoder")
                          ? NULL
                          : json_object_get(c->roots[HF_SPECIAL_MAP], key);
    *file = v && !json_is_null(v) ? HF_SPECIAL_MAP : HF_TOKENIZER_CONFIG;
    if (*file == HF_TOKENIZER_CONFIG)
        v = json_object_get(config, key);
    return v && !json_is_null(v) ? v : NULL;
}

/* "bos_token": "<s>" or {"content": "<s>", …} or null. */
static tt_status config_special(const hf_tokenizer *t, const hf_configs *c, const char *key,
                                int32_t *id, tt_error *err)
{
    hf_config_file at;
    const json_t *v = hf_configs_token(c, key, &at);
    const char *file = c->names[at] ? c->names[at] : hf_config_names[at];
    if (json_is_object(v))
        v = json_object_get(v, "content");
    if (!v || json_is_null(v))
        return TT_OK;
    if (!json_is_string(v))
        return TT_FAIL(err, TT_EFORMAT, "%s: %s: expected a token's text", file, key);
    const int32_t found = hf_find_token(t, json_string_value(v), json_string_length(v));
    const hf_shown shown = hf_show(json_string_value(v), json_string_length(v));
    if (found < 0 && at == HF_SPECIAL_MAP)
        tt_log(TT_WARN, "data", "%s: %s: \"%s\" is not a token of %s; left out", file, key,
               shown.text, t->path);
    else if (found < 0)
        return TT_FAIL(err, TT_EFORMAT, "%s: %s: \"%s\" is not a token of %s", file, key,
                       shown.text, t->path);
    *id = found < 0 ? *id : found;
    return TT_OK;
}

/* The text of the special token that a post-processor puts before a text, or after it; NULL: none. */
static const char *special_at(const json_t *processor, bool last)
{
    const char *type = hf_type(processor), *text = NULL;
    const json_t *list = json_object_get(processor, "processors"), *item;
    size_t i;
    json_array_foreach(list, i, item) if (!text || (last && special_at(item, last))) text =
        special_at(item, last);
    if (text)
        return text;
    if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing"))
        return json_string_value(
            json_array_get(json_object_get(processor, last ? "sep" : "cls"), 0));
    list = json_object_get(processor, "single");
    item = json_array_get(list, last && json_array_size(list) ? json_array_size(list) - 1 : 0);
    return json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
}

void hf_load_begin(hf_tokenizer *t, const json_t *root)
{
    const json_t *processor = json_object_get(root, "post_processor");
    const char *first = special_at(processor, false), *last = special_at(processor, true);
    t->begin = first ? hf_find_token(t, first, strlen(first)) : -1;
    t->end = last ? hf_find_token(t, last, strlen(last)) : -1;
}

void hf_choose_begin(hf_tokenizer *t, const hf_configs *c, bool named)
{
    const json_t *config = c->roots[HF_TOKENIZER_CONFIG],
                 *add = json_object_get(config, "add_bos_token"),
                 *end = json_object_get(config, "add_eos_token");
    const bool processed = t->begin == HF_BEGIN_BOS || t->begin == t->bos,
               adds = named || (json_is_boolean(add) ? json_is_true(add) : processed);
    t->omits_bos = t->bos >= 0 && !adds;
    t->adds_eos = t->eos >= 0 && (json_is_boolean(end) ? json_is_true(end) : t->end == t->eos);
}

tt_status hf_load_configs(hf_tokenizer *t, const hf_configs *c, tt_error *err)
{
    TT_TRY(config_special(t, c, "bos_token", &t->bos, err));
    TT_TRY(config_special(t, c, "eos_token", &t->eos, err));
    return config_special(t, c, "pad_token", &t->pad, err);
}
