/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_GRAPH_OPS_INTERNAL_H
#define TT_GRAPH_OPS_INTERNAL_H
#include "graph/op.h"

/* Functions that the op definitions of this folder share. No other folder includes this header. */

/* ---- definitions: ops.def, which the build makes, has a line for each tt_op_<name> of this folder ---- */
#define TT_CORE_OP(name) extern const tt_op_def tt_op_##name;
#include "ops.def"
#undef TT_CORE_OP

/* ---- shape rules: each returns TT_OK or fails with a line that names the op ---- */
tt_status tt_want_inputs(const tt_shape_query *q, int min, int max, tt_error *err);
tt_status tt_want_rank(const tt_shape_query *q, int i, const char *what, int n_dims, tt_error *err);
tt_status tt_want_min_rank(const tt_shape_query *q, int i, const char *what, int n_dims,
                           tt_error *err);
tt_status tt_want_float(const tt_shape_query *q, int i, const char *what, tt_error *err);
tt_status tt_want_i32(const tt_shape_query *q, int i, const char *what, tt_error *err);
/* Dim di of input i and dim dj of input j have the same size. */
tt_status tt_want_equal(const tt_shape_query *q, int i, int di, int j, int dj, tt_error *err);
/* Inputs i and j have the same dims. */
tt_status tt_want_same(const tt_shape_query *q, int i, int j, tt_error *err);
/* Turns a dim index in [-n, n) into one in [0, n). */
tt_status tt_want_dim(const tt_shape_query *q, int i, int dim, int *out, tt_error *err);
/* The same for attributes; an index outside [-n, n) stays as it is, and tt_want_dim refuses it. */
int tt_dim_index(int dim, int n);

/* Input i is [tokens, heads * head_dim] in units of head_dim; *n is the number of heads. */
tt_status tt_want_heads(const tt_shape_query *q, int i, const char *what, int64_t head_dim,
                        int64_t *n, tt_error *err);
tt_status tt_attention_infer(const tt_shape_query *q, tt_type *out, tt_error *err);
tt_status tt_attention_infer_bwd(const tt_shape_query *q, tt_type *out, tt_error *err);
tt_cost tt_attention_cost(const tt_shape_query *q, const tt_type *out);
tt_cost tt_attention_cost_bwd(const tt_shape_query *q, const tt_type *out);
tt_status tt_attention_infer_bias_bwd(const tt_shape_query *q, tt_type *out, tt_error *err);
/* The optional operands from `at` on: sinks [n_heads] (only if may_sink), then bias [n_heads, n] if
 * attributes say so. The second function gives their part of a sharding rule. */
tt_status tt_want_sinks_and_bias(const tt_shape_query *q, int at, bool may_sink, int64_t n_heads,
                                 tt_error *err);
const char *tt_attention_rule_sinks_and_bias(const tt_shape_query *q, int at);
void tt_attention_rule(const tt_shape_query *q, char *rule, size_t size);
/* dbias: "", or ", h n" for the result dbias */
void tt_attention_rule_bwd(const tt_shape_query *q, const char *dbias, char *rule, size_t size);
/* bwd: the op that computes dq, dk, dv; bias_bwd: the one that computes dbias too */
void tt_attention_vjp(tt_builder *b, tt_vjp *c, const char *bwd, const char *bias_bwd);
void tt_attention_print(const void *attrs, char *text, size_t size);

/* Input i is i32 [G,P,E], or, if `one`, i32 [E]. */
tt_dim tt_slots_dim(const tt_dim *tokens, int64_t k); /* tokens times k, labelled as rows */
tt_status tt_want_expert_counts(const tt_shape_query *q, int i, bool one, tt_error *err);

/* The dtype of an op with operands of dtypes a and b: the wider float (f64, f32, then bf16 or f16); a
 * float if one is an integer; f32 for bf16 and f16. */
tt_dtype tt_dtype_promote(tt_dtype a, tt_dtype b);
tt_type tt_type_make(tt_dtype dtype, const tt_dim *dims, int n_dims);
/* The type of the inputs broadcast against each other. The dtype is promoted, but a scalar does not
 * widen a tensor; with skip_first the dtype of input 0 (the condition of select) does not count. */
tt_status tt_broadcast_type(const tt_shape_query *q, bool skip_first, tt_type *out, tt_error *err);

/* ---- sharding rules ---- */
typedef struct tt_rule_text {
    char *s;
    size_t size, n;
} tt_rule_text;
void tt_rule_add(tt_rule_text *t, const char *fmt, ...) TT_PRINTF(2, 3);
/* The rule of inputs that broadcast to n_out outputs of one shape: "a b, b -> a b". */
void tt_rule_broadcast(const tt_shape_query *q, int n_out, char *rule, size_t size);
/* Adds " a b c" for n dims. If `letter` is not NULL, it replaces the letter of dim `at`. */
void tt_rule_dims(tt_rule_text *t, int n, int at, const char *letter);

/* ---- cost ---- */
tt_cost tt_cost_make(const tt_shape_query *q, const tt_type *out, int n_out, double flops);
tt_cost tt_cost_move(const tt_shape_query *q, const tt_type *out); /* no FLOPs, one output */
double tt_numel(const tt_type *t);

/* ---- emitting ---- */
tt_value *tt_emit(tt_builder *b, const char *op, tt_value *const *ins, int n, const void *attrs);
tt_value *tt_emit1(tt_builder *b, const char *op, tt_value *x, const void *attrs);
tt_value *tt_emit2(tt_builder *b, const char *op, tt_value *x, tt_value *y, const void *attrs);
tt_value *tt_emit3(tt_builder *b, const char *op, tt_value *x, tt_value *y, tt_value *z,
                   const void *attrs);
tt_dim tt_last_dim(const tt_value *v);                   /* size 1 for a scalar */
tt_value *tt_unsqueeze_last(tt_builder *b, tt_value *v); /* [..] → [..,1] */
tt_value *tt_cast_up(tt_builder *b, tt_value *x); /* bf16 and f16 to f32; other dtypes stay */
tt_value *tt_zero_like_dtype(tt_builder *b, tt_value *x); /* scalar 0 of x's dtype */
/* A cotangent with the dims and dtype of `like`: summed (in f32) over the dims that a broadcast
 * stretched. */
tt_value *tt_vjp_fit(tt_builder *b, tt_value *d, tt_value *like);

#endif
