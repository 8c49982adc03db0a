/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/param_match.h"
#include "setup/setup.h"
#include <string.h>
#include <ttrun/param.h>

/* training.trainable: patterns of the parameters that are trained. All others are frozen: they have
 * no gradient, no optimizer state, and no part in the norm that gradients are clipped by. Without
 * the key all parameters are trained, but if a converter has added adapters, these alone. */

#define KEY "training.trainable"

tt_status tt_trainable_make(tt_setup *s, tt_error *err)
{
    const tt_strings *patterns = &s->core.training.trainable;
    const char *text = tt_job_text(s->job, KEY);
    if (!patterns->n && text && strcmp(text, "null") != 0)
        return tt_job_fail(s->job, KEY, err,
                           "an empty list would train nothing; null trains all parameters");
    s->trainable = tt_arena_array(s->arena, patterns->n + 1, sizeof *s->trainable);
    s->n_trainable = (int)patterns->n;
    for (size_t i = 0; i < patterns->n; i++) {
        tt_error why = {0};
        if (!*patterns->items[i])
            return tt_job_fail(s->job, KEY, err,
                               "\"\" matches every name; null trains all parameters");
        if (tt_param_match_make(s->arena, patterns->items[i], &s->trainable[i], &why) != TT_OK)
            return tt_job_fail(s->job, KEY, err, "%s", why.text);
    }
    return TT_OK;
}

static bool is_trained(tt_setup *s, const tt_param_info *p, bool adapters, bool *used)
{
    bool yes = !s->n_trainable && (!adapters || tt_has_tag(p->tags, TT_TAG_ADAPTER));
    for (int i = 0; i < s->n_trainable; i++)
        if (tt_param_match_test(&s->trainable[i], p->name, p->tags, s->arena))
            yes = used[i] = true;
    if (s->n_trainable && yes && p->codes)
        tt_log(TT_WARN, "train", KEY ": %s is stored as codes, which are not trained", p->name);
    return yes;
}

static tt_status check(const tt_setup *s, const tt_graph *g, const bool *used, bool any,
                       tt_error *err)
{
    for (int i = 0; i < s->n_trainable; i++) {
        const tt_param_match *m = &s->trainable[i];
        const char *shown = tt_param_match_shown(s->arena, m->text);
        if (m->fault)
            return tt_job_fail(s->job, KEY, err, "matching \"%s\" takes too much work on %s", shown,
                               m->fault);
        if (!used[i])
            return tt_job_fail(s->job, KEY, err, "\"%s\" matches no parameter (names are like %s)",
                               shown, g->params.n ? g->params.items[0]->name : "(none)");
    }
    if (g->params.n && !any)
        return tt_job_fail(s->job, KEY, err,
                           "no parameter is left to train: the model itself freezes those that "
                           "match");
    return TT_OK;
}

tt_status tt_freeze(void *setup, const tt_graph *described, bool checked, tt_error *err)
{
    tt_setup *s = setup;
    bool adapters = false, any = false;
    bool *used = tt_arena_array(s->arena, (size_t)s->n_trainable + 1, sizeof *used);
    for (size_t i = 0; i < described->params.n; i++)
        adapters = adapters || tt_has_tag(described->params.items[i]->tags, TT_TAG_ADAPTER);
    for (size_t i = 0; i < described->params.n; i++) {
        tt_param_info *p = described->params.items[i];
        if (!is_trained(s, p, adapters, used))
            p->frozen = true;
        any = any || !p->frozen;
    }
    return checked ? check(s, described, used, any, err) : TT_OK;
}
