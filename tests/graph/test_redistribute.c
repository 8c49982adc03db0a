/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"

#include "graph/llama.c"
#include "graph/sim.c"

/* Which nodes tt_redistribute makes: what a value is already, elsewhere, is used again where it may be. */

static int count_redistributes(const tt_graph *g)
{
    int n = 0;
    for (size_t i = 0; i < g->nodes.n; i++)
        n += g->nodes.items[i]->op == &tt_op_redistribute;
    return n;
}

/* A value of the forward that is cut along its first dim and that nobody has gathered. */
static tt_value *cut_value(const tt_graph *g)
{
    for (size_t i = 0; i < g->nodes.n; i++) {
        tt_node *n = g->nodes.items[i];
        bool read = false;
        for (size_t k = i; k < g->nodes.n; k++)
            for (int j = 0; j < g->nodes.items[k]->n_in; j++)
                read = read || (g->nodes.items[k]->in[j] == n->out[0] &&
                                g->nodes.items[k]->op == &tt_op_redistribute);
        if (!read && n->n_out && n->n_in && n->op != &tt_op_redistribute && !n->param &&
            n->out[0]->place.n[0])
            return n->out[0];
    }
    fail_msg("no value is cut");
    return NULL;
}

/* What only measured steps have is used again by measured nodes, and by no others. */
static void test_measured_versions_are_for_measured_nodes(void **state)
{
    const tt_placement whole = {0};
    const job j = {.c = LLAMA_DEFAULT, .mesh = mesh_named("fsdp2 tp2"), .tokens = 14};
    tt_error err = {0};
    built x;
    (void)state;
    const char *bad = build_job(&j, "place", NULL, NULL, &x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
    tt_value *v = cut_value(x.g);
    const int before = count_redistributes(x.g);
    tt_builder_at(x.b, TT_FORWARD, 0, -1, "test");
    tt_builder_measured(x.b, true);
    tt_value *measured = tt_redistribute(x.b, v, &whole);
    assert_ptr_equal(tt_redistribute(x.b, v, &whole), measured);
    assert_int_equal(count_redistributes(x.g), before + 1);
    tt_builder_measured(x.b, false);
    tt_value *always = tt_redistribute(x.b, v, &whole);
    assert_ptr_not_equal(always, measured);
    assert_ptr_equal(always->node->in[0], v);
    assert_ptr_equal(tt_redistribute(x.b, v, &whole), always);
    assert_int_equal(count_redistributes(x.g), before + 2);
    built_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measured_versions_are_for_measured_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
