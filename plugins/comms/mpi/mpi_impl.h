/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLUGIN_MPI_IMPL_H
#define TT_PLUGIN_MPI_IMPL_H
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <tcp/pairwise.h>

/* Shared by the files of comm "mpi". */

/* most bytes per message between stages; MPI's counts end at 2^31. A test has a smaller one. */
#ifndef LARGEST
#define LARGEST (INT64_C(1) << 30)
#endif

enum { TAG_HEAD = 1, TAG_DATA, TAG_LENGTH, TAG_MESSAGE, TAG_ABORT };

typedef struct mpi_end {
    int rank, world;
    _Atomic double timeout_s;
    tt_status (*stopped)(void *user, tt_error *err);
    void *user;
    bool many;        /* any thread may call MPI */
    pthread_t thread; /* if not, only this one may */
    MPI_Comm all;
    MPI_Request abort_come;
    char abort_text[256];
    pthread_mutex_t come; /* abort_come: the receive of an abort; one thread at a time tests it */
    pthread_mutex_t lock; /* guards why and asked */
    char why[256];
    /* asked: an abort was asked for on this rank; told: the other ranks know */
    atomic_int asked, told;
} mpi_end;

typedef struct outbox { /* messages to one member: buffers that are being sent */
    struct out {
        int64_t length, room;
        char *data;
        MPI_Request *requests;
        int n_requests, room_requests;
    } out[PAIR_IN_FLIGHT];
    uint64_t n_sent, n_received;
} outbox;

struct tt_comm {
    pair p;
    mpi_end *e;
    MPI_Comm comm;
    MPI_Request *requests; /* 2 n */
    outbox *boxes;
};

/* wait.c */
double now(void);
void mpi_abort_run(void *self, const char *why);
tt_status mpi_check(mpi_end *e, tt_error *err); /* TT_ECOMM: the run is being stopped */
/* TT_ETIMEOUT: err has no text yet */
tt_status mpi_wait(mpi_end *e, MPI_Request *r, int n, tt_error *err);
/* messages.c */
tt_status mpi_send(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err);
tt_status mpi_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err);
void mpi_free_boxes(tt_comm *c);
/* exchange.c */
extern const pair_transport mpi_transport;
void mpi_no_requests(tt_comm *c);

#endif
