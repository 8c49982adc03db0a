/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* setenv */
#define BATTERY_ROWS "cuda/long_rows.def"
#include "ops/battery.h"

#include "../plugins/backends/cuda/cuda.h"

/* The kernels over rows against the reference where the rows are long: test_cuda_ops.c has the short
 * ones. Operands begin at aligned and at other addresses. */

#define TRIALS 2

static void test_long_rows_agree_with_the_reference_in_f32(void **state)
{
    (void)state;
    check_all(TT_F32, true);
}

static void test_long_rows_agree_with_the_reference_in_bf16(void **state)
{
    (void)state;
    check_all(TT_BF16, true);
}

static int load(void **state)
{
    const char *libraries = getenv("TT_CUDA_LIBRARIES"), *build = getenv("BUILD");
    char fake[1024];
    (void)state;
    snprintf(fake, sizeof fake, "%s/tests/fake/lib", build != NULL ? build : "build/release");
    if (libraries == NULL)
        libraries = fake;
    const cuda_config config = {.libraries = libraries[0] != '\0' ? libraries : NULL,
                                .device = -1,
                                .kernels = "auto",
                                .gemm = "auto",
                                .attention = "auto",
                                .f32_products = "f32"};
    setenv("FAKE_CUDA_SEED", "1", 0);
    battery_open("cuda", &config, TRIALS);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    battery_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_rows_agree_with_the_reference_in_f32),
        cmocka_unit_test(test_long_rows_agree_with_the_reference_in_bf16),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
