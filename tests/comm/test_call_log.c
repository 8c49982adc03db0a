/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/async_cases.h"
#include "comm/battery.h"
#include "comm/call_log.h"
#include "config/config.h"
#include "folder_test.h"
#include <pthread.h>
#include <unistd.h>

/* A communicator whose calls are logged: it must do what the one below it does, and its files must name who waits for whom. */

static char folder[TEST_FOLDER];
static tt_call_log *the_log;
static int64_t entries = 64;

typedef struct world_rank {
    world *w;
    tt_threads *t;
    tt_call_log *log;
    rank_fn fn;
    int rank;
} world_rank;

static void *world_main(void *arg)
{
    world_rank *r = arg;
    tt_dist d;
    tt_error err;
    if (tt_threads_join(r->t, r->rank, &d, &err) != TT_OK ||
        tt_call_log_join(r->log, &d, &err) != TT_OK) {
        world_fail(r->w, "join: %s", err.text);
        own_clock_leave();
        return NULL;
    }
    r->fn(r->w, &d);
    tt_call_log_leave(&d);
    tt_dist_leave(&d);
    own_clock_leave();
    return NULL;
}

static int world_run(int n, rank_fn fn)
{
    world w = {0};
    tt_error err;
    tt_threads *t;
    tt_call_log *log;
    pthread_t threads[16];
    world_rank ranks[16];
    const tt_call_log_opts o = {entries, folder, "rank_", n};
    assert_int_equal(tt_threads_new(n, 0, &t, &err), TT_OK);
    assert_int_equal(tt_call_log_new(&o, NULL, &log, &err), TT_OK);
    the_log = log;
    own_clock_open(n);
    for (int i = 0; i < n; i++) {
        ranks[i] = (world_rank){&w, t, log, fn, i};
        assert_int_equal(pthread_create(&threads[i], NULL, world_main, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    own_clock_close();
    tt_call_log_free(log);
    tt_threads_free(t);
    return world_end(&w);
}

/* ---- files ---- */

static const tt_json *of_rank(tt_arena *a, int rank)
{
    char path[TEST_FOLDER + 40];
    tt_error err;
    char *text;
    size_t n;
    const tt_json *j;
    snprintf(path, sizeof path, "%s/rank_%d.json", folder, rank);
    if (tt_read_file(path, 0, &text, &n, &err) != TT_OK ||
        tt_json_parse(a, path, text, n, &j, &err) != TT_OK)
        fail_msg("%s", err.text);
    free(text);
    return j;
}

static const char *word(const tt_json *j, const char *key)
{
    const tt_json *v = tt_json_get(j, key);
    return v && v->type == TT_JSON_STRING ? v->string : "";
}

static int64_t whole(const tt_json *j, const char *key)
{
    const tt_json *v = tt_json_get(j, key);
    return v ? v->integer : -1;
}

/* Three sums of all ranks and a message; then rank 1 makes no call, and the others wait for it in the fourth. */
static void one_stays_away(world *w, tt_dist *d)
{
    tt_error err = {0};
    int32_t one = 1;
    float x[6] = {0};
    for (int i = 1; i <= 3; i++) {
        tt_called_step(d->called, i);
        tt_called_name(i == 2 ? "model.layers.0" : "", NULL);
        if (d->vt->all_reduce(d->all, &one, 1, TT_I32, TT_MAX, &err) != TT_OK)
            world_fail(w, "%s", err.text);
    }
    tt_called_name(NULL, NULL);
    if (d->rank == 0 && d->vt->send(d->all, 2, x, 24, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    if (d->rank == 2 && d->vt->recv(d->all, 0, x, 24, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    if (d->rank == 1) {
        world_until(&w->count, 2);
        return;
    }
    if (d->rank == 2) { /* the last that comes */
        world_until_idle();
        tt_dist_set_timeout(d, 0.3);
    }
    const tt_status s = d->vt->all_reduce(d->all, x, 6, TT_F32, TT_SUM, &err);
    if (s != (d->rank == 2 ? TT_ETIMEOUT : TT_ECOMM))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    if (d->rank == 2)
        tt_call_log_dump(the_log, &err);
    world_add(&w->count);
    if (d->rank == 0)
        return;
    char folder_at[TEST_FOLDER + 60];
    snprintf(folder_at, sizeof folder_at, "; the last calls of each rank are in %s", folder);
    const char *behind = strstr(err.text, "; rank 1 is behind: rank ");
    if (!strstr(err.text, folder_at) || !behind ||
        !strstr(behind,
                " waits for it in all_reduce number 4 of all ranks, step 3; its last call is "
                "all_reduce number 3 of all ranks, step 3, which ended "))
        world_fail(w, "%s", err.text);
}

static void test_files_say_who_is_behind(void **state)
{
    (void)state;
    entries = 64;
    assert_int_equal(world_run(3, one_stays_away), 2);
    tt_arena *a = tt_arena_new();
    const tt_json *r0 = of_rank(a, 0), *r1 = of_rank(a, 1), *calls = tt_json_get(r0, "calls");
    assert_int_equal(whole(r0, "world"), 3);
    assert_int_equal(whole(r0, "n_calls"), 5);
    assert_int_equal(whole(r1, "n_calls"), 3);
    assert_int_equal(whole(r1, "rank"), 1);
    assert_int_equal(calls->n, 5);
    assert_string_equal(word(calls->items[1], "for"), "model.layers.0");
    assert_string_equal(word(calls->items[1], "state"), "done");
    assert_int_equal(whole(calls->items[1], "step"), 2);
    assert_int_equal(whole(calls->items[1], "in_group"), 2);
    assert_string_equal(word(calls->items[3], "op"), "send");
    assert_int_equal(whole(calls->items[3], "peer"), 2);
    assert_int_equal(whole(calls->items[3], "bytes"), 24);
    assert_string_equal(word(calls->items[4], "op"), "all_reduce");
    assert_string_equal(word(calls->items[4], "dtype"), "f32");
    assert_int_equal(whole(calls->items[4], "bytes"), 24);
    assert_string_not_equal(word(calls->items[4], "state"), "done");
    tt_arena_free(a);
}

/* More calls than a ring holds, and a dump while the ranks go on. */
static void many_calls(world *w, tt_dist *d)
{
    tt_error err = {0};
    int32_t one = 1;
    for (int i = 0; i < 1000; i++) {
        if (d->vt->all_reduce(d->all, &one, 1, TT_I32, TT_MAX, &err) != TT_OK)
            world_fail(w, "%s", err.text);
        if (i == 500 && d->rank == 0) {
            tt_call_log_dump(the_log, &err);
            tt_call_log_dump(the_log, &err); /* once */
        }
    }
}

static void test_ring_keeps_the_newest_calls(void **state)
{
    (void)state;
    entries = 1; /* 64 at least */
    world_run(2, many_calls);
    entries = 64;
    tt_arena *a = tt_arena_new();
    const tt_json *r0 = of_rank(a, 0), *calls = tt_json_get(r0, "calls");
    const int64_t n = whole(r0, "n_calls");
    assert_true(n == 501 && calls->n == 64);
    assert_int_equal(whole(calls->items[63], "number"), n);
    assert_int_equal(whole(calls->items[0], "number"), n - 63);
    of_rank(a, 1);
    tt_arena_free(a);
}

static void test_nothing_is_logged_without_entries(void **state)
{
    (void)state;
    tt_call_log *log = (tt_call_log *)(void *)folder;
    tt_error err;
    assert_int_equal(tt_call_log_new(&(tt_call_log_opts){0, folder, "x", 2}, NULL, &log, &err),
                     TT_OK);
    assert_null(log);
    tt_call_log_dump(NULL, &err);
    tt_called_step(NULL, 1);
}

static void cannot_write(world *w, tt_dist *d)
{
    tt_error err = {0};
    if (d->rank)
        return;
    TT_FAIL(&err, TT_ETIMEOUT, "late");
    tt_call_log_dump(the_log, &err);
    if (!strstr(err.text, "late; the last calls of the ranks are lost: "))
        world_fail(w, "%s", err.text);
}

static void test_folder_that_cannot_be_made(void **state)
{
    (void)state;
    char kept[sizeof folder];
    memcpy(kept, folder, sizeof folder);
    snprintf(folder, sizeof folder, "/proc/none");
    world_run(2, cannot_write);
    memcpy(folder, kept, sizeof folder);
}

static int make_folder(void **state)
{
    (void)state;
    return test_folder("call_log", folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[TEST_FOLDER + 40];
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "%s/rank_%d.json", folder, i);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BATTERY,
        ASYNC_CASES,
        cmocka_unit_test(test_files_say_who_is_behind),
        cmocka_unit_test(test_ring_keeps_the_newest_calls),
        cmocka_unit_test(test_nothing_is_logged_without_entries),
        cmocka_unit_test(test_folder_that_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
