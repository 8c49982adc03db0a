/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/names.h"
#include "cli/plugin_new.h"
#include "cost/cost.h"
#include <string.h>

static void name_add(const tt_cli_catalog *c, tt_cli_names *out, const char *name, const char *doc)
{
    const tt_cli_name n = {name, doc};
    tt_vec_push(c->arena, out, n);
}

/* ---- lists that are not components ---- */

/* "6,163,712 parameters", of the model that describe() writes for the flavor. */
static const char *size_of_flavor(const tt_cli_catalog *c, const char *flavor)
{
    tt_str job = {0};
    tt_error err = {0};
    tt_job *j = NULL;
    tt_setup s;
    const tt_setup_opts o = {.mode = TT_MODE_LOGITS};
    int64_t n = 0;
    tt_str_add(&job, "{\"model\": {\"name\": ");
    tt_str_json(&job, c->model);
    tt_str_add(&job, ", \"flavor\": ");
    tt_str_json(&job, flavor);
    tt_str_add(&job, "}, \"spec\": ");
    tt_str_json(&job, c->spec);
    tt_str_addc(&job, '}');
    const bool made =
        tt_job_load_text(c->arena, "flavor", tt_str_get(&job), job.n, NULL, 0, &j, &err) == TT_OK &&
        tt_setup_make(&o, c->registry, j, c->arena, &s, &err) == TT_OK && s.shape.described;
    tt_str_free(&job);
    if (!made)
        return tt_arena_printf(c->arena, "cannot be made: %s", err.text);
    for (size_t i = 0; i < s.shape.described->params.n; i++)
        n += s.shape.described->params.items[i]->absmax_of
                 ? 0
                 : tt_type_numel(&s.shape.described->params.items[i]->whole);
    char digits[32], grouped[48];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)n);
    int at = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            grouped[at++] = ',';
        grouped[at++] = digits[i];
    }
    grouped[at] = 0;
    return tt_arena_printf(c->arena, "%s parameters", grouped);
}

static void flavors(const tt_cli_catalog *c, tt_cli_names *out)
{
    const tt_component *model = NULL;
    tt_error err = {0};
    if (tt_registry_find(c->registry, TT_KIND_MODEL, c->model, &model, &err) != TT_OK)
        return;
    const tt_model_vt *vt = model->vtable;
    for (size_t i = 0; i < vt->n_flavors; i++)
        name_add(c, out, vt->flavors[i].name, size_of_flavor(c, vt->flavors[i].name));
    if (tt_setup_model_hf(model))
        name_add(c, out, "hf", "the sizes of model.hf_assets_path/config.json");
}

static void ways_to_talk(const tt_cli_catalog *c, tt_cli_names *out)
{
    name_add(c, out, "auto", "shared memory within a machine, the comm plugin between machines");
    name_add(c, out, "local", "ranks are threads of one process");
    name_add(c, out, "shm", "ranks are processes of one machine that share memory");
}

static void console(const tt_cli_catalog *c, tt_cli_names *out)
{
    name_add(c, out, "console", "the line of a step in the log");
}

static void automatic(const tt_cli_catalog *c, tt_cli_names *out)
{
    name_add(c, out, "auto", "the best one that loads and whose chip this machine has");
}

static void machines(const tt_cli_catalog *c, tt_cli_names *out)
{
    tt_str names = {0};
    tt_machine_names(&names);
    for (const char *p = tt_str_get(&names); *p;) {
        const size_t n = strcspn(p, ",");
        const char *name = tt_arena_strn(c->arena, p, n);
        const tt_machine *m = tt_machine_find(name);
        name_add(c, out, name,
                 tt_arena_printf(c->arena, "%.0f GB of memory, %.0f TFLOP/s in bfloat16",
                                 m->memory_bytes / 1e9, m->flops_bf16 / 1e12));
        p += n + strspn(p + n, ", ");
    }
    tt_str_free(&names);
}

static void templates(const tt_cli_catalog *c, tt_cli_names *out)
{
    for (int k = 1; k < (int)TT_KIND_END; k++) {
        const tt_template *t = tt_plugin_template((tt_kind)k);
        if (!t)
            continue;
        tt_str use = {0};
        for (const char *p = t->use; *p; p++) {
            const bool name = !strncmp(p, "@NAME@", 6);
            tt_str_addn(&use, name ? "NAME" : p, name ? 4 : 1);
            p += name ? 5 : 0;
        }
        name_add(c, out, tt_kind_name((tt_kind)k),
                 tt_arena_printf(c->arena, "used by %s", tt_str_get(&use)));
        tt_str_free(&use);
    }
}

static void kinds(const tt_cli_catalog *c, tt_cli_names *out)
{
    for (int k = 1; k < (int)TT_KIND_END; k++)
        name_add(c, out, tt_kind_name((tt_kind)k), "");
}

const tt_cli_topic tt_cli_topics[] = {
    {"spec",                       NULL,                                       TT_KIND_TRAIN_SPEC,   NULL        },
    {"model.flavor",               NULL,                                       TT_KIND_END,          flavors     },
    {"model.name",                 NULL,                                       TT_KIND_MODEL,        NULL        },
    {"tokenizer.name",             NULL,                                       TT_KIND_TOKENIZER,    NULL        },
    {"dataloader.name",            NULL,                                       TT_KIND_DATALOADER,   NULL        },
    {"loss.name",                  NULL,                                       TT_KIND_LOSS,         NULL        },
    {"optimizer.name",             NULL,                                       TT_KIND_OPTIMIZER,    NULL        },
    {"lr_scheduler.name",          NULL,                                       TT_KIND_LR_SCHEDULER, NULL        },
    {"converters[].name",          NULL,                                       TT_KIND_CONVERTER,    NULL        },
    {"validation.dataloader.name", NULL,                                       TT_KIND_DATALOADER,   NULL        },
    {"metrics.sinks[].name",       NULL,                                       TT_KIND_METRICS,      console     },
    {"comm.backend",               NULL,                                       TT_KIND_COMM,         ways_to_talk},
    {"comm.host",                  NULL,                                       TT_KIND_COMM,         ways_to_talk},
    {"backend.name",               NULL,                                       TT_KIND_BACKEND,      automatic   },
    {"backend.kernels",            NULL,                                       TT_KIND_KERNELS,      NULL        },
    {"hooks[].name",               NULL,                                       TT_KIND_HOOK,         NULL        },
    {"hardware",                   "machines of ttrun plan --hardware NAME",   TT_KIND_END,          machines    },
    {"templates",                  "scaffolds of ttrun plugins new KIND NAME", TT_KIND_END,          templates   },
    {"kinds",                      "kinds of plugins",                         TT_KIND_END,          kinds       },
};
const size_t tt_cli_n_topics = TT_COUNT(tt_cli_topics);

const tt_cli_topic *tt_cli_topic_of(const char *key)
{
    for (size_t i = 0; i < tt_cli_n_topics; i++)
        if (!strcmp(tt_cli_topics[i].key, key))
            return &tt_cli_topics[i];
    return NULL;
}

void tt_cli_topic_names(const tt_cli_topic *t, const tt_cli_catalog *c, tt_cli_names *out)
{
    const tt_component **all = NULL;
    size_t n = 0;
    tt_str faults = {0};
    tt_error ignored = {0};
    if (t->list)
        t->list(c, out);
    if (t->kind != TT_KIND_END &&
        tt_registry_all(c->registry, t->kind, c->arena, &all, &n, &faults, &ignored) == TT_OK)
        for (size_t i = 0; i < n; i++)
            name_add(c, out, all[i]->name, all[i]->doc);
    tt_str_free(&faults);
}

/* ---- the catalog ---- */

tt_status tt_cli_catalog_open(const tt_cli *cli, const char *path, tt_cli_catalog *c, tt_error *err)
{
    tt_job *job = NULL;
    tt_error ignored = {0};
    const tt_component *spec = NULL;
    *c = (tt_cli_catalog){.arena = cli->arena, .spec = cli->spec};
    TT_TRY(tt_cli_registry(cli, &c->registry, err));
    TT_TRY(tt_setup_docs(c->registry, c->arena, &c->docs, &c->n_docs, err));
    if (tt_job_load(c->arena, path, cli->overrides, cli->n_overrides, &job, &ignored) != TT_OK)
        TT_TRY(tt_job_load(c->arena, NULL, NULL, 0, &job, err));
    if (!c->spec && tt_job_string(job, "spec", "llama3", &c->spec, &ignored) != TT_OK)
        c->spec = "llama3";
    if (tt_registry_find(c->registry, TT_KIND_TRAIN_SPEC, c->spec, &spec, err) != TT_OK)
        return err->code;
    c->model = ((const tt_train_spec_vt *)spec->vtable)->model;
    (void)tt_job_string(job, "model.name", c->model, &c->model, &ignored);
    return TT_OK;
}

void tt_cli_catalog_own(const tt_cli_catalog *c, tt_section_doc **out, size_t *n)
{
    TT_VEC(tt_section_doc) own = {0};
    for (size_t i = 0; i < c->n_docs; i++) {
        const tt_section_doc *d = &c->docs[i];
        if (strcmp(d->key, "model.args") != 0 || !d->component || !strcmp(d->component, c->model))
            tt_vec_push(c->arena, &own, *d);
    }
    *out = own.items;
    *n = own.n;
}
