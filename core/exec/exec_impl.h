/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_EXEC_IMPL_H
#define TT_EXEC_IMPL_H
#include "comm/async.h"
#include "exec/exec.h"

/* Inside of exec: a program's instructions with this process's addresses, kernels and groups. */

typedef struct tt_bound_operand {
    tt_tensor tensor; /* data: slot 0's; NULL: another rank's */
    const int *slot;  /* by micro-batch; NULL: the same place for all */
    int64_t slot_bytes, row_bytes;
    uint8_t extent;
    bool rows; /* in a loop: one chunk of rows at a time */
} tt_bound_operand;

typedef struct tt_collective {
    tt_step_kind kind;
    tt_group_comm group;
    int64_t *counts, *recv_counts; /* by member */
    tt_box *send_box, *recv_box;   /* relative to the local tensors */
    bool packed, unpacked;         /* the tensors themselves can be sent, received */
    int *order;                    /* SUM: by member, the input that is its */
    tt_reduce reduce;
} tt_collective;

/* A collective on a queue of its own, from its instruction to the wait for its event. */
typedef struct tt_flight {
    tt_exec *x;
    const struct tt_bound *bound; /* as it was begun, with these operands */
    tt_tensor in, out;
    int micro;
    bool under_way;
    int queue; /* of x->queues; < 0: made where it is waited for (poison) */
    tt_ticket ticket;
    int64_t begin_ns, end_ns; /* of the call, by the queue's thread; only while traced */
} tt_flight;

typedef struct tt_bound {
    uint8_t kind; /* the instruction's; WAIT and RECORD of other queues than 0 do nothing here */
    tt_predicate predicate, adds;
    bool communicates;
    int n_in, n_out;
    tt_bound_operand *in, *out;
    const tt_kernel *kernel;
    void *scratch;
    const tt_instr *instr;
    tt_collective *collective; /* COLLECTIVE, LOCAL, FILL */
    tt_flight *flight; /* COLLECTIVE: begun here, waited for elsewhere; WAIT: for this one */
    float *sum;        /* STAGE_SUM */
} tt_bound;

typedef struct tt_trace_event { /* one instruction, once */
    const tt_instr *instr;
    int64_t begin_ns, end_ns;
    int64_t rows; /* of the token chunk; < 0: not in a loop */
    int micro;
    int queue; /* 0: by the rank's own thread */
    bool wait; /* for the instruction, not the instruction itself */
    bool adds; /* to what its output held */
} tt_trace_event;

typedef struct tt_queue { /* of the collectives of one group */
    uint16_t atoms;
    tt_async *async; /* the parent's where that has one; NULL: none was needed */
    bool own;
} tt_queue;

typedef struct tt_trace tt_trace;
typedef struct tt_item_times tt_item_times;

struct tt_exec {
    tt_exec_opts o;
    const tt_program *p;
    tt_arena *arena;
    uint8_t *space[TT_N_SPACES];
    size_t mapped[TT_N_SPACES];
    tt_bound *code;  /* by instruction */
    tt_tensor *args; /* scratch for a call's operands */
    tt_group_comm pipeline;
    int64_t step;
    uint64_t *seed_at; /* the program's states for them; NULL: it has none */
    double *step_at;
    int64_t rows[TT_N_EXTENTS];
    int64_t comm_ns, message_ns; /* message_ns: of that, between pipeline neighbours */
    tt_trace *trace;             /* NULL: not recording now */
    tt_trace *recording;         /* its buffers, once made */
    tt_item_times *item_times;   /* made with them */
    /* poison: end of the highest byte of work memory an instruction was given */
    int64_t high_water;
    TT_VEC(tt_group_comm) groups;
    TT_VEC(uint16_t) group_atoms;
    tt_queue *queues; /* as the program's */
};

#define TT_CANARY_BYTES 4096

/* bind.c */
tt_status tt_exec_bind(tt_exec *x, tt_error *err);
/* collective.c */
tt_status tt_exec_bind_collective(tt_exec *x, tt_bound *b, tt_error *err);
tt_status tt_exec_run_collective(const tt_exec *x, const tt_bound *b, const tt_tensor *in,
                                 const tt_tensor *out, tt_comm *comm, tt_error *err);
void tt_exec_fill_neutral(const tt_tensor *t, tt_reduce op);
tt_status tt_exec_group(tt_exec *x, const tt_atom_list *atoms, tt_group_comm *out, tt_error *err);
/* async_tp.c: joins and sums */
tt_status tt_exec_bind_async_tp(tt_exec *x, tt_bound *b, tt_error *err);
void tt_exec_run_async_tp(const tt_exec *x, const tt_bound *b, const tt_tensor *in,
                          const tt_tensor *out);
/* flight.c */
tt_status tt_exec_bind_flight(tt_exec *x, tt_bound *b, tt_error *err); /* where it may fly */
tt_status tt_exec_take_off(tt_flight *f, const tt_bound *b, const tt_tensor *in,
                           const tt_tensor *out, int micro, tt_error *err);
/* Until it is over; nothing where it is not under way. dead: what the wait is the last to need. */
tt_status tt_exec_land(tt_flight *f, const tt_instr *wait, tt_error *err);
void tt_exec_free_queues(tt_exec *x);
tt_status tt_exec_name_step(const tt_exec *x, const tt_instr *i, tt_error *err);
/* trace.c */
void tt_exec_trace_next(tt_trace *t); /* workers' slices from here belong to the next event */
void tt_exec_trace_add(tt_trace *t, const tt_trace_event *e);
void tt_exec_trace_free(tt_trace *t);
/* item_times.c */
tt_status tt_exec_item_times_open(tt_exec *x, tt_error *err);
void tt_exec_item_times_free(tt_item_times *t);
void tt_exec_item_times_clear(tt_exec *x);
void tt_exec_item_begins(const tt_exec *x);
void tt_exec_item_ends(const tt_exec *x, const tt_item *i);
/* debug.c */
tt_status tt_exec_check_finite(tt_exec *x, const tt_instr *i, const tt_tensor *out, int n,
                               int micro, tt_error *err);
void tt_exec_poison(void *p, size_t bytes);
/* Behind an instruction: note how high it reached, look at the canaries. */
tt_status tt_exec_after(tt_exec *x, const tt_bound *b, const tt_tensor *out, tt_error *err);
/* Poison what an instruction is the last to read; after a call, the slots that end with it. */
void tt_exec_poison_last_used(const tt_exec *x, const tt_instr *i);
void tt_exec_poison_slots(const tt_exec *x, const tt_call *c);
/* Every byte that no instruction was given is as poison left it: behind the spaces and above the
 * high water. */
tt_status tt_exec_check_untouched(const tt_exec *x, tt_error *err);

#endif
