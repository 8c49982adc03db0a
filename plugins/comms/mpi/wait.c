/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "mpi_impl.h"
#include <sched.h>
#include <string.h>
#include <time.h>

/* Waiting that ends when the run is stopped or the time is up, and stopping all ranks together. */

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void tell_others(mpi_end *e)
{
    if (atomic_exchange(&e->told, 1))
        return;
    for (int i = 0; i < e->world; i++) {
        MPI_Request r;
        if (i == e->rank)
            continue;
        MPI_Isend(e->why, (int)sizeof e->why, MPI_BYTE, i, TAG_ABORT, e->all, &r);
        MPI_Request_free(&r); /* e->why lives as long as the process */
    }
}

static void ask(mpi_end *e, const char *why)
{
    pthread_mutex_lock(&e->lock);
    if (!atomic_load(&e->asked)) {
        size_t n = strlen(why);
        n = n < sizeof e->why ? n : sizeof e->why - 1;
        memcpy(e->why, why, n);
        e->why[n] = 0;
        atomic_store(&e->asked, 1);
    }
    pthread_mutex_unlock(&e->lock);
}

void mpi_abort_run(void *self, const char *why)
{
    mpi_end *e = self;
    ask(e, why);
    if (e->many || pthread_equal(pthread_self(), e->thread))
        /* if another thread asked, the next wait of the MPI thread tells the others */
        tell_others(e);
}

/* Has another rank sent an abort? */
static void hear(mpi_end *e)
{
    int come = 0;
    if (pthread_mutex_trylock(&e->come))
        return; /* another thread is testing */
    if (e->abort_come != MPI_REQUEST_NULL)
        MPI_Test(&e->abort_come, &come, MPI_STATUS_IGNORE);
    if (come) {
        e->abort_text[sizeof e->abort_text - 1] = 0;
        ask(e, e->abort_text);
        atomic_store(&e->told, 1); /* the rank that told us tells everyone */
    }
    pthread_mutex_unlock(&e->come);
}

/* Has the run been stopped: on this rank, by another rank of this machine, or by a rank of another
 * machine? */
tt_status mpi_check(mpi_end *e, tt_error *err)
{
    tt_error why = {0};
    if (!atomic_load(&e->asked))
        hear(e);
    if (!atomic_load(&e->asked) && e->stopped && e->stopped(e->user, &why) != TT_OK) {
        const char *text = strncmp(why.text, "stopped: ", 9) ? why.text : why.text + 9;
        ask(e, text);
    }
    if (!atomic_load(&e->asked))
        return TT_OK;
    tell_others(e);
    return TT_FAIL(err, TT_ECOMM, "stopped: %s", e->why);
}

/* Waits for all n requests, or until the run is stopped or the time is up. */
tt_status mpi_wait(mpi_end *e, MPI_Request *r, int n, tt_error *err)
{
    const double until = e->timeout_s > 0 ? now() + e->timeout_s : 0;
    for (int64_t i = 1;; i++) {
        int done = 0;
        MPI_Testall(n, r, &done, MPI_STATUSES_IGNORE);
        if (done)
            return TT_OK;
        if (i % 64)
            continue;
        TT_TRY(mpi_check(e, err));
        if (until > 0 && now() > until)
            return TT_ETIMEOUT;
        if (i > 4096)
            nanosleep(&(struct timespec){0, 50000}, NULL);
        else
            sched_yield();
    }
}
