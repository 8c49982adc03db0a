/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_PIPELINE_TEST_H
#define TT_TESTS_PIPELINE_TEST_H
#include "pipeline/programs.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>

#include <cmocka.h>

/* Every published schedule up to some size, and random ones. TEST_LONG=1 (make test-long) goes up
 * to 16 ranks and 64 micro-batches. */

typedef struct published {
    const char *name;
    int chunks;
} published;

static const published all_schedules[] = {
    {"GPipe",                 1},
    {"1F1B",                  1},
    {"Interleaved1F1B",       1},
    {"Interleaved1F1B",       2},
    {"Interleaved1F1B",       3},
    {"LoopedBFS",             1},
    {"LoopedBFS",             2},
    {"LoopedBFS",             3},
    {"InterleavedZeroBubble", 1},
    {"InterleavedZeroBubble", 2},
    {"InterleavedZeroBubble", 3},
    {"ZBVZeroBubble",         2},
    {"DualPipeV",             2},
};

/* NULL if the schedule does not exist, like DualPipeV of fewer than 2p micro-batches. */
static inline tt_schedule *make(tt_arena *a, const char *name, int p, int v, int m)
{
    tt_schedule *s = NULL;
    tt_error err = {0};
    if (!strcmp(name, "DualPipeV") && m < 2 * p)
        return NULL;
    if (tt_schedule_make(name, p, v, m, a, &s, &err) != TT_OK)
        fail_msg("%s p %d v %d m %d: %s", name, p, v, m, err.text);
    return s;
}

static inline tt_run run_of(const tt_schedule *s, const tt_costs *c, tt_arena *a)
{
    tt_run run;
    tt_error err = {0};
    if (tt_schedule_run(s, c, a, &run, &err) != TT_OK)
        fail_msg("%s", err.text);
    return run;
}

static inline tt_programs *programs_of(const tt_schedule *s, const tt_costs *c, bool posted,
                                       int n_buffers, tt_arena *a)
{
    const tt_run run = run_of(s, c, a);
    const tt_issue o = {posted, n_buffers};
    return tt_programs_make(s, &run, &o, a);
}

/* splitmix64 */
static inline uint64_t next_random(uint64_t *x)
{
    uint64_t z = *x += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline int below(uint64_t *x, int n)
{
    return (int)(next_random(x) % (uint64_t)n);
}

/* Makes a random order for a random map of stages to ranks: at each step one of the ready actions.
 * It is written as CSV, so that it is read like a user's. */
static inline tt_schedule *random_schedule(uint64_t *x, tt_arena *a)
{
    const int p = 1 + below(x, 4), n = p + below(x, 6), m = 1 + below(x, 6);
    int rank_of[16], state[16][8] = {{0}}, left = 0; /* state: 0, F done, I done, all done */
    bool whole[16][8];
    tt_str rows[4] = {{0}}, text = {0};
    for (int s = 0; s < n; s++)
        rank_of[s] = s < p ? s : below(x, p);
    for (int s = n - 1; s > 0; s--) {
        const int k = below(x, s + 1), was = rank_of[s];
        rank_of[s] = rank_of[k];
        rank_of[k] = was;
    }
    for (int s = 0; s < n; s++)
        for (int k = 0; k < m; k++, left++)
            whole[s][k] = below(x, 2);
    while (left) {
        const int s = below(x, n), k = below(x, m), was = state[s][k];
        bool ok = was < 3;
        for (int j = 0; j < k; j++) /* ascending forwards and accumulation */
            ok = ok && (was == 0   ? state[s][j] >= 1
                        : was == 1 ? !whole[s][k] || state[s][j] == 3
                                   : state[s][j] == 3);
        ok = ok && (was != 0 || s == 0 || state[s - 1][k] >= 1);
        ok = ok && (was != 1 || s == n - 1 || state[s + 1][k] >= 2);
        if (!ok)
            continue;
        const char letter = was == 0 ? 'F' : was == 2 ? 'W' : whole[s][k] ? 'B' : 'I';
        tt_str_printf(&rows[rank_of[s]], "%d%c%d,", s, letter, k);
        state[s][k] = letter == 'B' ? 3 : was + 1;
        left -= state[s][k] == 3;
    }
    for (int r = 0; r < p; r++) {
        tt_str_printf(&text, "%s\n", tt_str_get(&rows[r]));
        tt_str_free(&rows[r]);
    }
    tt_schedule *out = NULL;
    tt_error err = {0};
    if (tt_schedule_read_csv(tt_str_get(&text), text.n, "random.csv", a, &out, &err) != TT_OK)
        fail_msg("%s\n%s", err.text, tt_str_get(&text));
    assert_true(out->ascends);
    tt_str_free(&text);
    return out;
}

static inline tt_stage_cost *random_costs(uint64_t *x, int n_stages, tt_arena *a)
{
    tt_stage_cost *c = tt_arena_array(a, (size_t)n_stages, sizeof *c);
    for (int s = 0; s < n_stages; s++)
        c[s] = (tt_stage_cost){0.1 + below(x, 40) / 10.0, 0.1 + below(x, 40) / 10.0,
                               0.1 + below(x, 40) / 10.0};
    return c;
}

#endif
