/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"
#include <stdlib.h>

/* Rotary positions. The frequencies are the core's, tt_rope_frequencies, and go to the device as
 * arguments of the launch. */
#define PAIRS 128 /* of one launch, at most */
#define BLOCKS 1024

static cuda_kernel kernels[2] = CUDA_PAIR("rope", "rope");

typedef struct rope { /* tt_rope of kernels/rope.cu */
    double inv[PAIRS];
    int64_t tokens, width;
    int first, n, pairs, head_dim, threads, interleaved, rest;
    float factor, sine;
} rope;

/* 16-byte accesses: both halves of a head and the pairs of each launch are whole units. */
static int is_wide(const tt_kernel_call *c, const rope *r)
{
    const int unit = 16 / (int)tt_dtype_size(c->in[0].dtype);
    return !r->interleaved && r->pairs % unit == 0 && r->head_dim % unit == 0 &&
           cuda_is_wide(&c->in[0], r->width) && cuda_is_wide(&c->out[0], r->width);
}

static tt_status launch(void *self, const tt_kernel_call *c, rope *r, tt_error *err)
{
    const void *x = c->in[0].data, *pos = c->in[1].data;
    void *y = c->out[0].data;
    int wide = is_wide(c, r);
    const int unit = wide ? 16 / (int)tt_dtype_size(c->in[0].dtype) : 1;
    r->threads = 1;
    while (r->threads < CUDA_THREADS && r->threads * unit < (r->n > 0 ? r->n : r->head_dim))
        r->threads *= 2;
    const int64_t blocks = cuda_ceil(r->tokens, CUDA_THREADS / r->threads),
                  heads = r->width / r->head_dim;
    int head_blocks = (int)cuda_max(1, cuda_min(heads, BLOCKS / cuda_max(1, blocks)));
    const cuda_grid grid = {blocks * head_blocks, 1, 1, CUDA_THREADS, 0};
    return CUDA_LAUNCH(self, c, &kernels[cuda_half(&c->in[0])], grid, err, r, &x, &pos, &y,
                       &head_blocks, &wide);
}

/* x [T,heads*hd], pos [T] -> y, as x */
static tt_status run_rope(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_rope *a = c->attrs;
    const int64_t pairs = a->opts.rotary_dim / 2;
    rope r = {.tokens = c->in[0].shape[0],
              .width = c->in[0].shape[1],
              .pairs = (int)pairs,
              .head_dim = (int)a->opts.head_dim,
              .interleaved = a->opts.interleaved != 0,
              .rest = 1};
    tt_status status = TT_OK;
    TT_TRY(cuda_row_fits(c, r.width, err));
    double *inv = malloc((size_t)(pairs + 1) * sizeof *inv);
    if (inv == NULL)
        return TT_FAIL(err, TT_ENOMEM, "cuda: rope: out of memory");
    r.factor = (float)tt_rope_frequencies(&a->opts, inv, pairs);
    r.sine = a->inverse ? -r.factor : r.factor;
    for (int64_t first = 0; status == TT_OK && (first == 0 || first < pairs); first += PAIRS) {
        r.first = (int)first;
        r.n = (int)cuda_min(PAIRS, pairs - first);
        for (int j = 0; j < r.n; j++)
            r.inv[j] = inv[first + j];
        status = launch(self, c, &r, err);
        r.rest = 0;
    }
    free(inv);
    return status;
}

const tt_kernel cuda_kernels_rope[] = {
    CUDA_ROW("rope", run_rope, NULL, 0, 1, cuda_floats),
    {.op = NULL},
};
