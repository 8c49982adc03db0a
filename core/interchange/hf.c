/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/interchange_impl.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Loads the weights of a Hugging Face folder into pieces, and writes a step folder as a Hugging
 * Face folder. */

#define MAX_CONFIG_JSON 16384
#define MAX_ASSET_BYTES ((size_t)1 << 30)

tt_hf_param *tt_setup_hf_params(const tt_setup *s, tt_arena *a, size_t *n)
{
    *n = s->graph->params.n;
    tt_hf_param *p = tt_arena_array(a, *n + 1, sizeof *p);
    for (size_t i = 0; i < *n; i++) {
        const tt_param_info *info = s->graph->params.items[i];
        p[i] = (tt_hf_param){.name = info->name,
                             .n_dims = info->type.n_dims,
                             .storage = info->storage,
                             .n_storage = info->n_storage};
        for (int d = 0; d < info->type.n_dims; d++)
            p[i].dims[d] = info->type.dims[d].size;
    }
    return p;
}

/* Returns the prefix that names in the model's files may lack, or NULL. */
static const char *prefix_of(const tt_setup *s)
{
    const tt_model_hf *hf = tt_setup_model_hf(s->model.component);
    return hf && TT_HAS(hf, tt_model_hf, prefix) ? hf->prefix : NULL;
}

tt_status tt_setup_load_hf(const tt_setup *s, const char *folder, const tt_ckpt_piece *pieces,
                           size_t n, bool report, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    size_t n_params = 0;
    const tt_hf_param *params = tt_setup_hf_params(s, a, &n_params);
    const tt_status st = tt_hf_load(folder, params, n_params, prefix_of(s), pieces, n, report, err);
    tt_arena_free(a);
    return st;
}

/* ---- writing ---- */

static void add_ids(const tt_tokenizer_info *t, tt_str *out)
{
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {
        {"bos_token_id", t->bos},
        {"eos_token_id", t->eos},
        {"pad_token_id", t->pad}
    };
    for (size_t i = 0; i < TT_COUNT(ids); i++)
        if (ids[i].id >= 0)
            tt_str_printf(out, ",\n  \"%s\": %d", ids[i].key, (int)ids[i].id);
        else
            tt_str_printf(out, ",\n  \"%s\": null", ids[i].key);
}

/* Writes config.json: the model plugin's text and the keys that the core knows; and
 * generation_config.json. */
static tt_status write_configs(const tt_setup *su, const tt_tokenizer_info *t, tt_arena *a,
                               const char *folder, tt_error *err)
{
    const tt_model_hf *hf = tt_setup_model_hf(su->model.component);
    char *json = tt_arena_alloc(a, MAX_CONFIG_JSON);
    tt_str out = {0};
    const tt_json *root = NULL;
    TT_TRY(TT_PLUGIN_CALL(hf->config_json(su->model.config, json, MAX_CONFIG_JSON, err), err,
                          "model", su->model.name));
    TT_TRY(tt_json_parse(a, "config.json", json, strlen(json), &root, err));
    char *end = strrchr(json, '}');
    if (root->type != TT_JSON_OBJECT || !root->n || !end)
        return TT_FAIL(err, TT_EINVAL, "model %s: its config.json is not an object",
                       su->model.name);
    while (end > json && strchr(" \t\r\n", end[-1]))
        end--;
    tt_str_addn(&out, json, (size_t)(end - json));
    if (!tt_json_get(root, "max_position_embeddings") && !tt_json_get(root, "n_positions"))
        tt_str_printf(&out, ",\n  \"max_position_embeddings\": %lld",
                      (long long)su->core.training.seq_len);
    tt_str_add(&out, ",\n  \"torch_dtype\": \"float32\"");
    add_ids(t, &out);
    tt_str_add(&out, "\n}\n");
    tt_status s = tt_write_file_atomic(tt_path_join(a, folder, "config.json"), out.s, out.n, err);
    tt_str_clear(&out);
    tt_str_add(&out, "{\n  \"_from_model_config\": true");
    add_ids(t, &out);
    tt_str_add(&out, "\n}\n");
    if (s == TT_OK)
        s = tt_write_file_atomic(tt_path_join(a, folder, "generation_config.json"), out.s, out.n,
                                 err);
    tt_str_free(&out);
    return s;
}

const char *tt_setup_assets(const tt_setup *s, tt_arena *a)
{
    const char *const *own =
        s->has_tokenizer
            ? tt_part_value(s->tokenizer.component, s->tokenizer.config, "path", TT_OPT_STRING)
            : NULL;
    const char *path = own && *own ? tt_path_join(a, tt_job_dir(s->job), *own) : NULL;
    const size_t n = path ? strlen(path) : 0;
    return n > 5 && !strcmp(path + n - 5, ".json") ? tt_path_dir(a, path) : path;
}

static tt_status copy_tokenizer(const tt_setup *s, tt_arena *a, const char *folder, tt_error *err)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "tokenizer.model",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja"};
    const char *from = tt_setup_assets(s, a);
    for (size_t i = 0; from && i < TT_COUNT(names); i++) {
        char *text = NULL;
        size_t n = 0;
        const char *path = tt_path_join(a, from, names[i]);
        if (!tt_path_exists(path))
            continue;
        TT_TRY(tt_read_file(path, MAX_ASSET_BYTES, &text, &n, err));
        const tt_status st = tt_write_file_atomic(tt_path_join(a, folder, names[i]), text, n, err);
        free(text);
        TT_TRY(st);
    }
    return TT_OK;
}

tt_status tt_setup_write_hf(const tt_setup *s, const tt_tokenizer_info *tokenizer,
                            const char *step_folder, const char *folder, tt_error *err)
{
    static const tt_tokenizer_info none = {.bos = -1, .eos = -1, .pad = -1};
    tt_arena *a = tt_arena_new();
    size_t n = 0;
    const tt_hf_param *params = tt_setup_hf_params(s, a, &n);
    tt_status st = TT_OK;
    if (tt_path_exists(folder))
        st = tt_remove_tree(folder, err); /* left by a run that was killed */
    if (st == TT_OK)
        st = tt_mkdirs(folder, err);
    if (st == TT_OK)
        st = tt_hf_save(step_folder, params, n, TT_HF_SHARD_BYTES, folder, err);
    if (st == TT_OK)
        st = write_configs(s, tokenizer ? tokenizer : &none, a, folder, err);
    if (st == TT_OK)
        st = copy_tokenizer(s, a, folder, err);
    tt_arena_free(a);
    return st;
}
