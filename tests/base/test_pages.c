/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pages.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#define MIB ((size_t)1 << 20)

/* Bytes of this process's address space. */
static size_t mapped(void)
{
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu", &pages), 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void test_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,           4096,    4097,        2 * MIB - 1,  2 * MIB,
                                   2 * MIB + 1, 4 * MIB, 5 * MIB + 3, 37 * MIB + 17};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    mapped(); /* stdio has its memory now */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i], before = mapped();
        uint8_t *p = tt_pages_new(n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (n < 2 * MIB ? page : 2 * MIB), 0);
        assert_int_equal(mapped() - before,
                         (n + page - 1) / page * page); /* nothing around it stays */
        for (size_t at = 0; at < n; at += 1000)
            assert_int_equal(p[at], 0);
        memset(p, 7, n);
        assert_int_equal(p[n - 1], 7);
        tt_pages_free(p, n);
        assert_int_equal(mapped(), before);
    }
}

static void test_none(void **state)
{
    (void)state;
    tt_pages_free(NULL, 100);
    assert_null(tt_pages_new(SIZE_MAX));
    assert_int_equal(errno, ENOMEM);
    assert_null(tt_pages_new(SIZE_MAX - 3 * MIB));
    assert_int_equal(errno, ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
