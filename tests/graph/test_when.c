/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"

#include "graph/llama.c"
#include "graph/sim.c"

/* When a node runs is one interned object: two pointers of a graph are equal if and only if all
 * fields are. */

static const tt_when some = {.region = TT_BACKWARD, .stage = 3};

/* Objects that differ from `some` in one field each, every field among them. */
static const tt_when others[] = {
    {.region = TT_FORWARD,    .stage = 3},
    {                     .region = TT_BACKWARD,             .stage = 2          },
    { .region = TT_BACKWARD, .stage = 3,           .is_weight_grad = true},
    { .region = TT_BACKWARD,  .stage = 3,            .in_chunk_loop = true},
    { .region = TT_BACKWARD,       .stage = 3,                 .per_step = true},
    { .region = TT_BACKWARD,     .stage = 3,               .recomputed = true},
    { .region = TT_BACKWARD, .stage = 3,           .replicated_stages = 5},
};

static void test_a_field_that_differs_gives_another_object(void **state)
{
    tt_graph g = {.arena = tt_arena_new()};
    (void)state;
    const tt_when *w = tt_when_intern(&g, some), *of[TT_COUNT(others)];
    for (size_t i = 0; i < TT_COUNT(others); i++) {
        of[i] = tt_when_intern(&g, others[i]);
        assert_ptr_not_equal(of[i], w);
        for (size_t k = 0; k < i; k++)
            assert_ptr_not_equal(of[i], of[k]);
    }
    assert_ptr_equal(tt_when_intern(&g, some), w);
    for (size_t i = 0; i < TT_COUNT(others); i++)
        assert_ptr_equal(tt_when_intern(&g, others[i]), of[i]);
    tt_arena_free(g.arena);
}

/* The fields that a pass did not change keep their values, in thousands of objects. */
static void test_objects_keep_their_fields(void **state)
{
    tt_graph g = {.arena = tt_arena_new()};
    (void)state;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < 5 * 64 * 16; k++) {
            const tt_when w = {.region = (tt_region)(k % 5),
                               .stage = k / 5 % 64,
                               .is_weight_grad = k / 320 & 1,
                               .in_chunk_loop = k / 320 >> 1 & 1,
                               .per_step = k / 320 >> 2 & 1,
                               .recomputed = k / 320 >> 3 & 1,
                               .replicated_stages = UINT64_C(1) << 63 >> k % 3};
            const tt_when *o = tt_when_intern(&g, w);
            assert_ptr_equal(tt_when_intern(&g, *o), o);
            assert_true(o->region == w.region && o->stage == w.stage &&
                        o->is_weight_grad == w.is_weight_grad &&
                        o->in_chunk_loop == w.in_chunk_loop && o->per_step == w.per_step &&
                        o->recomputed == w.recomputed &&
                        o->replicated_stages == w.replicated_stages);
        }
    tt_arena_free(g.arena);
}

static void test_a_graph_knows_its_own_objects(void **state)
{
    tt_graph g = {.arena = tt_arena_new()}, h = {.arena = tt_arena_new()};
    (void)state;
    const tt_when *w = tt_when_intern(&g, some), *v = tt_when_intern(&h, some);
    const tt_when copy = *w;
    assert_ptr_not_equal(w, v);
    assert_true(tt_when_is_interned(&g, w) && tt_when_is_interned(&h, v));
    assert_false(tt_when_is_interned(&g, v) || tt_when_is_interned(&h, w));
    assert_false(tt_when_is_interned(&g, &copy) || tt_when_is_interned(&g, NULL));
    tt_arena_free(g.arena);
    tt_arena_free(h.arena);
}

static void test_parts_of_a_step(void **state)
{
    static const bool same[TT_COUNT(others)] = {false, false, false, true, true, true, true};
    (void)state;
    assert_true(tt_when_same_part(&some, &some));
    for (size_t i = 0; i < TT_COUNT(others); i++)
        assert_int_equal(tt_when_same_part(&some, &others[i]), same[i]);
}

static bool equal(const tt_when *a, const tt_when *b)
{
    return a->region == b->region && a->stage == b->stage &&
           a->is_weight_grad == b->is_weight_grad && a->in_chunk_loop == b->in_chunk_loop &&
           a->per_step == b->per_step && a->recomputed == b->recomputed &&
           a->replicated_stages == b->replicated_stages;
}

static void pointers_say_it(const tt_graph *g, const char *pass)
{
    for (size_t i = 0; i < g->nodes.n; i++)
        for (size_t k = 0; k < i; k++) {
            const tt_when *a = g->nodes.items[i]->when, *b = g->nodes.items[k]->when;
            if (equal(a, b) != (a == b))
                fail_msg("after %s: nodes %d and %d", pass, g->nodes.items[i]->id,
                         g->nodes.items[k]->id);
        }
}

static void after(void *user, const char *pass, built *x)
{
    (void)user;
    pointers_say_it(x->described, pass);
    pointers_say_it(x->g, pass);
    for (size_t i = 0; i < x->g->nodes.n; i++) /* a copy of a graph has objects of its own */
        assert_true(tt_when_is_interned(x->g, x->g->nodes.items[i]->when) &&
                    !tt_when_is_interned(x->described, x->g->nodes.items[i]->when));
}

static void test_nodes_share_objects_after_every_pass(void **state)
{
    tt_error err = {0};
    built x;
    (void)state;
    for (int stages = 1; stages <= 2; stages++) {
        job j = {
            .c = LLAMA_DEFAULT,
            .mesh = mesh_named("fsdp2 tp2"),
            .tokens = 14,
            .metrics = true,
            .optimizer = "adamw",
            .max_norm = 1,
            .fuse = true,
            .can_accumulate = true,
            .n_stages = stages,
            .recompute = {TT_RECOMPUTE_SELECTIVE, true}
        };
        j.c.tied = true;
        const char *bad = build_job(&j, NULL, after, NULL, &x, &err);
        if (bad)
            fail_msg("%s: %s", bad, err.text);
        built_free(&x);
    }
}

/* tt_graph_verify refuses a pass that writes to a shared object or gives a node one that is not
 * interned. */
static void test_an_object_of_its_own_is_refused(void **state)
{
    tt_error err = {0};
    built x;
    const job j = {.c = LLAMA_DEFAULT, .mesh = mesh_named("1"), .tokens = 12};
    (void)state;
    const char *bad = build_job(&j, "place", NULL, NULL, &x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
    const tt_when copy = *x.g->nodes.items[2]->when;
    x.g->nodes.items[2]->when = &copy;
    assert_int_equal(tt_graph_verify(x.g, "a pass", &err), TT_EINTERNAL);
    assert_non_null(strstr(err.text, "its tt_when is not interned in this graph"));
    built_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_field_that_differs_gives_another_object),
        cmocka_unit_test(test_objects_keep_their_fields),
        cmocka_unit_test(test_a_graph_knows_its_own_objects),
        cmocka_unit_test(test_parts_of_a_step),
        cmocka_unit_test(test_nodes_share_objects_after_every_pass),
        cmocka_unit_test(test_an_object_of_its_own_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
