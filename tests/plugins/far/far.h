/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_FAR_H
#define TT_TESTS_FAR_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <ttrun/backend.h>
#include <ttrun/comm.h>

/* far: a device for tests, without a GPU. The host cannot touch its memory: every address that it
 * gives out is PROT_NONE, and only copies, kernels and collectives know the mapping that can be read
 * and written. Work on a queue runs when something asks for its result, in an order drawn from a
 * seed. So a program that forgets an event, a copy or a sync computes wrong numbers, faults or gets
 * an error that names the fault.
 *
 * One lock protects all state of the process; kernels run with it held. Ranks may be threads of one
 * process: a thread that waits for its own work runs other ranks' work where a collective needs it. */

#define FAR_ALIGN 256
#define FAR_GUARD 256 /* bytes before and after an allocation that nothing may write */
#define FAR_POISON 0xa7
#define FAR_QUEUES 64  /* of one rank */
#define FAR_CLOCKS 512 /* queues of the process */

typedef struct far_config {
    int64_t seed, memory_mib, alignment;
    bool races, peers;
    const char *fail;
    int64_t fail_at;
} far_config;

typedef struct far_rank far_rank;
typedef struct far_node far_node;
typedef struct far_comm far_comm;

/* ---- memory.c ---- */
typedef struct far_memory { /* one allocation */
    far_rank *owner;
    char *at; /* the address that the host has */
    size_t bytes;
    bool pinned;
    char *visible, *hidden; /* the two mappings of the same pages */
    size_t mapped;          /* bytes of each */
    uint16_t *n_pending;    /* pinned: copies that name each page and that the host did not await */
} far_memory;

typedef struct far_range { /* what a piece of work reads or writes */
    void *at;
    size_t bytes;
    bool write;
    char *hidden; /* while the work runs */
} far_range;

enum { FAR_DEVICE = 1, FAR_PINNED = 2, FAR_PEER = 4 /* device memory of other ranks */ };
tt_status far_alloc(void *self, size_t bytes, void **out, tt_error *err);
void far_free(void *self, void *p);
tt_status far_alloc_pinned(void *self, size_t bytes, void **out, tt_error *err);
void far_free_pinned(void *self, void *p);
tt_status far_memory_left(void *self, uint64_t *free_bytes, uint64_t *total_bytes, tt_error *err);
/* The rest is called with the lock held. The hidden address of [at, at + bytes), or an error that
 * says what is wrong with it; kinds: of the enum. */
tt_status far_translate(const far_rank *r, const void *at, size_t bytes, int kinds, char **out,
                        tt_error *err);
const far_rank *far_owner_of(const void *p); /* NULL: it is no memory of far's */
tt_status far_check_guards(const far_range *ranges, int n, tt_error *err);
/* A copy that names pinned memory begins to be pending (by 1), or the host knows its end (by -1). */
void far_pinned_pending(const far_node *n, int by);
void far_memory_drop(far_rank *r); /* all that the rank did not free; says so */

/* ---- queue.c, run.c: work ---- */
typedef enum far_kind {
    FAR_KERNEL,
    FAR_COPY,
    FAR_FILL,
    FAR_RECORD,
    FAR_WAIT,
    FAR_CALL /* of a communicator */
} far_kind;

struct far_node {
    int refs;
    far_kind kind;
    far_rank *rank;
    tt_device_queue *queue;
    far_node *next; /* on its queue */
    char *name;     /* for messages: the op, or "copy" */
    int kinds;      /* of memory that its ranges may be in */
    bool peers;     /* a range is memory of another rank */
    bool ran, observed;
    uint64_t seq;  /* its number on its queue, from 1 */
    uint64_t mark; /* the round in which it was found to be needed */
    far_range *ranges;
    int n_ranges;
    far_node *target; /* of a wait: the record that it waits for */
    int of_item;      /* of a wait in a graph: which item is the record */
    bool timed;       /* of a record: of a timed event */
    uint64_t *clock;  /* of a record: what is ordered before it, for each queue */
    uint64_t time_ns; /* of a record that ran */
    uint32_t pattern;
    struct far_call_copy *call; /* of a kernel */
    struct far_collective *collective;
};

struct tt_device_queue {
    far_rank *rank;
    int id, urgent;
    int clock_id;       /* among all queues of the process */
    far_node *head;     /* the first that the host did not await */
    far_node *next_run; /* the first that did not run */
    far_node *tail;
    uint64_t seq, mark;
    far_node *marked_to;
    uint64_t clock[FAR_CLOCKS]; /* how much of each queue is ordered before what comes next */
    tt_device_graph *capture;
    int captured_as; /* its number in that graph */
};

struct tt_device_event {
    far_rank *rank;
    bool timed;
    int n_polls, patience;    /* of `done` since the last record, and how many of them give 0 */
    far_node *node;           /* the last record; NULL: none, or in_graph */
    bool in_graph;            /* the last record became an item of a graph: */
    tt_device_graph *capture; /* of this one, while it is being made */
    int item;
    tt_device_event *next; /* of the rank */
};

struct far_rank {
    int rank, n_threads;
    bool is_target; /* made by target: no device */
    far_config config;
    uint64_t random;
    uint64_t used, pinned; /* bytes of the device, of pinned memory */
    tt_device_queue *queues[FAR_QUEUES];
    uint64_t host_clock[FAR_CLOCKS]; /* what the host has awaited */
    tt_device_event *events;
    tt_device_queue *favourite; /* whose work runs first, with some seeds */
    int n_graphs;
    int64_t n_fail; /* kernels of config.fail that ran */
    bool failed;
    bool refused;   /* a call failed at once: the host may be giving up */
    tt_error error; /* of the first work that failed */
    far_comm *comm;
    far_rank *next; /* of all ranks of the process */
};

typedef struct far_state {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* work was added or ran, or a communicator stopped */
    far_rank *ranks;
    tt_device_queue *queues[FAR_CLOCKS]; /* by clock_id */
    uint64_t last_seq[FAR_CLOCKS];       /* of a queue that was freed */
    int n_clocks;
    far_memory **memory; /* by ascending address */
    int n_memory, room_memory;
    uint64_t round;
    uint64_t clock_ns; /* a time that passes only while work runs */
} far_state;
extern far_state far;

void far_lock(void);
void far_unlock(void);
/* Locks; an error, without the lock, if this thread did not enter the device. */
tt_status far_begin(far_rank *r, const char *what, tt_error *err);
/* Unlocks; notes whether the call failed. */
tt_status far_end(far_rank *r, tt_status s);
/* far_begin for functions that cannot fail, and every other misuse of theirs: ends the process. */
void far_begin_or_die(far_rank *r, const char *what);
_Noreturn void far_misuse(const char *fmt, ...) TT_PRINTF(1, 2);
uint64_t far_random(far_rank *r, uint64_t n); /* in [0, n) */
void *far_calloc(size_t n, size_t size);      /* or ends the process */

tt_status far_enter(void *self, tt_error *err);
tt_status far_queue_new(void *self, int urgent, tt_device_queue **out, tt_error *err);
void far_queue_free(void *self, tt_device_queue *q);
tt_status far_event_new(void *self, int timed, tt_device_event **out, tt_error *err);
void far_event_free(void *self, tt_device_event *e);
tt_status far_record(void *self, tt_device_event *e, tt_device_queue *q, tt_error *err);
tt_status far_wait(void *self, tt_device_queue *q, tt_device_event *e, tt_error *err);
tt_status far_sync(void *self, tt_device_event *e, tt_error *err);
int far_done(void *self, tt_device_event *e);
int far_reaches(void *self, void *other);
tt_status far_seconds(void *self, tt_device_event *from, tt_device_event *to, double *out,
                      tt_error *err);
tt_status far_copy(void *self, tt_device_queue *q, void *to, const void *from, size_t bytes,
                   tt_error *err);
tt_status far_fill(void *self, tt_device_queue *q, void *to, uint32_t pattern, size_t bytes,
                   tt_error *err);

/* With the lock held. A new node has one reference, the caller's. */
far_node *far_node_new(far_rank *r, far_kind kind, const char *name, int n_ranges);
far_node *far_node_ref(far_node *n);
void far_node_drop(far_node *n);
/* Puts the node on the queue, or into the graph that the queue's work becomes; takes the caller's
 * reference, on failure too. */
tt_status far_put(tt_device_queue *q, far_node *n, tt_error *err);
/* The same, but never into a graph. */
tt_status far_attach(tt_device_queue *q, far_node *n, tt_error *err);
/* Another node does what this one does; for graphs. */
far_node *far_node_again(const far_node *n);
/* An error if another queue has work that the host did not await, that nothing orders before n and
 * that touches the same bytes, one of them writing. */
tt_status far_check_races(const tt_device_queue *q, const far_node *n, tt_error *err);
/* Sets the hidden addresses of the ranges, or fails with the node's name. */
tt_status far_resolve(const far_node *n, tt_error *err);
bool far_overlap(const far_range *a, const far_range *b);
tt_status far_check_queue(const far_rank *r, const tt_device_queue *q, const char *what,
                          tt_error *err);

/* Runs what `goal` needs. With `block` it waits for other ranks' calls; otherwise it returns when
 * nothing can go on. */
void far_force(far_rank *r, far_node *goal, bool block);
void far_run_drop_stack(void);
void far_run_some(far_rank *r); /* perhaps runs work that nobody asked for */
void far_node_ran(far_node *n); /* its turn on its queue is over */
/* The host of its rank has awaited a record and what is ordered before it; or, if it is the last work
 * of a queue, all of that queue. */
void far_observe(far_node *n);
/* A number per queue of the process: work with a seq up to it is ordered before something. */
void far_clock_join(uint64_t *clock, const uint64_t *other);
void far_fail_rank(far_rank *r, const tt_error *e);

/* ---- kernel.c ---- */
const tt_kernel *far_kernel(void *self, const char *op);
void far_kernel_drop_rows(void);
tt_status far_call_run(const far_node *n, tt_error *err);
struct far_call_copy *far_call_ref(struct far_call_copy *c);
void far_call_drop(struct far_call_copy *c);
/* extra.c: the three ops of device.h, on host addresses; NULL if op is none of them. */
const tt_kernel *far_extra_kernel(const char *op);
size_t far_extra_attrs(const char *op); /* bytes of its attrs */
tt_status far_extra_check(const tt_kernel_call *c, tt_error *err);
/* The bytes of in[0] and of out[0] that the box touches at most. */
void far_box_span(const tt_kernel_call *c, far_range *in, far_range *out);
/* of the reference backend */
const tt_kernel *ref_kernel(const char *op);
const tt_kernel *ref_pointwise_kernel(const char *op);

/* ---- graph.c ---- */
tt_status far_capture_begin(void *self, tt_device_queue *q, tt_error *err);
tt_status far_capture_end(void *self, tt_device_queue *q, tt_device_graph **out, tt_error *err);
tt_status far_launch(void *self, tt_device_graph *g, tt_device_queue *q, tt_error *err);
void far_graph_free(void *self, tt_device_graph *g);
/* Adds the node as an item, takes the caller's reference, and returns the item's number. */
int far_graph_add(tt_device_graph *g, int queue, far_node *n);
/* The queue's work becomes part of the graph too. */
tt_status far_graph_join(tt_device_graph *g, tt_device_queue *q, tt_error *err);

/* ---- comm.c, collective.c ---- */
extern const tt_comm_vt far_comm_vt;
extern const tt_device_vt far_device_vt;
/* The call gets its number among this member's calls of the group. */
void far_collective_attach(far_node *n);
bool far_collective_ready(const far_node *n);
/* Calls found(node) for the other members' calls that this one needs and that did not run. False: at
 * least one of them has not been made; err says which. */
bool far_collective_needs(const far_node *n, void (*found)(far_node *), tt_error *err);
/* Runs the call, of all members if it is one of all; their nodes have run then. */
void far_collective_run(far_node *n);
/* It will not run: the group fails. */
void far_collective_skip(far_node *n);
/* It waited too long for what `missing` says. */
void far_collective_break(far_node *n, tt_status s, const tt_error *missing);
struct far_collective *far_collective_again(const struct far_collective *c);
void far_collective_drop(struct far_collective *c);
double far_comm_timeout(const far_comm *c);
/* TT_OK or why the run is being stopped; called without the lock. */
tt_status far_comm_stopped(const far_comm *c, tt_error *err);

#endif
