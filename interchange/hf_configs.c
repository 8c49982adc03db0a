/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/assets.h"
#include "interchange/hf_config.h"
#include "interchange/hf_context.h"
#include "interchange/hf_job.h"
#include "interchange/interchange_impl.h"
#include <stdlib.h>
#include <string.h>

/* config.json of an export. A model that came from a Hugging Face folder
 * keeps that folder's keys (context length, RoPE, ids, keys that only other programs read); those
 * that training changed are the model plugin's. What changed is found by comparing two texts of the
 * plugin: for the trained model, and for the sizes in the folder's config.json. */

#define MAX_CONFIG_JSON 16384
#define MAX_CONFIG_BYTES ((size_t)4 << 20)

static bool same_json(const tt_json *a, const tt_json *b)
{
    if (!a || !b)
        return a == b;
    tt_str x = {0}, y = {0};
    tt_json_write(a, &x);
    tt_json_write(b, &y);
    const bool equal = !strcmp(tt_str_get(&x), tt_str_get(&y));
    tt_str_free(&x);
    tt_str_free(&y);
    return equal;
}

/* ---- writing JSON: a line per key ---- */

static void put_value(tt_str *out, const tt_json *v)
{
    const bool object = v->type == TT_JSON_OBJECT;
    if (!object && v->type != TT_JSON_ARRAY) {
        tt_json_write_exact(v, out);
        return;
    }
    tt_str_addc(out, object ? '{' : '[');
    for (size_t i = 0; i < v->n; i++) {
        tt_str_add(out, i ? ", " : "");
        if (object) {
            tt_str_json(out, v->keys[i]);
            tt_str_add(out, ": ");
        }
        put_value(out, v->items[i]);
    }
    tt_str_addc(out, object ? '}' : ']');
}

void tt_hf_put_key(tt_str *out, const char *key)
{
    tt_str_add(out, out->n > 1 ? ",\n  " : "\n  ");
    tt_str_json(out, key);
    tt_str_add(out, ": ");
}

void tt_hf_put_member(tt_str *out, const char *key, const tt_json *v)
{
    tt_hf_put_key(out, key);
    put_value(out, v);
}

/* ---- ids of special tokens ---- */

void tt_hf_put_id(tt_str *out, const char *key, int32_t id)
{
    tt_hf_put_key(out, key);
    tt_str_printf(out, id >= 0 ? "%d" : "null", (int)id);
}

static void put_ids(tt_str *out, const tt_tokenizer_info *t)
{
    tt_hf_put_id(out, "bos_token_id", t ? t->bos : -1);
    tt_hf_put_id(out, "eos_token_id", t ? t->eos : -1);
    tt_hf_put_id(out, "pad_token_id", t ? t->pad : -1);
}

bool tt_hf_names_id(const tt_json *v, int32_t id)
{
    if (v && v->type == TT_JSON_ARRAY) {
        for (size_t i = 0; i < v->n; i++)
            if (tt_hf_names_id(v->items[i], id))
                return true;
        return false;
    }
    return v && v->type == TT_JSON_INT && v->integer == id;
}

/* The source's ids are kept if the tokenizer of the training ends texts as the source says. */
static bool keeps_ids(const tt_json *source, const tt_tokenizer_info *t)
{
    return !t || (t->eos >= 0 && tt_hf_names_id(tt_json_get(source, "eos_token_id"), t->eos));
}

/* ---- the parts ---- */

static tt_status parse_own(const tt_setup *su, const void *config, tt_arena *a, const tt_json **out,
                           tt_error *err)
{
    const tt_model_hf *hf = tt_setup_model_hf(su->model.component);
    char *json = tt_arena_alloc(a, MAX_CONFIG_JSON);
    TT_TRY(TT_PLUGIN_CALL(hf->config_json(config, json, MAX_CONFIG_JSON, err), err, "model",
                          su->model.name));
    TT_TRY(tt_json_parse(a, "config.json", json, strlen(json), out, err));
    if ((*out)->type != TT_JSON_OBJECT || !(*out)->n)
        return TT_FAIL(err, TT_EINVAL, "model %s: its config.json is not an object",
                       su->model.name);
    return TT_OK;
}

static bool is_one_of(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(key, list[i]))
            return true;
    return false;
}

static const char *const dtype_keys[] = {"dtype", "torch_dtype"};
static const char *const id_names[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
static const char *const rope_keys[] = {"rope_theta", "rope_scaling"};

typedef struct merge {
    const tt_json *source, *own, *before; /* before: the plugin's text for the source's sizes */
    bool rope, ids;                       /* RoPE was changed; the ids are the source's */
    bool text;                            /* the source is the text_config of a larger model */
} merge;

static bool changed(const merge *m, const char *key)
{
    if (m->rope && is_one_of(key, rope_keys, TT_COUNT(rope_keys)))
        return true;
    return !same_json(tt_json_get(m->own, key), tt_json_get(m->before, key));
}

/* Keys of the source that say nothing about the export. */
static bool dropped(const merge *m, const char *key)
{
    return is_one_of(key, dtype_keys, TT_COUNT(dtype_keys)) ||
           !strcmp(key, "quantization_config") || /* the weights are not quantized any more */
           (m->rope && !strcmp(key, "rope_parameters")) ||
           (!m->ids && is_one_of(key, id_names, TT_COUNT(id_names)));
}

static void put_merged(tt_str *out, const merge *m)
{
    for (size_t i = 0; i < m->source->n; i++) {
        const char *key = m->source->keys[i];
        const tt_json *v = changed(m, key) ? tt_json_get(m->own, key) : m->source->items[i];
        if (v && !dropped(m, key))
            tt_hf_put_member(out, key, v);
    }
    for (size_t i = 0; i < m->own->n; i++)
        if (!tt_json_get(m->source, m->own->keys[i]) &&
            (changed(m, m->own->keys[i]) || (m->text && !strcmp(m->own->keys[i], "architectures"))))
            tt_hf_put_member(out, m->own->keys[i], m->own->items[i]);
}

static void put_own(tt_str *out, const tt_json *own, int64_t seq_len)
{
    for (size_t i = 0; i < own->n; i++)
        tt_hf_put_member(out, own->keys[i], own->items[i]);
    if (!tt_json_get(own, "max_position_embeddings") && !tt_json_get(own, "n_positions")) {
        tt_hf_put_key(out, "max_position_embeddings");
        tt_str_printf(out, "%lld", (long long)seq_len);
    }
}

static tt_status open_merge(const tt_setup *su, const char *path, const tt_tokenizer_info *t,
                            tt_arena *a, merge *m, tt_error *err)
{
    void *config = NULL;
    const tt_json *root = NULL, *type;
    TT_TRY(tt_json_read_object(a, path, MAX_CONFIG_BYTES, &root, err));
    m->source = tt_hf_text_config(root);
    m->text = m->source != root;
    type = tt_json_get(root, "model_type");
    if (m->text)
        tt_log(TT_INFO, "checkpoint",
               "the text model of %s is exported, as model_type %s without the other parts%s%s",
               su->core.hf_assets_path, tt_json_get(m->source, "model_type")->string,
               type && type->type == TT_JSON_STRING ? " of " : "",
               type && type->type == TT_JSON_STRING ? type->string : "");
    TT_TRY(tt_setup_hf_config(su, path, &config, err));
    TT_TRY(parse_own(su, config, a, &m->before, err));
    for (size_t i = 0; i < TT_COUNT(rope_keys); i++)
        m->rope = m->rope || changed(m, rope_keys[i]);
    m->ids = keeps_ids(m->source, t);
    return TT_OK;
}

tt_status tt_hf_write_configs(const tt_setup *su, const tt_hf_export *o, const tt_export_chat *c,
                              const tt_hf_param *params, size_t n_params, const char *model,
                              tt_dtype dtype, tt_arena *a, tt_error *err)
{
    static const char *const words[] = {
        [TT_F32] = "float32", [TT_BF16] = "bfloat16", [TT_F16] = "float16"};
    merge m = {0};
    tt_str out = {0};
    TT_TRY(parse_own(su, su->model.config, a, &m.own, err));
    if (model)
        TT_TRY(open_merge(su, tt_path_join(a, model, "config.json"), o->tokenizer, a, &m, err));
    tt_str_addc(&out, '{');
    if (model)
        put_merged(&out, &m);
    else
        put_own(&out, m.own, su->core.training.seq_len);
    tt_hf_put_key(&out, tt_json_get(m.source, "dtype") ? "dtype" : "torch_dtype");
    tt_str_json(&out, words[dtype]);
    if (!m.ids)
        put_ids(&out, o->tokenizer);
    tt_status s = TT_OK;
    if (o->low) {
        tt_hf_put_key(&out, "quantization_config");
        s = tt_hf_put_quantization(&out, o->low, params, n_params, a, err);
    }
    tt_str_add(&out, "\n}\n");
    if (s == TT_OK)
        s = tt_write_file_atomic(tt_path_join(a, o->folder, "config.json"), out.s, out.n, err);
    tt_str_free(&out);
    return s == TT_OK ? tt_hf_write_generation(o, c, m.source, model, a, err) : s;
}

/* As put_merged and put_own: the source's, unless training changed it. */
tt_status tt_hf_written_positions(const tt_setup *su, const char *run, tt_arena *a, int64_t *out,
                                  tt_error *err)
{
    const char *model = tt_assets_model(su, a, run);
    merge m = {0};
    tt_error none = {0};
    *out = su->core.training.seq_len;
    if (!tt_setup_model_hf(su->model.component) ||
        parse_own(su, su->model.config, a, &m.own, &none) != TT_OK)
        return TT_OK; /* transformers does not have the model, or not with these arguments */
    if (model)
        TT_TRY(open_merge(su, tt_path_join(a, model, "config.json"), NULL, a, &m, err));
    const bool kept = model && tt_hf_positions(m.own) == tt_hf_positions(m.before);
    const int64_t n = tt_hf_positions(kept ? m.source : m.own);
    *out = n > 0 ? n : *out;
    return TT_OK;
}

tt_status tt_hf_source_dtype(tt_arena *a, const char *model, tt_dtype *out, tt_error *err)
{
    const tt_json *root = NULL;
    *out = TT_F32;
    if (!model)
        return TT_OK;
    TT_TRY(tt_json_read_object(a, tt_path_join(a, model, "config.json"), MAX_CONFIG_BYTES, &root,
                               err));
    for (size_t i = 0; i < TT_COUNT(dtype_keys); i++) {
        const tt_json *v = tt_json_get(root, dtype_keys[i]);
        if (!v || v->type != TT_JSON_STRING)
            continue;
        if (!strcmp(v->string, "bfloat16"))
            *out = TT_BF16;
        else if (!strcmp(v->string, "float16"))
            *out = TT_F16;
        break;
    }
    return TT_OK;
}
