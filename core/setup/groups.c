/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/param_match.h"
#include "setup/setup_impl.h"
#include <math.h>
#include <string.h>

/* optimizer.param_groups: an ordered list; a parameter belongs to the first group that matches it.
 * A group has the optimizer's options, overridden by its own, and an lr_factor; or by its name another
 * optimizer, with that one's options. */

#define MAX_GROUPS 1024

typedef struct group_config {
    const char *match;
    double lr_factor;
    bool clip_grad;
} group_config;

static const tt_option group_options[] = {
    {.name = "match",
     .doc = "regular expression on parameter names, or tag:NAME",
     .type = TT_OPT_STRING,
     .offset = offsetof(group_config,                                         match),
     .default_json = "\"\""         },
    {.name = "lr_factor",
     .doc = "factor on the learning rate",
     .type = TT_OPT_FLOAT,
     .offset = offsetof(group_config,                                         lr_factor),
     .default_json = "1.0",
     .min = 0,
     .max = 1e9},
    {.name = "clip_grad",
     .doc = "false: its gradients are neither clipped nor part of grad_norm",
     .type = TT_OPT_BOOL,
     .offset = offsetof(group_config, clip_grad),
     .default_json = "true"},
};

int tt_group_of(void *setup, const tt_param_info *p)
{
    tt_setup *s = setup;
    for (int i = 0; i + 1 < s->n_groups; i++)
        if (tt_param_match_test(&s->matches[i], p->name, p->tags, s->arena))
            return i;
    return -1;
}

static tt_status make_match(tt_setup *s, const char *key, const char *text, tt_param_match *m,
                            tt_error *err)
{
    tt_error why = {0};
    if (!*text)
        return tt_job_fail(s->job, key, err,
                           "needs a \"match\": a regular expression on names, or tag:NAME");
    if (tt_param_match_make(s->arena, text, m, &why) != TT_OK)
        return tt_job_fail(s->job, key, err, "match %s", why.text);
    return TT_OK;
}

/* The optimizer's options, overridden by the group's keys except its own ones. */
static tt_status overlay(tt_setup *s, const char *key, void *config, tt_error *err)
{
    static const char *const own[] = {"match", "lr_factor", "clip_grad", "name", NULL};
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
static tt_status group_rate(tt_setup *s, const char *key, const tt_component *c, const void *config,
                            double factor, tt_group *out, tt_error *err)
{
    const double *own = tt_optimizer_rate(c, config);
    const double *base = tt_optimizer_rate(s->optimizer.component, s->optimizer.config);
    if (*own < *base || *own > *base) {
        if (*base <= 0)
            return tt_job_fail(s->job, key, err,
                               "a group can have its own lr only if optimizer.lr is above 0");
        factor *= *own / *base;
    }
    *out = (tt_group){.vt = c->vtable, .config = config, .lr_factor = factor};
    return TT_OK;
}

/* The group's own keys and its config; c: its optimizer. */
static tt_status group_config_of(tt_setup *s, const char *key, const tt_component *c,
                                 group_config *g, void *config, tt_error *err)
{
    static const char *const own[] = {"match", "lr_factor", "clip_grad", "name", NULL};
    const char **others = tt_arena_array(s->arena, c->n_options + 2, sizeof *others);
    for (size_t k = 0; k < c->n_options; k++)
        others[k] = tt_component_option(c, k)->name;
    others[c->n_options] = "name";
    TT_TRY(tt_job_section(s->job, key, group_options, TT_COUNT(group_options), sizeof(tt_option),
                          others, g, err));
    if (c == s->optimizer.component)
        return overlay(s, key, config, err);
    return tt_job_section(s->job, key, c->options, c->n_options, c->option_size, own, config, err);
}

static tt_status make_group(tt_setup *s, size_t i, tt_error *err)
{
    const char *key = tt_arena_printf(s->arena, "optimizer.param_groups[%zu]", i);
    const char *name = NULL;
    const tt_component *c = s->optimizer.component;
    tt_error why = {0};
    group_config g;
    TT_TRY(tt_job_string(s->job, tt_arena_printf(s->arena, "%s.name", key), NULL, &name, err));
    if (name && strcmp(name, c->name) &&
        tt_registry_find(s->registry, TT_KIND_OPTIMIZER, name, &c, &why) != TT_OK)
        return tt_job_fail(s->job, tt_arena_printf(s->arena, "%s.name", key), err, "%s", why.text);
    void *config = tt_arena_alloc(s->arena, c->config_size + 1);
    TT_TRY(group_config_of(s, key, c, &g, config, err));
    TT_TRY(make_match(s, key, g.match, &s->matches[i], err));
    TT_TRY(group_rate(s, key, c, config, g.lr_factor, &s->groups[i + 1], err));
    s->groups[i + 1].unclipped = !g.clip_grad;
    return TT_OK;
}

/* What the core itself reads of the section. An optimizer's own option of that name goes before it. */
static tt_status common_options(tt_setup *s, tt_error *err)
{
    const tt_component *c = s->optimizer.component;
    const char **own = tt_arena_array(s->arena, c->n_options + 1, sizeof *own);
    static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_F8E4M3, TT_U8};
    tt_optimizer_config o;
    for (size_t k = 0; k < c->n_options; k++)
        own[k] = tt_component_option(c, k)->name;
    TT_TRY(tt_optimizer_config_parse(s->job, own, &o, err));
    s->state_dtype = dtypes[o.state_dtype];
    s->early_step = o.early_step_in_backward;
    s->qk_clip = isnan(o.qk_clip) ? 0 : o.qk_clip;
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
    s->groups[0] = (tt_group){
        .vt = s->optimizer.component->vtable, .config = s->optimizer.config, .lr_factor = 1.0};
    s->n_groups = (int)n + 1;
    for (size_t i = 0; i < n; i++)
        TT_TRY(make_group(s, i, err));
    return TT_OK;
}

/* A validation beside the training reads averages where they lie, as it reads parameters. */
static tt_status check_averages(const tt_setup *s, tt_error *err)
{
    const bool apart = tt_setup_offloads_states(s), low = s->core.training.dtype != TT_F32;
    for (size_t i = 0; s->has_validation && (apart || low) && i < s->graph->states.n; i++)
        if (s->graph->states.items[i]->evaluated)
            return tt_job_fail(
                s->job, "training.ema_evaluate", err,
                "validation cannot read averaged weights that are %s: set it to false, which "
                "validates the weights of the last step",
                low ? "f32 beside weights of training.dtype bfloat16"
                    : "in host memory (training.enable_cpu_offload)");
    return TT_OK;
}

tt_status tt_groups_check(const tt_setup *s, tt_error *err)
{
    TT_TRY(check_averages(s, err));
    for (int i = 0; i + 1 < s->n_groups; i++) {
        bool any = false;
        for (size_t p = 0; p < s->graph->params.n; p++)
            any = any || s->graph->params.items[p]->group == i;
        char key[64];
        snprintf(key, sizeof key, "optimizer.param_groups[%d].match", i);
        if (s->matches[i].fault)
            return tt_job_fail(s->job, key, err, "matching \"%s\" takes too much work on %s",
                               tt_param_match_shown(s->arena, s->matches[i].text),
                               s->matches[i].fault);
        if (!any)
            return tt_job_fail(s->job, key, err,
                               "\"%s\" matches no parameter that an earlier group left",
                               tt_param_match_shown(s->arena, s->matches[i].text));
    }
    return TT_OK;
}
