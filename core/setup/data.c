/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"
#include <math.h>
#include <string.h>

/* The loaders of the job: that of the training and those of the validation. */

/* A loader's own options, which are read in place of the core's with the same name. */
static const char *const *own_keys(tt_setup *s, const tt_component *c)
{
    const char **own = tt_arena_array(s->arena, c->n_options + 1, sizeof *own);
    for (size_t k = 0; k < c->n_options; k++)
        own[k] = tt_component_option(c, k)->name;
    return own;
}

tt_order tt_setup_order(const tt_part *p, const tt_dataloader_config *c, uint64_t seed)
{
    const bool *shuffle = tt_part_value(p->component, p->config, "shuffle", TT_OPT_BOOL);
    const int64_t *of_loader = tt_part_value(p->component, p->config, "seed", TT_OPT_INT);
    const int64_t own = of_loader ? *of_loader : c->seed;
    return (tt_order){.seed = own != INT64_MIN ? (uint64_t)own : seed,
                      .own_seed = own != INT64_MIN,
                      .shuffle = shuffle ? *shuffle : c->shuffle};
}

tt_status tt_setup_loader(tt_setup *s, const char *section, const char *fallback, tt_part *out,
                          tt_order *order, bool *finite, tt_error *err)
{
    static const char *const of_core[] = {"infinite", "repeat", "shuffle", "seed", NULL};
    static const char *const none[] = {NULL};
    const uint64_t seed = (uint64_t)s->core.training.seed;
    tt_dataloader_config c;
    if (tt_job_has(s->job, tt_arena_printf(s->arena, "%s.mixture", section))) {
        const char *path = tt_arena_printf(s->arena, "%s.path", section);
        if (tt_job_has(s->job, path))
            return tt_job_fail(s->job, path, err,
                               "not allowed with a mixture: set it in an entry of %s.mixture",
                               section);
        TT_TRY(tt_dataloader_config_parse(s->job, section, none, &c, err));
        TT_TRY(tt_setup_mixture(s, section, fallback, &c, seed, out, order, err));
    } else {
        TT_TRY(tt_registry_part(s->registry, s->job, TT_KIND_DATALOADER, section, fallback, of_core,
                                s->arena, out, err));
        TT_TRY(tt_dataloader_config_parse(s->job, section, own_keys(s, out->component), &c, err));
        *order = tt_setup_order(out, &c, seed);
    }
    *finite = !c.infinite;
    return TT_OK;
}

bool tt_setup_by_epoch(const tt_setup *s)
{
    return s->finite || !isnan(s->core.training.num_train_epochs);
}

tt_status tt_setup_check_length(tt_setup *s, tt_error *err)
{
    const tt_training_config *t = &s->core.training;
    if (t->steps == INT64_MIN && !tt_setup_by_epoch(s))
        return tt_job_fail(s->job, "training.steps", err,
                           "null leaves the length open: set training.num_train_epochs, or "
                           "dataloader.infinite false for one epoch");
    if (s->finite && t->num_train_epochs > 1)
        return tt_job_fail(
            s->job, "training.num_train_epochs", err,
            "%g epochs need data that begins again, and dataloader.infinite is false",
            t->num_train_epochs);
    return TT_OK;
}

static void set_seed(const tt_part *loader, tt_order *o, uint64_t seed)
{
    o->seed = o->own_seed ? o->seed : seed;
    if (tt_part_is_mixture(loader))
        tt_mixture_set_seed(loader, o->seed);
}

void tt_setup_set_seed(tt_setup *s, int64_t seed)
{
    s->core.training.seed = seed;
    set_seed(&s->dataloader, &s->data_order, (uint64_t)seed);
    for (int i = 0; i < s->n_validation; i++)
        set_seed(&s->validation[i].data, &s->validation[i].order, (uint64_t)seed);
}

/* ---- validation ---- */

static tt_status add_validation(tt_setup *s, const char *name, const char *section, tt_error *err)
{
    const tt_part *one = &s->dataloader;
    tt_validation_set *v = &s->validation[s->n_validation];
    const char *key = tt_arena_printf(s->arena, "%s.infinite", section);
    bool finite;
    v->name = name;
    v->section = section;
    TT_TRY(tt_setup_loader(s, section,
                           tt_part_is_mixture(one) ? tt_mixture_part(one, 0)->name : one->name,
                           &v->data, &v->order, &finite, err));
    if (!finite && tt_job_has(s->job, key))
        return tt_job_fail(s->job, key, err,
                           "a validation takes each sample once: use false, or leave it out");
    TT_TRY(tt_job_derive(s->job, key, "false", "default", err)); /* in the resolved job */
    if (!tt_part_is_mixture(&v->data)) {
        v->order.seed = s->data_order.seed;
        v->order.own_seed = s->data_order.own_seed;
    }
    s->n_validation++;
    return TT_OK;
}

static tt_status add_sets(tt_setup *s, tt_error *err)
{
    static const char key[] = "validation.datasets";
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *const *names;
    size_t n;
    TT_TRY(tt_job_members(s->job, key, &names, &n, err));
    if (n > TT_MAX_PARTS)
        return tt_job_fail(s->job, key, err, "%zu data sets; at most %d are possible", n,
                           TT_MAX_PARTS);
    for (size_t i = 0; i < n; i++) {
        if (!*names[i] || strlen(names[i]) > 40 || strspn(names[i], letters) != strlen(names[i]))
            return tt_job_fail(s->job, key, err,
                               "\"%.60s\": a data set's name is 1 to 40 of a-z, A-Z, 0-9, _ and -",
                               names[i]);
        TT_TRY(add_validation(s, names[i], tt_arena_printf(s->arena, "%s.%s", key, names[i]), err));
    }
    return TT_OK;
}

void tt_setup_note_validation(const tt_setup *s)
{
    if (s->n_validation && !s->has_validation)
        tt_log(TT_WARN, "train",
               "%s is given, but validation.enable is false: nothing is validated",
               s->validation[0].name ? "validation.datasets" : "validation.dataloader");
}

tt_status tt_setup_validation(tt_setup *s, tt_error *err)
{
    s->has_validation = s->core.validation.enable;
    if (tt_job_has(s->job, "validation.dataloader"))
        TT_TRY(add_validation(s, NULL, "validation.dataloader", err));
    TT_TRY(add_sets(s, err));
    if (!s->n_validation && s->has_validation)
        return tt_job_fail(s->job, "validation.enable", err,
                           "needs data of its own: set validation.dataloader, for example "
                           "{\"path\": [\"held_out/*.txt\"]}");
    return TT_OK;
}
