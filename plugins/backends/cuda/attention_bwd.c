/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"

/* attention_bwd: dq by tiles of queries, then dk and dv by tiles of keys; each computes the scores
 * anew, so that no sum is shared between blocks. attention_bias_bwd: the derivative of the bias too, by
 * a third pass. Scratch: spans, order of tiles, stats, partial sums of dbias. */

/* As in attention_bwd_*.cu. Large heads have one kernel for dk and one for dv. */
#define BWD(hd, dv, outer, inner, stages, what, size)                                              \
    {                                                                                              \
        hd, dv, outer, inner, 128, stages, CUDA_ATTN_BACKWARD(what, size)                          \
    }
static cuda_attn_kernel dq_kernels[] = {
    BWD(64, 64, 128, 32, 2, "dq", "64"),   BWD(96, 96, 64, 32, 2, "dq", "96"),
    BWD(128, 128, 64, 32, 2, "dq", "128"), BWD(192, 128, 64, 32, 2, "dq", "192_128"),
    BWD(256, 256, 64, 16, 1, "dq", "256"),
};
static cuda_attn_kernel dkdv_kernels[] = {
    BWD(64, 64, 64, 64, 2, "dkdv", "64"),    BWD(96, 96, 64, 32, 2, "dkdv", "96"),
    BWD(128, 128, 64, 32, 2, "dkdv", "128"), BWD(192, 128, 64, 16, 2, "dkdv", "192_128"),
    BWD(256, 256, 64, 16, 1, "dk", "256"),
};
static cuda_attn_kernel dv_kernel = BWD(256, 256, 64, 16, 1, "dv", "256");
enum { N_KERNELS = sizeof dq_kernels / sizeof *dq_kernels };

/* Two tiles of outer rows, `stages` times two of inner rows with their stats, and positions and
 * segments of all. */
static int backward_shared(const cuda_attn_kernel *k)
{
    const int columns = k->hd + 8 + k->dv + 8;
    return k->outer * (2 * columns + 8) + k->stages * k->inner * (2 * columns + 16);
}

/* The number of the kernels for a call; N_KERNELS: attention_plain.cu. */
static int backward_kernel(const cuda_backend *b, const attention_args *a)
{
    int i = 0;
    while (i < N_KERNELS && !(cuda_attn_fits(a, dq_kernels[i].hd, dq_kernels[i].dv) &&
                              backward_shared(&dq_kernels[i]) <= b->chip.shared_bytes &&
                              backward_shared(&dkdv_kernels[i]) <= b->chip.shared_bytes))
        i++;
    return i;
}

const char *cuda_attention_bwd_own_file(cuda_backend *b, const attention_args *a)
{
    const int i = backward_kernel(b, a);
    return i < N_KERNELS ? dq_kernels[i].kernel.file : "attention_plain";
}

/* ---- scratch ---- */

enum { BIAS_BLOCKS = 256 }; /* blocks that dbias is summed up in, about */

static int64_t stats_bytes(const attention_args *a)
{
    return a->heads * a->rows * 2 * (int64_t)sizeof(float);
}

static int bias_parts(const attention_args *a)
{
    const int64_t tiles = cuda_attn_tiles(a->n_q, CUDA_ATTN_PLAIN_ROWS),
                  most = a->heads < BIAS_BLOCKS ? BIAS_BLOCKS / a->heads : 1;
    return (int)(tiles < most ? tiles : most);
}

/* Not less for a call with fewer queries or heads. */
static int64_t bias_bytes(const attention_args *a)
{
    const int64_t all = cuda_attn_tiles(a->n_q, CUDA_ATTN_PLAIN_ROWS) * a->heads,
                  most = a->heads > BIAS_BLOCKS ? a->heads : BIAS_BLOCKS;
    return (all < most ? all : most) * a->n_bias * (int64_t)sizeof(double);
}

size_t cuda_attention_bwd_own_bytes(const tt_kernel_call *c)
{
    attention_args a;
    cuda_attn_args(c, 6, true, &a);
    return cuda_attn_spans_bytes(&a) + cuda_attn_order_bytes(&a) + (size_t)stats_bytes(&a) +
           (size_t)(c->n_out == 4 ? bias_bytes(&a) : 0);
}

/* ---- launches ---- */

/* The kernel k, whose outer rows are keys or queries; scratch: for their order. */
static tt_status launch(cuda_backend *b, const tt_kernel_call *c, cuda_attn_kernel *k,
                        attention_args *a, bool keys, void *scratch, tt_error *err)
{
    const int64_t tiles = cuda_attn_tiles(keys ? a->n_k : a->n_q, k->outer),
                  heads = keys ? a->kv_heads : a->heads;
    const cuda_grid g = {tiles * heads, 1, 1, k->threads, backward_shared(k)};
    TT_TRY(cuda_attn_order(b, c, k, keys, a, scratch, err));
    return CUDA_LAUNCH(b, c, &k->kernel, g, err, a);
}

static tt_status bias_bwd(cuda_backend *b, const tt_kernel_call *c, attention_args *a,
                          tt_error *err)
{
    static cuda_kernel parts = CUDA_KERNEL("attention_help", "attention_bias_parts"),
                       sum = CUDA_KERNEL("attention_help", "attention_bias_sum");
    const cuda_grid g = {a->parts, a->heads, 1, 256, CUDA_ATTN_PLAIN_SHARED},
                    all = {cuda_attn_tiles((int64_t)a->heads * a->n_bias, 256), 1, 1, 256, 0};
    TT_TRY(CUDA_LAUNCH(b, c, &parts, g, err, a));
    return CUDA_LAUNCH(b, c, &sum, all, err, a);
}

static tt_status plain_bwd(cuda_backend *b, const tt_kernel_call *c, attention_args *a,
                           tt_error *err)
{
    static cuda_kernel dq = CUDA_KERNEL("attention_plain", "attention_plain_dq"),
                       dk = CUDA_KERNEL("attention_plain", "attention_plain_dk"),
                       dv = CUDA_KERNEL("attention_plain", "attention_plain_dv");
    TT_TRY(cuda_attn_plain(b, c, &dq, a, a->heads, a->n_q, a->hd, err));
    TT_TRY(cuda_attn_plain(b, c, &dk, a, a->kv_heads, a->n_k, a->hd, err));
    return cuda_attn_plain(b, c, &dv, a, a->kv_heads, a->n_k, a->dv_dim, err);
}

tt_status cuda_attention_bwd_own(cuda_backend *b, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel stats = CUDA_KERNEL("attention_help", "attention_stats");
    attention_args a;
    char *scratch = c->scratch;
    cuda_attn_args(c, 6, true, &a);
    a.out = c->in[3].data;
    a.lse = c->in[4].data;
    a.dout = c->in[5].data;
    a.dq = c->out[0].data;
    a.dk = c->out[1].data;
    a.dv = c->out[2].data;
    a.dbias = c->n_out == 4 ? c->out[3].data : NULL;
    TT_TRY(cuda_attn_spans(b, c, &a, &scratch, err));
    void *order = scratch;
    scratch += cuda_attn_order_bytes(&a);
    a.stats = (float *)(void *)scratch;
    a.bias_sums = (double *)(void *)(scratch + stats_bytes(&a));
    a.parts = c->n_out == 4 ? bias_parts(&a) : 0;
    const cuda_grid g = {cuda_attn_tiles(a.rows * a.heads, 8), 1, 1, 256, 0};
    TT_TRY(CUDA_LAUNCH(b, c, &stats, g, err, &a));
    if (a.dbias)
        TT_TRY(bias_bwd(b, c, &a, err));
    const int i = backward_kernel(b, &a);
    if (i == N_KERNELS)
        return plain_bwd(b, c, &a, err);
    cuda_attn_kernel *dkdv = &dkdv_kernels[i];
    TT_TRY(launch(b, c, &dq_kernels[i], &a, false, order, err));
    TT_TRY(launch(b, c, dkdv, &a, true, order, err));
    return dkdv->hd == dv_kernel.hd ? launch(b, c, &dv_kernel, &a, true, order, err) : TT_OK;
}
