/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"
#include <string.h>

/* setup: job → spec, parts, mesh, batch sizes, graphs. Everything here is equal on all ranks. */

tt_status tt_setup_fail(const tt_job *job, const char *section, const char *text, tt_error *err)
{
    const char *dot = strrchr(section, '.'), *starts[] = {section, dot ? dot + 1 : section};
    for (size_t i = 0; i < TT_COUNT(starts); i++) {
        const size_t n = strlen(starts[i]), key = strcspn(text, ": ");
        char path[256];
        if (strncmp(text, starts[i], n) || key < n || key - n > 128 || strncmp(text + key, ": ", 2))
            continue;
        if (text[n] != '.' && text[n] != ':')
            continue;
        snprintf(path, sizeof path, "%s%.*s", section, (int)(key - n), text + n);
        return tt_job_fail(job, path, err, "%s", text + key + 2);
    }
    return tt_job_fail(job, section, err, "%s", text);
}

static tt_status find_spec(tt_setup *s, const tt_setup_opts *o, tt_error *err)
{
    const tt_component *c;
    const char *name = o->spec ? o->spec : s->core.spec;
    tt_error why = {0};
    if (tt_registry_find(s->registry, TT_KIND_TRAIN_SPEC, name, &c, &why) != TT_OK) {
        if (o->spec)
            return TT_FAIL(err, why.code, "--spec: %s", why.text);
        return tt_job_fail(s->job, "spec", err, "%s", why.text);
    }
    s->spec = c->vtable;
    return TT_OK;
}

static const char *flavor_args(const tt_setup *s, const tt_model_vt *vt, tt_error *err)
{
    tt_str known = {0};
    for (size_t i = 0; i < vt->n_flavors; i++) {
        if (!strcmp(vt->flavors[i].name, s->core.flavor)) {
            tt_str_free(&known);
            return vt->flavors[i].args_json;
        }
        tt_str_printf(&known, "%s%s", i ? ", " : "", vt->flavors[i].name);
    }
    if (!vt->n_flavors && !strcmp(s->core.flavor, "debugmodel"))
        return "{}"; /* a model of one size */
    tt_job_fail(s->job, "model.flavor", err, "model %s has no flavor \"%s\" (known: %s)",
                s->model.name, s->core.flavor, known.n ? tt_str_get(&known) : "none");
    tt_str_free(&known);
    return NULL;
}

static tt_status make_model(tt_setup *s, tt_error *err)
{
    const tt_component *c;
    const char *name = NULL;
    tt_error why = {0};
    TT_TRY(tt_job_string(s->job, "model.name", s->spec->model, &name, err));
    if (tt_registry_find(s->registry, TT_KIND_MODEL, name, &c, &why) != TT_OK)
        return tt_job_has(s->job, "model.name")
                   ? tt_job_fail(s->job, "model.name", err, "%s", why.text)
                   : TT_FAIL(err, why.code, "%s", why.text);
    const tt_model_vt *vt = c->vtable;
    s->model = (tt_part){c, tt_arena_alloc(s->arena, c->config_size + 1), c->name,
                         tt_registry_file(s->registry, c)};
    const char *args = NULL, *from = tt_arena_printf(s->arena, "flavor %s", s->core.flavor);
    if (!strcmp(s->core.flavor, "hf"))
        TT_TRY(tt_setup_hf_args(s, c, &from, &args, err));
    else if (!(args = flavor_args(s, vt, err)))
        return err->code;
    TT_TRY(tt_job_section_over(s->job, "model.args", from, args, c->options, c->n_options,
                               c->option_size, NULL, s->model.config, err));
    if (vt->finish && vt->finish(s->model.config, &why) != TT_OK)
        return tt_setup_fail(s->job, "model.args", why.text, err);
    return TT_OK;
}

/* The loader of a section, or its mixture of them. A loader's own shuffle and seed are read by the
 * core. */
static tt_status make_loader(tt_setup *s, const char *section, const char *fallback, tt_part *out,
                             tt_order *order, tt_error *err)
{
    static const char *const none[] = {NULL};
    const uint64_t seed = (uint64_t)s->core.training.seed;
    if (tt_job_has(s->job, tt_arena_printf(s->arena, "%s.mixture", section)))
        return tt_setup_mixture(s, section, fallback, seed, out, order, err);
    TT_TRY(tt_registry_part(s->registry, s->job, TT_KIND_DATALOADER, section, fallback, none,
                            s->arena, out, err));
    const bool *shuffle = tt_part_value(out->component, out->config, "shuffle", TT_OPT_BOOL);
    const int64_t *own = tt_part_value(out->component, out->config, "seed", TT_OPT_INT);
    *order = (tt_order){.seed = own && *own != INT64_MIN ? (uint64_t)*own : seed,
                        .shuffle = shuffle && *shuffle};
    return TT_OK;
}

static tt_status make_list(tt_setup *s, tt_kind kind, const char *section, tt_part *parts, int *n,
                           tt_error *err)
{
    size_t count = 0;
    TT_TRY(tt_job_list(s->job, section, &count, err));
    if (count > TT_MAX_PARTS)
        return tt_job_fail(s->job, section, err, "%zu entries, at most %d", count, TT_MAX_PARTS);
    for (size_t i = 0; i < count; i++)
        TT_TRY(tt_registry_part(s->registry, s->job, kind,
                                tt_arena_printf(s->arena, "%s[%zu]", section, i), NULL, NULL,
                                s->arena, &parts[i], err));
    *n = (int)count;
    return TT_OK;
}

static tt_status make_metrics(tt_setup *s, tt_error *err)
{
    const char *list = s->spec->metrics ? s->spec->metrics : "";
    while (*list) {
        const char *end = strchr(list, ',') ? strchr(list, ',') : list + strlen(list);
        const char *name = tt_arena_strn(s->arena, list, (size_t)(end - list));
        const tt_component *c;
        list = *end ? end + 1 : end;
        if (!strcmp(name, "tensorboard") && !s->core.metrics.enable_tensorboard)
            continue;
        if (s->n_metrics == TT_MAX_PARTS)
            return TT_FAIL(err, TT_EINVAL, "too many metrics plugins");
        TT_TRY(tt_registry_find(s->registry, TT_KIND_METRICS, name, &c, err));
        tt_part *p = &s->metrics[s->n_metrics++];
        *p = (tt_part){c, tt_arena_alloc(s->arena, c->config_size + 1), c->name,
                       tt_registry_file(s->registry, c)};
        TT_TRY(tt_job_overlay(s->job, name, "{}", c->options, c->n_options, c->option_size,
                              p->config, err));
    }
    return TT_OK;
}

static tt_status make_data(tt_setup *s, const tt_setup_opts *o, tt_error *err)
{
    tt_registry *r = s->registry;
    static const char *const none[] = {NULL};
    TT_TRY(tt_registry_part(r, s->job, TT_KIND_TOKENIZER, "tokenizer", s->spec->tokenizer, none,
                            s->arena, &s->tokenizer, err));
    s->has_tokenizer = true;
    if (!o->data)
        return TT_OK;
    TT_TRY(make_loader(s, "dataloader", s->spec->dataloader, &s->dataloader, &s->data_order, err));
    s->has_validation = s->core.validation.enable;
    if (tt_job_has(s->job, "validation.dataloader")) {
        const tt_part *one = &s->dataloader;
        TT_TRY(make_loader(s, "validation.dataloader",
                           tt_part_is_mixture(one) ? tt_mixture_part(one, 0)->name : one->name,
                           &s->validation_data, &s->validation_order, err));
        if (!tt_part_is_mixture(&s->validation_data))
            s->validation_order.seed = s->data_order.seed;
    } else if (s->has_validation) {
        return tt_job_fail(s->job, "validation.enable", err,
                           "needs data of its own: set validation.dataloader, for example "
                           "{\"path\": [\"held_out/*.txt\"]}");
    }
    return TT_OK;
}

static tt_status make_parts(tt_setup *s, const tt_setup_opts *o, tt_error *err)
{
    static const char *const groups[] = {"param_groups", NULL};
    tt_registry *r = s->registry;
    tt_backend_section bs = {0};
    TT_TRY(make_model(s, err));
    TT_TRY(make_data(s, o, err));
    TT_TRY(tt_registry_part(r, s->job, TT_KIND_LOSS, "loss", s->spec->loss, NULL, s->arena,
                            &s->loss, err));
    TT_TRY(tt_registry_part(r, s->job, TT_KIND_OPTIMIZER, "optimizer", s->spec->optimizer, groups,
                            s->arena, &s->optimizer, err));
    TT_TRY(tt_groups_make(s, err));
    TT_TRY(tt_registry_part(r, s->job, TT_KIND_LR_SCHEDULER, "lr_scheduler", s->spec->lr_scheduler,
                            NULL, s->arena, &s->lr_scheduler, err));
    TT_TRY(make_list(s, TT_KIND_HOOK, "hooks", s->hooks, &s->n_hooks, err));
    TT_TRY(make_list(s, TT_KIND_CONVERTER, "converters", s->converters, &s->n_converters, err));
    TT_TRY(make_metrics(s, err));
    TT_TRY(tt_setup_backend(s, &bs, err));
    s->threads = bs.threads;
    return TT_OK;
}

tt_status tt_setup_make(const tt_setup_opts *o, tt_registry *r, tt_job *job, tt_arena *a,
                        tt_setup *out, tt_error *err)
{
    tt_setup *s = out;
    memset(s, 0, sizeof *s);
    s->arena = a;
    s->registry = r;
    s->job = job;
    TT_TRY(tt_core_config_parse(job, &s->core, err));
    if (!tt_log_show_ranks(s->core.log_ranks))
        return tt_job_fail(job, "log.ranks", err,
                           "expected \"all\" or ranks, as \"0,3\"; got \"%s\"", s->core.log_ranks);
    TT_TRY(find_spec(s, o, err));
    TT_TRY(make_parts(s, o, err));
    TT_TRY(tt_setup_check_hf(s, err));
    TT_TRY(tt_job_finish(job, err));
    TT_TRY(tt_setup_mesh(s, o, err));
    if (!o->compile)
        return TT_OK;
    return tt_setup_compile(s, o, err);
}
