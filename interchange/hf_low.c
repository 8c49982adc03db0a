/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/hf_low.h"
#include "interchange/interchange_impl.h"
#include "setup/param_match.h"
#include <string.h>

/* Which parameters an export writes in 8 or 4 bits, and the quantization_config that says so. */

/* Whether a parameter is the matrix of a linear layer, or those of experts, which float8 suits. */
static bool suits_low(const tt_param_info *info)
{
    for (int d = 0; d < info->whole.n_dims; d++)
        if (info->whole.dims[d].label && !strcmp(info->whole.dims[d].label, "vocab"))
            return false;
    return info->whole.n_dims >= 2 && !tt_has_tag(info->tags, "embedding") &&
           !tt_has_tag(info->tags, "router") && !tt_has_tag(info->tags, "bias");
}

/* Is converter i the one whose weights files of this form hold? */
static bool makes(const tt_setup *s, int i, tt_hf_low low)
{
    const tt_part *c = &s->converters[i];
    if (low == TT_HF_NVFP4)
        return !strcmp(c->name, "nvfp4");
    if (low != TT_HF_FP8_ROW || strcmp(c->name, "float8") != 0)
        return false;
    const char *const *recipe = tt_part_value(c->component, c->config, "recipe", TT_OPT_ENUM);
    return recipe && !strncmp(*recipe, "rowwise", 7);
}

static const tt_param_info *info_of(const tt_setup *s, const char *param)
{
    for (size_t i = 0; i < s->graph->params.n; i++)
        if (!strcmp(s->graph->params.items[i]->name, param))
            return s->graph->params.items[i];
    return NULL;
}

/* Logs which matrices the converter converts and the files hold in the other dtype. Returns how many tensors of
 * the files are written as chosen. router: a router that is converted, or NULL; others: how many there are. */
static tt_status count_low(tt_arena *a, const tt_hf_param *params, size_t n, const char *router,
                           size_t others, size_t *out, tt_error *err)
{
    tt_map *tensors = NULL;
    const char *first = router;
    *out = 0;
    TT_TRY(tt_hf_layout(a, params, n, &tensors, err));
    for (size_t i = 0; i < tt_map_size(tensors); i++) {
        const tt_hf_tensor *t = tt_map_value(tensors, i);
        if (tt_hf_low_of(t)) {
            ++*out;
        } else if (t->parts.items[0].param->low) {
            first = first ? first : t->name;
            others++;
        }
    }
    if (others && *out)
        tt_log(TT_WARN, "checkpoint",
               "%zu matrices that training has in low precision stay as they are, because these "
               "files cannot hold them so (%s%s)",
               others, first, others > 1 ? " and others" : "");
    return TT_OK;
}

tt_status tt_hf_choose_low(const tt_setup *s, tt_hf_low low, tt_arena *a, tt_hf_param *params,
                           size_t n, tt_error *err)
{
    static const char *const converters[] = {
        [TT_HF_FP8_ROW] = "float8 with the recipe rowwise", [TT_HF_NVFP4] = "nvfp4"};
    bool trained = false;
    size_t tensors = 0, routers = 0;
    const char *router = NULL;
    for (int i = 0; i < s->n_converters; i++)
        trained = trained || (makes(s, i, low) && tt_converter_active(s, i, s->converters_at));
    for (size_t k = 0; k < n; k++) {
        const tt_param_info *info = info_of(s, params[k].name);
        const int i = info ? tt_setup_converter_of(s, info->name) : -1;
        bool yes = info && suits_low(info);
        if (trained)
            yes = i >= 0 && makes(s, i, low) && !tt_has_tag(info->tags, "embedding");
        if (trained && yes && tt_has_tag(info->tags, "router")) { /* no program reads these so */
            router = info->name;
            routers++;
            yes = false;
        }
        params[k].low = yes ? low : TT_HF_WIDE;
    }
    if (!trained && low != TT_HF_FP8)
        tt_log(TT_WARN, "checkpoint",
               "the model was not trained with the converter %s, so its weights are rounded now",
               converters[low]);
    TT_TRY(count_low(a, params, n, router, routers, &tensors, err));
    if (!tensors)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "--type: no matrix of model %s can be written so; export it as bf16",
                       s->model.name);
    return TT_OK;
}

/* ---- quantization_config ---- */

/* As transformers' FineGrainedFP8Config writes it. */
static void put_fp8(tt_str *out, const char *kept)
{
    tt_str_printf(out,
                  "{\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", "
                  "\"modules_to_not_convert\": [%s], \"quant_method\": \"fp8\", "
                  "\"weight_block_size\": [%d, %d]}",
                  kept, TT_HF_FLOAT8_BLOCK, TT_HF_FLOAT8_BLOCK);
}

/* As compressed-tensors' QuantizationConfig writes it: activations by rows in float8, as in training; as they are
 * with NVFP4, for which the files would need a fixed scale of theirs. */
static void put_compressed(tt_str *out, tt_hf_low low, const char *kept)
{
    const bool rows = low == TT_HF_FP8_ROW;
    const char *format = rows ? "float-quantized" : "nvfp4-pack-quantized";
    const char *input = rows ? "{\"dynamic\": true, \"num_bits\": 8, \"strategy\": \"token\", "
                               "\"symmetric\": true, \"type\": \"float\"}"
                             : "null";
    const char *weights = rows ? "\"num_bits\": 8, \"strategy\": \"channel\""
                               : "\"group_size\": 16, \"num_bits\": 4, \"strategy\": "
                                 "\"tensor_group\"";
    tt_str_printf(out,
                  "{\"config_groups\": {\"group_0\": {\"format\": \"%s\", \"input_activations\": "
                  "%s, \"output_activations\": null, \"targets\": [\"Linear\"], \"weights\": "
                  "{\"dynamic\": false, %s, \"symmetric\": true, \"type\": \"float\"}}}, "
                  "\"format\": \"%s\", \"ignore\": [%s], \"quant_method\": "
                  "\"compressed-tensors\", \"quantization_status\": \"compressed\"}",
                  format, input, weights, format, kept);
}

/* The head that has the weights of the embedding is a module too, without a tensor in the files. */
static tt_status has_head(tt_arena *a, const tt_hf_param *params, size_t n, bool *out,
                          tt_error *err)
{
    tt_map *tensors = NULL;
    TT_TRY(tt_hf_layout(a, params, n, &tensors, err));
    *out = tt_map_get(tensors, "lm_head.weight") != NULL;
    return TT_OK;
}

tt_status tt_hf_put_quantization(tt_str *out, tt_hf_low low, const tt_hf_param *params,
                                 size_t n_params, tt_arena *a, tt_error *err)
{
    const char *const *kept = NULL;
    size_t n = 0;
    bool head = false;
    tt_str names = {0};
    TT_TRY(tt_hf_kept_modules(a, params, n_params, &kept, &n, err));
    TT_TRY(has_head(a, params, n_params, &head, err));
    for (size_t i = 0; i < n; i++) {
        tt_str_add(&names, i ? ", " : "");
        tt_str_json(&names, kept[i]);
    }
    if (!head && low != TT_HF_FP8)
        tt_str_printf(&names, "%s\"lm_head\"", n ? ", " : "");
    if (low == TT_HF_FP8)
        put_fp8(out, tt_str_get(&names));
    else
        put_compressed(out, low, tt_str_get(&names));
    tt_str_free(&names);
    return TT_OK;
}
