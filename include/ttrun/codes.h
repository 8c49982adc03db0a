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

#ifdef __cplusplus
}
#endif
#endif
