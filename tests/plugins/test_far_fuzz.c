/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "plugins/far_test.h"
#include "random_test.h"

/* Random programs of copies, fills and kernels on three queues, ordered by the events that they
 * need, compared with an interpreter that does each piece at once. Then the same with one wait left
 * out. */

enum { BUFFERS = 6, PINNED = 3, ALL = BUFFERS + PINNED, SIZE = 96, OPS = 60, QUEUES = 3 };

typedef struct
    uses { /* what touched a buffer since its last writer, for each queue: an op, or -1 */
    int writer[QUEUES], reader[QUEUES];
} uses;

typedef struct machine {
    dev d;
    float *far[ALL];      /* device buffers, then pinned ones */
    float now[ALL][SIZE]; /* the interpreter's */
    uses touched[ALL];
    tt_device_event *after[OPS];
    int n_waits, left_out; /* how many waits so far, and which one is left out; -1: none */
    test_rng rng;
} machine;

static tt_status wait_for(machine *m, int queue, const int *ops, tt_error *err)
{
    for (int q = 0; q < QUEUES; q++)
        if (q != queue && ops[q] >= 0 && m->n_waits++ != m->left_out)
            TT_TRY(dvt->wait(m->d.self, m->d.q[queue], m->after[ops[q]], err));
    return TT_OK;
}

/* Waits for what the op must come after, for one operand; notes the op. */
static tt_status order(machine *m, int queue, int buffer, bool write, tt_error *err)
{
    uses *a = &m->touched[buffer];
    TT_TRY(wait_for(m, queue, a->writer, err));
    if (write)
        TT_TRY(wait_for(m, queue, a->reader, err));
    return TT_OK;
}

static void touch(machine *m, int queue, int buffer, bool write, int op)
{
    uses *a = &m->touched[buffer];
    if (write)
        for (int q = 0; q < QUEUES; q++)
            a->writer[q] = a->reader[q] = -1;
    (write ? a->writer : a->reader)[queue] = op;
}

static tt_status add_op(machine *m, int op, tt_error *err)
{
    const int queue = random_int(&m->rng, 0, QUEUES - 1), kind = random_int(&m->rng, 0, 3);
    const int n = random_int(&m->rng, 1, SIZE), top = kind == 0 ? ALL - 1 : BUFFERS - 1;
    const int to = random_int(&m->rng, 0, top);
    int from = random_int(&m->rng, 0, top - 1), other = random_int(&m->rng, 0, top - 1);
    from += from >= to; /* not the output */
    other += other >= to;
    TT_TRY(order(m, queue, to, true, err));
    if (kind != 2)
        TT_TRY(order(m, queue, from, false, err));
    if (kind == 1)
        TT_TRY(order(m, queue, other, false, err));
    if (kind == 0) {
        TT_TRY(dev_copy(&m->d, queue, m->far[to], m->far[from], n, err));
        memcpy(m->now[to], m->now[from], (size_t)n * sizeof(float));
    } else if (kind == 1) {
        TT_TRY(dev_add(&m->d, queue, m->far[to], m->far[from], m->far[other], n, err));
        for (int i = 0; i < n; i++)
            m->now[to][i] = m->now[from][i] + m->now[other][i];
    } else if (kind == 2) {
        const float x = (float)op;
        uint32_t pattern;
        memcpy(&pattern, &x, sizeof x);
        TT_TRY(dvt->fill(m->d.self, m->d.q[queue], m->far[to], pattern, (size_t)n * sizeof x, err));
        for (int i = 0; i < n; i++)
            m->now[to][i] = x;
    } else {
        const tt_tensor in = dev_tensor(m->far[from], TT_F32, n);
        tt_tensor out = dev_tensor(m->far[to], TT_F32, n);
        const tt_attrs_copy_box box = {
            .n_dims = 1, .size = {n / 2}, .from = n - n / 2, .from_stride = {1}, .to_stride = {1}};
        TT_TRY(dev_call(&m->d, queue, TT_OP_COPY_BOX, &in, 1, &out, &box, err));
        memcpy(m->now[to], m->now[from] + n - n / 2, (size_t)(n / 2) * sizeof(float));
    }
    touch(m, queue, to, true, op);
    if (kind != 2)
        touch(m, queue, from, false, op);
    if (kind == 1)
        touch(m, queue, other, false, op);
    return dvt->record(m->d.self, m->after[op], m->d.q[queue], err);
}

/* The host awaits all, compares the pinned buffers and writes them. Returns how many numbers differ. */
static tt_status look(machine *m, int op, int *wrong, tt_error *err)
{
    for (int q = 0; q < QUEUES; q++) /* in another order each time */
        TT_TRY(dev_sync(&m->d, (q + op) % QUEUES, err));
    for (int b = BUFFERS; b < ALL; b++)
        for (int i = 0; i < SIZE; i++) {
            *wrong += memcmp(&m->far[b][i], &m->now[b][i], sizeof(float)) != 0;
            m->far[b][i] = m->now[b][i] = (float)random_int(&m->rng, -99, 99);
        }
    for (int b = 0; b < ALL; b++)
        for (int q = 0; q < QUEUES; q++)
            m->touched[b].writer[q] = m->touched[b].reader[q] = -1;
    return TT_OK;
}

static tt_status program(machine *m, int *wrong, tt_error *err)
{
    TT_TRY(look(m, 0, &(int){0}, err)); /* gives the pinned buffers their first numbers */
    for (int b = 0; b < BUFFERS; b++) {
        TT_TRY(dev_copy(&m->d, 0, m->far[b], m->far[BUFFERS + b % PINNED], SIZE, err));
        memcpy(m->now[b], m->now[BUFFERS + b % PINNED], sizeof m->now[b]);
    }
    TT_TRY(look(m, 0, wrong, err));
    for (int op = 0; op < OPS; op++) {
        TT_TRY(add_op(m, op, err));
        if (random_int(&m->rng, 0, 14) == 0)
            TT_TRY(look(m, op, wrong, err));
    }
    for (int b = 0; b < BUFFERS; b += PINNED) { /* all device buffers, a few at a time */
        TT_TRY(look(m, b, wrong, err));
        for (int i = 0; i < PINNED; i++) {
            TT_TRY(dev_copy(&m->d, i, m->far[BUFFERS + i], m->far[b + i], SIZE, err));
            memcpy(m->now[BUFFERS + i], m->now[b + i], sizeof m->now[i]);
        }
    }
    return look(m, 0, wrong, err);
}

/* The number of wrong results; *n_waits: how many waits the program has. */
static int run(int shape, int seed, bool races, int left_out, int *n_waits, tt_status *s,
               tt_error *err)
{
    static machine m;
    int wrong = 0;
    memset(&m, 0, sizeof m);
    m.d = dev_open(seed, races);
    m.left_out = left_out;
    m.rng.key = tt_rng_key_make((uint64_t)shape, "far", 0);
    for (int b = 0; b < ALL; b++)
        m.far[b] = b < BUFFERS ? dev_alloc(&m.d, SIZE) : dev_pinned(&m.d, SIZE);
    for (int i = 0; i < OPS; i++)
        OK(dvt->event_new(m.d.self, 0, &m.after[i], E));
    *s = program(&m, &wrong, err);
    *n_waits = m.n_waits;
    for (int i = 0; i < QUEUES; i++)
        dvt->queue_free(m.d.self, m.d.q[i]);
    for (int b = 0; b < ALL; b++)
        (b < BUFFERS ? dvt->free : dvt->free_pinned)(m.d.self, m.far[b]);
    for (int i = 0; i < OPS; i++)
        dvt->event_free(m.d.self, m.after[i]);
    for (int i = 0; i < 4; i++)
        dvt->event_free(m.d.self, m.d.e[i]);
    far_vt->close(m.d.self);
    return wrong;
}

static void test_random_programs_equal_the_interpreter(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 200; seed++) {
        int n_waits = 0;
        tt_status s;
        tt_error err = {0};
        const int wrong = run(seed, seed, seed % 3 != 0, -1, &n_waits, &s, &err);
        if (s != TT_OK || wrong)
            fail_msg("seed %d: %d wrong: %s", seed, wrong, err.text);
        assert_true(n_waits > 10);
    }
}

/* A wait may be left out without harm where another one orders the same work. But where numbers are
 * wrong, the race is refused too, with every seed. */
static void test_wrong_numbers_without_a_wait_are_a_race_too(void **state)
{
    (void)state;
    int n_wrong = 0, n_races = 0, n_tried = 0;
    for (int shape = 1; shape <= 40; shape++) {
        int n_waits = 0;
        tt_status s;
        tt_error err = {0};
        run(shape, 1, false, -1, &n_waits, &s, &err);
        for (int left_out = shape % 7; left_out < n_waits; left_out += 7) {
            int unused = 0, wrong = 0;
            for (int seed = 4; seed < 12; seed++)
                wrong += run(shape, seed, false, left_out, &unused, &s, &err) > 0;
            run(shape, shape, true, left_out, &unused, &s, &err);
            const bool race = s == TT_EINVAL && strstr(err.text, "a race");
            if (wrong && !race)
                fail_msg("program %d without wait %d: wrong numbers and no race", shape, left_out);
            n_wrong += wrong > 0;
            n_races += race;
            n_tried++;
        }
    }
    print_message("of %d waits left out, %d are races and %d give wrong numbers with 8 seeds\n",
                  n_tried, n_races, n_wrong);
    assert_true(n_races > n_tried / 4 && n_wrong > n_races / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs_equal_the_interpreter),
        cmocka_unit_test(test_wrong_numbers_without_a_wait_are_a_race_too),
    };
    return cmocka_run_group_tests(tests, far_test_load, NULL);
}
