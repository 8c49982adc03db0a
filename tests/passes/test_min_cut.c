/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/min_cut.h"
#include "random_test.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Minimum cuts of random networks have the capacity that trying every cut finds, and as few nodes on the
 * source's side as a cut of that capacity can have. */

enum { MOST_NODES = 9, MOST_EDGES = 30 };

typedef struct sample {
    int n, n_edges;
    int from[MOST_EDGES], to[MOST_EDGES];
    double capacity[MOST_EDGES];
} sample;

static sample draw(test_rng *r)
{
    sample s = {.n = random_int(r, 2, MOST_NODES), .n_edges = random_int(r, 0, MOST_EDGES)};
    for (int i = 0; i < s.n_edges; i++) {
        s.from[i] = random_int(r, 0, s.n - 1);
        s.to[i] = random_int(r, 0, s.n - 1);
        s.capacity[i] = random_int(r, 0, 5) ? random_int(r, 0, 9) * 0.1 : (double)INFINITY;
    }
    return s;
}

static double capacity_of(const sample *s, unsigned side)
{
    double sum = 0;
    for (int i = 0; i < s->n_edges; i++)
        if (side >> s->from[i] & 1 && !(side >> s->to[i] & 1))
            sum += s->capacity[i];
    return sum;
}

/* The least capacity of all cuts; INFINITY: none is finite. */
static double least_of(const sample *s)
{
    double least = (double)INFINITY;
    for (unsigned side = 0; side < 1u << s->n; side++)
        if (side & 1 && !(side & 2))
            least = fmin(least, capacity_of(s, side));
    return least;
}

static void check(const sample *s, int number)
{
    tt_arena *a = tt_arena_new();
    tt_network *net = tt_network_new(a, s->n);
    bool side[MOST_NODES];
    unsigned bits = 0;
    for (int i = 0; i < s->n_edges; i++)
        tt_network_edge(net, s->from[i], s->to[i], s->capacity[i]);
    tt_network_cut(net, side);
    for (int v = 0; v < s->n; v++)
        bits |= (unsigned)side[v] << v;
    const double got = capacity_of(s, bits), want = least_of(s);
    if (!(bits & 1) || bits & 2 || got > want + 1e-9)
        fail_msg("network %d: side %x has %g, the least cut %g", number, bits, got, want);
    for (unsigned other = 1; other < 1u << s->n; other++)
        if (other & 1 && !(other & 2) && capacity_of(s, other) <= want + 1e-9 && bits & ~other)
            fail_msg("network %d: %x is as small a cut, and lacks nodes of %x", number, other,
                     bits);
    tt_arena_free(a);
}

static void test_cuts_are_minimal(void **state)
{
    (void)state;
    test_rng r = {.key = tt_rng_key_make(1, "min_cut", 0)};
    int checked = 0;
    for (int i = 0; i < 4000; i++) {
        const sample s = draw(&r);
        if (isinf(least_of(&s)))
            continue; /* the caller's networks have a finite cut */
        check(&s, i);
        checked++;
    }
    assert_true(checked > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts_are_minimal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
