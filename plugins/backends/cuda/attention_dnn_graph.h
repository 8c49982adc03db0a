/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_ATTENTION_DNN_GRAPH_H
#define TT_CUDA_ATTENTION_DNN_GRAPH_H
#include "dnn.h"

/* attention as graphs of cuDNN's operations, for attention_dnn.c. */

/* What a plan depends on. */
typedef struct dnn_key {
    int64_t lines, line, heads, kv_heads, head_dim, v_head_dim, window;
    int32_t bwd, bidirectional;
    int32_t any_order; /* sums of dq in an order that varies from run to run */
    int32_t zero;      /* no padding: keys are compared by their bytes */
} dnn_key;
_Static_assert(sizeof(dnn_key) == 7 * 8 + 4 * 4, "dnn_key has padding");

/* ids of operands */
enum { Q = 1, K, V, OUT, LSE, DOUT, DQ, DK, DV, SCALE, ONE, ROW_SUM, MINUS_INF, WINDOW, DQ_SUM };

/* The operands of forward: Q, K, V → OUT, LSE; of backward: Q, K, V, OUT, LSE, DOUT → DQ, DK, DV, with ROW_SUM
 * and, if any_order, DQ_SUM (zeros before) as memory. */
void dnn_attention_forward(dnn_graph *g, const dnn_key *k);
void dnn_attention_backward(dnn_graph *g, const dnn_key *k);

#endif
