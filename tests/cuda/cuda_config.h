/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_CUDA_CONFIG_H
#define TT_TESTS_CUDA_CONFIG_H
#include "ops/subject.h"

#include "../plugins/backends/cuda/cuda.h"

/* The backend cuda on the driver of tests/fake or, with TT_CUDA_LIBRARIES set to a folder of NVIDIA's or to
 * nothing, on a GPU. */

static inline bool cuda_test_is_fake(void)
{
    return getenv("TT_CUDA_LIBRARIES") == NULL;
}

static inline const cuda_config *cuda_test_config(void)
{
    static char fake[1024];
    static cuda_config config;
    const char *libraries = getenv("TT_CUDA_LIBRARIES"), *build = getenv("BUILD");
    snprintf(fake, sizeof fake, "%s/tests/fake/lib", build != NULL ? build : "build/release");
    if (libraries == NULL)
        libraries = fake;
    config = (cuda_config){.libraries = libraries[0] != '\0' ? libraries : NULL,
                           .device = -1,
                           .kernel_code = "auto",
                           .gemm = "auto",
                           .attention = "auto",
                           .f32_products = "f32",
                           .deterministic = true};
    return &config;
}

/* [m, n], or [m] if n is 0, with values in [-1.5, 1.5). */
static inline tt_tensor cuda_test_tensor(tt_arena *a, uint64_t *random, tt_dtype dtype, int64_t m,
                                         int64_t n)
{
    const tt_type t = {
        .dtype = dtype, .n_dims = n > 0 ? 2 : 1, .dims = {TT_DIM(m, NULL), TT_DIM(n, NULL)}
    };
    tt_tensor x = tensor_of(a, &t);
    for (int64_t i = 0; i < tt_tensor_numel(&x); i++)
        put(&x, i, 3.0 * eval_uniform(random) - 1.5);
    return x;
}

/* Pointwise programs run in the interpreter from now on, and are not compiled. */
static inline void cuda_test_interpret(subject *u)
{
    ((cuda_backend *)u->self[0])->config.kernel_code = "embedded";
}

#endif
