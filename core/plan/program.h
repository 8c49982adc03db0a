/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PROGRAM_H
#define TT_PROGRAM_H
#include "mesh/mesh.h"
#include "pipeline/programs.h"
#include "plan/predicate.h"
#include <ttrun/backend.h>
#include <ttrun/param.h>
/* The program of one rank (R23): what it runs in a step, as one flat value. core/plan lowers the
 * ordered nodes to it once; core/exec runs it, and the code that verifies, estimates, traces or prints
 * a step walks it. It holds places (space, offset), never an address.
 *
 * Instructions stand in the order in which they are issued, each on a queue. Queue 0 computes and
 * exchanges messages; each group whose collectives run concurrently with that has a further queue.
 * A happens before b if both are on one queue and a stands first, or if a RECORD after a and a WAIT
 * before b name the same event. Nothing else orders queues. */
typedef enum tt_space {
    TT_SPACE_NONE,
    TT_SPACE_PINNED,    /* of a device: pinned host memory, for states that only copies touch */
    TT_SPACE_OFFLOADED, /* … for values of a forward until its backward; slots hold it, too */
    TT_SPACE_STATE,     /* parameters, optimizer, accumulators, scalars, metrics */
    TT_SPACE_SLOT,      /* + a tt_hold */
    TT_SPACE_KEEP,
    TT_SPACE_WGRAD,
    TT_SPACE_WORK,
    TT_N_SPACES
} tt_space;
static inline bool tt_space_holds(tt_space s)
{
    return s >= TT_SPACE_SLOT && s <= TT_SPACE_WGRAD;
}
const char *tt_space_name(tt_space s);

/* The parts of a stage's work for one micro-batch. */
typedef enum tt_stage_part {
    TT_PART_F,
    TT_PART_I, /* the whole backward where the schedule does not split it */
    TT_PART_W,
    TT_N_PARTS
} tt_stage_part;
typedef enum tt_instr_kind {
    TT_INSTR_KERNEL,     /* out = kernel(in), of the backend */
    TT_INSTR_COLLECTIVE, /* the step's, among the ranks of its group */
    TT_INSTR_LOCAL,      /* a step that needs no other rank: slice, join, sum */
    TT_INSTR_SEND,       /* in[0] to the pipeline rank `peer` */
    TT_INSTR_RECV,       /* out[0] from it */
    TT_INSTR_STAGE_SUM,  /* out[0] = what all stages give, added in stage order; without operands:
                            the result of the STAGE_SUM of the same event */
    TT_INSTR_COPY,       /* out[0] = in[0] */
    TT_INSTR_FILL,       /* out[0] = the step's neutral element */
    TT_INSTR_INPUT,      /* out[0] = an input of this micro-batch, from the host */
    TT_INSTR_ADOPT,      /* nothing runs: in[] already lie in out[0] and form it from here on */
    TT_INSTR_RECORD,     /* the event happens when all earlier work of its queue is done */
    TT_INSTR_WAIT,       /* its queue waits until the event has happened, but not if its RECORD
                            did not run since the last wait */
    TT_INSTR_LOOP,       /* up to END_LOOP once per chunk of in[0]'s rows, at least once */
    TT_INSTR_END_LOOP,
    TT_N_INSTR_KINDS
} tt_instr_kind;
const char *tt_instr_kind_name(tt_instr_kind k); /* "kernel" */

/* Which number of rows its first dim has; the host sets it before each call (R8). */
typedef enum tt_extent {
    TT_EXTENT_NONE, /* as planned */
    TT_EXTENT_TOKENS,
    TT_EXTENT_PICKED,
    TT_N_EXTENTS
} tt_extent;

/* A value as an instruction sees it. */
typedef struct tt_operand {
    int value;  /* its number, %n in prints; -1: a state, not a value */
    int writer; /* the operand whose bytes these are, itself unless it is a view or a slice */
    int root;   /* the operand whose memory they lie in: of a piece the whole */
    uint8_t space, extent;
    bool rows;       /* in a loop: a chunk of its rows at a time */
    bool chunk_only; /* only a chunk's rows of it are in memory, each chunk in the same place */
    bool here;       /* false: another rank's */
    int slot;        /* of tt_program.slots: where each micro-batch has it; -1: all in one place */
    int param; /* of tt_program.params, with buffers; in the parent's memory, if any; -1: none */
    int64_t offset;            /* in its space; with a slot, in the slot */
    int64_t bytes;             /* that the plan reserves for it there, on the fullest rank */
    int64_t extent_rows;       /* of this operand, for each row of its extent */
    int64_t row_bytes;         /* from a row to the next; 0: chunk_only */
    tt_tensor tensor;          /* this rank's box; data is NULL */
    const struct tt_value *of; /* for core/plan's own walks; NULL: a state */
} tt_operand;

typedef struct tt_instr {
    uint8_t kind;           /* tt_instr_kind */
    uint8_t queue;          /* it is issued on */
    tt_predicate predicate; /* it runs */
    tt_predicate adds;      /* it adds to out[0] instead of storing */
    int8_t in_place;        /* the operand whose bytes out[0] takes over; -1: none */
    bool take_infinity;     /* -inf is a legal result */
    bool scaled;            /* tt_node.scaled */
    bool fused;             /* a program of pointwise ops */
    int16_t n_in, n_out, n_last_used;
    const int *in, *out;  /* of tt_program.operands */
    const int *last_used; /* operands in work that nothing reads after this, for debug.poison */
    int counts; /* an operand: the sum of its i32 says how many rows in[j] (bit j of counted_in) and
                   out[j] have (R8); -1: as planned */
    uint32_t counted_in, counted_out;
    int id;    /* of the node it was lowered from: equal on all ranks */
    int event; /* RECORD, WAIT, STAGE_SUM */
    int peer;  /* SEND, RECV: pipeline rank */
    int end;   /* LOOP: its END_LOOP */
    int stage;
    int64_t scratch; /* offset in work; -1: none */
    int64_t scratch_bytes;
    const char *op, *scope; /* for people: "linear", "model.layers.3.mlp" */
    const char *kernel;     /* KERNEL: the backend's, "add" of an op "accumulate" */
    const char *input;      /* INPUT */
    const void *attrs;
    const tt_type *type;        /* of a step: of the value that it moves, global */
    const tt_lower_step *step;  /* COLLECTIVE, LOCAL, FILL, and COPY of a mask; else NULL */
    const struct tt_node *node; /* for core/plan's own walks */
} tt_instr;
static inline bool tt_instr_communicates(const tt_instr *i)
{
    return (i->kind >= TT_INSTR_SEND && i->kind <= TT_INSTR_STAGE_SUM) ||
           i->kind == TT_INSTR_COLLECTIVE;
}

/* Where a stage keeps a class of values between the parts of a micro-batch. */
typedef struct tt_slot_rule {
    uint8_t space, hold; /* hold: tt_hold, how long it has them */
    int stage;
    int64_t base, bytes; /* of slot 0 in its space; from a slot to the next */
    int n;
    const int *slot; /* by micro-batch */
} tt_slot_rule;

typedef enum tt_section_kind {
    TT_SECTION_F, /* tt_stage_part */
    TT_SECTION_I,
    TT_SECTION_W,
    TT_SECTION_RECV_F, /* receives for a stage's forward, for its backward */
    TT_SECTION_RECV_B,
    TT_SECTION_EPILOGUE,
    TT_SECTION_UPDATE,
    TT_N_SECTION_KINDS
} tt_section_kind;
typedef struct tt_section {
    tt_section_kind kind;
    int stage;       /* -1: epilogue, update */
    int first_micro; /* the micro-batch that stores where later ones add; -1: none does */
    int only_if;     /* of tt_program.states: it runs only where this scalar is not 0; -1: always */
    int begin, end;  /* instructions */
} tt_section;
const char *tt_section_phase(tt_section_kind k); /* "forward", "backward", "epilogue", "update" */

typedef struct tt_call { /* a section, run for a micro-batch */
    int section, micro;
    bool first;          /* the stage's first micro-batch of the step, of this direction */
    uint8_t ends;        /* bit per tt_hold: its values there are not read again */
    const tt_item *item; /* of the pipeline's program */
} tt_call;

typedef struct tt_program_queue { /* queues 1, 2, …: element 0 is queue 1 */
    tt_atom_list atoms;           /* of its group; none: copies between device and host memory */
    uint8_t copies;               /* 1: to the device, 2: to the host; 0: collectives */
    int n_collectives;            /* instructions on it */
} tt_program_queue;

typedef struct tt_program_state {
    const char *name;
    int64_t offset; /* in its space, the state space or the pinned one; -1: on other ranks */
    uint8_t space;
    bool moments; /* an optimizer's: zero before the first step, read before it is written */
    bool fresh;   /* each step stores it before it is read: sums, metrics, gathered parameters */
    bool owner;   /* this rank's is the first of its replicas */
    uint16_t partial; /* atoms over which it is a contribution to a sum */
    bool for_host; /* a scalar or a metric: the host finds it by its name, which others may have */
    tt_tensor tensor;
} tt_program_state;

/* A parameter, an optimizer's state of one, or a buffer: the content of a checkpoint. */
typedef struct tt_program_param {
    const char *name, *suffix; /* suffix NULL: the parameter itself; "exp_avg" */
    const struct tt_param_info *info;
    const tt_init *init;            /* of the parameter or buffer itself; else NULL */
    bool buffer, copies, evaluated; /* info is NULL; of an optimizer's state, as of the tt_state */
    bool transient, of_trainer; /* a buffer: in no checkpoint; of the update, not of the model */
    const float *values;        /* a buffer's initial values, the whole array; NULL: by init */
    bool owner;                 /* this rank's is the first of its replicas */
    uint8_t space;              /* as of the state */
    int64_t offset;             /* in it; -1: on other ranks */
    tt_tensor tensor;
} tt_program_param;

typedef struct tt_program {
    const tt_mesh *mesh;
    const struct tt_graph *graph; /* for core/plan's own walks */
    int32_t coords[TT_MAX_ATOMS]; /* of the rank */
    int pp_rank, n_micro;
    tt_instr *instrs;
    int n;
    tt_operand *operands;
    int n_operands, most_operands; /* most: of one instruction */
    tt_section *sections;
    int n_sections;
    int epilogue, update; /* sections */
    int seed, step;       /* states that kernels read for random numbers; -1: none */
    tt_call *calls;       /* of a step's micro-batches, in order */
    int n_calls;
    tt_slot_rule *slots;
    int n_slots;
    tt_program_queue *queues;
    int n_queues;
    int n_events, n_sums; /* numbered from 1; n_sums: of STAGE_SUM */
    tt_program_state *states;
    int n_states;
    tt_program_param *params;
    int n_params;
    int64_t chunk_rows, most_chunks; /* of loops */
    int64_t most_rows[TT_N_EXTENTS];
    int64_t bytes[TT_N_SPACES];
    /* of host memory: what an instruction of the epilogue or the update is about to write over, so that
     * it can run again; 0: none does */
    int64_t kept;
    int64_t alignment; /* of all offsets */
    /* state space: what the host writes before a step lies before the first, what it reads the second */
    int64_t written_end, read_end;
} tt_program;

/* What the items of a pipeline rank run, in order. */
tt_call *tt_program_calls(const tt_program *p, const tt_programs *items, tt_arena *a, int *n);
const tt_section *tt_program_section(const tt_program *p, int stage,
                                     tt_section_kind kind); /* NULL: on another rank */
int64_t tt_program_bytes(const tt_program *p); /* of all spaces but the pinned ones, and kept */
void tt_program_print(const tt_program *p, tt_str *out);
/* By an abstract run: no two live values share a byte, readers find their value, queues wait for it. */
tt_status tt_program_verify(const tt_program *p, tt_error *err);
void tt_program_find_last_uses(tt_program *p, tt_arena *a); /* of values in work: last_use.c */
struct tt_machine;
typedef struct tt_instr_cost { /* by the ops' rules, for this rank's shapes */
    double flops, bytes;
    double seconds; /* at least, on the machine; communication: 0 */
} tt_instr_cost;
/* rows: of the chunk, < 0: not in a loop; adds: to what out[0] held; m NULL: seconds 0. */
tt_instr_cost tt_instr_cost_of(const tt_program *p, const tt_instr *i, int64_t rows, bool adds,
                               const struct tt_machine *m);

#endif
