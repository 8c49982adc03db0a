/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/data_comm.h"
#include <stdlib.h>
#include <string.h>

/* Opens the communicator of tensors beside that of the host. */

static tt_status no_reason_to_stop(void *user, tt_error *err)
{
    const tt_dist *d = user;
    return d->session ? tt_session_stopped(d->session, err) : TT_OK;
}

/* tt_comm_env.host_all_gather */
static tt_status gather_on_host(void *user, const void *send, void *recv, size_t bytes,
                                tt_error *err)
{
    tt_dist *d = user;
    int64_t *counts = calloc((size_t)d->world, sizeof *counts);
    if (!counts)
        return TT_FAIL(err, TT_ENOMEM, "no memory for an all-gather of %d ranks", d->world);
    for (int i = 0; i < d->world; i++)
        counts[i] = (int64_t)bytes;
    const tt_status s = d->vt->all_gather(d->all, send, recv, counts, TT_U8, err);
    free(counts);
    return s;
}

static tt_status open_device_comm(tt_dist *d, const tt_data_opts *o, tt_error *err)
{
    const tt_comm_env env = {.struct_size = sizeof env,
                             .rank = d->rank,
                             .world = d->world,
                             .timeout_s = o->timeout_s,
                             .stopped = no_reason_to_stop,
                             .user = d,
                             .concurrent = o->concurrent,
                             .device = o->device.vt,
                             .backend = o->device.backend,
                             .host_all_gather = gather_on_host,
                             .host = d->vt,
                             .host_self = d->self,
                             .backend_name = o->backend_name,
                             .reduce_members = o->reduce_members};
    void *self = NULL;
    TT_TRY(TT_PLUGIN_CALL(o->comm->open(o->config, &env, &self, err), err, "comm", "open"));
    d->data_vt = o->comm;
    d->data_self = self;
    return TT_OK;
}

/* The ranks' devices have no communicator of their own. */
static void note_staged(const tt_dist *d, const char *why)
{
    if (d->rank == 0)
        tt_log(d->local_world < d->world ? TT_WARN : TT_INFO, "comm",
               "tensors go from device to device through host memory, which is slow%s%s",
               *why ? ": " : "", why);
}

tt_status tt_dist_open_data(tt_dist *d, const tt_data_opts *o, tt_error *err)
{
    if (!d->vt || tt_device_is_host(&o->device))
        return TT_OK;
    bool local = false, works = true;
    tt_error why = {0};
    if (o->comm && o->if_works && tt_dist_data_works(d, o, &works, &why) != TT_OK) {
        *err = why;
        return why.code;
    }
    if (o->comm && works)
        return open_device_comm(d, o, err);
    TT_TRY(tt_local_serves(o, d, &local, err));
    if (local) {
        TT_TRY(tt_local_new(o, d, &d->data_self, err));
        d->data_vt = &tt_local_vt;
        return TT_OK;
    }
    note_staged(d, why.text);
    TT_TRY(tt_staged_new(&o->device, d, &d->data_self, err));
    d->data_vt = &tt_staged_vt;
    return TT_OK;
}

void tt_dist_close_data(tt_dist *d, bool ok)
{
    if (d->data_self != d->self)
        d->data_vt->close(d->data_self, ok);
    d->data_vt = d->vt;
    d->data_self = d->self;
}

bool tt_dist_has_queues(const tt_dist *d)
{
    const tt_comm_vt *v = d->data_vt;
    return v && v != d->vt && v != &tt_staged_vt && (!v->concurrent || v->concurrent(d->data_self));
}

bool tt_dist_captures(const tt_dist *d)
{
    const tt_comm_vt *v = d->data_vt;
    return !v || (v != d->vt && TT_HAS(v, tt_comm_vt, capture) && v->capture);
}
