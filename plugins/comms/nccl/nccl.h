/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_NCCL_H
#define TT_NCCL_H
#include "api.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <ttrun/backend.h>
#include <ttrun/comm.h>

/* Device memory among processes or threads, one GPU each, by NCCL. The communicators of NCCL do not block; a call
 * returns when NCCL has put its work on the queue. A thread per rank watches: it ends what waits too
 * long, and what has to end because another rank failed.
 *
 *   world    a rank's handle
 *   link     a communicator of NCCL: of a group, or of a sender and a receiver
 *   tt_comm  a rank's handle of a group: its link, and those of its messages */

typedef struct nccl_config {
    int reduction; /* nccl_reduction */
    const char *libraries;
} nccl_config;
enum { NCCL_ORDERED = 0, NCCL_FAST = 1 };

typedef struct nccl_link {
    pthread_mutex_t lock; /* of comm, for the calls that name it */
    ncclComm_t comm;      /* NULL: not made yet, or aborted */
    struct nccl_link *next_ended;
    struct nccl_handle *handles; /* register.c; under the world's lock */
} nccl_link;

typedef struct nccl_space { /* memory that buffers lie in */
    void *base;
    size_t bytes;
    struct nccl_space *next;
} nccl_space;

#define NCCL_WATCHED 16 /* calls of a group that are watched at a time */
typedef struct nccl_call {
    const char *op; /* NULL: free */
    uint64_t number;
    tt_device_event *begin, *end;
    int64_t since_ns; /* when its begin was first seen; 0: not yet */
} nccl_call;

enum { NCCL_PLACES = 2 };
typedef struct nccl_place { /* a message on its way, in device memory */
    char *data;
    int64_t bytes, cap;
    bool used;
    tt_device_event *filled, *sent;
} nccl_place;

/* Messages to one receiver. send fills a place on the group's queue; the place is sent on a queue of the
 * channel. The first is posted by the watching thread, because the receiver may not be there yet. */
typedef struct nccl_channel {
    nccl_link *link;
    ncclUniqueId id;
    tt_device_queue *queue;
    nccl_place places[NCCL_PLACES];
    uint64_t n_filled, n_posted; /* messages; n_posted under the world's lock */
    enum { CHANNEL_NEW, CHANNEL_JOINS, CHANNEL_POSTS, CHANNEL_READY } state;
} nccl_channel;

typedef struct nccl_world nccl_world;
struct tt_comm {
    nccl_world *world;
    int n, me, *ranks;
    nccl_link *link;
    tt_comm *host; /* the group in the host's communicator */
    tt_device_queue *queue;
    char *scratch; /* of reductions; grows to the largest call */
    size_t scratch_bytes;
    tt_device_event *idle; /* for waits of the host */
    void *token;           /* of barriers: 16 bytes of device memory */
    const void **parts;    /* [n]: of a reduction */
    int64_t *pieces;       /* [n]: elements of each member's piece of an all-reduce */
    nccl_channel **to;     /* [n]: NULL until the first message */
    nccl_link **from;      /* [n]: likewise */
    nccl_call calls[NCCL_WATCHED];
    uint64_t n_calls;
    tt_comm *next;
};

struct nccl_world {
    tt_comm_env env;
    nccl_config config;
    _Atomic double timeout_s;
    pthread_mutex_t lock; /* of what follows, of channels' progress and of calls */
    pthread_cond_t changed;
    tt_comm *groups;
    nccl_link *ended; /* links of groups that were freed */
    nccl_space *spaces;
    bool told; /* that memory could not be registered */
    bool quit;
    _Atomic bool aborted;
    tt_error why;
    pthread_t watcher;
};

/* ---- group.c ---- */
tt_status nccl_group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                     tt_error *err);
void nccl_group_free(tt_comm *g);
tt_status nccl_link_new(nccl_link **out, tt_error *err);
void nccl_link_end(nccl_world *w, nccl_link *l); /* close finalizes it; NULL is allowed */
/* Begins to join the communicator of id; nccl_settle waits for the end. */
ncclResult_t nccl_link_join(nccl_link *l, const ncclUniqueId *id, int n, int rank);
/* Waits until NCCL has done what returned r; `what` and the group are for messages. */
tt_status nccl_settle(const tt_comm *g, nccl_link *l, ncclResult_t r, const char *what,
                      tt_error *err);
/* NCCL's words for r. */
tt_status nccl_error(const tt_comm *g, const nccl_link *l, ncclResult_t r, const char *what,
                     tt_error *err);
/* TT_OK, or why nothing works any more. */
tt_status nccl_world_status(nccl_world *w, tt_error *err);
/* Aborts all links. [any-thread] */
void nccl_world_abort(nccl_world *w, tt_status s, const char *why);
void nccl_ranks_text(const tt_comm *g, char *text, size_t size);
int64_t nccl_now_ns(void);

/* ---- register.c ---- */
void nccl_use_memory(void *self, void *base, size_t bytes);
void nccl_forget_memory(void *self, void *base);
/* Registers what is known so far with a communicator that is joined. */
void nccl_link_registers(nccl_world *w, nccl_link *l);
/* Before it ends; ok false: it is aborted, and nothing is asked of it any more. */
void nccl_link_forgets(nccl_link *l, bool ok);

/* ---- watch.c ---- */
void *nccl_watch(void *world);
/* Around the work of a call on the group's queue; a call that is not watched is NULL. */
tt_status nccl_call_begins(tt_comm *g, const char *op, nccl_call **out, tt_error *err);
tt_status nccl_call_ends(tt_comm *g, const char *op, nccl_call *c, tt_error *err);

/* ---- collectives.c ---- */
tt_status nccl_all_gather(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                          tt_dtype dtype, tt_error *err);
tt_status nccl_reduce_scatter(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                              tt_dtype dtype, tt_reduce op, tt_error *err);
tt_status nccl_all_reduce(tt_comm *g, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                          tt_error *err);
tt_status nccl_all_to_all(tt_comm *g, const void *send, const int64_t *send_counts, void *recv,
                          const int64_t *recv_counts, tt_dtype dtype, tt_error *err);
tt_status nccl_barrier(tt_comm *g, tt_error *err);
int64_t nccl_scratch_bytes(const void *config, int n, int all_reduce, int64_t count, tt_dtype t);
tt_status nccl_check_queue(const tt_comm *g, const char *op, tt_error *err);

/* ---- messages.c ---- */
tt_status nccl_send(tt_comm *g, int to, const void *buf, int64_t bytes, tt_error *err);
tt_status nccl_recv(tt_comm *g, int from, void *buf, int64_t bytes, tt_error *err);
/* The next thing that the watching thread can do for a channel, with the world's lock held. True: there
 * is more to do. */
bool nccl_channel_goes_on(tt_comm *g, nccl_channel *c, tt_error *err);
void nccl_channel_free(tt_comm *g, nccl_channel *c);

static inline size_t nccl_bytes(int64_t n, tt_dtype t)
{
    return (size_t)n * tt_dtype_size(t);
}
#define NCCL_DEVICE(w, name, ...) ((w)->env.device->name((w)->env.backend, __VA_ARGS__))

#endif
