/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <string.h>

/* Rotary embedding of a tensor; linear_fused.c has it fused into a matrix product. Naive twin:
 * ref_rope in backends/reference/attention.c. */

typedef struct work {
    const cpu_isa *isa;
    cpu_rope r;
    const float *x;
    float *y;
    const int32_t *pos;
    int64_t width;
} work;

static void rope_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const work *w = arg;
    const int64_t at = begin * w->width;
    (void)thread;
    w->isa->rope(&w->r, w->pos + begin, end - begin, w->x + at, w->y + at, w->width,
                 w->width / w->r.head_dim);
}

static int64_t pairs_of(const tt_rope_opts *o)
{
    return (o->rotary_dim ? o->rotary_dim : o->head_dim) / 2;
}

size_t cpu_rope_bytes(const tt_attrs_rope *at)
{
    return cpu_align((size_t)pairs_of(&at->opts) * sizeof(double));
}

tt_status cpu_rope_make(cpu_rope *r, const tt_attrs_rope *at, void *memory, tt_error *err)
{
    const int64_t pairs = pairs_of(&at->opts);
    memset(memory, 0, cpu_rope_bytes(at));
    if (2 * pairs > CPU_MAX_HEAD_DIM)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "rope: rotary_dim %lld is above %d; lower it or use another backend",
                       (long long)(2 * pairs), CPU_MAX_HEAD_DIM);
    *r = (cpu_rope){.inv_freq = memory,
                    .factor = tt_rope_frequencies(&at->opts, memory, pairs),
                    .head_dim = at->opts.head_dim,
                    .pairs = pairs,
                    .interleaved = at->opts.interleaved != 0,
                    .inverse = at->inverse != 0};
    return TT_OK;
}

static size_t rope_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return cpu_rope_bytes(c->attrs);
}

/* x [T,heads*hd], pos [T] -> y, shape of x */
static tt_status rope_run(void *self, const tt_kernel_call *c, tt_error *err)
{
    work w = {.isa = ((const cpu_backend *)self)->isa,
              .x = c->in[0].data,
              .y = c->out[0].data,
              .pos = c->in[1].data,
              .width = c->in[0].shape[1]};
    TT_TRY(cpu_rope_make(&w.r, c->attrs, c->scratch, err));
    tt_parallel_for(c->pool, c->in[0].shape[0], cpu_row_grain(c->in[0].shape[0], 2 * w.width),
                    rope_rows, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_rope[] = {
    CPU_KERNEL("rope", rope_run, rope_scratch, 0, 1),
    CPU_KERNEL_END,
};
