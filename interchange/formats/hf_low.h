/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FORMATS_HF_LOW_H
#define TT_FORMATS_HF_LOW_H
#include "checkpoint/formats/safetensors.h"
#include "interchange/formats/hf.h"

/* hf_low.c: matrices of Hugging Face folders in 8 or 4 bits, with their scales as tensors of their own. Scales and
 * rounding are those of the converters (tt_quantize), so that a model that was trained with the converter has the
 * numbers here that its products had:
 *   TT_HF_FP8      blockwise: W float8 (e4m3) and W_scale_inv, an f32 per 128 x 128 elements (DeepSeek-V3)
 *   TT_HF_FP8_ROW  float8, rowwise: W float8 (e4m3) and W_scale f32 [rows, 1], powers of 2 (compressed-tensors'
 *                  float-quantized)
 *   TT_HF_NVFP4    nvfp4: W_packed U8 [rows, cols / 2], the even column in the low 4 bits; W_scale e4m3
 *                  [rows, cols / 16], where the 16 rows of a block of the converter have the same one; and
 *                  W_global_scale f32 [1], what W_scale is divided by (compressed-tensors' nvfp4-pack-quantized) */
#define TT_HF_FLOAT8_BLOCK 128
#define TT_HF_LOW_TENSORS 3 /* the most that hold one matrix */

/* How a file tensor is stored: as the parameters in it say, if the form can hold it. TT_HF_FP8_ROW and TT_HF_NVFP4
 * hold no transposed matrices; TT_HF_NVFP4 no columns but a multiple of 16, no matrix of several parameters, which
 * have a scale each, and no part of one that ends within a block of rows. */
tt_hf_low tt_hf_low_of(const tt_hf_tensor *t);
/* The tensors of the files that hold t, but for their data. Returns how many. */
size_t tt_hf_low_tensors(tt_arena *a, const tt_hf_tensor *t, tt_st_tensor out[TT_HF_LOW_TENSORS]);
/* Makes their data, which the caller frees, from x [rows, cols]. amax: the largest |x| of the whole parameter, for
 * TT_HF_NVFP4. Fails if it holds no NaN or infinity and x has one. */
tt_status tt_hf_low_encode(const tt_hf_tensor *t, const float *x, float amax,
                           tt_st_tensor out[TT_HF_LOW_TENSORS], tt_error *err);

/* codes [rows, cols]; scales [blocks of rows, blocks of columns] */
void tt_hf_to_float8(const float *x, int64_t rows, int64_t cols, uint8_t *codes, float *scales);
/* codes [rows, cols]; scales [rows] */
void tt_hf_to_float8_rows(const float *x, int64_t rows, int64_t cols, uint8_t *codes,
                          float *scales);
/* packed [rows, cols / 2]; scales [rows, cols / 16]; *whole: what the scales are divided by */
void tt_hf_to_nvfp4(const float *x, int64_t rows, int64_t cols, float amax, uint8_t *packed,
                    uint8_t *scales, float *whole);

/* The modules of the files whose weight is a matrix in neither 8 nor 4 bits, such as the head: sorted names without
 * ".weight". */
tt_status tt_hf_kept_modules(tt_arena *a, const tt_hf_param *params, size_t n_params,
                             const char *const **out, size_t *n, tt_error *err);

#endif
