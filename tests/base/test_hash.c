/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

static void test_hash_known_answers(void **state)
{
    (void)state; /* XXH3, XXH128 as xxhsum prints them */
    char hex[33];
    assert_true(tt_hash64("", 0, 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(tt_hash64("abc", 3, 0) == UINT64_C(0x78af5f94892f3950));
    tt_hash128_hex("", 0, hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
    tt_hash128_hex("abc", 3, hex);
    assert_string_equal(hex, "06b05ab6733a618578af5f94892f3950");
    assert_true(tt_hash64("abc", 3, 1) != tt_hash64("abc", 3, 0));
}

static void test_hasher_in_pieces_equals_one_shot(void **state)
{
    (void)state;
    enum { N = 100000 };
    uint8_t *data = malloc(N);
    assert_non_null(data);
    for (int i = 0; i < N; i++)
        data[i] = (uint8_t)(i * 31 + i / 7);
    char whole[33], parts[33];
    tt_hash128_hex(data, N, whole);
    tt_hasher *h = tt_hasher_new();
    tt_hasher_update(h, NULL, 0);
    for (size_t i = 0, k = 1; i < N; i += k, k = k * 3 % 1021 + 1)
        tt_hasher_update(h, data + i, TT_MIN(k, N - i));
    tt_hasher_hex(h, parts);
    assert_string_equal(parts, whole);
    tt_hasher_hex(h, parts); /* asking does not end it */
    assert_string_equal(parts, whole);
    tt_hasher_free(h);
    tt_hasher_free(NULL);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_known_answers),
        cmocka_unit_test(test_hasher_in_pieces_equals_one_shot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
