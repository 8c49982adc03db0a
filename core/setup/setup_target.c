/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"

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
