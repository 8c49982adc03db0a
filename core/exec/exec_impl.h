/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_EXEC_IMPL_H
#define TT_EXEC_IMPL_H
#include "comm/async.h"
#include "exec/exec.h"

/* Inside of exec: bound instructions. */

typedef enum tt_instr_kind {
    TT_INSTR_KERNEL,
    TT_INSTR_COLLECTIVE,
    TT_INSTR_SEND,
    TT_INSTR_RECV,
    TT_INSTR_STAGE_SUM,
    TT_INSTR_ACCUMULATE, /* not fused into its producer */
    TT_INSTR_ASSIGN,
    TT_INSTR_INPUT
} tt_instr_kind;

/* Which of a program's row counts the first dim has (decoding), else as planned. */
typedef enum tt_extent { TT_EXTENT_NONE, TT_EXTENT_TOKENS, TT_EXTENT_PICKED } tt_extent;

typedef struct tt_operand {
    tt_tensor tensor; /* data: slot 0's */
    tt_extent extent;
    const int *slot;    /* by micro-batch; NULL = the same place for all */
    int64_t slot_bytes; /* from one slot to the next */
    bool rows;          /* of a loop node: one chunk of rows at a time */
    int64_t row_bytes;  /* from one chunk's rows to the next; 0 = each chunk in the same place */
} tt_operand;

typedef struct tt_collective {
    tt_step_kind kind;
    tt_group_comm group;
    int64_t *counts, *recv_counts; /* by member */
    tt_box *send_box, *recv_box;   /* relative to the local tensors */
    int n_dims;
    bool packed, unpacked; /* the tensors themselves can be sent, received */
    bool zero;             /* MASK: this rank holds the neutral element */
    int *order;            /* SUM: by member, the input that is its */
    tt_reduce reduce;
} tt_collective;

/* An async collective, from its instruction to its wait. */
typedef struct tt_flight {
    tt_exec *x;
    const tt_node *node;
    const struct tt_instr *instr; /* as it was begun, with these operands */
    tt_tensor in, out;
    int micro;
    bool under_way;
    int queue; /* of x->queues; < 0: made where it is waited for (poison) */
    tt_ticket ticket;
    int64_t begin_ns, end_ns; /* of the call, by the queue's thread; only while traced */
} tt_flight;

typedef struct tt_instr {
    tt_instr_kind kind;
    const tt_node *node;
    const tt_kernel *kernel;
    tt_operand *in, *out;
    int n_in, n_out;
    void *scratch;
    size_t scratch_bytes;
    bool adds;  /* out[0] is an accumulator: stored for the first micro-batch, added to after */
    bool again; /* … and added to even then: another op stored already */
    bool sums;  /* of a loop node: out[0] is summed over the chunks */
    tt_collective *collective;
    int peer;              /* SEND, RECV: member of the pipeline group */
    float *sum;            /* STAGE_SUM */
    bool twin;             /* STAGE_SUM: done for another stage of this rank, its sum is there */
    const char *input;     /* INPUT */
    const tt_value **dead; /* poison: values in work memory that die here, or with the wait */
    int n_dead;
    tt_flight *flight; /* COLLECTIVE: begun here, waited for elsewhere; NULL = done here */
    tt_flight **waits; /* to be over before this begins */
    int n_waits;
} tt_instr;

static inline bool tt_instr_communicates(const tt_instr *i)
{
    return (i->kind == TT_INSTR_COLLECTIVE && !tt_step_is_local(i->node->step->kind)) ||
           i->kind == TT_INSTR_SEND || i->kind == TT_INSTR_RECV || i->kind == TT_INSTR_STAGE_SUM;
}

typedef struct tt_trace_event { /* one instruction, once */
    const tt_instr *instr;
    int64_t begin_ns, end_ns;
    int64_t rows; /* of the token chunk; < 0: not in a chunk loop */
    int micro;
    int queue; /* 1 + that of x->queues whose thread it ran on; 0: the rank's own */
    bool wait; /* for the instruction, not the instruction itself */
    bool adds; /* to what its output held */
} tt_trace_event;

typedef struct tt_instr_list {
    tt_instr *items;
    int n, cap;
    tt_flight **waits; /* behind the last */
    int n_waits;
} tt_instr_list;

typedef struct tt_queue { /* of the collectives of one group */
    uint16_t atoms;
    tt_async *async; /* the parent's where that has one */
    bool own;
} tt_queue;

typedef struct tt_stage_code {
    int stage;
    tt_instr_list part[TT_N_PARTS]; /* what leaves the stage is sent, or handed over, at the end */
    tt_instr_list recv[2];          /* into this stage: of forwards, of backwards */
    int first[2];                   /* micro-batch that stores: of forwards, of backwards */
} tt_stage_code;

typedef struct tt_trace tt_trace;
typedef struct tt_item_times tt_item_times;

struct tt_exec {
    tt_exec_opts o;
    tt_arena *arena;
    int32_t coords[TT_MAX_ATOMS];
    uint8_t *space[TT_N_SPACES];
    size_t mapped[TT_N_SPACES];
    tt_stage_code *code; /* of this rank's stages */
    int n_code;
    tt_instr_list epilogue, update;
    tt_instr_list **lists; /* all of the above */
    int n_lists;
    tt_tensor *args; /* scratch for a call's operands */
    tt_group_comm pipeline;
    int pp; /* this rank's pipeline coordinate */
    int64_t step;
    int64_t rows[3];             /* by tt_extent */
    int64_t comm_ns, message_ns; /* message_ns: of that, between pipeline neighbours */
    tt_trace *trace;             /* NULL: not recording now */
    tt_trace *recording;         /* its buffers, once made */
    tt_item_times *item_times;   /* made with them */
    int64_t
        high_water; /* poison: end of the highest byte of work memory an instruction was given */
    TT_VEC(tt_group_comm) groups;
    TT_VEC(uint16_t) group_atoms;
    TT_VEC(tt_queue) queues;
    tt_flight **flights; /* by node id; NULL = the node is not begun early here */
};

#define TT_CANARY_BYTES 4096

/* bind.c */
tt_status tt_exec_bind(tt_exec *x, tt_error *err);
void *tt_exec_state_data(const tt_exec *x, const tt_state *s, int member);
/* collective.c */
tt_status tt_exec_bind_collective(tt_exec *x, tt_instr *i, tt_error *err);
tt_status tt_exec_run_collective(const tt_exec *x, const tt_instr *i, const tt_tensor *in,
                                 const tt_tensor *out, tt_comm *comm, tt_error *err);
/* pieces.c: joins and sums */
bool tt_exec_lies_there(const tt_node *n); /* what it gives is in its place already */
tt_status tt_exec_bind_pieces(tt_exec *x, tt_instr *i, tt_error *err);
void tt_exec_run_pieces(const tt_exec *x, const tt_instr *i, const tt_tensor *in,
                        const tt_tensor *out);
tt_status tt_exec_group(tt_exec *x, const tt_atom_list *atoms, tt_group_comm *out, tt_error *err);
/* flight.c */
tt_status tt_exec_bind_flight(tt_exec *x, tt_instr *i, tt_error *err); /* where it may fly */
tt_status tt_exec_take_off(tt_flight *f, const tt_instr *i, const tt_tensor *in,
                           const tt_tensor *out, int micro, tt_error *err);
/* Until these are over; those that are not under way are none to wait for. */
tt_status tt_exec_land(tt_flight *const *fs, int n, tt_error *err);
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
void tt_exec_find_deaths(tt_exec *x);
/* Behind an instruction: note how high it reached, look at the canaries, poison what died with it.
 */
tt_status tt_exec_after(tt_exec *x, const tt_instr *i, const tt_tensor *out, bool bury,
                        tt_error *err);
void tt_exec_bury(const tt_exec *x, const tt_instr *i);
/* Every byte that no instruction was given is as poison left it: behind the spaces and above the
 * high water. */
tt_status tt_exec_check_untouched(const tt_exec *x, tt_error *err);

#endif
