/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"

/* A reader of pieces in memory: any boxes that cover the tensors are read as from files; what is not covered, or has two
 * values, is an error. */

enum { ROWS = 7, COLUMNS = 5 };

static float whole[ROWS * COLUMNS];

/* Rows and columns of the tensor "w", with values of their own. */
static tt_ckpt_piece part(fixture *f, int64_t r0, int64_t r1, int64_t c0, int64_t c1, bool owner)
{
    tt_ckpt_piece p = {
        .name = "w",
        .dtype = TT_F32,
        .n_dims = 2,
        .global = {ROWS,     COLUMNS },
        .box = {{r0, c0}, {r1, c1}},
        .owner = owner
    };
    float *data = tt_arena_array(f->a, (size_t)((r1 - r0) * (c1 - c0)) + 1, sizeof *data);
    p.data = data;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++)
            *data++ = whole[r * COLUMNS + c];
    return p;
}

static void fill_whole(void)
{
    for (int i = 0; i < ROWS * COLUMNS; i++)
        whole[i] = (float)(i * i) + 0.25f;
}

static void test_memory_reads_any_boxes(void **state)
{
    fixture *f = *state;
    tt_ckpt_reader *r = NULL;
    fill_whole();
    /* Uneven parts, an empty one, a replica, and one whose owner is not here. */
    const tt_ckpt_piece pieces[] = {part(f, 0, 3, 0, 2, true),  part(f, 0, 3, 2, 5, true),
                                    part(f, 3, 4, 0, 5, true),  part(f, 4, 4, 0, 5, true),
                                    part(f, 3, 4, 0, 5, false), part(f, 4, 7, 0, 5, false)};
    assert_ok(tt_ckpt_open_pieces("copies", pieces, TT_COUNT(pieces), &r, &f->err), f);
    for (int64_t r0 = 0; r0 < ROWS; r0++)
        for (int64_t c0 = 0; c0 < COLUMNS; c0++) {
            tt_ckpt_piece want = part(f, r0, ROWS, c0, COLUMNS, true),
                          got = part(f, r0, ROWS, c0, COLUMNS, true);
            const size_t bytes = (size_t)((ROWS - r0) * (COLUMNS - c0)) * sizeof(float);
            memset(got.data, 0, bytes);
            assert_ok(tt_ckpt_load(r, &got, 1, &f->err), f);
            assert_memory_equal(got.data, want.data, bytes);
        }
    tt_ckpt_close(r);
}

static void fails(fixture *f, const tt_ckpt_piece *pieces, size_t n, const char *text)
{
    tt_ckpt_reader *r = NULL;
    assert_int_not_equal(tt_ckpt_open_pieces("copies", pieces, n, &r, &f->err), TT_OK);
    assert_null(r);
    assert_has(f->err.text, text);
    f->err = (tt_error){0};
}

static void test_memory_refuses_what_is_not_whole(void **state)
{
    fixture *f = *state;
    const tt_ckpt_piece hole[] = {part(f, 0, 3, 0, 5, true), part(f, 3, 7, 0, 4, true)};
    fails(f, hole, 2, "tensor 'w': [3:7, 4:5] is in no file (31 of 35 elements are)");
    const tt_ckpt_piece twice[] = {part(f, 0, 4, 0, 5, true), part(f, 3, 7, 0, 5, true)};
    fails(f, twice, 2, "tensor 'w': [3:4, 0:5] is in two files");
    tt_ckpt_piece shapes[] = {part(f, 0, 7, 0, 5, true), part(f, 0, 7, 0, 5, true)};
    shapes[1].global[0] = 8;
    fails(f, shapes, 2, "tensor 'w' has two shapes");
    shapes[1].global[0] = 7;
    shapes[1].dtype = (tt_dtype)99;
    fails(f, shapes, 2, "no valid dtype");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_memory_reads_any_boxes),
        TEST(test_memory_refuses_what_is_not_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
