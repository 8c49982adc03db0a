/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"

/* attention_max: q [T,h*hd], k [S,kv*hd], positions and segments of queries [T] and keys [S] -> f32 [h]. */

static void args_of(const tt_kernel_call *c, attention_args *a)
{
    cuda_attn_args(c, 2, true, a); /* a bias and dropout that attention has are no operands here */
    a->bias = NULL;
    a->drops = 0;
}

static int64_t tiles_of(const attention_args *a)
{
    return cuda_attn_tiles(a->n_q, CUDA_ATTN_PLAIN_ROWS);
}

size_t cuda_attention_max_bytes(const tt_kernel_call *c, int n_threads)
{
    attention_args a;
    (void)n_threads;
    cuda_files_need(c->backend, "attention_max attention_help");
    args_of(c, &a);
    return cuda_attn_spans_bytes(&a) + (size_t)(tiles_of(&a) * a.heads) * sizeof(float);
}

tt_status cuda_attention_max(void *self, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel of_tiles = CUDA_KERNEL("attention_max", "attention_max_tiles"),
                       of_heads = CUDA_KERNEL("attention_max", "attention_max_heads");
    attention_args a;
    char *scratch = c->scratch;
    void *out = c->out[0].data;
    args_of(c, &a);
    int64_t tiles = tiles_of(&a);
    const cuda_grid all = {tiles * a.heads, 1, 1, 256, CUDA_ATTN_PLAIN_SHARED},
                    heads = {a.heads, 1, 1, 256, 32 * (int)sizeof(float)};
    TT_TRY(cuda_attn_spans(self, c, &a, &scratch, err));
    TT_TRY(CUDA_LAUNCH(self, c, &of_tiles, all, err, &a, &scratch));
    return CUDA_LAUNCH(self, c, &of_heads, heads, err, &scratch, &out, &tiles);
}
