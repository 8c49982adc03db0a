/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "mpi_impl.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* comm "mpi": groups that span machines. One thread of a rank calls MPI; if collectives run
 * concurrently with the program and this MPI allows it, one thread per group does. */

static void mpi_group_free(tt_comm *c)
{
    mpi_free_boxes(c);
    pair_close(&c->p);
    free(c->requests);
    if (c->comm != MPI_COMM_NULL && !atomic_load(&c->e->asked))
        MPI_Comm_free(&c->comm);
    free(c);
}

static tt_status allocate(tt_comm *c, const int *ranks, int n, tt_error *err)
{
    TT_TRY(pair_open(&c->p, ranks, n, c->e->rank, err));
    c->requests = calloc(2 * (size_t)n, sizeof *c->requests);
    c->boxes = calloc((size_t)n, sizeof *c->boxes);
    if (!c->requests || !c->boxes)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    mpi_no_requests(c);
    return TT_OK;
}

static tt_status mpi_group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                           tt_error *err)
{
    mpi_end *e = self;
    MPI_Group all, some;
    tt_comm *c = calloc(1, sizeof *c);
    if (!c)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group");
    *c = (tt_comm){
        .p = {.t = &mpi_transport, .timeout_s = &e->timeout_s},
          .e = e, .comm = MPI_COMM_NULL
    };
    tt_status s = mpi_check(e, err);
    if (s == TT_OK)
        s = allocate(c, ranks, n, err);
    if (s != TT_OK) {
        mpi_group_free(c);
        return s;
    }
    MPI_Comm_group(e->all, &all);
    MPI_Group_incl(all, n, ranks, &some);
    MPI_Comm_create_group(e->all, some, (int)(key % 16384), &c->comm);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    *out = c;
    return TT_OK;
}

/* ---- life ---- */

static tt_status open_(const void *config, const tt_comm_env *env, void **self, tt_error *err)
{
    int level = MPI_THREAD_FUNNELED, rank = -1, world = -1, begun = 0;
    const bool concurrent = TT_HAS(env, tt_comm_env, concurrent) && env->concurrent;
    (void)config;
    MPI_Initialized(&begun);
    if (!begun && MPI_Init_thread(NULL, NULL, concurrent ? MPI_THREAD_MULTIPLE : level, &level) !=
                      MPI_SUCCESS)
        return TT_FAIL(err, TT_ECOMM, "MPI cannot be started");
    if (begun)
        MPI_Query_thread(&level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (rank != env->rank || world != env->world)
        return TT_FAIL(err, TT_EINVAL,
                       "MPI says rank %d of %d, the launcher's variables say %d of %d: start the "
                       "ranks with the mpirun or srun of the MPI that ttrun was built with",
                       rank, world, env->rank, env->world);
    mpi_end *e = calloc(1, sizeof *e);
    if (!e)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a rank");
    *e = (mpi_end){.rank = rank,
                   .world = world,
                   .timeout_s = env->timeout_s,
                   .stopped = env->stopped,
                   .user = env->user,
                   .many = level == MPI_THREAD_MULTIPLE,
                   .thread = pthread_self(),
                   .come = PTHREAD_MUTEX_INITIALIZER,
                   .lock = PTHREAD_MUTEX_INITIALIZER};
    MPI_Comm_dup(MPI_COMM_WORLD, &e->all);
    MPI_Irecv(e->abort_text, (int)sizeof e->abort_text, MPI_BYTE, MPI_ANY_SOURCE, TAG_ABORT, e->all,
              &e->abort_come);
    *self = e;
    return TT_OK;
}

/* After a failure MPI is not finalized: MPI_Finalize would wait for ranks that may be gone. */
static void close_(void *self, int ok)
{
    mpi_end *e = self;
    if (ok && !atomic_load(&e->asked)) {
        MPI_Cancel(&e->abort_come);
        MPI_Wait(&e->abort_come, MPI_STATUS_IGNORE);
        MPI_Comm_free(&e->all);
        MPI_Finalize();
        free(e);
        return;
    }
    const double until = now() + 0.1; /* time for messages already posted to leave */
    while (now() < until) {
        int flag;
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_HEAD, e->all, &flag, MPI_STATUS_IGNORE);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

static void mpi_set_timeout(void *self, double timeout_s)
{
    ((mpi_end *)self)->timeout_s = timeout_s;
}

static int mpi_concurrent(void *self)
{
    return ((const mpi_end *)self)->many;
}

static const tt_comm_vt vt = {
    .struct_size = sizeof(tt_comm_vt),
    .group = mpi_group,
    .group_free = mpi_group_free,
    .all_gather = pair_all_gather,
    .reduce_scatter = pair_reduce_scatter,
    .all_reduce = pair_all_reduce,
    .all_to_all = pair_all_to_all,
    .send = mpi_send,
    .recv = mpi_recv,
    .barrier = pair_barrier,
    .abort = mpi_abort_run,
    .open = open_,
    .close = close_,
    .set_timeout = mpi_set_timeout,
    .concurrent = mpi_concurrent,
    .launcher = "mpirun",
};

static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_COMM, "mpi", "MPI between machines; sums in rank order", &vt),
};

TT_PLUGIN("mpi", "1.0", components);
