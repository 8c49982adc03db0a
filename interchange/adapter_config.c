/* SPDX-License-Identifier: Apache-2.0 */
#include "config/pattern.h"
#include "interchange/interchange_impl.h"
#include <math.h>
#include <string.h>
#include <strings.h>

/* PEFT's adapter_config.json (peft 0.21, LoraConfig): each key that changes a number is as the run has it, or the
 * adapter is refused. */

#define MAX_CONFIG_BYTES ((size_t)4 << 20)

/* They change nothing of an adapter whose tensors are there: where it came from, how it was initialised and trained,
 * and which layers it has, which the tensors say. */
static const char *const no_effect[] = {
    "auto_mapping",   "base_model_name_or_path", "corda_config",   "ensure_weight_tying",
    "eva_config",     "exclude_modules",         "fan_in_fan_out", "inference_mode",
    "layers_pattern", "layers_to_transform",     "loftq_config",   "lora_dropout",
    "lora_ga_config", "megatron_core",           "peft_version",   "qalora_group_size",
    "revision",       "runtime_config",          "target_modules", "task_type",
};
/* They are looked at below. */
static const char *const known[] = {
    "peft_type",     "r",          "lora_alpha", "rank_pattern",
    "alpha_pattern", "use_rslora", "use_dora",   "init_lora_weights"};
/* The adapter has tensors besides A and B for them. */
static const char *const with_tensors[] = {"bias", "lora_bias", "modules_to_save",
                                           "target_parameters", "trainable_token_indices"};
/* Initial values that leave the base as it is; others, such as pissa's, subtract the adapter from it. */
static const char *const plain_inits[] = {"gaussian", "eva", "orthogonal", "mica"};

static bool is_one_of(const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcasecmp(word, words[i]))
            return true;
    return false;
}
#define IS_ONE_OF(word, words) is_one_of(word, words, TT_COUNT(words))

static bool is_unset(const tt_json *v)
{
    switch (v->type) {
    case TT_JSON_BOOL:
        return !v->boolean;
    case TT_JSON_STRING:
        return !*v->string || !strcmp(v->string, "none");
    case TT_JSON_ARRAY:
    case TT_JSON_OBJECT:
        return v->n == 0;
    case TT_JSON_INT:
    case TT_JSON_REAL:
        return false;
    default:
        return true;
    }
}

static bool is_true(const tt_json *config, const char *key)
{
    const tt_json *v = tt_json_get(config, key);
    return v && v->type == TT_JSON_BOOL && v->boolean;
}

static tt_status check_init(const char *path, const tt_json *v, tt_error *err)
{
    if (!v || v->type != TT_JSON_STRING || IS_ONE_OF(v->string, plain_inits))
        return TT_OK;
    return TT_FAIL(err, TT_EUNSUPPORTED,
                   "%s: init_lora_weights \"%s\" changes the base's weights, too: save the adapter "
                   "by PEFT's save_pretrained with path_initial_model_for_weight_conversion",
                   path, v->string);
}

static tt_status check_keys(const char *path, const tt_json *config, bool strict, tt_error *err)
{
    for (size_t i = 0; i < config->n; i++) {
        const char *key = config->keys[i];
        if (IS_ONE_OF(key, no_effect) || IS_ONE_OF(key, known) || is_unset(config->items[i]))
            continue;
        if (!IS_ONE_OF(key, with_tensors))
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "%s: %s is set, which is not known here: the adapter may mean another "
                           "function than its matrices A and B",
                           path, key);
        if (strict)
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "%s: %s is set: PEFT trained more than the matrices A and B; "
                           "checkpoint.initial_load_strict false leaves the rest out",
                           path, key);
        tt_log(TT_WARN, "checkpoint", "%s: what PEFT trained for %s is left out", path, key);
    }
    return check_init(path, tt_json_get(config, "init_lora_weights"), err);
}

/* ---- rank and alpha ---- */

static bool is_number(const tt_json *v)
{
    return v && (v->type == TT_JSON_INT || v->type == TT_JSON_REAL);
}

/* The value of a layer: that of the first pattern which its name, or an end of it behind a dot, matches, as PEFT's
 * get_pattern_key has it; else the common one. */
static tt_status of_layer(tt_arena *a, const char *path, const tt_json *config,
                          const char *patterns, const char *layer, const char *common, double *out,
                          tt_error *err)
{
    const tt_json *p = tt_json_get(config, patterns), *v = tt_json_get(config, common);
    *out = is_number(v) ? v->real : 8;
    for (size_t i = 0; p && p->type == TT_JSON_OBJECT && i < p->n; i++) {
        tt_pattern *pattern;
        tt_error why = {0};
        bool matches = false;
        const char *text = tt_arena_printf(a, "\\A(?:.*\\.)?(?:%s)\\z", p->keys[i]);
        if (tt_pattern_new_pcre(a, text, &pattern, &why) != TT_OK ||
            tt_pattern_match(pattern, layer, &matches, &why) != TT_OK)
            return TT_FAIL(err, TT_EFORMAT, "%s: %s \"%s\": %s", path, patterns, p->keys[i],
                           why.text);
        if (!matches)
            continue;
        if (!is_number(p->items[i]))
            return TT_FAIL(err, TT_EFORMAT, "%s: %s \"%s\" is not a number", path, patterns,
                           p->keys[i]);
        *out = p->items[i]->real;
        return TT_OK;
    }
    return TT_OK;
}

static int64_t rank_of(const tt_param_info *w)
{
    return w->adapter_a->type.dims[0].size;
}

/* The run must multiply the adapter's result by the factor that it was trained with. */
static tt_status check_layer(tt_arena *a, const char *path, const tt_json *config,
                             const tt_param_info *w, const char *layer, tt_error *err)
{
    const bool dora = is_true(config, "use_dora");
    double r = 0, alpha = 0;
    if (dora != (w->magnitude != NULL))
        return TT_FAIL(err, TT_EINVAL,
                       "%s: use_dora is %s: set use_dora of the run's converter as there", path,
                       dora ? "true" : "false");
    TT_TRY(of_layer(a, path, config, "rank_pattern", layer, "r", &r, err));
    TT_TRY(of_layer(a, path, config, "alpha_pattern", layer, "lora_alpha", &alpha, err));
    const double scale = alpha / (is_true(config, "use_rslora") ? sqrt(r) : r);
    if (r < (double)rank_of(w) || r > (double)rank_of(w) ||
        !(fabs(scale - w->adapter_scale) <= 1e-6 * fabs(scale)))
        return TT_FAIL(err, TT_EINVAL,
                       "%s: %s has rank %g and scale %g, the run's converter rank %lld and "
                       "scale %g: set rank, alpha and rslora as there, by several converters lora "
                       "where layers differ",
                       path, layer, r, scale, (long long)rank_of(w), w->adapter_scale);
    return TT_OK;
}

tt_status tt_adapter_check_config(const tt_setup *s, tt_arena *a, const char *path, tt_error *err)
{
    const tt_json *config = NULL;
    TT_TRY(tt_json_read(a, path, MAX_CONFIG_BYTES, &config, err));
    const tt_json *type = tt_json_get(config, "peft_type");
    if (!type || type->type != TT_JSON_STRING || strcmp(type->string, "LORA") != 0)
        return TT_FAIL(err, TT_EUNSUPPORTED, "%s: peft_type is not \"LORA\"", path);
    TT_TRY(check_keys(path, config, s->core.checkpoint.initial_load_strict, err));
    for (size_t i = 0; i < s->graph->params.n; i++) {
        const tt_param_info *w = s->graph->params.items[i];
        const char *layer = w->adapter_a ? tt_adapter_layer(a, w) : NULL;
        if (layer)
            TT_TRY(check_layer(a, path, config, w, layer, err));
    }
    return TT_OK;
}
