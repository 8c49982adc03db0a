/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "mpi_impl.h"

/* What MPI does for the collectives of pairwise.h: its own are not used. requests[i]: the message from
 * member i; requests[n + i]: the message to it. */

void mpi_no_requests(tt_comm *c)
{
    for (int i = 0; i < 2 * c->p.n; i++)
        c->requests[i] = MPI_REQUEST_NULL;
}

static tt_status check_run(tt_comm *c, tt_error *err)
{
    return mpi_check(c->e, err);
}

static void post(tt_comm *c, int i, const void *send, size_t n_send, void *recv, size_t n_recv)
{
    if (n_recv)
        MPI_Irecv(recv, (int)n_recv, MPI_BYTE, i, TAG_DATA, c->comm, &c->requests[i]);
    if (n_send)
        MPI_Isend(send, (int)n_send, MPI_BYTE, i, TAG_DATA, c->comm, &c->requests[c->p.n + i]);
}

static tt_status wait_for_all(tt_comm *c, tt_error *err)
{
    return mpi_wait(c->e, c->requests, 2 * c->p.n, err);
}

/* A head and its data are one message, of at most a whole head. */
static tt_status heads(tt_comm *c, tt_error *err)
{
    const pair *p = &c->p;
    mpi_no_requests(c);
    for (int i = 0; i < p->n; i++) {
        if (i == p->me)
            continue;
        MPI_Irecv(&p->in[i], (int)sizeof p->in[i], MPI_BYTE, i, TAG_HEAD, c->comm, &c->requests[i]);
        MPI_Isend(&p->out[i], (int)(PAIR_HEAD_BYTES + (size_t)p->out[i].n_inline), MPI_BYTE, i,
                  TAG_HEAD, c->comm, &c->requests[p->n + i]);
    }
    return wait_for_all(c, err);
}

static bool missing(tt_comm *c, int i)
{
    int come = 1;
    if (c->requests[i] != MPI_REQUEST_NULL)
        MPI_Test(&c->requests[i], &come, MPI_STATUS_IGNORE);
    return !come;
}

static void stop_run(tt_comm *c, const char *why)
{
    mpi_abort_run(c->e, why);
}

const pair_transport mpi_transport = {.check = check_run,
                                      .clear = mpi_no_requests,
                                      .post = post,
                                      .wait = wait_for_all,
                                      .heads = heads,
                                      .missing = missing,
                                      .abort = stop_run};
