/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include "train/writer.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A separate thread writes the metrics: in order, without a loss; no rank waits for a slow file; a
 * failure is reported, or one sink alone gets its records later. */

typedef struct sink {
    pthread_mutex_t gate; /* log() goes through it */
    double seen[1000];
    int n, fails_at; /* fails_at: -1 never */
} sink;

static tt_status log_one(void *self, const tt_metrics_record *r, tt_error *err)
{
    sink *s = self;
    pthread_mutex_lock(&s->gate);
    pthread_mutex_unlock(&s->gate);
    if (s->n == s->fails_at)
        return TT_FAIL(err, TT_EIO, "the disk is full at step %d", (int)r->step);
    assert_true(r->n_metrics == 2 && !strcmp(r->metrics[1].name, "loss"));
    assert_true(r->metrics[0].value == (double)r->step);
    s->seen[s->n++] = r->metrics[1].value;
    return TT_OK;
}

static const tt_metrics_vt vt = {.struct_size = sizeof vt, .log = log_one};

static void sink_init(sink *s, tt_sink *as)
{
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->gate, NULL);
    s->fails_at = -1;
    *as = (tt_sink){.vt = &vt, .self = s, .name = "test"};
}

static tt_writer *open_writer(sink *s, tt_sink *as)
{
    tt_writer *w = NULL;
    tt_error err = {0};
    sink_init(s, as);
    assert_int_equal(tt_writer_new(as, 1, false, TT_MAX_METRICS, &w, &err), TT_OK);
    return w;
}

static tt_status log_step(tt_writer *w, int step, tt_error *err)
{
    const tt_metric m[] = {
        {"step", step      },
        {"loss", 0.5 * step}
    };
    const tt_metrics_record r = {
        .struct_size = sizeof r, .step = step, .metrics = m, .n_metrics = 2};
    return tt_writer_log(w, &r, err);
}

static void test_a_step_does_not_wait_for_a_slow_file(void **state)
{
    sink s;
    tt_sink as;
    tt_error err = {0};
    tt_writer *w = open_writer(&s, &as);
    (void)state;
    pthread_mutex_lock(&s.gate); /* a file system that hangs */
    for (int i = 0; i < 50; i++)
        assert_int_equal(log_step(w, i, &err), TT_OK);
    assert_int_equal(s.n, 0);
    pthread_mutex_unlock(&s.gate);
    assert_int_equal(tt_writer_finish(w, &err), TT_OK);
    assert_int_equal(s.n, 50);
    for (int i = 50; i < 1000; i++) /* many more than have room */
        assert_int_equal(log_step(w, i, &err), TT_OK);
    tt_writer_free(w); /* finishes */
    assert_int_equal(s.n, 1000);
    for (int i = 0; i < 1000; i++)
        assert_true(s.seen[i] == 0.5 * i);
}

static void test_a_failure_is_reported_and_nothing_is_written_after_it(void **state)
{
    sink s;
    tt_sink as;
    tt_error err = {0};
    tt_writer *w = open_writer(&s, &as);
    (void)state;
    s.fails_at = 3;
    for (int i = 0; i < 10; i++)
        (void)log_step(w, i, &err);
    memset(&err, 0, sizeof err);
    assert_int_equal(tt_writer_finish(w, &err), TT_EIO);
    assert_string_equal(err.text, "the disk is full at step 3");
    memset(&err, 0, sizeof err);
    assert_int_equal(log_step(w, 10, &err), TT_EIO);
    assert_non_null(strstr(err.text, "the disk is full"));
    tt_writer_free(w);
    assert_int_equal(s.n, 3);
    tt_writer_free(NULL);
}

/* Three sinks: the first fails for a while, and so does the third, for longer than its records are held. */
static void test_a_sink_that_fails_gets_its_records_later(void **state)
{
    sink s[3];
    tt_sink as[3];
    tt_error err = {0};
    tt_writer *w = NULL;
    (void)state;
    for (int k = 0; k < 3; k++)
        sink_init(&s[k], &as[k]);
    s[0].fails_at = 3;
    s[2].fails_at = 5;
    tt_log_set_level(TT_ERROR);
    assert_int_equal(tt_writer_new(as, 3, true, TT_MAX_METRICS, &w, &err), TT_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(log_step(w, i, &err), TT_OK);
    assert_int_equal(tt_writer_finish(w, &err), TT_OK);
    assert_int_equal(s[0].n, 3);
    assert_int_equal(s[1].n, 10);
    s[0].fails_at = -1;
    for (int i = 10; i < 200; i++)
        assert_int_equal(log_step(w, i, &err), TT_OK);
    assert_int_equal(tt_writer_finish(w, &err), TT_OK);
    s[2].fails_at = -1;
    assert_int_equal(log_step(w, 200, &err), TT_OK);
    tt_writer_free(w);
    assert_int_equal(s[0].n, 201);
    assert_int_equal(s[1].n, 201);
    for (int i = 0; i < 201; i++)
        assert_true(s[0].seen[i] == 0.5 * i && s[1].seen[i] == 0.5 * i);
    assert_int_equal(s[2].n, 5 + 32 + 1); /* 0 to 4, the last that were held, and the newest */
    for (int i = 0; i < 33; i++)
        assert_true(s[2].seen[5 + i] == 0.5 * (168 + i));
}

/* No record comes after the failure: the end offers those that are held once more, of two sinks to one that works
 * again. */
static void test_the_end_offers_what_a_sink_does_not_have(void **state)
{
    sink s[2];
    tt_sink as[2];
    tt_error err = {0};
    tt_writer *w = NULL;
    (void)state;
    for (int k = 0; k < 2; k++) {
        sink_init(&s[k], &as[k]);
        s[k].fails_at = 6;
    }
    tt_log_set_level(TT_ERROR);
    assert_int_equal(tt_writer_new(as, 2, true, TT_MAX_METRICS, &w, &err), TT_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(log_step(w, i, &err), TT_OK);
    assert_int_equal(tt_writer_finish(w, &err), TT_OK);
    s[1].fails_at = -1;
    tt_writer_free(w);
    assert_int_equal(s[0].n, 6);
    assert_int_equal(s[1].n, 10);
    for (int i = 0; i < 10; i++)
        assert_true(s[1].seen[i] == 0.5 * i);
}

/* The names of what a sink still wants may be freed after tt_writer_forget. */
static void test_records_are_forgotten(void **state)
{
    sink s;
    tt_sink as;
    tt_error err = {0};
    tt_writer *w = NULL;
    (void)state;
    sink_init(&s, &as);
    s.fails_at = 2;
    tt_log_set_level(TT_ERROR);
    assert_int_equal(tt_writer_new(&as, 1, true, TT_MAX_METRICS, &w, &err), TT_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(log_step(w, i, &err), TT_OK);
    assert_int_equal(tt_writer_finish(w, &err), TT_OK);
    tt_writer_forget(w);
    s.fails_at = -1;
    assert_int_equal(log_step(w, 10, &err), TT_OK);
    tt_writer_free(w);
    assert_int_equal(s.n, 3);
    assert_true(s.seen[2] == 5.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_does_not_wait_for_a_slow_file),
        cmocka_unit_test(test_a_failure_is_reported_and_nothing_is_written_after_it),
        cmocka_unit_test(test_a_sink_that_fails_gets_its_records_later),
        cmocka_unit_test(test_the_end_offers_what_a_sink_does_not_have),
        cmocka_unit_test(test_records_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
