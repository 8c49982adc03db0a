/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/hf_config.h"
#include "interchange/hf_job.h"
#include "interchange/hf_tensors.h"
#include "setup/foreign.h"
#include <string.h>

/* model.flavor "hf": turns config.json into the arguments of the model. A key that is an option of
 * the model, or an alias of one, is written at the same line and column, so that errors name its
 * place in config.json. RoPE settings are read in all spellings:
 *   rope_theta, rope_scaling                       transformers 4
 *   rope_parameters {rope_theta, rope_type, …}     transformers 5
 *   rope_parameters {full_attention {…}, sliding_attention {…}}   for models that differ by layer
 * The other keys do not affect the forward pass, or are checked to have the only supported value. */

#define MAX_CONFIG_BYTES ((size_t)4 << 20)

typedef struct writer {
    const tt_component *c;
    tt_str *out;
    int line, column; /* where the next character will be written */
    bool any;
} writer;

static bool config_in_list(const char *list, char separator, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; p && *p;) {
        const char *end = strchr(p, separator);
        const size_t length = end ? (size_t)(end - p) : strlen(p);
        if (length == n && !memcmp(p, word, n))
            return true;
        p = end ? end + 1 : NULL;
    }
    return false;
}

/* The row of the component's options that has this name or alias; -1: none. */
static int option_of(const tt_component *c, const char *key)
{
    for (size_t i = 0; i < c->n_options; i++) {
        tt_option o = {0}; /* the plugin's struct may be shorter or longer than ours */
        memcpy(&o, (const char *)c->options + i * c->option_size, TT_MIN(c->option_size, sizeof o));
        if (!strcmp(o.name, key) || config_in_list(o.aliases, '|', key))
            return (int)i;
    }
    return -1;
}

static bool is_option(const tt_component *c, const char *key)
{
    return option_of(c, key) >= 0;
}

/* Is member i the same whole number as an earlier one under another name? transformers writes
 * num_experts and num_local_experts. */
static bool is_repeated(const tt_component *c, const tt_json *root, size_t i)
{
    const int row = option_of(c, root->keys[i]);
    for (size_t k = 0; row >= 0 && k < i; k++)
        if (option_of(c, root->keys[k]) == row && root->items[k]->type == TT_JSON_INT &&
            root->items[i]->type == TT_JSON_INT &&
            root->items[k]->integer == root->items[i]->integer)
            return strcmp(root->keys[k], root->keys[i]) != 0;
    return false;
}

static void pad_to(writer *w, int line, int column)
{
    for (; w->line < line; w->line++, w->column = 1)
        tt_str_addc(w->out, '\n');
    for (; w->line == line && w->column < column; w->column++)
        tt_str_addc(w->out, ' ');
}

static void config_put(writer *w, const char *text, size_t n)
{
    tt_str_addn(w->out, text, n);
    w->column += (int)n;
}

static void put_value(writer *w, const tt_json *v)
{
    tt_str text = {0};
    tt_json_write(v, &text);
    config_put(w, tt_str_get(&text), text.n);
    tt_str_free(&text);
}

/* at: the place of the key in config.json, or NULL */
static void put_key(writer *w, const char *key, const tt_json_pos *at)
{
    if (w->any)
        config_put(w, ",", 1);
    w->any = true;
    if (at)
        pad_to(w, at->line, at->column);
    config_put(w, "\"", 1);
    config_put(w, key, strlen(key));
    config_put(w, "\":", 2);
}

static void put_member(writer *w, const tt_json *object, size_t i)
{
    if (!is_option(w->c, object->keys[i]))
        return;
    put_key(w, object->keys[i], &object->key_pos[i]);
    pad_to(w, object->items[i]->line, object->items[i]->column);
    put_value(w, object->items[i]);
}

static const tt_json *rope_type(const tt_json *rope)
{
    const tt_json *type = tt_json_get(rope, "rope_type");
    return type ? type : tt_json_get(rope, "type");
}

static bool is_default(const tt_json *rope)
{
    const tt_json *type = rope_type(rope);
    return type && type->type == TT_JSON_STRING && !strcmp(type->string, "default");
}

/* rope_parameters of transformers 5, of the layers that see all tokens; NULL: there are none. */
static const tt_json *rope_parameters(const tt_json *root)
{
    const tt_json *v = tt_json_get(root, "rope_parameters");
    const tt_json *full = tt_json_get(v, "full_attention");
    return full ? full : v;
}

/* The parameters of the layers that slide; NULL: they are those of the others. */
static const tt_json *local_parameters(const tt_json *root)
{
    return tt_json_get(tt_json_get(root, "rope_parameters"), "sliding_attention");
}

static bool is_number(const tt_json *v)
{
    return v && (v->type == TT_JSON_INT || v->type == TT_JSON_REAL);
}

/* Writes what transformers takes for these two keys of a scaling if they are absent, or, for
 * LongRoPE, are elsewhere. */
static void put_lengths(writer *w, const tt_json *root, const tt_json *v, const char *type)
{
    static const char original[] = "original_max_position_embeddings";
    const tt_json *most = tt_json_get(root, "max_position_embeddings");
    const tt_json *inside = tt_json_get(v, original), *outside = tt_json_get(root, original);
    const bool list = tt_json_get(v, "long_factor") != NULL;
    const tt_json *first = list && outside ? outside : inside ? NULL : most;
    const tt_json *start = first ? first : inside;
    if (first && (list || !strcmp(type, "yarn"))) {
        config_put(w, ",\"original_max_position_embeddings\":", 36);
        put_value(w, first);
    }
    if (list && !tt_json_get(v, "factor") && is_number(most) && is_number(start) &&
        start->real > 0.0) {
        tt_str text = {0};
        tt_str_printf(&text, ",\"factor\":%.17g", most->real / start->real);
        config_put(w, tt_str_get(&text), text.n);
        tt_str_free(&text);
    }
}

/* Writes RoPE scaling: rope_scaling of transformers 4, or rope_parameters of version 5, an object
 * that may also hold rope_theta. */
static void put_scaling(writer *w, const tt_json *root, const tt_json *v)
{
    const tt_json *type = rope_type(v);
    const bool outside =
        tt_json_get(v, "long_factor") && tt_json_get(root, "original_max_position_embeddings");
    bool any = false;
    if (!is_option(w->c, "rope_scaling") || !type || is_default(v))
        return;
    put_key(w, "rope_scaling", NULL);
    config_put(w, "{", 1);
    for (size_t i = 0; i < v->n; i++) {
        const char *key = v->keys[i];
        if (!strcmp(key, "rope_theta") || !strcmp(key, "partial_rotary_factor") ||
            (!strcmp(key, "type") && tt_json_get(v, "rope_type")) ||
            (outside && !strcmp(key, "original_max_position_embeddings")) ||
            (v->items[i]->type == TT_JSON_NULL && strcmp(key, "factor")))
            continue;
        tt_str name = {0};
        tt_str_json(&name, key);
        config_put(w, any ? "," : "", any);
        config_put(w, tt_str_get(&name), name.n);
        config_put(w, ":", 1);
        put_value(w, v->items[i]);
        tt_str_free(&name);
        any = true;
    }
    if (type->type == TT_JSON_STRING)
        put_lengths(w, root, v, type->string);
    config_put(w, "}", 1);
}

static bool same_value(const tt_json *a, const tt_json *b)
{
    const bool numbers = (a->type == TT_JSON_INT || a->type == TT_JSON_REAL) &&
                         (b->type == TT_JSON_INT || b->type == TT_JSON_REAL);
    if (numbers)
        return a->real == b->real;
    tt_str x = {0}, y = {0};
    tt_json_write(a, &x);
    tt_json_write(b, &y);
    const bool same = strcmp(tt_str_get(&x), tt_str_get(&y)) == 0;
    tt_str_free(&x);
    tt_str_free(&y);
    return same;
}

/* Checks a key that may have only one value, or one of a list. v: its value in config.json; NULL:
 * it is absent. */
static tt_status check_fixed(const tt_component *c, const char *path, const char *key,
                             const tt_json *want, const tt_json *v, tt_error *err)
{
    bool ok = !v || same_value(want, v);
    for (size_t i = 0; want->type == TT_JSON_ARRAY && i < want->n && !ok; i++)
        ok = same_value(want->items[i], v);
    if (ok)
        return TT_OK;
    tt_str wanted = {0}, have = {0};
    tt_json_write(want, &wanted);
    tt_json_write(v, &have);
    const tt_status s =
        TT_FAIL(err, TT_EUNSUPPORTED, "%s:%d:%d: %s: model %s supports only %s, but this is %.80s",
                path, v->line, v->column, key, c->name, wanted.s, have.s);
    tt_str_free(&wanted);
    tt_str_free(&have);
    return s;
}

/* Fails because config.json is of another kind of model than the spec's; names the spec for that
 * kind, if there is one. */
static tt_status fail_type(const tt_setup *s, const tt_component *c, const tt_model_hf *hf,
                           const char *path, const tt_json *type, tt_error *err)
{
    const char *spec = NULL;
    if (tt_setup_spec_of(s->registry, s->arena, type->string, &spec, NULL) == TT_OK && spec)
        return TT_FAIL(err, TT_EINVAL, "%s:%d:%d: this is a %s model: add --spec %s", path,
                       type->line, type->column, type->string, spec);
    return TT_FAIL(err, TT_EINVAL,
                   "%s:%d:%d: model %s does not read model_type \"%s\" (it reads %s)", path,
                   type->line, type->column, c->name, type->string, hf->model_types);
}

/* Weights in float8, MXFP4 or NVFP4 with scales beside them, which the reader of checkpoints turns into numbers.
 * compressed-tensors has many forms; only float-quantized and nvfp4-pack-quantized are such. */
static bool is_dequantized(const char *key, const tt_json *v)
{
    const tt_json *method = v && v->type == TT_JSON_OBJECT ? tt_json_get(v, "quant_method") : NULL;
    const tt_json *format = method ? tt_json_get(v, "format") : NULL;
    if (strcmp(key, "quantization_config") != 0 || !method || method->type != TT_JSON_STRING)
        return false;
    return !strcmp(method->string, "fp8") || !strcmp(method->string, "mxfp4") ||
           (!strcmp(method->string, "compressed-tensors") && format &&
            format->type == TT_JSON_STRING &&
            (!strcmp(format->string, "float-quantized") ||
             !strcmp(format->string, "nvfp4-pack-quantized")));
}

static tt_status check_type(const tt_setup *su, const tt_component *c, const tt_model_hf *hf,
                            const char *path, const tt_json *root, tt_error *err)
{
    const tt_json *type = tt_json_get(root, "model_type"), *fixed = NULL;
    if (!type || type->type != TT_JSON_STRING)
        return TT_FAIL(err, TT_EINVAL,
                       "%s: it has no \"model_type\", so it is not the config.json of a model",
                       path);
    if (!config_in_list(hf->model_types, ',', type->string))
        return fail_type(su, c, hf, path, type, err);
    tt_arena *a = tt_arena_new();
    tt_status s = TT_OK;
    if (hf->fixed)
        s = tt_json_parse(a, c->name, hf->fixed, strlen(hf->fixed), &fixed, err);
    for (size_t i = 0; s == TT_OK && fixed && i < fixed->n; i++) {
        const tt_json *v = tt_json_get(root, fixed->keys[i]);
        if (!is_dequantized(fixed->keys[i], v))
            s = check_fixed(c, path, fixed->keys[i], fixed->items[i], v, err);
    }
    tt_arena_free(a);
    return s;
}

static bool is_one(const tt_json *v)
{
    return (v->type == TT_JSON_INT || v->type == TT_JSON_REAL) && v->real == 1.0;
}

/* Checks the RoPE parameters of the layers that slide: they are not scaled, and their base is an
 * option of the model or that of the other layers. */
static tt_status check_local_rope(const tt_component *c, const char *path, const tt_json *root,
                                  tt_error *err)
{
    const tt_json *v = local_parameters(root), *full = rope_parameters(root);
    const tt_json *base = tt_json_get(v, "rope_theta"), *other = tt_json_get(full, "rope_theta");
    if (!v || v->type == TT_JSON_NULL)
        return TT_OK;
    if (v->type != TT_JSON_OBJECT || !is_default(v))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%s:%d:%d: rope_parameters.sliding_attention: model %s reads only the "
                       "rope_type \"default\" for the layers that slide",
                       path, v->line, v->column, c->name);
    if (base && !is_option(c, "rope_local_base_freq") && (!other || !same_value(base, other)))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%s:%d:%d: rope_parameters.sliding_attention.rope_theta: model %s has one "
                       "base for all layers",
                       path, base->line, base->column, c->name);
    return TT_OK;
}

static tt_status check_rope(const tt_component *c, const char *path, const tt_json *root,
                            tt_error *err)
{
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    TT_TRY(check_local_rope(c, path, root, err));
    for (size_t i = 0; i < TT_COUNT(keys); i++) {
        const tt_json *v = i == 0 ? rope_parameters(root) : tt_json_get(root, keys[i]);
        if (!v || v->type == TT_JSON_NULL)
            continue;
        if (v->type != TT_JSON_OBJECT || !rope_type(v))
            return TT_FAIL(err, TT_EINVAL, "%s:%d:%d: %s: expected an object with \"rope_type\"",
                           path, v->line, v->column, keys[i]);
        const tt_json *part = tt_json_get(v, "partial_rotary_factor");
        if (part && !is_one(part) && !is_option(c, "partial_rotary_factor"))
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "%s:%d:%d: %s.partial_rotary_factor: model %s rotates whole heads only",
                           path, part->line, part->column, keys[i], c->name);
        if (!is_default(v) && !is_option(c, "rope_scaling"))
            return TT_FAIL(err, TT_EUNSUPPORTED, "%s:%d:%d: %s: model %s has no RoPE scaling", path,
                           v->line, v->column, keys[i], c->name);
    }
    return TT_OK;
}

/* Logs dropout of the config that the model does not have. What it has, training logs. */
static void note_dropout(const tt_component *c, const char *path, const tt_json *root)
{
    for (size_t i = 0; i < root->n; i++) {
        const char *key = root->keys[i];
        const tt_json *v = root->items[i];
        if (tt_is_dropout(key) && strncmp(key, "summary", 7) != 0 && !is_option(c, key) &&
            (v->type == TT_JSON_INT || v->type == TT_JSON_REAL) && v->real != 0.0)
            tt_log(TT_INFO, "model", "%s: %s %g is not applied: model %s has no such dropout", path,
                   key, v->real, c->name);
    }
}

static bool config_has(const tt_component *c, const tt_json *root, const char *key)
{
    const int row = option_of(c, key);
    for (size_t i = 0; row >= 0 && i < root->n; i++)
        if (option_of(c, root->keys[i]) == row)
            return true;
    return tt_json_get(root, key) ||
           ((!strcmp(key, "rope_theta") || !strcmp(key, "partial_rotary_factor")) &&
            tt_json_get(rope_parameters(root), key)) ||
           (!strcmp(key, "rope_local_base_freq") &&
            tt_json_get(local_parameters(root), "rope_theta"));
}

/* Writes the options that RoPE parameters of transformers 5 hold: rope_theta,
 * partial_rotary_factor, and the base of the layers that slide. */
static void put_parameters(writer *w, const tt_json *root, const tt_json *rope)
{
    const tt_json *base = tt_json_get(local_parameters(root), "rope_theta");
    for (size_t i = 0; i < rope->n; i++)
        if (!strcmp(rope->keys[i], "rope_theta") ||
            (!strcmp(rope->keys[i], "partial_rotary_factor") &&
             !tt_json_get(root, "partial_rotary_factor")))
            put_member(w, rope, i);
    if (base && is_option(w->c, "rope_local_base_freq")) {
        put_key(w, "rope_local_base_freq", NULL);
        put_value(w, base);
    }
}

static tt_status write_args(const tt_component *c, const tt_model_hf *hf, const char *path,
                            const tt_json *root, tt_arena *a, tt_str *out, tt_error *err)
{
    writer w = {.c = c, .out = out, .line = 1, .column = 1};
    const tt_json *defaults = NULL, *rope = rope_parameters(root);
    const bool v5 = rope && rope->type == TT_JSON_OBJECT;
    config_put(&w, "{", 1);
    for (size_t i = 0; i < root->n; i++) {
        const tt_json *v = root->items[i];
        if (!strcmp(root->keys[i], "rope_scaling") ||
            (v5 && !strcmp(root->keys[i], "rope_theta") && tt_json_get(rope, "rope_theta")))
            continue;
        if (v->type == TT_JSON_NULL && tt_json_get(root, root->keys[i]) == v &&
            !strcmp(root->keys[i], "rope_theta"))
            continue;
        if (!is_repeated(c, root, i) && tt_setup_hf_counts(a, c, path, root, root->keys[i]))
            put_member(&w, root, i);
    }
    const tt_json *scaling = v5 ? rope : tt_json_get(root, "rope_scaling");
    if (v5)
        put_parameters(&w, root, rope);
    if (scaling && scaling->type == TT_JSON_OBJECT)
        put_scaling(&w, root, scaling);
    if (hf->defaults)
        TT_TRY(tt_json_parse(a, c->name, hf->defaults, strlen(hf->defaults), &defaults, err));
    for (size_t i = 0; defaults && i < defaults->n; i++)
        if (!config_has(c, root, defaults->keys[i])) {
            put_key(&w, defaults->keys[i], NULL);
            put_value(&w, defaults->items[i]);
        }
    config_put(&w, "}", 1);
    return TT_OK;
}

/* Whether the job sets every argument. A checkpoint's job does, so config.json is not needed, and
 * its folder may be gone. */
static bool job_sets_all(const tt_setup *s, const tt_component *c)
{
    for (size_t i = 0; i < c->n_options; i++)
        if (!tt_job_has(s->job, tt_arena_printf(s->arena, "model.args.%s",
                                                tt_component_option(c, i)->name)))
            return false;
    return true;
}

/* The model's arguments in the file, as JSON. */
static tt_status read_args(const tt_setup *s, const tt_component *c, const char *path,
                           const tt_json **root, const char **args, tt_error *err)
{
    tt_arena *a = s->arena;
    const tt_model_hf *hf = tt_setup_model_hf(c);
    tt_str out = {0};
    TT_TRY(tt_json_read_object(a, path, MAX_CONFIG_BYTES, root, err));
    *root = tt_hf_text_config(*root);
    tt_status st = check_type(s, c, hf, path, *root, err);
    if (st == TT_OK)
        st = check_rope(c, path, *root, err);
    if (st == TT_OK)
        st = write_args(c, hf, path, *root, a, &out, err);
    if (st == TT_OK)
        *args = tt_arena_str(a, tt_str_get(&out));
    tt_str_free(&out);
    return st;
}

tt_status tt_setup_hf_args(const tt_setup *s, const tt_component *c, const char **path_out,
                           const char **args, tt_error *err)
{
    const tt_json *root = NULL;
    tt_error why = {0};
    const char *path = tt_path_join(s->arena, tt_setup_assets(s), "config.json");
    if (!tt_setup_model_hf(c))
        return tt_job_fail(s->job, "model.flavor", err,
                           "model %s does not read Hugging Face's config.json", c->name);
    *path_out = path;
    *args = "{}";
    if (job_sets_all(s, c))
        return TT_OK;
    if (read_args(s, c, path, &root, args, &why) != TT_OK)
        return tt_job_fail(s->job, s->core.hf ? "model.hf" : "model.hf_assets_path", err, "%s",
                           why.text);
    note_dropout(c, path, root);
    tt_setup_hf_say_counts(s->arena, c, path, root);
    return TT_OK;
}

tt_status tt_setup_hf_config(const tt_setup *s, const char *path, void **config, tt_error *err)
{
    const tt_component *c = s->model.component;
    const tt_model_vt *vt = c->vtable;
    const tt_json *root = NULL;
    const char *args = NULL;
    tt_job *none = NULL;
    *config = tt_arena_alloc(s->arena, c->config_size + 1);
    TT_TRY(read_args(s, c, path, &root, &args, err));
    TT_TRY(tt_job_load(s->arena, NULL, NULL, 0, &none, err));
    TT_TRY(tt_job_section_over(none, "model.args", path, args, c->options, c->n_options,
                               c->option_size, NULL, *config, err));
    if (!vt->finish)
        return TT_OK;
    return TT_PLUGIN_CALL(vt->finish(*config, err), err, "model", s->model.name);
}

/* Keys of config.json that say nothing of what the model computes, or that are read elsewhere. */
static bool is_of_others(const char *key)
{
    static const char *const keys[] = {"architectures",
                                       "model_type",
                                       "dtype",
                                       "torch_dtype",
                                       "transformers_version",
                                       "use_cache",
                                       "bos_token_id",
                                       "eos_token_id",
                                       "pad_token_id",
                                       "initializer_range",
                                       "max_position_embeddings",
                                       "auto_map",
                                       "quantization_config",
                                       "_name_or_path",
                                       "pretraining_tp",
                                       "rope_parameters",
                                       "rope_scaling",
                                       "rope_theta",
                                       "tokenizer_class",
                                       "n_positions",
                                       "n_ctx",
                                       "output_router_logits",
                                       "router_aux_loss_coef",
                                       "experts_per_token",
                                       "original_max_position_embeddings",
                                       "qk_head_dim"};
    for (size_t i = 0; i < TT_COUNT(keys); i++)
        if (!strcmp(key, keys[i]))
            return true;
    return *key == '_' || !strncmp(key, "summary_", 8);
}

static bool says_nothing(const tt_json *v)
{
    return v->type == TT_JSON_NULL || (v->type == TT_JSON_BOOL && !v->boolean) ||
           ((v->type == TT_JSON_INT || v->type == TT_JSON_REAL) && v->real == 0.0) ||
           ((v->type == TT_JSON_ARRAY || v->type == TT_JSON_OBJECT) && !v->n);
}

tt_status tt_setup_hf_unread(const tt_setup *s, const char *path, tt_str *out, tt_error *err)
{
    const tt_component *c = s->model.component;
    const tt_model_hf *hf = tt_setup_model_hf(c);
    const tt_json *root = NULL, *fixed = NULL;
    TT_TRY(tt_json_read_object(s->arena, path, MAX_CONFIG_BYTES, &root, err));
    root = tt_hf_text_config(root);
    if (hf && hf->fixed)
        TT_TRY(tt_json_parse(s->arena, c->name, hf->fixed, strlen(hf->fixed), &fixed, err));
    for (size_t i = 0; i < root->n; i++) {
        const char *key = root->keys[i];
        if (!is_option(c, key) && !tt_json_get(fixed, key) && !is_of_others(key) &&
            !says_nothing(root->items[i]))
            tt_str_printf(out, "%s%s", out->n ? ", " : "", key);
    }
    return TT_OK;
}
