/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <math.h>
#include <ttrun/codes.h>

/* Rounding weights to codes, as bitsandbytes' quantize_4bit and int8_vectorwise_quant do. */

/* The largest magnitude; a NaN stays. */
static float largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        if (!(a <= most)) /* larger, or a NaN */
            most = a;
        if (a != a)
            return a;
    }
    return most;
}

/* The nearest level of x in [-1, 1]: half-way between two levels the lower one, of a NaN the last. */
static unsigned nf4_code(float x)
{
    const float *level = tt_nf4_levels();
    unsigned code = 0;
    for (unsigned k = 0; k < 15; k++) /* the levels' means are exact in f32 */
        code += !(x <= (level[k] + level[k + 1]) / 2);
    return code;
}

static void nf4_block(const float *x, int64_t n, uint8_t *codes, float *absmax)
{
    const float most = largest(x, n), times = 1.0f / (most < 1e-38f ? 1e-38f : most);
    for (int64_t i = 0; i < TT_NF4_BLOCK; i += 2) {
        unsigned pair[2];
        for (int64_t k = 0; k < 2; k++) {
            const float y = i + k < n ? x[i + k] * times : 0.0f;
            pair[k] = nf4_code(y < -1 ? -1 : y > 1 ? 1 : y);
        }
        codes[i / 2] = (uint8_t)(pair[0] << 4 | pair[1]);
    }
    *absmax = most;
}

static void int8_row(const float *x, int64_t n, uint8_t *codes, float *absmax)
{
    const float most = largest(x, n), times = 127.0f / most;
    for (int64_t i = 0; i < n; i++) {
        const float y = rintf(x[i] * times);
        codes[i] = (uint8_t)(y >= -127 && y <= 127 ? (int)y : 0); /* a row of zeros or with a NaN */
    }
    *absmax = most;
}

int64_t tt_codes_blocks(tt_codes format, int64_t cols)
{
    return format == TT_CODES_NF4 ? (cols + TT_NF4_BLOCK - 1) / TT_NF4_BLOCK : 1;
}

int64_t tt_codes_bytes(tt_codes format, int64_t cols)
{
    return format == TT_CODES_NF4 ? tt_codes_blocks(format, cols) * TT_NF4_BYTES : cols;
}

void tt_codes_encode(tt_codes format, const float *x, int64_t cols, uint8_t *codes, float *absmax)
{
    if (format == TT_CODES_INT8) {
        int8_row(x, cols, codes, absmax);
        return;
    }
    for (int64_t i = 0; i < tt_codes_blocks(format, cols); i++)
        nf4_block(x + i * TT_NF4_BLOCK, TT_MIN((int64_t)TT_NF4_BLOCK, cols - i * TT_NF4_BLOCK),
                  codes + i * TT_NF4_BYTES, absmax + i);
}

const char *tt_codes_name(tt_codes format)
{
    return format == TT_CODES_NF4 ? "nf4" : format == TT_CODES_INT8 ? "int8" : "none";
}
