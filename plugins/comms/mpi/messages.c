/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "mpi_impl.h"
#include <stdlib.h>
#include <string.h>

/* Messages between two ranks, as the stages of a pipeline send them. */

/* Makes room for a message and its requests: one for the length, one for each LARGEST bytes. */
static tt_status make_room(struct out *o, int64_t bytes, tt_error *err)
{
    const int n = 1 + (int)((bytes + LARGEST - 1) / LARGEST);
    if (o->room < bytes) {
        free(o->data);
        o->data = malloc((size_t)bytes);
        o->room = o->data ? bytes : 0;
    }
    if (o->room_requests < n) {
        free(o->requests);
        o->requests = malloc((size_t)n * sizeof(MPI_Request));
        o->room_requests = o->requests ? n : 0;
    }
    o->n_requests = 0;
    if (o->room < bytes || o->room_requests < n)
        return TT_FAIL(err, TT_ENOMEM, "no memory to send %lld bytes", (long long)bytes);
    return TT_OK;
}

/* The length goes by a synchronous send, which ends when the receiver has started to receive: so at
 * most two messages are in flight, however small. */
tt_status mpi_send(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err)
{
    outbox *b = &c->boxes[to];
    struct out *o = &b->out[b->n_sent % PAIR_IN_FLIGHT];
    TT_TRY(mpi_check(c->e, err));
    const tt_status s = mpi_wait(c->e, o->requests, o->n_requests, err);
    if (s == TT_ETIMEOUT)
        return pair_late(&c->p, "send to", to, b->n_sent + 1, err);
    TT_TRY(s);
    TT_TRY(make_room(o, bytes, err));
    o->length = bytes;
    if (bytes)
        memcpy(o->data, buf, (size_t)bytes);
    MPI_Issend(&o->length, (int)sizeof o->length, MPI_BYTE, to, TAG_LENGTH, c->comm,
               &o->requests[o->n_requests++]);
    for (int64_t at = 0; at < bytes; at += LARGEST)
        MPI_Isend(o->data + at, (int)pair_part(bytes, at, LARGEST), MPI_BYTE, to, TAG_MESSAGE,
                  c->comm, &o->requests[o->n_requests++]);
    b->n_sent++;
    return TT_OK;
}

tt_status mpi_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err)
{
    outbox *b = &c->boxes[from];
    int64_t length = 0;
    MPI_Request r;
    TT_TRY(mpi_check(c->e, err));
    MPI_Irecv(&length, (int)sizeof length, MPI_BYTE, from, TAG_LENGTH, c->comm, &r);
    tt_status s = mpi_wait(c->e, &r, 1, err);
    if (s != TT_OK) {
        MPI_Cancel(&r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        return s == TT_ETIMEOUT ? pair_late(&c->p, "receive from", from, b->n_received + 1, err)
                                : s;
    }
    if (length != bytes)
        return TT_FAIL(err, TT_ECOMM, "rank %d sent %lld bytes where %lld were due",
                       c->p.ranks[from], (long long)length, (long long)bytes);
    for (int64_t at = 0; at < bytes; at += LARGEST) {
        MPI_Irecv((char *)buf + at, (int)pair_part(bytes, at, LARGEST), MPI_BYTE, from, TAG_MESSAGE,
                  c->comm, &r);
        s = mpi_wait(c->e, &r, 1, err);
        if (s == TT_ETIMEOUT)
            return pair_late(&c->p, "receive from", from, b->n_received + 1, err);
        TT_TRY(s);
    }
    b->n_received++;
    return TT_OK;
}

void mpi_free_boxes(tt_comm *c)
{
    for (int i = 0; c->boxes && i < c->p.n; i++)
        for (int k = 0; k < PAIR_IN_FLIGHT; k++) {
            struct out *o = &c->boxes[i].out[k];
            int done = 1;
            if (o->n_requests)
                MPI_Testall(o->n_requests, o->requests, &done, MPI_STATUSES_IGNORE);
            if (!done)
                /* after a failure MPI may still read the buffer, until the process ends */
                continue;
            free(o->data);
            free(o->requests);
        }
    free(c->boxes);
}
