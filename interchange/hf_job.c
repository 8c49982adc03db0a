/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "interchange/hf_job.h"
#include "base/hub.h"
#include "interchange/formats/hf.h"
#include "interchange/hf_context.h"
#include "setup/tokenizer.h"
#include <errno.h>
#include <string.h>

/* model.hf: one folder is the whole fine-tuning job. Keys that the job does not set get the values
 * that follow from the folder: spec, sizes, sequence length, tokenizer and weights. In the resolved
 * job their origin is "model.hf". */

#define MAX_CONFIG_BYTES ((size_t)4 << 20)
#define MOST_SEQ_LEN 2048

static const char origin[] = "model.hf";

/* Whether a comma-separated list contains the type. */
static bool reads(const char *types, const char *type)
{
    const size_t n = strlen(type);
    for (const char *p = types; p && *p;) {
        const size_t length = strcspn(p, ",");
        if (length == n && !memcmp(p, type, n))
            return true;
        p += length + (p[length] == ',');
    }
    return false;
}

/* Finds the model plugin that reads the type; known: all types that are read. */
static tt_status find_model(tt_registry *r, tt_arena *a, const char *type, const char **model,
                            tt_str *known, tt_error *err)
{
    const tt_component **list = NULL;
    size_t n = 0;
    tt_str faults = {0};
    *model = NULL;
    const tt_status s = tt_registry_all(r, TT_KIND_MODEL, a, &list, &n, &faults, err);
    tt_str_free(&faults);
    for (size_t i = 0; s == TT_OK && i < n; i++) {
        const tt_model_hf *hf = tt_setup_model_hf(list[i]);
        if (!hf)
            continue;
        for (const char *p = hf->model_types; *p; p += strcspn(p, ","), p += *p == ',')
            tt_str_printf(known, "%s%.*s", known->n ? ", " : "", (int)strcspn(p, ","), p);
        if (!*model && reads(hf->model_types, type))
            *model = list[i]->name;
    }
    return s;
}

/* Finds the spec with this model; any: else the first spec. */
static tt_status find_spec(tt_registry *r, tt_arena *a, const char *model, bool any,
                           const char **spec, tt_error *err)
{
    const tt_component **list = NULL;
    size_t n = 0;
    tt_str faults = {0};
    *spec = NULL;
    const tt_status s = tt_registry_all(r, TT_KIND_TRAIN_SPEC, a, &list, &n, &faults, err);
    tt_str_free(&faults);
    for (size_t i = 0; s == TT_OK && i < n && !*spec; i++)
        if (!strcmp(((const tt_train_spec_vt *)list[i]->vtable)->model, model))
            *spec = list[i]->name;
    if (s == TT_OK && any && !*spec && n)
        *spec = list[0]->name;
    return s;
}

tt_status tt_setup_spec_of(tt_registry *r, tt_arena *a, const char *model_type, const char **spec,
                           tt_error *err)
{
    const char *model = NULL;
    tt_str known = {0};
    *spec = NULL;
    const tt_status s = find_model(r, a, model_type, &model, &known, err);
    tt_str_free(&known);
    return s == TT_OK && model ? find_spec(r, a, model, false, spec, err) : s;
}

/* ---- the folder ---- */

const tt_json *tt_hf_text_config(const tt_json *root)
{
    const tt_json *text = tt_json_get(root, "text_config");
    const tt_json *type = tt_json_get(text, "model_type");
    return type && type->type == TT_JSON_STRING ? text : root;
}

/* id: what the job has for the folder. */
static tt_status read_config(const tt_setup *s, const char *id, const char *path,
                             const tt_json **out, tt_error *err)
{
    tt_error why = {0};
    if (!tt_path_exists(path))
        return tt_job_fail(
            s->job, "model.hf", err, "there is no %s%s", path,
            tt_path_exists(tt_path_dir(s->arena, path))
                ? ""
                : tt_arena_printf(s->arena, ", nor its folder%s", tt_hub_advice(s->arena, id)));
    if (tt_json_read_object(s->arena, path, MAX_CONFIG_BYTES, out, &why) != TT_OK)
        return tt_job_fail(s->job, "model.hf", err, "%s", why.text);
    *out = tt_hf_text_config(*out);
    return TT_OK;
}

/* What a run has kept of a folder that is gone since. */
typedef struct kept_source {
    const char *model, *tokenizer; /* folders below the run's; model NULL: there is nothing */
    bool weights;                  /* the run began with the folder's weights */
} kept_source;

static const char *string_at(const tt_json *object, const char *key)
{
    const tt_json *v = tt_json_get(object, key);
    return v && v->type == TT_JSON_STRING ? v->string : NULL;
}

/* If the folder is gone, but the run in dump_folder was made of it, the run goes on with its own
 * copies of config.json and the tokenizer. Weights are needed by a run without a checkpoint alone,
 * which then fails where they are missed. */
static tt_status find_kept(tt_setup *s, const char *source, kept_source *out, tt_error *err)
{
    const char *run = NULL;
    const tt_json *root = NULL;
    *out = (kept_source){0};
    if (tt_path_exists(source))
        return TT_OK;
    TT_TRY(tt_job_path(s->job, "dump_folder", TT_OPT_PATH, &run, err));
    run = run && *run ? run : "./outputs";
    const char *path = tt_path_join(s->arena, run, "run.json");
    (void)tt_json_read(s->arena, path, MAX_CONFIG_BYTES, &root, NULL);
    const tt_json *job = tt_json_get(root, "job");
    const char *was = string_at(tt_json_get(job, "model"), "hf");
    const char *model = tt_path_join(s->arena, run, "model");
    if (!was || strcmp(was, source) != 0 ||
        !tt_path_exists(tt_path_join(s->arena, model, "config.json")))
        return TT_OK;
    out->model = model;
    out->tokenizer = tt_path_join(s->arena, run, "tokenizer");
    out->weights = string_at(tt_json_get(job, "checkpoint"), "initial_load_path") != NULL;
    return TT_OK;
}

static tt_status set_string(tt_setup *s, const char *key, const char *value, tt_error *err)
{
    tt_str text = {0};
    tt_str_json(&text, value);
    const tt_status st = tt_job_default(s->job, key, tt_str_get(&text), origin, err);
    tt_str_free(&text);
    return st;
}

/* The spec whose model reads the folder. A model without a spec of its own is trained with the parts
 * of another one. */
static tt_status take_spec(tt_setup *s, const char *path, const tt_json *config, tt_error *err)
{
    const char *model = NULL, *spec = NULL;
    tt_str known = {0};
    const tt_json *type = tt_json_get(config, "model_type");
    if (!type || type->type != TT_JSON_STRING)
        return tt_job_fail(s->job, "model.hf", err,
                           "%s: it has no \"model_type\", so it is not the config.json of a model",
                           path);
    tt_status st = find_model(s->registry, s->arena, type->string, &model, &known, err);
    if (st == TT_OK && !model)
        st = TT_FAIL(err, TT_EUNSUPPORTED,
                     "%s:%d:%d: no model plugin reads model_type \"%s\" (there are: %s)", path,
                     type->line, type->column, type->string, tt_str_get(&known));
    tt_str_free(&known);
    TT_TRY(st);
    TT_TRY(find_spec(s->registry, s->arena, model, true, &spec, err));
    if (!spec)
        return TT_FAIL(err, TT_ENOTFOUND, "there is no train_spec plugin");
    TT_TRY(set_string(s, "spec", spec, err));
    return set_string(s, "model.name", model, err);
}

static tt_status take_seq_len(tt_setup *s, const tt_json *config, tt_error *err)
{
    char text[32];
    const int64_t most = tt_hf_positions(config);
    if (!most || tt_job_has(s->job, "training.max_context_length"))
        return TT_OK;
    snprintf(text, sizeof text, "%lld", (long long)TT_MIN(most, (int64_t)MOST_SEQ_LEN));
    return tt_job_default(s->job, "training.seq_len", text, origin, err);
}

static tt_status take_files(tt_setup *s, const char *folder, const kept_source *kept, tt_error *err)
{
    const char *tokenizer = tt_tokenizer_in(s->arena, kept->model ? kept->tokenizer : folder);
    if (tokenizer && !tt_job_has(s->job, "tokenizer.name") &&
        !tt_job_has(s->job, "tokenizer.path")) {
        TT_TRY(set_string(s, "tokenizer.name", "hf", err));
        TT_TRY(set_string(s, "tokenizer.path", tokenizer, err));
    }
    if (!(kept->weights || tt_hf_has_weights(folder)) ||
        tt_job_has(s->job, "checkpoint.initial_load_path") ||
        tt_job_has(s->job, "checkpoint.initial_load_in_hf"))
        return TT_OK;
    TT_TRY(set_string(s, "checkpoint.initial_load_path", folder, err));
    return tt_job_default(s->job, "checkpoint.initial_load_in_hf", "true", origin, err);
}

tt_status tt_setup_take_hf(tt_setup *s, const tt_setup_opts *o, tt_error *err)
{
    const char *id = NULL, *folder = NULL;
    const tt_json *config = NULL;
    kept_source kept;
    TT_TRY(tt_job_path(s->job, "model.hf", 0, &id, err));
    TT_TRY(tt_job_path(s->job, "model.hf", TT_OPT_PATH | TT_OPT_HUB, &folder, err));
    if (!folder || !*folder)
        return TT_OK;
    /* The job of a checkpoint has all of these keys: the folder may be gone. */
    const bool has_spec = o->spec || tt_job_has(s->job, "spec");
    TT_TRY(find_kept(s, folder, &kept, err));
    const char *model = kept.model ? kept.model : folder;
    const bool names_something =
        kept.model || tt_hf_has_weights(folder) || tt_job_has(s->job, "model.hf_assets_path");
    if (!has_spec || !tt_job_has(s->job, "training.seq_len") || !names_something) {
        const char *path = tt_path_join(s->arena, model, "config.json");
        TT_TRY(read_config(s, id, path, &config, err));
        if (!has_spec)
            TT_TRY(take_spec(s, path, config, err));
        TT_TRY(take_seq_len(s, config, err));
    }
    TT_TRY(set_string(s, "model.flavor", "hf", err));
    TT_TRY(set_string(s, "model.hf_assets_path", model, err));
    return take_files(s, folder, &kept, err);
}
