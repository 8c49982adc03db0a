/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* setenv */
#define BATTERY_ROWS "cuda/long_rows.def"
#include "ops/battery.h"

#include "cuda/cuda_config.h"
#include "tier.h"

/* The kernels over rows against the reference where the rows are long: test_cuda_ops.c has the short
 * ones. Operands begin at aligned and at other addresses. */

#define TRIALS 2

/* f32 at aligned addresses, bf16 at both. But where the reference needs the square of a row's length, and that is of no
 * whole 16 bytes in bf16, so that no kernel reads vectors at either, it has the other one alone. */
static bool takes(size_t i, int trial)
{
    const char *op = rows[i].op, *ins = rows[i].ins, *length = ins + strlen(ins);
    while (length > ins && length[-1] >= '0' && length[-1] <= '9')
        length--;
    if (is_long())
        return true;
    if (s.dtype == TT_F32)
        return trial == 0;
    return trial == 1 || strstr(op, "norm_bwd") == NULL || atoi(length) % 8 == 0;
}

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
    (void)state;
    setenv("FAKE_CUDA_SEED", "1", 0);
    battery_open("cuda", cuda_test_config(), TRIALS);
    s.takes = takes;
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
