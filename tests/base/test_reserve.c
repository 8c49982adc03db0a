/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/reserve.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <ttrun/option.h>
#include <unistd.h>

#include <cmocka.h>

/* What asks for memory when there is none spends the reserve, once, and it is there again when memory is. */

enum { RESERVE = 64 << 20, ROOM = 16 << 20, PIECE = 4 << 20 };

static struct rlimit usual;

/* Leaves this process ROOM more bytes of addresses. */
static void limit_addresses(void)
{
    struct rlimit few = usual;
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_true(f && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    few.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ROOM;
    assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
}

static int begin(void **state)
{
    tt_error err;
    (void)state;
    if (tt_reserve_open(RESERVE, &err) != TT_OK || getrlimit(RLIMIT_AS, &usual))
        return -1;
    limit_addresses();
    return 0;
}

static int finish(void **state)
{
    (void)state;
    tt_reserve_close();
    return setrlimit(RLIMIT_AS, &usual);
}

static void ask_arena(void *p)
{
    tt_arena_alloc(*(tt_arena **)p, PIECE);
}

static void ask_text(void *p)
{
    tt_str *all = p;
    while (all->s)
        all++;
    tt_str_addn(all, "", 0);
    for (int i = 0; i < PIECE / 4096; i++)
        tt_str_printf(all, "%4096d", i);
}

static void ask_calloc(void *p)
{
    void **all = p;
    while (*all)
        all++;
    assert_non_null(*all = tt_reserve_calloc(1, PIECE));
}

static void ask_realloc(void *p)
{
    void **all = p;
    while (*all)
        all++;
    assert_non_null(*all = tt_reserve_realloc(NULL, PIECE));
}

static void test_who_finds_no_memory_spends_the_reserve(void **state)
{
    static void (*const asks[])(void *) = {ask_arena, ask_text, ask_calloc, ask_realloc};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(asks); i++) {
        union {
            tt_arena *arena;
            tt_str texts[16];
            void *pieces[16];
        } has = {0};
        int n = 0;
        if (i == 0)
            has.arena = tt_arena_new();
        assert_false(tt_reserve_is_low());
        while (!tt_reserve_is_low() && ++n < 12)
            asks[i](&has);
        assert_in_range(n, 1, ROOM / PIECE + 1);
        assert_true(tt_reserve_is_low()); /* as long as the memory is held */
        asks[i](&has);                    /* from what the reserve was */
        if (i == 0)
            tt_arena_free(has.arena);
        for (int k = 0; i == 1 && k < 16; k++)
            tt_str_free(&has.texts[k]);
        for (int k = 0; i > 1 && k < 16; k++)
            free(has.pieces[k]);
        assert_false(tt_reserve_is_low());
    }
}

static void test_a_reserve_that_is_spent_is_no_more(void **state)
{
    void *all[64], *p;
    size_t n = 0;
    (void)state;
    while (n < TT_COUNT(all) && (p = tt_reserve_calloc(1, PIECE)))
        all[n++] = p;
    assert_in_range(n, RESERVE / PIECE - 1, (RESERVE + ROOM) / PIECE);
    assert_true(tt_reserve_is_low());
    while (n)
        free(all[--n]);
    assert_false(tt_reserve_is_low());
}

static void test_too_large_a_reserve_is_an_error(void **state)
{
    tt_error err = {0};
    (void)state;
    assert_int_equal(tt_reserve_open(RESERVE, &err), TT_ENOMEM);
    assert_non_null(strstr(err.text, "no memory for a reserve of 64 MiB"));
    assert_false(tt_reserve_is_low());
}

int main(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("a sanitizer needs more addresses than the test leaves\n");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_who_finds_no_memory_spends_the_reserve, begin, finish),
        cmocka_unit_test_setup_teardown(test_a_reserve_that_is_spent_is_no_more, begin, finish),
        cmocka_unit_test_setup_teardown(test_too_large_a_reserve_is_an_error, begin, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
