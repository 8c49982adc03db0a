/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"
#include <string.h>
#include <ttrun/codes.h>

/* decode_codes: weights that are stored as codes (<ttrun/codes.h>). A thread decodes a byte. */

static tt_status run_decode_codes(void *self, const tt_kernel_call *c, tt_error *err)
{
    static cuda_kernel nf4[2] = CUDA_PAIR("codes", "decode_nf4"),
                       int8[2] = CUDA_PAIR("codes", "decode_int8");
    const tt_attrs_codes *a = c->attrs;
    const void *codes = c->in[0].data, *absmax = c->in[1].data;
    const int half = cuda_half(&c->out[0]);
    void *y = c->out[0].data;
    int64_t n = tt_tensor_numel(&c->in[0]), width = cuda_width(&c->in[0]);
    const cuda_grid grid = {cuda_ceil(n, CUDA_THREADS), 1, 1, CUDA_THREADS, 0};
    if (a->format == TT_CODES_NF4) {
        struct {
            float level[16];
        } levels;
        memcpy(&levels, tt_nf4_levels(), sizeof levels);
        return CUDA_LAUNCH(self, c, &nf4[half], grid, err, &codes, &absmax, &y, &n, &levels);
    }
    float step = TT_INT8_STEP;
    return CUDA_LAUNCH(self, c, &int8[half], grid, err, &codes, &absmax, &y, &n, &width, &step);
}

const tt_kernel cuda_kernels_codes[] = {
    CUDA_ROW("decode_codes", run_decode_codes, NULL, 0, 0, cuda_floats),
    {.op = NULL},
};
