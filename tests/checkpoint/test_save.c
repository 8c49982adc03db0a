/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const model_tensor w =
                              {
                                  "w", TT_F32, 2, {4, 6},
                                     3
},
                          scalar = {"step", TT_I64, 0, {0}, 9}, none = {"e", TT_F32, 2, {3, 0}, 0};

static void test_begin_removes_what_an_interrupted_save_left(void **state)
{
    fixture *f = *state;
    static const char *const stale[] = {"step-3.tmp", "step-8.purged.tmp", "step-5.old-77"};
    static const char *const kept[] = {"step-x.tmp", "mine.tmp", "step-5", "step-03.tmp"};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(mkdir(in(f, stale[i]), 0777), 0);
    put_file(in(f, "step-3.tmp/half"), "x", 1);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(mkdir(in(f, kept[i]), 0777), 0);
    assert_ok(tt_ckpt_begin(f->folder, 9, &f->err), f);
    for (size_t i = 0; i < 3; i++)
        assert_false(tt_path_exists(in(f, stale[i])));
    for (size_t i = 0; i < 4; i++)
        assert_true(tt_path_exists(in(f, kept[i])));
    assert_true(tt_path_exists(in(f, "step-9.tmp")));
    assert_ok(tt_ckpt_begin(f->folder, 9, &f->err), f); /* once more: its own is stale too */
}

static void test_begin_brings_back_a_step_that_was_being_replaced(void **state)
{
    fixture *f = *state;
    assert_ok(save_whole(f, f->folder, 5, &w, 1, 0, &f->err), f);
    assert_int_equal(rename(in(f, "step-5"), in(f, "step-5.old-77")), 0);
    assert_ok(tt_ckpt_begin(f->folder, 6, &f->err), f);
    assert_true(tt_path_exists(in(f, "step-5/trainer.json")));
}

static void test_begin_reports_a_folder_that_cannot_be_made(void **state)
{
    fixture *f = *state;
    put_file(in(f, "file"), "x", 1);
    assert_int_not_equal(tt_ckpt_begin(in(f, "file/ckpt"), 1, &f->err), TT_OK);
    assert_has(f->err.text, "file");
    assert_int_not_equal(tt_ckpt_begin(f->folder, -1, &f->err), TT_OK);
    if (geteuid() == 0)
        return; /* root may write anywhere */
    assert_int_equal(mkdir(in(f, "closed"), 0555), 0);
    assert_int_equal(tt_ckpt_begin(in(f, "closed"), 1, &f->err), TT_EIO);
    assert_has(f->err.text, "Permission denied; allow writing there");
}

static size_t n_files(fixture *f, const char *folder)
{
    const char **names;
    size_t n;
    assert_ok(tt_folder_names(f->a, in(f, folder), tt_is_safetensors_name, &names, &n, &f->err), f);
    return n;
}

static void test_write_puts_one_box_of_a_tensor_in_a_file(void **state)
{
    fixture *f = *state;
    tt_trainer_state s = {.step = 1, .world = 1};
    const tt_box top =
                     {
                         {0, 0},
                         {1, 6}
    },
                 bottom = {{2, 0}, {4, 6}}, middle = {{1, 0}, {2, 6}}, empty = {{4, 0}, {4, 6}};
    tt_box one = whole_box(&scalar), zero = whole_box(&none);
    tt_ckpt_piece p[] = {
        piece_of(f->a, &w, &top, true, true),        piece_of(f->a, &scalar, &one, true, true),
        piece_of(f->a, &w, &bottom, true, true),     piece_of(f->a, &w, &empty, true, true),
        piece_of(f->a, &w, &middle, true, true),     piece_of(f->a, &none, &zero, true, true),
        piece_of(f->a, &scalar, &one, false, false), /* a replica */
    };
    tt_st_file file;
    assert_ok(tt_ckpt_begin(f->folder, 1, &f->err), f);
    assert_ok(tt_ckpt_write(f->folder, 1, 0, p, 7, &f->err), f);
    assert_ok(tt_ckpt_commit(f->folder, 1, &s, &f->err), f);
    assert_int_equal(n_files(f, "step-1"), 3);
    assert_ok(tt_st_open(in(f, "step-1/shard-00001-model-00001-of-00003.safetensors"), f->a, &file,
                         &f->err),
              f);
    assert_int_equal(file.n_tensors, 2);
    tt_st_close(&file);
    assert_ok(tt_st_open(in(f, "step-1/shard-00001-model-00002-of-00003.safetensors"), f->a, &file,
                         &f->err),
              f);
    assert_int_equal(file.tensors[0].offset[0], 2);
    tt_st_close(&file);
    tt_ckpt_reader *r;
    tt_box all = whole_box(&w);
    tt_ckpt_piece back[] = {piece_of(f->a, &w, &all, true, false),
                            piece_of(f->a, &scalar, &one, true, false),
                            piece_of(f->a, &none, &zero, true, false)};
    assert_ok(tt_ckpt_open(in(f, "step-1"), &r, &f->err), f);
    assert_ok(tt_ckpt_load(r, back, 3, &f->err), f);
    assert_piece(f->a, &w, &back[0]);
    assert_piece(f->a, &scalar, &back[1]);
    assert_true(tt_ckpt_has(r, "w") && !tt_ckpt_has(r, "v"));
    tt_ckpt_close(r);
}

static void test_write_refuses_a_box_beyond_its_tensor(void **state)
{
    fixture *f = *state;
    tt_box beyond = {
        {0, 0},
        {5, 6}
    };
    tt_ckpt_piece p = piece_of(f->a, &w, &beyond, true, false);
    assert_ok(tt_ckpt_begin(f->folder, 1, &f->err), f);
    assert_int_equal(tt_ckpt_write(f->folder, 1, 0, &p, 1, &f->err), TT_EINVAL);
    assert_has(f->err.text, "tensor 'w': dim 0: [0,5) is not within its 4");
}

static void test_write_without_begin_is_an_error(void **state)
{
    fixture *f = *state;
    tt_box all = whole_box(&w);
    tt_ckpt_piece p = piece_of(f->a, &w, &all, true, true);
    assert_int_equal(tt_ckpt_write(f->folder, 4, 0, &p, 1, &f->err), TT_ENOTFOUND);
    assert_has(f->err.text, "step-4.tmp");
}

/* A limit on the size of files simulates a disk that fills up. Returns the child's exit status. */
static int save_without_space(fixture *f, const model_tensor *t)
{
    pid_t pid = fork();
    if (pid == 0) {
        tt_error err = {0};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){20000, 20000});
        tt_status status = save_whole(f, f->folder, 2, t, 1, 1, &err);
        _exit(status == TT_OK ? 1 : strstr(err.text, "cannot write: File too large") ? 42 : 2);
    }
    int status;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static void test_failed_save_keeps_the_previous_one(void **state)
{
    fixture *f = *state;
    const model_tensor large = {"w", TT_F64, 1, {10000}, 3};
    tt_str faults = {0};
    assert_ok(save_whole(f, f->folder, 1, &w, 1, 1, &f->err), f);
    assert_int_equal(save_without_space(f, &large), 42);
    assert_ok(tt_ckpt_verify(in(f, "step-1"), &faults, &f->err), f);
    assert_false(tt_path_exists(in(f, "step-2")));
    assert_ok(save_whole(f, f->folder, 3, &w, 1, 1, &f->err), f);
    assert_false(tt_path_exists(in(f, "step-2.tmp")));
}

/* Weights of another dtype, laid out as they are written; what is no weight stays. */
static void test_cast_rounds_weights_alone(void **state)
{
    fixture *f = *state;
    const model_tensor t[] = {
        {"a", TT_F32, 2, {3, 5}, 1},
        {"b", TT_I64, 1, {7},    2},
        {"c", TT_F32, 1, {4},    3},
        {"d", TT_F32, 1, {6},    4}
    };
    enum { N = 4 };
    tt_ckpt_piece p[N], cast[N];
    for (int i = 0; i < N; i++) {
        const tt_box all = whole_box(&t[i]);
        p[i] = piece_of(f->a, &t[i], &all, i != 3, true);
    }
    p[2].exact = true;
    ((float *)p[0].data)[0] =
        1.00390625F; /* halfway between two numbers of bf16: to the even one */
    ((float *)p[0].data)[1] = 1.01171875F;
    const size_t bytes = tt_ckpt_cast(p, N, TT_BF16, cast, NULL);
    assert_int_equal(bytes, 15 * 2 + 7 * 8 + 4 * 4); /* another rank writes d */
    char *memory = tt_arena_alloc(f->a, bytes);
    assert_int_equal(tt_ckpt_cast(p, N, TT_BF16, cast, memory), bytes);
    assert_int_equal(cast[0].dtype, TT_BF16);
    assert_int_equal(cast[1].dtype, TT_I64);
    assert_int_equal(cast[2].dtype, TT_F32);
    const uint16_t *a = cast[0].data;
    assert_int_equal(a[0], 0x3f80);
    assert_int_equal(a[1], 0x3f82);
    for (int i = 2; i < 15; i++) {
        const uint32_t bits = (uint32_t)a[i] << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        assert_true(x == ((float *)p[0].data)[i]);
    }
    assert_memory_equal(cast[1].data, p[1].data, 7 * 8);
    assert_memory_equal(cast[2].data, p[2].data, 4 * 4);
    assert_int_equal(p[0].dtype, TT_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_begin_removes_what_an_interrupted_save_left),
        TEST(test_begin_brings_back_a_step_that_was_being_replaced),
        TEST(test_begin_reports_a_folder_that_cannot_be_made),
        TEST(test_write_puts_one_box_of_a_tensor_in_a_file),
        TEST(test_write_refuses_a_box_beyond_its_tensor),
        TEST(test_write_without_begin_is_an_error),
        TEST(test_failed_save_keeps_the_previous_one),
        TEST(test_cast_rounds_weights_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
