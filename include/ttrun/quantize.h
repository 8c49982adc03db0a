/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_QUANTIZE_H
#define TTRUN_QUANTIZE_H
#include <ttrun/builder.h>

/* Quantized values: numbers of few bits with scales. A quantized value is a pair: q, the rounded
 * numbers, and s, their scales in f32, so that the value is about q · s. */

#ifdef __cplusplus
extern "C" {
#endif
typedef enum tt_low_format {
    TT_LOW_E4M3, /* OCP FP8 e4m3fn: largest 448 */
    TT_LOW_E5M2, /* OCP FP8 e5m2: largest 57344 */
    TT_LOW_E2M1  /* FP4: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; stored as e4m3 */
} tt_low_format;

/* How a block's scale follows from amax, its largest absolute value. */
typedef enum tt_scale_rule {
    TT_SCALE_F32,      /* amax / largest, the inverse of torchao's max / max(amax, 1e-12) */
    TT_SCALE_POW2,     /* the same, its inverse rounded down to a power of two */
    TT_SCALE_MX_FLOOR, /* OCP MX: exponent of amax minus that of the format's largest */
    TT_SCALE_MX_RCEIL, /* the exponent of amax / largest, rounded up */
    TT_SCALE_NV        /* an e4m3 scale per block times one f32 scale for the whole tensor */
} tt_scale_rule;

typedef struct tt_quantize_opts {
    size_t struct_size;
    tt_low_format format;
    tt_scale_rule rule;
    int64_t block_rows, block_cols; /* of one scale; 0: all rows, all columns. 0,0 is one scale for
                                       the tensor; 1,0 one per row; 1,32 one per 32 of a row */
    int stochastic;                 /* round by keyed random numbers, not to the nearest (R20) */
    const char *stream;             /* stochastic: the name of the random numbers' stream */
    int before_gather; /* of a converter's product(): if x is gathered from shards, round the shards, so
                          that the gather carries q. No bit changes; done where it is less to carry */
    /* F32 and POW2: x is multiplied by this, in the dims of the scales, and not by what follows from its
     * own amax; larger numbers than the format has become its largest. NULL: x's own. */
    tt_value *times;
} tt_quantize_opts;

/* x [r,c] → q [r,c] in a float8 dtype, and *scale f32 [⌈r/block_rows⌉, ⌈c/block_cols⌉]; dims before
 * these two are kept, so that each expert's weight has its own scales. The last block of a row or column
 * may be short: sizes need not divide. A block that is cut over ranks has one scale: the maximum runs over
 * its ranks. A NaN stays one; a block with an infinity becomes NaN under F32, POW2 and NV.
 *   Scales are never 0: of a block of zeros, and of one whose numbers all round to 0, 1 / (largest / 1e-12)
 *   (F32, POW2), 2^-126 (MX), 2^-6 of the tensor's (NV). POW2 and MX scales are powers of 2.
 *   Random numbers are the tokens' own if dim 0 is the token dim, see tt_random.
 * Errors stick in b.   [setup] */
TT_EXPORT tt_value *tt_quantize(tt_builder *b, tt_value *x, const tt_quantize_opts *o,
                                tt_value **scale);
/* The largest |x| of each block, f32 in the dims of the scales: of it o->times can be made. */
TT_EXPORT tt_value *tt_amax(tt_builder *b, tt_value *x, const tt_quantize_opts *o);
/* q · scale in f32 [r,c]. */
TT_EXPORT tt_value *tt_dequantize(tt_builder *b, tt_value *q, tt_value *scale,
                                  const tt_quantize_opts *o);
/* x [r,c] → f32 [r,c], r rounded up to a multiple of 16 with rows of 0: each 16 rows times the orthogonal
 * matrix H/4 · diag(1,1,1,-1,1,-1,-1,-1,-1,-1,-1,1,-1,1,-1,-1), H Hadamard's. Both operands of a product
 * over the rows, turned so, give the same product, and large elements are spread over their block: the
 * rotation of TransformerEngine's NVFP4 recipe. */
TT_EXPORT tt_value *tt_hadamard(tt_builder *b, tt_value *x);
#ifdef __cplusplus
}
#endif
#endif
