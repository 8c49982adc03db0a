/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_COMM_STARTED_H
#define TEST_COMM_STARTED_H
#include "base/base.h"
#include "comm/async_cases.h"
#include "comm/battery.h"
#include "launch/environment.h"
#include "plugin/registry.h"
#include <limits.h>
#include <time.h>
#include <unistd.h>

/* The battery over a comm plugin between processes: a launcher starts this program again as each rank, which
 * runs the tests whose worlds have as many ranks as there are. A test that ends its world gets a start of
 * its own. OWN_TESTS: more of them. The file that includes this one says which plugin (carrier_name) and how ranks are started. */

/* False, and a line: the plugin or its launcher is not here. */
static bool carrier_is_here(void);
/* The shell's line that starts n ranks of program `self` with TT_TEST=only. */
static void carrier_line(char *line, size_t size, int n, const char *only, const char *self);

static struct {
    tt_session *session; /* of a rank; NULL: the parent */
    tt_dist dist;
    world *w;
    bool once, done;
} me;

static int world_run(int n, rank_fn fn)
{
    if (!me.session || n != me.dist.world || me.done)
        return 1;
    tt_dist_set_timeout(&me.dist, 0);
    fn(me.w, &me.dist);
    me.done = me.once;
    return atomic_load(&me.w->count) > 0 ? atomic_load(&me.w->count) : 1;
}

/* Runs each of cmocka's tests without cmocka, in a world that has as many ranks as the test needs.
 */
static const struct CMUnitTest battery[] = {BATTERY, ASYNC_CASES};

static bool ends_a_world(const char *name)
{
    return strstr(name, "abort") || strstr(name, "time") || strstr(name, "another_size") ||
           strstr(name, "differing") || strstr(name, "agree");
}

static world *shared_world(tt_session *s)
{
    tt_error err;
    assert_int_equal(tt_session_lock(s, &err), TT_OK);
    uint64_t at = atomic_load(tt_session_root(s));
    if (!at)
        atomic_store(tt_session_root(s), at = tt_session_alloc(s, sizeof(world)));
    tt_session_unlock(s);
    return tt_session_at(s, at);
}

/* ---- a rank ---- */

static int fail_rank(const char *what, const tt_error *err)
{
    printf("FAIL %s: %s\n", what, err->text);
    return 1;
}

static int rank_main(const tt_launch *l, const char *only)
{
    const tt_session_opts so = {.launch = l, .timeout_s = 3600};
    const char *dirs[] = {getenv("PLUGINS")};
    const tt_registry_opts ro = {.dirs = dirs, .n_dirs = 1};
    const tt_component *c;
    tt_registry *r;
    tt_error err = {0};
    if (tt_session_open(&so, &me.session, &err) != TT_OK)
        return fail_rank("session", &err);
    if (tt_registry_new(&ro, &r, &err) != TT_OK ||
        tt_registry_find(r, TT_KIND_COMM, carrier_name, &c, &err) != TT_OK)
        return fail_rank("plugin", &err);
    const tt_processes_opts po = {.launch = l,
                                  .session = me.session,
                                  .remote = c->vtable,
                                  .all_remote = true,
                                  .concurrent = true};
    if (tt_processes_join(&po, &me.dist, &err) != TT_OK)
        return fail_rank("join", &err);
    me.w = shared_world(me.session);
    me.once = *only;
    for (size_t i = 0; i < TT_COUNT(battery); i++) {
        const bool wanted = *only ? !strcmp(only, battery[i].name) : !ends_a_world(battery[i].name);
        if (wanted)
            battery[i].test_func(NULL);
    }
    const bool ok = !atomic_load(&me.w->n_failed);
    printf(ok ? "rank ok\n" : "FAIL %s\n", me.w->first);
    fflush(stdout);
    tt_dist_leave(&me.dist);
    tt_session_close(me.session, !*only);
    tt_registry_free(r);
    return !ok;
}

/* ---- the parent ---- */

/* Fails unless each of n ranks reports success. */
static void start(int n, const char *only)
{
    char self[PATH_MAX], line[2 * PATH_MAX], text[4096];
    size_t len = 0;
    int n_ok = 0;
    if (!carrier_is_here())
        skip();
    const ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(k > 0);
    self[k] = 0;
    carrier_line(line, sizeof line, n, only, self);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    len = fread(text, 1, sizeof text - 1, f);
    text[len] = 0;
    pclose(f);
    for (const char *p = text; (p = strstr(p, "rank ok")) != NULL; p++)
        n_ok++;
    if (n_ok != n || strstr(text, "FAIL"))
        fail_msg("%d of %d ranks are well: %s", n_ok, n, text);
}

/* Each test that ends its world is started separately below. */
static void test_every_test_of_the_battery_runs(void **state)
{
    int n = 0;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(battery); i++)
        n += ends_a_world(battery[i].name);
    assert_int_equal(n, 9);
}
static void test_battery_on_two_ranks(void **state)
{
    (void)state;
    start(2, "");
}
static void test_battery_on_three_ranks(void **state)
{
    (void)state;
    start(3, "");
}
static void test_battery_on_four_ranks(void **state)
{
    (void)state;
    start(4, "");
}
static void test_battery_on_five_ranks(void **state)
{
    (void)state;
    start(5, "");
}
static void test_message_of_another_size(void **state)
{
    (void)state;
    start(2, "test_message_of_another_size_is_an_error");
}
static void test_differing_calls(void **state)
{
    (void)state;
    start(3, "test_differing_calls_are_named");
}
static void test_timeout(void **state)
{
    (void)state;
    start(3, "test_timeout_names_op_number_and_missing_ranks");
}
static void test_receive_timeout(void **state)
{
    (void)state;
    start(2, "test_receive_times_out");
}
static void test_send_timeout(void **state)
{
    (void)state;
    start(2, "test_send_times_out");
}
static void test_abort(void **state)
{
    (void)state;
    start(5, "test_abort_wakes_everyone");
}
static void test_abort_in_the_middle(void **state)
{
    (void)state;
    start(3, "test_abort_leaves_no_one_reading");
}
static void test_abort_ends_async_calls(void **state)
{
    (void)state;
    start(3, "test_abort_ends_calls_in_flight");
}
static void test_agree(void **state)
{
    (void)state;
    start(4, "test_agree_names_the_first_failing_rank");
}

static int started_main(void)
{
    tt_launch l;
    tt_error err = {0};
    if (tt_launch_read(getenv, &l, &err) == TT_OK && l.world > 1)
        return rank_main(&l, getenv("TT_TEST") ? getenv("TT_TEST") : "");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_test_of_the_battery_runs),
        cmocka_unit_test(test_battery_on_two_ranks),
        cmocka_unit_test(test_battery_on_three_ranks),
        cmocka_unit_test(test_battery_on_four_ranks),
        cmocka_unit_test(test_battery_on_five_ranks),
        cmocka_unit_test(test_message_of_another_size),
        cmocka_unit_test(test_differing_calls),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_receive_timeout),
        cmocka_unit_test(test_send_timeout),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_abort_in_the_middle),
        cmocka_unit_test(test_abort_ends_async_calls),
        cmocka_unit_test(test_agree),
#if defined(OWN_TESTS)
        OWN_TESTS
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
