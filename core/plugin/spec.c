/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <string.h>
#include <ttrun/train_spec.h>

/* A train spec as a file, specs/NAME.json. It is only names, so it needs no compiler. It becomes a
 * plugin of one component. */

#define SPEC_MAX ((size_t)1 << 20) /* bytes */

typedef struct spec {
    tt_plugin plugin;
    tt_component component;
    tt_train_spec_vt vt;
} spec;

bool tt_spec_is_file(const char *path)
{
    return tt_ends_with(path, ".json");
}

static tt_status spec_fail(const char *path, const tt_json *at, const char *key, const char *what,
                           tt_error *err)
{
    return TT_FAIL(err, TT_EFORMAT, "%s:%d:%d: %s: %s", path, at->line, at->column, key, what);
}

static tt_status text_of(const char *path, const char *key, const tt_json *v, const char **out,
                         tt_error *err)
{
    if (v->type != TT_JSON_STRING || !*v->string)
        return spec_fail(path, v, key, "expected a name", err);
    *out = v->string;
    return TT_OK;
}

/* ["jsonl", "tensorboard"] → "jsonl,tensorboard" */
static tt_status metrics_of(const char *path, const tt_json *v, tt_arena *a, const char **out,
                            tt_error *err)
{
    const char *all = "", *one = NULL;
    if (v->type != TT_JSON_ARRAY)
        return spec_fail(path, v, "metrics", "expected a list of names", err);
    for (size_t i = 0; i < v->n; i++) {
        TT_TRY(text_of(path, "metrics", v->items[i], &one, err));
        all = tt_arena_printf(a, "%s%s%s", all, i ? "," : "", one);
    }
    *out = all;
    return TT_OK;
}

static tt_status rules_of(const char *path, const tt_json *v, tt_arena *a, tt_train_spec_vt *vt,
                          tt_error *err)
{
    if (v->type != TT_JSON_ARRAY)
        return spec_fail(path, v, "rules", "expected a list of {\"label\", \"axes\", \"policy\"}",
                         err);
    tt_label_rule *rules = tt_arena_array(a, v->n + 1, sizeof *rules);
    for (size_t i = 0; i < v->n; i++) {
        const tt_json *r = v->items[i];
        if (r->type != TT_JSON_OBJECT || !tt_json_get(r, "label"))
            return spec_fail(path, r, "rules", "expected {\"label\", \"axes\", \"policy\"}", err);
        for (size_t k = 0; k < r->n; k++) {
            const char **to = strcmp(r->keys[k], "label") == 0    ? &rules[i].label
                              : strcmp(r->keys[k], "axes") == 0   ? &rules[i].axes
                              : strcmp(r->keys[k], "policy") == 0 ? &rules[i].policy
                                                                  : NULL;
            if (!to)
                return spec_fail(path, r->items[k], r->keys[k], "a rule has label, axes and policy",
                                 err);
            TT_TRY(text_of(path, r->keys[k], r->items[k], to, err));
        }
    }
    vt->rules = rules;
    vt->n_rules = v->n;
    return TT_OK;
}

static tt_status read_members(const char *path, const tt_json *root, tt_arena *a, spec *s,
                              tt_error *err)
{
    const struct {
        const char *key, **to;
    } rows[] = {
        {"doc",          &s->component.doc  },
        {"version",      &s->plugin.version },
        {"license",      &s->plugin.license },
        {"model",        &s->vt.model       },
        {"tokenizer",    &s->vt.tokenizer   },
        {"dataloader",   &s->vt.dataloader  },
        {"loss",         &s->vt.loss        },
        {"optimizer",    &s->vt.optimizer   },
        {"lr_scheduler", &s->vt.lr_scheduler},
        {"metrics",      &s->vt.metrics     },
        {"rules",        NULL               },
    };
    const char *known[TT_COUNT(rows)];
    for (size_t i = 0; i < TT_COUNT(rows); i++)
        known[i] = rows[i].key;
    for (size_t i = 0; i < root->n; i++) {
        const tt_json *v = root->items[i];
        const char *key = root->keys[i];
        size_t k = 0;
        while (k < TT_COUNT(rows) && strcmp(rows[k].key, key) != 0)
            k++;
        if (k == TT_COUNT(rows)) {
            const char *near = tt_nearest(key, known, TT_COUNT(known));
            return spec_fail(path, v, key,
                             near ? tt_arena_printf(a, "unknown key (did you mean %s?)", near)
                                  : "unknown key",
                             err);
        }
        if (!rows[k].to)
            TT_TRY(rules_of(path, v, a, &s->vt, err));
        else if (rows[k].to == &s->vt.metrics)
            TT_TRY(metrics_of(path, v, a, rows[k].to, err));
        else
            TT_TRY(text_of(path, key, v, rows[k].to, err));
    }
    return s->vt.model ? TT_OK
                       : spec_fail(path, root, "model", "missing: which model it trains", err);
}

tt_status tt_spec_open(const char *path, const char *name, tt_arena *a, tt_loaded *out,
                       tt_error *err)
{
    const tt_json *root = NULL;
    TT_TRY(tt_json_read(a, path, SPEC_MAX, &root, err));
    if (root->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_EFORMAT,
                       "%s: expected an object of component names, which a train spec is", path);
    spec *s = tt_arena_alloc(a, sizeof *s);
    s->vt.struct_size = sizeof s->vt;
    s->component = (tt_component){.struct_size = sizeof s->component,
                                  .kind = TT_KIND_TRAIN_SPEC,
                                  .name = name,
                                  .doc = "",
                                  .option_size = sizeof(tt_option),
                                  .vtable = &s->vt};
    s->plugin = (tt_plugin){.magic = TT_PLUGIN_MAGIC,
                            .abi_major = TT_ABI_MAJOR,
                            .abi_minor = TT_ABI_MINOR,
                            .struct_size = sizeof s->plugin,
                            .name = name,
                            .version = "",
                            .license = "",
                            .components = &s->component,
                            .n_components = 1,
                            .component_size = sizeof s->component};
    TT_TRY(read_members(path, root, a, s, err));
    *out = (tt_loaded){.plugin = &s->plugin};
    return TT_OK;
}
