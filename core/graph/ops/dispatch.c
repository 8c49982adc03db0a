/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* The parts of an expert layer on a mesh (docs/design/experts.md): B parts of the tokens, G groups of P parts,
 * in which each part has E/P experts; M places per part, in P bins of M/P. B = G P. expert_rows and
 * expert_slots (experts.c) expand into these ops. */

static const tt_dim *attr_dims(const tt_shape_query *q)
{
    return ((const tt_attrs_dims *)q->attrs)->dims;
}

/* Input i is i32 [G,P,E], or i32 [E] of a single part (only where `one`). */
tt_status tt_want_expert_counts(const tt_shape_query *q, int i, bool one, tt_error *err)
{
    const tt_type *t = q->in[i];
    TT_TRY(tt_want_i32(q, i, "counts", err));
    if (t->n_dims != 3 && !(one && t->n_dims == 1))
        return tt_infer_fail(q, err, "counts must be [experts], or [groups, parts, experts]");
    return TT_OK;
}

static tt_status infer_sort(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_dim *a = attr_dims(q); /* G P M E, first slot of a bin */
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_rank(q, 0, "the assignment", 2, err));
    TT_TRY(tt_want_i32(q, 0, "the assignment", err));
    const tt_dim places[2] = {TT_DIM(a[0].size * a[1].size, NULL), a[2]};
    const tt_dim counts[3] = {a[0], a[1], a[3]};
    if (a[2].size > INT32_MAX)
        return tt_infer_fail(q, err, "there are more places per part than an i32 can count");
    out[0] = tt_type_make(TT_I32, places, 2);
    out[1] = tt_type_make(TT_I32, counts, 3);
    return TT_OK;
}

static tt_status infer_expert(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_expert_counts(q, 0, false, err));
    out[0] = tt_type_make(TT_I32, attr_dims(q), 1);
    return TT_OK;
}

/* x, then an i32 operand of the rank `second`, and after places perhaps counts; the dims of the result are the
 * attributes, then x's last. */
static tt_status infer_moved(const tt_shape_query *q, int second, tt_type *out, tt_error *err)
{
    const tt_attrs_dims *a = q->attrs;
    tt_dim d[TT_MAX_DIMS];
    TT_TRY(tt_want_inputs(q, 2, second == 2 ? 3 : 2, err));
    if (q->n_in == 3)
        TT_TRY(tt_want_expert_counts(q, 2, false, err));
    TT_TRY(tt_want_min_rank(q, 0, "x", 2, err));
    TT_TRY(tt_want_float(q, 0, "x", err));
    TT_TRY(tt_want_i32(q, 1, second == 2 ? "the places" : "counts", err));
    TT_TRY(tt_want_rank(q, 1, second == 2 ? "the places" : "counts", second, err));
    for (int i = 0; i < a->n_dims; i++)
        d[i] = a->dims[i];
    d[a->n_dims] = q->in[0]->dims[q->in[0]->n_dims - 1];
    out[0] = tt_type_make(q->in[0]->dtype, d, a->n_dims + 1);
    return TT_OK;
}

static tt_status infer_by_places(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    return infer_moved(q, 2, out, err);
}

static tt_status infer_by_counts(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    return infer_moved(q, 3, out, err);
}

static void rule_gather(const tt_shape_query *q, char *rule, size_t size)
{
    const bool choices = q->in[0]->n_dims == 3,
               rows = ((const tt_attrs_dims *)q->attrs)->n_dims == 1;
    snprintf(rule, size, "t=(b !q) %sd, b !m%s -> %s d", choices ? "!k " : "",
             q->n_in == 3 ? ", b !s !e" : "", rows ? "r=(b !m)" : "b !m");
}

static void rule_scatter(const tt_shape_query *q, char *rule, size_t size)
{
    const bool rows = q->in[0]->n_dims == 2;
    snprintf(rule, size, "%s d, b !m%s -> t=(b !q) !k d", rows ? "r=(b !m)" : "b !m",
             q->n_in == 3 ? ", b !s !e" : "");
}

static tt_cost cost_sort(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 2, 0.0);
}

const tt_op_def tt_op_dispatch_sort = {
    .struct_size = sizeof(tt_op_def),
    .name = "dispatch_sort",
    .operands = "assign i[T,k] → places i[B,M], counts i[G,P,E]",
    .attributes = "tt_attrs_dims (G, P, M, E, F)",
    .doc = "for each of B = G P equal parts of the tokens. Places: P bins of M/P places, each with "
           "the slots of E/P experts, by expert and in ascending order, counted from the part's "
           "first, without the first F of the bin and those beyond its places; -1 where there is "
           "none. counts: the slots of each expert that have a place",
    .rule = "t=(b !q) !k -> b=(g s) !m, g s !e",
    .flags = TT_OP_NO_GRADIENT,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 2,
    .infer = infer_sort,
    .cost = cost_sort};
const tt_op_def tt_op_dispatch_expert = {
    .struct_size = sizeof(tt_op_def),
    .name = "dispatch_expert",
    .operands = "counts i[G,P,E] → i[R]",
    .attributes = "tt_attrs_dims (R)",
    .doc = "the expert of each row of dispatch_pack; -1 where there is none",
    .rule = "g !s e -> r=(g e)",
    .flags = TT_OP_NO_GRADIENT,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 1,
    .counted_by = 1,
    .infer = infer_expert,
    .cost = tt_cost_move};
const tt_op_def tt_op_dispatch_gather = {
    .struct_size = sizeof(tt_op_def),
    .name = "dispatch_gather",
    .operands =
        "x f[T,D] or f[T,k,D], places i[B,M], optional counts i[B,1,E] → [B,M,D] or [B*M,D]",
    .attributes = "tt_attrs_dims (all dims but D)",
    .doc = "for each part of the tokens its rows (of [T,k,D]: its slots) at `places`, counted from "
           "the part's first; 0 where the place is -1. With counts only their sum of rows is "
           "made, where each rank has one part",
    .linear_inputs = 1,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 1,
    .counted_by = 3,
    .infer = infer_by_places,
    .rule_for = rule_gather,
    .cost = tt_cost_move};
const tt_op_def tt_op_dispatch_scatter = {.struct_size = sizeof(tt_op_def),
                                          .name = "dispatch_scatter",
                                          .operands = "x f[B,M,D] or f[B*M,D], places i[B,M], "
                                                      "optional counts i[B,1,E] → [T,k,D]",
                                          .attributes = "tt_attrs_dims (T, k)",
                                          .doc = "the transpose of dispatch_gather: for each part "
                                                 "the rows of x at their slots, 0 for a slot "
                                                 "without a place",
                                          .linear_inputs = 1,
                                          .attrs_size = sizeof(tt_attrs_dims),
                                          .n_out = 1,
                                          .infer = infer_by_places,
                                          .rule_for = rule_scatter,
                                          .cost = tt_cost_move};
const tt_op_def tt_op_dispatch_pack = {
    .struct_size = sizeof(tt_op_def),
    .name = "dispatch_pack",
    .operands = "x f[B,M,D], counts i[G,P,E] → [B*M,D]",
    .attributes = "tt_attrs_dims (B*M)",
    .doc =
        "part (g, p) of the result: the rows of bin p of group g's parts, by expert, then by part, "
        "then in their order; then zeros",
    .rule = "b=(g !s) e d, g !s e -> r=(g e) d",
    .linear_inputs = 1,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 1,
    .counted_by = 2,
    .infer = infer_by_counts,
    .cost = tt_cost_move};
const tt_op_def tt_op_dispatch_unpack = {.struct_size = sizeof(tt_op_def),
                                         .name = "dispatch_unpack",
                                         .operands = "x f[B*M,D], counts i[G,P,E] → [B,M,D]",
                                         .attributes = "tt_attrs_dims (B, M)",
                                         .doc = "the transpose of dispatch_pack",
                                         .rule = "r=(g e) d, g !s e -> b=(g !s) e d",
                                         .linear_inputs = 1,
                                         .attrs_size = sizeof(tt_attrs_dims),
                                         .n_out = 1,
                                         .infer = infer_by_counts,
                                         .cost = tt_cost_move};
