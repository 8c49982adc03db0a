/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_EXPERTS_H
#define TTRUN_EXPERTS_H
#include <ttrun/builder.h>

/* Mixtures of experts without shapes that depend on data (R8). builder.h includes this header. A slot
 * is a token times one of its k choices: slot t*k + j is choice j of token t. E experts, T tokens, D
 * the model's dim. */

#ifdef __cplusplus
extern "C" {
#endif

/* What a function of an expert layer computes from. The rows of an expert are consecutive, and in
 * the order of their slots. Which rows a rank has, and how many there are room for (R), is ttrun's matter:
 * a function must treat each row alone, or by its expert's weights. */
typedef struct tt_expert_rows {
    tt_value
        *x; /* [R,D]: the token of each row; rows from the sum of counts on are 0, or not defined
                    where the graph knows how many there are: then nothing computes them */
    tt_value
        *counts; /* i32 [E]: the number of rows of each expert. Only for tt_grouped_linear(): on
                         several ranks it has other dims */
    tt_value *expert; /* i32 [R]: the expert of each row; outside of [0,E) where there is none */
} tt_expert_rows;

/* Returns y [R,O] from the rows. user is the pointer given to tt_experts(). */
typedef tt_value *(*tt_expert_fn)(tt_builder *b, const tt_expert_rows *rows, const void *user);

/* A router's choice: for each token the k experts with the largest `choice`; ties as in tt_top_k().
 * With debug.moe_force_load_balance, choice j of token t is expert (t*k + j) mod E instead.
 *   scores f [T,E]    choice f [T,E], scores with a bias, say; NULL: the scores
 *   *assign i32 [T,k]    *weights [T,k]: the scores of these experts; derivatives reach scores alone */
TT_EXPORT void tt_choose_experts(tt_builder *b, tt_value *scores, tt_value *choice, int64_t k,
                                 tt_value **assign, tt_value **weights);

/* The sum over j of weights[t,j] · fn(x[t] by expert assign[t,j]), [T,O] in x's dtype; products
 * with weights and their sums are f32, in ascending j. No token is dropped.
 *   x f [T,D]   assign i32 [T,k]: of n_experts; a choice outside of [0,E) adds nothing
 *   weights f [T,k]
 * fn is called during the call. The weights' dim of experts has the label "experts", which the axis ep cuts;
 * a router's result has E without a label, because its tokens are cut. */
TT_EXPORT tt_value *tt_experts(tt_builder *b, tt_value *x, tt_value *assign, tt_value *weights,
                               int64_t n_experts, tt_expert_fn fn, const void *user);

/* x [R,i] with rows grouped by expert, w [E,o,i], counts i32 [E] → [R,o]: each row times its
 * expert's wᵀ; rows from Σcounts on are 0. */
TT_EXPORT tt_value *tt_grouped_linear(tt_builder *b, tt_value *x, tt_value *w, tt_value *counts);

/* assign i32 [T,k] → f64 [E]: the number of slots of each expert. f64, so that its sum over the
 * micro-batches of a step, tt_buffer_update_sum(), is exact. */
TT_EXPORT tt_value *tt_expert_counts(tt_builder *b, tt_value *assign, int64_t n_experts);

/* The slots sorted by expert, as tt_experts() has them.
 *   *order   i32 [T*k]: slots sorted by expert, stable; those of no expert last
 *   *counts  i32 [E]: slots of each expert */
TT_EXPORT void tt_expert_sort(tt_builder *b, tt_value *assign, int64_t n_experts, tt_value **order,
                              tt_value **counts);

#ifdef __cplusplus
}
#endif
#endif
