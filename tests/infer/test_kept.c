/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/kept.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Which slot of a cache a prompt gets, and which text gives way to it. */

enum { SLOTS = 3 };

static tt_arena *arena;
static tt_graph graph; /* without memories: nothing is copied */
static tt_kept kept;
static bool all_free[SLOTS];
static const char *salt; /* of the next prompts */

static void open_kept(void)
{
    arena = tt_arena_new();
    graph.slots = SLOTS;
    tt_kept_open(&kept, NULL, &graph, false, arena);
    for (int i = 0; i < SLOTS; i++)
        all_free[i] = true;
}

static void close_kept(void)
{
    tt_kept_close(&kept);
    tt_arena_free(arena);
}

/* text: a digit per token. */
static tt_kept_prompt prompt(const char *text)
{
    static int32_t ids[20];
    const int64_t n = (int64_t)strlen(text);
    for (int64_t i = 0; i < n; i++)
        ids[i] = text[i] - '0';
    return (tt_kept_prompt){.ids = ids, .n = n, .salt = salt, .n_top = -1};
}

static int64_t choose(const char *text)
{
    const tt_kept_prompt p = prompt(text);
    return tt_kept_choose(&kept, all_free, &p);
}

/* A request with this prompt in the slot that it gets; returns how many of its tokens the slots had. */
static int64_t request(const char *text, int64_t slot)
{
    const tt_kept_prompt p = prompt(text);
    tt_error err = {0};
    int64_t n = 0;
    assert_int_equal(choose(text), slot);
    assert_int_equal(tt_kept_take(&kept, slot, &p, &n, &err), TT_OK);
    for (int64_t i = n; i < p.n; i++)
        assert_int_equal(tt_kept_add(&kept, slot, p.ids[i], &err), TT_OK);
    return n;
}

static void test_texts_of_another_salt_are_of_no_use(void **state)
{
    (void)state;
    open_kept();
    assert_int_equal(request("12345", 0), 0);
    salt = "a";
    assert_int_equal(request("12345", 1),
                     0); /* another slot than that of the text without a salt */
    assert_int_equal(request("123456", 1), 5);
    salt = "b";
    assert_int_equal(request("123456", 2), 0);
    salt = NULL;
    assert_int_equal(request("123457", 0), 5);
    salt = "c";
    assert_int_equal(request("123457", 1), 0); /* the least recently used one gives way */
    salt = "a";
    assert_int_equal(request("123456", 2), 0); /* gone */
    salt = "";
    assert_int_equal(request("1234578", 0), 6); /* as without one */
    salt = NULL;
    close_kept();
}

static void test_the_text_that_was_used_least_recently_gives_way(void **state)
{
    (void)state;
    open_kept();
    assert_int_equal(request("111", 0), 0);
    assert_int_equal(request("222", 1), 0);
    assert_int_equal(request("333", 2), 0);
    assert_int_equal(request("444", 0), 0);
    assert_int_equal(request("555", 1), 0);
    assert_int_equal(request("3337", 2), 3); /* goes on with it */
    assert_int_equal(request("666", 0), 0);
    assert_int_equal(request("3338", 1), 3); /* a copy: the text in slot 2 was of use, too */
    assert_int_equal(request("777", 0), 0);
    all_free[2] = false; /* a request computes there */
    assert_int_equal(choose("888"), 1);
    assert_int_equal(choose("3337"), 1);
    tt_kept_forget(&kept, 0);
    assert_int_equal(choose("888"), 0); /* an empty one first */
    close_kept();
}

static void test_the_longest_text_that_goes_on_is_taken(void **state)
{
    (void)state;
    open_kept();
    assert_int_equal(request("12", 0), 0);
    assert_int_equal(request("1345", 1), 1);
    assert_int_equal(request("123", 0), 2);
    assert_int_equal(request("12", 2), 1); /* the last token of a prompt is computed */
    assert_int_equal(choose("1234"), 0);
    assert_int_equal(choose("124"), 2);
    assert_int_equal(choose("13456"), 1);
    assert_int_equal(choose("1346"), 1); /* none of the texts whole: the oldest */
    close_kept();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_of_another_salt_are_of_no_use),
        cmocka_unit_test(test_the_text_that_was_used_least_recently_gives_way),
        cmocka_unit_test(test_the_longest_text_that_goes_on_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
