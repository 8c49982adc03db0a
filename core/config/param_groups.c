/* SPDX-License-Identifier: Apache-2.0 */
#include "config/dialects.h"
#include "config/internal.h"
#include <string.h>

/* optimizer.param_groups in torchtitan's form,
 *   {"pattern": …, "optimizer_name": "AdamW", "optimizer_kwargs": {"lr": …, "betas": [b1, b2], …}}
 * becomes ours: {"match": …, "name": "adamw", "lr": …, "beta1": …, "beta2": …}. As there, a group takes
 * nothing from the section: an option that it does not set has PyTorch's default. */

/* An optimizer of PyTorch, with its name and options here; *out: NULL, v is no name of one. */
static tt_status find_optimizer(tt_job *job, const tt_json *v, tt_json **out, tt_error *err)
{
    *out = NULL;
    for (size_t i = 0; i < tt_dialects_known.n_optimizers; i++) {
        const tt_dialect_optimizer *o = &tt_dialects_known.optimizers[i];
        if (!strcmp(o->name, v->string))
            return tt_config_parse(job->arena, v->origin, o->here, strlen(o->here), out, err);
    }
    return TT_OK;
}

static bool is_text(const tt_json *v, const char *text)
{
    tt_str s = {0};
    tt_json_write(v, &s);
    const bool same = !strcmp(tt_str_get(&s), text);
    tt_str_free(&s);
    return same;
}

static bool is_idle(const char *name, const tt_json *v)
{
    for (size_t i = 0; i < tt_dialects_known.n_arguments; i++) {
        const tt_dialect_argument *a = &tt_dialects_known.arguments[i];
        if (!strcmp(a->name, name))
            return !a->value || is_text(v, a->value);
    }
    return false;
}

static tt_status put_betas(tt_job *job, tt_json *to, tt_json_pos at, const tt_json *v,
                           const char *key, tt_error *err)
{
    if (v->type != TT_JSON_ARRAY || v->n != 2)
        return tt_config_fail(v, NULL, key, err, "expected two numbers, betas of Adam");
    tt_config_put(job->arena, to, "beta1", at, v->items[0]);
    tt_config_put(job->arena, to, "beta2", at, v->items[1]);
    return TT_OK;
}

static tt_status put_arguments(tt_job *job, tt_json *to, const tt_json *from, const char *key,
                               tt_error *err)
{
    if (from->type != TT_JSON_OBJECT)
        return tt_config_fail(from, NULL, key, err,
                              "expected an object of the optimizer's options");
    for (size_t i = 0; i < from->n; i++) {
        const char *name = from->keys[i];
        if (!strcmp(name, "betas"))
            TT_TRY(put_betas(job, to, from->key_pos[i], from->items[i],
                             tt_arena_printf(job->arena, "%s.betas", key), err));
        else if (!is_idle(name, from->items[i]))
            tt_config_put(job->arena, to, name, from->key_pos[i], from->items[i]);
    }
    return TT_OK;
}

/* The options of the optimizer that the group does not set; they stand where the group does. */
static void put_defaults(tt_job *job, tt_json *to, const tt_json *optimizer)
{
    for (size_t i = 0; i < optimizer->n; i++) {
        tt_json *v = optimizer->items[i];
        v->line = to->line;
        v->column = to->column;
        if (!tt_json_get(to, optimizer->keys[i]))
            tt_config_put(job->arena, to, optimizer->keys[i], (tt_json_pos){v->line, v->column}, v);
    }
}

/* Python's (?:…) is a group, like ( … ). */
static const char *pattern_of(tt_job *job, const char *text)
{
    char *out = tt_arena_alloc(job->arena, strlen(text) + 1), *to = out;
    for (const char *p = text; *p; p++) {
        const bool escaped = p > text && p[-1] == '\\';
        *to++ = *p;
        if (*p == '(' && !escaped && p[1] == '?' && p[2] == ':')
            p += 2;
    }
    *to = '\0';
    return out;
}

static tt_status take_group(tt_job *job, tt_json *group, const char *key, tt_error *err)
{
    tt_json *to = tt_config_node(job->arena, TT_JSON_OBJECT, group->origin);
    tt_json *optimizer = NULL;
    to->line = group->line;
    to->column = group->column;
    for (size_t i = 0; i < group->n; i++) {
        const char *name = group->keys[i], *at = tt_config_join(job->arena, key, name);
        const tt_json_pos pos = group->key_pos[i];
        tt_json *v = group->items[i];
        const bool text = v->type == TT_JSON_STRING;
        if (!strcmp(name, "pattern") && text) {
            v = tt_config_renamed(job, v, pattern_of(job, v->string));
            tt_config_put(job->arena, to, "match", pos, v);
        } else if (!strcmp(name, "optimizer_kwargs")) {
            TT_TRY(put_arguments(job, to, v, at, err));
        } else if (!strcmp(name, "optimizer_name") && text) {
            TT_TRY(find_optimizer(job, v, &optimizer, err));
            if (optimizer)
                v = tt_config_renamed(job, v, tt_json_get(optimizer, "name")->string);
            tt_config_put(job->arena, to, "name", pos, v);
        } else {
            tt_config_put(job->arena, to, name, pos, v);
        }
    }
    if (optimizer)
        put_defaults(job, to, optimizer);
    *group = *to;
    return TT_OK;
}

/* A name of PyTorch in a group of our form. */
static tt_status take_name(tt_job *job, tt_json *group, tt_error *err)
{
    tt_json *optimizer;
    for (size_t i = 0; i < group->n; i++) {
        if (strcmp(group->keys[i], "name") != 0 || group->items[i]->type != TT_JSON_STRING)
            continue;
        TT_TRY(find_optimizer(job, group->items[i], &optimizer, err));
        if (optimizer)
            group->items[i] =
                tt_config_renamed(job, group->items[i], tt_json_get(optimizer, "name")->string);
    }
    return TT_OK;
}

tt_status tt_config_take_groups(tt_job *job, bool *any, tt_error *err)
{
    static const char list[] = "optimizer.param_groups";
    tt_json *groups = tt_config_find(job, list);
    for (size_t i = 0; groups && groups->type == TT_JSON_ARRAY && i < groups->n; i++) {
        tt_json *g = groups->items[i];
        const char *key = tt_arena_printf(job->arena, "%s[%zu]", list, i);
        if (g->type != TT_JSON_OBJECT)
            continue;
        if (tt_json_get(g, "pattern") || tt_json_get(g, "optimizer_name") ||
            tt_json_get(g, "optimizer_kwargs")) {
            if (tt_json_get(g, "pattern") && tt_json_get(g, "match"))
                return tt_config_fail(tt_json_get(g, "pattern"), NULL,
                                      tt_config_join(job->arena, key, "pattern"), err,
                                      "the same option as match; keep one of them");
            TT_TRY(take_group(job, g, key, err));
            *any = true;
        } else {
            TT_TRY(take_name(job, g, err));
        }
    }
    return TT_OK;
}
