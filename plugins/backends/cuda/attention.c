/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"
#include "attention_dnn.h"
#include <ttrun/random.h>

/* attention, and what its relatives share. bf16 with head sizes that are multiples of 8 and at most 256
 * runs on tensor cores, everything else, and dropout, as multiply-adds in f32. Which tiles of queries and keys see
 * each other is known on the device alone: attention_spans writes extremes of positions and segments
 * into scratch, and the kernels skip tiles by them. */

void cuda_attn_args(const tt_kernel_call *c, int pos_q, bool own_keys, attention_args *out)
{
    const tt_attrs_attention *at = c->attrs;
    const tt_tensor *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *index = &c->in[pos_q];
    const int64_t hd = at->head_dim;
    int64_t all = q->global[1] / hd, all_kv = k->global[1] / hd;
    *out = (attention_args){.q = q->data,
                            .k = k->data,
                            .v = v->data,
                            .pos_q = index[0].data,
                            .n_q = q->shape[0],
                            .n_k = k->shape[0],
                            .head_begin = q->begin[1] / hd,
                            .kv_begin = k->begin[1] / hd,
                            .heads = (int)(q->shape[1] / hd),
                            .kv_heads = (int)(k->shape[1] / hd),
                            .hd = (int)hd,
                            .dv_dim = (int)at->v_head_dim,
                            .window = at->window > INT32_MAX ? 0 : (int)at->window,
                            .scale = (float)at->scale,
                            .softcap = (float)at->softcap,
                            .causal = !at->bidirectional,
                            .halves = (q->dtype == TT_BF16 ? ATTN_Q | ATTN_OUT : 0) |
                                      (k->dtype == TT_BF16 ? ATTN_K : 0) |
                                      (v->dtype == TT_BF16 ? ATTN_V : 0)};
    if (own_keys) {
        out->seg_q = index[1].data;
        out->pos_k = index[2].data;
        out->seg_k = index[3].data;
    }
    if (all <= 0 || all_kv <= 0) { /* a caller that does not shard leaves global sizes 0 */
        all = out->heads;
        all_kv = out->kv_heads;
    }
    out->group = all_kv > 0 && all > all_kv ? all / all_kv : 1;
    out->rows = cuda_attn_tiles(out->n_q, ATTN_ROWS) * ATTN_ROWS;
    if (tt_attention_drops(at)) {
        out->drops = 1;
        out->drop_limit = tt_dropout_limit(at->dropout);
        out->kept = (float)(1.0 / (1.0 - at->dropout));
        out->stream = at->stream;
        out->token_index = c->in[c->n_in - 1].data;
        out->seed = c->seed;
        out->step = c->step;
    }
    if (at->bias) {
        const tt_tensor *bias = &c->in[c->n_in - 1 - tt_attention_drops(at)];
        out->bias = bias->data;
        out->n_bias = (int)bias->shape[1];
        out->bias_zero = at->bidirectional ? out->n_bias / 2 : 0;
    }
    out->cap_unit = at->softcap > 0.0 ? (float)(2.8853900817779268 / at->softcap) : 0.0f;
    out->raw = !at->bias && out->softcap <= 0.0f && out->scale > 0.0f;
}

/* The operand that only some calls of attention and attention_cached have. */
static const tt_tensor *sinks_of(const tt_kernel_call *c)
{
    const tt_attrs_attention *a = c->attrs;
    return c->n_in - (a->bias ? 1 : 0) - tt_attention_drops(a) > 7 ? &c->in[7] : NULL;
}

void cuda_attn_sinks(const tt_kernel_call *c, attention_args *a)
{
    const tt_tensor *sinks = sinks_of(c);
    a->sinks = sinks ? sinks->data : NULL;
    a->halves |= sinks && sinks->dtype == TT_BF16 ? ATTN_SINKS : 0;
}

int cuda_attn_supports(const tt_kernel_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].dtype != TT_I32 && cuda_float_index(c->in[i].dtype) < 0)
            return 0;
    return 1;
}

bool cuda_attn_fits(const attention_args *a, int hd, int dv)
{
    const int halves = ATTN_Q | ATTN_K | ATTN_V | ATTN_OUT;
    const void *const data[] = {a->q,  a->k,  a->v,     a->dout,  a->out,   a->dq,
                                a->dk, a->dv, a->pos_q, a->seg_q, a->pos_k, a->seg_k};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        if (cuda_alignment_of(data[i], 16) < 16)
            return false;
    return !a->drops && (a->halves & halves) == halves && a->hd <= hd && a->dv_dim <= dv &&
           a->hd % 8 == 0 && a->dv_dim % 8 == 0;
}

/* ---- spans ---- */

static int64_t span_bytes(int64_t tokens)
{
    return cuda_attn_tiles(tokens, ATTN_SPAN) * 4 * (int64_t)sizeof(int32_t);
}

size_t cuda_attn_spans_bytes(const attention_args *a)
{
    return (size_t)(span_bytes(a->n_q) + span_bytes(a->n_k));
}

tt_status cuda_attn_spans(cuda_backend *b, const tt_kernel_call *c, attention_args *a,
                          char **scratch, tt_error *err)
{
    static cuda_kernel kernel = CUDA_KERNEL("attention_help", "attention_spans");
    const int64_t spans = cuda_attn_tiles(a->n_q, ATTN_SPAN) + cuda_attn_tiles(a->n_k, ATTN_SPAN);
    a->spans_q = (int *)(void *)*scratch;
    a->spans_k = (int *)(void *)(*scratch + span_bytes(a->n_q));
    *scratch += cuda_attn_spans_bytes(a);
    return CUDA_LAUNCH(b, c, &kernel, ((cuda_grid){cuda_attn_tiles(spans, 128), 1, 1, 128, 0}), err,
                       a);
}

/* ---- the order of tiles ---- */

enum { LEAST_OUTER = 64 }; /* rows of an outer tile */

size_t cuda_attn_order_bytes(const attention_args *a)
{
    const int64_t n = a->n_q > a->n_k ? a->n_q : a->n_k;
    return (size_t)cuda_attn_tiles(n, LEAST_OUTER) * 2 * 4 * sizeof(int32_t);
}

tt_status cuda_attn_order(cuda_backend *b, const tt_kernel_call *c, const cuda_attn_kernel *k,
                          bool keys, attention_args *a, void *scratch, tt_error *err)
{
    static cuda_kernel reach_of = CUDA_KERNEL("attention_help", "attention_reach"),
                       order_of = CUDA_KERNEL("attention_help", "attention_order");
    int *reach = scratch, by_keys = keys, outer = k->outer, inner = k->inner,
        tiles = (int)cuda_attn_tiles(keys ? a->n_k : a->n_q, outer);
    a->order = reach + 4 * (int64_t)tiles;
    TT_TRY(CUDA_LAUNCH(b, c, &reach_of, ((cuda_grid){cuda_attn_tiles(tiles, 8), 1, 1, 256, 0}), err,
                       a, &reach, &by_keys, &outer, &inner));
    return CUDA_LAUNCH(b, c, &order_of, ((cuda_grid){cuda_attn_tiles(tiles, 128), 1, 1, 128, 0}),
                       err, &reach, &a->order, &tiles);
}

/* ---- the kernels ---- */

/* As in attention_fwd_*.cu, smallest first. */
static cuda_attn_kernel forward_kernels[] = {
    {64,  64,  128, 64, 128, 1, CUDA_ATTN_FORWARD("64")     },
    {96,  96,  128, 32, 128, 1, CUDA_ATTN_FORWARD("96")     },
    {128, 128, 128, 48, 128, 1, CUDA_ATTN_FORWARD("128")    },
    {192, 128, 128, 32, 128, 1, CUDA_ATTN_FORWARD("192_128")},
    {256, 256, 64,  32, 128, 1, CUDA_ATTN_FORWARD("256")    },
};
enum { N_FORWARD = sizeof forward_kernels / sizeof *forward_kernels };

/* Tiles of q, k, v, with 8 more columns, and positions and segments of queries and of two tiles of
 * keys. */
static int forward_shared(const cuda_attn_kernel *k)
{
    return 2 * ((k->outer + k->inner) * (k->hd + 8) + k->inner * (k->dv + 8)) +
           4 * (2 * k->outer + 4 * k->inner);
}

tt_status cuda_attn_plain(cuda_backend *b, const tt_kernel_call *c, cuda_kernel *k,
                          attention_args *a, int64_t heads, int64_t rows, int64_t width,
                          tt_error *err)
{
    const cuda_grid g = {cuda_attn_tiles(rows, CUDA_ATTN_PLAIN_ROWS) * heads, 1,
                         cuda_attn_tiles(width, 128), 256, CUDA_ATTN_PLAIN_SHARED};
    return CUDA_LAUNCH(b, c, k, g, err, a);
}

/* NULL: attention_plain.cu. */
static cuda_attn_kernel *forward_kernel(const cuda_backend *b, const attention_args *a)
{
    for (int i = 0; i < N_FORWARD; i++) {
        cuda_attn_kernel *k = &forward_kernels[i];
        if (cuda_attn_fits(a, k->hd, k->dv) && forward_shared(k) <= b->chip.shared_bytes)
            return k;
    }
    return NULL;
}

const char *cuda_attention_own_file(cuda_backend *b, const attention_args *a)
{
    const cuda_attn_kernel *k = forward_kernel(b, a);
    return k ? k->kernel.file : "attention_plain";
}

size_t cuda_attention_own_bytes(const tt_kernel_call *c)
{
    attention_args a;
    cuda_attn_args(c, 3, true, &a);
    return cuda_attn_spans_bytes(&a) + cuda_attn_order_bytes(&a);
}

tt_status cuda_attention_own(cuda_backend *b, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel plain = CUDA_KERNEL("attention_plain", "attention_plain_out");
    attention_args a;
    char *scratch = c->scratch;
    cuda_attn_args(c, 3, true, &a);
    cuda_attn_sinks(c, &a);
    a.out = c->out[0].data;
    a.lse = c->out[1].data;
    TT_TRY(cuda_attn_spans(b, c, &a, &scratch, err));
    cuda_attn_kernel *k = forward_kernel(b, &a);
    if (!k)
        return cuda_attn_plain(b, c, &plain, &a, a.heads, a.n_q, a.dv_dim, err);
    const cuda_grid g = {cuda_attn_tiles(a.n_q, k->outer) * a.heads, 1, 1, k->threads,
                         forward_shared(k)};
    TT_TRY(cuda_attn_order(b, c, k, false, &a, scratch, err));
    return CUDA_LAUNCH(b, c, &k->kernel, g, err, &a);
}

/* ---- the ops: cuDNN where it takes the call, else our own kernels ---- */

/* cuDNN's scratch, but no less than that of our own kernels: they run where addresses do not suit it. */
static size_t with_dnn(const tt_kernel_call *c, size_t own)
{
    size_t bytes = 0;
    return cuda_dnn_takes(c->backend, c, &bytes) && bytes > own ? bytes : own;
}

typedef const char *(*file_of)(cuda_backend *b, const attention_args *a);

/* Where cuDNN does not take the call, the files of our own kernels are needed. */
static void need_own(const tt_kernel_call *c, int pos_q, file_of file)
{
    cuda_backend *b = c->backend;
    attention_args a;
    size_t bytes = 0;
    if (!b || b->is_target || cuda_dnn_takes(b, c, &bytes))
        return;
    cuda_attn_args(c, pos_q, true, &a);
    cuda_files_need(b, file(b, &a));
    cuda_files_need(b, "attention_help");
}

static size_t attention_bytes(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    need_own(c, 3, cuda_attention_own_file);
    return with_dnn(c, cuda_attention_own_bytes(c));
}

static size_t attention_bwd_bytes(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    need_own(c, 6, cuda_attention_bwd_own_file);
    return with_dnn(c, cuda_attention_bwd_own_bytes(c));
}

static int merge_supports(const tt_kernel_call *c)
{
    cuda_files_need(c->backend, "attention_help");
    return cuda_attn_supports(c);
}

static bool by_dnn(cuda_backend *b, const tt_kernel_call *c)
{
    size_t bytes;
    return cuda_dnn_aligned(c) && cuda_dnn_takes(b, c, &bytes) && bytes <= c->scratch_bytes;
}

static tt_status attention(void *self, const tt_kernel_call *c, tt_error *err)
{
    return by_dnn(self, c) ? cuda_dnn_attention(self, c, err) : cuda_attention_own(self, c, err);
}

static tt_status attention_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    return by_dnn(self, c) ? cuda_dnn_attention_bwd(self, c, err)
                           : cuda_attention_bwd_own(self, c, err);
}

#define ATTENTION(op_, run_, bytes_, supports_)                                                    \
    {                                                                                              \
        .struct_size = sizeof(tt_kernel), .op = op_, .run = run_, .scratch_bytes = bytes_,         \
        .supports = supports_                                                                      \
    }
const tt_kernel cuda_kernels_attention[] = {
    ATTENTION("attention", attention, attention_bytes, cuda_attn_supports),
    ATTENTION("attention_bwd", attention_bwd, attention_bwd_bytes, cuda_attn_supports),
    ATTENTION("attention_bias_bwd", attention_bwd, attention_bwd_bytes, cuda_attn_supports),
    ATTENTION("attention_cached", cuda_attention_cached, cuda_attention_cached_bytes,
              cuda_attn_supports),
    ATTENTION("latent_cached", cuda_latent_cached, cuda_latent_cached_bytes, cuda_attn_supports),
    ATTENTION("attention_max", cuda_attention_max, cuda_attention_max_bytes, cuda_attn_supports),
    ATTENTION("attention_merge", cuda_attention_merge, NULL, merge_supports),
    {0},
};
