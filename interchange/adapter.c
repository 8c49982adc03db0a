/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/folder.h"
#include "interchange/interchange_impl.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adapters in PEFT's format: adapter_config.json and adapter_model.safetensors, whose tensors are
 * named "base_model.model.<layer>.lora_A.weight" and lora_B, <layer> as in the base's files; DoRA's magnitudes are
 * named "….lora_magnitude_vector". */

#define CONFIG "adapter_config.json"
#define WEIGHTS "adapter_model.safetensors"

bool tt_adapter_is_folder(const char *folder)
{
    return tt_folder_has(folder, CONFIG);
}

/* The layer of a weight in the base's files; NULL: no tensor there is this weight alone. */
static const char *layer_there(tt_arena *a, const tt_param_info *w, bool *transposed)
{
    const tt_storage whole = {.name = w->name}, *st = w->n_storage ? w->storage : &whole;
    const int64_t rows = w->whole.dims[0].size;
    const char *end = strrchr(st->name, '.');
    if (w->n_storage > 1 || st->begin || st->file_begin || (st->size && st->size != rows) || !end ||
        strcmp(end, ".weight") != 0)
        return NULL;
    *transposed = st->transpose != 0;
    return tt_arena_strn(a, st->name, (size_t)(end - st->name));
}

const char *tt_adapter_layer(tt_arena *a, const tt_param_info *w)
{
    bool transposed;
    return layer_there(a, w, &transposed);
}

/* The tensor of PEFT's file that is a parameter of an adapter. */
static tt_status adapter_key(tt_arena *a, const tt_param_info *p, const char **out, tt_error *err)
{
    bool transposed = false;
    const tt_param_info *w = p->adapter_of;
    const char *layer = layer_there(a, w, &transposed);
    if (!layer)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%s is a part of a tensor in the base's files, so PEFT has no adapter like "
                       "it: export the merged model, or set targets without this layer",
                       w->name);
    *out = tt_arena_printf(a, "base_model.model.%s.lora_%s", layer,
                           w->magnitude == p   ? "magnitude_vector"
                           : w->adapter_a == p ? "A.weight"
                                               : "B.weight");
    return TT_OK;
}

/* ---- export ---- */

static const tt_param_info *first_weight(const tt_setup *s)
{
    for (size_t i = 0; i < s->graph->params.n; i++)
        if (s->graph->params.items[i]->adapter_a)
            return s->graph->params.items[i];
    return NULL;
}

static int64_t rank_of(const tt_param_info *w)
{
    return w->adapter_a->type.dims[0].size;
}

/* Ranks or alphas of the layers that differ from the first one's. */
static void put_patterns(tt_arena *a, const tt_setup *s, const tt_param_info *first, bool ranks,
                         tt_str *o)
{
    bool any = false, transposed;
    tt_str_printf(o, "  \"%s_pattern\": {", ranks ? "rank" : "alpha");
    for (size_t i = 0; i < s->graph->params.n; i++) {
        const tt_param_info *w = s->graph->params.items[i];
        if (!w->adapter_a || (ranks ? rank_of(w) == rank_of(first)
                                    : !(w->adapter.alpha < first->adapter.alpha ||
                                        w->adapter.alpha > first->adapter.alpha)))
            continue;
        tt_str_add(o, any ? ", " : "");
        any = true;
        tt_str_json(o, layer_there(a, w, &transposed));
        tt_str_add(o, ": ");
        tt_str_json_number(o, ranks ? (double)rank_of(w) : w->adapter.alpha);
    }
    tt_str_add(o, "},\n");
}

static void put_targets(tt_arena *a, const tt_setup *s, tt_str *o, bool *transposed, bool *mixed)
{
    bool any = false;
    tt_str_add(o, "  \"target_modules\": [");
    for (size_t i = 0; i < s->graph->params.n; i++) {
        const tt_param_info *w = s->graph->params.items[i];
        bool here = false;
        if (!w->adapter_a)
            continue;
        const char *layer = layer_there(a, w, &here);
        *mixed = *mixed || (any && here != *transposed);
        *transposed = here;
        tt_str_add(o, any ? ",\n    " : "\n    ");
        any = true;
        tt_str_json(o, layer);
    }
    tt_str_add(o, "],\n");
}

static tt_status write_config(const tt_setup *s, tt_arena *a, const char *folder, tt_error *err)
{
    const tt_param_info *first = first_weight(s);
    bool transposed = false, mixed = false;
    tt_str o = {0};
    tt_str_add(&o, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  "
                   "\"base_model_name_or_path\": ");
    if (s->core.hf)
        tt_str_json(&o, s->core.hf);
    else
        tt_str_add(&o, "null");
    tt_str_printf(&o, ",\n  \"bias\": \"none\",\n  \"inference_mode\": true,\n  \"r\": %lld,\n",
                  (long long)rank_of(first));
    tt_str_add(&o, "  \"lora_alpha\": ");
    tt_str_json_number(&o, first->adapter.alpha);
    tt_str_add(&o, ",\n  \"lora_dropout\": ");
    tt_str_json_number(&o, first->adapter.dropout);
    tt_str_printf(&o, ",\n  \"use_rslora\": %s,\n  \"use_dora\": %s,\n",
                  first->adapter.rank_stabilized ? "true" : "false",
                  first->magnitude ? "true" : "false");
    put_patterns(a, s, first, true, &o);
    put_patterns(a, s, first, false, &o);
    put_targets(a, s, &o, &transposed, &mixed);
    tt_str_printf(&o, "  \"fan_in_fan_out\": %s\n}\n", transposed ? "true" : "false");
    const tt_status st =
        mixed ? TT_FAIL(err, TT_EUNSUPPORTED,
                        "adapters of transposed and of plain weights do not fit one " CONFIG)
              : tt_write_file_atomic(tt_path_join(a, folder, CONFIG), o.s, o.n, err);
    tt_str_free(&o);
    return st;
}

static tt_status list_params(const tt_setup *s, tt_arena *a, tt_hf_param **out, size_t *n,
                             tt_error *err)
{
    const tt_param_info *first = first_weight(s);
    tt_hf_param *p = tt_arena_array(a, s->graph->params.n + 1, sizeof *p);
    size_t others = 0;
    *n = 0;
    if (!first)
        return TT_FAIL(err, TT_EINVAL,
                       "the run has no adapters: it was trained without the "
                       "converter lora");
    for (size_t i = 0; i < s->graph->params.n; i++) {
        const tt_param_info *info = s->graph->params.items[i];
        if (info->adapter_a && info->adapter.rank_stabilized != first->adapter.rank_stabilized)
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "adapters with and without rslora do not fit one " CONFIG);
        if (info->adapter_a && !info->magnitude != !first->magnitude)
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "adapters with and without use_dora do not fit one " CONFIG);
        others += !info->adapter_of && !info->frozen;
        if (!info->adapter_of)
            continue;
        tt_storage *st = tt_arena_alloc(a, sizeof *st);
        TT_TRY(adapter_key(a, info, &st->name, err));
        p[*n] = (tt_hf_param){
            .name = info->name, .n_dims = info->type.n_dims, .storage = st, .n_storage = 1};
        for (int d = 0; d < info->type.n_dims; d++)
            p[*n].dims[d] = info->type.dims[d].size;
        ++*n;
    }
    if (others)
        tt_log(TT_WARN, "checkpoint",
               "%zu trained parameters are no adapters, so they are not in the adapter's folder; "
               "an export without --adapter has them",
               others);
    *out = p;
    return TT_OK;
}

static tt_status write_weights(const tt_setup *s, tt_arena *a, const char *step_folder,
                               const tt_hf_param *params, size_t n, tt_dtype dtype,
                               const char *folder, tt_tensor_counts *counts, tt_error *err)
{
    tt_ckpt_reader *from = NULL;
    tt_map *base = tt_map_new(a);
    for (size_t i = 0; i < s->graph->params.n; i++)
        if (!s->graph->params.items[i]->adapter_of)
            tt_map_set(base, s->graph->params.items[i]->name, base);
    TT_TRY(tt_ckpt_open_weights(step_folder, &from, err));
    tt_status st = tt_hf_save(from, params, n, dtype, INT64_MAX / 2, folder,
                              counts ? &counts->made : NULL, err);
    if (st == TT_OK)
        st = tt_export_check(s, from, step_folder, base, counts, err);
    tt_ckpt_close(from);
    return st;
}

tt_status tt_setup_write_adapter(const tt_setup *s, const char *step_folder, tt_dtype dtype,
                                 const char *folder, tt_tensor_counts *counts, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_hf_param *params = NULL;
    size_t n = 0;
    tt_status st = list_params(s, a, &params, &n, err);
    if (st == TT_OK && tt_path_exists(folder))
        st = tt_remove_tree(folder, err); /* left by an export that was killed */
    if (st == TT_OK)
        st = tt_mkdirs(folder, err);
    if (st == TT_OK)
        st = write_weights(s, a, step_folder, params, n, dtype, folder, counts, err);
    const char *from = tt_path_join(a, folder, "model.safetensors");
    if (st == TT_OK && rename(from, tt_path_join(a, folder, WEIGHTS)) != 0)
        st = TT_FAIL(err, TT_EIO, "%s: cannot rename it to " WEIGHTS ": %s", from, strerror(errno));
    if (st == TT_OK)
        st = write_config(s, a, folder, err);
    tt_arena_free(a);
    return st;
}

/* ---- import ---- */

/* All tensors of the folder are the run's, or the user does not ask for all. */
static tt_status check_others(const tt_setup *s, tt_arena *a, const tt_ckpt_reader *reader,
                              const char *folder, const tt_map *used, tt_error *err)
{
    const char *names = NULL;
    const size_t n = tt_ckpt_others(reader, used, NULL, a, &names);
    if (!n || !s->core.checkpoint.initial_load_strict)
        return TT_OK;
    return TT_FAIL(err, TT_EUNSUPPORTED,
                   "%s: %zu tensor%s of the adapter belong%s to no adapter of the run: %s; let the "
                   "targets of the converter lora name their layers, or leave them out with "
                   "checkpoint.initial_load_strict false",
                   folder, n, n > 1 ? "s" : "", n > 1 ? "" : "s", names);
}

static tt_status load_adapter(const tt_setup *s, tt_arena *a, const char *folder,
                              const tt_ckpt_piece *pieces, size_t n, bool report, tt_error *err)
{
    tt_map *by_name = tt_map_new(a), *used = tt_map_new(a);
    tt_ckpt_reader *reader = NULL;
    tt_status st = TT_OK;
    for (size_t i = 0; i < s->graph->params.n; i++)
        tt_map_set(by_name, s->graph->params.items[i]->name, s->graph->params.items[i]);
    if (!tt_path_exists(tt_path_join(a, folder, WEIGHTS)))
        return TT_FAIL(err, TT_ENOTFOUND, "%s: no " WEIGHTS, folder);
    TT_TRY(tt_adapter_check_config(s, a, tt_path_join(a, folder, CONFIG), err));
    TT_TRY(tt_ckpt_open(folder, &reader, err));
    for (size_t i = 0; i < s->graph->params.n && st == TT_OK; i++) {
        const char *key = NULL;
        if (!s->graph->params.items[i]->adapter_of)
            continue;
        st = adapter_key(a, s->graph->params.items[i], &key, err);
        if (st == TT_OK)
            tt_map_set(used, key, used);
    }
    if (st == TT_OK)
        st = check_others(s, a, reader, folder, used, err);
    for (size_t i = 0; i < n && st == TT_OK; i++) {
        tt_ckpt_piece p = pieces[i];
        st = adapter_key(a, tt_map_get(by_name, p.name), &p.name, err);
        if (st == TT_OK)
            st = tt_ckpt_load(reader, &p, 1, err);
    }
    if (st == TT_OK && report)
        tt_ckpt_log_others(reader, used, NULL);
    tt_ckpt_close(reader);
    return st;
}

tt_status tt_setup_load_adapter(const tt_setup *s, const char *folder, const tt_ckpt_piece *pieces,
                                size_t n, const tt_ckpt_matching *how, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const tt_status st =
        first_weight(s) ? load_adapter(s, a, folder, pieces, n, how->report, err)
                        : TT_FAIL(err, TT_EINVAL,
                                  "%s is an adapter; the job needs the converter lora, with the "
                                  "rank and alpha of its " CONFIG,
                                  folder);
    tt_arena_free(a);
    return st;
}
