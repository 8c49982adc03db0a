/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_CODES_H
#define TTRUN_CODES_H
#include <stdint.h>

/* Weights as codes: how the frozen base of QLoRA lies in memory and in checkpoints. Numbers and layout are
 * those of bitsandbytes (https://github.com/bitsandbytes-foundation/bitsandbytes, 0.50). */

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tt_codes {
    TT_CODES_NONE = 0,
    /* NormalFloat of 4 bits (Dettmers et al. 2023, arXiv:2305.14314): blocks of 64 elements along a row,
     * each with its largest magnitude absmax; an element is level[code] · absmax */
    TT_CODES_NF4 = 1,
    /* LLM.int8() (Dettmers et al. 2022, arXiv:2208.07339): one absmax per row; an element is
     * code · absmax / 127. Codes are two's complement */
    TT_CODES_INT8 = 2
} tt_codes;

#define TT_NF4_BLOCK 64 /* elements that share an absmax */
#define TT_NF4_BYTES 32 /* of a block: two codes each, the first in the high nibble */
#define TT_INT8_STEP 7.874015718698502e-3f /* 1 / 127 */

typedef struct tt_attrs_codes { /* of the op decode_codes */
    int32_t format;             /* tt_codes */
    int32_t to;                 /* tt_dtype of the result */
} tt_attrs_codes;

/* The levels of NF4, in the order of their codes. */
static inline const float *tt_nf4_levels(void)
{
    static const float levels[16] = {
        -1.0f,
        -0.6961928009986877f,
        -0.5250730514526367f,
        -0.39491748809814453f,
        -0.28444138169288635f,
        -0.18477343022823334f,
        -0.09105003625154495f,
        0.0f,
        0.07958029955625534f,
        0.16093020141124725f,
        0.24611230194568634f,
        0.33791524171829224f,
        0.44070982933044434f,
        0.5626170039176941f,
        0.7229568362236023f,
        1.0f,
    };
    return levels;
}

/* Element `col` of a row, of which codes and absmax are given from the row's first element on. */
static inline float tt_codes_value(tt_codes format, const uint8_t *codes, const float *absmax,
                                   int64_t col)
{
    if (format == TT_CODES_INT8) /* two's complement, without a conversion that C leaves open */
        return (float)((int)(codes[col] ^ 0x80u) - 0x80) * absmax[0] * TT_INT8_STEP;
    const unsigned pair = codes[col / 2], code = col % 2 ? pair & 15u : pair >> 4;
    return tt_nf4_levels()[code] * absmax[col / TT_NF4_BLOCK];
}

/* ---- dynamic codes of 8 bits: optimizer states ----
 * The dynamic map of bitsandbytes and torchao (Dettmers et al. 2022, arXiv:2110.02861, section 2.1) has 256
 * sorted numbers of [-1, 1], or of [0, 1] for what is never negative: 0, 1, and the middles of 2^i equal parts
 * (2^(i+1) in [0, 1]) of each decade 10^(i-6) · [0.1, 1], i = 0 to 6. A byte is the number's place less that
 * of 0, modulo 256, so that a byte of 0 is 0. */

/* The number of a byte, 0 to 255. */
static inline float tt_code8_value(int byte, int positive)
{
    static const double decades[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    const int negative = !positive && byte > 128, place = negative ? 256 - byte : byte;
    const int bits = positive ? 1 : 0, k = place - 1 + (1 << bits); /* 2^(i+bits) + the part */
    int i = 0;
    if (place <= 0 || place >= (positive ? 255 : 128))
        return place <= 0 ? 0.0f : 1.0f;
    while (k >> (i + bits + 1))
        i++;
    const int parts = 1 << (i + bits);
    const double middle = ((double)(k - parts) + 0.5) / (double)parts;
    const float value = (float)(decades[i] * (0.1 + 0.9 * middle));
    return negative ? -value : value;
}

/* The byte of the number next to x. Between two of them it is the larger one from the middle on, in f32 as
 * torchao computes it; beyond the ends it is that of the end, as for a NaN that of the lower end. */
static inline int tt_code8(float x, int positive)
{
    const int zero = positive ? 0 : 127;
    int at = 0;
    for (int step = 128; step; step /= 2)
        if (x >= tt_code8_value((at + step - zero) & 255, positive))
            at += step;
    if (at < 255) {
        const float down = tt_code8_value((at - zero) & 255, positive);
        const float up = tt_code8_value((at + 1 - zero) & 255, positive);
        at += x - down >= (up - down) * 0.5f;
    }
    return (at - zero) & 255;
}

#ifdef __cplusplus
}
#endif
#endif
