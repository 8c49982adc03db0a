/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_GRAPH_OP_H
#define TT_GRAPH_OP_H
#include "base/base.h"
#include <ttrun/ops.h>

/* The op table: the core's ops, which core/graph/ops defines, sorted by name; and the ops of plugins. */

typedef struct tt_op_table {
    const tt_op_def *const *core;
    size_t n_core;
    const tt_op_def *const *extra; /* of plugins; may be NULL */
    size_t n_extra;
    const tt_op_def *(*lookup)(void *user, const char *name); /* finds other names; may be NULL */
    void *lookup_user;
} tt_op_table;

const tt_op_def *const *tt_core_ops(size_t *n);
const tt_op_def *tt_op_find(const tt_op_table *t, const char *name); /* NULL: there is no such op */
/* Is this the name of a structural op (param, fetch, redistribute, …)? The core alone builds them;
 * they have no kernel, and are in no table. */
bool tt_op_is_structural(const char *name);
/* Is it a pointwise op of the core? The kernels of the op "fused" run only these. */
bool tt_op_is_fusible(const tt_op_table *t, const tt_op_def *def);

/* docs/ops.md, and the table in include/ttrun/ops.h. */
void tt_op_reference_page(tt_str *out);
void tt_op_reference_header(tt_str *out);

/* Traits of an op. A definition that was built before a trait existed does not have it. */
tt_op_class tt_op_class_of(const tt_op_def *op);
int tt_op_lookup_table(const tt_op_def *op); /* index of the input that is the table, or -1 */
int tt_op_counted_by(const tt_op_def *op);   /* 0: none */
double tt_op_immediate(const tt_op_def *op, const void *attrs);
/* The op that replaces this one in a ring, with an epilogue, with rotary positions; NULL: none. */
const tt_op_def *tt_op_ring_form(const tt_op_table *t, const tt_op_def *op);
const tt_op_def *tt_op_epilogue_form(const tt_op_table *t, const tt_op_def *op);
const tt_op_def *tt_op_rope_form(const tt_op_table *t, const tt_op_def *op);

/* Helpers of shape rules. */
tt_status tt_infer_fail(const tt_shape_query *q, tt_error *err, const char *fmt, ...)
    TT_PRINTF(3, 4); /* "<op>: …, got [..] and [..]" */
bool tt_dim_same_size(const tt_dim *a, const tt_dim *b);
int64_t tt_type_numel(const tt_type *t);
/* Has t n dims of these sizes and units? Labels are not compared. */
bool tt_type_has_dims(const tt_type *t, const tt_dim *dims, int n);
/* A tensor of this type without memory, all of it: the operand of a question to the backend. */
void tt_whole_tensor(const tt_type *t, tt_tensor *out);
void tt_type_print(const tt_type *t, char *text, size_t size); /* "f32[2048 tokens, 256 embed]" */

/* Asks the job's converters about a linear before its node is built: the value that replaces it, or
 * NULL. While a converter's linear() runs, those after it in the list are asked. */
tt_value *tt_builder_convert_linear(tt_builder *b, const char *param_name, tt_value *x,
                                    tt_value *w);
/* The same about what a converter's linear() computes with the weight itself: the layer as the
 * converter leaves it. Elsewhere NULL. */
tt_value *tt_builder_convert_nested(tt_builder *b, tt_value *x, tt_value *w);
/* Does the graph decode and keep what keys and values are products of (builder_opts.h)? Not if the job's converters
 * may replace the product, nor without a kernel for it. */
bool tt_builder_keeps_latents(const tt_builder *b);
/* The product() of the converter of this name runs from here on; NULL: none does. Returns the one before. */
const char *tt_builder_owner(tt_builder *b, const char *converter);

/* tt_quantize(), rounded stochastically by u: numbers in [0,1) of x's dims. */
struct tt_quantize_opts;
tt_value *tt_quantize_by(tt_builder *b, tt_value *x, const struct tt_quantize_opts *o, tt_value *u,
                         tt_value **scale);

/* x in dynamic codes (<ttrun/codes.h>): bytes, and in *scale f32 the largest |x| of each `block` elements of a
 * row, at least 1e-12. tt_decode8_blocks() gives the numbers, f32. */
tt_value *tt_encode8_blocks(tt_builder *b, tt_value *x, int64_t block, bool positive,
                            tt_value **scale);
tt_value *tt_decode8_blocks(tt_builder *b, tt_value *codes, tt_value *scale, int64_t block,
                            bool positive);

/* The names of tt_product_role, in its order, in jobs and in states of converters. */
#define TT_N_PRODUCT_ROLES 3
extern const char *const tt_product_roles[TT_N_PRODUCT_ROLES];
/* Converter number i's linear() runs from here on; -1: none does. Returns the one before. */
int tt_builder_converting(tt_builder *b, int i);

/* The value that a function returns after an error. A builder that has failed builds no more nodes. */
tt_value *tt_placeholder(tt_builder *b);
/* Fails if a plugin gave NULL in the place of `what`, "tt_output: the value". Returns whether it did. */
bool tt_builder_lacks(tt_builder *b, const void *p, const char *what);
/* The same for a list of n, which may be NULL if n is 0. */
bool tt_builder_lacks_list(tt_builder *b, const void *list, int n, const char *what);
/* The same for the pointer to a result. What it points to is a placeholder then, until the result is there. */
bool tt_builder_lacks_result(tt_builder *b, tt_value **p, const char *what);

#endif
