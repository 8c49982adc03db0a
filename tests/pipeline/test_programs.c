/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline_test.h"

/* Programs of a pipeline: no rank waits forever, whatever durations they were planned with, and
 * slots are reused only after their last reader. Mutations of either are found. */

static void finishes(const tt_programs *p, int n_values, int n_buffers, const char *what)
{
    tt_arena *a = tt_arena_new();
    tt_messages w;
    tt_error err = {0};
    tt_programs_messages(p, n_values, a, &w);
    if (tt_messages_run(&w, n_buffers, &err) != TT_OK)
        fail_msg("%s %s (p %d, m %d), %d values, %d buffers: %s", what, p->schedule->name,
                 p->schedule->n_ranks, p->schedule->n_micro, n_values, n_buffers, err.text);
    tt_arena_free(a);
}

static bool stuck(const tt_programs *p, int n_buffers)
{
    tt_arena *a = tt_arena_new();
    tt_messages w;
    tt_programs_messages(p, 1, a, &w);
    const bool bad = tt_messages_run(&w, n_buffers, NULL) != TT_OK;
    tt_arena_free(a);
    return bad;
}

/* P1 if every send and receive blocks until both sides have arrived; and the executor's programs
 * with as many buffers as they were made for. */
static void never_deadlocks(const tt_schedule *s, const tt_costs *c)
{
    tt_arena *a = tt_arena_new();
    finishes(programs_of(s, c, true, 2, a), 1, 0, "posted");
    finishes(programs_of(s, c, true, 2, a), 3, 0, "posted");
    for (int n = 0; n <= 3; n++)
        finishes(programs_of(s, c, false, n, a), 1, n, "blocking");
    finishes(programs_of(s, c, false, 1, a), 2, 2, "blocking");
    finishes(programs_of(s, c, false, 0, a), 4, 0, "blocking");
    tt_arena_free(a);
}

static void test_published_never_deadlock(void **state)
{
    const int most_p = is_long() ? 16 : 6, most_m = is_long() ? 32 : 9;
    uint64_t x = 7;
    (void)state;
    for (size_t k = 0; k < TT_COUNT(all_schedules); k++)
        for (int p = 1; p <= most_p; p++)
            for (int m = 1; m <= most_m; m++) {
                tt_arena *a = tt_arena_new();
                tt_schedule *s = make(a, all_schedules[k].name, p, all_schedules[k].chunks, m);
                const tt_costs unit = {0};
                if (s) {
                    const tt_costs other = {random_costs(&x, s->n_stages, a), below(&x, 4)};
                    never_deadlocks(s, m % 2 ? &unit : &other);
                }
                tt_arena_free(a);
            }
}

static void test_random_never_deadlock(void **state)
{
    const int n = is_long() ? 10000 : 1000;
    uint64_t x = 1;
    (void)state;
    for (int i = 0; i < n; i++) {
        tt_arena *a = tt_arena_new();
        const tt_schedule *s = random_schedule(&x, a);
        const tt_costs c = {random_costs(&x, s->n_stages, a), below(&x, 5)};
        never_deadlocks(s, &c);
        tt_arena_free(a);
    }
}

/* The obvious rule, a receive right before its reader, deadlocks if nothing is buffered: this shows
 * that the check can fail. */
static tt_programs *late(tt_programs *p)
{
    for (int r = 0; r < p->schedule->n_ranks; r++)
        for (int i = p->n_items[r] - 2; i >= 0; i--)
            for (int k = i; k + 1 < p->n_items[r]; k++) {
                tt_item *x = &p->items[r][k], *y = x + 1, was = *x;
                const bool reads =
                    y->kind == TT_ITEM_RUN && y->action.micro == x->action.micro &&
                    ((x->action.kind == TT_ACTION_F && y->action.kind == TT_ACTION_F &&
                      y->action.stage == x->action.stage + 1) ||
                     (x->action.kind == TT_ACTION_I &&
                      (y->action.kind == TT_ACTION_B || y->action.kind == TT_ACTION_I) &&
                      y->action.stage == x->action.stage - 1));
                if (x->kind != TT_ITEM_RECV || reads)
                    break;
                *x = *y;
                *y = was;
            }
    return p;
}

static void test_obvious_rule_deadlocks(void **state)
{
    tt_arena *a = tt_arena_new();
    const tt_costs unit = {0};
    int bad = 0, all = 0;
    (void)state;
    assert_true(stuck(late(programs_of(make(a, "1F1B", 2, 1, 4), &unit, true, 0, a)), 0));
    for (size_t k = 0; k < TT_COUNT(all_schedules); k++)
        for (int p = 2; p <= 5; p++)
            for (int m = 1; m <= 8; m++) {
                tt_schedule *s = make(a, all_schedules[k].name, p, all_schedules[k].chunks, m);
                if (!s)
                    continue;
                bad += stuck(late(programs_of(s, &unit, true, 0, a)), 0);
                all++;
            }
    assert_true(bad > all / 2);
    tt_arena_free(a);
}

/* ---- the ranks of whole meshes: collectives of several groups between the messages ---- */

typedef struct begun { /* what a rank has begun in a group, and waits for later */
    int begun, waited;
} begun;

/* Waits for the oldest collective that was not waited for. */
static tt_message wait_for(int group, begun *b)
{
    return (tt_message){TT_MESSAGE_WAIT, group, 0, b->begun - ++b->waited, NULL};
}

/* Some collectives of an action with its data group and its tensor group. Some are begun here and
 * waited for later, in any order of the groups. */
static tt_message *meetings(uint64_t *z, const int group[2], int offset, int64_t tag, begun b[2],
                            tt_message *w)
{
    for (int k = below(z, 4); k > 0; k--) {
        const int g = below(z, 2), kind = below(z, 3);
        begun *x = &b[g];
        if (kind == 0)
            *w++ = (tt_message){TT_MESSAGE_COLLECTIVE, group[g], tag * 8 + k, 0, NULL};
        else
            *w++ = (tt_message){TT_MESSAGE_BEGIN, offset + group[g], tag * 8 + k, 0, NULL};
        x->begun += kind > 0;
        if (kind == 2 && b[!g].waited < b[!g].begun)
            *w++ = wait_for(offset + group[!g], &b[!g]);
    }
    return w;
}

/* A mesh of pp pipeline ranks × dp × tp. Every action takes part in some collectives of its data
 * group and its tensor group, the same on all members, as nodes of a graph do. Ranks with the same
 * pipeline coordinate run the same program; peers differ in the pipeline coordinate only.
 * Collectives that are begun early have their own communicators. */
static void mesh_messages(const tt_programs *p, int dp, int tp, uint64_t seed, tt_arena *a,
                          tt_messages *out)
{
    const int pp = p->schedule->n_ranks, world = pp * dp * tp;
    int *size = tt_arena_array(a, (size_t)(4 * world + 1), sizeof *size);
    *out = (tt_messages){.n_ranks = world, .n_groups = 4 * world + 1, .group_size = size};
    out->traces = tt_arena_array(a, (size_t)world, sizeof *out->traces);
    out->n_parts = tt_arena_array(a, (size_t)world, sizeof *out->n_parts);
    for (int g = 0; g < world; g++) {
        size[g] = size[2 * world + g] = tp;
        size[world + g] = size[3 * world + g] = dp;
    }
    for (int r = 0; r < world; r++) {
        const int c = r / (dp * tp), d = r / tp % dp, t = r % tp;
        const int group[2] = {c * dp + d, world + c * tp + t};
        begun b[2] = {{0}};
        tt_message *first = tt_arena_array(a, (size_t)p->n_items[c] * 12 + 1, sizeof *first),
                   *w = first;
        for (int i = 0; i < p->n_items[c]; i++) {
            const tt_item *x = &p->items[c][i];
            const int64_t tag =
                ((int64_t)x->action.kind * 64 + x->action.stage) * 4096 + x->action.micro;
            if (x->kind == TT_ITEM_WAIT)
                continue;
            if (x->kind != TT_ITEM_RUN) {
                *w++ = (tt_message){x->kind == TT_ITEM_SEND ? TT_MESSAGE_SEND : TT_MESSAGE_RECV,
                                    (x->peer * dp + d) * tp + t, tag, 0, NULL};
                continue;
            }
            uint64_t z = seed + (uint64_t)(x->action.stage * 4 + (int)x->action.kind);
            w = meetings(&z, group, 2 * world, tag, b, w);
        }
        for (int g = 0; g < 2; g++)
            while (b[g].waited < b[g].begun)
                *w++ = wait_for(2 * world + group[g], &b[g]);
        const tt_trace_part all = {first, (int)(w - first), 0};
        out->traces[r] = tt_arena_dup(a, &all, sizeof all);
        out->n_parts[r] = 1;
    }
}

static void test_random_meshes_never_deadlock(void **state)
{
    const int n = is_long() ? 10000 : 1000;
    uint64_t x = 5;
    (void)state;
    for (int i = 0; i < n; i++) {
        tt_arena *a = tt_arena_new();
        const published *k = &all_schedules[below(&x, (int)TT_COUNT(all_schedules))];
        const int p = 1 + below(&x, 4), m = 1 + below(&x, 9), buffers = below(&x, 3);
        const tt_schedule *s = i % 3 ? random_schedule(&x, a) : make(a, k->name, p, k->chunks, m);
        if (s) {
            const tt_costs c = {random_costs(&x, s->n_stages, a), below(&x, 5)};
            tt_messages w;
            tt_error err = {0};
            mesh_messages(programs_of(s, &c, false, buffers, a), 1 + below(&x, 3), 1 + below(&x, 2),
                          next_random(&x), a, &w);
            if (tt_messages_run(&w, buffers, &err) != TT_OK)
                fail_msg("seed %d, %s, %d buffers: %s", i, s->name, buffers, err.text);
        }
        tt_arena_free(a);
    }
}

/* Two members begin in opposite orders, or one does not begin at all. */
static void test_begun_collectives_that_differ_are_found(void **state)
{
    const int size[] = {2};
    tt_message a[] = {
        {TT_MESSAGE_BEGIN, 0, 7, 0, NULL},
        {TT_MESSAGE_BEGIN, 0, 8, 0, NULL},
        {TT_MESSAGE_WAIT,  0, 0, 0, NULL}
    };
    tt_message b[] = {
        {TT_MESSAGE_BEGIN, 0, 7, 0, NULL},
        {TT_MESSAGE_BEGIN, 0, 8, 0, NULL},
        {TT_MESSAGE_WAIT,  0, 0, 1, NULL}
    };
    tt_trace_part sa = {a, 3, 0}, sb = {b, 3, 0}, *traces[] = {&sa, &sb};
    int n[] = {1, 1};
    const tt_messages w = {
        .n_ranks = 2, .n_groups = 1, .group_size = size, .traces = traces, .n_parts = n};
    tt_error err = {0};
    (void)state;
    assert_int_equal(tt_messages_run(&w, 0, &err), TT_OK);
    b[0].tag = 8;
    b[1].tag = 7;
    assert_int_equal(tt_messages_run(&w, 0, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "begin different collectives"));
    b[0].tag = 7;
    b[1].tag = 8;
    sb.n = 1;
    assert_int_equal(tt_messages_run(&w, 0, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "deadlock: rank 0 waits in group 0"));
    sa.n = 2; /* nobody waits for what one has not begun */
    assert_int_equal(tt_messages_run(&w, 0, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "not all members begin"));
    sb.n = 2;
    sb.micro = 1; /* the same, of another micro-batch */
    assert_int_equal(tt_messages_run(&w, 0, &err), TT_EINVAL);
    sb.micro = 0;
    assert_int_equal(tt_messages_run(&w, 0, &err), TT_OK);
}

/* ---- mutations of programs ---- */

static int nth(const tt_programs *p, int rank, tt_item_kind kind, int n)
{
    for (int i = 0; i < p->n_items[rank]; i++)
        if (p->items[rank][i].kind == kind && n-- == 0)
            return i;
    return -1;
}

static void test_lost_and_swapped_messages_are_found(void **state)
{
    uint64_t x = 3;
    int lost = 0, swapped = 0;
    (void)state;
    for (size_t k = 0; k < TT_COUNT(all_schedules); k++)
        for (int n = 0; n < 20; n++) {
            tt_arena *a = tt_arena_new();
            const tt_schedule *s = make(a, all_schedules[k].name, 4, all_schedules[k].chunks, 8);
            const int r = below(&x, 4), buffers = n % 3;
            const tt_item_kind kind = n % 2 ? TT_ITEM_RECV : TT_ITEM_SEND;
            tt_programs *p = programs_of(s, &(tt_costs){0}, false, buffers, a);
            const int i = nth(p, r, kind, below(&x, 5));
            assert_true(i >= 0);
            const tt_item was = p->items[r][i];
            memmove(&p->items[r][i], &p->items[r][i + 1],
                    sizeof was * (size_t)(p->n_items[r] - i - 1));
            p->n_items[r]--;
            assert_true(stuck(p, buffers));
            lost++;
            p = programs_of(s, &(tt_costs){0}, false, buffers, a);
            for (int j = i + 1; j < p->n_items[r]; j++)
                if (p->items[r][j].kind == kind && p->items[r][j].peer == was.peer) {
                    p->items[r][i] = p->items[r][j];
                    p->items[r][j] = was;
                    assert_true(stuck(p, buffers));
                    swapped++;
                    break;
                }
            tt_arena_free(a);
        }
    assert_true(lost > 200 && swapped > 150);
}

/* ---- slots ---- */

static tt_slots *slots_of(const tt_programs *p, tt_arena *a)
{
    tt_slots *s = tt_arena_array(a, (size_t)p->schedule->n_ranks, sizeof *s);
    for (int r = 0; r < p->schedule->n_ranks; r++)
        tt_slots_make(p, r, a, &s[r]);
    return s;
}

/* There are as many slots as values are alive at once, and no slot holds two values at a time. */
static void slots_are_right(const tt_programs *p, const tt_slots *slots)
{
    const tt_schedule *s = p->schedule;
    for (int r = 0; r < s->n_ranks; r++)
        for (int i = 0; i < slots[r].n; i++) {
            const tt_life *x = &slots[r].lives[i];
            int alive = 0, most = 0;
            for (int j = 0; j < slots[r].n; j++) {
                const tt_life *y = &slots[r].lives[j];
                if (y->stage != x->stage || y->hold != x->hold)
                    continue;
                if (i != j && y->slot == x->slot)
                    assert_true(y->last < x->first || x->last < y->first);
                alive = 0;
                for (int k = 0; k < slots[r].n; k++) {
                    const tt_life *z = &slots[r].lives[k];
                    alive += z->stage == x->stage && z->hold == x->hold && z->first <= y->first &&
                             y->first <= z->last;
                }
                most = TT_MAXV(most, alive);
            }
            assert_true(x->first <= x->reader && x->reader <= x->last);
            assert_int_equal(slots[r].count[x->stage * TT_N_LIVES + x->hold], most);
            if (x->hold < TT_N_HOLDS)
                assert_true(most >= tt_schedule_in_flight(s, x->stage, (tt_hold)x->hold));
        }
}

static void test_slots_are_the_most_alive_and_reuse_is_ordered(void **state)
{
    uint64_t x = 11;
    (void)state;
    for (int n = 0; n < 400; n++) {
        tt_arena *a = tt_arena_new();
        const published *k = &all_schedules[n % (int)TT_COUNT(all_schedules)];
        const tt_schedule *s =
            n < 250 ? make(a, k->name, 1 + n % 5, k->chunks, 1 + n % 9) : random_schedule(&x, a);
        if (s) {
            const tt_costs c = {random_costs(&x, s->n_stages, a), below(&x, 3)};
            tt_error err = {0};
            const tt_programs *p = programs_of(s, &c, true, 1 + n % 2, a);
            const tt_slots *slots = slots_of(p, a);
            slots_are_right(p, slots);
            if (tt_slots_check(p, slots, true, true, &err) != TT_OK)
                fail_msg("%s: %s", s->name, err.text);
            p = programs_of(s, &c, false, n % 3, a);
            slots_are_right(p, slots_of(p, a));
        }
        tt_arena_free(a);
    }
}

/* One slot less, a post without an event, or a send buffer without a wait is found. */
static void test_early_reuse_is_found(void **state)
{
    int early = 0;
    (void)state;
    for (size_t k = 0; k < TT_COUNT(all_schedules); k++) {
        tt_arena *a = tt_arena_new();
        const tt_schedule *s = make(a, all_schedules[k].name, 4, all_schedules[k].chunks, 8);
        const tt_programs *p = programs_of(s, &(tt_costs){0}, true, 2, a);
        tt_slots *slots = slots_of(p, a);
        assert_int_equal(tt_slots_check(p, slots, true, true, NULL), TT_OK);
        const bool reuses = slots[0].count[TT_HOLD_SLOT] < s->n_micro;
        if (reuses)
            assert_int_equal(tt_slots_check(p, slots, false, true, NULL), TT_EINVAL);
        assert_int_equal(tt_slots_check(p, slots, true, false, NULL), TT_EINVAL);
        for (int r = 0; r < 4; r++)
            for (int st = r; st < s->n_stages; st++)
                for (int h = 0; h < TT_N_HOLDS; h++) {
                    const int n = slots[r].count[st * TT_N_LIVES + h];
                    if (n < 2)
                        continue;
                    for (int i = 0; i < slots[r].n; i++)
                        if (slots[r].lives[i].stage == st && slots[r].lives[i].hold == h &&
                            slots[r].lives[i].slot == n - 1)
                            slots[r].lives[i].slot = n - 2;
                    assert_int_equal(tt_slots_check(p, slots, true, true, NULL), TT_EINVAL);
                    tt_slots_make(p, r, a, &slots[r]);
                    early++;
                }
        tt_arena_free(a);
    }
    assert_true(early > 50);
}

/* A blocking receive is as late as the buffers allow: in the steady state right before its reader,
 * so that no rank waits for what it does not need yet. */
static void test_blocking_receives_stand_before_their_reader(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_str t = {0};
    (void)state;
    tt_programs_print(programs_of(make(a, "1F1B", 2, 1, 3), &(tt_costs){0}, false, 2, a), &t);
    assert_string_equal(tt_str_get(&t),
                        "0F0 >0F0@1 0F1 >0F1@1 <1I0@1 0B0 0F2 >0F2@1 <1I1@1 0B1 <1I2@1 0B2\n"
                        "<0F0@0 1F0 1B0 >1I0@0 <0F1@0 1F1 1B1 >1I1@0 <0F2@0 1F2 1B2 >1I2@0\n");
    tt_str_free(&t);
    tt_arena_free(a);
}

typedef struct slower { /* than a run in which nobody waits for a receiver */
    double worst, sum;
    int n;
} slower;

/* The programs of a schedule, ordered by `planned`, run with `real`: besides the abstract run, where
 * a message is there costs.comm after it was sent, whatever its receiver does. No place for a
 * receive can be better. */
static void compare(const tt_schedule *s, const tt_costs *planned, const tt_costs *real,
                    int n_buffers, tt_arena *a, slower *out)
{
    const tt_run order = run_of(s, planned, a), free = run_of(s, real, a);
    const tt_issue o = {false, n_buffers};
    double t;
    assert_int_equal(
        tt_programs_replay(tt_programs_make(s, &order, &o, a), real, n_buffers, a, &t, NULL),
        TT_OK);
    assert_true(t >= free.makespan * (1 - 1e-9));
    out->worst = TT_MAXV(out->worst, t / free.makespan - 1);
    out->sum += t / free.makespan - 1;
    out->n++;
}

/* With two buffered sends a directed pair, receives that stand where they are read cost nothing:
 * the programs take what the abstract run does, where messages take time and stages differ too
 * (P2). With one they may not. Stages 30 % faster or slower than the plan's make senders wait a
 * little. */
static void test_waiting_receives_cost_nothing(void **state)
{
    const int most_p = is_long() ? 12 : 8;
    uint64_t x = 3;
    slower two = {0}, one = {0}, off = {0};
    (void)state;
    for (size_t k = 0; k < TT_COUNT(all_schedules); k++)
        for (int p = 2; p <= most_p; p++)
            for (int m = 1; m <= 32; m++) {
                tt_arena *a = tt_arena_new();
                tt_schedule *s = make(a, all_schedules[k].name, p, all_schedules[k].chunks, m);
                tt_stage_cost cost[64], far[64];
                for (int i = 0; i < 64; i++) {
                    cost[i] = (tt_stage_cost){1 + below(&x, 4) * 0.1, 1 + below(&x, 4) * 0.1,
                                              1 + below(&x, 4) * 0.1};
                    const double z = 0.7 + 0.1 * below(&x, 7);
                    far[i] = (tt_stage_cost){z * cost[i].f, z * cost[i].i, z * cost[i].w};
                }
                const tt_costs c = {cost, below(&x, 6) * 0.1}, d = {far, c.comm};
                if (s) {
                    compare(s, &c, &c, 2, a, &two);
                    compare(s, &c, &c, 1, a, &one);
                    compare(s, &c, &d, 2, a, &off);
                }
                tt_arena_free(a);
            }
    print_message("%d programs: two buffers %.2g, one %.3f at worst; stages off the plan %.3f, "
                  "%.4f on average\n",
                  two.n, two.worst, one.worst, off.worst, off.sum / off.n);
    assert_true(two.n > 2500 && two.worst <= 1e-9);
    assert_true(one.worst > 0.05);
    assert_true(off.worst < 0.25 && off.sum < 0.005 * off.n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_never_deadlock),
        cmocka_unit_test(test_random_never_deadlock),
        cmocka_unit_test(test_obvious_rule_deadlocks),
        cmocka_unit_test(test_random_meshes_never_deadlock),
        cmocka_unit_test(test_begun_collectives_that_differ_are_found),
        cmocka_unit_test(test_lost_and_swapped_messages_are_found),
        cmocka_unit_test(test_slots_are_the_most_alive_and_reuse_is_ordered),
        cmocka_unit_test(test_early_reuse_is_found),
        cmocka_unit_test(test_blocking_receives_stand_before_their_reader),
        cmocka_unit_test(test_waiting_receives_cost_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
