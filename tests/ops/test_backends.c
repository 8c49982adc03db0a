/* SPDX-License-Identifier: Apache-2.0 */
#include "battery.h"
#include "battery_fused.h"
#include "battery_heads.h"

/* The kernels of the cpu backend against the reference (battery.h). */

#define TRIALS 24

static void test_cpu_agrees_with_the_reference_in_f32(void **state)
{
    (void)state;
    check_all(TT_F32, true);
}

static void test_cpu_agrees_with_the_reference_in_bf16(void **state)
{
    (void)state;
    check_all(TT_BF16, false);
}

/* A product with a program is compared in tests/backends/test_cpu_linear_fused.c and, of the
 * reference, by every test of fusion. */
static void test_every_op_is_compared(void **state)
{
    (void)state;
    check_every_op();
}

static void test_fused_has_the_bits_of_the_single_ops(void **state)
{
    (void)state;
    check_fused();
}

static void test_attention_reads_heads_of_a_larger_tensor(void **state)
{
    (void)state;
    check_attention_boxes();
}

static int load(void **state)
{
    (void)state;
    battery_open("cpu", NULL, TRIALS);
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
        cmocka_unit_test(test_every_op_is_compared),
        cmocka_unit_test(test_fused_has_the_bits_of_the_single_ops),
        cmocka_unit_test(test_attention_reads_heads_of_a_larger_tensor),
        cmocka_unit_test(test_cpu_agrees_with_the_reference_in_f32),
        cmocka_unit_test(test_cpu_agrees_with_the_reference_in_bf16),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
