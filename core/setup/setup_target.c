/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"
#include <string.h>

/* The object that answers a backend's questions before the backend is opened, and where it is never
 * opened (`ttrun plan`). */

typedef struct target {
    const tt_backend_vt *vt;
    void *self;
} target;

static void target_close(void *arg)
{
    const target *t = arg;
    t->vt->close(t->self);
}

bool tt_setup_has_target(const tt_setup *s)
{
    const tt_backend_vt *vt = s->kernels.backend;
    return TT_HAS(vt, tt_backend_vt, target) && vt->target;
}

static tt_status target_fail(const tt_setup *s, const char *machine, const tt_error *why,
                             tt_error *err)
{
    if (!machine)
        return tt_job_fail(s->job, "backend.name", err,
                           "the backend %s does not find its chip on this machine (%s); choose "
                           "another backend, or plan for a named machine (ttrun plan --hardware "
                           "NAME)",
                           s->backend.name, why->text);
    return tt_job_fail(s->job, "backend.name", err,
                       "--hardware: the backend %s has no answers for the machine \"%s\" (%s)",
                       s->backend.name, machine, why->text);
}

tt_status tt_setup_target(tt_setup *s, tt_error *err)
{
    const tt_backend_vt *vt = s->kernels.backend;
    const char *machine = s->machine ? s->machine->name : NULL;
    void *self = NULL;
    tt_error why = {0};
    if (s->target || !tt_setup_has_target(s))
        return TT_OK;
    if (TT_PLUGIN_CALL(vt->target(s->backend.config, machine, &self, &why), &why, "backend",
                       s->backend.name) != TT_OK)
        return target_fail(s, machine, &why, err);
    target *t = tt_arena_alloc(s->arena, sizeof *t);
    *t = (target){vt, self};
    tt_registry_hold(s->registry, s->arena, target_close, t);
    s->target = self;
    return TT_OK;
}

/* ---- "auto" ---- */

/* The backend's config, without a trace in the job: other backends know other keys. */
static tt_status target_config(const tt_setup *s, const tt_component *c, const char *const *core,
                               tt_arena *a, void **out, tt_error *err)
{
    const char *section = tt_job_text(s->job, "backend");
    const char *text = tt_arena_printf(a, "{\"backend\": %s}", section ? section : "{}");
    void *config = tt_arena_alloc(a, c->config_size + 1);
    tt_job *job;
    TT_TRY(tt_job_load_text(a, "backend", text, strlen(text), NULL, 0, &job, err));
    TT_TRY(tt_job_section(job, "backend", c->options, c->n_options, c->option_size, core, config,
                          err));
    *out = config;
    return TT_OK;
}

/* machine: NULL: this one, with the chip that is here. */
static tt_status target_answers(const tt_backend_vt *vt, const char *name, const void *config,
                                const char *machine, tt_error *err)
{
    void *self = NULL;
    if (vt->host_memory)
        return TT_OK;
    if (!TT_HAS(vt, tt_backend_vt, target) || !vt->target)
        return TT_FAIL(err, TT_EUNSUPPORTED, "it does not say whether its device is here");
    TT_TRY(TT_PLUGIN_CALL(vt->target(config, machine, &self, err), err, "backend", name));
    vt->close(self);
    return TT_OK;
}

tt_status tt_setup_backend_is_here(const tt_backend_vt *vt, const char *name, const void *config,
                                   tt_error *err)
{
    return target_answers(vt, name, config, NULL, err);
}

/* Whether the backend computes on the machine that is planned for. */
static tt_status fits_machine(const tt_setup *s, const tt_component *c, const char *const *core,
                              tt_error *err)
{
    const tt_backend_vt *vt = c->vtable;
    const char *machine = s->machine ? s->machine->name : NULL;
    void *config = NULL;
    if (vt->host_memory)
        return TT_OK;
    tt_arena *a = tt_arena_new();
    tt_status st = target_config(s, c, core, a, &config, err);
    if (st == TT_OK)
        st = target_answers(vt, c->name, config, machine, err);
    tt_arena_free(a);
    return st;
}

tt_status tt_setup_choose_backend(const tt_setup *s, const char *const *core,
                                  const tt_component **out, tt_error *err)
{
    static const char *const preference[] = {"cuda", "cpu", "reference"};
    tt_error why = {0};
    for (size_t i = 0; i + 1 < TT_COUNT(preference); i++)
        tt_registry_open_named(s->registry, TT_KIND_BACKEND, preference[i]);
    for (size_t i = 0; i < TT_COUNT(preference); i++) {
        const tt_component *c = NULL;
        tt_status st = tt_registry_find(s->registry, TT_KIND_BACKEND, preference[i], &c, &why);
        if (st == TT_OK)
            st = fits_machine(s, c, core, &why);
        if (st == TT_OK) {
            const tt_backend_vt *vt = c->vtable;
            if (i == TT_COUNT(preference) - 1)
                tt_log(TT_WARN, "train", "no faster backend loads (%s): using the slow %s backend",
                       why.text, preference[i]);
            tt_log(TT_DEBUG, "train", "backend auto: %s%s", preference[i],
                   vt->host_memory ? ""
                   : s->machine    ? ", which knows the machine"
                                   : ", whose device is here");
            *out = c;
            return TT_OK;
        }
        /* A machine without that device is the common case. */
        tt_log(st == TT_ENOTFOUND || st == TT_EINVAL || !c ? TT_DEBUG : TT_INFO, "train",
               "backend auto: not %s: %s", preference[i], why.text);
    }
    *err = why;
    return why.code;
}
