/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_EXEC_IMPL_H
#define TT_EXEC_IMPL_H
#include "comm/async.h"
#include "comm/exchange.h"
#include "exec/exec.h"

/* Inside core/exec: a program's instructions with this process's addresses, kernels and groups. */

typedef struct tt_bound_operand {
    tt_tensor tensor; /* data: in slot 0; NULL: on another rank */
    const int *slot;  /* by micro-batch; NULL: the same place for all */
    int64_t slot_bytes, row_bytes;
    uint8_t extent;
    bool rows; /* in a loop: one chunk of its rows at a time */
} tt_bound_operand;

/* A collective on a queue of its own, from its instruction to the wait for its event. */
typedef struct tt_pending {
    tt_exec *x;
    const struct tt_bound *bound; /* as it was begun, with these operands */
    tt_tensor in, out;
    int micro;
    bool begun;
    int queue; /* of x->queues; < 0: the call is made at the wait (poison) */
    tt_ticket ticket;
    int64_t begin_ns, end_ns; /* of the call, in the queue's thread; only while tracing */
} tt_pending;

typedef struct tt_bound {
    uint8_t kind; /* the instruction's. A WAIT or RECORD of another queue than 0 does nothing */
    tt_predicate predicate, adds;
    bool communicates;
    int n_in, n_out;
    tt_bound_operand *in, *out;
    const tt_kernel *kernel;
    void *scratch;
    const tt_instr *instr;
    tt_exchange *exchange; /* COLLECTIVE, LOCAL, FILL */
    tt_pending *pending;   /* COLLECTIVE: begun here and waited for elsewhere; WAIT: for this one */
    float *sum;            /* STAGE_SUM */
} tt_bound;

typedef struct tt_queue { /* of the collectives of one group */
    uint16_t atoms;
    tt_async *async; /* the parent's if it has one for this group; NULL: none was needed */
    bool own;
} tt_queue;

struct tt_exec {
    tt_exec_opts o;
    const tt_program *p;
    tt_arena *arena;
    uint8_t *space[TT_N_SPACES];
    size_t mapped[TT_N_SPACES];
    tt_bound *code;  /* by instruction */
    tt_tensor *args; /* room for the operands of one call */
    tt_group_comm pipeline;
    int64_t step;
    uint64_t *seed_at; /* the program's states for them; NULL: it has none */
    double *step_at;
    int64_t rows[TT_N_EXTENTS];
    int64_t comm_ns, message_ns; /* message_ns: of that, between pipeline neighbours */
    tt_trace *trace;             /* NULL: not recording now */
    tt_trace *recording;         /* its buffers, once made */
    int64_t high_water; /* with poison: end of the highest byte of work memory that was given out */
    TT_VEC(tt_group_comm) groups;
    TT_VEC(uint16_t) group_atoms;
    tt_queue *queues; /* as the program's */
};

#define TT_CANARY_BYTES 4096

/* bind.c */
tt_status tt_exec_bind(tt_exec *x, tt_error *err);
/* pending.c */
tt_status tt_exec_bind_pending(tt_exec *x, tt_bound *b, tt_error *err);
tt_status tt_exec_begin(tt_pending *c, const tt_bound *b, const tt_tensor *in, const tt_tensor *out,
                        int micro, tt_error *err);
/* Waits until the collective has ended; nothing if it was not begun. wait: the instruction. */
tt_status tt_exec_end(tt_pending *c, const tt_instr *wait, tt_error *err);
void tt_exec_free_queues(tt_exec *x);
tt_status tt_exec_name_step(const tt_exec *x, const tt_instr *i, tt_error *err);
/* record.c */
void tt_trace_next(tt_trace *t); /* workers' slices from here belong to the next event */
void tt_trace_add(tt_trace *t, const tt_trace_event *e);
void tt_trace_free(tt_trace *t);
void tt_trace_item_begins(const tt_exec *x);
void tt_trace_item_ends(const tt_exec *x, const tt_item *i);
/* debug.c */
tt_status tt_exec_check_finite(tt_exec *x, const tt_instr *i, const tt_tensor *out, int n,
                               int micro, tt_error *err);
void tt_exec_poison(void *p, size_t bytes);
/* After an instruction: notes the highest byte that it was given and looks at the canaries. */
tt_status tt_exec_after(tt_exec *x, const tt_bound *b, const tt_tensor *out, tt_error *err);
/* Poisons what the instruction, or the slots that the call, was the last to read. */
void tt_exec_poison_last_used(const tt_exec *x, const tt_instr *i);
void tt_exec_poison_slots(const tt_exec *x, const tt_call *c);
/* Every byte that no instruction was given is still poison: behind the spaces and above the high
 * water. */
tt_status tt_exec_check_untouched(const tt_exec *x, tt_error *err);

#endif
