/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_dnn.h"
#include "attention_dnn_graph.h"
#include "module.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* attention by cuDNN: which calls it takes, plans, runs. The graphs: attention_dnn_graph.c. */

typedef struct dnn_plan {
    dnn_key key;
    bool known; /* cuDNN can, with this workspace */
    void *plan;
    int64_t workspace;
    struct dnn_plan *next;
} dnn_plan;

static bool make_key(const cuda_backend *b, const tt_kernel_call *c, dnn_key *out)
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
    *out = (dnn_key){.lines = n / line,
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

/* ---- plans ---- */

static void build_plan(const cuda_backend *b, dnn_plan *p)
{
    dnn_graph g;
    tt_error why = {0};
    dnn_graph_start(&g, b->dnn, &why);
    if (p->key.bwd)
        dnn_attention_backward(&g, &p->key);
    else
        dnn_attention_forward(&g, &p->key);
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
static cuda_key plan_name(const cuda_backend *b, const dnn_key *k)
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
static const dnn_plan *find_plan(cuda_backend *b, const dnn_key *k)
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
static size_t row_sum_bytes(const dnn_key *k)
{
    return k->bwd ? whole((size_t)(k->lines * k->line * k->heads) * sizeof(float)) : 0;
}
static size_t dq_sum_bytes(const dnn_key *k)
{
    return k->any_order ? (size_t)(k->lines * k->line * k->heads * k->head_dim) * sizeof(float) : 0;
}

/* Attention that may need more than this part of the chip's memory is left to our own kernels: on some
 * chips the derivative that repeats its bits needs memory with the square of the line. */
#define MOST_MEMORY 8

bool cuda_dnn_takes(cuda_backend *b, const tt_kernel_call *c, size_t *scratch)
{
    dnn_key k;
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
    dnn_key k;
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
    dnn_key k;
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
