/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_ATTENTION_H
#define TT_CUDA_ATTENTION_H
#include "cuda.h"
#include "kernels/attention_args.h"

/* What the launchers of attention share. */

/* Reads a call of attention (pos_q is input 3), of its derivatives (6), or of attention_cached (3, and
 * own_keys is false: the cache has its own positions). Outputs and what lies in scratch stay zero. */
void cuda_attn_args(const tt_kernel_call *c, int pos_q, bool own_keys, attention_args *out);
/* Sets sinks, if the call has them, of attention and attention_cached. */
void cuda_attn_sinks(const tt_kernel_call *c, attention_args *a);
/* Are all floats f32 or bf16? For tt_kernel.supports. */
int cuda_attn_supports(const tt_kernel_call *c);

/* Tile sizes of one kernel on tensor cores; those of kernels/attention_{fwd,bwd}_*.cu. */
typedef struct cuda_attn_kernel {
    int hd, dv;       /* head sizes that it has room for */
    int outer, inner; /* rows of a tile */
    int threads, stages;
    cuda_kernel kernel;
} cuda_attn_kernel;
/* A file of each head size. */
#define CUDA_ATTN_FORWARD(size) CUDA_KERNEL("attention_fwd_" size, "attention_fwd_" size)
#define CUDA_ATTN_BACKWARD(what, size)                                                             \
    CUDA_KERNEL("attention_bwd_" size, "attention_" what "_" size)
/* Can kernels on tensor cores with room for these head sizes do the call? */
bool cuda_attn_fits(const attention_args *a, int hd, int dv);

/* spans_q and spans_k at *scratch, which moves on. */
size_t cuda_attn_spans_bytes(const attention_args *a);
tt_status cuda_attn_spans(cuda_backend *b, const tt_kernel_call *c, attention_args *a,
                          char **scratch, tt_error *err);

/* order at `scratch`, for a kernel whose outer rows are keys or queries. */
size_t cuda_attn_order_bytes(const attention_args *a);
tt_status cuda_attn_order(cuda_backend *b, const tt_kernel_call *c, const cuda_attn_kernel *k,
                          bool keys, attention_args *a, void *scratch, tt_error *err);

/* A kernel of attention_plain.cu, for `heads` times `rows` outer rows, and `width` columns. */
tt_status cuda_attn_plain(cuda_backend *b, const tt_kernel_call *c, cuda_kernel *k,
                          attention_args *a, int64_t heads, int64_t rows, int64_t width,
                          tt_error *err);
enum { CUDA_ATTN_PLAIN_ROWS = 64, CUDA_ATTN_PLAIN_SHARED = 66304 };

/* By the kernels of this backend alone. */
tt_status cuda_attention_own(cuda_backend *b, const tt_kernel_call *c, tt_error *err);
size_t cuda_attention_own_bytes(const tt_kernel_call *c);
tt_status cuda_attention_bwd_own(cuda_backend *b, const tt_kernel_call *c, tt_error *err);
/* The file of tensor core kernels that a call runs, or "attention_plain"; b: an open backend. */
const char *cuda_attention_own_file(cuda_backend *b, const attention_args *a);
const char *cuda_attention_bwd_own_file(cuda_backend *b, const attention_args *a);
size_t cuda_attention_bwd_own_bytes(const tt_kernel_call *c);

/* attention_cached.c */
tt_status cuda_attention_cached(void *self, const tt_kernel_call *c, tt_error *err);
size_t cuda_attention_cached_bytes(const tt_kernel_call *c, int n_threads);
tt_status cuda_latent_cached(void *self, const tt_kernel_call *c, tt_error *err);
size_t cuda_latent_cached_bytes(const tt_kernel_call *c, int n_threads);
tt_status cuda_attention_merge(void *self, const tt_kernel_call *c, tt_error *err);

/* attention_max.c */
tt_status cuda_attention_max(void *self, const tt_kernel_call *c, tt_error *err);
size_t cuda_attention_max_bytes(const tt_kernel_call *c, int n_threads);

static inline int64_t cuda_attn_tiles(int64_t n, int64_t tile)
{
    return n / tile + (n % tile != 0);
}

#endif
