/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/data_comm.h"
#include <stdlib.h>
#include <string.h>

/* Whether the communicator of tensors that the job did not name, but would be the fastest, works here. */

typedef struct seat { /* what each rank tells the others */
    int64_t machine;  /* the world rank of its first rank */
    int32_t known;    /* the device has an identity */
    unsigned char device[16];
} seat;

static void seat_take(const tt_dist *d, const tt_device *device, seat *out)
{
    tt_error ignored;
    memset(out, 0, sizeof *out);
    out->machine = d->session ? tt_session_first_rank(d->session) : 0;
    if (TT_HAS(device->vt, tt_device_vt, identity) && device->vt->identity)
        out->known = TT_PLUGIN_CALL(device->vt->identity(device->backend, out->device, &ignored),
                                    &ignored, "device", "identity") == TT_OK;
}

/* The place of this rank's machine. */
static tt_comm_place place_of(const tt_dist *d, const seat *all, const char *backend_name)
{
    tt_comm_place p = {.struct_size = sizeof p, .backend_name = backend_name};
    bool known = true;
    for (int i = 0; i < d->world; i++) {
        bool first = true;
        if (all[i].machine != all[d->rank].machine)
            continue;
        for (int j = 0; j < i && first; j++)
            first = all[j].machine != all[i].machine ||
                    memcmp(all[j].device, all[i].device, sizeof all[i].device) != 0;
        known = known && all[i].known;
        p.devices += first;
        p.ranks++;
    }
    if (!known)
        p.devices = 0;
    return p;
}

typedef struct answer {
    int32_t refuses;
    char why[400];
} answer;

static tt_status ask_all(tt_dist *d, const tt_data_opts *o, seat *seats, answer *answers,
                         int64_t *counts, tt_error *err)
{
    seat mine;
    answer a = {0};
    tt_error why = {0};
    seat_take(d, &o->device, &mine);
    for (int i = 0; i < d->world; i++)
        counts[i] = sizeof mine;
    TT_TRY(d->vt->all_gather(d->all, &mine, seats, counts, TT_U8, err));
    const tt_comm_place p = place_of(d, seats, o->backend_name);
    a.refuses = TT_PLUGIN_CALL(o->comm->works(o->config, &p, &why), &why, "comm", o->name) != TT_OK;
    if (a.refuses)
        snprintf(a.why, sizeof a.why, "%.*s", (int)sizeof a.why - 1, why.text);
    for (int i = 0; i < d->world; i++)
        counts[i] = sizeof a;
    return d->vt->all_gather(d->all, &a, answers, counts, TT_U8, err);
}

tt_status tt_dist_data_works(tt_dist *d, const tt_data_opts *o, bool *out, tt_error *err)
{
    const size_t n = (size_t)d->world;
    seat *seats = calloc(n, sizeof *seats);
    answer *answers = calloc(n, sizeof *answers);
    int64_t *counts = calloc(n, sizeof *counts);
    tt_error e = {0};
    tt_status s = seats && answers && counts
                      ? TT_OK
                      : TT_FAIL(&e, TT_ENOMEM, "no memory for the answers of %d ranks", d->world);
    if (s == TT_OK)
        s = ask_all(d, o, seats, answers, counts, &e);
    *out = s == TT_OK;
    for (size_t i = 0; i < n && *out; i++)
        if (answers[i].refuses) {
            *out = false;
            TT_FAIL(&e, TT_EUNSUPPORTED, "not %s, on rank %d: %s", o->name, (int)i, answers[i].why);
        }
    if (err && !*out)
        *err = e;
    free(seats);
    free(answers);
    free(counts);
    return s;
}
