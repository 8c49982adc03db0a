/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_CUDA_CALL_H
#define TT_TESTS_CUDA_CALL_H
#include "cuda_config.h"

/* Calls of single kernels of the cuda backend on tensors of random bytes; load and unload are cmocka's. */

static subject cuda;
static uint64_t random_state = 11;

static inline int draw(int n)
{
    return (int)(eval_uniform(&random_state) * n);
}

static inline tt_tensor make(tt_arena *a, tt_dtype dtype, int n_dims, const int64_t *shape)
{
    tt_tensor t = {.dtype = dtype, .n_dims = n_dims};
    for (int d = 0; d < n_dims; d++)
        t.shape[d] = t.global[d] = shape[d];
    t.data = tt_arena_array(a, (size_t)tt_tensor_numel(&t) + 1, tt_dtype_size(dtype));
    for (size_t i = 0; i < subject_bytes(&t); i++)
        ((unsigned char *)t.data)[i] = (unsigned char)draw(256);
    return t;
}

static inline void run(const char *op, const tt_tensor *in, int n_in, tt_tensor *out,
                       const void *attrs)
{
    static const uint64_t seed = 42;
    static const double step = 3;
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = op,
                        .in = in,
                        .n_in = n_in,
                        .n_out = 1,
                        .attrs = attrs,
                        .seed = &seed,
                        .step = &step};
    const tt_kernel *k = cuda.vt->kernel(cuda.self[0], op);
    assert_non_null(k);
    assert_true(subject_run(&cuda, 0, k, &c, out));
}

static inline int load(void **state)
{
    (void)state;
    subject_open(&cuda, "cuda", cuda_test_config());
    cuda_test_interpret(&cuda);
    return 0;
}

static inline int unload(void **state)
{
    (void)state;
    subject_close(&cuda);
    return 0;
}

#endif
