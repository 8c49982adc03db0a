/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_EXEC_IMPL_H
#define TT_EXEC_IMPL_H
#include "comm/async.h"
#include "comm/data_comm.h"
#include "comm/exchange.h"
#include "exec/exec.h"
#include "plan/memory.h"

/* Inside core/exec: a program's instructions with this process's addresses, kernels and groups. */

typedef struct tt_bound_operand {
    tt_tensor tensor; /* data: in slot 0; NULL: on another rank */
    const int *slot;  /* by micro-batch; NULL: the same place for all */
    int64_t slot_bytes, row_bytes, extent_rows;
    uint8_t extent;
    bool rows;    /* in a loop: one chunk of its rows at a time */
    bool counted; /* it has as many rows as tt_bound.counts says */
} tt_bound_operand;

/* A collective on a queue of its own, from its instruction to the wait for its event. */
typedef struct tt_pending {
    tt_exec *x;
    const struct tt_bound *bound; /* as it was begun, with these operands */
    tt_tensor in[3], out;         /* in: as many as the instruction has */
    int micro;
    bool begun;
    int queue; /* of x->queues; -1: the call is made at the wait (poison) */
    tt_ticket ticket;
    int64_t begin_ns, end_ns; /* of the call, in the queue's thread; only while tracing */
} tt_pending;

typedef struct tt_bound {
    uint8_t kind; /* the instruction's. A WAIT or RECORD of another queue than 0 does nothing */
    tt_predicate predicate, adds;
    uint8_t communicates; /* 0: it does not; 1 + the number of its axes in x->comm */
    int n_in, n_out;
    tt_bound_operand *in, *out;
    const tt_bound_operand *counts; /* their sum: the rows of `counted` operands; or NULL */
    const tt_kernel *kernel;
    void *scratch;
    const tt_instr *instr;
    tt_exchange *exchange; /* COLLECTIVE, LOCAL, FILL */
    int queue;             /* of x->queues that it is put on; 0: of the rank itself */
    size_t input;          /* INPUT of a device: where its first micro-batch is in x->inputs */
    const struct tt_bound *over; /* WAIT of a device's queue 0: the collective that it waits for */
    tt_pending *pending; /* COLLECTIVE: begun here and waited for elsewhere; WAIT: for this one */
    float *sum;          /* STAGE_SUM */
} tt_bound;

/* Where a program's work is put. Element 0 is the rank's own queue; on the host that is this thread.
 * The others are those of groups: on the host each is a thread. */
typedef struct tt_queue {
    uint16_t atoms;
    tt_async *async;  /* host: the parent's if it has one for this group; NULL: none was needed */
    tt_comm *comm;    /* device: the group's handle for this queue */
    tt_mover mover;   /* device queue; of the host's it is used on any thread */
    bool own, opened; /* own: not the parent's */
    int64_t epoch;    /* in which it last waited for queue 0 (events.c) */
} tt_queue;

/* The inputs of a step on their way to a device. The host writes those of all micro-batches to pinned
 * memory, a queue of their own copies them up beside other work, and each INPUT takes its part. */
typedef struct tt_input_stage {
    tt_device_queue *queue;
    tt_device_event *copied; /* they are in device memory */
    tt_device_event *read;   /* the program has taken those of the last step */
    char *pinned, *device;
    size_t bytes;
} tt_input_stage;

/* Timed events of a device, in pairs (times.c). */
typedef struct tt_times {
    /* Around what queue 0 waits for other ranks in: pairs since the last epilogue, the room for them, and
     * those up to it, which are read when the host has its metrics. */
    tt_device_event **comm, **comm_before;
    size_t n_comm, most_comm, n_comm_before;
    bool in_graphs;        /* the step up to the last epilogue launched graphs that communicate */
    tt_device_event *base; /* at the begin of a traced step */
    int64_t base_ns;
    tt_device_event **events, **items; /* of the trace */
    size_t n_events, n_items;
    size_t *first_of_item; /* event of the trace */
} tt_times;

/* ---- capture.c ---- */
typedef struct tt_graph_part { /* of a section */
    int begin, end;            /* instructions */
    bool captured;             /* it becomes graphs; false: the host issues it each time */
    bool communicates;
} tt_graph_part;
typedef struct tt_captured {  /* a part, for micro-batches whose values lie in the same places */
    int part, section, micro; /* micro: the first of them */
    bool first;               /* of the step: stores where later ones add */
    bool used, refused;       /* it has run; the device could not capture it */
    tt_device_graph *graph;   /* NULL: not captured yet */
} tt_captured;
typedef struct tt_graphs {
    bool on, capturing;
    bool comm; /* since the last epilogue graphs that communicate were launched */
    TT_VEC(tt_graph_part) parts;
    int *first_part; /* by section */
    TT_VEC(tt_captured) graphs;
    TT_VEC(int) uses; /* by a call's parts: which of graphs; -1: none */
    int *first_use;   /* by call; the epilogue and the update are the last two */
    int64_t n_graphs, n_refused, n_launches;
} tt_graphs;

struct tt_exec {
    tt_exec_opts o;
    const tt_program *p;
    tt_arena *arena;
    uint8_t *space[TT_N_SPACES];
    size_t mapped[TT_N_SPACES];
    unsigned borrowed; /* bit s: space s belongs to another program (succeed.c) */
    tt_bound *code;    /* by instruction */
    tt_tensor *args;   /* room for the operands of one call */
    tt_group_comm pipeline;
    int64_t step;
    tt_error overflow;       /* of this step; code TT_OK: none */
    const uint64_t *seed_at; /* in the backend's memory; NULL: the program does not use it */
    int64_t before;          /* steps before the first that the optimizer counts */
    const double *step_at;
    /* The first read_end bytes of the state space, as the host sees them: on the host the very bytes. On a device by
     * pinned memory: scalars in turns through two slots, as those of the step before are still read, then the metrics. */
    uint8_t *scalars, *pinned;
    bool measured, scalars_changed; /* measured: the step that runs */
    int slot;                       /* the next scalars' */
    tt_device_event *pushed[2];     /* by slot: its copy has ended */
    tt_device_event *pulled;        /* the metrics are in pinned memory */
    bool pulling;                   /* the host did not wait for that yet */
    int64_t pulled_step;
    tt_device_event **events; /* device: by the program's number */
    int64_t *recorded;        /* the epoch of each event's last record; -1: none */
    int64_t epoch;            /* events.c */
    tt_device_event *fence;
    tt_graphs graphs;
    tt_input_stage inputs;
    tt_stage stage; /* for tt_exec_read and tt_exec_write; opened when first used */
    tt_device_event *idle;
    float *sums;              /* by STAGE_SUM's event, in the backend's memory */
    const tt_kernel *initial; /* TT_OP_INITIAL; NULL: the host draws initial values */
    int64_t *bad_at;          /* device, debug: what "find_bad" finds */
    size_t sums_bytes;
    int64_t rows[TT_N_EXTENTS];
    tt_exec_comm comm;
    int64_t comm_ns, message_ns; /* message_ns: of that, between pipeline neighbours */
    tt_times times;
    tt_trace *trace, *recording; /* NULL: not recording now; its buffers, once made */
    int64_t high_water; /* with poison: end of the highest byte of work memory that was given out */
    TT_VEC(tt_group_comm) groups;
    TT_VEC(uint16_t) group_atoms;
    tt_queue *queues; /* [1 + the program's] */
    bool streams;     /* collectives of groups have device queues */
    tt_exec_checked checked;
    uint64_t *trail; /* trail.c: by instruction, then by state; NULL: none is left */
    uint16_t trail_atoms;
    bool twice;    /* twice.c */
    uint8_t *kept; /* tt_program.kept bytes; NULL: no instruction runs twice */
    tt_exec_differing differing;
};

static inline const tt_mover *tt_exec_mover(const tt_exec *x)
{
    return &x->queues[0].mover;
}

/* exec.c */
void tt_exec_set_step(tt_exec *x, int64_t step);
/* Waits for an event; a failure of work on the device becomes an error that says which step it is. */
tt_status tt_exec_await(const tt_exec *x, tt_device_event *e, tt_error *err);
/* bind.c */
tt_status tt_exec_bind(tt_exec *x, tt_error *err);
tt_status tt_exec_ask_kernel(const tt_exec *x, const tt_bound *b, tt_error *err); /* supports.c */
/* memory.c */
tt_status tt_exec_memory_open(tt_exec *x, tt_error *err);
void tt_exec_memory_close(tt_exec *x);
/* Copies scalars that the host has changed to the program. */
tt_status tt_exec_push_scalars(tt_exec *x, tt_error *err);
/* Begins to copy the metrics to the host; waits for that copy: then the host sees them. */
tt_status tt_exec_pull_metrics(tt_exec *x, tt_error *err);
tt_status tt_exec_wait_metrics(tt_exec *x, tt_error *err);
/* queues.c */
tt_status tt_exec_open_queues(tt_exec *x, tt_error *err);
void tt_exec_free_queues(tt_exec *x);
/* A queue for copies of states to or from pinned memory. */
tt_status tt_exec_copy_queue(tt_exec *x, int queue, tt_error *err);
/* The queue of a group, opened when an instruction needs it first. */
tt_status tt_exec_group_queue(tt_exec *x, int queue, const tt_group_comm *g, tt_error *err);
/* events.c */
tt_status tt_exec_events_open(tt_exec *x, tt_error *err);
void tt_exec_events_free(tt_exec *x);
tt_status tt_exec_event(tt_exec *x, const tt_bound *b, int micro, tt_error *err);
/* Before work is put on a queue. */
tt_status tt_exec_use_queue(tt_exec *x, int queue, tt_error *err);
/* What is put on any queue after this is behind all work so far. */
tt_status tt_exec_join_queues(tt_exec *x, tt_error *err);
/* capture.c */
void tt_exec_graphs_open(tt_exec *x, int most); /* instructions of a part, loops aside */
void tt_exec_graphs_free(tt_exec *x);
/* What a part of a call runs as from now on; NULL: instruction by instruction. */
tt_captured *tt_exec_graph(tt_exec *x, int use);
/* Where it fails, *c is refused and nothing is being captured. */
tt_status tt_exec_capture_begin(tt_exec *x, tt_captured *c, tt_error *err);
/* s, why: of what was put on the queues in between. */
void tt_exec_capture_end(tt_exec *x, tt_captured *c, tt_status s, tt_error *why);
tt_status tt_exec_launch(tt_exec *x, const tt_captured *c, tt_error *err);
/* inputs.c: on a device. */
tt_status tt_exec_bind_input(tt_exec *x, tt_bound *b, tt_error *err);
tt_status tt_exec_open_inputs(tt_exec *x, tt_error *err);
void tt_exec_free_inputs(tt_exec *x);
/* Fills and copies the inputs of all micro-batches of a step. */
tt_status tt_exec_send_inputs(tt_exec *x, tt_fill_fn fill, void *user, tt_error *err);
/* The program has taken all inputs of this step. */
tt_status tt_exec_inputs_read(tt_exec *x, tt_error *err);
tt_status tt_exec_take_input(tt_exec *x, const tt_bound *b, const tt_tensor *out, int micro,
                             tt_error *err);
/* pending.c */
tt_status tt_exec_bind_pending(tt_exec *x, tt_bound *b, tt_error *err);
tt_status tt_exec_begin(tt_pending *c, const tt_bound *b, const tt_tensor *in, const tt_tensor *out,
                        int micro, tt_error *err);
/* Waits until the collective has ended; nothing if it was not begun. wait: the instruction. */
tt_status tt_exec_end(tt_pending *c, const tt_instr *wait, tt_error *err);
tt_status tt_exec_name_step(const tt_exec *x, const tt_instr *i, tt_error *err);
/* times.c */
tt_status tt_exec_times_open(tt_exec *x, tt_error *err);
tt_status tt_exec_times_trace_open(tt_exec *x, size_t events, size_t items, tt_error *err);
void tt_exec_times_free(tt_exec *x);
tt_status tt_exec_times_begin(tt_exec *x, tt_error *err); /* of a step */
/* On a device, before and after each instruction; e: what the trace notes, without times. */
tt_status tt_exec_mark_begin(tt_exec *x, const tt_bound *b, tt_error *err);
tt_status tt_exec_mark_end(tt_exec *x, const tt_bound *b, const tt_trace_event *e, tt_error *err);
tt_status tt_exec_mark_item(tt_exec *x, bool end, tt_error *err);
/* The epilogue is on the queue: what follows belongs to the next step. */
void tt_exec_times_end_step(tt_exec *x);
/* The host has waited for the epilogue. */
tt_status tt_exec_times_read_comm(tt_exec *x, tt_error *err);
/* trail.c: before a collective. */
tt_status tt_exec_add_to_trail(tt_exec *x, const tt_bound *b, const tt_tensor *in, tt_error *err);
/* record.c */
void tt_trace_next(tt_trace *t); /* workers' slices from here belong to the next event */
void tt_trace_add(tt_trace *t, const tt_trace_event *e);
void tt_trace_free(tt_trace *t);
tt_status tt_trace_item_begins(tt_exec *x, tt_error *err);
tt_status tt_trace_item_ends(tt_exec *x, const tt_item *i, tt_error *err);

#endif
