/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PASSES_QK_CLIP_H
#define TT_PASSES_QK_CLIP_H
#include "graph/graph.h"

/* QK-clip (Kimi Team 2025, arXiv:2507.20534, section 2.1): after each update the weights of queries and keys of
 * a head are multiplied by factors, if the head's largest logit of the step was above tau, such that the same
 * logit would be tau. qk_clip_find.c finds the weights in the described graph; qk_clip.c multiplies. */

#define TT_METRIC_QK_CLIP "qk_clip_heads" /* f32: heads of this step above tau, of all layers */

/* One attention op of the model. */
typedef struct tt_qk_attention {
    const char *scope; /* "model.layers.3.self_attn" */
    int64_t heads;
    bool clipped; /* else its queries are normalized, so that no factor would change a logit */
    /* Set by tt_qk_clip_gammas: the row of these values. gamma[1] its root, gamma[2] itself: [layers, heads] */
    int stage, row;
    tt_value *const *gamma;
} tt_qk_attention;

/* A parameter with weights of queries or keys, by rows: elements of dim 0 of a linear layer's weight, all elements
 * of a bias. Row r is multiplied by gamma^(power[r]/2) of head[r]; power 0: it is not changed. */
typedef struct tt_qk_param {
    const tt_param_info *param;
    int attention;
    int64_t n_rows;
    bool bias;
    int32_t *head;
    uint8_t *power;
} tt_qk_param;

typedef struct tt_qk_clip {
    double tau;
    TT_VEC(tt_qk_attention) attentions;
    TT_VEC(tt_qk_param) params;
    int n_clipped;
} tt_qk_clip;

/* Of a described model. TT_EUNSUPPORTED: it has an attention whose queries' weights cannot be found. */
tt_status tt_qk_clip_find(tt_graph *described, double tau, tt_error *err);

/* For the pass update. In the epilogue: the factors of all heads, from the accumulated largest logits
 * (tt_graph.logits), the same on all ranks of a stage. */
void tt_qk_clip_gammas(tt_builder *b);
/* What members first … first + n - 1 of the stack are multiplied by, f32, stored as they are; NULL: none is. */
tt_value *tt_qk_clip_factor(tt_builder *b, const tt_stack *s, int first, int n);

#endif
