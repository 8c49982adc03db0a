/* SPDX-License-Identifier: Apache-2.0 */
#include "golden.h"
#include <math.h>

static void check_step(const tt_mesh *m, int nd, const tt_lower_step *s, const json_t *want,
                       size_t i)
{
    assert_string_equal(tt_step_kind_name(s->kind), text_at(want, 0));
    tt_atom_list atoms = read_atoms(m, json_array_get(want, 1));
    assert_memory_equal(&s->atoms, &atoms, sizeof atoms);
    tt_placement src = read_placement(m, json_array_get(want, 2));
    tt_placement dst = read_placement(m, json_array_get(want, 3));
    assert_placement(m, &s->src, &src, nd, i);
    assert_placement(m, &s->dst, &dst, nd, i);
    double cost = json_number_value(json_array_get(want, 4));
    if (fabs(s->cost - cost) > 1e-12 * (1 + cost))
        fail_msg("vector %zu: cost %.17g, the specification says %.17g", i, s->cost, cost);
}

static void test_steps_agree_with_the_specification(void **state)
{
    golden *g = golden_open();
    const json_t *vectors = get(g->root, "lower");
    size_t n = json_array_size(vectors);
    int kinds[TT_STEP_MASK + 1] = {0};
    (void)state;
    assert_true(n > 1000);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(vectors, i), *want = get(v, "steps");
        const tt_mesh *m = &g->mesh[get_int(v, "mesh")];
        tt_dim dims[TT_MAX_DIMS];
        int nd = read_dims(get(v, "dims"), dims);
        tt_placement from = read_placement(m, get(v, "from")), to = read_placement(m, get(v, "to"));
        tt_lower_step steps[TT_MAX_STEPS];
        int got = tt_lower(m, dims, nd, &from, &to, steps);
        double cost = 0;
        assert_int_equal(got, json_array_size(want));
        for (int k = 0; k < got; k++) {
            check_step(m, nd, &steps[k], json_array_get(want, (size_t)k), i);
            kinds[steps[k].kind]++;
            cost += steps[k].cost;
        }
        assert_true(tt_lower_cost(m, dims, nd, &from, &to) == cost);
    }
    for (int k = 0; k <= TT_STEP_MASK; k++) /* the vectors exercise every kind but the ring's */
        assert_true(k == TT_STEP_SHIFT || kinds[k] > 5);
    golden_close(g);
}

/* "{dp_shard,cp~},{tp} P(tp)" back to a placement. */
static tt_placement parse_text(const tt_mesh *m, const char *text)
{
    tt_placement p;
    int d = -1;
    bool partial = false;
    memset(&p, 0, sizeof p);
    while (*text != '\0') {
        size_t n = strcspn(text, "{},() ");
        if (n > 0 && text[n] == '(') {
            partial = true;
            p.partial_max = strncmp(text, "Pmax", 4) == 0;
        } else if (n > 0) {
            char name[32] = {0};
            memcpy(name, text, n);
            uint16_t atom = read_atom(m, name);
            if (partial)
                p.partial = (uint16_t)(p.partial | 1u << atom);
            else
                p.atom[d][p.n[d]++] = atom;
        }
        text += n;
        if (*text == '{')
            d++;
        if (*text != '\0')
            text++;
    }
    return p;
}

typedef struct tally {
    char key[8][64]; /* "all_gather dp_shardcp" */
    int count[8], n;
} tally;

static void tally_add(tally *t, const char *kind, const tt_mesh *m, const tt_atom_list *atoms)
{
    char key[64];
    int at = snprintf(key, sizeof key, "%s ", kind);
    for (int i = 0; i < atoms->n; i++)
        at += snprintf(key + at, sizeof key - (size_t)at, "%s", m->atom_name[atoms->atom[i]]);
    int i = 0;
    while (i < t->n && strcmp(t->key[i], key) != 0)
        i++;
    assert_true(i < 8);
    if (i == t->n)
        memcpy(t->key[t->n++], key, sizeof key);
    t->count[i]++;
}

static void assert_tally(const tally *t, const json_t *want, const char *graph)
{
    assert_int_equal(t->n, json_array_size(want));
    for (size_t k = 0; k < json_array_size(want); k++) {
        const json_t *w = json_array_get(want, k);
        char key[64];
        int i = 0;
        snprintf(key, sizeof key, "%s %s", text_at(w, 0), text_at(w, 1));
        while (i < t->n && strcmp(t->key[i], key) != 0)
            i++;
        if (i == t->n || t->count[i] != (int)json_integer_value(json_array_get(w, 2)))
            fail_msg("%s: \"%s\" happens %d times, not %d", graph, key, i < t->n ? t->count[i] : 0,
                     (int)json_integer_value(json_array_get(w, 2)));
    }
}

/* The collectives of one layer and phase of a graph, from its redistributes, as the specification
 * counts them. */
static void count_collectives(const tt_mesh *m, const json_t *graph, const json_t *c, tally *acts,
                              tally *params)
{
    const json_t *nodes = get(graph, "nodes"), *table = get(graph, "dims");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        const char *op = text_at(node, 0);
        bool fetch = strcmp(op, "fetch") == 0;
        if ((!fetch && strcmp(op, "redistribute") != 0) ||
            strcmp(text_at(node, 3), json_string_value(get(c, "phase"))) != 0 ||
            !json_equal(json_array_get(node, 4), get(c, "layer")))
            continue;
        tt_dim all[32], dims[TT_MAX_DIMS];
        const json_t *index = json_array_get(node, 5);
        assert_true(read_dims(table, all) <= 32);
        int nd = (int)json_array_size(index);
        for (int d = 0; d < nd; d++)
            dims[d] = all[json_integer_value(json_array_get(index, (size_t)d))];
        size_t in = (size_t)json_integer_value(json_array_get(json_array_get(node, 2), 0));
        tt_placement from = parse_text(m, text_at(json_array_get(nodes, in), 6));
        tt_placement to = parse_text(m, text_at(node, 6));
        tt_lower_step steps[TT_MAX_STEPS];
        int n = tt_lower(m, dims, nd, &from, &to, steps);
        for (int k = 0; k < n; k++)
            if (!tt_step_is_local(steps[k].kind))
                tally_add(fetch ? params : acts, tt_step_kind_name(steps[k].kind), m,
                          &steps[k].atoms);
    }
}

static void test_graphs_lower_to_the_specified_collectives(void **state)
{
    golden *g = golden_open();
    json_t *file = golden_read("tests/golden/placement_graphs.json");
    const json_t *counts = get(g->root, "counts"), *graphs = get(file, "graphs");
    int some = 0;
    (void)state;
    for (size_t i = 0; i < json_array_size(counts); i++) {
        const json_t *c = json_array_get(counts, i);
        const char *name = json_string_value(get(c, "graph"));
        size_t k = 0;
        while (strcmp(json_string_value(get(json_array_get(graphs, k), "name")), name) != 0)
            k++;
        const json_t *graph = json_array_get(graphs, k);
        tally acts = {.n = 0}, params = {.n = 0};
        count_collectives(&g->mesh[get_int(graph, "mesh")], graph, c, &acts, &params);
        assert_tally(&acts, get(c, "acts"), name);
        assert_tally(&params, get(c, "params"), name);
        some += acts.n + params.n;
    }
    assert_true(some > 100);
    json_decref(file);
    golden_close(g);
}

static tt_mesh make_mesh(tt_arena *a, const char *const *names, const int32_t *sizes, int n)
{
    tt_mesh m;
    tt_error err;
    assert_int_equal(tt_mesh_make_atoms(names, sizes, n, NULL, 0, a, &m, &err), TT_OK);
    return m;
}

static void test_equal_placements_need_no_step(void **state)
{
    static const char *const names[] = {"a", "b"};
    static const int32_t sizes[] = {2, 3};
    tt_arena *arena = tt_arena_new();
    tt_mesh m = make_mesh(arena, names, sizes, 2);
    tt_dim d[] = {TT_DIM(7, NULL)};
    tt_placement p = {.n = {1}, .atom = {{1}}, .partial = 1, .partial_max = 1};
    tt_lower_step steps[TT_MAX_STEPS];
    (void)state;
    assert_int_equal(tt_lower(&m, d, 1, &p, &p, steps), 0);
    tt_arena_free(arena);
}

/* A stack of matrices made whole for Muon (R13): one all_to_all, not gathers. */
static void test_a_suffix_moves_by_one_all_to_all(void **state)
{
    static const char *const names[] = {"dp_shard"};
    static const int32_t sizes[] = {4};
    tt_arena *arena = tt_arena_new();
    tt_mesh m = make_mesh(arena, names, sizes, 1);
    tt_dim d[] = {TT_DIM(8, "stack"), TT_DIM(12, NULL), TT_DIM(5, NULL)};
    tt_placement from =
                     {
                         .n = {0, 1}
    },
                 to = {.n = {1}};
    tt_lower_step steps[TT_MAX_STEPS];
    (void)state;
    assert_int_equal(tt_lower(&m, d, 3, &from, &to, steps), 1);
    assert_int_equal(steps[0].kind, TT_STEP_ALL_TO_ALL);
    assert_true(steps[0].cost == 8.0 * 3 * 5 * 3 / 4);
    tt_arena_free(arena);
}

/* The specification has one kind of partial per pair. Here a maximum is completed before a sum
 * becomes pending. */
static void test_partials_of_another_kind_are_reduced_first(void **state)
{
    static const char *const names[] = {"a", "b"};
    static const int32_t sizes[] = {2, 3};
    tt_arena *arena = tt_arena_new();
    tt_mesh m = make_mesh(arena, names, sizes, 2);
    tt_dim d[] = {TT_DIM(7, NULL)};
    tt_placement from = {.partial = 3, .partial_max = 1}, to = {.partial = 1};
    tt_lower_step steps[TT_MAX_STEPS];
    (void)state;
    assert_int_equal(tt_lower(&m, d, 1, &from, &to, steps), 2);
    assert_int_equal(steps[0].kind, TT_STEP_ALL_REDUCE);
    assert_int_equal(steps[0].atoms.n, 2);
    assert_int_equal(steps[1].kind, TT_STEP_MASK);
    assert_int_equal(steps[1].dst.partial_max, 0);
    tt_arena_free(arena);
}

/* A step of a ring: parts that only change ranks are sent whole over their own atoms, in one step.
 * A ring-shifted part that is wanted in another placement is first shifted back. */
static void test_ring_shifted_parts_are_sent_around_the_ring(void **state)
{
    static const char *const names[] = {"dp", "cp", "tp"};
    static const int32_t sizes[] = {2, 3, 2};
    tt_arena *arena = tt_arena_new();
    tt_mesh m = make_mesh(arena, names, sizes, 3);
    tt_dim d[] = {TT_DIM(14, "tokens"), TT_DIM(8, NULL)};
    tt_placement p =
                     {
                         .n = {2,      1  },
                           .atom = {{0, 1}, {2}}
    },
                 q = p, whole = {0};
    tt_lower_step steps[TT_MAX_STEPS];
    char text[64];
    (void)state;
    for (unsigned shift = 0; shift < 3; shift++) {
        p.atom[0][1] = TT_SHIFTED(1, shift);
        q.atom[0][1] = TT_SHIFTED(1, (shift + 1) % 3);
        assert_int_equal(tt_lower(&m, d, 2, &p, &q, steps), 1);
        assert_int_equal(steps[0].kind, TT_STEP_SHIFT);
        assert_int_equal(steps[0].atoms.n, 1);
        assert_int_equal(steps[0].atoms.atom[0], 1);
        assert_true(steps[0].cost == 3.0 * 4);
        assert_int_equal(tt_lower(&m, d, 2, &p, &whole, steps), shift ? 3 : 2);
        assert_int_equal(steps[0].kind, shift ? TT_STEP_SHIFT : TT_STEP_ALL_GATHER);
    }
    tt_placement_print(&m, &p, 2, text, sizeof text);
    assert_string_equal(text, "{dp,cp+2},{tp}");
    p.atom[0][1] = TT_SHIFTED(1, 3);
    assert_int_not_equal(tt_placement_check(&m, &p, 2, NULL), TT_OK);
    tt_arena_free(arena);
}

static tt_placement random_placement(const tt_mesh *m, int nd, const uint32_t u[4])
{
    tt_placement p;
    memset(&p, 0, sizeof p);
    for (int i = 0; i < m->n_atoms; i++) {
        int atom = u[3] & 1 ? i : m->n_atoms - 1 - i, where = (int)((u[0] >> 3 * i) % 6);
        if (where < nd)
            p.atom[where][p.n[where]++] =
                TT_SHIFTED((unsigned)atom | ((u[1] >> i & 3) == 3 ? TT_IGNORE_UNIT : 0u),
                           u[2] & 2 ? (u[2] >> (8 + i)) % (unsigned)m->atom_size[atom] : 0u);
        else if (where < 5)
            p.partial = (uint16_t)(p.partial | 1u << atom);
    }
    p.partial_max = p.partial != 0 && (u[2] & 1);
    return p;
}

/* For any pair of placements, of mixed kinds too, the steps form a chain of valid placements from
 * one to the other. */
static void test_random_pairs_lower_to_a_chain(void **state)
{
    static const char *const names[] = {"e", "d", "c", "b", "a", "f", "g", "h"};
    static const int32_t sizes[] = {2, 3, 2, 2, 5, 2, 3, 2};
    tt_arena *arena = tt_arena_new();
    tt_mesh m = make_mesh(arena, names, sizes, 8);
    tt_dim dims[TT_MAX_DIMS];
    tt_rng_key key = {5};
    tt_error err;
    (void)state;
    for (int d = 0; d < TT_MAX_DIMS; d++)
        dims[d] = TT_DIM_UNIT(30 + d, NULL, 1 + d);
    for (uint64_t trial = 0; trial < 20000; trial++) {
        uint32_t u[8];
        tt_rng_u32x4(key, 2 * trial, u);
        tt_rng_u32x4(key, 2 * trial + 1, u + 4);
        int nd = (int)(u[3] >> 8) % 4;
        tt_placement from = random_placement(&m, nd, u), to = random_placement(&m, nd, u + 4);
        tt_lower_step steps[TT_MAX_STEPS];
        int n = tt_lower(&m, dims, nd, &from, &to, steps);
        assert_true((n == 0) == tt_placement_equal(&from, &to));
        for (int k = 0; k < n; k++) {
            assert_true(tt_placement_equal(&steps[k].src, k > 0 ? &steps[k - 1].dst : &from));
            if (tt_placement_check(&m, &steps[k].dst, nd, &err) != TT_OK)
                fail_msg("%s", err.text);
            assert_true(steps[k].cost >= 0 && steps[k].atoms.n > 0);
        }
        if (n > 0)
            assert_true(tt_placement_equal(&steps[n - 1].dst, &to));
    }
    tt_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_agree_with_the_specification),
        cmocka_unit_test(test_graphs_lower_to_the_specified_collectives),
        cmocka_unit_test(test_equal_placements_need_no_step),
        cmocka_unit_test(test_a_suffix_moves_by_one_all_to_all),
        cmocka_unit_test(test_ring_shifted_parts_are_sent_around_the_ring),
        cmocka_unit_test(test_random_pairs_lower_to_a_chain),
        cmocka_unit_test(test_partials_of_another_kind_are_reduced_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
