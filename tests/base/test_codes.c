/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>
/* cmocka needs the headers above */
#include <cmocka.h>

/* Codes of weights against bitsandbytes (make_codes_golden.py): codes, scales and numbers bit by bit, ties
 * between two levels, rows of zeros, and rows whose last block is short. */

typedef struct golden {
    tt_codes format;
    int64_t cols;
    const uint32_t *row;
    const uint8_t *codes;
    const uint32_t *absmax, *values;
} golden;

#define A(...)                                                                                     \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define GOLDEN(format_, cols_, row_, codes_, absmax_, values_)                                     \
    {TT_CODES_##format_,        cols_,                                                             \
     (const uint32_t[])row_,    (const uint8_t[])codes_,                                           \
     (const uint32_t[])absmax_, (const uint32_t[])values_},
static const golden all[] = {
#include "codes_golden.def"
};

enum { MOST = 256 };

static void test_codes_are_those_of_bitsandbytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(all); i++) {
        const golden *g = &all[i];
        float row[MOST], absmax[MOST];
        uint8_t codes[MOST];
        memcpy(row, g->row, (size_t)g->cols * sizeof *row);
        tt_codes_encode(g->format, row, g->cols, codes, absmax);
        assert_memory_equal(codes, g->codes, (size_t)tt_codes_bytes(g->format, g->cols));
        assert_memory_equal(absmax, g->absmax,
                            (size_t)tt_codes_blocks(g->format, g->cols) * sizeof *absmax);
    }
}

static void test_codes_stand_for_the_numbers_of_bitsandbytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(all); i++)
        for (int64_t k = 0; k < all[i].cols; k++) {
            float absmax[MOST], want;
            memcpy(absmax, all[i].absmax,
                   (size_t)tt_codes_blocks(all[i].format, all[i].cols) * sizeof *absmax);
            memcpy(&want, &all[i].values[k], sizeof want);
            const float x = tt_codes_value(all[i].format, all[i].codes, absmax, k);
            assert_true(memcmp(&x, &want, sizeof x) == 0 || (x == 0 && want == 0));
        }
}

static void test_codes_keep_a_nan(void **state)
{
    (void)state;
    float row[70], absmax[2];
    uint8_t codes[MOST];
    for (int i = 0; i < 70; i++)
        row[i] = (float)i;
    row[3] = NAN;
    tt_codes_encode(TT_CODES_NF4, row, 70, codes, absmax);
    assert_true(isnan(tt_codes_value(TT_CODES_NF4, codes, absmax, 3)));
    assert_true(tt_codes_value(TT_CODES_NF4, codes, absmax, 69) == 69.0f);
    tt_codes_encode(TT_CODES_INT8, row, 70, codes, absmax);
    assert_true(isnan(tt_codes_value(TT_CODES_INT8, codes, absmax, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_are_those_of_bitsandbytes),
        cmocka_unit_test(test_codes_stand_for_the_numbers_of_bitsandbytes),
        cmocka_unit_test(test_codes_keep_a_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
