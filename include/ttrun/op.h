/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_OP_H
#define TTRUN_OP_H
#include <ttrun/builder.h>

/* An op is one file: its shape rule, sharding rule, derivative and cost (R5, R16). Backends
 * register kernels by its name. An op without a kernel on a backend runs as its decomposition.
 *
 * The sharding rule is a string of letters, one per dim: "t i, o i -> t o".
 *   a, b -> c  inputs and outputs are separated by ','; a scalar is empty (", t -> t").
 *   missing    a letter that an output lacks is contracted there: that output is partial over the
 *              mesh atoms that cut the letter.
 *   !x         x must be whole: no atom cuts it.
 *   *          every dim of that operand (elementwise).
 *   x=(k g)    x has two factors: k takes the longest prefix of x's atoms whose product divides k's
 *              number of units, g takes the other atoms. Two groups with the same letter agree on
 *              its atoms. At most 4 different groups; one may stand at each operand.
 *   t=(b q)    b counts the token dim's lines, which are its sequences.
 *   t+2 k      t is shifted by two ranks along the ring of q's atoms: the operand's rows are those
 *              of the rank two further in the ring.
 * A letter that only an output has takes its size from that output's type. One letter may stand for
 * dims of different size if their unit counts (size / unit) are equal: "h" is both
 * [heads*head_dim] in units of head_dim and [heads].
 *
 * How an op without a kernel on a backend runs:
 *   decompose      It is written out as other ops while the model describes itself. Each of these is
 *                  placed by its own rule, and the rule of the op is not used. Right for what is
 *                  local in any case: pointwise ops, norms.
 *   TT_OP_LOCAL    The rule places the op and its operands first, as for a kernel; then decompose is
 *                  written on these operands, and each of its ops keeps the cut of its own operands.
 *                  Right for an op whose rule knows more than the rules of the parts: one that mixes
 *                  tokens of a sequence, or works on each head alone. decompose still names GLOBAL
 *                  shapes. The rule is a promise that decompose needs no communication: what would
 *                  need some is an error that names the letter. Constants, random numbers and
 *                  broadcast scalars that decompose makes are cut as what they are combined with. An
 *                  input of the step (seg, pos) should be an operand, which the rule then places: read
 *                  inside, a data rank has its own samples alone. Parameters, buffers, outputs, loss
 *                  terms and metrics are describe()'s.
 *   expand         It is written out as local ops AND redistributes, and needs a vjp. For an algorithm
 *                  of communication, such as a softmax over a cut dim.
 * The derivative is the vjp, or else that of the ops that decompose writes; without TT_OP_LOCAL an op
 * that is decomposed has the latter in any case. Where a kernel runs and there is no vjp, the backward
 * writes decompose on the operands and runs of it what the derivative reads. */

#ifdef __cplusplus
extern "C" {
#endif

#define TT_MAX_OUTS 4
#define TT_MAX_INS 16
#define TT_MAX_MEMORY 4

/* An op that mixes tokens and does not need their order reads positions from an operand, such as pos:
 * context parallelism permutes the tokens of a sequence. */
#define TT_OP_MIXES_TOKENS 1u /* an output token depends on others: attention, conv1d (R4)      */
#define TT_OP_ORDERED 2u      /* needs tokens in their plain order on every rank                */
#define TT_OP_POINTWISE 4u    /* an output element depends on one element of each input         */
#define TT_OP_NO_GRADIENT 8u  /* derivative is zero by definition: comparisons, top_k's indices */
#define TT_OP_VIEW 16u        /* the output may alias the input's memory                        */
/* Each output after the first is an input with some parts changed. A kernel whose input and output
 * have one address stores only these parts. */
#define TT_OP_UPDATES 32u
/* Adds rows of one input to the first output, at indices that the other input holds. A kernel that
 * accumulates into existing values touches only those rows. */
#define TT_OP_ADDS_ROWS 64u
/* Takes long relative to the memory of its outputs: selective recomputation keeps the outputs. */
#define TT_OP_HEAVY 128u
/* -inf is a valid output (the maximum of no elements): debug.detect_nan accepts it. */
#define TT_OP_MAY_BE_INFINITE 256u
/* Multiplies the rows of its first input by a weight: the loop over token chunks may begin at the
 * model's last such op. */
#define TT_OP_PROJECTION 512u
/* Rotary positions: inputs x, pos; attributes tt_attrs_rope. A rope_form does the same. */
#define TT_OP_ROTARY 1024u
#define TT_OP_CAST 2048u /* the same values in another dtype */
/* An element depends on its index in the global tensor, not on operands alone: random numbers. */
#define TT_OP_BY_PLACE 4096u
/* The value depends on the input, but the derivative is 0 on purpose: tests do not compare it with
 * finite differences. */
#define TT_OP_STOPS_GRADIENT 8192u
/* Its attributes are tt_attrs_dims with all dims of the output: a pass that changes the number of
 * rows must change the attributes, too. */
#define TT_OP_NAMES_DIMS 16384u
/* Where the backend has no kernel, the rule places the op before `decompose` writes it out (above). */
#define TT_OP_LOCAL 32768u
/* `expand`, with expand_letters "", places the operands itself, and the placements of its results say
 * how. The rule says which letters results share with operands; a result without a letter does not
 * depend on the order along it. */
#define TT_OP_PLACES_OPERANDS 65536u

/* What limits an op's speed. */
typedef enum tt_op_class {
    TT_CLASS_OTHER = 0, /* an op with the flag TT_OP_POINTWISE counts as pointwise */
    TT_CLASS_POINTWISE,
    TT_CLASS_MATMUL,    /* matrix products, at the machine's peak_flops */
    TT_CLASS_ATTENTION, /* matrix products and exponentials */
    TT_CLASS_LOOKUP,    /* reads rows of the input `table` at indices that another input holds */
    TT_CLASS_ATTENTION_BACKWARD /* the derivative of attention; the first output is that of its q */
} tt_op_class;

#define TT_LINEAR_JOINT UINT32_MAX /* linear in all inputs together, as add is */

/* The arguments of shape, cost and rule functions: an op's input types and attributes. */

typedef struct tt_shape_query {
    size_t struct_size;
    int n_in;
    const tt_type *const *in;
    const void *attrs;
    const char *op;
} tt_shape_query;

/* The arguments of vjp. A cotangent is the gradient of the loss with respect to a value. */
typedef struct tt_vjp {
    size_t struct_size;
    int n_in, n_out;
    tt_value *const *in;
    tt_value *const *out;
    tt_value *const *dout;     /* cotangents of the outputs; NULL = zero */
    const unsigned char *want; /* want[i]: the cotangent of input i is needed */
    tt_value **din;            /* write the inputs' cotangents here; NULL = zero */
    const void *attrs;
} tt_vjp;

typedef struct tt_cost {
    double flops; /* multiply-adds count two */
    double bytes; /* the least that moves to and from memory */
} tt_cost;

typedef struct tt_op_def {
    size_t struct_size;
    const char *name, *doc;
    const char *rule; /* (optional) NULL: rule_for writes it */
    uint32_t flags;
    uint32_t linear_inputs; /* bit i: linear in input i, which may therefore be partial (R1) */
    int reduce_max;         /* contractions give partial(max), not partial(sum) */
    size_t attrs_size;      /* bytes of the attributes, which are copied; their strings are not and
                               must outlive the graph. Two nodes are the same computation only if these
                               bytes are equal, on every rank: leave no padding between or after the
                               members, as a compiler does not set it */
    int n_out;

    /* All functions are [setup]; errors of those that get a builder stick in it.
     * Writes the types of the outputs, given those of the inputs. */
    tt_status (*infer)(const tt_shape_query *q, tt_type *out, tt_error *err);
    /* Writes the sharding rule to rule[size]; needed only if `rule` is NULL. */
    void (*rule_for)(const tt_shape_query *q, char *rule, size_t size);
    /* (optional) Writes the inputs' cotangents as other ops. NULL: the derivative is that of
     * decompose, beside a kernel too; without decompose it is an error if a gradient must pass
     * through the op. */
    void (*vjp)(tt_builder *b, tt_vjp *c);
    /* (optional) Writes outs as other ops, for a backend without a kernel. NULL: every backend must
     * have a kernel. With TT_OP_LOCAL each of outs has the shape and dtype that infer says. */
    void (*decompose)(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs);
    /* (optional) Writes outs as local ops and redistributes, for a placement that cuts one of
     * expand_letters ("" = for every placement), or leaves them NULL (R5). The builder places the
     * emitted ops like their operands. */
    const char *expand_letters;
    void (*expand)(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs);
    /* (optional) The cost of these LOCAL shapes. */
    tt_cost (*cost)(const tt_shape_query *q, const tt_type *out);
    /* (optional) Writes the attributes for people: "eps=1e-05". */
    void (*print_attrs)(const void *attrs, char *text, size_t size);
    /* Decoding (R18), (optional), for ops that mix tokens: the op's incremental form. Tokens come a
     * few at a time, and n_memory states keep what the op needs of earlier tokens. The input seg
     * then holds the slot of each token's sequence and pos the token's index in the sequence; the
     * tokens of a sequence are adjacent, in order and complete. Without this form generation
     * computes the whole context again for each token and logs that. */
    int n_memory; /* <= TT_MAX_MEMORY */
    /* Writes the types of these states, for `slots` sequences of at most `length` tokens each, or
     * fails if these inputs or attributes have no incremental form. */
    tt_status (*memory)(const tt_shape_query *q, int64_t slots, int64_t length, tt_type *out,
                        tt_error *err);
    /* Writes outs for the new tokens as other ops (an output without incremental form stays NULL)
     * and, in `updated`, the states that include these tokens. */
    void (*incremental)(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                        tt_value *const *memory, tt_value **outs, tt_value **updated);
    /* For people: `make docs` writes docs/ops.md and the table in ops.h from these two, doc and the
     * rule. operands: "ids i[T], w f[V,D] → [T,D]"; attributes: "tt_attrs_dims (V)" or NULL. */
    const char *operands, *attributes;

    /* ---- traits, all (optional): what passes and cost models need to know. Zero is right for most
     * ops. A form is the name of another op that can replace this one; NULL or an unknown name:
     * there is none. ---- */
    tt_op_class cls;
    int table; /* LOOKUP: the index of the input that is the table */
    /* An op with the same inputs, outputs and attributes for context parallelism, which passes keys
     * and values around the ring of ranks that share a sequence. */
    const char *ring_form;
    /* For an op with two inputs, one output and no attributes: the op that also runs a pointwise
     * program on the result (tt_fused_product, backend.h). */
    const char *epilogue_form;
    /* For an epilogue form: the same op with one output, which rotary positions then rotate
     * (tt_fused_rope). */
    const char *rope_form;
    /* For a pointwise op with one number among its attributes: that number, which becomes a fused
     * instruction's imm. */
    double (*immediate)(const void *attrs);
    /* The builder function of (b, x) for this op, if ops.h declares one: "tt_exp". */
    const char *function;
    /* 1 + the index of an i32 input: the sum of its elements on a rank says how many rows of the first
     * output that rank makes (R8). The rows after them are not defined. 0: it makes all. */
    int counted_by;
} tt_op_def;

/* An op of one output without attributes and traits: all most ops need. */
#define TT_OP_DEF(name_, doc_, rule_, flags_, infer_, vjp_, decompose_, cost_)                     \
    {                                                                                              \
        sizeof(tt_op_def), (name_), (doc_), (rule_), (flags_), 0, 0, 0, 1, (infer_), NULL, (vjp_), \
            (decompose_), NULL, NULL, (cost_), NULL, 0, NULL, NULL, NULL, NULL, TT_CLASS_OTHER, 0, \
            NULL, NULL, NULL, NULL, NULL, 0                                                        \
    }

/* Vtable of a TT_KIND_OP component. */
typedef struct tt_op_vt {
    size_t struct_size;
    const tt_op_def *def;
} tt_op_vt;

#ifdef __cplusplus
}
#endif
#endif
