/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"

#include "graph/llama.c"
#include "graph/sim.c"
#include "tier.h"

/* R17: the head, the loss and their derivatives move into one loop of the forward. The sim runs the
 * loop's nodes over all rows at once: the results of a step must keep every bit, and the loop must
 * be one that core/exec can run. */

static void build_or_fail(const job *j, built *x)
{
    tt_error err = {0};
    const char *bad = build_job(j, NULL, NULL, NULL, x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
}

static job chunk_job(const char *mesh, int tied, int stages)
{
    job j = {
        .c = LLAMA_DEFAULT,
        .mesh = mesh_named(mesh),
        .metrics = true,
        .optimizer = "adamw",
        .max_norm = 0.1,
        .fuse = true,
        .can_accumulate = true,
        .n_stages = stages,
        .recompute = {TT_RECOMPUTE_FULL, true}
    };
    j.c.tied = tied;
    j.tokens =
        300 * data_ranks(j.mesh); /* more than the smallest chunk of 256 rows on every rank */
    return j;
}

/* The loop is contiguous and in the forward, all-reduces are its only collectives, and nothing
 * after the loop reads a value that lives only inside it. */
static void check_loop(const built *x, const char *what)
{
    int first = -1, last = -1, n = 0, backward = 0;
    for (size_t i = 0; i < x->g->nodes.n; i++) {
        const tt_node *e = x->g->nodes.items[i];
        for (int k = 0; k < e->n_in && !e->when->in_chunk_loop; k++)
            if (e->in[k]->chunked)
                fail_msg("%s: node %d outside the loop reads a chunk", what, e->id);
        if (!e->when->in_chunk_loop)
            continue;
        if (first < 0)
            first = (int)i;
        last = (int)i;
        n++;
        backward += strstr(e->op->name, "_dx") || strstr(e->op->name, "_dw");
        assert_int_equal(e->when->region, TT_FORWARD);
        if (e->step)
            assert_true(e->step->kind == TT_STEP_ALL_REDUCE || e->step->kind == TT_STEP_MASK);
    }
    assert_true(n > 4 && backward >= 2);
    assert_int_equal(last - first + 1, n);
}

static void test_chunked_step_equals_whole_step(void **state)
{
    static const char *const meshes[] = {"1", "fsdp2", "tp2", "fsdp2 tp2"};
    const sim_opts o = {.narrow = true};
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++)
        for (int tied = 0; tied < 2; tied++)
            for (int stages = 1; stages <= 2; stages++) {
                if (!in_tier(m, (size_t)(tied + stages), 2))
                    continue;
                const job a = chunk_job(meshes[m], tied, stages);
                job b = a;
                built x, y;
                b.chunk_bytes = 1;
                build_or_fail(&a, &x);
                build_or_fail(&b, &y);
                if (y.g->chunk_rows != 256)
                    fail_msg("%s, tied %d, %d stages: no loop", meshes[m], tied, stages);
                check_loop(&y, meshes[m]);
                sim *s = sim_run(x.g, &o), *t = sim_run(y.g, &o);
                sim_require(s);
                sim_require(t);
                for (size_t i = 0; i < x.g->states.n; i++)
                    for (int r = 0; r < s->mesh->world; r++) {
                        const tt_tensor *p = state_local(s, x.g->states.items[i], r),
                                        *q = state_local(t, y.g->states.items[i], r);
                        assert_int_equal(sim_bytes(p), sim_bytes(q));
                        if (memcmp(p->data, q->data, sim_bytes(p)))
                            fail_msg("%s: state %s differs", meshes[m], x.g->states.items[i]->name);
                    }
                sim_free(s);
                sim_free(t);
                built_free(&x);
                built_free(&y);
            }
}

/* Weights of tokens that do not depend on the logits are computed before the loop; the loop
 * multiplies its losses by them, and its logits are bounded by a tanh. */
static void describe_weighted(tt_builder *b, const void *user)
{
    const tt_dim V = TT_DIM(19, "vocab"), D = TT_DIM(10, "embed"), table[] = {V, D};
    (void)user;
    tt_value *w = tt_param(b, "embed", table, 2, NULL);
    tt_value *x = tt_tanh(b, tt_embedding_w(b, tt_input(b, "ids"), w));
    tt_value *z = tt_scale(b, tt_tanh(b, tt_linear_w(b, x, w)), 5);
    tt_value *weights = tt_scale(b, tt_sigmoid(b, tt_cast(b, tt_input(b, "pos"), TT_F32)), 0.5);
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_mul(b, tt_cross_entropy(b, z, tt_input(b, "labels")), weights));
}

typedef struct counts { /* pointwise instructions, in the loop and outside of it */
    int in[2], nodes;
} counts;

static void count(const tt_graph *g, counts *c)
{
    *c = (counts){.nodes = (int)g->nodes.n};
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        int *at = &c->in[!n->when->in_chunk_loop];
        if (n->op == &tt_op_fused)
            *at += ((const tt_fused *)n->attrs)->n_instr;
        else if (strstr(n->op->name, "_fused"))
            *at += ((const tt_fused_product *)n->attrs)->program.n_instr;
        else
            *at += tt_op_is_fusible(g->ops, n->op);
    }
}

static void after_order(void *user, const char *pass, built *x)
{
    if (!strcmp(pass, "order"))
        count(x->g, user);
}

/* Fusion moves no work into the loop, where it would run for every chunk, and no work out of it. */
static void test_fusion_stays_inside_and_outside_of_the_loop(void **state)
{
    tt_error err = {0};
    counts before, after;
    built x;
    job j = chunk_job("1", 0, 1);
    (void)state;
    j.chunk_bytes = 1;
    j.describe = describe_weighted;
    const char *bad = build_job(&j, NULL, after_order, &before, &x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
    count(x.g, &after);
    check_loop(&x, "weighted losses");
    print_message("%d pointwise instructions in the loop, %d outside, %d nodes become %d\n",
                  before.in[0], before.in[1], before.nodes, after.nodes);
    assert_true(before.in[0] > 4 && before.in[1] > 4 && after.nodes + 4 < before.nodes);
    assert_int_equal(after.in[0], before.in[0]);
    assert_int_equal(after.in[1], before.in[1]);
    built_free(&x);
}

/* More heads than it keeps: all of the loss is computed at once. */
static void describe_heads(tt_builder *b, const void *n_heads)
{
    const tt_dim V = TT_DIM(19, "vocab"), D = TT_DIM(10, "embed"), table[] = {V, D};
    tt_value *w = tt_param(b, "embed", table, 2, NULL), *loss = NULL;
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), w);
    for (int i = 0; i < *(const int *)n_heads; i++) {
        char name[20];
        tt_value *z = tt_linear_w(b, x, w), *l = tt_cross_entropy(b, z, tt_input(b, "labels"));
        snprintf(name, sizeof name, i ? "logits+%d" : "logits", i);
        tt_output(b, name, z);
        loss = loss ? tt_add(b, loss, l) : l;
    }
    tt_output(b, "loss", loss);
}

static void test_so_many_heads_are_in_one_loop(void **state)
{
    static const struct {
        int n_heads, chunk_rows;
    } rows[] = {
        {1,  256},
        {64, 256},
        {65, 0  },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        built x;
        job j = chunk_job("1", 0, 1);
        j.chunk_bytes = 1;
        j.describe = describe_heads;
        j.user = &rows[i].n_heads;
        tt_error err = {0};
        const char *bad = build_job(&j, "chunk_mark", NULL, NULL, &x, &err);
        if (bad)
            fail_msg("%s: %s", bad, err.text);
        assert_int_equal(x.g->chunk_rows, rows[i].chunk_rows);
        built_free(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunked_step_equals_whole_step),
        cmocka_unit_test(test_so_many_heads_are_in_one_loop),
        cmocka_unit_test(test_fusion_stays_inside_and_outside_of_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
