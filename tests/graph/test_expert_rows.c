/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/llama.c"
#include "graph/sim.c"

/* How an expert layer cuts its tokens. */

enum { WIDTH = 10, EXPERTS = 4 };

static tt_value *product(tt_builder *b, const tt_expert_rows *rows, const void *user)
{
    const tt_dim w[3] = {TT_DIM(EXPERTS, "experts"), TT_DIM(WIDTH, "embed"), TT_DIM(WIDTH, NULL)};
    (void)user;
    return tt_grouped_linear(b, rows->x, tt_param(b, "experts", w, 3, NULL), rows->counts);
}

/* The second linear cuts what it contracts, so its result is a sum over tp; so is ep. */
static void describe(tt_builder *b)
{
    const tt_dim D = TT_DIM(WIDTH, "embed"), F = TT_DIM(12, "ffn"), V = TT_DIM(19, "vocab");
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), weight(b, "embed", V, D));
    tt_value *y = tt_linear_w(b, x, weight(b, "up", F, D)), *assign, *weights;
    y = tt_linear_w(b, y, weight(b, "down", D, F));
    tt_value *scores = tt_linear_w(b, x, weight(b, "router", TT_DIM(EXPERTS, NULL), D));
    tt_choose_experts(b, scores, NULL, 2, &assign, &weights);
    tt_output(b, "logits", tt_experts(b, y, assign, weights, EXPERTS, product, NULL));
}

static void test_rows_of_a_pending_sum_are_summed(void **state)
{
    static const char *const atoms[] = {"tp"};
    static const int32_t sizes[] = {2};
    tt_axis axes[2] = {
        {.name = "tp", .atoms = {.n = 1}},
        {.name = "ep", .atoms = {.n = 1}}
    };
    tt_arena *a = tt_arena_new();
    tt_mesh mesh;
    tt_error err = {0};
    tt_label_table labels;
    tt_op_table ops = sim_ops();
    const tt_builder_opts o = {
        .ops = &ops, .tokens = 12, .sequences = 1, .has_kernel = sim_has_kernel};
    int n_gathers = 0;
    (void)state;
    assert_int_equal(tt_mesh_make_atoms(atoms, sizes, 1, axes, 2, a, &mesh, &err), TT_OK);
    tt_label_table_default(&labels);
    labels.sequence_parallel = false;
    tt_builder *b = tt_builder_new(a, &o), *placed = tt_builder_new_placed(a, &o, &mesh, &labels);
    describe(b);
    assert_int_equal(tt_builder_finish(b, &err), TT_OK);
    if (tt_pass_place(tt_builder_graph(b), &(tt_place_opts){0}, placed, &err) != TT_OK)
        fail_msg("%s", err.text);
    const tt_graph *g = tt_builder_graph(placed);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (strcmp(n->op->name, "dispatch_gather"))
            continue;
        const tt_value *rows = n->in[0], *from = rows->node->in[0];
        assert_int_equal(rows->node->op == &tt_op_redistribute && from->place.partial, 1);
        assert_int_equal(rows->place.n[0], 1); /* a reduce-scatter over the ranks */
        assert_int_equal(rows->place.partial, 0);
        n_gathers++;
    }
    assert_int_equal(n_gathers, 1);
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_a_pending_sum_are_summed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
