/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"
#include "pipeline_test.h"
#include <math.h>

/* Schedules compared with the executable specification (tests/golden/pipeline.json), and what the
 * checker guarantees and refuses. */

/* Checks, independently of tt_schedule_check, that every action occurs once, on its rank, F before
 * B or I before W, micro-batches ascending. */
static void complete_and_ordered(const tt_schedule *s)
{
    int(*next)[TT_N_ACTIONS] = calloc((size_t)s->n_stages, sizeof *next);
    for (int r = 0; r < s->n_ranks; r++)
        for (int i = 0; i < s->n_actions[r]; i++) {
            const tt_action *x = &s->actions[r][i];
            int *n = next[x->stage];
            assert_int_equal(s->stage_rank[x->stage], r);
            const int done = n[TT_ACTION_B] + n[x->kind == TT_ACTION_W ? TT_ACTION_W : TT_ACTION_I];
            assert_int_equal(x->micro, x->kind == TT_ACTION_F ? n[TT_ACTION_F] : done);
            n[x->kind]++;
            assert_true(n[TT_ACTION_F] >= n[TT_ACTION_B] + n[TT_ACTION_I]);
            assert_true(n[TT_ACTION_I] >= n[TT_ACTION_W]);
        }
    for (int k = 0; k < s->n_stages; k++) {
        assert_int_equal(next[k][TT_ACTION_F], s->n_micro);
        assert_int_equal(next[k][TT_ACTION_B] + next[k][TT_ACTION_W], s->n_micro);
        assert_int_equal(next[k][TT_ACTION_I], next[k][TT_ACTION_W]);
    }
    free(next);
}

/* make() has run tt_schedule_check, which checks for deadlock and P5. */
static void test_all_are_complete_and_ordered(void **state)
{
    const int most_p = is_long() ? 16 : 8, most_m = is_long() ? 64 : 20;
    int n = 0;
    (void)state;
    for (size_t k = 0; k < TT_COUNT(all_schedules); k++)
        for (int p = 1; p <= most_p; p++) {
            tt_arena *a = tt_arena_new();
            for (int m = 1; m <= most_m; m++) {
                tt_schedule *s = make(a, all_schedules[k].name, p, all_schedules[k].chunks, m);
                if (!s)
                    continue;
                complete_and_ordered(s);
                n++;
            }
            tt_arena_free(a);
        }
    assert_true(n > 1900);
}

/* ---- the specification's numbers ---- */

static const tt_stage_cost sample = {1.25, 0.75, 0.5};

static tt_costs sample_costs(int n_stages, tt_arena *a)
{
    tt_stage_cost *c = tt_arena_array(a, (size_t)n_stages, sizeof *c);
    for (int s = 0; s < n_stages; s++)
        c[s] = sample;
    return (tt_costs){c, 0.375};
}

static void write_summary(const tt_schedule *s, tt_arena *a, tt_str *t)
{
    const tt_costs unit = {0}, other = sample_costs(s->n_stages, a);
    tt_schedule_print(s, t);
    tt_str_printf(t, "%.6f %.6f\n", run_of(s, &unit, a).makespan, run_of(s, &other, a).makespan);
    for (int k = 0; k < s->n_stages; k++)
        tt_str_printf(t, "%d %d %d\n", tt_schedule_in_flight(s, k, TT_HOLD_SLOT),
                      tt_schedule_in_flight(s, k, TT_HOLD_KEEP),
                      tt_schedule_in_flight(s, k, TT_HOLD_WGRAD));
}

static void write_programs(const tt_schedule *s, tt_arena *a, tt_str *t)
{
    const tt_costs c = sample_costs(s->n_stages, a);
    for (int n = 1; n <= 2; n++) {
        const tt_programs *p = programs_of(s, &c, true, n, a);
        tt_programs_print(p, t);
        for (int r = 0; r < s->n_ranks; r++) {
            tt_slots slots;
            tt_slots_make(p, r, a, &slots);
            for (int i = 0; i < slots.n; i++) {
                const tt_life *l = &slots.lives[i];
                tt_str_printf(t, "%d %d %d %d %d %d %d\n", l->hold, l->stage, l->micro, l->first,
                              l->last, l->reader, l->slot);
            }
        }
    }
}

static uint64_t fnv(uint64_t h, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t digest(const char *name, int p, int v)
{
    tt_arena *a = tt_arena_new();
    tt_str t = {0};
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int m = 1; m <= 32; m++) {
        const tt_schedule *s = make(a, name, p, v, m);
        if (!s)
            continue;
        tt_str_clear(&t);
        write_summary(s, a, &t);
        if (p <= 4 && m <= 12)
            write_programs(s, a, &t);
        h = fnv(h, tt_str_get(&t), t.n);
    }
    tt_str_free(&t);
    tt_arena_free(a);
    return h;
}

static const tt_json *get(const tt_json *o, const char *key)
{
    const tt_json *v = tt_json_get(o, key);
    if (!v)
        fail_msg("no \"%s\" in pipeline.json", key);
    return v;
}

static const tt_json *golden(tt_arena *a)
{
    const char *src = getenv("SRC");
    const char *path = tt_arena_printf(a, "%s/tests/golden/pipeline.json", src ? src : ".");
    char *text;
    size_t n;
    tt_error err = {0};
    const tt_json *root = NULL;
    if (tt_read_file(path, 0, &text, &n, &err) != TT_OK ||
        tt_json_parse(a, path, text, n, &root, &err) != TT_OK)
        fail_msg("%s", err.text);
    free(text);
    return root;
}

static void same_case(tt_arena *a, const tt_json *c)
{
    const tt_schedule *s = make(a, get(c, "name")->string, (int)get(c, "p")->integer,
                                (int)get(c, "v")->integer, (int)get(c, "m")->integer);
    tt_str want = {0}, have = {0};
    const tt_json *lists = get(c, "lists");
    for (size_t i = 0; i < lists->n; i++)
        tt_str_printf(&want, "%s\n", lists->items[i]->string);
    tt_schedule_print(s, &have);
    assert_string_equal(tt_str_get(&have), tt_str_get(&want));
    for (int k = 0; k < s->n_stages; k++)
        for (int h = 0; h < TT_N_HOLDS; h++)
            assert_int_equal(tt_schedule_in_flight(s, k, (tt_hold)h),
                             get(c, "in_flight")->items[k]->items[h]->integer);
    tt_str_free(&want);
    tt_str_free(&have);
}

static void test_plain_cases_are_the_specifications(void **state)
{
    tt_arena *a = tt_arena_new();
    const tt_json *cases = get(golden(a), "cases");
    (void)state;
    assert_int_equal(cases->n, 10);
    for (size_t i = 0; i < cases->n; i++)
        same_case(a, cases->items[i]);
    tt_arena_free(a);
}

/* Lists, makespans, micro-batches in flight, programs, lives and slots: p <= 8, m <= 32, v <= 3. */
static void test_everything_is_the_specifications(void **state)
{
    tt_arena *a = tt_arena_new();
    const tt_json *all = get(golden(a), "digests");
    (void)state;
    assert_int_equal(all->n, TT_COUNT(all_schedules));
    for (size_t i = 0; i < all->n; i++) {
        const tt_json *d = all->items[i], *by_p = get(d, "p");
        const char *name = get(d, "name")->string;
        const int v = (int)get(d, "v")->integer;
        for (int p = 1; p <= (int)by_p->n; p++) {
            char text[32];
            snprintf(text, sizeof text, "%016llx", (unsigned long long)digest(name, p, v));
            if (strcmp(text, by_p->items[p - 1]->string))
                fail_msg("%s, p %d, v %d: not what the specification has", name, p, v);
        }
    }
    tt_arena_free(a);
}

/* The papers' formulas, with F = I = W = 1. */
static void test_makespans_are_the_published(void **state)
{
    tt_arena *a = tt_arena_new();
    const int p = 4;
    (void)state;
    for (int m = 8; m <= 16; m += 8) {
        const struct {
            const char *name;
            int v, span;
        } want[] = {
            {"GPipe",                 1, 3 * (m + p - 1)    },
            {"1F1B",                  1, 3 * (m + p - 1)    },
            {"Interleaved1F1B",       2, 3 * (2 * m + p - 1)},
            {"LoopedBFS",             2, 3 * (2 * m + p - 1)},
            {"InterleavedZeroBubble", 1, 3 * m + p - 1      },
            {"InterleavedZeroBubble", 2, 6 * m + p - 1      },
            {"ZBVZeroBubble",         2, 6 * m + p - 1      },
            {"DualPipeV",             2, 6 * m + p - 1      },
        };
        for (size_t i = 0; i < TT_COUNT(want); i++) {
            const tt_schedule *s = make(a, want[i].name, p, want[i].v, m);
            assert_true(fabs(run_of(s, &(tt_costs){0}, a).makespan - want[i].span) < 1e-9);
            assert_true(fabs(tt_schedule_bubble(s, &(tt_costs){0}) -
                             (1 - 3.0 * m * want[i].v / want[i].span)) < 1e-12);
        }
    }
    tt_arena_free(a);
}

/* 1F1B holds p - r micro-batches on rank r, GPipe all; ZB-H1's W keep p on every rank. */
static void test_in_flight_counts(void **state)
{
    tt_arena *a = tt_arena_new();
    (void)state;
    for (int p = 2; p <= 8; p++)
        for (int m = 1; m <= 32; m++)
            for (int r = 0; r < p; r++) {
                assert_int_equal(tt_schedule_in_flight(make(a, "1F1B", p, 1, m), r, TT_HOLD_SLOT),
                                 TT_MIN(p - r, m));
                assert_int_equal(tt_schedule_in_flight(make(a, "GPipe", p, 1, m), r, TT_HOLD_KEEP),
                                 m);
                assert_int_equal(tt_schedule_in_flight(make(a, "InterleavedZeroBubble", p, 1, m), r,
                                                       TT_HOLD_KEEP),
                                 TT_MIN(p, m));
            }
    tt_arena_free(a);
}

/* ---- the checker refuses what is wrong ---- */

/* Checks in another way what a schedule needs: every list is valid in itself, and some order of all
 * actions satisfies all dependencies. */
static bool can_finish(const tt_schedule *s)
{
    const size_t n = (size_t)s->n_stages * (size_t)s->n_micro;
    bool *done = calloc(3 * n, 1);
    int at[8] = {0}, left = 0;
    for (int r = 0; r < s->n_ranks; r++)
        left += s->n_actions[r];
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->n_ranks; r++) {
            if (at[r] == s->n_actions[r])
                continue;
            const tt_action *x = &s->actions[r][at[r]];
            const size_t i = (size_t)x->stage * (size_t)s->n_micro + (size_t)x->micro,
                         m = (size_t)s->n_micro;
            const bool f = x->kind == TT_ACTION_F, w = x->kind == TT_ACTION_W;
            const bool ok = f   ? x->stage == 0 || done[i - m]
                            : w ? done[n + i]
                                : done[i] && (x->stage == s->n_stages - 1 || done[n + i + m]);
            if (!ok)
                continue;
            done[(f ? 0 : w ? 2 * n : n) + i] = true;
            at[r]++;
            left--;
            moved = true;
        }
    }
    free(done);
    return left == 0;
}

static bool ascends(const tt_schedule *s)
{
    for (int r = 0; r < s->n_ranks; r++)
        for (int i = 0; i < s->n_actions[r]; i++)
            for (int j = i + 1; j < s->n_actions[r]; j++) {
                const tt_action *x = &s->actions[r][i], *y = &s->actions[r][j];
                const bool fx = x->kind == TT_ACTION_F, fy = y->kind == TT_ACTION_F;
                if (x->stage == y->stage && x->kind != TT_ACTION_I && y->kind != TT_ACTION_I &&
                    fx == fy && x->micro > y->micro)
                    return false;
            }
    return true;
}

/* Every swap of two actions of a rank is refused, or gives another valid schedule. */
static void test_swaps_are_refused(void **state)
{
    int refused = 0, harmless = 0;
    (void)state;
    for (size_t k = 0; k < TT_COUNT(all_schedules); k++) {
        tt_arena *a = tt_arena_new();
        const tt_schedule *s = make(a, all_schedules[k].name, 3, all_schedules[k].chunks, 6);
        for (int r = 0; r < 3; r++)
            for (int i = 0; i < s->n_actions[r]; i++)
                for (int j = i + 1; j < s->n_actions[r]; j += 1 + (j - i) / 3) {
                    tt_action *x = &s->actions[r][i], *y = &s->actions[r][j], was = *x;
                    *x = *y;
                    *y = was;
                    const bool ok = tt_schedule_check(s, true, NULL) == TT_OK;
                    if (ok != (can_finish(s) && ascends(s)))
                        fail_msg("%s, rank %d, actions %d and %d swapped", s->name, r, i, j);
                    refused += !ok;
                    harmless += ok;
                    *y = *x;
                    *x = was;
                }
        tt_arena_free(a);
    }
    assert_true(refused > 5 * harmless && harmless > 50);
}

static void refused_as(const tt_schedule *s, const char *why)
{
    tt_error err = {0};
    assert_int_equal(tt_schedule_check(s, true, &err), TT_EINVAL);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

static void test_missing_and_misplaced_actions_are_refused(void **state)
{
    tt_arena *a = tt_arena_new();
    (void)state;
    tt_schedule *s = make(a, "GPipe", 2, 1, 3);
    s->n_actions[1]--;
    refused_as(s, "missing");
    s = make(a, "GPipe", 2, 1, 3);
    s->actions[1][0].stage = 0;
    refused_as(s, "another rank");
    s = make(a, "GPipe", 2, 1, 3);
    s->actions[1][1].micro = 0;
    refused_as(s, "twice");
    s = make(a, "GPipe", 2, 1, 3);
    s->actions[1][1].micro = 3;
    refused_as(s, "not belong to this schedule");
    s = make(a, "InterleavedZeroBubble", 2, 1, 3);
    for (int i = 0; i < s->n_actions[0]; i++)
        if (s->actions[0][i].kind == TT_ACTION_I && s->actions[0][i].micro == 0)
            s->actions[0][i].kind = TT_ACTION_B; /* and its W still there */
    refused_as(s, "before its I");
    s = make(a, "1F1B", 2, 1, 2); /* 0F0 0F1 0B0 0B1: rank 0 waits for 1B0, rank 1 for 0F1 */
    s->actions[0][1] = (tt_action){TT_ACTION_B, 0, 0};
    s->actions[0][2] = (tt_action){TT_ACTION_F, 0, 1};
    assert_int_equal(tt_schedule_check(s, true, NULL), TT_OK);
    s->actions[1][1] = (tt_action){TT_ACTION_F, 1, 1};
    s->actions[1][2] = (tt_action){TT_ACTION_B, 1, 0};
    refused_as(s, "deadlock");
    tt_arena_free(a);
}

/* ---- names and sizes ---- */

static void test_unknown_name_lists_the_known(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_schedule *s = NULL;
    tt_error err = {0};
    (void)state;
    assert_int_equal(tt_schedule_make("ZigZag", 2, 1, 2, a, &s, &err), TT_EINVAL);
    for (size_t k = 0; k < TT_COUNT(all_schedules); k++)
        assert_non_null(strstr(err.text, all_schedules[k].name));
    assert_null(s);
    tt_arena_free(a);
}

static void test_older_names_are_accepted(void **state)
{
    static const char *const names[][2] = {
        {"1f1b",                    "1F1B"                 },
        {"gpipe",                   "GPipe"                },
        {"ScheduleInterleaved1F1B", "Interleaved1F1B"      },
        {"interleaved_1f1b",        "Interleaved1F1B"      },
        {"FlexibleInterleaved1F1B", "Interleaved1F1B"      },
        {"interleaved_zero_bubble", "InterleavedZeroBubble"},
        {"ZBVZeroBubble",           "ZBVZeroBubble"        },
        {"zbv",                     "ZBVZeroBubble"        },
        {"looped_bfs",              "LoopedBFS"            },
        {"dualpipev",               "DualPipeV"            },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        const tt_schedule_kind *k;
        assert_int_equal(tt_schedule_find(names[i][0], &k, NULL), TT_OK);
        assert_string_equal(k->name, names[i][1]);
    }
    const tt_schedule_kind *k;
    assert_int_equal(tt_schedule_find("", &k, NULL), TT_EINVAL);
    assert_int_equal(tt_schedule_find("1F1BX", &k, NULL), TT_EINVAL);
}

static void test_impossible_sizes_are_refused(void **state)
{
    static const struct {
        const char *name;
        int p, v, m;
        const char *why;
    } bad[] = {
        {"GPipe",           0,  1,  2,       "needs a rank"     },
        {"GPipe",           2,  1,  0,       "needs a rank"     },
        {"GPipe",           2,  2,  4,       "1 stage per rank" },
        {"ZBVZeroBubble",   2,  1,  4,       "2 stages per rank"},
        {"ZBVZeroBubble",   2,  3,  4,       "2 stages per rank"},
        {"DualPipeV",       4,  2,  7,       "at least 8 micro" },
        {"Interleaved1F1B", 2,  -1, 4,       "stages per rank"  },
        {"Interleaved1F1B", 33, 2,  4,       "more than 64"     },
        {"1F1B",            2,  1,  1 << 30, "micro-batches are"},
    };
    tt_arena *a = tt_arena_new();
    (void)state;
    for (size_t i = 0; i < TT_COUNT(bad); i++) {
        tt_schedule *s = NULL;
        tt_error err = {0};
        assert_int_equal(tt_schedule_make(bad[i].name, bad[i].p, bad[i].v, bad[i].m, a, &s, &err),
                         TT_EINVAL);
        if (!strstr(err.text, bad[i].why))
            fail_msg("\"%s\" does not say \"%s\"", err.text, bad[i].why);
    }
    tt_arena_free(a);
}

/* ---- CSV ---- */

static void test_csv_reads_what_it_writes(void **state)
{
    (void)state;
    for (size_t k = 0; k < TT_COUNT(all_schedules); k++)
        for (int p = 1; p <= 4; p++) {
            tt_arena *a = tt_arena_new();
            for (int m = 1; m <= 8; m++) {
                tt_schedule *s = make(a, all_schedules[k].name, p, all_schedules[k].chunks, m);
                if (!s)
                    continue;
                tt_schedule *t = NULL;
                tt_str x = {0}, y = {0};
                tt_schedule_write_csv(s, &x);
                assert_int_equal(tt_schedule_read_csv(tt_str_get(&x), x.n, "x", a, &t, NULL),
                                 TT_OK);
                tt_schedule_write_csv(t, &y);
                assert_string_equal(tt_str_get(&x), tt_str_get(&y));
                assert_true(t->n_ranks == p && t->n_stages == s->n_stages && t->n_micro == m);
                assert_true(t->splits == s->splits && t->ascends);
                tt_str_free(&x);
                tt_str_free(&y);
            }
            tt_arena_free(a);
        }
}

static void test_csv_bubbles_and_blanks(void **state)
{
    static const char text[] = "0F0, ,0I0,\t0W0\r\n\n\n1F0,1B0\n";
    tt_arena *a = tt_arena_new();
    tt_schedule *s = NULL;
    tt_error err = {0};
    (void)state;
    if (tt_schedule_read_csv(text, strlen(text), "x", a, &s, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(s->n_ranks, 2);
    assert_true(s->splits && s->ascends);
    assert_true(fabs(run_of(s, &(tt_costs){0}, a).makespan - 6) < 1e-12);
    static const char back[] = "0F0,0F1,0B1,0B0"; /* a schedule, but its sums depend on it */
    assert_int_equal(tt_schedule_read_csv(back, strlen(back), "x", a, &s, NULL), TT_OK);
    assert_false(s->ascends);
    tt_arena_free(a);
}

static void test_csv_errors_name_row_and_cell(void **state)
{
    static const char *const bad[][2] = {
        {"0F0,0X0\n",                  "s.csv:1: cell 2, \"0X0\": is not"    },
        {"0F0,0B0\n0F1,0B1\n",         "s.csv:2: cell 1, \"0F1\": this stage"},
        {"1F0,1B0\n",                  "but 0 is missing"                    },
        {"0F0\n",                      "missing"                             },
        {"0B0,0F0\n",                  "before its forward"                  },
        {"0F0,0I0,0B0,0W0\n",          "too many"                            },
        {"0F0,0B0,0F2,0B2",            "missing"                             },
        {"0F",                         "is not"                              },
        {"F0",                         "is not"                              },
        {"0F0 0B0",                    "is not"                              },
        {"0F99999999999999999999,0B0", "cell 1"                              },
        {"77F0",                       "at most 64"                          },
        {"",                           "no action"                           },
        {"\n\n",                       "no action"                           },
        {"1F0,0F0,0B0,1B0",            "deadlock"                            },
    };
    tt_arena *a = tt_arena_new();
    (void)state;
    for (size_t i = 0; i < TT_COUNT(bad); i++) {
        tt_schedule *s = NULL;
        tt_error err = {0};
        assert_int_equal(tt_schedule_read_csv(bad[i][0], strlen(bad[i][0]), "s.csv", a, &s, &err),
                         TT_EINVAL);
        if (!strstr(err.text, bad[i][1]) || strncmp(err.text, "s.csv", 5))
            fail_msg("\"%s\" does not say \"%s\"", err.text, bad[i][1]);
        assert_null(s);
    }
    tt_arena_free(a);
}

/* Random bytes never crash it: it reads or refuses them. */
static void test_csv_of_noise(void **state)
{
    static const char some[] = "0123FBIW,, \n\t9x\r";
    uint64_t x = 1;
    int read = 0;
    (void)state;
    for (int n = 0; n < 20000; n++) {
        tt_arena *a = tt_arena_new();
        char text[24];
        const int len = below(&x, (int)sizeof text);
        for (int i = 0; i < len; i++)
            text[i] = n % 8 ? some[below(&x, (int)sizeof some - 1)] : (char)next_random(&x);
        tt_schedule *s;
        read += tt_schedule_read_csv(text, (size_t)len, "noise", a, &s, NULL) == TT_OK;
        tt_arena_free(a);
    }
    assert_true(read < 20000);
}

/* ---- drawing ---- */

static void test_drawings_show_every_action(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_str t = {0};
    (void)state;
    tt_schedule_print(make(a, "1F1B", 2, 1, 2), &t);
    assert_string_equal(tt_str_get(&t), "rank 0: 0F0 0F1 0B0 0B1\nrank 1: 1F0 1B0 1F1 1B1\n");
    tt_str_clear(&t);
    const tt_schedule *s = make(a, "ZBVZeroBubble", 3, 2, 7);
    const tt_run run = run_of(s, &(tt_costs){0}, a);
    tt_schedule_draw_svg(s, &run, &t);
    int boxes = 0;
    for (const char *p = tt_str_get(&t); (p = strstr(p, "</title></rect>")); p++)
        boxes++;
    assert_int_equal(boxes, run.n);
    assert_int_equal(run.n, 3 * 6 * 7);
    assert_non_null(strstr(tt_str_get(&t), " viewBox=\"0 0 1474 164\" "));
    static const char *const legend[] = {">forward<", ">I: backward, inputs<",
                                         ">W: backward, weights<", "dark: a rank's later stages",
                                         "number: micro-batch"};
    for (size_t i = 0; i < sizeof legend / sizeof *legend; i++)
        assert_non_null(strstr(tt_str_get(&t), legend[i]));
    assert_null(strstr(tt_str_get(&t), ">backward")); /* B does not occur in it */
    tt_str_free(&t);
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_complete_and_ordered),
        cmocka_unit_test(test_plain_cases_are_the_specifications),
        cmocka_unit_test(test_everything_is_the_specifications),
        cmocka_unit_test(test_makespans_are_the_published),
        cmocka_unit_test(test_in_flight_counts),
        cmocka_unit_test(test_swaps_are_refused),
        cmocka_unit_test(test_missing_and_misplaced_actions_are_refused),
        cmocka_unit_test(test_unknown_name_lists_the_known),
        cmocka_unit_test(test_older_names_are_accepted),
        cmocka_unit_test(test_impossible_sizes_are_refused),
        cmocka_unit_test(test_csv_reads_what_it_writes),
        cmocka_unit_test(test_csv_bubbles_and_blanks),
        cmocka_unit_test(test_csv_errors_name_row_and_cell),
        cmocka_unit_test(test_csv_of_noise),
        cmocka_unit_test(test_drawings_show_every_action),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
