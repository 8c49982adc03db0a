/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_OP_H
#define TTRUN_OP_H
#include <ttrun/builder.h>

/* An op is one file: its shape rule, sharding rule, derivative and cost (R5, R16). Backends
 * register kernels by its name. An op without a kernel on a backend runs as its decomposition.
 *
 * The sharding rule is a string over letters, one a dim: "t i, o i -> t o".
 *   a, b -> c  inputs and outputs are separated by ','; a scalar is empty (", t -> t").
 *   missing    a letter missing in an output is contracted there: that output is partial over the
 *              mesh atoms the letter uses.
 *   !x         x must be whole.
 *   *          every dim of that operand (elementwise).
 *   x=(k g)    x factors: k takes the longest prefix of x's atoms whose product divides k's unit
 *              count, g the rest; the same letter in two groups ties them. At most 4 groups.
 *   t=(b q)    b = the token dim's lines.
 *   t+2 k      t's atoms of q are turned by two steps: the operand's rows are those of the rank
 *              two further in their ring.
 * A letter only in an output is bound by that output's type. One letter may stand for dims of
 * different size when their unit counts (size / unit) are equal: "h" is both [heads*head_dim] in
 * units of head_dim and [heads]. */

#ifdef __cplusplus
extern "C" {
#endif

#define TT_MAX_OUTS 4
#define TT_MAX_INS 16
#define TT_MAX_MEMORY 4

#define TT_OP_MIXES_TOKENS 1u /* sees across tokens: attention, conv1d (R4)                   */
#define TT_OP_ORDERED 2u      /* needs the plain token layout                                  */
#define TT_OP_POINTWISE 4u    /* one output element from one element of each input             */
#define TT_OP_NO_GRADIENT 8u  /* derivative is zero by definition: comparisons, top_k's indices */
#define TT_OP_VIEW 16u        /* may alias its input's memory                                  */
/* Outputs after the first are inputs with parts of them changed: a kernel given one address for
 * both stores these parts alone. */
#define TT_OP_UPDATES 32u
/* Rows of one input are added to the first output at the indices the other holds: a kernel that
 * adds to what is there moves those rows alone. */
#define TT_OP_ADDS_ROWS 64u
/* Takes long for the memory of its outputs: selective recompute keeps them. */
#define TT_OP_HEAVY 128u
/* -inf is a legal value of its outputs (the maximum of nothing): no fault for debug.detect_nan. */
#define TT_OP_MAY_BE_INFINITE 256u
/* The rows of its first input times a weight: at the model's last one token chunks may begin. */
#define TT_OP_PROJECTION 512u
/* Rotary positions: inputs x, pos; attributes tt_attrs_rope. A rope_form does it, too. */
#define TT_OP_ROTARY 1024u
#define TT_OP_CAST 2048u /* the same values in another dtype */
/* Its elements depend on where in the tensor they stand, not on operands alone: random numbers. */
#define TT_OP_BY_PLACE 4096u
/* The value depends on the input, the derivative is 0 on purpose: no finite difference is to be
 * compared with it. */
#define TT_OP_STOPS_GRADIENT 8192u
/* Its attributes are tt_attrs_dims, all dims of the output: other rows need other attributes. */
#define TT_OP_NAMES_DIMS 16384u

/* What an op spends its time on. */
typedef enum tt_op_class {
    TT_CLASS_OTHER = 0, /* with TT_OP_POINTWISE among its flags: pointwise */
    TT_CLASS_POINTWISE,
    TT_CLASS_MATMUL,    /* products of matrices: as fast as the machine multiplies */
    TT_CLASS_ATTENTION, /* products with exponentials among them */
    TT_CLASS_LOOKUP     /* rows of a table (input `table`) at the indices another input holds */
} tt_op_class;

#define TT_LINEAR_JOINT UINT32_MAX /* linear in all inputs together: add */

typedef struct tt_shape_query {
    size_t struct_size;
    int n_in;
    const tt_type *const *in;
    const void *attrs;
    const char *op;
} tt_shape_query;

typedef struct tt_vjp {
    size_t struct_size;
    int n_in, n_out;
    tt_value *const *in;
    tt_value *const *out;
    tt_value *const *dout;     /* cotangents of the outputs; NULL = zero */
    const unsigned char *want; /* want[i]: the cotangent of input i is needed */
    tt_value **din;            /* write here; leave NULL where there is none  */
    const void *attrs;
} tt_vjp;

typedef struct tt_cost {
    double flops; /* multiply-adds count two */
    double bytes; /* moved to and from memory at least */
} tt_cost;

typedef struct tt_op_def {
    size_t struct_size;
    const char *name, *doc;
    const char *rule; /* NULL: rule_for writes it */
    uint32_t flags;
    uint32_t linear_inputs; /* bit i: linear in input i, a partial sum of it may pass (R1) */
    int reduce_max;         /* contractions give partial(max), not partial(sum) */
    size_t attrs_size;      /* bytes copied from the caller's; strings in it outlive the graph */
    int n_out;

    /* Types of the outputs from those of the inputs, or an error. [setup] */
    tt_status (*infer)(const tt_shape_query *q, tt_type *out, tt_error *err);
    void (*rule_for)(const tt_shape_query *q, char *rule, size_t size);
    /* Cotangents of the inputs, in other ops. NULL: not differentiable (an error where a gradient
     * must pass). (optional) */
    void (*vjp)(tt_builder *b, tt_vjp *c);
    /* The op in other ops: outs written. NULL: a backend must have a kernel.
     * (optional) */
    void (*decompose)(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs);
    /* For a placement in which letter `letter` is cut: the op as local ops and redistributes, or
     * NULL (R5). The builder places what is emitted in follow mode. Called only when a letter of
     * expand_letters is cut; always where that is "". */
    const char *expand_letters;
    void (*expand)(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs);
    /* Cost of these LOCAL shapes. (optional) */
    tt_cost (*cost)(const tt_shape_query *q, const tt_type *out);
    void (*print_attrs)(const void *attrs, char *text, size_t size); /* "eps=1e-05" (optional) */
    /* Decoding (R18), for ops that mix tokens: the op's incremental form. Tokens come a few at a
     * time; what the op needs of earlier ones is kept in n_memory states. Among its inputs, seg is
     * then the slot of a token's sequence and pos the token's place in it; a sequence's tokens
     * stand together, in order, none left out. incremental NULL: none, so generation computes the
     * whole context again for each token and says so. */
    int n_memory; /* <= TT_MAX_MEMORY */
    /* Types of these states, for `slots` sequences of at most `length` tokens each; or an error,
     * where these inputs or attributes have no such form. [setup] */
    tt_status (*memory)(const tt_shape_query *q, int64_t slots, int64_t length, tt_type *out,
                        tt_error *err);
    /* Outs of the new tokens, in other ops (an out left NULL has no incremental form), and the
     * states with these tokens in them. */
    void (*incremental)(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                        tt_value *const *memory, tt_value **outs, tt_value **updated);
    /* For people: docs/ops.md and the table in ops.h are made of these two, doc and the rule.
     * operands: "ids i[T], w f[V,D] → [T,D]"; attributes: "tt_attrs_dims (V)", NULL = none. */
    const char *operands, *attributes;

    /* ---- traits: what passes and costs need to know. Zero is right for most ops. The forms are
     * other ops, by name, that stand in for this one; NULL, or no op of that name: none. ---- */
    tt_op_class cls;
    int table; /* LOOKUP: which input is looked up in */
    /* Of the same inputs, outputs and attributes; keys and values go round a ring of the ranks that
     * context parallelism cuts a line over. */
    const char *ring_form;
    /* Of an op of two inputs, one output and no attributes: it, and then a pointwise program on its
     * result (tt_fused_product, backend.h). */
    const char *epilogue_form;
    /* Of an epilogue form: the same with one output, and then rotary positions (tt_fused_rope). */
    const char *rope_form;
    /* Pointwise, with one number among its attributes: that number, a fused instruction's imm. */
    double (*immediate)(const void *attrs);
    /* The function of (b, x) that puts it into a graph, where ops.h is to declare it: "tt_exp". */
    const char *function;
} tt_op_def;

/* An op of one output without attributes and traits: all most ops need. */
#define TT_OP_DEF(name_, doc_, rule_, flags_, infer_, vjp_, decompose_, cost_)                     \
    {                                                                                              \
        sizeof(tt_op_def), (name_), (doc_), (rule_), (flags_), 0, 0, 0, 1, (infer_), NULL, (vjp_), \
            (decompose_), NULL, NULL, (cost_), NULL, 0, NULL, NULL, NULL, NULL, TT_CLASS_OTHER, 0, \
            NULL, NULL, NULL, NULL, NULL                                                           \
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
