/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/hf_low.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/narrow.h>

enum { NV_GROUP = 16 }; /* rows and columns of a block of NVFP4 */

/* The tensor's rows are whole blocks of the one parameter that is in it. */
static bool has_whole_blocks(const tt_hf_tensor *t)
{
    const tt_hf_part *p = &t->parts.items[0];
    const int64_t end = p->begin + p->size;
    if (t->parts.n != 1 || t->shape[1] % NV_GROUP)
        return false;
    return p->item ||
           (p->begin % NV_GROUP == 0 && (end % NV_GROUP == 0 || end == p->param->dims[0]));
}

tt_hf_low tt_hf_low_of(const tt_hf_tensor *t)
{
    if (t->n_dims != 2 || !t->parts.n)
        return TT_HF_WIDE;
    const tt_hf_low low = t->parts.items[0].param->low;
    for (size_t i = 1; i < t->parts.n; i++)
        if (t->parts.items[i].param->low != low)
            return TT_HF_WIDE;
    if (low > TT_HF_FP8 && (t->parts.items[0].transpose || !tt_ends_with(t->name, ".weight")))
        return TT_HF_WIDE;
    return low == TT_HF_NVFP4 && !has_whole_blocks(t) ? TT_HF_WIDE : low;
}

static float largest_in(const float *x, int64_t rows, int64_t cols, int64_t stride)
{
    float most = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            most = fmaxf(most, fabsf(x[r * stride + c]));
    return most;
}

/* What the numbers of a block are multiplied by, as tt_quantize computes it (TT_SCALE_F32). */
static float factor_of(const float *x, int64_t rows, int64_t cols, int64_t stride)
{
    const float most = largest_in(x, rows, cols, stride);
    return most <= 1e-12f ? (float)(448.0 / 1e-12) : 448.0f / most;
}

void tt_hf_to_float8(const float *x, int64_t rows, int64_t cols, uint8_t *codes, float *scales)
{
    const int64_t block = TT_HF_FLOAT8_BLOCK;
    for (int64_t r = 0; r < rows; r += block)
        for (int64_t c = 0; c < cols; c += block) {
            const int64_t height = TT_MIN(block, rows - r), width = TT_MIN(block, cols - c);
            const float factor = factor_of(x + r * cols + c, height, width, cols);
            *scales++ = 1.0f / factor;
            for (int64_t i = r; i < r + height; i++)
                for (int64_t j = c; j < c + width; j++)
                    codes[i * cols + j] = tt_to_float8(x[i * cols + j] * factor, 0);
        }
}

/* As tt_quantize computes it (TT_SCALE_POW2). */
static float factor_of_row(const float *x, int64_t cols)
{
    int exponent = 0;
    (void)frexpf(factor_of(x, 1, cols, cols), &exponent);
    return ldexpf(1.0f, exponent - 1);
}

void tt_hf_to_float8_rows(const float *x, int64_t rows, int64_t cols, uint8_t *codes, float *scales)
{
    for (int64_t r = 0; r < rows; r++) {
        const float factor = factor_of_row(x + r * cols, cols);
        scales[r] = 1.0f / factor;
        for (int64_t c = r * cols; c < (r + 1) * cols; c++)
            codes[c] = tt_to_float8(x[c] * factor, 0);
    }
}

/* ---- NVFP4 ---- */

/* The number of 4 bits that is nearest, of two the one with an even code. */
static uint8_t to_e2m1(float x)
{
    static const float above[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}; /* the middles */
    const float a = fabsf(x);
    uint8_t code = 0;
    for (int i = 0; i < 7; i++)
        if (i % 2 ? a >= above[i] : a > above[i])
            code = (uint8_t)(i + 1);
    return (uint8_t)(x < 0 ? code | 8 : code);
}

/* The scale of a block, e4m3, and what its numbers are multiplied by, as tt_quantize computes them
 * (TT_SCALE_NV). */
static uint8_t nvfp4_scale(float amax, float whole, float *times)
{
    const uint8_t scale = tt_to_float8(fminf(fmaxf(amax / 6.0f / whole, 0x1p-6f), 448.0f), 0);
    *times = 1.0f / whole / tt_from_float8(scale, 0);
    return scale;
}

static void pack_row(const float *x, int64_t n, float times, uint8_t *packed)
{
    for (int64_t i = 0; i < n; i += 2)
        packed[i / 2] = (uint8_t)(to_e2m1(x[i] * times) | to_e2m1(x[i + 1] * times) << 4);
}

void tt_hf_to_nvfp4(const float *x, int64_t rows, int64_t cols, float amax, uint8_t *packed,
                    uint8_t *scales, float *global_scale)
{
    const float whole = amax > 0 ? amax / (448.0f * 6.0f) : 1.0f;
    *global_scale = 1.0f / whole;
    for (int64_t r = 0; r < rows; r += NV_GROUP)
        for (int64_t c = 0; c < cols; c += NV_GROUP) {
            const int64_t end = TT_MIN(r + NV_GROUP, rows);
            float times = 0;
            const uint8_t scale =
                nvfp4_scale(largest_in(x + r * cols + c, end - r, NV_GROUP, cols), whole, &times);
            for (int64_t i = r; i < end; i++) {
                scales[(i * cols + c) / NV_GROUP] = scale;
                pack_row(x + i * cols + c, NV_GROUP, times, packed + (i * cols + c) / 2);
            }
        }
}

/* ---- tensors of the files ---- */

static tt_st_tensor low_tensor(const char *name, tt_dtype dtype, int64_t rows, int64_t cols)
{
    static const char *const names[] = {[TT_F32] = "F32", [TT_F8E4M3] = "F8_E4M3", [TT_U8] = "U8"};
    tt_st_tensor t = {
        .name = name,
        .dtype = dtype,
        .dtype_name = names[dtype],
        .n_dims = cols ? 2 : 1,
        .shape = {rows, cols}
    };
    t.bytes = (size_t)(rows * (cols ? cols : 1)) * tt_dtype_size(dtype);
    return t;
}

static int64_t blocks_in(int64_t size)
{
    return (size + TT_HF_FLOAT8_BLOCK - 1) / TT_HF_FLOAT8_BLOCK;
}

size_t tt_hf_low_tensors(tt_arena *a, const tt_hf_tensor *t, tt_st_tensor out[TT_HF_LOW_TENSORS])
{
    const int64_t rows = t->shape[0], cols = t->shape[1];
    const char *scale = tt_arena_printf(a, "%s_scale", t->name);
    switch (tt_hf_low_of(t)) {
    case TT_HF_FP8:
        out[0] = low_tensor(t->name, TT_F8E4M3, rows, cols);
        out[1] = low_tensor(tt_arena_printf(a, "%s_inv", scale), TT_F32, blocks_in(rows),
                            blocks_in(cols));
        return 2;
    case TT_HF_FP8_ROW:
        out[0] = low_tensor(t->name, TT_F8E4M3, rows, cols);
        out[1] = low_tensor(scale, TT_F32, rows, 1);
        return 2;
    case TT_HF_NVFP4:
        out[0] = low_tensor(tt_arena_printf(a, "%s_packed", t->name), TT_U8, rows, cols / 2);
        out[1] = low_tensor(scale, TT_F8E4M3, rows, cols / NV_GROUP);
        out[2] = low_tensor(tt_arena_printf(a, "%s_global_scale", t->name), TT_F32, 1, 0);
        return 3;
    default:
        return 0;
    }
}

/* In the forms of compressed-tensors a row with a NaN or an infinity would be read as other numbers. */
static tt_status check_finite(const tt_hf_tensor *t, const float *x, tt_error *err)
{
    const int64_t n = t->shape[0] * t->shape[1];
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return TT_FAIL(err, TT_EINVAL,
                           "tensor '%s': row %lld has a NaN or an infinity, which this type cannot "
                           "hold; export it as bf16 or f32",
                           t->name, (long long)(i / t->shape[1]));
    return TT_OK;
}

tt_status tt_hf_low_encode(const tt_hf_tensor *t, const float *x, float amax,
                           tt_st_tensor out[TT_HF_LOW_TENSORS], tt_error *err)
{
    const int64_t rows = t->shape[0], cols = t->shape[1];
    const tt_hf_low low = tt_hf_low_of(t);
    const size_t n = low == TT_HF_NVFP4 ? 3 : 2;
    void *data[TT_HF_LOW_TENSORS] = {0};
    if (low != TT_HF_FP8)
        TT_TRY(check_finite(t, x, err));
    for (size_t i = 0; i < n; i++) {
        out[i].data = data[i] = malloc(out[i].bytes + 1);
        if (!data[i])
            return TT_FAIL(err, TT_ENOMEM, "no memory for %zu bytes of tensor '%s'", out[i].bytes,
                           out[i].name);
    }
    if (low == TT_HF_FP8)
        tt_hf_to_float8(x, rows, cols, data[0], data[1]);
    else if (low == TT_HF_FP8_ROW)
        tt_hf_to_float8_rows(x, rows, cols, data[0], data[1]);
    else
        tt_hf_to_nvfp4(x, rows, cols, amax, data[0], data[1], data[2]);
    return TT_OK;
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

tt_status tt_hf_kept_modules(tt_arena *a, const tt_hf_param *params, size_t n_params,
                             const char *const **out, size_t *n, tt_error *err)
{
    static const char end[] = ".weight";
    tt_map *tensors = NULL;
    TT_TRY(tt_hf_layout(a, params, n_params, &tensors, err));
    const char **names = tt_arena_array(a, tt_map_size(tensors) + 1, sizeof *names);
    *n = 0;
    for (size_t i = 0; i < tt_map_size(tensors); i++) {
        const tt_hf_tensor *t = tt_map_value(tensors, i);
        if (t->n_dims == 2 && !tt_hf_low_of(t) && tt_ends_with(t->name, end))
            names[(*n)++] = tt_arena_strn(a, t->name, strlen(t->name) - strlen(end));
    }
    qsort(names, *n, sizeof *names, by_name);
    *out = names;
    return TT_OK;
}
