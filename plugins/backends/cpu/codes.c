/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <ttrun/codes.h>
#include <ttrun/narrow.h>

/* decode_codes: weights that are stored as codes (<ttrun/codes.h>). A task decodes rows, in runs that stay
 * in the first-level cache, into f32, and rounds them once to the dtype of the result. */

enum { RUN = 512 }; /* elements; whole blocks of NF4 */

typedef struct decoding {
    const uint8_t *codes;
    const float *absmax;
    void *y;
    tt_dtype to;
    tt_codes format;
    int64_t bytes, blocks, cols; /* of a row: of codes, its scales, elements of the result */
} decoding;

/* Elements [begin, end) of a row; begin is the first of a block. */
static void decode_nf4(const uint8_t *codes, const float *absmax, int64_t begin, int64_t end,
                       float *y)
{
    const float *levels = tt_nf4_levels();
    for (int64_t at = begin; at < end; at += TT_NF4_BLOCK) {
        const uint8_t *c = codes + at / 2;
        const float scale = absmax[at / TT_NF4_BLOCK];
        for (int64_t i = 0; i < TT_NF4_BYTES; i++) {
            y[at - begin + 2 * i] = levels[c[i] >> 4] * scale;
            y[at - begin + 2 * i + 1] = levels[c[i] & 15] * scale;
        }
    }
}

static void decode_int8(const uint8_t *codes, float absmax, int64_t begin, int64_t end, float *y)
{
    for (int64_t i = begin; i < end; i++)
        y[i - begin] = (float)((int)(codes[i] ^ 0x80u) - 0x80) * absmax * TT_INT8_STEP;
}

static void store_run(const decoding *w, int64_t at, const float *x, int64_t n)
{
    uint16_t *half = (uint16_t *)w->y + at;
    for (int64_t i = 0; w->to == TT_BF16 && i < n; i++)
        half[i] = tt_to_bf16(x[i]);
    for (int64_t i = 0; w->to == TT_F16 && i < n; i++)
        half[i] = tt_to_f16(x[i]);
    for (int64_t i = 0; w->to == TT_F64 && i < n; i++)
        ((double *)w->y)[at + i] = (double)x[i];
}

static void decode_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const decoding *w = arg;
    float run[RUN];
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const uint8_t *codes = w->codes + r * w->bytes;
        const float *absmax = w->absmax + r * w->blocks;
        for (int64_t c = 0; c < w->cols; c += RUN) {
            const int64_t to = cpu_min(w->cols, c + RUN), at = r * w->cols + c;
            float *y = w->to == TT_F32 ? (float *)w->y + at : run;
            if (w->format == TT_CODES_NF4)
                decode_nf4(codes, absmax, c, to, y);
            else
                decode_int8(codes, absmax[0], c, to, y);
            if (y == run)
                store_run(w, at, run, to - c);
        }
    }
}

static tt_status run_decode(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_codes *a = c->attrs;
    const tt_tensor *x = &c->in[0], *y = &c->out[0];
    const bool nf4 = a->format == TT_CODES_NF4;
    const int64_t last = x->shape[1] * (nf4 ? x->shape[2] : 1);
    decoding w = {x->data,           c->in[1].data,        y->data,
                  y->dtype,          (tt_codes)a->format,  last,
                  c->in[1].shape[1], nf4 ? 2 * last : last};
    (void)self;
    (void)err;
    tt_parallel_for(c->pool, x->shape[0], cpu_row_grain(x->shape[0], w.cols), decode_rows, &w);
    return TT_OK;
}

const cpu_kernel cpu_kernels_codes[] = {
    CPU_KERNEL_ANY("decode_codes", run_decode, NULL, 0),
    CPU_KERNEL_END,
};
