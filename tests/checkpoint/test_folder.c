/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"

static const model_tensor w = {"w", TT_F32, 1, {5}, 3};

static void assert_steps(fixture *f, const char *want)
{
    int64_t *steps;
    size_t n;
    tt_str have = {0};
    assert_ok(tt_ckpt_list(f->folder, f->a, &steps, &n, &f->err), f);
    for (size_t i = 0; i < n; i++)
        tt_str_printf(&have, "%lld ", (long long)steps[i]);
    assert_string_equal(tt_str_get(&have), want);
    tt_str_free(&have);
}

static void test_step_names_are_strict(void **state)
{
    (void)state;
    const char *rest = NULL;
    assert_int_equal(tt_step_of_name("step-0", NULL), 0);
    assert_int_equal(tt_step_of_name("step-120", NULL), 120);
    assert_true(tt_step_of_name("step-999999999999999999", NULL) == 999999999999999999);
    static const char *const others[] = {
        "step-", "step", "step-01", "step-1x", "step--1", "xstep-1", "step-9999999999999999999"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(tt_step_of_name(others[i], NULL), -1);
    assert_int_equal(tt_step_of_name("step-7.tmp", &rest), 7);
    assert_string_equal(rest, ".tmp");
}

static void test_list_gives_complete_steps_in_order(void **state)
{
    fixture *f = *state;
    int64_t *steps, n_saved[] = {100, 5, 30, 7};
    size_t n = 1;
    assert_ok(tt_ckpt_list(in(f, "absent"), f->a, &steps, &n, &f->err), f);
    assert_int_equal(n, 0);
    assert_steps(f, "");
    for (int i = 0; i < 4; i++)
        assert_ok(save_whole(f, f->folder, n_saved[i], &w, 1, 0, &f->err), f);
    assert_int_equal(mkdir(in(f, "step-40"), 0777), 0); /* without a trainer.json */
    assert_int_equal(mkdir(in(f, "step-50.tmp"), 0777), 0);
    put_file(in(f, "step-60"), "x", 1);
    assert_steps(f, "5 7 30 100 ");
    assert_int_equal(truncate(in(f, "step-30/shard-00001-model-00001-of-00001.safetensors"), 20),
                     0);
    assert_int_equal(unlink(in(f, "step-7/shard-00001-model-00001-of-00001.safetensors")), 0);
    assert_steps(f, "5 100 ");
}

static void test_purge_keeps_the_latest(void **state)
{
    fixture *f = *state;
    for (int64_t step = 1; step <= 5; step++)
        assert_ok(save_whole(f, f->folder, step, &w, 1, 3, &f->err), f);
    assert_steps(f, "3 4 5 ");
    assert_false(tt_path_exists(in(f, "step-2")));
    assert_ok(save_whole(f, f->folder, 6, &w, 1, 0, &f->err), f); /* 0: all */
    assert_steps(f, "3 4 5 6 ");
    assert_ok(save_whole(f, f->folder, 2, &w, 1, 2, &f->err),
              f); /* what was just saved stays, though not the latest */
    assert_steps(f, "2 6 ");
    assert_ok(save_whole(f, f->folder, 1, &w, 1, 1, &f->err), f);
    assert_steps(f, "1 ");
}

static void purge_to(fixture *f, int64_t bytes, const char *want)
{
    const tt_ckpt_keep keep = {.bytes = bytes};
    assert_ok(tt_ckpt_purge(f->folder, 4, &keep, &f->err), f);
    assert_steps(f, want);
}

static void test_purge_keeps_a_step_that_just_fits(void **state)
{
    fixture *f = *state;
    int64_t three = 0;
    for (int64_t step = 1; step <= 4; step++)
        assert_ok(save_whole(f, f->folder, step, &w, 1, 0, &f->err), f);
    for (int step = 2; step <= 4; step++)
        three += tt_folder_bytes(tt_arena_printf(f->a, "%s/step-%d", f->folder, step));
    purge_to(f, three, "2 3 4 ");
    purge_to(f, three - 1, "3 4 ");
    purge_to(f, 1, "4 ");
}

static void test_hash_file_is_that_of_its_bytes(void **state)
{
    fixture *f = *state;
    enum { N = 5 << 20 };
    uint8_t *p = tt_arena_alloc(f->a, N);
    for (size_t i = 0; i < N; i++)
        p[i] = (uint8_t)(i * i >> 3);
    put_file(in(f, "x"), p, N);
    char have[33], want[33];
    int64_t bytes;
    assert_ok(tt_hash_file(in(f, "x"), &bytes, have, &f->err), f);
    tt_hash128_hex(p, N, want);
    assert_int_equal(bytes, N);
    assert_string_equal(have, want);
    assert_int_equal(tt_hash_file(in(f, "y"), &bytes, have, &f->err), TT_ENOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_step_names_are_strict),          TEST(test_list_gives_complete_steps_in_order),
        TEST(test_purge_keeps_the_latest),         TEST(test_purge_keeps_a_step_that_just_fits),
        TEST(test_hash_file_is_that_of_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
