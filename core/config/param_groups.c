/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <string.h>

/* optimizer.param_groups in torchtitan's form,
 *   {"pattern": …, "optimizer_name": "AdamW", "optimizer_kwargs": {"lr": …, "betas": [b1, b2], …}}
 * becomes ours: {"match": …, "name": "adamw", "lr": …, "beta1": …, "beta2": …}. As there, a group takes
 * nothing from the section: an option that it does not set has PyTorch's default. */

typedef struct known_option {
    const char *name, *value; /* its default in torch.optim */
} known_option;

static const known_option adamw[] = {
    {"lr",           "1e-3" },
    {"beta1",        "0.9"  },
    {"beta2",        "0.999"},
    {"eps",          "1e-8" },
    {"weight_decay", "1e-2" }
};
static const known_option adam[] = {
    {"lr",           "1e-3" },
    {"beta1",        "0.9"  },
    {"beta2",        "0.999"},
    {"eps",          "1e-8" },
    {"weight_decay", "0.0"  }
};
static const known_option muon[] = {
    {"lr",           "1e-3"        },
    {"weight_decay", "0.1"         },
    {"momentum",     "0.95"        },
    {"nesterov",     "true"        },
    {"ns_steps",     "5"           },
    {"adjust_lr_fn", "\"original\""},
    {"update",       "\"muon\""    }
};

static const struct {
    const char *theirs, *ours;
    const known_option *options;
    size_t n;
} optimizers[] = {
    {"AdamW",    "adamw", adamw, TT_COUNT(adamw)},
    {"Adam",     "adam",  adam,  TT_COUNT(adam) },
    {"Muon",     "muon",  muon,  TT_COUNT(muon) },
    {"DistMuon", "muon",  muon,  TT_COUNT(muon) },
};

/* Arguments of torch.optim that change nothing here as long as they have this value; NULL: any. */
static const struct {
    const char *name, *value;
} idle[] = {
    {"fused",          NULL   },
    {"foreach",        NULL   },
    {"capturable",     NULL   },
    {"differentiable", "false"},
    {"amsgrad",        "false"},
    {"maximize",       "false"},
};

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
    for (size_t i = 0; i < TT_COUNT(idle); i++)
        if (!strcmp(idle[i].name, name))
            return !idle[i].value || is_text(v, idle[i].value);
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

/* The options that the group does not set. */
static tt_status put_defaults(tt_job *job, tt_json *to, const known_option *options, size_t n,
                              tt_error *err)
{
    for (size_t i = 0; i < n; i++) {
        tt_json *v = NULL;
        if (tt_json_get(to, options[i].name))
            continue;
        TT_TRY(tt_config_parse(job->arena, to->origin, options[i].value, strlen(options[i].value),
                               &v, err));
        tt_config_put(job->arena, to, options[i].name, (tt_json_pos){to->line, to->column}, v);
    }
    return TT_OK;
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

/* A string of the group under another name. */
static tt_json *renamed(tt_job *job, const tt_json *v, const char *text)
{
    tt_json *copy = tt_arena_dup(job->arena, v, sizeof *v);
    copy->string = text;
    if (v->origin && v->origin->raw) {
        tt_json_origin *o = tt_arena_dup(job->arena, v->origin, sizeof *o);
        o->raw = text;
        copy->origin = o;
    }
    return copy;
}

static tt_status take_group(tt_job *job, tt_json *group, const char *key, tt_error *err)
{
    tt_json *to = tt_config_node(job->arena, TT_JSON_OBJECT, group->origin);
    const known_option *options = NULL;
    size_t n = 0;
    to->line = group->line;
    to->column = group->column;
    for (size_t i = 0; i < group->n; i++) {
        const char *name = group->keys[i], *at = tt_config_join(job->arena, key, name);
        const tt_json_pos pos = group->key_pos[i];
        tt_json *v = group->items[i];
        const bool text = v->type == TT_JSON_STRING;
        if (!strcmp(name, "pattern") && text) {
            v = renamed(job, v, pattern_of(job, v->string));
            tt_config_put(job->arena, to, "match", pos, v);
        } else if (!strcmp(name, "optimizer_kwargs")) {
            TT_TRY(put_arguments(job, to, v, at, err));
        } else if (!strcmp(name, "optimizer_name") && text) {
            for (size_t k = 0; k < TT_COUNT(optimizers); k++)
                if (!strcmp(optimizers[k].theirs, v->string)) {
                    options = optimizers[k].options;
                    n = optimizers[k].n;
                    v = renamed(job, v, optimizers[k].ours);
                    break;
                }
            tt_config_put(job->arena, to, "name", pos, v);
        } else {
            tt_config_put(job->arena, to, name, pos, v);
        }
    }
    TT_TRY(put_defaults(job, to, options, n, err));
    *group = *to;
    return TT_OK;
}

/* A name of PyTorch in a group of our form. */
static void take_name(tt_job *job, tt_json *group)
{
    for (size_t i = 0; i < group->n; i++)
        for (size_t k = 0; k < TT_COUNT(optimizers); k++)
            if (!strcmp(group->keys[i], "name") && group->items[i]->type == TT_JSON_STRING &&
                !strcmp(group->items[i]->string, optimizers[k].theirs))
                group->items[i] = renamed(job, group->items[i], optimizers[k].ours);
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
            take_name(job, g);
        }
    }
    return TT_OK;
}
