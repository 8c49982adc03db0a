/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <string.h>

/* Rotary embedding: cos and sin of a token's position are made once for all its heads. */
#define MAX_PAIRS (CPU_MAX_HEAD_DIM / 2)

typedef struct rope {
    const cpu_isa *isa;
    const float *x;
    float *y;
    const int32_t *pos;
    const double *inv_freq;
    double factor;
    int64_t width, head_dim, pairs;
    float sign;
    bool interleaved;
} rope;

static void rope_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rope *w = arg;
    const int64_t n = w->pairs;
    float table[2 * MAX_PAIRS];
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        w->isa->rope_table(n, w->pos[t], w->inv_freq, w->factor, table);
        for (int64_t h = 0; h < w->width; h += w->head_dim) {
            const float *x = w->x + t * w->width + h;
            float *y = w->y + t * w->width + h;
            if (y != x)
                memcpy(y + 2 * n, x + 2 * n, (size_t)(w->head_dim - 2 * n) * sizeof *y);
            if (!w->interleaved) {
                w->isa->rope_half(n, table, table + n, x, y, w->sign);
                continue;
            }
            for (int64_t j = 0; j < n; j++) {
                float a = x[2 * j], b = x[2 * j + 1], cs = table[j], sn = table[n + j] * w->sign;
                y[2 * j] = a * cs - b * sn;
                y[2 * j + 1] = b * cs + a * sn;
            }
        }
    }
}

static int64_t pairs_of(const tt_rope_opts *o)
{
    return (o->rotary_dim ? o->rotary_dim : o->head_dim) / 2;
}

static size_t rope_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)pairs_of(&((const tt_attrs_rope *)c->attrs)->opts) * sizeof(double);
}

static tt_status rope_run(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_rope *at = c->attrs;
    rope w = {.isa = ((const cpu_backend *)self)->isa,
              .x = c->in[0].data,
              .y = c->out[0].data,
              .pos = c->in[1].data};
    w.width = c->in[0].shape[1];
    w.head_dim = at->opts.head_dim;
    w.pairs = pairs_of(&at->opts);
    if (w.pairs > MAX_PAIRS)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "rope: rotary_dim %lld is above %d; lower it or use another backend",
                       (long long)(2 * w.pairs), 2 * MAX_PAIRS);
    w.factor = tt_rope_frequencies(&at->opts, c->scratch, w.pairs);
    w.inv_freq = c->scratch;
    w.sign = at->inverse ? -1.0f : 1.0f;
    w.interleaved = at->opts.interleaved != 0;
    tt_parallel_for(c->pool, c->in[0].shape[0], cpu_row_grain(c->in[0].shape[0], 2 * w.width),
                    rope_rows, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_rope[] = {
    CPU_KERNEL("rope", rope_run, rope_scratch, 0, 1),
    CPU_KERNEL_END,
};
