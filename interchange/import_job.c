/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/meta.h"
#include "interchange/hf_context.h"
#include "interchange/hf_job.h"
#include "interchange/import.h"
#include "interchange/interchange_impl.h"
#include <math.h>
#include <string.h>

/* Makes a job from another program's folder: the model and its sizes. */

#define MAX_BYTES ((size_t)4 << 20)

tt_status tt_import_spec(tt_registry *r, tt_arena *a, const char *folder, const char **out,
                         tt_error *err)
{
    const char *path = tt_path_join(a, folder, "config.json");
    const tt_json *root = NULL;
    TT_TRY(tt_json_read_object(a, path, MAX_BYTES, &root, err));
    const tt_json *type = tt_json_get(tt_hf_text_config(root), "model_type");
    if (!type || type->type != TT_JSON_STRING)
        return TT_FAIL(err, TT_EINVAL,
                       "%s: it has no \"model_type\", so it is not the config.json of a model",
                       path);
    TT_TRY(tt_setup_spec_of(r, a, type->string, out, err));
    if (*out)
        return TT_OK;
    return TT_FAIL(
        err, TT_EUNSUPPORTED,
        "%s:%d:%d: no model plugin reads model_type \"%s\"; ttrun plugins lists the models", path,
        type->line, type->column, type->string);
}

/* ---- Meta's params.json ---- */

static bool is_option(const tt_component *c, const char *key)
{
    for (size_t i = 0; i < c->n_options; i++)
        if (!strcmp(tt_component_option(c, i)->name, key))
            return true;
    return false;
}

static void add_arg(tt_str *out, const char *key, const char *value)
{
    tt_str_printf(out, "%s\"%s\": %s", out->n ? ", " : "", key, value);
}

/* Llama 3.1's and 3.2's params.json say that RoPE frequencies are scaled, but most do not say by
 * which factor. */
static tt_status add_scaling(const char *path, const tt_json *root, tt_str *out, tt_error *err)
{
    const tt_json *on = tt_json_get(root, "use_scaled_rope");
    const tt_json *factor = tt_json_get(root, "rope_scaling_factor");
    char text[200];
    if (!on || on->type != TT_JSON_BOOL || !on->boolean) {
        add_arg(out, "rope_scaling", "null");
        return TT_OK;
    }
    if (!factor || (factor->type != TT_JSON_INT && factor->type != TT_JSON_REAL) ||
        !isfinite(factor->real))
        return TT_FAIL(err, TT_EINVAL,
                       "%s:%d:%d: use_scaled_rope: the file does not say by which factor (Llama "
                       "3.1: 8, 3.2: 32); add \"rope_scaling_factor\" to it",
                       path, on->line, on->column);
    snprintf(text, sizeof text,
             "{\"rope_type\": \"llama3\", \"factor\": %.17g, \"low_freq_factor\": 1, "
             "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}",
             factor->real);
    add_arg(out, "rope_scaling", text);
    return TT_OK;
}

/* Whether a key does not affect the model's shape. */
static bool is_silent(const char *key, const tt_json *v)
{
    static const char *const silent[] = {"max_batch_size", "max_seq_len", "model_parallel_size",
                                         "use_scaled_rope", "rope_scaling_factor"};
    for (size_t i = 0; i < TT_COUNT(silent); i++)
        if (!strcmp(key, silent[i]))
            return true;
    return v->type == TT_JSON_NULL || (v->type == TT_JSON_BOOL && !v->boolean);
}

/* Adds the values that Meta's code takes for absent keys. */
static void add_defaults(const tt_component *c, const tt_json *root, tt_str *out)
{
    static const struct {
        const char *key, *value;
    } defaults[] = {
        {"n_kv_heads",         "null"   },
        {"head_dim",           "null"   },
        {"multiple_of",        "256"    },
        {"ffn_dim_multiplier", "1"      },
        {"norm_eps",           "1e-5"   },
        {"rope_theta",         "10000.0"},
        {"sliding_window",     "null"   }
    };
    for (size_t i = 0; i < TT_COUNT(defaults); i++) {
        const tt_json *v = tt_json_get(root, defaults[i].key);
        if ((!v || v->type == TT_JSON_NULL) && is_option(c, defaults[i].key))
            add_arg(out, defaults[i].key, defaults[i].value);
    }
}

/* Adds what only the weight files tell: whether there is an output layer, and the number of rows of
 * the embedding if params.json does not give it (-1, as in Llama 2's). */
static tt_status add_by_tensors(const char *folder, const char *path, const tt_json *root,
                                tt_arena *a, tt_str *out, tt_error *err)
{
    tt_ckpt_reader *r = NULL;
    const tt_json *vocab = tt_json_get(root, "vocab_size");
    char text[32];
    TT_TRY(tt_meta_open(folder, tt_map_new(a), &r, err));
    const bool tied = !tt_ckpt_has(r, "output.weight");
    const int64_t rows = tt_ckpt_rows(r, "tok_embeddings.weight");
    tt_ckpt_close(r);
    add_arg(out, "tie_embeddings", tied ? "true" : "false");
    if (vocab && vocab->type == TT_JSON_INT && vocab->integer > 0) {
        snprintf(text, sizeof text, "%lld", (long long)vocab->integer);
    } else {
        if (rows < 1)
            return TT_FAIL(err, TT_EINVAL,
                           "%s: neither vocab_size nor tok_embeddings.weight is there", path);
        snprintf(text, sizeof text, "%lld", (long long)rows);
    }
    add_arg(out, "vocab_size", text);
    return TT_OK;
}

static tt_status args_of_params(const tt_component *c, const char *folder, tt_arena *a, tt_str *out,
                                tt_error *err)
{
    const char *path = tt_path_join(a, folder, "params.json");
    const tt_json *root = NULL;
    TT_TRY(tt_json_read_object(a, path, MAX_BYTES, &root, err));
    for (size_t i = 0; i < root->n; i++) {
        const char *key = root->keys[i];
        const tt_json *v = root->items[i];
        tt_str value = {0};
        if (!strcmp(key, "vocab_size") || v->type == TT_JSON_NULL)
            continue;
        if (!is_option(c, key) && is_silent(key, v))
            continue;
        if (!is_option(c, key))
            return TT_FAIL(err, TT_EUNSUPPORTED, "%s:%d:%d: %s: model %s has no such argument",
                           path, v->line, v->column, key, c->name);
        tt_json_write(v, &value);
        add_arg(out, key, tt_str_get(&value));
        tt_str_free(&value);
    }
    add_defaults(c, root, out);
    TT_TRY(add_scaling(path, root, out, err));
    return add_by_tensors(folder, path, root, a, out, err);
}

/* ---- the job ---- */

static tt_status model_of_spec(tt_registry *r, const char *spec, const tt_component **out,
                               tt_error *err)
{
    const tt_component *c = NULL;
    TT_TRY(tt_registry_find(r, TT_KIND_TRAIN_SPEC, spec, &c, err));
    const tt_train_spec_vt *vt = c->vtable;
    return tt_registry_find(r, TT_KIND_MODEL, vt->model, out, err);
}

/* The spec for a folder that names no model: the default of a job without a spec. */
static tt_status default_spec(tt_arena *a, const char **out, tt_error *err)
{
    tt_job *job;
    tt_core_config *c = tt_arena_alloc(a, sizeof *c);
    TT_TRY(tt_job_load_text(a, "import", "{}", 2, NULL, 0, &job, err));
    TT_TRY(tt_core_config_parse(job, c, err));
    *out = c->spec;
    return TT_OK;
}

/* Does the model's plugin name its tensors in such folders? */
static bool has_names(const tt_component *model, tt_import_from from)
{
    return tt_setup_model_meta(model) ||
           (from != TT_IMPORT_META && tt_setup_model_titan(model) != NULL);
}

static tt_status fail_no_names(tt_registry *r, const tt_component *model, tt_import_from from,
                               tt_arena *a, tt_error *err)
{
    const tt_component **specs = NULL, *other;
    size_t n = 0;
    tt_str faults = {0}, known = {0};
    tt_status s = tt_registry_all(r, TT_KIND_TRAIN_SPEC, a, &specs, &n, &faults, err);
    for (size_t i = 0; s == TT_OK && i < n; i++) {
        const tt_train_spec_vt *vt = specs[i]->vtable;
        if (tt_registry_find(r, TT_KIND_MODEL, vt->model, &other, NULL) == TT_OK &&
            has_names(other, from))
            tt_str_printf(&known, "%s--spec %s", known.n ? " or " : "", specs[i]->name);
    }
    if (s == TT_OK)
        s = TT_FAIL(err, TT_EUNSUPPORTED, "model %s cannot read %s tensor names; use %s",
                    model->name, from == TT_IMPORT_META ? "Meta's" : "torchtitan's",
                    known.n ? tt_str_get(&known) : "a model that has them");
    tt_str_free(&faults);
    tt_str_free(&known);
    return s;
}

/* A sequence of the job is not longer than the model's positions: uses the number in config.json if
 * it is below the default of seq_len, 2048. */
static tt_status add_length(tt_arena *a, const char *path, tt_str *out, tt_error *err)
{
    const tt_json *root = NULL;
    TT_TRY(tt_json_read_object(a, path, MAX_BYTES, &root, err));
    const int64_t n = tt_hf_positions(tt_hf_text_config(root));
    if (n && n < 2048)
        tt_str_printf(out, ", \"training\": {\"seq_len\": %lld}", (long long)n);
    return TT_OK;
}

tt_status tt_import_job(tt_registry *r, tt_import_from from, const char *folder, const char *spec,
                        tt_arena *a, tt_str *out, tt_error *err)
{
    const char *config = tt_path_join(a, folder, "config.json");
    const char *tokenizer = tt_path_join(a, folder, "tokenizer.json");
    const tt_component *model = NULL;
    tt_str args = {0};
    const bool dcp = from == TT_IMPORT_DCP;
    if (dcp && tt_path_exists(config)) /* the folder says its sizes */
        from = TT_IMPORT_HF;
    if (from == TT_IMPORT_HF && !spec)
        TT_TRY(tt_import_spec(r, a, folder, &spec, err));
    if (!spec)
        TT_TRY(default_spec(a, &spec, err));
    TT_TRY(model_of_spec(r, spec, &model, err));
    if (from != TT_IMPORT_HF && !dcp && !has_names(model, from))
        return fail_no_names(r, model, from, a, err);
    if (from == TT_IMPORT_META) {
        const tt_status s = args_of_params(model, folder, a, &args, err);
        if (s != TT_OK) {
            tt_str_free(&args);
            return s;
        }
    }
    tt_str_add(out, "{\"spec\": ");
    tt_str_json(out, spec);
    if (from == TT_IMPORT_HF) {
        tt_str_add(out, ", \"model\": {\"flavor\": \"hf\", \"hf_assets_path\": ");
        tt_str_json(out, folder);
        tt_str_add(out, "}");
        TT_TRY(add_length(a, config, out, err));
    } else if (from == TT_IMPORT_META) {
        tt_str_printf(out, ", \"model\": {\"args\": {%s}}", tt_str_get(&args));
    }
    if (tt_path_exists(tokenizer)) {
        tt_str_add(out, ", \"tokenizer\": {\"name\": \"hf\", \"path\": ");
        tt_str_json(out, tokenizer);
        tt_str_add(out, "}");
    }
    tt_str_add(out, "}");
    tt_str_free(&args);
    return TT_OK;
}
