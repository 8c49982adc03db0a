/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"
#include "setup/setup_impl.h"
#include <string.h>
#include <ttrun/comm.h>

/* setup: the communicators. comm.backend names that of tensors, and on a host backend it is also the
 * host's; beside a comm of devices (nccl) comm.host names the host's. */

bool tt_comm_is_core(const char *backend)
{
    static const char *const core[] = {"auto", "local", "shm"};
    for (size_t i = 0; i < TT_COUNT(core); i++)
        if (!strcmp(backend, core[i]))
            return true;
    return false;
}

/* The key of the job that names the host's communicator. */
const char *tt_setup_host_key(const tt_setup *s)
{
    return s->host_comm == s->core.comm.host ? "comm.host" : "comm.backend";
}

/* key: names the plugin. args: the section of its options. */
static tt_status make_part(tt_setup *s, const tt_component *c, const char *key, const char *args,
                           tt_part *out, tt_error *err)
{
    const tt_comm_vt *vt = c->vtable;
    *out = (tt_part){c, tt_arena_alloc(s->arena, c->config_size + 1), c->name,
                     tt_registry_file(s->registry, c)};
    if (!TT_HAS(vt, tt_comm_vt, set_timeout) || !vt->open || !vt->close || !vt->set_timeout)
        return tt_job_fail(
            s->job, key, err,
            "%s: comm \"%s\" lacks open, close or set_timeout: it cannot be used for a "
            "run",
            out->file, c->name);
    return tt_job_section(s->job, args, c->options, c->n_options, c->option_size, NULL, out->config,
                          err);
}

/* Whether a comm of host memory says that it works for the ranks as they were started (tcp). */
static bool works_between(tt_setup *s, const tt_component *c)
{
    const tt_comm_vt *vt = c->vtable;
    const tt_comm_place place = {.struct_size = sizeof place, .backend_name = s->backend.name};
    const char *key = tt_setup_host_key(s);
    tt_error ignored = {0};
    tt_part p;
    if (!TT_HAS(vt, tt_comm_vt, works) || !vt->works)
        return false;
    return make_part(s, c, key, strcmp(key, "comm.host") ? "comm.args" : "comm.host_args", &p,
                     &ignored) == TT_OK &&
           TT_PLUGIN_CALL(vt->works(p.config, &place, &ignored), &ignored, "comm", c->name) ==
               TT_OK;
}

/* Finds the comm plugin of host memory for "auto" on several machines: one that says that it works here,
 * else the only one that cannot tell, else the only one. */
static tt_status only_host_comm(tt_setup *s, const tt_component **out, tt_error *err)
{
    const tt_component **all;
    const tt_component *refuses = NULL;
    size_t n, n_host = 0;
    tt_str names = {0};
    TT_TRY(tt_registry_all(s->registry, TT_KIND_COMM, s->arena, &all, &n, NULL, err));
    for (size_t i = 0; i < n; i++) {
        if (tt_comm_is_of_device(all[i]->vtable))
            continue;
        if (works_between(s, all[i])) {
            tt_str_free(&names);
            *out = all[i];
            return TT_OK;
        }
        const tt_comm_vt *vt = all[i]->vtable;
        if (TT_HAS(vt, tt_comm_vt, works) && vt->works) {
            refuses = all[i];
            continue;
        }
        tt_str_printf(&names, "%s%s", n_host ? ", " : "", all[i]->name);
        *out = all[i];
        n_host++;
    }
    tt_status st = TT_OK;
    if (n_host == 0 && refuses)
        *out = refuses;
    else if (n_host == 0)
        st = tt_job_fail(s->job, tt_setup_host_key(s), err,
                         "auto: the ranks are on several machines, but there is no comm plugin%s",
                         s->data_comm.component
                             ? " of host memory (mpi), which carries what the host agrees on"
                             : "");
    else if (n_host > 1)
        st = tt_job_fail(s->job, tt_setup_host_key(s), err,
                         "auto: the ranks are on several machines, and there are several comm "
                         "plugins: set it to one of %s",
                         tt_str_get(&names));
    tt_str_free(&names);
    return st;
}

static tt_status find_named(const tt_setup *s, const char *key, const char *name,
                            const tt_component **out, tt_error *err)
{
    tt_error why = {0};
    if (tt_comm_is_core(name) ||
        tt_registry_find(s->registry, TT_KIND_COMM, name, out, &why) == TT_OK)
        return TT_OK;
    return tt_job_fail(s->job, key, err, "%s; the core has auto, local and shm", why.text);
}

/* ---- "auto" on a device ---- */

/* Whether a comm works for ranks that this process would start on this machine. */
static tt_status works_here(const tt_setup *s, const tt_setup_opts *o, const tt_part *p,
                            tt_error *err)
{
    const tt_comm_vt *vt = p->component->vtable;
    const tt_backend_vt *b = s->backend.component->vtable;
    const tt_comm_place place = {.struct_size = sizeof place,
                                 .backend_name = s->backend.name,
                                 .ranks = o->nproc,
                                 .devices = TT_HAS(b, tt_backend_vt, devices) && b->devices
                                                ? b->devices(s->backend.config)
                                                : 0};
    return TT_PLUGIN_CALL(vt->works(p->config, &place, err), err, "comm", p->name);
}

/* Takes the first comm of devices, in the order of preference, that works for ranks that this process is
 * to start. Ranks that are started ask again when their devices are open (data_choice.c). */
static tt_status choose_data_comm(tt_setup *s, const tt_setup_opts *o, tt_error *err)
{
    static const char *const preference[] = {"nccl"};
    for (size_t i = 0; i < TT_COUNT(preference); i++) {
        const tt_component *c = NULL;
        tt_error why = {0};
        tt_part p;
        if (tt_registry_find(s->registry, TT_KIND_COMM, preference[i], &c, &why) != TT_OK)
            continue;
        const tt_comm_vt *vt = c->vtable;
        if (!tt_comm_is_of_device(vt) || !TT_HAS(vt, tt_comm_vt, works) || !vt->works)
            continue;
        TT_TRY(make_part(s, c, "comm.backend", "comm.args", &p, err));
        if (o->ranks_here || works_here(s, o, &p, &why) == TT_OK) {
            s->data_comm = p;
            s->data_comm_if_works = true;
            return TT_OK;
        }
        tt_log(TT_INFO, "comm", "comm.backend auto: not %s: %s", preference[i], why.text);
    }
    return TT_OK;
}

/* The communicator of tensors, if a plugin of devices carries them. */
static tt_status make_data_comm(tt_setup *s, const tt_setup_opts *o, const tt_component *named,
                                tt_error *err)
{
    s->host_comm = s->core.comm.backend;
    if (named && tt_comm_is_of_device(named->vtable)) {
        s->host_comm = s->core.comm.host;
        return make_part(s, named, "comm.backend", "comm.args", &s->data_comm, err);
    }
    if (!strcmp(s->core.comm.backend, "auto") && tt_setup_has_device(s)) {
        s->host_comm = s->core.comm.host;
        return o->nproc > 1 && !o->machine ? choose_data_comm(s, o, err) : TT_OK;
    }
    if (strcmp(s->core.comm.host, "auto") != 0)
        return tt_job_fail(s->job, "comm.host", err,
                           "%s: it has an effect only beside a comm plugin of devices (nccl) "
                           "or comm.backend auto with a device; "
                           "comm.backend %s is the host's communicator itself",
                           s->core.comm.host, s->core.comm.backend);
    return TT_OK;
}

tt_status tt_setup_comm(tt_setup *s, const tt_setup_opts *o, tt_error *err)
{
    const tt_component *c = NULL;
    TT_TRY(find_named(s, "comm.backend", s->core.comm.backend, &c, err));
    TT_TRY(make_data_comm(s, o, c, err));
    const char *key = tt_setup_host_key(s);
    const bool beside = s->host_comm == s->core.comm.host;
    if (beside) {
        c = NULL;
        TT_TRY(find_named(s, key, s->host_comm, &c, err));
        if (c && tt_comm_is_of_device(c->vtable))
            return tt_job_fail(s->job, key, err,
                               "%s is of device memory; take auto, local, shm or mpi",
                               s->host_comm);
    }
    if (!strcmp(s->host_comm, "auto") && o->ranks_here && o->nproc > o->ranks_here)
        TT_TRY(only_host_comm(s, &c, err));
    return c ? make_part(s, c, key, beside ? "comm.host_args" : "comm.args", &s->comm, err) : TT_OK;
}
