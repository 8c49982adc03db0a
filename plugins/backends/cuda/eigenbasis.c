/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"
#include <ttrun/eigenbasis.h>

/* eigenbasis: a block for each matrix, as far as MOST bytes of scratch memory suffice. */

#define MOST ((size_t)512 << 20)

static int64_t blocks_of(const tt_kernel_call *c)
{
    const size_t each = tt_eigenbasis_scratch(cuda_width(&c->in[0]));
    const int64_t most = each ? (int64_t)(MOST / each) : 1;
    return cuda_max(cuda_min(tt_tensor_numel(&c->in[2]), most), 1);
}

static size_t eigenbasis_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)blocks_of(c) * tt_eigenbasis_scratch(cuda_width(&c->in[0]));
}

static tt_status run_eigenbasis(void *self, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel kernel = CUDA_KERNEL("eigenbasis", "eigenbasis");
    const void *a = c->in[0].data, *q = c->in[1].data, *how = c->in[2].data;
    void *out = c->out[0].data, *work = c->scratch;
    int64_t n = cuda_width(&c->in[0]), count = tt_tensor_numel(&c->in[2]);
    const cuda_grid grid = {blocks_of(c), 1, 1, CUDA_THREADS, CUDA_ROOM};
    if (n == 0 || count == 0)
        return TT_OK;
    return CUDA_LAUNCH(self, c, &kernel, grid, err, &a, &q, &how, &out, &work, &n, &count);
}

const tt_kernel cuda_kernels_eigenbasis[] = {
    CUDA_ROW("eigenbasis", run_eigenbasis, eigenbasis_scratch, 0, 0, NULL),
    {.op = NULL},
};
