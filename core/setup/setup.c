/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"
#include "setup/foreign.h"
#include "setup/setup_impl.h"
#include "setup/tokenizer.h"
#include <string.h>
#include <ttrun/comm.h>

/* setup: turns a job into its spec, parts, mesh, batch sizes and graphs. The result is equal on all
 * ranks. */

static tt_status find_spec(tt_setup *s, const tt_setup_opts *o, tt_error *err)
{
    const tt_component *c;
    const char *name = o->spec ? o->spec : s->core.spec;
    tt_error why = {0};
    if (tt_registry_find(s->registry, TT_KIND_TRAIN_SPEC, name, &c, &why) != TT_OK) {
        if (o->spec)
            return TT_FAIL(err, why.code, "--spec: %s", why.text);
        return tt_job_fail(s->job, "spec", err, "%s", why.text);
    }
    s->spec = c->vtable;
    return TT_OK;
}

static const char *flavor_args(const tt_setup *s, const tt_model_vt *vt, tt_error *err)
{
    tt_str known = {0};
    for (size_t i = 0; i < vt->n_flavors; i++) {
        if (!strcmp(vt->flavors[i].name, s->core.flavor)) {
            tt_str_free(&known);
            return vt->flavors[i].args_json;
        }
        tt_str_printf(&known, "%s%s", i ? ", " : "", vt->flavors[i].name);
    }
    if (!vt->n_flavors && !strcmp(s->core.flavor, "debugmodel"))
        return "{}"; /* the model has one size only */
    tt_job_fail(s->job, "model.flavor", err, "model %s has no flavor \"%s\" (known: %s)",
                s->model.name, s->core.flavor, known.n ? tt_str_get(&known) : "none");
    tt_str_free(&known);
    return NULL;
}

static tt_status make_model(tt_setup *s, tt_error *err)
{
    const tt_component *c;
    const char *name = NULL;
    tt_error why = {0};
    TT_TRY(tt_job_string(s->job, "model.name", s->spec->model, &name, err));
    if (tt_registry_find(s->registry, TT_KIND_MODEL, name, &c, &why) != TT_OK)
        return tt_job_has(s->job, "model.name")
                   ? tt_job_fail(s->job, "model.name", err, "%s", why.text)
                   : TT_FAIL(err, why.code, "%s", why.text);
    const tt_model_vt *vt = c->vtable;
    s->model = (tt_part){c, tt_arena_alloc(s->arena, c->config_size + 1), c->name,
                         tt_registry_file(s->registry, c)};
    const char *args = NULL, *from = tt_arena_printf(s->arena, "flavor %s", s->core.flavor);
    if (!strcmp(s->core.flavor, "hf"))
        TT_TRY(s->foreign->model_args(s, c, &from, &args, err));
    else if (!(args = flavor_args(s, vt, err)))
        return err->code;
    TT_TRY(tt_job_section_over(s->job, "model.args", from, args, c->options, c->n_options,
                               c->option_size, NULL, s->model.config, err));
    if (vt->finish &&
        TT_PLUGIN_CALL(vt->finish(s->model.config, &why), &why, "model", s->model.name) != TT_OK)
        return tt_setup_fail(s->job, "model.args", why.text, err);
    return TT_OK;
}

/* Reads the inputs that a loader declares. The sources of a mixture must declare the same ones. */
static tt_status inputs_of(tt_setup *s, const tt_part *p, const char *section, tt_inputs *out,
                           tt_error *err)
{
    tt_error why = {0};
    const int n = tt_part_is_mixture(p) ? tt_mixture_size(p) : 1;
    for (int i = 0; i < n; i++) {
        const tt_part *one = tt_part_is_mixture(p) ? tt_mixture_part(p, i) : p;
        tt_inputs t;
        if (tt_inputs_of(one->component->vtable, one->config, &t, &why) != TT_OK)
            return tt_job_fail(s->job, section, err, "dataloader %s: %s", one->name, why.text);
        if (i && !tt_inputs_equal(&t, out))
            return tt_job_fail(s->job, section, err,
                               "its sources %s and %s declare different inputs; a model and a loss "
                               "need the same inputs of every sample",
                               tt_mixture_part(p, 0)->name, one->name);
        *out = t;
    }
    return TT_OK;
}

/* Adds an input with a number for each token, unless there is one of this name. */
static bool open_input(void *user, const char *name, tt_input_info *out)
{
    tt_setup *s = user;
    int i = tt_inputs_find(&s->inputs, name);
    if (i < 0 && s->inputs.n < TT_MAX_INPUTS) {
        i = s->inputs.n++;
        s->inputs.items[i] = (tt_input_info){tt_arena_str(s->arena, name), TT_F32, 0};
    }
    if (i >= 0)
        *out = s->inputs.items[i];
    return i >= 0;
}

void tt_setup_input_opts(tt_setup *s, tt_compile_opts *o)
{
    o->inputs = s->has_inputs ? s->inputs.items : NULL;
    o->n_inputs = s->inputs.n;
    o->open_input = s->open_inputs ? open_input : NULL;
    o->open_user = s;
}

bool tt_setup_one_segment(const tt_part *data)
{
    if (!data->component)
        return false;
    if (tt_part_is_mixture(data)) {
        for (int i = 0; i < tt_mixture_size(data); i++)
            if (!tt_setup_one_segment(tt_mixture_part(data, i)))
                return false;
        return true;
    }
    const tt_dataloader_vt *vt = data->component->vtable;
    return TT_HAS(vt, tt_dataloader_vt, one_segment) && vt->one_segment &&
           vt->one_segment(data->config);
}

/* Validation runs the same model and loss: its loaders must declare the same inputs. */
static tt_status make_inputs(tt_setup *s, tt_error *err)
{
    TT_TRY(inputs_of(s, &s->dataloader, "dataloader", &s->inputs, err));
    s->has_inputs = true;
    for (int i = 0; i < s->n_validation; i++) {
        const tt_validation_set *v = &s->validation[i];
        tt_inputs t;
        TT_TRY(inputs_of(s, &v->data, v->section, &t, err));
        if (!tt_inputs_equal(&t, &s->inputs))
            return tt_job_fail(s->job, v->section, err,
                               "%s does not declare the same inputs as the dataloader %s",
                               v->data.name, s->dataloader.name);
    }
    return TT_OK;
}

static tt_status make_data(tt_setup *s, const tt_setup_opts *o, tt_error *err)
{
    if (!o->data)
        return TT_OK;
    TT_TRY(tt_setup_loader(s, "dataloader", s->spec->dataloader, &s->dataloader, &s->data_order,
                           &s->finite, err));
    TT_TRY(tt_setup_check_length(s, err));
    TT_TRY(tt_setup_validation(s, err));
    return make_inputs(s, err);
}

/* A loss with reference() reads the input that it fills. */
static tt_status add_reference(tt_setup *s, tt_error *err)
{
    const tt_loss_vt *vt = s->loss.component->vtable;
    tt_error why = {0};
    if (!s->has_inputs || !TT_HAS(vt, tt_loss_vt, reference) || !vt->reference)
        return TT_OK;
    if (tt_part_is_mixture(&s->dataloader))
        return tt_job_fail(s->job, "dataloader.mixture", err,
                           "the loss %s computes a reference for each sample, and a mixture draws "
                           "them without end; put its files into one dataloader",
                           s->loss.name);
    if (tt_inputs_add_reference(&s->inputs, TT_INPUT_REFERENCE, &why) != TT_OK)
        return tt_job_fail(s->job, "loss", err, "%s", why.text);
    s->has_reference = true;
    s->reference_input = s->inputs.n - 1;
    return TT_OK;
}

/* The loader's switch that makes it give an input; NULL: there is none. */
static const char *option_that_gives(const tt_setup *s, const char *input)
{
    const tt_part *p = &s->dataloader;
    const tt_component *c = p->component;
    for (size_t i = 0; c && !tt_part_is_mixture(p) && i < c->n_options; i++) {
        const tt_option *o = tt_component_option(c, i);
        tt_inputs with;
        if (o->type != TT_OPT_BOOL || (o->flags & TT_OPT_NULLABLE))
            continue;
        char *config = tt_arena_dup(s->arena, p->config, c->config_size);
        *(bool *)(void *)(config + o->offset) = true;
        if (tt_inputs_of(c->vtable, config, &with, NULL) == TT_OK &&
            tt_inputs_find(&with, input) >= 0)
            return o->name;
    }
    return NULL;
}

/* The loss divides by the sum of an input, which the core may have to compute. */
static tt_status make_loss(tt_setup *s, tt_error *err)
{
    tt_error why = {0};
    TT_TRY(tt_registry_part(s->registry, s->job, TT_KIND_LOSS, "loss", s->spec->loss, NULL,
                            s->arena, &s->loss, err));
    const tt_loss_vt *vt = s->loss.component->vtable;
    TT_TRY(add_reference(s, err));
    if (!s->has_inputs || !TT_HAS(vt, tt_loss_vt, weights) || !vt->weights)
        return TT_OK;
    s->loss_weights = vt->weights(s->loss.config);
    if (!s->loss_weights || tt_inputs_add_weights(&s->inputs, s->loss_weights, &why) == TT_OK)
        return TT_OK;
    const char *option = option_that_gives(s, s->loss_weights);
    return tt_job_fail(s->job, tt_job_has(s->job, "loss.weights") ? "loss.weights" : "loss", err,
                       "%s, which the loss %s divides by%s%s%s", why.text, s->loss.name,
                       option ? ": set dataloader." : "", option ? option : "",
                       option ? " true" : "");
}

static tt_status make_parts(tt_setup *s, const tt_setup_opts *o, tt_error *err)
{
    static const char *const groups[] = {"param_groups", "state_dtype", "early_step_in_backward",
                                         "qk_clip", NULL};
    tt_registry *r = s->registry;
    tt_backend_section bs = {0};
    TT_TRY(tt_setup_tokenizer_part(s, err));
    TT_TRY(tt_setup_vocab(s, err));
    TT_TRY(make_model(s, err));
    TT_TRY(make_data(s, o, err));
    TT_TRY(make_loss(s, err));
    TT_TRY(tt_registry_part(r, s->job, TT_KIND_OPTIMIZER, "optimizer", s->spec->optimizer, groups,
                            s->arena, &s->optimizer, err));
    TT_TRY(tt_groups_make(s, err));
    TT_TRY(tt_trainable_make(s, err));
    TT_TRY(tt_setup_lr_scheduler(s, err));
    TT_TRY(tt_setup_hooks(s, err));
    TT_TRY(tt_setup_converters(s, err));
    TT_TRY(tt_setup_metrics(s, err));
    TT_TRY(tt_setup_backend(s, &bs, err));
    s->threads = bs.threads;
    TT_TRY(tt_setup_comm(s, o, err));
    return TT_OK;
}

tt_status tt_setup_make(const tt_setup_opts *o, tt_registry *r, tt_job *job, tt_arena *a,
                        tt_setup *out, tt_error *err)
{
    tt_setup *s = out;
    memset(s, 0, sizeof *s);
    s->arena = a;
    s->registry = r;
    s->job = job;
    s->machine = o->machine;
    s->opts = tt_arena_dup(a, o, sizeof *o);
    s->foreign = tt_foreign_installed();
    if (s->foreign)
        TT_TRY(s->foreign->take_folder(s, o, err));
    TT_TRY(tt_core_config_parse(job, &s->core, err));
    TT_TRY(tt_setup_check_foreign(s, err));
    if (!tt_log_show_ranks(s->core.log_ranks))
        return tt_job_fail(job, "log.ranks", err,
                           "expected \"all\" or ranks, like \"0,3\"; got \"%s\"",
                           s->core.log_ranks);
    if (o->mode == TT_MODE_TRAIN && s->core.checkpoint.create_seed_checkpoint &&
        tt_checkpoint_off(&s->core.checkpoint))
        return tt_job_fail(job, "checkpoint.create_seed_checkpoint", err, "nothing is saved: %s",
                           tt_checkpoint_off(&s->core.checkpoint));
    TT_TRY(find_spec(s, o, err));
    TT_TRY(make_parts(s, o, err));
    TT_TRY(tt_setup_initial_load(s, err));
    TT_TRY(tt_setup_check_exports(s, err));
    TT_TRY(tt_job_finish(job, err));
    tt_setup_ops(s);
    tt_setup_shape(s);
    TT_TRY(tt_setup_mesh(s, o, err));
    TT_TRY(tt_setup_warmup_tokens(s, err));
    if (!o->compile)
        return TT_OK;
    return o->mode == TT_MODE_TRAIN ? tt_setup_train(s, err) : tt_setup_compile(s, o, err);
}

tt_status tt_setup_train(tt_setup *s, tt_error *err)
{
    if (s->opts->data) {
        tt_setup_note_folder(s);
        tt_setup_note_tokenizer(s);
        tt_setup_note_validation(s);
    }
    TT_TRY(tt_setup_compile(s, s->opts, err));
    return s->opts->rank ? TT_OK : tt_setup_check_changes(s, err); /* rank 0 finds it for all */
}
