/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "plugins/far_test.h"
#include <math.h>
#include <signal.h>

/* The device "far": right programs compute right numbers with every seed, wrong ones are found. */

enum { N = 3000, SEEDS = 20 }; /* N floats: two pages and a part of the third */

/* ---- programs of a copy queue (1) and a compute queue (0) ---- */

typedef enum fault {
    NONE,
    NO_WAIT_FOR_INPUT,   /* compute does not wait for the copy up */
    NO_WAIT_FOR_RESULT,  /* the copy down does not wait for compute */
    NO_WAIT_BEFORE_REUSE /* the next copy up does not wait until compute has read */
} fault;

/* Three rounds of y = x + x with x copied up into one buffer; the number of wrong results, or the
 * status of the first call that failed. */
static int rounds(int seed, bool races, fault f, tt_error *err)
{
    dev d = dev_open(seed, races);
    float *x = dev_alloc(&d, N), *y = dev_alloc(&d, N);
    float *up[3], *down[3];
    tt_status s = TT_OK;
    int wrong = 0;
    for (int r = 0; r < 3; r++) {
        up[r] = dev_pinned(&d, N);
        down[r] = dev_pinned(&d, N);
        for (int i = 0; i < N; i++)
            up[r][i] = (float)(1000 * r + i);
    }
#define STEP(call) s = s == TT_OK ? (call) : s
    for (int r = 0; r < 3; r++) {
        if (f != NO_WAIT_BEFORE_REUSE)
            STEP(dvt->wait(d.self, d.q[1], d.e[1], err));
        STEP(dev_copy(&d, 1, x, up[r], N, err));
        STEP(dvt->record(d.self, d.e[0], d.q[1], err));
        if (f != NO_WAIT_FOR_INPUT)
            STEP(dvt->wait(d.self, d.q[0], d.e[0], err));
        STEP(dvt->wait(d.self, d.q[0], d.e[2], err)); /* y was copied down */
        STEP(dev_add(&d, 0, y, x, x, N, err));
        STEP(dvt->record(d.self, d.e[1], d.q[0], err));
        if (f != NO_WAIT_FOR_RESULT)
            STEP(dvt->wait(d.self, d.q[2], d.e[1], err));
        STEP(dev_copy(&d, 2, down[r], y, N, err));
        STEP(dvt->record(d.self, d.e[2], d.q[2], err));
    }
    for (int q = 0; q < 3; q++) /* by the last queue first, as work is late */
        STEP(dev_sync(&d, 2 - q, err));
#undef STEP
    for (int r = 0; s == TT_OK && r < 3; r++)
        for (int i = 0; i < N; i++)
            wrong += down[r][i] != 2 * (float)(1000 * r + i);
    for (int i = 0; i < 3; i++)
        dvt->queue_free(d.self, d.q[i]);
    for (int i = 0; i < 3; i++)
        dvt->free_pinned(d.self, up[i]), dvt->free_pinned(d.self, down[i]);
    dvt->free(d.self, x);
    dvt->free(d.self, y);
    for (int i = 0; i < 4; i++)
        dvt->event_free(d.self, d.e[i]);
    far_vt->close(d.self);
    return s == TT_OK ? wrong : (int)s;
}

static void test_right_program_is_right_with_every_seed(void **state)
{
    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++)
        for (int races = 0; races < 2; races++) {
            tt_error err = {0};
            const int wrong = rounds(seed, races, NONE, &err);
            if (wrong)
                fail_msg("seed %d: %d: %s", seed, wrong, err.text);
        }
}

static void test_each_missing_wait_gives_wrong_numbers_with_some_seed(void **state)
{
    (void)state;
    for (int f = NO_WAIT_FOR_INPUT; f <= NO_WAIT_BEFORE_REUSE; f++) {
        int found = 0;
        for (int seed = 1; seed <= SEEDS; seed++) {
            tt_error err = {0};
            found += rounds(seed, false, (fault)f, &err) > 0;
        }
        if (!found)
            fail_msg("fault %d was never found", f);
    }
}

static void test_each_missing_wait_is_a_race_with_every_seed(void **state)
{
    (void)state;
    for (int f = NO_WAIT_FOR_INPUT; f <= NO_WAIT_BEFORE_REUSE; f++)
        for (int seed = 1; seed <= SEEDS; seed++) {
            tt_error err = {0};
            if (rounds(seed, true, (fault)f, &err) != TT_EINVAL || !strstr(err.text, "a race"))
                fail_msg("fault %d, seed %d: %s", f, seed, err.text);
        }
}

/* ---- the host's faults ---- */

static dev D;
static float *X, *P; /* device, pinned: N floats */

static void host_open(int seed)
{
    D = dev_open(seed, true);
    X = dev_alloc(&D, N);
    P = dev_pinned(&D, N);
    for (int i = 0; i < N; i++)
        P[i] = (float)i;
}

static void host_close(void)
{
    OK(dev_sync(&D, 0, E));
    dvt->free(D.self, X);
    dvt->free_pinned(D.self, P);
    dev_close(&D);
}

static volatile float sink;
static void read_device(void)
{
    sink = X[1];
}
static void write_device(void)
{
    X[N - 1] = 1;
}
static void read_pinned(void)
{
    sink = P[0];
}
static void write_pinned(void)
{
    P[N - 1] = 1;
}

static void test_host_cannot_touch_device_memory(void **state)
{
    (void)state;
    host_open(1);
    assert_int_equal(dies_by(read_device), SIGSEGV);
    assert_int_equal(dies_by(write_device), SIGSEGV);
    host_close();
}

static void test_host_cannot_touch_pinned_memory_of_a_pending_copy(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 4; seed++) { /* also where the copy has run already */
        host_open(seed);
        assert_int_equal(dies_by(read_pinned), 0);
        OK(dev_copy(&D, 0, X, P, N, E));
        assert_int_equal(dies_by(write_pinned), SIGSEGV);
        OK(dev_sync(&D, 0, E));
        P[0] = P[N - 1] = 7;
        OK(dev_copy(&D, 0, P, X, N, E));
        assert_int_equal(dies_by(read_pinned), SIGSEGV);
        OK(dvt->record(D.self, D.e[0], D.q[0], E));
        while (!dvt->done(D.self, D.e[0]))
            ;
        assert_true(P[0] == 0.0f && P[N - 1] == (float)(N - 1));
        host_close();
    }
}

/* Of less than a page: numbers tell. */
static void test_early_touch_of_a_few_pinned_bytes_gives_wrong_numbers(void **state)
{
    (void)state;
    int early_read = 0, early_write = 0;
    for (int seed = 1; seed <= SEEDS; seed++) {
        host_open(seed);
        OK(dev_copy(&D, 0, X, P + 8, 4, E));
        P[9] = -1; /* before the copy ran */
        OK(dev_copy(&D, 0, P + 16, X, 4, E));
        early_read += P[17] != 9.0f;
        OK(dev_sync(&D, 0, E));
        early_write += P[17] != 9.0f;
        host_close();
    }
    assert_true(early_read > SEEDS / 2);
    assert_true(early_write > SEEDS / 2);
}

static void test_addresses_are_checked(void **state)
{
    (void)state;
    float host[4] = {0};
    char name[32];
    host_open(1);
    snprintf(name, sizeof name, "%p", (void *)host);
    FAILS(dev_copy(&D, 0, X, host, 4, E), TT_EINVAL, name);
    FAILS(dev_copy(&D, 0, host, X, 4, E), TT_EINVAL, "ordinary memory");
    FAILS(dev_copy(&D, 0, X + N - 3, P, 4, E), TT_EINVAL, "leave their allocation");
    FAILS(dev_copy(&D, 0, X - 1, P, 4, E), TT_EINVAL, "leave their allocation");
    FAILS(dev_copy(&D, 0, P, P + 3, 4, E), TT_EINVAL, "overlap");
    FAILS(dvt->copy(D.self, NULL, X, P, 4, E), TT_EINVAL, "without a queue");
    FAILS(dvt->fill(D.self, D.q[0], P, 0, 8, E), TT_EINVAL, "pinned memory, not device memory");
    FAILS(dvt->fill(D.self, D.q[0], (char *)X + 2, 0, 8, E), TT_EINVAL, "multiple of 4");
    FAILS(dev_add(&D, 0, X, P, X + 64, 64, E), TT_EINVAL, "add, operand 0");
    FAILS(dev_add(&D, 0, X, X + 128, X + N - 60, 64, E), TT_EINVAL, "add, operand 1");
    FAILS(dev_add(&D, 0, X, X + 32, X + 64, 60, E), TT_EINVAL, "in the memory of input 0");
    FAILS(dev_add(&D, 0, X + 1, X + 256, X + 512, 60, E), TT_EINVAL, "not aligned");
    OK(dvt->copy(D.self, D.q[0], NULL, NULL, 0, E));
    host_close();
}

static void test_memory_of_another_rank_is_refused(void **state)
{
    (void)state;
    host_open(1);
    dev other = dev_open_rank(1, true, 1, 2); /* this thread has entered it now */
    const tt_tensor in[2] = {dev_tensor(X, TT_F32, 4), dev_tensor(X + 64, TT_F32, 4)};
    tt_tensor out = dev_tensor(X + 128, TT_F32, 4);
    FAILS(dev_copy(&other, 0, X, P, 4, E), TT_EINVAL, "memory of rank 0, used by rank 1");
    FAILS(dvt->fill(other.self, other.q[0], X, 0, 8, E), TT_EINVAL, "memory of rank 0");
    FAILS(dev_call(&other, 0, "add", in, 2, &out, NULL, E), TT_EINVAL, "memory of rank 0");
    FAILS(dev_copy(&D, 0, X, P, 4, E), TT_EINVAL, "did not enter the device of rank 0");
    FAILS(dvt->record(other.self, other.e[0], D.q[0], E), TT_EINVAL, "a queue of rank 0");
    dev_close(&other);
    OK(dvt->enter(D.self, E));
    host_close();
}

static void free_pending(void)
{
    OK(dev_add(&D, 0, X, X + 64, X + 128, 64, E));
    dvt->free(D.self, X);
}
static void free_inside(void)
{
    dvt->free(D.self, X + 64);
}
static void free_as_pinned(void)
{
    dvt->free_pinned(D.self, X);
}

static void test_faults_of_free_are_found(void **state)
{
    (void)state;
    host_open(3);
    assert_int_equal(dies_by(free_pending), SIGABRT);
    assert_int_equal(dies_by(free_inside), SIGABRT);
    assert_int_equal(dies_by(free_as_pinned), SIGABRT);
    float *gone = dev_alloc(&D, 8);
    dvt->free(D.self, gone);
    FAILS(dev_copy(&D, 0, gone, P, 4, E), TT_EINVAL, "or it was freed");
    host_close();
}

static void test_memory_is_counted(void **state)
{
    (void)state;
    uint64_t before = 0, after = 0, total = 0;
    void *p = NULL;
    host_open(1);
    OK(dvt->memory(D.self, &before, &total, E));
    assert_true(total == (uint64_t)64 << 20 && before == total - N * sizeof(float));
    FAILS(dvt->alloc(D.self, (size_t)before + 1, &p, E), TT_ENOMEM, "are free");
    OK(dvt->alloc(D.self, 1000, &p, E));
    assert_true((uintptr_t)p % dvt->alignment == 0);
    OK(dvt->memory(D.self, &after, &total, E));
    assert_true(before - after == 1000);
    dvt->free(D.self, p);
    host_close();
}

/* ---- events and late errors ---- */

static void test_a_wait_refers_to_the_record_before_it(void **state)
{
    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++) {
        host_open(seed);
        OK(dvt->wait(D.self, D.q[0], D.e[0], E)); /* never recorded */
        OK(dvt->sync(D.self, D.e[0], E));
        assert_true(dvt->done(D.self, D.e[0]));
        OK(dev_copy(&D, 1, X, P, 64, E));
        OK(dvt->record(D.self, D.e[0], D.q[1], E));
        OK(dvt->wait(D.self, D.q[0], D.e[0], E));
        OK(dev_add(&D, 0, X + 128, X, X, 64, E));
        OK(dvt->record(D.self, D.e[0], D.q[0], E)); /* the event is now another one */
        OK(dvt->wait(D.self, D.q[2], D.e[0], E));
        OK(dev_copy(&D, 2, P + 1024, X + 128, 64, E));
        OK(dvt->record(D.self, D.e[1], D.q[2], E));
        FAILS(dvt->seconds(D.self, D.e[0], D.e[1], &(double){0}, E), TT_EBUSY, "did not wait");
        OK(dvt->sync(D.self, D.e[1], E));
        for (int i = 0; i < 64; i++)
            assert_true(P[1024 + i] == 2 * (float)i);
        double t = 0;
        OK(dvt->seconds(D.self, D.e[0], D.e[1], &t, E));
        assert_true(t > 0);
        host_close();
    }
}

static void test_late_error_is_reported_by_sync(void **state)
{
    (void)state;
    host_open(1);
    const tt_tensor x = dev_tensor(X, TT_F32, 8), in[4] = {x, x, x, x};
    tt_tensor out = dev_tensor(X + 64, TT_F32, 8);
    OK(dev_call(&D, 0, "add", in, 4, &out, NULL, E)); /* too many operands */
    OK(dvt->record(D.self, D.e[0], D.q[0], E));
    FAILS(dvt->sync(D.self, D.e[0], E), TT_EUNSUPPORTED, "rank 0: add on queue 0");
    assert_true(dvt->done(D.self, D.e[0]));
    FAILS(dev_sync(&D, 1, E), TT_EUNSUPPORTED, "add");
    dvt->free(D.self, X);
    dvt->free_pinned(D.self, P);
    dev_close(&D);
}

/* Two inputs of 8 do not fit into an output of 8, which ends where its memory ends. */
static void test_kernel_that_writes_outside_is_found(void **state)
{
    (void)state;
    host_open(1);
    const tt_tensor in[2] = {dev_tensor(X, TT_F32, 8), dev_tensor(X + 16, TT_F32, 8)};
    const tt_attrs_concat a = {.dim = 0};
    tt_tensor out = dev_tensor(X + N - 8, TT_F32, 8);
    OK(dev_copy(&D, 0, X, P, 32, E));
    OK(dev_call(&D, 0, "concat", in, 2, &out, &a, E));
    FAILS(dev_sync(&D, 0, E), TT_EINTERNAL, "wrote outside the allocation");
    dvt->free(D.self, X);
    dvt->free_pinned(D.self, P);
    dev_close(&D);
}

static void test_the_target_answers_without_a_device(void **state)
{
    (void)state;
    const far_config config = {.seed = 1};
    void *t = NULL;
    FAILS(far_vt->target(&config, "h200", &t, E), TT_ENOTFOUND, "h200");
    OK(far_vt->target(&config, "far", &t, E));
    assert_non_null(far_vt->kernel(t, "attention"));
    assert_null(far_vt->kernel(t, "no such op"));
    FAILS(dvt->enter(t, E), TT_EINVAL, "no device");
    far_vt->close(t);
}

/* ---- fill and the three ops of device.h ---- */

static void test_fill_repeats_its_pattern(void **state)
{
    (void)state;
    unsigned char bytes[7];
    host_open(2);
    OK(dvt->fill(D.self, D.q[0], X, 0x04030201u, 7, E));
    OK(dvt->copy(D.self, D.q[0], P, X, 7, E));
    OK(dev_sync(&D, 0, E));
    memcpy(bytes, P, 7);
    for (int i = 0; i < 7; i++)
        assert_int_equal(bytes[i], i % 4 + 1);
    host_close();
}

static void test_copy_box_copies_a_box(void **state)
{
    (void)state;
    const tt_attrs_copy_box box = {
        .n_dims = 3,
        .size = {2,   3,  5},
        .from = 7,
        .from_stride = {100, 10, 1},
        .to = 11,
        .to_stride = {40,  6,  1}
    };
    tt_attrs_copy_box far_away = box;
    far_away.to = N - 50;
    host_open(2);
    float *y = dev_alloc(&D, N);
    const tt_tensor in = dev_tensor(X, TT_F32, N);
    tt_tensor out = dev_tensor(y, TT_F32, N);
    OK(dev_copy(&D, 0, X, P, N, E));
    OK(dvt->fill(D.self, D.q[0], y, 0, N * sizeof(float), E));
    OK(dev_call(&D, 0, TT_OP_COPY_BOX, &in, 1, &out, &box, E));
    FAILS(dev_call(&D, 0, TT_OP_COPY_BOX, &in, 1, &out, &far_away, E), TT_EINVAL, "copy_box of");
    OK(dev_copy(&D, 0, P, y, N, E));
    OK(dev_sync(&D, 0, E));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 5; k++) {
                float *at = &P[11 + 40 * i + 6 * j + k];
                assert_true(*at == (float)(7 + 100 * i + 10 * j + k));
                *at = 0;
            }
    for (int i = 0; i < N; i++)
        assert_true(P[i] == 0.0f);
    dvt->free(D.self, y);
    host_close();
}

static void test_reduce_members_adds_in_order(void **state)
{
    (void)state;
    enum { MEMBERS = 20 }; /* more than TT_MAX_INS */
    const tt_attrs_reduce_members sum = {.op = TT_SUM};
    float expected[64];
    tt_tensor in[MEMBERS], out;
    host_open(2);
    for (int i = 0; i < 64 * MEMBERS; i++)
        P[i] = 1.0f / (float)(i + 1);
    for (int i = 0; i < 64; i++) {
        expected[i] = P[i];
        for (int m = 1; m < MEMBERS; m++)
            expected[i] += P[64 * m + i];
    }
    for (int m = 0; m < MEMBERS; m++)
        in[m] = dev_tensor(X + 64 * m, TT_F32, 64);
    out = in[1];
    OK(dev_copy(&D, 0, X, P, 64 * MEMBERS, E));
    OK(dev_call(&D, 0, TT_OP_REDUCE_MEMBERS, in, MEMBERS, &out, &sum, E));
    out = in[2];
    FAILS(dev_call(&D, 0, TT_OP_REDUCE_MEMBERS, in, MEMBERS, &out, &sum, E), TT_EINVAL, "input 2");
    OK(dev_copy(&D, 0, P, X + 64, 64, E));
    OK(dev_sync(&D, 0, E));
    assert_memory_equal(P, expected, sizeof expected);
    host_close();
}

static int64_t find_bad(tt_dtype t, int64_t n, int what, uint32_t pattern)
{
    const tt_attrs_find_bad a = {.what = what, .pattern = pattern};
    const tt_tensor in = dev_tensor(X, t, n);
    int64_t found = 0;
    tt_tensor out = {.data = X + 1024, .dtype = TT_I64};
    OK(dev_copy(&D, 0, X, P, 1024, E));
    OK(dev_call(&D, 0, TT_OP_FIND_BAD, &in, 1, &out, &a, E));
    OK(dev_copy(&D, 0, P + 2000, X + 1024, 2, E));
    OK(dev_sync(&D, 0, E));
    memcpy(&found, P + 2000, sizeof found);
    return found;
}

static void test_find_bad_finds_the_first(void **state)
{
    (void)state;
    host_open(2);
    assert_int_equal(find_bad(TT_F32, 500, TT_FIND_NOT_FINITE, 0), -1);
    P[300] = -(float)INFINITY;
    P[400] = (float)NAN;
    assert_int_equal(find_bad(TT_F32, 500, TT_FIND_NOT_FINITE, 0), 300);
    assert_int_equal(find_bad(TT_F32, 500, TT_FIND_NOT_FINITE_NOR_MINUS_INF, 0), 400);
    assert_int_equal(find_bad(TT_F32, 400, TT_FIND_NOT_FINITE_NOR_MINUS_INF, 0), -1);
    assert_int_equal(find_bad(TT_F32, 0, TT_FIND_NOT_FINITE, 0), -1);
    assert_int_equal(find_bad(TT_BF16, 800, TT_FIND_NOT_FINITE, 0), 601);
    assert_int_equal(find_bad(TT_BF16, 1000, TT_FIND_NOT_FINITE_NOR_MINUS_INF, 0), 801);
    memset(P, 0, 4096);
    for (int i = 0; i < 99; i++)
        ((unsigned char *)P)[i] = (unsigned char)(i % 4 + 1);
    assert_int_equal(find_bad(TT_U8, 99, TT_FIND_NOT_PATTERN, 0x04030201u), -1);
    assert_int_equal(find_bad(TT_U8, 120, TT_FIND_NOT_PATTERN, 0x04030201u), 99);
    FAILS(dev_call(&D, 0, TT_OP_FIND_BAD, &(tt_tensor){.data = X, .dtype = TT_I32}, 1,
                   &(tt_tensor){.data = X + 64, .dtype = TT_I64}, &(tt_attrs_find_bad){0}, E),
          TT_EINVAL, "find_bad");
    host_close();
}

/* ---- graphs ---- */

static void test_a_graph_runs_again(void **state)
{
    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++) {
        tt_device_graph *g = NULL;
        host_open(seed);
        float *y = dev_alloc(&D, N), *z = dev_alloc(&D, N);
        OK(dvt->fill(D.self, D.q[0], z, 0, N * sizeof(float), E));
        OK(dev_copy(&D, 0, X, P, N, E));
        OK(dev_sync(&D, 0, E));
        OK(dvt->capture_begin(D.self, D.q[0], E));
        OK(dev_add(&D, 0, y, X, X, N, E));
        OK(dvt->record(D.self, D.e[0], D.q[0], E));
        OK(dvt->wait(D.self, D.q[1], D.e[0], E));
        OK(dev_add(&D, 1, X, y, z, N, E)); /* on a queue that joined; z is zeros */
        OK(dvt->record(D.self, D.e[1], D.q[1], E));
        FAILS(dvt->sync(D.self, D.e[1], E), TT_EINVAL, "in a graph");
        OK(dvt->wait(D.self, D.q[0], D.e[1], E));
        OK(dvt->capture_end(D.self, D.q[0], &g, E));
        FAILS(dvt->sync(D.self, D.e[1], E), TT_EINVAL, "in a graph");
        for (int i = 0; i < 3; i++)
            OK(dvt->launch(D.self, g, D.q[2], E));
        OK(dev_copy(&D, 2, P, X, N, E));
        OK(dev_sync(&D, 2, E));
        for (int i = 0; i < N; i++)
            assert_true(P[i] == 8 * (float)i);
        OK(dvt->launch(D.self, g, D.q[2], E));
        FAILS(dev_copy(&D, 0, P, X, N, E), TT_EINVAL, "a race"); /* not ordered after the launch */
        OK(dev_sync(&D, 2, E));
        dvt->graph_free(D.self, g);
        dvt->free(D.self, y);
        dvt->free(D.self, z);
        host_close();
    }
}

static void test_faults_of_captures_are_found(void **state)
{
    (void)state;
    tt_device_graph *g = NULL;
    host_open(1);
    OK(dvt->record(D.self, D.e[2], D.q[2], E));
    FAILS(dvt->capture_end(D.self, D.q[0], &g, E), TT_EINVAL, "no capture began");
    OK(dvt->capture_begin(D.self, D.q[0], E));
    FAILS(dvt->capture_begin(D.self, D.q[0], E), TT_EBUSY, "being captured");
    FAILS(dvt->wait(D.self, D.q[0], D.e[2], E), TT_EINVAL, "recorded before");
    OK(dvt->record(D.self, D.e[0], D.q[0], E));
    OK(dvt->wait(D.self, D.q[1], D.e[0], E));
    OK(dvt->fill(D.self, D.q[1], X, 0, 64, E));
    FAILS(dvt->capture_end(D.self, D.q[0], &g, E), TT_EINVAL, "\"fill\" on a queue that joined");
    OK(dvt->fill(D.self, D.q[1], X, 0, 64, E)); /* the queues are free again */
    OK(dev_sync(&D, 1, E));
    host_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_program_is_right_with_every_seed),
        cmocka_unit_test(test_each_missing_wait_gives_wrong_numbers_with_some_seed),
        cmocka_unit_test(test_each_missing_wait_is_a_race_with_every_seed),
        cmocka_unit_test(test_host_cannot_touch_device_memory),
        cmocka_unit_test(test_host_cannot_touch_pinned_memory_of_a_pending_copy),
        cmocka_unit_test(test_early_touch_of_a_few_pinned_bytes_gives_wrong_numbers),
        cmocka_unit_test(test_addresses_are_checked),
        cmocka_unit_test(test_memory_of_another_rank_is_refused),
        cmocka_unit_test(test_faults_of_free_are_found),
        cmocka_unit_test(test_memory_is_counted),
        cmocka_unit_test(test_a_wait_refers_to_the_record_before_it),
        cmocka_unit_test(test_late_error_is_reported_by_sync),
        cmocka_unit_test(test_kernel_that_writes_outside_is_found),
        cmocka_unit_test(test_the_target_answers_without_a_device),
        cmocka_unit_test(test_fill_repeats_its_pattern),
        cmocka_unit_test(test_copy_box_copies_a_box),
        cmocka_unit_test(test_reduce_members_adds_in_order),
        cmocka_unit_test(test_find_bad_finds_the_first),
        cmocka_unit_test(test_a_graph_runs_again),
        cmocka_unit_test(test_faults_of_captures_are_found),
    };
    return cmocka_run_group_tests(tests, far_test_load, NULL);
}
