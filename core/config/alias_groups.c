/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <ctype.h>
#include <string.h>

/* torchtitan's form of optimizer.param_groups, {"pattern": …, "optimizer_name": "AdamW", "optimizer_kwargs": {"lr": …,
 * "betas": [0.9, 0.95]}}, is taken as ours, {"match": …, "name": "adamw", "lr": …, "beta1": 0.9, "beta2": 0.95}. In both
 * the pattern is searched in a parameter's name, and the first group that matches is the one. */

static bool move_key(tt_arena *a, tt_json *group, const char *from, const char *to)
{
    for (size_t i = 0; i < group->n; i++) {
        if (strcmp(group->keys[i], from) != 0)
            continue;
        tt_json *v = group->items[i];
        const tt_json_pos pos = group->key_pos[i];
        tt_config_remove(group, from);
        tt_config_put(a, group, to, pos, v);
        return true;
    }
    return false;
}

/* "AdamW" → "adamw", "DistMuon" → "muon" */
static void take_name(tt_arena *a, tt_json *name)
{
    if (name->type != TT_JSON_STRING)
        return;
    const char *text = name->string + (strncmp(name->string, "Dist", 4) == 0 ? 4 : 0);
    char *lower = tt_arena_strn(a, text, strlen(text));
    for (char *p = lower; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    name->string = lower;
}

static tt_status take_betas(tt_arena *a, tt_json *group, const char *path, tt_json_pos pos,
                            const tt_json *betas, tt_error *err)
{
    if (betas->type != TT_JSON_ARRAY || betas->n != 2)
        return tt_config_fail(betas, NULL, path, err, "betas: expected two numbers");
    tt_config_put(a, group, "beta1", pos, betas->items[0]);
    tt_config_put(a, group, "beta2", pos, betas->items[1]);
    return TT_OK;
}

/* How the update is computed, not what: one kernel here. */
static bool is_of_the_kernel(const char *key)
{
    return strcmp(key, "fused") == 0 || strcmp(key, "foreach") == 0;
}

static tt_status take_kwargs(tt_arena *a, tt_json *group, const char *path, tt_error *err)
{
    const tt_json *kwargs = tt_json_get(group, "optimizer_kwargs");
    if (!kwargs)
        return TT_OK;
    if (kwargs->type != TT_JSON_OBJECT)
        return tt_config_fail(kwargs, NULL, path, err, "optimizer_kwargs: expected an object");
    tt_config_remove(group, "optimizer_kwargs");
    for (size_t i = 0; i < kwargs->n; i++) {
        if (strcmp(kwargs->keys[i], "betas") == 0)
            TT_TRY(take_betas(a, group, path, kwargs->key_pos[i], kwargs->items[i], err));
        else if (!is_of_the_kernel(kwargs->keys[i]))
            tt_config_put(a, group, kwargs->keys[i], kwargs->key_pos[i], kwargs->items[i]);
    }
    return TT_OK;
}

tt_status tt_config_take_groups(tt_job *job, bool *taken, tt_error *err)
{
    tt_arena *a = job->arena;
    tt_json *list = tt_config_find(job, "optimizer.param_groups");
    *taken = false;
    for (size_t i = 0; list && list->type == TT_JSON_ARRAY && i < list->n; i++) {
        tt_json *group = list->items[i];
        const char *path = tt_arena_printf(a, "optimizer.param_groups[%zu]", i);
        if (group->type != TT_JSON_OBJECT || !tt_json_get(group, "pattern"))
            continue;
        if (tt_json_get(group, "match"))
            return tt_config_fail(group, NULL, path, err,
                                  "pattern: the same option as match; keep one of them");
        move_key(a, group, "pattern", "match");
        if (move_key(a, group, "optimizer_name", "name"))
            take_name(a, (tt_json *)tt_json_get(group, "name")); /* the tree is the job's own */
        TT_TRY(take_kwargs(a, group, path, err));
        *taken = true;
    }
    return TT_OK;
}
