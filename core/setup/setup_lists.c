/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"
#include <string.h>
#include <ttrun/converter.h>

/* The job's lists of plugins: hooks, converters, metrics.sinks. */

static tt_status count_entries(const tt_setup *s, const char *list, size_t *n, tt_error *err)
{
    TT_TRY(tt_job_list(s->job, list, n, err));
    if (*n > TT_MAX_PARTS)
        return tt_job_fail(s->job, list, err, "%zu entries, at most %d", *n, TT_MAX_PARTS);
    return TT_OK;
}

static const char *entry(const tt_setup *s, const char *list, size_t i)
{
    return tt_arena_printf(s->arena, "%s[%zu]", list, i);
}

tt_status tt_setup_hooks(tt_setup *s, tt_error *err)
{
    size_t n = 0;
    TT_TRY(count_entries(s, "hooks", &n, err));
    for (size_t i = 0; i < n; i++)
        TT_TRY(tt_registry_part(s->registry, s->job, TT_KIND_HOOK, entry(s, "hooks", i), NULL, NULL,
                                s->arena, &s->hooks[i], err));
    s->n_hooks = (int)n;
    return TT_OK;
}

/* ---- converters ---- */

/* Reads the keys that every converter has. If a plugin has an option of the same name, the key is
 * the plugin's. */
static tt_status common_keys(tt_setup *s, const char *key, const tt_component *c,
                             tt_converter_config *out, tt_error *err)
{
    const char **own = tt_arena_array(s->arena, c->n_options + 1, sizeof *own);
    for (size_t k = 0; k < c->n_options; k++)
        own[k] = tt_component_option(c, k)->name;
    TT_TRY(tt_converter_config_parse(s->job, key, own, out, err));
    for (size_t k = 0; k < out->filter.n; k++)
        if (!*out->filter.items[k])
            return tt_job_fail(s->job, tt_arena_printf(s->arena, "%s.filter", key), err,
                               "\"\" matches every name, so nothing would be converted");
    return TT_OK;
}

tt_status tt_setup_converters(tt_setup *s, tt_error *err)
{
    static const char *const common[] = {"filter", "from_step", "to_step", "roles", NULL};
    size_t n = 0;
    TT_TRY(count_entries(s, "converters", &n, err));
    for (size_t i = 0; i < n; i++) {
        const char *key = entry(s, "converters", i);
        tt_converter_config c = {0};
        TT_TRY(tt_registry_part(s->registry, s->job, TT_KIND_CONVERTER, key, NULL, common, s->arena,
                                &s->converters[i], err));
        TT_TRY(common_keys(s, key, s->converters[i].component, &c, err));
        s->converter_filters[i] = c.filter;
    }
    s->n_converters = (int)n;
    return TT_OK;
}

static bool leaves_out(const tt_strings *filter, const char *name)
{
    for (size_t i = 0; i < filter->n; i++)
        if (strstr(name, filter->items[i]))
            return true;
    return false;
}

tt_value *tt_setup_convert_linear(void *user, tt_builder *b, const char *param, tt_value *x,
                                  tt_value *w)
{
    const tt_setup *s = user;
    const tt_param_info *info = w->node ? w->node->param : NULL;
    const char *name = info ? info->name : param; /* the full name: param lacks the scope */
    for (int i = 0; i < s->n_converters; i++) {
        const tt_converter_vt *vt = s->converters[i].component->vtable;
        if (leaves_out(&s->converter_filters[i], name))
            continue;
        tt_value *y = vt->linear(s->converters[i].config, b, name, x, w);
        if (y)
            return y;
    }
    return NULL;
}

void tt_setup_described(void *user, tt_builder *b)
{
    const tt_setup *s = user;
    const tt_graph *g = tt_builder_graph(b);
    const char **names = tt_arena_array(s->arena, g->params.n + 1, sizeof *names);
    for (size_t i = 0; i < g->params.n; i++)
        names[i] = g->params.items[i]->name;
    for (int i = 0; i < s->n_converters; i++) {
        const tt_converter_vt *vt = s->converters[i].component->vtable;
        if (!TT_HAS(vt, tt_converter_vt, described) || !vt->described)
            continue;
        tt_builder_context(b, tt_arena_printf(s->arena, "converters[%d]", i));
        vt->described(s->converters[i].config, b, names, g->params.n);
    }
    tt_builder_context(b, NULL);
}

void tt_setup_check_filters(const tt_setup *s)
{
    for (int i = 0; i < s->n_converters; i++)
        for (size_t k = 0; k < s->converter_filters[i].n; k++) {
            const char *word = s->converter_filters[i].items[k];
            bool any = false;
            for (size_t p = 0; p < s->graph->params.n && !any; p++)
                any = strstr(s->graph->params.items[p]->name, word) != NULL;
            if (!any)
                tt_log(TT_WARN, "train",
                       "converters[%d].filter: no parameter's name contains \"%s\" (names are like "
                       "%s), so it has no effect",
                       i, word, s->graph->params.n ? s->graph->params.items[0]->name : "(none)");
        }
}

/* ---- metrics ---- */

/* Splits a comma-separated list into an array of names. */
static const char **names_of(tt_arena *a, const char *list, size_t *n)
{
    const char **names = tt_arena_array(a, strlen(list) + 1, sizeof *names);
    *n = 0;
    while (*list) {
        const size_t length = strcspn(list, ",");
        if (length)
            names[(*n)++] = tt_arena_strn(a, list, length);
        list += length + (list[length] == ',');
    }
    return names;
}

/* Two sinks of one kind are allowed, but not with the same settings: both would write to the same
 * place. */
static tt_status check_same_sinks(const tt_setup *s, size_t n, tt_error *err)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++) {
            const char *a = tt_job_text(s->job, entry(s, "metrics.sinks", i));
            const char *b = tt_job_text(s->job, entry(s, "metrics.sinks", k));
            if (a && b && !strcmp(a, b))
                return tt_job_fail(s->job, entry(s, "metrics.sinks", i), err,
                                   "the same as metrics.sinks[%zu]; keep one of them", k);
        }
    return TT_OK;
}

tt_status tt_setup_metrics(tt_setup *s, tt_error *err)
{
    const bool listed = tt_job_has(s->job, "metrics.sinks");
    size_t n = 0;
    const char *of_spec = s->spec->metrics ? s->spec->metrics : "jsonl,tensorboard";
    const char **names = names_of(s->arena, of_spec, &n);
    if (listed)
        TT_TRY(count_entries(s, "metrics.sinks", &n, err));
    if (listed)
        TT_TRY(check_same_sinks(s, n, err));
    for (size_t i = 0; i < n; i++) {
        tt_part p;
        if (!listed && !strcmp(names[i], "tensorboard") && !s->core.metrics.enable_tensorboard)
            continue;
        if (s->n_metrics == TT_MAX_PARTS)
            return TT_FAIL(err, TT_EINVAL, "too many metrics plugins");
        const char *key = entry(s, "metrics.sinks", listed ? i : (size_t)s->n_metrics);
        TT_TRY(tt_registry_part(s->registry, s->job, TT_KIND_METRICS, key, listed ? NULL : names[i],
                                NULL, s->arena, &p, err));
        if (strcmp(p.name, "tensorboard") || s->core.metrics.enable_tensorboard)
            s->metrics[s->n_metrics++] = p;
    }
    return TT_OK;
}
