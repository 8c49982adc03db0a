/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_dnn.h"
#include "module.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* attention as a graph of cuDNN's operations: [B,H,S,D] with B lines of S tokens, H heads of D
 * elements, in our layout [B*S, H*D]. cuDNN recognises this graph as a whole and runs one fused
 * kernel, so the order and the types of the operations are what its documentation says
 * ("Fused flash attention"). */

/* What a plan depends on. */
typedef struct key {
    int64_t lines, line, heads, kv_heads, head_dim, v_head_dim, window;
    int32_t bwd, bidirectional;
    int32_t any_order; /* sums of dq in an order that varies from run to run */
} key;

typedef struct dnn_plan {
    key key;
    bool known; /* cuDNN can, with this workspace */
    void *plan;
    int64_t workspace;
    struct dnn_plan *next;
} dnn_plan;

/* ids of operands */
enum { Q = 1, K, V, OUT, LSE, DOUT, DQ, DK, DV, SCALE, ONE, ROW_SUM, MINUS_INF, WINDOW, DQ_SUM };

static bool make_key(const cuda_backend *b, const tt_kernel_call *c, key *out)
{
    const tt_attrs_attention *a = c->attrs;
    const tt_tensor *q = &c->in[0], *k = &c->in[1];
    const bool bwd = strcmp(c->op, "attention") != 0;
    const int64_t n = q->shape[0], line = a->line;
    if (q->dtype != TT_BF16 || k->dtype != TT_BF16 || c->in[2].dtype != TT_BF16 ||
        c->n_in != (bwd ? 10 : 7) || a->bias || a->softcap != 0 || a->ring || line <= 0 || n == 0 ||
        k->shape[1] == 0 || k->global[1] == 0 || n != k->shape[0] || n % line != 0 ||
        (a->bidirectional && a->window))
        return false;
    memset(out, 0, sizeof *out);
    *out = (key){.lines = n / line,
                 .line = line,
                 .heads = q->shape[1] / a->head_dim,
                 .kv_heads = k->shape[1] / a->head_dim,
                 .head_dim = a->head_dim,
                 .v_head_dim = a->v_head_dim,
                 .window = a->window,
                 .bwd = bwd,
                 .bidirectional = a->bidirectional,
                 .any_order = bwd && !b->config.deterministic};
    const int64_t group = q->global[1] / k->global[1];
    return out->heads > 0 && out->heads == out->kv_heads * group &&
           q->begin[1] == k->begin[1] * group && a->head_dim % 8 == 0 && a->v_head_dim % 8 == 0 &&
           n < INT32_MAX;
}

/* ---- the graphs ---- */

/* A tensor of our layout; rows: [lines*line, heads*dim]. transposed: its last two dims swapped. */
static void *rows(dnn_graph *g, const key *k, int64_t id, int64_t heads, int64_t dim,
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
static void *per_row(dnn_graph *g, const key *k, int64_t id, bool ours)
{
    const int64_t h = k->heads, s = k->line;
    const dnn_shape x = {
        {k->lines, h,            s,            1},
        {h * s,    ours ? 1 : s, ours ? h : 1, 1}
    };
    return dnn_tensor(g, id, DNN_F32, &x);
}

/* A value per query, head and key, inside the graph. */
static void *scores(dnn_graph *g, const key *k, int type, bool transposed)
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
static void *mask(dnn_graph *g, const key *k, void *x, void *minus_inf, bool window)
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

static void *masked(dnn_graph *g, const key *k, void *x)
{
    if (k->bidirectional)
        return x;
    void *minus_inf = dnn_value(g, MINUS_INF);
    x = mask(g, k, x, minus_inf, false);
    return k->window > 0 ? mask(g, k, x, minus_inf, true) : x;
}

static void forward(dnn_graph *g, const key *k)
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
static void product_of_columns(dnn_graph *g, const key *k, void *a, void *b, int64_t id,
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
static void *row_sums(dnn_graph *g, const key *k, void *dout)
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

static void backward(dnn_graph *g, const key *k)
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

/* ---- plans ---- */

static void build_plan(const cuda_backend *b, dnn_plan *p)
{
    dnn_graph g;
    tt_error why = {0};
    dnn_graph_start(&g, b->dnn, &why);
    if (p->key.bwd)
        backward(&g, &p->key);
    else
        forward(&g, &p->key);
    if (g.status == TT_OK)
        dnn_graph_plan(&g, p->key.any_order, &p->plan, &p->workspace);
    dnn_graph_free(&g);
    if (!p->plan)
        tt_log(b->is_target ? TT_INFO : TT_DEBUG, "cuda",
               "attention of lines of %lld tokens by our own kernels: %s", (long long)p->key.line,
               why.text);
    p->known = p->plan != NULL;
}

/* The library takes a second or more to make a plan, so what it says of workspaces is kept in the folder
 * of compiled kernels, for the questions before the device is opened. */
static cuda_key plan_name(const cuda_backend *b, const key *k)
{
    char text[400];
    snprintf(text, sizeof text,
             "cuDNN %zu on %s of %lld bytes: %lld %lld %lld %lld %lld %lld %lld %d %d %d",
             b->dnn->api.cudnnGetVersion(), b->chip.name, (long long)b->chip.memory_bytes,
             (long long)k->lines, (long long)k->line, (long long)k->heads, (long long)k->kv_heads,
             (long long)k->head_dim, (long long)k->v_head_dim, (long long)k->window, k->bwd,
             k->bidirectional, k->any_order);
    const char *texts[] = {text};
    return cuda_key_of(texts, 1);
}

static bool remembered(const cuda_backend *b, dnn_plan *p)
{
    char folder[4096];
    cuda_code code = {0};
    cuda_cache_folder(b->config.cache, folder, sizeof folder);
    const bool found =
        cuda_cache_read(folder, plan_name(b, &p->key), &code) && code.bytes == sizeof p->workspace;
    if (found) {
        memcpy(&p->workspace, code.data, sizeof p->workspace);
        p->known = p->workspace >= 0;
    }
    free(code.data);
    return found;
}

static void remember(const cuda_backend *b, const dnn_plan *p)
{
    char folder[4096];
    int64_t workspace = p->known ? p->workspace : -1;
    const cuda_code code = {.data = &workspace, .bytes = sizeof workspace};
    cuda_cache_folder(b->config.cache, folder, sizeof folder);
    cuda_cache_write(folder, plan_name(b, &p->key), &code);
}

/* The plan for this key, made if it is not there; of a chip that is not here, perhaps only its
 * workspace. NULL: out of memory. */
static const dnn_plan *find_plan(cuda_backend *b, const key *k)
{
    for (dnn_plan *p = b->dnn->plans; p; p = p->next)
        if (memcmp(&p->key, k, sizeof *k) == 0)
            return p;
    dnn_plan *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->key = *k;
    p->next = b->dnn->plans;
    b->dnn->plans = p;
    if (!b->is_target || !remembered(b, p)) {
        build_plan(b, p);
        remember(b, p);
    }
    return p;
}

void cuda_dnn_plans_free(cuda_dnn *d)
{
    while (d->plans) {
        dnn_plan *p = d->plans;
        d->plans = p->next;
        dnn_plan_free(d, p->plan);
        free(p);
    }
}

/* The scratch: cuDNN's workspace; of the derivative also the sums of rows and, if any_order, of dq. */
static size_t whole(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}
static size_t row_sum_bytes(const key *k)
{
    return k->bwd ? whole((size_t)(k->lines * k->line * k->heads) * sizeof(float)) : 0;
}
static size_t dq_sum_bytes(const key *k)
{
    return k->any_order ? (size_t)(k->lines * k->line * k->heads * k->head_dim) * sizeof(float) : 0;
}

/* Attention that may need more than this part of the chip's memory is left to our own kernels: on some
 * chips the derivative that repeats its bits needs memory with the square of the line. */
#define MOST_MEMORY 8

bool cuda_dnn_takes(cuda_backend *b, const tt_kernel_call *c, size_t *scratch)
{
    key k;
    if (!b || !b->dnn || !make_key(b, c, &k))
        return false;
    const dnn_plan *p = find_plan(b, &k);
    if (!p || !p->known ||
        (b->chip.memory_bytes && p->workspace > b->chip.memory_bytes / MOST_MEMORY))
        return false;
    *scratch = whole((size_t)p->workspace) + row_sum_bytes(&k) + dq_sum_bytes(&k);
    return true;
}

bool cuda_dnn_aligned(const tt_kernel_call *c)
{
    uintptr_t all = (uintptr_t)c->scratch;
    for (int i = 0; i < c->n_in; i++)
        all |= (uintptr_t)c->in[i].data * (c->in[i].dtype != TT_I32);
    for (int i = 0; i < c->n_out; i++)
        all |= (uintptr_t)c->out[i].data;
    return all % 16 == 0;
}

static tt_status no_plan(tt_error *err)
{
    return TT_FAIL(err, TT_EINTERNAL, "cuDNN has no plan for a call that it took");
}

tt_status cuda_dnn_attention(cuda_backend *b, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_attention *a = c->attrs;
    float scale = (float)a->scale, minus_inf = -INFINITY, window = (float)a->window;
    const int64_t ids[] = {Q, K, V, OUT, LSE, SCALE, MINUS_INF, WINDOW};
    void *const at[] = {c->in[0].data,  c->in[1].data, c->in[2].data, c->out[0].data,
                        c->out[1].data, &scale,        &minus_inf,    &window};
    key k;
    const dnn_plan *p = make_key(b, c, &k) ? find_plan(b, &k) : NULL;
    const int n = k.window > 0 ? 8 : k.bidirectional ? 6 : 7;
    if (!p || !p->plan)
        return no_plan(err);
    return dnn_run(b->dnn, p->plan, c->queue, n, ids, at, p->workspace ? c->scratch : NULL, err);
}

tt_status cuda_dnn_attention_bwd(cuda_backend *b, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_attention *a = c->attrs;
    float scale = (float)a->scale, one = 1, minus_inf = -INFINITY, window = (float)a->window;
    key k;
    const dnn_plan *p = make_key(b, c, &k) ? find_plan(b, &k) : NULL;
    if (!p || !p->plan)
        return no_plan(err);
    char *row_sums = (char *)c->scratch + whole((size_t)p->workspace),
         *dq_sums = row_sums + row_sum_bytes(&k);
    int64_t ids[15] = {Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, SCALE, ONE, ROW_SUM};
    void *at[15] = {c->in[0].data,  c->in[1].data, c->in[2].data,  c->in[3].data,
                    c->in[4].data,  c->in[5].data, c->out[0].data, c->out[1].data,
                    c->out[2].data, &scale,        &one,           row_sums};
    int n = 12;
    ids[n] = MINUS_INF, at[n] = &minus_inf, n += !k.bidirectional;
    ids[n] = WINDOW, at[n] = &window, n += k.window > 0;
    ids[n] = DQ_SUM, at[n] = dq_sums, n += k.any_order;
    TT_TRY(cuda_zero(b, c->queue, dq_sums, dq_sum_bytes(&k), err));
    return dnn_run(b->dnn, p->plan, c->queue, n, ids, at, p->workspace ? c->scratch : NULL, err);
}
