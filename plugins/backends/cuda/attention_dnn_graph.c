/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_dnn_graph.h"

/* attention as a graph of cuDNN's operations: [B,H,S,D] with B lines of S tokens, H heads of D
 * elements, in our layout [B*S, H*D]. cuDNN recognises this graph as a whole and runs one fused
 * kernel, so the order and the types of the operations are what its documentation says
 * ("Fused flash attention"). */

/* A tensor of our layout; rows: [lines*line, heads*dim]. transposed: its last two dims swapped. */
static void *rows(dnn_graph *g, const dnn_key *k, int64_t id, int64_t heads, int64_t dim,
                  bool transposed)
{
    const int64_t s = k->line, width = heads * dim;
    const dnn_shape straight = {
        {k->lines,  heads, s,     dim},
        {s * width, dim,   width, 1  }
    };
    const dnn_shape turned = {
        {k->lines,  heads, dim, s    },
        {s * width, dim,   1,   width}
    };
    return dnn_tensor(g, id, DNN_BF16, transposed ? &turned : &straight);
}

/* One f32 per query and head: of our layout [lines*line, heads], or heads first. */
static void *per_row(dnn_graph *g, const dnn_key *k, int64_t id, bool ours)
{
    const int64_t h = k->heads, s = k->line;
    const dnn_shape x = {
        {k->lines, h,            s,            1},
        {h * s,    ours ? 1 : s, ours ? h : 1, 1}
    };
    return dnn_tensor(g, id, DNN_F32, &x);
}

/* A value per query, head and key, inside the graph. */
static void *scores(dnn_graph *g, const dnn_key *k, int type, bool transposed)
{
    const int64_t h = k->heads, s = k->line;
    const dnn_shape x = {
        {k->lines,  h,     s,                  s                 },
        {h * s * s, s * s, transposed ? 1 : s, transposed ? s : 1}
    };
    return dnn_tensor(g, 0, type, &x);
}

/* x where the query of the row may see the key of the column, else -inf. column + window > row, or
 * row >= column. */
static void *mask(dnn_graph *g, const dnn_key *k, void *x, void *minus_inf, bool window)
{
    void *row = scores(g, k, DNN_I32, false), *column = scores(g, k, DNN_I32, false),
         *sees = scores(g, k, DNN_BOOL, false), *y = scores(g, k, DNN_F32, false);
    dnn_pointwise(g, DNN_INDEX, DNN_F32, x, NULL, NULL, row, 2);
    dnn_pointwise(g, DNN_INDEX, DNN_F32, x, NULL, NULL, column, 3);
    if (window) {
        void *last = scores(g, k, DNN_F32, false);
        dnn_pointwise(g, DNN_ADD, DNN_F32, column, dnn_value(g, WINDOW), NULL, last, 0);
        dnn_pointwise(g, DNN_GREATER, DNN_BOOL, last, row, NULL, sees, 0);
    } else {
        dnn_pointwise(g, DNN_GREATER_EQUAL, DNN_BOOL, row, column, NULL, sees, 0);
    }
    dnn_pointwise(g, DNN_SELECT, DNN_F32, x, minus_inf, sees, y, 0);
    return y;
}

static void *masked(dnn_graph *g, const dnn_key *k, void *x)
{
    if (k->bidirectional)
        return x;
    void *minus_inf = dnn_value(g, MINUS_INF);
    x = mask(g, k, x, minus_inf, false);
    return k->window > 0 ? mask(g, k, x, minus_inf, true) : x;
}

void dnn_attention_forward(dnn_graph *g, const dnn_key *k)
{
    void *q = rows(g, k, Q, k->heads, k->head_dim, false),
         *kt = rows(g, k, K, k->kv_heads, k->head_dim, true),
         *v = rows(g, k, V, k->kv_heads, k->v_head_dim, false),
         *out = rows(g, k, OUT, k->heads, k->v_head_dim, false), *lse = per_row(g, k, LSE, true);
    void *products = scores(g, k, DNN_F32, false), *scaled = scores(g, k, DNN_F32, false),
         *less = scores(g, k, DNN_F32, false), *e = scores(g, k, DNN_F32, false),
         *p = scores(g, k, DNN_BF16, false);
    void *most = per_row(g, k, 0, false), *sum = per_row(g, k, 0, false),
         *log_sum = per_row(g, k, 0, false);
    dnn_matmul(g, q, kt, products);
    dnn_pointwise(g, DNN_MUL, DNN_F32, products, dnn_value(g, SCALE), NULL, scaled, 0);
    void *seen = masked(g, k, scaled);
    dnn_reduce(g, DNN_MAX, seen, most);
    dnn_pointwise(g, DNN_SUB, DNN_F32, seen, most, NULL, less, 0);
    dnn_pointwise(g, DNN_EXP, DNN_F32, less, NULL, NULL, e, 0);
    dnn_reduce(g, DNN_SUM, e, sum);
    dnn_pointwise(g, DNN_LOG, DNN_F32, sum, NULL, NULL, log_sum, 0);
    dnn_pointwise(g, DNN_ADD, DNN_F32, most, log_sum, NULL, lse, 0);
    dnn_pointwise(g, DNN_DIV, DNN_F32, e, sum, NULL, p, 0);
    dnn_matmul(g, p, v, out);
}

/* to [B,KV,S,dim] = the sum over each group's heads of aᵀ b, a [B,H,S,S], b [B,H,S,dim] */
static void product_of_columns(dnn_graph *g, const dnn_key *k, void *a, void *b, int64_t id,
                               int64_t dim)
{
    const int64_t h = k->heads, s = k->line;
    void *at = scores(g, k, DNN_BF16, true), *to = rows(g, k, id, k->kv_heads, dim, false);
    dnn_reshape(g, a, at);
    if (h == k->kv_heads) {
        dnn_matmul(g, at, b, to);
        return;
    }
    const dnn_shape all = {
        {k->lines,    h,       s,   dim},
        {h * s * dim, s * dim, dim, 1  }
    };
    void *per_head = dnn_tensor(g, 0, DNN_BF16, &all);
    dnn_matmul(g, at, b, per_head);
    dnn_reduce(g, DNN_SUM, per_head, to);
}

/* ROW_SUM = Σ out·dout of each row, the mean of the scores' derivatives under p. */
static void *row_sums(dnn_graph *g, const dnn_key *k, void *dout)
{
    const int64_t h = k->heads, s = k->line, d = k->v_head_dim;
    const dnn_shape x = {
        {k->lines,  h,     s, d},
        {s * h * d, s * d, d, 1}
    };
    void *out = rows(g, k, OUT, h, d, false), *products = dnn_tensor(g, 0, DNN_F32, &x),
         *sum = per_row(g, k, 0, false), *result = per_row(g, k, ROW_SUM, false);
    dnn_pointwise(g, DNN_MUL, DNN_F32, dout, out, NULL, products, 0);
    dnn_reduce(g, DNN_SUM, products, sum);
    dnn_pointwise(g, DNN_MUL, DNN_F32, sum, dnn_value(g, ONE), NULL, result, 0);
    return result;
}

void dnn_attention_backward(dnn_graph *g, const dnn_key *k)
{
    const int64_t h = k->heads, kv = k->kv_heads, hd = k->head_dim, dv = k->v_head_dim;
    void *q = rows(g, k, Q, h, hd, false), *kt = rows(g, k, K, kv, hd, true),
         *vt = rows(g, k, V, kv, dv, true), *dout = rows(g, k, DOUT, h, dv, false);
    void *products = scores(g, k, DNN_F32, false), *scaled = scores(g, k, DNN_F32, false),
         *less = scores(g, k, DNN_F32, false), *p = scores(g, k, DNN_F32, false),
         *dp = scores(g, k, DNN_F32, false), *centred = scores(g, k, DNN_F32, false),
         *weighted = scores(g, k, DNN_F32, false), *ds = scores(g, k, DNN_F32, false);
    void *sums = row_sums(g, k, dout), *scale = dnn_value(g, SCALE);
    dnn_matmul(g, q, kt, products);
    dnn_pointwise(g, DNN_MUL, DNN_F32, products, scale, NULL, scaled, 0);
    dnn_pointwise(g, DNN_SUB, DNN_F32, scaled, per_row(g, k, LSE, true), NULL, less, 0);
    dnn_pointwise(g, DNN_EXP, DNN_F32, masked(g, k, less), NULL, NULL, p, 0);
    product_of_columns(g, k, p, dout, DV, dv);
    dnn_matmul(g, dout, vt, dp);
    dnn_pointwise(g, DNN_SUB, DNN_F32, dp, sums, NULL, centred, 0);
    dnn_pointwise(g, DNN_MUL, DNN_F32, centred, p, NULL, weighted, 0);
    dnn_pointwise(g, DNN_MUL, DNN_F32, weighted, scale, NULL, ds, 0);
    product_of_columns(g, k, ds, q, DK, hd);
    const int64_t s = k->line, width = kv * hd;
    const dnn_shape straight = {
        {k->lines,  kv, s,     hd},
        {s * width, hd, width, 1 }
    };
    void *keys = dnn_tensor(g, 0, DNN_F32, &straight);
    dnn_reshape(g, kt, keys);
    void *dq = rows(g, k, DQ, h, hd, false);
    if (!k->any_order) {
        dnn_matmul(g, ds, keys, dq);
        return;
    }
    const dnn_shape all = {
        {k->lines,   h,      s,  hd},
        {h * s * hd, s * hd, hd, 1 }
    };
    void *sum = dnn_tensor(g, DQ_SUM, DNN_F32, &all);
    dnn_matmul(g, ds, keys, sum);
    dnn_pointwise(g, DNN_IDENTITY, DNN_F32, sum, NULL, NULL, dq, 0);
}
