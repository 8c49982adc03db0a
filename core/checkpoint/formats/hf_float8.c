/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/formats/hf.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/narrow.h>

/* Matrices in float8 with a scale for each block. */

bool tt_hf_is_float8(const tt_hf_tensor *t)
{
    for (size_t i = 0; i < t->parts.n; i++)
        if (!t->parts.items[i].param->float8)
            return false;
    return t->n_dims == 2 && t->parts.n;
}

/* What the numbers of a block are multiplied by, as tt_quantize computes it (TT_SCALE_F32). */
static float factor_of(const float *x, int64_t rows, int64_t cols, int64_t stride)
{
    float most = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            most = fmaxf(most, fabsf(x[r * stride + c]));
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
        const size_t length = strlen(t->name), k = sizeof end - 1;
        if (t->n_dims == 2 && !tt_hf_is_float8(t) && length > k &&
            !strcmp(t->name + length - k, end))
            names[(*n)++] = tt_arena_strn(a, t->name, length - k);
    }
    qsort(names, *n, sizeof *names, by_name);
    *out = names;
    return TT_OK;
}
