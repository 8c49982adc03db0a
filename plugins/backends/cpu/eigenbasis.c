/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <ttrun/eigenbasis.h>

/* eigenbasis: a matrix per thread as far as MOST bytes of scratch memory suffice for that; else a matrix after
 * another, each by all threads, which meet for every row. Both have the same bits. */

#define MOST ((size_t)256 << 20)

typedef struct bases {
    const tt_kernel_call *c;
    int64_t n;
} bases;

static size_t each(const tt_kernel_call *c)
{
    return (tt_eigenbasis_scratch(c->in[0].shape[c->in[0].n_dims - 1]) + 63) / 64 * 64;
}

static size_t eigenbasis_scratch(const tt_kernel_call *c, int n_threads)
{
    const size_t all = each(c) * (size_t)n_threads;
    return tt_tensor_numel(&c->in[2]) > 1 && all <= MOST ? all : each(c);
}

static void eigenbasis_one(const bases *w, int64_t i, tt_pool *pool, void *memory)
{
    const int64_t size = w->n * w->n;
    tt_eigenbasis_at(pool, (const float *)w->c->in[0].data + i * size,
                     (const float *)w->c->in[1].data + i * size, w->n,
                     ((const float *)w->c->in[2].data)[i], memory,
                     (float *)w->c->out[0].data + i * size);
}

static void several(void *arg, int64_t begin, int64_t end, int thread)
{
    const bases *w = arg;
    for (int64_t i = begin; i < end; i++)
        eigenbasis_one(w, i, NULL, (char *)w->c->scratch + (size_t)thread * each(w->c));
}

static tt_status run(void *self, const tt_kernel_call *c, tt_error *err)
{
    bases w = {c, c->in[0].shape[c->in[0].n_dims - 1]};
    const int64_t count = tt_tensor_numel(&c->in[2]);
    (void)self;
    (void)err;
    if (count > 1 && c->scratch_bytes >= each(c) * (size_t)tt_pool_threads(c->pool))
        tt_parallel_for(c->pool, count, 1, several, &w);
    else
        for (int64_t i = 0; i < count; i++)
            eigenbasis_one(&w, i, c->pool, c->scratch);
    return TT_OK;
}

const cpu_kernel cpu_kernels_eigenbasis[] = {
    CPU_KERNEL_ANY("eigenbasis", run, eigenbasis_scratch, 0),
    CPU_KERNEL_END,
};
