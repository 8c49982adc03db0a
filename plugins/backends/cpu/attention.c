/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"
#include <string.h>
#include <ttrun/random.h>

/* attention: the kernel works on a group of kv heads at a time. It copies their rows of keys and
 * values next to each other (or packs them for AMX tiles); then each (query head, FWD_QUERIES
 * queries) is one task. q [Tq,h*hd], k [Tk,kv*hd], v [Tk,kv*dv], positions and segments of queries
 * [Tq] and keys [Tk], and optional sinks [h] and bias [h,n] -> out [Tq,h*dv], lse [Tq,h]. Naive twin:
 * ref_attention in backends/reference/attention.c. */
#define FWD_QUERIES 96
#define TASKS_A_THREAD 16 /* per group of kv heads, at least */

int64_t cpu_attn_kv_head(const cpu_attn_shape *s, int64_t head)
{
    return (s->head_begin + head) / s->group - s->kv_begin;
}

void cpu_attn_shape_of(const cpu_isa *isa, const tt_kernel_call *c, const tt_tensor *q,
                       const tt_tensor *k, const tt_tensor *v, cpu_attn_shape *out)
{
    const tt_attrs_attention *at = c->attrs;
    cpu_attn_shape s = {.isa = isa};
    cpu_attn *a = &s.a;
    a->hd = at->head_dim;
    a->dv = at->v_head_dim;
    a->tq = q->shape[0];
    a->tk = k->shape[0];
    a->tk_pad = cpu_round_up(a->tk, CPU_KEYS);
    /* While planning the instruction set is unknown: pad for the widest level. */
    a->hd_pad = cpu_round_up(a->hd, isa ? isa->lanes : 16);
    a->dv_pad = cpu_round_up(a->dv, isa ? isa->lanes : 16);
    a->window = at->window;
    a->scale = (float)at->scale;
    a->softcap = (float)at->softcap;
    a->causal = !at->bidirectional;
    if (tt_attention_drops(at)) {
        a->token_index = cpu_i32(&c->in[c->n_in - 1]);
        a->drop_key = tt_dropout_key(tt_call_seed(c), tt_call_step(c), at->stream);
        a->drop_limit = tt_dropout_limit(at->dropout);
        a->kept = (float)(1.0 / (1.0 - at->dropout));
    }
    if (at->bias) {
        s.bias = &c->in[c->n_in - 1 - tt_attention_drops(at)];
        a->n_bias = (int32_t)s.bias->shape[1];
        a->bias_zero = a->causal ? 0 : a->n_bias / 2;
    }
    s.heads = q->shape[1] / a->hd;
    s.kv_heads = k->shape[1] / a->hd;
    int64_t all = q->global[1] / a->hd, all_kv = k->global[1] / a->hd;
    s.head_begin = q->begin[1] / a->hd;
    s.kv_begin = k->begin[1] / a->hd;
    if (all <= 0 || all_kv <= 0) { /* a caller that does not shard leaves global sizes 0 */
        all = s.heads;
        all_kv = s.kv_heads;
    }
    s.group = all_kv > 0 ? cpu_max(1, all / all_kv) : 1;
    s.k = k;
    s.v = v;
    *out = s;
}

cpu_attn cpu_attn_of_head(const cpu_attn_shape *s, int64_t head)
{
    cpu_attn a = s->a;
    if (s->bias)
        a.bias = cpu_f32(s->bias) + head * a.n_bias;
    a.head = (uint32_t)(s->head_begin + head);
    return a;
}

const float *cpu_attn_sinks(const tt_kernel_call *c)
{
    const tt_attrs_attention *a = c->attrs;
    return c->n_in - (a->bias ? 1 : 0) - tt_attention_drops(a) > 7 ? cpu_f32(&c->in[7]) : NULL;
}

size_t cpu_attn_keys_bytes(const cpu_attn_shape *s)
{
    return 2 * cpu_align((size_t)s->a.tk_pad * sizeof(int32_t)) +
           cpu_align((size_t)s->a.tk_pad / CPU_SPAN * 4 * sizeof(int32_t));
}

/* Positions and segments of the keys, padded, and the minimum and maximum of both over each span of
 * CPU_SPAN keys. */
void cpu_attn_keys(cpu_attn_shape *s, const int32_t *pos, const int32_t *seg, char **scratch)
{
    cpu_attn *a = &s->a;
    int32_t *p = (int32_t *)(void *)cpu_take(scratch, a->tk_pad),
            *g = (int32_t *)(void *)cpu_take(scratch, a->tk_pad);
    int32_t *x = (int32_t *)(void *)cpu_take(scratch, a->tk_pad / CPU_SPAN * 4);
    for (int64_t j = 0; j < a->tk_pad; j++) {
        p[j] = j < a->tk ? pos[j] : INT32_MAX;
        g[j] = j < a->tk ? seg[j] : INT32_MIN;
    }
    for (int64_t j = 0; j < a->tk_pad; j += CPU_SPAN) {
        int32_t *e = x + j / CPU_SPAN * 4;
        e[0] = e[2] = INT32_MAX;
        e[1] = e[3] = INT32_MIN;
        for (int64_t i = j; i < j + CPU_SPAN; i++) {
            e[2] = g[i] < e[2] ? g[i] : e[2];
            e[3] = g[i] > e[3] ? g[i] : e[3];
            if (i >= a->tk)
                continue;
            e[0] = p[i] < e[0] ? p[i] : e[0];
            e[1] = p[i] > e[1] ? p[i] : e[1];
        }
    }
    a->pos_k = p;
    a->seg_k = g;
    a->spans = x;
}

/* Copies rows [j, j + n) of one head, padded to d_pad columns; rows past the end are zero. */
void cpu_attn_copy(const cpu_attn_shape *s, const tt_tensor *x, int64_t head, int64_t d,
                   int64_t d_pad, int64_t j, int64_t n, float *dst)
{
    const int64_t ld = x->shape[1], keep = cpu_max(0, cpu_min(n, x->shape[0] - j));
    s->isa->attn_rows(cpu_f32(x) + j * ld + head * d, ld, keep, d, 1.0f, dst, d_pad, d_pad);
    memset(dst + keep * d_pad, 0, (size_t)((n - keep) * d_pad) * sizeof(float));
}

typedef struct forward {
    cpu_attn_shape s;
    const cpu_attn_tiles *tiles; /* NULL: multiply-adds */
    const tt_tensor *q;
    tt_tensor *out, *lse;
    const float *sinks;
    /* the first kv head of the group of kv heads, and its first query head */
    int64_t first_kv, first;
    char *k, *v;    /* copies of the group's keys and values */
    int64_t blocks; /* number of blocks of queries; of keys, while copying */
    /* [query heads of the group][blocks]: multiply-adds have to compute the block */
    uint8_t *again;
} forward;

static int64_t query_blocks_of(const cpu_attn_shape *s) /* per head */
{
    return (s->a.tq + FWD_QUERIES - 1) / FWD_QUERIES;
}

/* Kv heads per group: enough tasks for all threads, but no more copies than stay in cache. */
static int64_t turn_of(const cpu_attn_shape *s, int n_threads)
{
    const int64_t tasks = cpu_max(1, s->group * query_blocks_of(s));
    return cpu_max(1, cpu_min(s->kv_heads, (TASKS_A_THREAD * n_threads + tasks - 1) / tasks));
}

/* Bytes of CPU_KEYS rows of keys or values as they are copied. */
static int64_t keys_size(const forward *w)
{
    return w->tiles ? CPU_KEYS / CPU_PANEL * cpu_attn_six_keys(w->s.a.hd) * 2
                    : CPU_KEYS * w->s.a.hd_pad * 4;
}
static int64_t values_size(const forward *w)
{
    return w->tiles ? CPU_KEYS / CPU_PANEL * cpu_attn_six_values(w->s.a.dv) * 2
                    : CPU_KEYS * w->s.a.dv_pad * 4;
}

static void pack_keys(const forward *w, int64_t head, int64_t j, char *k, char *v)
{
    const cpu_attn *a = &w->s.a;
    const tt_tensor *keys = w->s.k, *values = w->s.v;
    const int64_t ld_k = keys->shape[1], ld_v = values->shape[1];
    for (int64_t end = j + CPU_KEYS; j < end; j += CPU_PANEL) {
        const int64_t rows = cpu_max(0, cpu_min(CPU_PANEL, a->tk - j)), at = rows ? j : 0;
        w->tiles->pack_keys(cpu_f32(keys) + at * ld_k + head * a->hd, ld_k, rows, a->hd, k);
        w->tiles->pack_values(cpu_f32(values) + at * ld_v + head * a->dv, ld_v, rows, a->dv, v);
        k += cpu_attn_six_keys(a->hd) * 2;
        v += cpu_attn_six_values(a->dv) * 2;
    }
}

static void copy_keys(void *arg, int64_t begin, int64_t end, int thread)
{
    const forward *w = arg;
    const cpu_attn *a = &w->s.a;
    (void)thread;
    for (int64_t i = begin; i < end; i++) { /* i counts (kv head, block of keys) */
        const int64_t h = w->first_kv + i / w->blocks, j = i % w->blocks * CPU_KEYS;
        char *k = w->k + i * keys_size(w), *v = w->v + i * values_size(w);
        if (w->tiles) {
            pack_keys(w, h, j, k, v);
            continue;
        }
        cpu_attn_copy(&w->s, w->s.k, h, a->hd, a->hd_pad, j, CPU_KEYS, (float *)(void *)k);
        cpu_attn_copy(&w->s, w->s.v, h, a->dv, a->dv_pad, j, CPU_KEYS, (float *)(void *)v);
    }
}

static void query_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const forward *w = arg;
    const int64_t heads = w->s.heads, key_blocks = w->s.a.tk_pad / CPU_KEYS;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        /* Late blocks first: with a causal mask they see the most keys. */
        const int64_t h = w->first + i / w->blocks,
                      t = (w->blocks - 1 - i % w->blocks) * FWD_QUERIES,
                      g = (cpu_attn_kv_head(&w->s, h) - w->first_kv) * key_blocks,
                      stop = cpu_min(w->s.a.tq, t + FWD_QUERIES);
        const cpu_attn of_head = cpu_attn_of_head(&w->s, h), *a = &of_head;
        const char *k = w->k + g * keys_size(w), *v = w->v + g * values_size(w);
        const float *q = cpu_f32(w->q) + h * a->hd, *sink = w->sinks ? w->sinks + h : NULL;
        float *out = (float *)w->out->data + h * a->dv, *lse = (float *)w->lse->data + h;
        if (w->tiles)
            w->again[i] = !w->tiles->fwd(a, k, v, q, out, lse, heads, sink, t, stop);
        else if (w->again[i])
            w->s.isa->attn_fwd(a, (const float *)(const void *)k, (const float *)(const void *)v, q,
                               out, lse, heads, sink, t, stop);
    }
}

static size_t attention_scratch(const tt_kernel_call *c, int n_threads)
{
    cpu_attn_shape s;
    cpu_attn_shape_of(NULL, c, &c->in[0], &c->in[1], &c->in[2], &s);
    /* The copies of one group of kv heads; those packed for tiles are the larger ones. */
    const int64_t kv = turn_of(&s, n_threads), panels = kv * (s.a.tk_pad / CPU_PANEL);
    return cpu_attn_keys_bytes(&s) + cpu_align((size_t)(panels * cpu_attn_six_keys(s.a.hd)) * 2) +
           cpu_align((size_t)(panels * cpu_attn_six_values(s.a.dv)) * 2) +
           cpu_align((size_t)(kv * s.group * query_blocks_of(&s)));
}

tt_status cpu_attn_check(const cpu_attn_shape *s, tt_error *err)
{
    if (s->a.hd > CPU_MAX_HEAD_DIM || s->a.dv > CPU_MAX_HEAD_DIM)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "attention: head_dim %lld is above %d; use more heads or another backend",
                       (long long)cpu_max(s->a.hd, s->a.dv), CPU_MAX_HEAD_DIM);
    return TT_OK;
}

/* The number of this rank's query heads that belong to kv heads before `kv`. */
static int64_t heads_before(const cpu_attn_shape *s, int64_t kv)
{
    return cpu_max(0, cpu_min(s->heads, (s->kv_begin + kv) * s->group - s->head_begin));
}

static void run_turn(forward *w, tt_pool *pool, int64_t kv, int64_t heads)
{
    w->blocks = w->s.a.tk_pad / CPU_KEYS;
    tt_parallel_for(pool, kv * w->blocks, 4, copy_keys, w);
    w->blocks = query_blocks_of(&w->s);
    tt_parallel_for(pool, heads * w->blocks, 1, query_blocks, w);
}

static tt_status attention(void *self, const tt_kernel_call *c, tt_error *err)
{
    const cpu_backend *backend = self;
    forward w = {.q = &c->in[0], .out = &c->out[0], .lse = &c->out[1], .sinks = cpu_attn_sinks(c)};
    cpu_attn_shape_of(backend->isa, c, &c->in[0], &c->in[1], &c->in[2], &w.s);
    TT_TRY(cpu_attn_check(&w.s, err));
    cpu_attn *a = &w.s.a;
    char *p = c->scratch;
    cpu_attn_keys(&w.s, cpu_i32(&c->in[5]), cpu_i32(&c->in[6]), &p);
    const int64_t kv = turn_of(&w.s, tt_pool_threads(c->pool)),
                  panels = kv * (a->tk_pad / CPU_PANEL), most = kv * w.s.group;
    /* two u16 take the room of a float */
    w.k = (char *)cpu_take(&p, panels * cpu_attn_six_keys(a->hd) / 2);
    w.v = (char *)cpu_take(&p, panels * cpu_attn_six_values(a->dv) / 2);
    w.again = (uint8_t *)p;
    a->pos_q = cpu_i32(&c->in[3]);
    a->seg_q = cpu_i32(&c->in[4]);
    a->ldq = w.s.heads * a->hd;
    a->ldo = w.s.heads * a->dv;
    for (w.first_kv = 0; w.first_kv < w.s.kv_heads; w.first_kv += kv) {
        const int64_t n = cpu_min(kv, w.s.kv_heads - w.first_kv),
                      heads = heads_before(&w.s, w.first_kv + n) -
                              (w.first = heads_before(&w.s, w.first_kv));
        const size_t tasks = (size_t)(heads * query_blocks_of(&w.s));
        memset(w.again, 1, (size_t)(most * query_blocks_of(&w.s)));
        w.tiles = a->kept > 0.0f ? NULL : backend->attn_tiles; /* AMX tiles have no dropout */
        run_turn(&w, c->pool, n, heads);
        /* blocks whose tiles met a value that is not finite */
        if (w.tiles && memchr(w.again, 1, tasks)) {
            w.tiles = NULL;
            run_turn(&w, c->pool, n, heads);
        }
    }
    return TT_OK;
}

const cpu_kernel cpu_kernels_attention[] = {
    CPU_KERNEL("attention", attention, attention_scratch, 0, 0),
    CPU_KERNEL_END,
};
