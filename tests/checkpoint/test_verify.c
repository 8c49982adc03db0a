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

static void flip(fixture *f, const char *name)
{
    FILE *file = fopen(in(f, name), "r+b");
    assert_non_null(file);
    fseek(file, -7, SEEK_END);
    int c = fgetc(file);
    fseek(file, -7, SEEK_END);
    fputc(c ^ 1, file);
    fclose(file);
}

static void test_verify_finds_one_changed_byte(void **state)
{
    fixture *f = *state;
    save(f);
    flip(f, SHARD);
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

/* ---- the share of a rank ---- */

#define ROWS ((int64_t)2000)
static const model_tensor parts = {
    "parts", TT_F32, 2, {8 * ROWS, 3},
       5
};
static const model_tensor frozen = {"frozen", TT_BF16, 1, {4000}, 9};

static tt_ckpt_piece rows_of(fixture *f, int rank, int ranks, bool fill)
{
    tt_box box = whole_box(&parts);
    box.begin[0] = 8 * ROWS * rank / ranks;
    box.end[0] = 8 * ROWS * (rank + 1) / ranks;
    return piece_of(f->a, &parts, &box, true, fill);
}

/* A step of `world` ranks: `ranks` have rows, the last one of them a tensor more, and those behind are replicas. */
static void save_parts(fixture *f, int ranks, int world)
{
    const tt_trainer_state st = {.step = 1, .world = world, .job_json = "{}"};
    const tt_box all = whole_box(&frozen);
    tt_remove_tree(in(f, "step-1"), NULL);
    assert_ok(tt_ckpt_begin(f->folder, 1, &f->err), f);
    for (int i = 0; i < world; i++) {
        const tt_ckpt_piece p[] = {rows_of(f, i % ranks, ranks, true),
                                   piece_of(f->a, &frozen, &all, true, true)};
        const size_t n = i < ranks ? 1 + (size_t)(i == ranks - 1) : 0;
        assert_ok(tt_ckpt_write(f->folder, 1, i, p, n, &f->err), f);
    }
    assert_ok(tt_ckpt_commit(f->folder, 1, &st, &f->err), f);
}

/* The rank that checks each file; -1: not just one does. */
static void find_checkers(fixture *f, int writers, int world, int *of)
{
    for (int rank = 0; rank < world; rank++) {
        tt_ckpt_reader *r = NULL;
        assert_ok(tt_ckpt_open(in(f, "step-1"), &r, &f->err), f);
        tt_ckpt_check_share(r, writers, rank, world);
        for (size_t i = 0; i < r->n_files; i++) {
            of[i] = rank ? of[i] : -2;
            if (r->checks[i].file)
                of[i] = of[i] == -2 ? rank : -1;
        }
        tt_ckpt_close(r);
    }
}

static void test_each_file_is_checked_by_one_rank(void **state)
{
    fixture *f = *state;
    for (int files = 1; files < 7; files++) {
        save_parts(f, files, files);
        for (int world = 1; world < 10; world++) {
            int of[8];
            find_checkers(f, files, world, of);
            for (int i = 0; i < files; i++) {
                assert_in_range(of[i], 0, world - 1);
                assert_true(i == 0 || of[i] >= of[i - 1]);
                if (world == files)
                    assert_int_equal(of[i], i);
            }
        }
    }
    int of[8];
    save_parts(f, 4, 4);
    find_checkers(f, 4, 2, of); /* of about the same bytes */
    assert_int_equal(of[0] + of[1], 0);
    assert_int_equal(of[2] + of[3], 2);
    save_parts(f, 2, 4); /* two replicas: the first one has written */
    find_checkers(f, 4, 4, of);
    assert_int_equal(of[0], 0);
    assert_int_equal(of[1], 1);
}

/* Checks a rank's share; with `to`, loads its rows before. */
static tt_status check_part(fixture *f, int rank, int world, const tt_ckpt_piece *to)
{
    tt_ckpt_reader *r = NULL;
    assert_ok(tt_ckpt_open(in(f, "step-1"), &r, &f->err), f);
    tt_ckpt_check_share(r, 4, rank, world);
    if (to)
        assert_ok(tt_ckpt_load(r, to, 1, &f->err), f);
    const tt_status s = tt_ckpt_check_rest(r, &f->err);
    tt_ckpt_close(r);
    return s;
}

static void test_the_rank_that_checks_a_file_finds_what_changed(void **state)
{
    fixture *f = *state;
    char name[80];
    for (int k = 0; k < 4; k++) {
        save_parts(f, 4, 4);
        for (int world = 1; world < 6; world++)
            for (int rank = 0; rank < world; rank++) {
                const tt_ckpt_piece p = rows_of(f, rank, world, false);
                assert_ok(check_part(f, rank, world, &p), f);
                assert_piece(f->a, &parts, &p);
            }
        snprintf(name, sizeof name, "step-1/shard-%05d-model-00001-of-00001.safetensors", k + 1);
        flip(f, name); /* of the last file: in what no rank loads */
        for (int world = 1; world < 6; world++) {
            int of[8];
            find_checkers(f, 4, world, of);
            for (int rank = 0; rank < world; rank++)
                for (int load = 0; load < 2; load++) {
                    const tt_ckpt_piece p = rows_of(f, rank, world, false);
                    const tt_status s = check_part(f, rank, world, load ? &p : NULL);
                    assert_int_equal(s, rank == of[k] ? TT_EFORMAT : TT_OK);
                    if (s != TT_OK)
                        assert_has(f->err.text, name);
                    if (s != TT_OK)
                        assert_has(f->err.text, " in trainer.json; the data has changed");
                }
        }
    }
}

static void test_a_folder_without_hashes_is_not_checked(void **state)
{
    fixture *f = *state;
    tt_ckpt_reader *r = NULL;
    save(f);
    flip(f, SHARD);
    assert_int_equal(unlink(in(f, "step-1/trainer.json")), 0);
    assert_ok(tt_ckpt_open(in(f, "step-1"), &r, &f->err), f);
    tt_ckpt_check_share(r, 1, 0, 1);
    assert_ok(tt_ckpt_check_rest(r, &f->err), f);
    tt_ckpt_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_verify_finds_one_changed_byte),
        TEST(test_verify_finds_lost_and_cut_files),
        TEST(test_verify_finds_files_that_do_not_belong),
        TEST(test_verify_needs_a_trainer_state),
        TEST(test_each_file_is_checked_by_one_rank),
        TEST(test_the_rank_that_checks_a_file_finds_what_changed),
        TEST(test_a_folder_without_hashes_is_not_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
