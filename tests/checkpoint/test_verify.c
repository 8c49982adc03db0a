/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"

#define SHARD "step-1/shard-00001-model-00001-of-00001.safetensors"
static const model_tensor w = {"w", TT_F32, 1, {500}, 3};

static void assert_fault(fixture *f, const char *says)
{
    tt_str faults = {0};
    assert_int_equal(tt_ckpt_verify(in(f, "step-1"), &faults, &f->err), TT_EFORMAT);
    assert_has(f->err.text, "; load another step");
    assert_has(tt_str_get(&faults), says);
    assert_int_equal(faults.s[faults.n - 1], '\n');
    tt_str_free(&faults);
}

static void save(fixture *f)
{
    tt_str faults = {0};
    assert_ok(save_whole(f, f->folder, 1, &w, 1, 0, &f->err), f);
    assert_ok(tt_ckpt_verify(in(f, "step-1"), &faults, &f->err), f);
    assert_int_equal(faults.n, 0);
}

static void test_verify_finds_one_changed_byte(void **state)
{
    fixture *f = *state;
    save(f);
    FILE *file = fopen(in(f, SHARD), "r+b");
    fseek(file, -7, SEEK_END);
    int c = fgetc(file);
    fseek(file, -7, SEEK_END);
    fputc(c ^ 1, file);
    fclose(file);
    assert_fault(f, SHARD ": XXH3 is ");
}

static void test_verify_finds_lost_and_cut_files(void **state)
{
    fixture *f = *state;
    save(f);
    assert_int_equal(truncate(in(f, SHARD), 300), 0);
    assert_fault(f, ": 300 bytes, ");
    assert_fault(f, "cut short");
    assert_int_equal(unlink(in(f, SHARD)), 0);
    assert_fault(f, SHARD);
}

static void test_verify_finds_files_that_do_not_belong(void **state)
{
    fixture *f = *state;
    save(f);
    put_file(in(f, "step-1/x.safetensors"), "", 0);
    assert_fault(f, "step-1/x.safetensors: not in trainer.json");
}

static void test_verify_needs_a_trainer_state(void **state)
{
    fixture *f = *state;
    save(f);
    put_file(in(f, "step-1/trainer.json"), "{", 1);
    assert_fault(f, "trainer.json:1:");
    assert_int_equal(unlink(in(f, "step-1/trainer.json")), 0);
    assert_fault(f, "trainer.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_verify_finds_one_changed_byte),
        TEST(test_verify_finds_lost_and_cut_files),
        TEST(test_verify_finds_files_that_do_not_belong),
        TEST(test_verify_needs_a_trainer_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
