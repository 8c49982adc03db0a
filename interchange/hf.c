/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/assets.h"
#include "interchange/interchange_impl.h"
#include "setup/param_match.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Loads the weights of a Hugging Face folder into pieces, and writes a step folder as a Hugging
 * Face folder. */

tt_hf_param *tt_setup_hf_params(const tt_setup *s, tt_arena *a, size_t *n)
{
    const size_t most = s->graph->params.n + s->graph->states.n;
    tt_hf_param *p = tt_arena_array(a, most + 1, sizeof *p);
    *n = 0;
    for (size_t i = 0; i < s->graph->params.n; i++) {
        const tt_param_info *info = s->graph->params.items[i];
        if (info->adapter_of || info->absmax_of)
            continue;
        tt_hf_param *to = &p[(*n)++];
        *to = (tt_hf_param){.name = info->name,
                            .n_dims = info->whole.n_dims,
                            .storage = info->storage,
                            .n_storage = info->n_storage,
                            .scale = info->adapter_scale,
                            .vocab = tt_param_has_tokens(info)};
        if (info->adapter_a) {
            to->adapter_a = info->adapter_a->name;
            to->adapter_b = info->adapter_b->name;
            to->rank = info->adapter_a->type.dims[0].size;
            to->magnitude = info->magnitude ? info->magnitude->name : NULL;
        }
        for (int d = 0; d < info->whole.n_dims; d++)
            to->dims[d] = info->whole.dims[d].size;
    }
    for (size_t i = 0; i < s->graph->states.n; i++) {
        const tt_state *x = s->graph->states.items[i];
        if (x->kind != TT_STATE_BUFFER || !x->exported)
            continue;
        tt_hf_param *to = &p[(*n)++];
        *to = (tt_hf_param){.name = x->name, .n_dims = x->type.n_dims};
        for (int d = 0; d < x->type.n_dims; d++)
            to->dims[d] = x->type.dims[d].size;
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
                           size_t n, const tt_ckpt_matching *how, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    size_t n_params = 0;
    const tt_hf_param *params = tt_setup_hf_params(s, a, &n_params);
    const tt_status st = tt_hf_load(folder, params, n_params, prefix_of(s), pieces, n, how, err);
    tt_arena_free(a);
    return st;
}

/* ---- writing ---- */

static tt_status choose_dtype(const tt_setup *s, const tt_hf_export *o, tt_arena *a,
                              const char *model, tt_dtype *out, tt_error *err)
{
    *out = (tt_dtype)(o->dtype - 1);
    if (o->dtype == TT_EXPORT_AUTO)
        *out = (tt_dtype)(s->core.checkpoint.export_dtype - 1);
    if (*out != (tt_dtype)(TT_EXPORT_AUTO - 1))
        return TT_OK;
    return tt_hf_source_dtype(a, model, out, err);
}

/* Writes the weights into o->folder. */
static tt_status write_weights(const tt_setup *s, const tt_hf_export *o, const tt_hf_param *params,
                               size_t n, tt_dtype dtype, tt_tensor_counts *counts, tt_error *err)
{
    tt_ckpt_reader *from = NULL;
    TT_TRY(tt_ckpt_open_weights(o->step_folder, &from, err));
    tt_status st = tt_hf_save(from, params, n, dtype, TT_HF_SHARD_BYTES, o->folder,
                              counts ? &counts->made : NULL, err);
    if (st == TT_OK)
        st = tt_export_check(s, from, o->step_folder, NULL, counts, err);
    tt_ckpt_close(from);
    return st;
}

tt_status tt_setup_write_hf(const tt_setup *s, const tt_hf_export *o, tt_tensor_counts *counts,
                            tt_error *err)
{
    if (!tt_setup_model_hf(s->model.component))
        return TT_FAIL(err, TT_EUNSUPPORTED, "model %s does not define its Hugging Face form",
                       s->model.name);
    tt_arena *a = tt_arena_new();
    size_t n = 0;
    tt_dtype dtype = TT_F32;
    tt_export_chat chat;
    tt_hf_param *params = tt_setup_hf_params(s, a, &n);
    const char *model = tt_assets_model(s, a, o->run);
    tt_status st = tt_export_chat_of(s, o, a, &chat, err);
    if (st == TT_OK)
        st = o->low ? tt_hf_choose_low(s, o->low, a, params, n, err) : TT_OK;
    if (st == TT_OK)
        st = choose_dtype(s, o, a, model, &dtype, err);
    if (st == TT_OK && tt_path_exists(o->folder))
        st = tt_remove_tree(o->folder, err); /* left by a run that was killed */
    if (st == TT_OK)
        st = tt_mkdirs(o->folder, err);
    if (st == TT_OK)
        st = write_weights(s, o, params, n, dtype, counts, err);
    if (st == TT_OK)
        st = tt_hf_write_configs(s, o, &chat, params, n, model, dtype, a, err);
    if (st == TT_OK && model)
        st = tt_assets_copy_code(a, o->folder, model, o->folder, err);
    if (st == TT_OK)
        st = tt_hf_write_tokenizer(s, o, &chat, a, err);
    tt_arena_free(a);
    return st;
}
