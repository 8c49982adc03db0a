/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"

/* attention_cached, latent_cached, and attention_merge. A sequence's positions are cut into parts where tokens and
 * heads alone are too few blocks for a device; the cut depends on shapes alone. */

enum { CACHED_HEADS = 8, CACHED_COLS = 128, PART = 256, BLOCKS = 512 };
enum { LATENT_HEADS = 8, LATENT_COLS = 512, LATENT_ROWS = 16 };
#define SHARED 101376 /* bytes that a block may have on every chip from compute capability 8.0 on */

static int64_t most_heads(const attention_args *a) /* query heads of a kv head on this rank */
{
    return a->group < a->heads ? a->group : a->heads;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How the positions are cut, with a block for so many columns. */
static void cut(attention_cached_args *s, int columns)
{
    const int64_t positions = s->blocks * TT_CACHE_BLOCK,
                  blocks = s->a.n_q * s->a.kv_heads * s->head_parts *
                           cuda_attn_tiles(s->a.dv_dim, columns);
    int64_t n = smaller(blocks > 0 ? BLOCKS / blocks : 1, cuda_attn_tiles(positions, PART));
    n = n > 1 ? n : 1;
    s->part = cuda_attn_tiles(s->blocks, n) * TT_CACHE_BLOCK;
    s->parts_n = s->part > 0 ? (int)cuda_attn_tiles(positions, s->part) : 1;
}

/* Rows of parts: at least 2 for each (token, query head) or none, and no more than BLOCKS blocks have.
 * Not less for a call with fewer tokens or heads. */
size_t cuda_attention_cached_bytes(const tt_kernel_call *c, int n_threads)
{
    attention_args a;
    (void)n_threads;
    cuda_files_need(c->backend, "attention_cached");
    cuda_attn_args(c, 3, false, &a);
    const int64_t most = cuda_attn_tiles(c->in[6].shape[2], PART),
                  rows = smaller(a.n_q * a.heads * most, BLOCKS * most_heads(&a));
    return most > 1 ? (size_t)(rows * (a.dv_dim + 2)) * sizeof(float) : 0;
}

static tt_status copy_cache(cuda_backend *b, const tt_kernel_call *c, tt_error *err)
{
    for (int i = 1; i < 3; i++)
        if (c->out[i].data != c->in[4 + i].data)
            TT_TRY(cuda_copy(b, c->queue, c->out[i].data, c->in[4 + i].data,
                             (size_t)tt_tensor_numel(&c->out[i]) * tt_dtype_size(c->out[i].dtype),
                             err));
    return TT_OK;
}

tt_status cuda_attention_cached(void *self, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel write = CUDA_KERNEL("attention_cached", "attention_cached_write"),
                       attend = CUDA_KERNEL("attention_cached", "attention_cached"),
                       join = CUDA_KERNEL("attention_cached", "attention_cached_join");
    cuda_backend *b = self;
    attention_cached_args s = {.keys = c->out[1].data,
                               .values = c->out[2].data,
                               .slot = c->in[4].data,
                               .parts = c->scratch,
                               .slots = c->out[1].shape[0],
                               .blocks = c->out[1].shape[2]};
    cuda_attn_args(c, 3, false, &s.a);
    cuda_attn_sinks(c, &s.a);
    s.a.out = c->out[0].data;
    s.a.halves |= (c->out[1].dtype == TT_BF16 ? ATTN_KEYS : 0) |
                  (c->out[2].dtype == TT_BF16 ? ATTN_VALUES : 0);
    s.head_parts = (int)cuda_attn_tiles(most_heads(&s.a), CACHED_HEADS);
    cut(&s, CACHED_COLS);
    const int64_t elements = s.a.n_q * s.a.kv_heads * (s.a.hd + s.a.dv_dim);
    const cuda_grid writes = {cuda_blocks(elements, 256, 1 << 16), 1, 1, 256, 0};
    const cuda_grid attends = {
        s.a.n_q * s.a.kv_heads * s.head_parts, s.parts_n, cuda_attn_tiles(s.a.dv_dim, CACHED_COLS),
        128, 4 * (CACHED_HEADS * s.a.hd + 4 * CACHED_HEADS * (TT_CACHE_BLOCK + CACHED_COLS + 2))};
    const cuda_grid joins = {s.parts_n > 1 ? cuda_attn_tiles(s.a.n_q * s.a.heads, 8) : 0, 1, 1, 256,
                             0};
    TT_TRY(copy_cache(b, c, err));
    TT_TRY(CUDA_LAUNCH(b, c, &write, writes, err, &s));
    TT_TRY(CUDA_LAUNCH(b, c, &attend, attends, err, &s));
    return CUDA_LAUNCH(b, c, &join, joins, err, &s);
}

/* ---- latent_cached: q [T,h*hd], kv [T,hd], pos, slot [T], cache [S,P,hd][, sinks [h]][, bias [h,n]] ---- */

static void latent_args(const tt_kernel_call *c, attention_cached_args *s)
{
    const tt_attrs_attention *at = c->attrs;
    const tt_tensor *cache = &c->in[4],
                    *sinks = c->n_in - (at->bias ? 1 : 0) > 5 ? &c->in[5] : NULL;
    *s = (attention_cached_args){.slot = c->in[3].data,
                                 .parts = c->scratch,
                                 .slots = cache->shape[0],
                                 .blocks = cache->shape[1] / TT_CACHE_BLOCK};
    cuda_attn_args(c, 2, false, &s->a);
    s->a.sinks = sinks ? sinks->data : NULL;
    s->a.halves |= (sinks && sinks->dtype == TT_BF16 ? ATTN_SINKS : 0) |
                   (cache->dtype == TT_BF16 ? ATTN_KEYS : 0);
    s->head_parts = (int)cuda_attn_tiles(s->a.heads, LATENT_HEADS);
    cut(s, LATENT_COLS);
}

/* As cuda_attention_cached_bytes. */
size_t cuda_latent_cached_bytes(const tt_kernel_call *c, int n_threads)
{
    attention_cached_args s;
    (void)n_threads;
    cuda_files_need(c->backend, "attention_cached");
    latent_args(c, &s);
    const int64_t most = cuda_attn_tiles(c->in[4].shape[1], PART),
                  rows = smaller(s.a.n_q * s.a.heads * most, (int64_t)BLOCKS * LATENT_HEADS);
    return most > 1 ? (size_t)(rows * (s.a.dv_dim + 2)) * sizeof(float) : 0;
}

tt_status cuda_latent_cached(void *self, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel write = CUDA_KERNEL("attention_cached", "latent_cached_write"),
                       attend = CUDA_KERNEL("attention_cached", "latent_cached"),
                       join = CUDA_KERNEL("attention_cached", "attention_cached_join");
    const tt_tensor *cache = &c->out[1];
    attention_cached_args s;
    latent_args(c, &s);
    s.a.out = c->out[0].data;
    s.keys = cache->data;
    const int room = 4 * LATENT_HEADS * (LATENT_ROWS + 3 + s.a.hd);
    int rows = (int)smaller((SHARED - room) / (4 * s.a.hd), LATENT_ROWS);
    rows = rows > 1 ? rows : 1;
    const cuda_grid writes = {cuda_blocks(s.a.n_q * s.a.hd, 256, 1 << 16), 1, 1, 256, 0},
                    attends = {s.a.n_q * s.head_parts, s.parts_n,
                               cuda_attn_tiles(s.a.dv_dim, LATENT_COLS), 256,
                               room + 4 * rows * s.a.hd},
                    joins = {s.parts_n > 1 ? cuda_attn_tiles(s.a.n_q * s.a.heads, 8) : 0, 1, 1, 256,
                             0};
    TT_TRY(cuda_copy(self, c->queue, cache->data, c->in[4].data,
                     (size_t)tt_tensor_numel(cache) * tt_dtype_size(cache->dtype), err));
    TT_TRY(CUDA_LAUNCH(self, c, &write, writes, err, &s));
    TT_TRY(CUDA_LAUNCH(self, c, &attend, attends, err, &s, &rows));
    return CUDA_LAUNCH(self, c, &join, joins, err, &s);
}

/* out [T,h*dv], lse [T,h] of one set of keys, the same of another -> out, lse */
tt_status cuda_attention_merge(void *self, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel merge = CUDA_KERNEL("attention_help", "attention_merge");
    int64_t n = tt_tensor_numel(&c->in[1]), dv = n ? tt_tensor_numel(&c->in[0]) / n : 0;
    void *data[6];
    int halves = 0;
    for (int i = 0; i < 6; i++) {
        const tt_tensor *x = i < 4 ? &c->in[i] : &c->out[i - 4];
        data[i] = x->data;
        halves |= x->dtype == TT_BF16 ? 1 << i : 0;
    }
    return CUDA_LAUNCH((cuda_backend *)self, c, &merge,
                       ((cuda_grid){cuda_blocks(n, 8, 1 << 20), 1, 1, 256, 0}), err, &data[0],
                       &data[1], &data[2], &data[3], &data[4], &data[5], &n, &dv, &halves);
}
