/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"
#include <string.h>

/* The job's lists of plugins: hooks, metrics.sinks. */

tt_status tt_setup_count_entries(const tt_setup *s, const char *list, size_t *n, tt_error *err)
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
    TT_TRY(tt_setup_count_entries(s, "hooks", &n, err));
    for (size_t i = 0; i < n; i++)
        TT_TRY(tt_registry_part(s->registry, s->job, TT_KIND_HOOK, entry(s, "hooks", i), NULL, NULL,
                                s->arena, &s->hooks[i], err));
    s->n_hooks = (int)n;
    return TT_OK;
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

/* A sink by its name in the job's list, or of_spec if that is not NULL. The console is the loop's own. */
static tt_status add_sink(tt_setup *s, const char *key, const char *of_spec, tt_error *err)
{
    const tt_metrics_config *m = &s->core.metrics;
    const char *name = of_spec;
    tt_part p;
    TT_TRY(tt_job_string(s->job, tt_arena_printf(s->arena, "%s.name", key), of_spec, &name, err));
    if (name && !strcmp(name, "console")) {
        if (s->has_console)
            return tt_job_fail(s->job, key, err, "there is one console");
        s->has_console = true;
        return tt_console_config_parse(s->job, key, &s->console, err);
    }
    tt_str base = {0};
    if (name && !strcmp(name, "tensorboard")) {
        tt_str_add(&base, "{\"folder\": ");
        tt_str_json(&base, m->save_tb_folder);
        tt_str_printf(&base, ", \"all_ranks\": %s}", m->save_for_all_ranks ? "true" : "false");
    }
    const tt_status st = tt_registry_part_over(
        s->registry, s->job, TT_KIND_METRICS, key, of_spec, base.n ? "metrics" : NULL,
        base.n ? tt_arena_str(s->arena, tt_str_get(&base)) : NULL, NULL, s->arena, &p, err);
    tt_str_free(&base);
    if (st == TT_OK && (strcmp(p.name, "tensorboard") || m->enable_tensorboard))
        s->metrics[s->n_metrics++] = p;
    return st;
}

tt_status tt_setup_metrics(tt_setup *s, tt_error *err)
{
    const bool listed = tt_job_has(s->job, "metrics.sinks");
    size_t n = 0;
    const char *of_spec = s->spec->metrics ? s->spec->metrics : "jsonl,tensorboard";
    const char **names = names_of(s->arena, of_spec, &n);
    s->has_console = false; /* listed */
    s->console.freq = INT64_MIN;
    if (listed)
        TT_TRY(tt_setup_count_entries(s, "metrics.sinks", &n, err));
    if (listed)
        TT_TRY(check_same_sinks(s, n, err));
    for (size_t i = 0; i < n; i++) {
        if (!listed && !strcmp(names[i], "tensorboard") && !s->core.metrics.enable_tensorboard)
            continue;
        if (s->n_metrics == TT_MAX_PARTS)
            return TT_FAIL(err, TT_EINVAL, "too many metrics plugins");
        TT_TRY(add_sink(s, entry(s, "metrics.sinks", listed ? i : (size_t)s->n_metrics),
                        listed ? NULL : names[i], err));
    }
    s->has_console = s->console.freq != 0;
    return TT_OK;
}
