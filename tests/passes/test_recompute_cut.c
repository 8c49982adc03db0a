/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/llama.c"
#include "graph/sim.c"
#include "passes/recompute_impl.h"

/* What the problem of a block counts: the bytes that the block alone keeps for its backward. */

enum { TOKENS = 16, WIDTH = 16, BYTES = TOKENS * WIDTH * (int)sizeof(float) };

static tt_value *product(tt_builder *b, tt_value *x, const char *name)
{
    return tt_linear_w(b, x, weight(b, name, TT_DIM(WIDTH, NULL), TT_DIM(WIDTH, NULL)));
}

/* The backwards of both blocks read u, those of block 1 and of what follows it v: they are kept whatever a block
 * does. Block 0 alone reads the embedded tokens, block 1 its own operand, u v, and p, which block 0 has made. */
static void describe(tt_builder *b, const void *user)
{
    const tt_dim V = TT_DIM(19, "vocab"), D = TT_DIM(WIDTH, NULL);
    (void)user;
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), weight(b, "embed", V, D));
    tt_block(b, "0");
    tt_value *u = tt_tanh(b, product(b, x, "w0"));
    tt_value *p = tt_add(b, u, x);
    x = tt_add(b, p, u);
    tt_block_end(b);
    tt_block(b, "1");
    tt_value *y = product(b, x, "w1"), *v = tt_tanh(b, y);
    y = tt_mul(b, p, tt_mul(b, u, v));
    tt_block_end(b);
    y = tt_mul(b, y, v);
    tt_value *z = tt_linear_w(b, y, weight(b, "head", V, D));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

static void test_what_several_keep_is_counted_in_no_block(void **state)
{
    const job j = {.mesh = mesh_named("1"), .tokens = TOKENS, .describe = describe};
    tt_block_cut *cuts;
    tt_error err = {0};
    built x;
    int n;
    (void)state;
    const char *bad = build_job(&j, "update", NULL, NULL, &x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
    const bool *no_cost = tt_arena_array(x.arena, (size_t)x.g->n_ids + 1, sizeof *no_cost);
    tt_block_cuts_find(x.g, &tt_machine_order, no_cost, &cuts, &n);
    assert_int_equal(n, 2);
    for (int i = 0; i < n; i++) {
        const tt_recipe *all = &cuts[i].recipes[0]; /* the first keeps what the backward reads */
        int counted = 0;
        for (int v = 0; v < cuts[i].n_values; v++)
            counted += cuts[i].keep[v] > 0;
        assert_int_equal(all->n_kept, i ? 3 : 1);
        assert_int_equal(all->bytes, all->n_kept * BYTES);
        assert_int_equal(counted, all->n_kept + 1); /* and the operand of tanh */
    }
    built_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_several_keep_is_counted_in_no_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
