/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/pattern.h"
#include "setup/setup_impl.h"
#include <string.h>

/* optimizer.param_groups: an ordered list; a parameter belongs to the first group that matches it.
 * A group has the optimizer's options, overridden by its own, and an lr_factor. */

#define MAX_GROUPS 1024

typedef struct tt_group_match {
    const char *text;
    const char *tag; /* "tag:norm" → "norm" */
    tt_pattern *pattern;
    const char *fault; /* why the match failed, and on which name; NULL: it did not fail */
} tt_group_match;

typedef struct group_config {
    const char *match;
    double lr_factor;
} group_config;

static const tt_option group_options[] = {
    {.name = "match",
     .doc = "regular expression on parameter names, or tag:NAME",
     .type = TT_OPT_STRING,
     .offset = offsetof(group_config, match),
     .default_json = "\"\""},
    { .name = "lr_factor",
     .doc = "factor on the learning rate",
     .type = TT_OPT_FLOAT,
     .offset = offsetof(group_config,           lr_factor),
     .default_json = "1.0",
     .min = 0,
     .max = 1e9},
};

bool tt_has_tag(const char *tags, const char *tag)
{
    const size_t n = strlen(tag);
    for (const char *p = tags; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, tag, n) && (p[n] == ',' || !p[n]))
            return true;
    return false;
}

static bool matches(tt_setup *s, tt_group_match *m, const tt_param_info *p)
{
    bool yes = false;
    tt_error why = {0};
    if (m->tag)
        return tt_has_tag(p->tags, m->tag);
    if (m->fault) /* tt_groups_check() reports it */
        return false;
    if (tt_pattern_match(m->pattern, p->name, &yes, &why) != TT_OK)
        m->fault = tt_arena_printf(s->arena, "%s: %s", p->name, why.text);
    return yes;
}

int tt_group_of(void *setup, const tt_param_info *p)
{
    tt_setup *s = setup;
    for (int i = 0; i + 1 < s->n_groups; i++)
        if (matches(s, &s->matches[i], p))
            return i;
    return -1;
}

/* Shortens a text so that it fits the line of an error. */
static const char *shown(const tt_setup *s, const char *text)
{
    const size_t most = 60;
    if (strlen(text) <= most)
        return text;
    return tt_arena_printf(s->arena, "%s…",
                           tt_arena_strn(s->arena, text, tt_utf8_valid(text, most)));
}

static tt_status make_match(tt_setup *s, const char *key, const char *text, tt_group_match *m,
                            tt_error *err)
{
    m->text = text;
    if (!strncmp(text, "tag:", 4)) {
        m->tag = text + 4;
        return TT_OK;
    }
    if (!*text)
        return tt_job_fail(s->job, key, err,
                           "needs a \"match\": a regular expression on names, or tag:NAME");
    tt_error why = {0};
    if (tt_pattern_new(s->arena, text, &m->pattern, &why) != TT_OK)
        return tt_job_fail(s->job, key, err, "match \"%s\" is not a regular expression: %s",
                           shown(s, text), why.text);
    return TT_OK;
}

/* The optimizer's options, overridden by the group's keys except match and lr_factor. */
static tt_status overlay(tt_setup *s, const char *key, void *config, tt_error *err)
{
    static const char *const own[] = {"match", "lr_factor", NULL};
    const tt_component *c = s->optimizer.component;
    tt_str base = {0};
    for (size_t i = 0; i < c->n_options; i++) {
        const char *name = tt_component_option(c, i)->name;
        const char *value = tt_job_text(s->job, tt_arena_printf(s->arena, "optimizer.%s", name));
        if (!value)
            continue;
        tt_str_addc(&base, base.n ? ',' : '{');
        tt_str_json(&base, name);
        tt_str_printf(&base, ":%s", value);
    }
    tt_str_add(&base, base.n ? "}" : "{}");
    const tt_status st =
        tt_job_section_over(s->job, key, "optimizer", tt_arena_str(s->arena, tt_str_get(&base)),
                            c->options, c->n_options, c->option_size, own, config, err);
    tt_str_free(&base);
    return st;
}

/* A group's own lr is a factor on the schedule's rate, like lr_factor. */
static tt_status group_rate(tt_setup *s, const char *key, const void *config, double factor,
                            tt_group *out, tt_error *err)
{
    const tt_component *c = s->optimizer.component;
    const double *own = tt_optimizer_rate(c, config);
    const double *base = tt_optimizer_rate(c, s->optimizer.config);
    if (*own < *base || *own > *base) {
        if (*base <= 0)
            return tt_job_fail(s->job, key, err,
                               "a group can have its own lr only if optimizer.lr is above 0");
        factor *= *own / *base;
    }
    *out = (tt_group){s->groups[0].vt, config, factor};
    return TT_OK;
}

static tt_status make_group(tt_setup *s, size_t i, tt_error *err)
{
    const tt_component *c = s->optimizer.component;
    const char *key = tt_arena_printf(s->arena, "optimizer.param_groups[%zu]", i);
    const char **others = tt_arena_array(s->arena, c->n_options + 1, sizeof *others);
    group_config g;
    for (size_t k = 0; k < c->n_options; k++)
        others[k] = tt_component_option(c, k)->name;
    TT_TRY(tt_job_section(s->job, key, group_options, TT_COUNT(group_options), sizeof(tt_option),
                          others, &g, err));
    TT_TRY(make_match(s, key, g.match, &s->matches[i], err));
    void *config = tt_arena_alloc(s->arena, c->config_size + 1);
    TT_TRY(overlay(s, key, config, err));
    return group_rate(s, key, config, g.lr_factor, &s->groups[i + 1], err);
}

/* What the core itself reads of the section. An optimizer's own option of that name goes before it. */
static tt_status common_options(tt_setup *s, tt_error *err)
{
    const tt_component *c = s->optimizer.component;
    const char **own = tt_arena_array(s->arena, c->n_options + 1, sizeof *own);
    tt_optimizer_config o;
    for (size_t k = 0; k < c->n_options; k++)
        own[k] = tt_component_option(c, k)->name;
    TT_TRY(tt_optimizer_config_parse(s->job, own, &o, err));
    s->state_dtype = o.state_dtype;
    return TT_OK;
}

tt_status tt_groups_make(tt_setup *s, tt_error *err)
{
    size_t n = 0;
    TT_TRY(common_options(s, err));
    TT_TRY(tt_job_list(s->job, "optimizer.param_groups", &n, err));
    if (n > MAX_GROUPS)
        return tt_job_fail(
            s->job, "optimizer.param_groups", err,
            "%zu groups, but at most %d are allowed; one match may cover many parameters", n,
            MAX_GROUPS);
    s->groups = tt_arena_array(s->arena, n + 1, sizeof *s->groups);
    s->matches = tt_arena_array(s->arena, n + 1, sizeof *s->matches);
    s->groups[0] = (tt_group){s->optimizer.component->vtable, s->optimizer.config, 1.0};
    s->n_groups = (int)n + 1;
    for (size_t i = 0; i < n; i++)
        TT_TRY(make_group(s, i, err));
    return TT_OK;
}

tt_status tt_groups_check(const tt_setup *s, tt_error *err)
{
    for (int i = 0; i + 1 < s->n_groups; i++) {
        bool any = false;
        for (size_t p = 0; p < s->graph->params.n; p++)
            any = any || s->graph->params.items[p]->group == i;
        char key[64];
        snprintf(key, sizeof key, "optimizer.param_groups[%d].match", i);
        if (s->matches[i].fault)
            return tt_job_fail(s->job, key, err, "matching \"%s\" takes too much work on %s",
                               shown(s, s->matches[i].text), s->matches[i].fault);
        if (!any)
            return tt_job_fail(s->job, key, err,
                               "\"%s\" matches no parameter that an earlier group left",
                               shown(s, s->matches[i].text));
    }
    return TT_OK;
}
