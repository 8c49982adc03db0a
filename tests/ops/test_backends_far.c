/* SPDX-License-Identifier: Apache-2.0 */
#include "battery.h"
#include "battery_fused.h"
#include "plugins/far/far.h"

/* The battery on a device: the backend "far" runs the reference's kernels behind memory that the host
 * cannot touch. What fails here is the battery's copying to and from a device, or far. */

#define TRIALS 6

static void test_far_agrees_with_the_reference_in_f32(void **state)
{
    (void)state;
    check_all(TT_F32, true);
}

static void test_far_agrees_with_the_reference_in_bf16(void **state)
{
    (void)state;
    check_all(TT_BF16, true);
}

static void test_far_fused_has_the_bits_of_the_single_ops(void **state)
{
    (void)state;
    check_fused();
}

static int load(void **state)
{
    const far_config config = {.seed = 1, .memory_mib = 64, .alignment = 256};
    (void)state;
    s.is_strict = true;
    battery_open("../../tests/plugins/far/far", &config, TRIALS);
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
        cmocka_unit_test(test_far_fused_has_the_bits_of_the_single_ops),
        cmocka_unit_test(test_far_agrees_with_the_reference_in_f32),
        cmocka_unit_test(test_far_agrees_with_the_reference_in_bf16),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
