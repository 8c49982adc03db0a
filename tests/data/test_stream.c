/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "data/data.h"
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SEQ = 4, SAMPLES = 13, VOCAB = 1000 };

/* Sample i has the ids 10*i … 10*i+3; the test may make the loader fail or wait. */
typedef struct {
    int64_t fail_at, bad_at;
    _Atomic int64_t reads;
    bool held;           /* each read waits until the test has seen it begin */
    _Atomic int64_t let; /* reads that may end */
    bool segments, silent;
} fake;

static tt_status fake_read(void *self, int64_t i, tt_sample *out, tt_error *err)
{
    fake *f = self;
    atomic_fetch_add(&f->reads, 1);
    while (f->held && atomic_load(&f->let) == 0)
        sched_yield();
    if (i == f->fail_at && f->silent)
        return TT_EIO;
    if (i == f->fail_at)
        return TT_FAIL(err, TT_EIO, "the disk is gone");
    for (int t = 0; t < SEQ; t++) {
        out->ids[t] = (int32_t)(10 * i + t);
        out->labels[t] = t == 0 ? -100 : (int32_t)(10 * i + t + 1);
        if (f->segments) {
            out->seg[t] = t / 2;
            out->pos[t] = t % 2;
        }
    }
    if (i == f->bad_at)
        out->ids[2] = VOCAB;
    return TT_OK;
}

static const tt_dataloader_vt loader = {.struct_size = sizeof loader, .read = fake_read};

static tt_stream_opts options(fake *f, int64_t local, int64_t micro, int rank, int world)
{
    return (tt_stream_opts){
        .loader = &loader,
        .loader_self = f,
        .order = {.n_samples = SAMPLES, .seed = 7, .shuffle = true},
        .seq_len = SEQ,
        .local = local,
        .micro_batches = micro,
        .global_batch = local * micro * world,
        .data_rank = rank,
        .data_world = world,
        .n_steps = -1,
        .vocab_size = VOCAB
    };
}

static tt_stream *open_stream(const tt_stream_opts *o)
{
    tt_stream *s = NULL;
    tt_error err;
    assert_int_equal(tt_stream_new(o, &s, &err), TT_OK);
    return s;
}

/* The samples of a global step in the documented order, as the ids of their first tokens. */
static void check_step(const tt_stream_opts *o, int64_t step, const tt_batch *micro)
{
    int64_t g =
        o->first_sample + step * o->global_batch + o->data_rank * o->local * o->micro_batches;
    for (int64_t m = 0; m < o->micro_batches; m++) {
        assert_int_equal(micro[m].n_tokens, o->local * SEQ);
        assert_int_equal(micro[m].counted, o->local * (SEQ - 1));
        for (int64_t j = 0; j < o->local; j++, g++) {
            const int64_t want = tt_order_sample(&o->order, g, NULL);
            for (int t = 0; t < SEQ; t++) {
                assert_int_equal(micro[m].ids[j * SEQ + t], 10 * want + t);
                assert_int_equal(micro[m].pos[j * SEQ + t], t);
                assert_int_equal(micro[m].seg[j * SEQ + t], j);
            }
        }
    }
}

static void test_stream_gives_each_rank_its_documented_samples(void **state)
{
    (void)state;
    static const int shapes[][3] = {
        {1, 1, 1},
        {2, 3, 1},
        {3, 1, 2},
        {2, 2, 3},
        {1, 5, 4}
    }; /* local, micro, R */
    for (size_t k = 0; k < TT_COUNT(shapes); k++)
        for (int depth = 0; depth < 4; depth++)
            for (int r = 0; r < shapes[k][2]; r++) {
                fake f = {.fail_at = -1, .bad_at = -1};
                tt_stream_opts o = options(&f, shapes[k][0], shapes[k][1], r, shapes[k][2]);
                o.depth = depth;
                tt_stream *s = open_stream(&o);
                for (int64_t step = 0; step < 9; step++) {
                    const tt_batch *micro;
                    int64_t epoch;
                    tt_error err;
                    assert_int_equal(tt_stream_next(s, &micro, &epoch, &err), TT_OK);
                    assert_int_equal(epoch, step * o.global_batch / SAMPLES);
                    check_step(&o, step, micro);
                }
                tt_stream_free(s);
            }
}

static void test_stream_continues_where_another_world_stopped(void **state)
{
    (void)state;
    fake f = {.fail_at = -1, .bad_at = -1};
    /* 3 steps of 12 samples on one rank, then on 4 ranks from sample 36 */
    for (int r = 0; r < 4; r++) {
        tt_stream_opts o = options(&f, 3, 1, r, 4);
        o.first_sample = 36;
        o.depth = 2;
        tt_stream *s = open_stream(&o);
        for (int64_t step = 0; step < 3; step++) {
            const tt_batch *micro;
            tt_error err;
            assert_int_equal(tt_stream_next(s, &micro, NULL, &err), TT_OK);
            check_step(&o, step, micro);
        }
        tt_stream_free(s);
    }
}

static void test_stream_keeps_segments_of_samples_apart(void **state)
{
    (void)state;
    fake f = {.fail_at = -1, .bad_at = -1, .segments = true};
    const tt_stream_opts o = options(&f, 2, 1, 0, 1);
    tt_stream *s = open_stream(&o);
    const tt_batch *micro;
    tt_error err;
    static const int32_t want[2 * SEQ] = {0, 0, 1, 1, 2, 2, 3, 3};
    assert_int_equal(tt_stream_next(s, &micro, NULL, &err), TT_OK);
    assert_memory_equal(micro[0].seg, want, sizeof want);
    tt_stream_free(s);
}

static void test_stream_reports_an_error_at_its_step_and_ever_after(void **state)
{
    (void)state;
    for (int depth = 0; depth < 5; depth++) {
        fake f = {.fail_at = 5, .bad_at = -1};
        tt_stream_opts o = options(&f, 2, 1, 0, 1);
        o.order.shuffle = false;
        o.depth = depth;
        tt_stream *s = open_stream(&o);
        const tt_batch *micro;
        int64_t epoch = 77;
        tt_error err;
        for (int step = 0; step < 2; step++)
            assert_int_equal(tt_stream_next(s, &micro, &epoch, &err), TT_OK);
        const tt_batch *before = micro;
        for (int again = 0; again < 3; again++) {
            assert_int_equal(tt_stream_next(s, &micro, &epoch, &err), TT_EIO);
            assert_string_equal(err.text, "data: sample 5 of epoch 0: the disk is gone");
            assert_ptr_equal(micro, before); /* out-parameters untouched */
        }
        tt_stream_free(s);
    }
}

static void test_stream_of_one_epoch_fills_up_its_last_batch(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        int64_t counted = 0, seen = 0;
        fake f = {.fail_at = -1, .bad_at = -1};
        tt_stream_opts o = options(&f, 2, 2, rank, 2); /* 13 samples in batches of 8 */
        o.by_epoch = true;
        o.n_steps = 2;
        tt_stream *s = open_stream(&o);
        for (int step = 0; step < 2; step++) {
            const tt_batch *micro;
            tt_error err;
            assert_int_equal(tt_stream_next(s, &micro, NULL, &err), TT_OK);
            for (int m = 0; m < 2; m++) {
                counted += micro[m].counted;
                for (int j = 0; j < 2; j++) {
                    const int32_t *ids = micro[m].ids + j * SEQ,
                                  *labels = micro[m].labels + j * SEQ;
                    const bool real = 8 * step + 4 * rank + 2 * m + j < SAMPLES;
                    seen += real;
                    assert_int_equal(labels[1] >= 0, real);
                    assert_true(ids[0] >= 0 && ids[0] < VOCAB);
                    assert_int_equal(micro[m].pos[j * SEQ + 3], 3);
                    assert_int_equal(micro[m].seg[j * SEQ + 3], j);
                }
            }
        }
        assert_int_equal(seen, rank ? 5 : 8);
        assert_int_equal(counted, seen * (SEQ - 1));
        assert_int_equal(f.reads, seen);
        tt_stream_free(s);
    }
}

static void test_stream_fails_if_a_loader_fails_without_a_message(void **state)
{
    (void)state;
    fake f = {.fail_at = 1, .bad_at = -1, .silent = true};
    tt_stream_opts o = options(&f, 2, 1, 0, 1);
    o.order.shuffle = false;
    o.loader_name = "fake";
    tt_stream *s = open_stream(&o);
    const tt_batch *micro;
    tt_error err;
    assert_int_equal(tt_stream_next(s, &micro, NULL, &err), TT_EIO);
    assert_string_equal(err.text, "data: sample 1 of epoch 0: dataloader fake failed without a "
                                  "message (input/output error)");
    tt_stream_free(s);
}

static void test_stream_names_a_token_outside_the_vocabulary(void **state)
{
    (void)state;
    fake f = {.fail_at = -1, .bad_at = 0};
    tt_stream_opts o = options(&f, 1, 1, 0, 1);
    o.order.shuffle = false;
    tt_stream *s = open_stream(&o);
    const tt_batch *micro;
    tt_error err;
    assert_int_equal(tt_stream_next(s, &micro, NULL, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "sample 0 of epoch 0: token id 1000 at position 2"));
    tt_stream_free(s);
}

static void test_stream_never_reads_past_its_end(void **state)
{
    (void)state;
    for (int depth = 0; depth < 3; depth++) {
        fake f = {.fail_at = -1, .bad_at = -1};
        tt_stream_opts o = options(&f, 2, 1, 0, 1);
        o.n_steps = 3;
        o.depth = depth;
        tt_stream *s = open_stream(&o);
        const tt_batch *micro;
        tt_error err;
        for (int step = 0; step < 3; step++)
            assert_int_equal(tt_stream_next(s, &micro, NULL, &err), TT_OK);
        assert_int_equal(tt_stream_next(s, &micro, NULL, &err), TT_EINVAL);
        tt_stream_free(s);
        assert_int_equal(f.reads, 6);
    }
}

/* Waits until all threads of this process but the caller sleep: they have nothing to do. */
static void wait_for_idle_threads(void)
{
    for (bool busy = true; busy;) {
        DIR *tasks = opendir("/proc/self/task");
        busy = false;
        assert_non_null(tasks);
        for (struct dirent *e; (e = readdir(tasks));) {
            char path[300], state = 'S';
            snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
            FILE *f = e->d_name[0] == '.' || atoi(e->d_name) == getpid() ? NULL : fopen(path, "r");
            if (f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1)
                busy = busy || state != 'S';
            if (f)
                fclose(f);
        }
        closedir(tasks);
        sched_yield();
    }
}

/* In a read; or after all reads that it may do ahead. */
static void test_stream_stops_while_its_thread_waits_or_reads(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        fake f = {.fail_at = -1, .bad_at = -1, .held = round % 2};
        tt_stream_opts o = options(&f, 4, 2, 0, 1);
        o.depth = 1 + round % 3;
        tt_stream *s = open_stream(&o);
        const tt_batch *micro;
        tt_error err;
        if (!f.held && round % 4 < 2)
            assert_int_equal(tt_stream_next(s, &micro, NULL, &err), TT_OK);
        while (f.held && atomic_load(&f.reads) == 0)
            sched_yield();
        if (!f.held && round > 10)
            wait_for_idle_threads();
        atomic_store(&f.let, 1);
        tt_stream_free(s);
    }
}

static void test_stream_reads_depth_steps_ahead_and_no_more(void **state)
{
    (void)state;
    fake f = {.fail_at = -1, .bad_at = -1};
    tt_stream_opts o = options(&f, 1, 1, 0, 1);
    o.depth = 2;
    tt_stream *s = open_stream(&o);
    const tt_batch *micro;
    tt_error err;
    assert_int_equal(tt_stream_next(s, &micro, NULL, &err), TT_OK);
    const int32_t first = micro[0].ids[0];
    while (atomic_load(&f.reads) < 3)
        sched_yield();
    wait_for_idle_threads();
    assert_int_equal(f.reads, 3);             /* while nobody asks */
    assert_int_equal(micro[0].ids[0], first); /* not overwritten while it is ours */
    tt_stream_free(s);
    assert_int_equal(f.reads, 3);
}

static void test_stream_refuses_a_batch_that_does_not_divide(void **state)
{
    (void)state;
    fake f = {.fail_at = -1, .bad_at = -1};
    tt_stream_opts o = options(&f, 2, 3, 0, 2);
    tt_stream *s = (tt_stream *)&f;
    tt_error err;
    o.global_batch = 13;
    assert_int_equal(tt_stream_new(&o, &s, &err), TT_EINVAL);
    assert_ptr_equal(s, &f);
    assert_non_null(strstr(err.text, "13 samples is not 2 samples times 3 micro-batches times 2"));
}

static void test_stream_refuses_segments_of_a_loader_that_promised_one(void **state)
{
    fake f = {.fail_at = -1, .bad_at = -1};
    tt_stream *s;
    const tt_batch *b;
    int64_t epoch;
    tt_error err = {0};
    (void)state;
    tt_stream_opts o = options(&f, 2, 1, 0, 1);
    o.one_segment = true;
    assert_int_equal(tt_stream_new(&o, &s, &err), TT_OK);
    assert_int_equal(tt_stream_next(s, &b, &epoch, &err), TT_OK);
    f.segments = true;
    assert_int_equal(tt_stream_next(s, &b, &epoch, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "promised samples of one segment"));
    tt_stream_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream_gives_each_rank_its_documented_samples),
        cmocka_unit_test(test_stream_continues_where_another_world_stopped),
        cmocka_unit_test(test_stream_keeps_segments_of_samples_apart),
        cmocka_unit_test(test_stream_reports_an_error_at_its_step_and_ever_after),
        cmocka_unit_test(test_stream_of_one_epoch_fills_up_its_last_batch),
        cmocka_unit_test(test_stream_fails_if_a_loader_fails_without_a_message),
        cmocka_unit_test(test_stream_names_a_token_outside_the_vocabulary),
        cmocka_unit_test(test_stream_never_reads_past_its_end),
        cmocka_unit_test(test_stream_stops_while_its_thread_waits_or_reads),
        cmocka_unit_test(test_stream_reads_depth_steps_ahead_and_no_more),
        cmocka_unit_test(test_stream_refuses_segments_of_a_loader_that_promised_one),
        cmocka_unit_test(test_stream_refuses_a_batch_that_does_not_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
