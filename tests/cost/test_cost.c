/* SPDX-License-Identifier: Apache-2.0 */
#include "cost/cost.h"
#include "graph/sim.h"
#include <math.h>

#include "graph/llama.c"
#include "graph/sim.c"

/* The FLOPs and bytes of a node, and the time these take: by the op's class, not by its name. */

static void open_llama(const char *mesh, built *x)
{
    job j = {
        .c = {19, 10, 6, 2, 4, 14, 2, false, true, true},
        .mesh = mesh_named(mesh),
        .optimizer = "adamw"
    };
    tt_error err = {0};
    j.tokens = 7 * data_ranks(j.mesh);
    const char *bad = build_job(&j, NULL, NULL, NULL, x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
}

static const tt_node *node_named(const built *x, const char *op)
{
    for (size_t i = 0; i < x->g->nodes.n; i++)
        if (!strcmp(x->g->nodes.items[i]->op->name, op))
            return x->g->nodes.items[i];
    fail_msg("no %s", op);
    return NULL;
}

static void test_work_is_of_the_largest_boxes(void **state)
{
    (void)state;
    built one, two;
    open_llama("1", &one);
    open_llama("tp2", &two);
    const tt_work whole = tt_node_work(one.g, node_named(&one, "attention")),
                  half = tt_node_work(two.g, node_named(&two, "attention"));
    assert_int_equal(whole.cls, TT_CLASS_ATTENTION);
    assert_true(whole.flops > 0 && half.flops == whole.flops / 2); /* heads are cut */
    const tt_work embedding = tt_node_work(one.g, node_named(&one, "embedding"));
    assert_int_equal(embedding.cls, TT_CLASS_LOOKUP);
    assert_int_equal(embedding.dtype, TT_I32);
    built_free(&one);
    built_free(&two);
}

/* Sums of whole numbers are exact: every rank comes to the same order, however it adds. */
static void test_costs_that_order_programs_are_whole_numbers(void **state)
{
    static const char *const meshes[] = {"1", "fsdp2 tp2 cp2", "tp3"};
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        built x;
        double sum = 0;
        open_llama(meshes[m], &x);
        for (size_t i = 0; i < x.g->nodes.n; i++) {
            const tt_node *n = x.g->nodes.items[i];
            const tt_seconds t = tt_node_seconds(x.g, n, &tt_machine_order);
            if (!n->step)
                assert_true(t.compute == floor(t.compute) && t.comm == 0);
            else
                assert_true(t.comm == 10 * tt_node_work(x.g, n).sent && t.compute == 0);
            sum += t.compute;
        }
        assert_true(sum > 0);
        built_free(&x);
    }
    const tt_graph none = {0};
    assert_true(tt_message_seconds(&none, 12, &tt_machine_order) == 120);
}

/* An op of a plugin is what its class says. */
static void test_an_op_of_any_name_costs_what_its_class_does(void **state)
{
    const tt_machine m = {.flops_f32 = 1e3,
                          .memory_bandwidth = 1e9,
                          .matmul_efficiency = 0.5,
                          .attention_efficiency = 0.25,
                          .memory_efficiency = 1,
                          .op_latency = 1};
    (void)state;
    built x;
    open_llama("1", &x);
    tt_node *n = (tt_node *)(uintptr_t)node_named(&x, "attention");
    tt_op_def other = *n->op;
    other.name = "flash_attention2";
    n->op = &other;
    const double flops = tt_node_work(x.g, n).flops;
    assert_true(tt_node_seconds(x.g, n, &m).compute == 1 + flops / 250);
    assert_true(tt_node_seconds(x.g, n, &tt_machine_order).compute == 3 * flops);
    other.cls = TT_CLASS_MATMUL;
    assert_true(tt_node_seconds(x.g, n, &m).compute == 1 + flops / 500);
    other.struct_size = offsetof(tt_op_def, cls); /* built before there were classes */
    assert_true(tt_node_seconds(x.g, n, &m).compute == 1 + flops / 500);
    built_free(&x);
}

static void test_limits_that_are_not_known_bound_nothing(void **state)
{
    const tt_work product = {.flops = 1000, .bytes = 100, .cls = TT_CLASS_MATMUL, .dtype = TT_BF16},
                  other = {.flops = 1000, .bytes = 100, .cls = TT_CLASS_POINTWISE},
                  nothing = {.sent = 1};
    tt_machine m = {.matmul_efficiency = 1, .memory_efficiency = 1, .op_latency = 0.5};
    (void)state;
    assert_true(tt_work_seconds(&product, &m) == 0.5);
    assert_true(tt_work_seconds(&nothing, &m) == 0);
    m.flops_f32 = 500;
    assert_true(tt_work_seconds(&product, &m) == 0.5); /* of bf16 nothing is known */
    assert_true(tt_work_seconds(&other, &m) == 2.5);
    m.flops_vector = 100; /* what multiplies no matrices is slower */
    m.flops_bf16 = 1000;
    assert_true(tt_work_seconds(&product, &m) == 1.5);
    assert_true(tt_work_seconds(&other, &m) == 10.5);
    m.memory_bandwidth = 1;
    assert_true(tt_work_seconds(&other, &m) == 100.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_is_of_the_largest_boxes),
        cmocka_unit_test(test_costs_that_order_programs_are_whole_numbers),
        cmocka_unit_test(test_an_op_of_any_name_costs_what_its_class_does),
        cmocka_unit_test(test_limits_that_are_not_known_bound_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
