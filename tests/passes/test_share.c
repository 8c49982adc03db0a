/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"

#include "graph/llama.c"
#include "graph/sim.c"

/* The scalars of an update are computed once per step, not once per stack, and no bit changes. */

static const sim_opts narrow = {.narrow = true};

static int count(const tt_graph *g, const char *op)
{
    int n = 0;
    for (size_t i = 0; i < g->nodes.n; i++)
        n += g->nodes.items[i]->when->region == TT_UPDATE &&
             !strcmp(g->nodes.items[i]->op->name, op);
    return n;
}

static void require(tt_status s, const tt_error *err)
{
    if (s != TT_OK)
        fail_msg("%s", err->text);
}

/* Builds the graph up to the order pass, with the share pass after update or without it. */
static void build(const job *j, bool with, built *x)
{
    tt_error err = {0};
    const char *bad = build_job(j, "update", NULL, NULL, x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
    if (with)
        require(tt_pass_share(x->g, &err), &err);
    require(tt_pass_lower(x->g, &err), &err);
    require(tt_pass_order(x->g, &err), &err);
}

static void assert_same_bits(const job *j, const built *x, const built *y)
{
    sim *s = sim_run(x->g, &narrow), *t = sim_run(y->g, &narrow);
    (void)j;
    sim_require(s);
    sim_require(t);
    assert_int_equal(x->g->states.n, y->g->states.n);
    for (size_t i = 0; i < x->g->states.n; i++)
        for (int r = 0; r < s->mesh->world; r++) {
            const tt_tensor *a = state_local(s, x->g->states.items[i], r),
                            *b = state_local(t, y->g->states.items[i], r);
            if (sim_bytes(a) != sim_bytes(b) || memcmp(a->data, b->data, sim_bytes(a)))
                fail_msg("%s: state %s differs on rank %d", j->mesh->name,
                         x->g->states.items[i]->name, r);
        }
    sim_free(s);
    sim_free(t);
}

static void test_scalars_of_the_update_are_computed_once(void **state)
{
    static const char *const meshes[] = {"1", "tp3", "fsdp2 tp2 cp2"};
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        const job j = {.c = LLAMA_DEFAULT,
                       .mesh = mesh_named(meshes[m]),
                       .tokens = 14 * data_ranks(mesh_named(meshes[m])),
                       .metrics = true,
                       .optimizer = "adamw",
                       .max_norm = 0.1};
        built x, y;
        build(&j, false, &x);
        build(&j, true, &y);
        const int stacks = (int)x.g->stacks.n;
        assert_true(stacks > 2);
        assert_int_equal(count(x.g, "pow"), 2 * stacks);
        assert_int_equal(count(y.g, "pow"), 2); /* of beta1, of beta2 */
        assert_int_equal(count(y.g, "assign"), count(x.g, "assign"));
        assert_true(y.g->nodes.n < x.g->nodes.n);
        assert_same_bits(&j, &x, &y);
        built_free(&x);
        built_free(&y);
    }
}

/* Each stage computes its own scalars, because the other stages are on other ranks. */
static void test_stages_do_not_share(void **state)
{
    const job j = {.c = LLAMA_DEFAULT,
                   .mesh = mesh_named("tp2"),
                   .tokens = 12,
                   .metrics = true,
                   .optimizer = "adamw",
                   .n_stages = 2};
    built x, y;
    (void)state;
    build(&j, false, &x);
    build(&j, true, &y);
    assert_int_equal(count(y.g, "pow"), 2 * 2);
    assert_same_bits(&j, &x, &y);
    built_free(&x);
    built_free(&y);
}

/* Numbers that differ by little, and operations with swapped operands, are not shared. */
static void describe_near(const void *config, tt_builder *b, const tt_update *u)
{
    (void)config;
    tt_value *p = tt_add(b, u->lr, tt_const(b, 0.1, TT_F64)),
             *q = tt_add(b, u->lr, tt_const(b, 0.1 + 0x1p-56, TT_F64));
    tt_value *r = tt_sub(b, p, q), *s = tt_sub(b, q, p);
    tt_value *sum = tt_add(b, r, tt_mul(b, s, tt_const(b, 3, TT_F64)));
    tt_assign(b, u->param, tt_sub(b, u->param, tt_mul(b, u->grad, tt_cast(b, sum, TT_F32))));
}

static void test_differing_update_scalars_are_not_merged(void **state)
{
    static const tt_optimizer_vt near_vt = {.struct_size = sizeof near_vt,
                                            .describe_update = describe_near};
    const job j = {.c = LLAMA_DEFAULT, .mesh = mesh_named("1"), .tokens = 12, .update = &near_vt};
    built x, y;
    (void)state;
    build(&j, false, &x);
    build(&j, true, &y);
    assert_int_equal(count(y.g, "const"), 3);
    assert_int_equal(count(y.g, "sub"), 2 + (int)y.g->stacks.n);
    assert_same_bits(&j, &x, &y);
    built_free(&x);
    built_free(&y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars_of_the_update_are_computed_once),
        cmocka_unit_test(test_stages_do_not_share),
        cmocka_unit_test(test_differing_update_scalars_are_not_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
