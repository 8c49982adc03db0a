/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLUGIN_MPI_IMPL_H
#define TT_PLUGIN_MPI_IMPL_H
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/comm.h>

/* Shared by the files of comm "mpi". */

/* bytes per message of a collective: the size at which MPI was fastest */
#define PIECE (INT64_C(4) << 20)
/* most bytes per message between stages; MPI's counts end at 2^31 */
#define LARGEST (INT64_C(1) << 30)
#define INLINE_BYTES 1024
#define LINE 64
#define IN_FLIGHT 2

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

typedef struct head {
    int64_t op, size, sequence, sends,
        receives; /* all_to_all: elements sent to and received from the member */
    char data[INLINE_BYTES];
} head;
#define HEAD_BYTES offsetof(head, data)

typedef struct outbox { /* messages to one member: buffers that are being sent */
    struct out {
        int64_t length, room;
        char *data;
        MPI_Request *requests;
        int n_requests, room_requests;
    } out[IN_FLIGHT];
    uint64_t n_sent, n_received;
} outbox;

struct tt_comm {
    mpi_end *e;
    MPI_Comm comm;
    int n, me;
    int *ranks;
    uint64_t sequence;
    const char *op;
    head *in, *out;        /* per member */
    MPI_Request *requests; /* 2 n */
    char *room;            /* n + 1 pieces: the data received for a reduction, and the result */
    const void **pieces;
    outbox *boxes;
};

/* How many bytes of [at, at + room) are below n. */
static inline size_t part(int64_t n, int64_t at, int64_t room)
{
    return n > at ? (size_t)(n - at < room ? n - at : room) : 0;
}

/* The bytes of a piece that each member reduces, a whole number of cache lines. */
static inline int64_t share(int n)
{
    const int64_t room = PIECE / n / LINE * LINE;
    return room ? room : LINE;
}

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
/* collectives.c */
void no_requests(tt_comm *c);
tt_status mpi_all_gather(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                         tt_dtype dtype, tt_error *err);
tt_status mpi_reduce_scatter(tt_comm *c, const void *send, void *recv, const int64_t *counts,
                             tt_dtype dtype, tt_reduce op, tt_error *err);
tt_status mpi_all_reduce(tt_comm *c, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                         tt_error *err);
tt_status mpi_all_to_all(tt_comm *c, const void *send, const int64_t *send_counts, void *recv,
                         const int64_t *recv_counts, tt_dtype dtype, tt_error *err);
tt_status mpi_barrier(tt_comm *c, tt_error *err);

#endif
