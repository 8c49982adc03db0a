/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* setenv */
#define BATTERY_ROWS "cuda/small_rows.def"
#include "ops/battery.h"

#include "cuda/cuda_config.h"

/* The same kernels on a chip with less shared memory, of which a launch may not ask too much. */

static void test_sums_that_do_not_fit_into_shared_memory_are_elsewhere(void **state)
{
    (void)state;
    check_all(TT_F32, true);
}

static int load(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_SEED", "1", 0);
    setenv("FAKE_CUDA_CHIP", "l40s", 1);
    battery_open("cuda", cuda_test_config(), 1);
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
        cmocka_unit_test(test_sums_that_do_not_fit_into_shared_memory_are_elsewhere),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
