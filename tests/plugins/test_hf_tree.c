/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/tokenizers/hf/subword.h"
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* the trie itself, with a count of its steps */
#include "loop_count.h"

#include "../../plugins/tokenizers/hf/tree.c"

#include "loop_count_end.h"

/* Texts of three bytes a, b, c: a and b below n, c one of 0, 1 and 3. Where the children of a node lie in the array, they
 * leave a unit free in which no other node's children find room. */
static const uint8_t ends[] = {0, 1, 3};

static void build(hf_tree *t, int n)
{
    tt_error err = {0};
    *t = (hf_tree){0};
    for (int i = 0; i < n * n * 3; i++) {
        const uint8_t text[] = {(uint8_t)(i / 3 / n), (uint8_t)(i / 3 % n), ends[i % 3]};
        assert_int_equal(hf_tree_add(t, text, 3, i, &err), TT_OK);
    }
    if (hf_tree_finish(t, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(t->n_nodes, 1 + n + n * n + n * n * 3);
}

static void test_hf_tree_finds_its_texts_alone(void **state)
{
    enum { N = 20 };
    hf_tree t;
    int found = 0;
    (void)state;
    build(&t, N);
    for (int a = 0; a < 256; a++) {
        const uint32_t one = hf_tree_next(&t, 0, (uint8_t)a);
        assert_int_equal(one != 0, a < N);
        for (int b = 0; one && b < 256; b++) {
            const uint32_t two = hf_tree_next(&t, one, (uint8_t)b);
            assert_int_equal(two != 0, b < N);
            if (!two)
                continue;
            assert_int_equal(t.units[two].id, -1);
            for (int c = 0; c < 256; c++) {
                const uint32_t three = hf_tree_next(&t, two, (uint8_t)c);
                assert_int_equal(three != 0, c < 4 && c != 2);
                if (three)
                    assert_int_equal(t.units[three].id, (a * N + b) * 3 + c - c / 3);
                found += three != 0;
            }
        }
    }
    assert_int_equal(found, N * N * 3);
    hf_tree_release(&t);
}

/* The free units that a node's children do not fit are not tried by every node after it. */
static void test_hf_tree_takes_as_long_as_its_texts(void **state)
{
    (void)state;
    for (int n = 16; n <= 64; n *= 2) {
        hf_tree t;
        loop_passes = 0;
        build(&t, n);
        if (loop_passes > 200 * (int64_t)t.n_nodes)
            fail_msg("%lld passes for %zu nodes", (long long)loop_passes, t.n_nodes);
        hf_tree_release(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hf_tree_finds_its_texts_alone),
        cmocka_unit_test(test_hf_tree_takes_as_long_as_its_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
