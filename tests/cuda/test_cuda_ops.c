/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* setenv, readlink */
#include "cuda_config.h"
#include "ops/battery.h"
#include "ops/battery_fused.h"
#include "ops/battery_heads.h"
#include "tier.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernels of the cuda backend against the reference (tests/ops/battery.h). The same calls in another
 * process, where blocks and warps run in another order (FAKE_CUDA_SEED), must give the same bits. */

#define TRIALS 6 /* the last one is with a size of 0 */
#define OTHER_TRIALS                                                                               \
    2           /* the first ones in another order: an address as the program takes it, and any */
#define SEEDS 1 /* other orders */
#define MORE_TRIALS 8 /* with TEST_LONG, in each order */
#define MORE_SEEDS 7

extern char **environ;

static void test_every_op_has_a_kernel(void **state)
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

static void test_cuda_agrees_with_the_reference_in_f32(void **state)
{
    (void)state;
    check_all(TT_F32, true);
}

static void test_cuda_agrees_with_the_reference_in_bf16(void **state)
{
    (void)state;
    check_all(TT_BF16, true);
}

/* Runs this program again with another seed; it writes the hashes of its rows to `path`. */
static void run_again(int seed, const char *path)
{
    char text[16], trials[16], self[1024] = {0};
    pid_t child;
    int end = 0;
    snprintf(text, sizeof text, "%d", seed);
    assert_int_equal(setenv("FAKE_CUDA_SEED", text, 1), 0);
    assert_int_equal(setenv("TT_OPS_BITS", path, 1), 0);
    snprintf(trials, sizeof trials, "%d", s.bits_trials);
    assert_int_equal(setenv("TT_OPS_TRIALS", trials, 1), 0);
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    char *const arguments[] = {self, NULL};
    assert_int_equal(posix_spawn(&child, self, NULL, NULL, arguments, environ), 0);
    assert_int_equal(waitpid(child, &end, 0), child);
    unsetenv("TT_OPS_BITS");
    unsetenv("TT_OPS_TRIALS");
    if (end != 0)
        fail_msg("with FAKE_CUDA_SEED=%d the tests fail (status %d)", seed, end);
}

static void test_another_order_gives_the_same_bits(void **state)
{
    const char *tmp = getenv("TMPDIR");
    char path[1024];
    uint64_t bits[TT_COUNT(rows)];
    (void)state;
    snprintf(path, sizeof path, "%s/tt-ops-bits.%d", tmp != NULL ? tmp : "/tmp", (int)getpid());
    const int seeds = is_long() ? MORE_SEEDS : SEEDS;
    for (int seed = 2; seed < 2 + seeds; seed++) {
        run_again(seed, path);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        assert_int_equal(fread(bits, sizeof bits, 1, f), 1);
        fclose(f);
        remove(path);
        for (size_t i = 0; i < TT_COUNT(rows); i++)
            if (bits[i] != s.bits[i])
                fail_msg("%s(%s): other bits with FAKE_CUDA_SEED=%d", rows[i].op, rows[i].ins,
                         seed);
    }
}

/* The fake driver's NVRTC is slow, so that pointwise ops run in the interpreter there. */
static int load(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_SEED", "1", 0);
    battery_open("cuda", cuda_test_config(), is_long() ? MORE_TRIALS : TRIALS);
    if (!is_long() && s.bits_trials > OTHER_TRIALS)
        s.bits_trials = OTHER_TRIALS;
    if (cuda_test_is_fake())
        cuda_test_interpret(&s.it);
    return 0;
}

static int unload(void **state)
{
    const char *path = getenv("TT_OPS_BITS");
    (void)state;
    if (path != NULL) {
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(s.bits, sizeof s.bits, 1, f), 1);
        fclose(f);
    }
    battery_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_has_a_kernel),
        cmocka_unit_test(test_fused_has_the_bits_of_the_single_ops),
        cmocka_unit_test(test_attention_reads_heads_of_a_larger_tensor),
        cmocka_unit_test(test_cuda_agrees_with_the_reference_in_f32),
        cmocka_unit_test(test_cuda_agrees_with_the_reference_in_bf16),
        cmocka_unit_test(test_another_order_gives_the_same_bits),
    };
    const bool again = getenv("TT_OPS_BITS") != NULL;
    return _cmocka_run_group_tests("cuda", tests, TT_COUNT(tests) - (again ? 1 : 0), load, unload);
}
