/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"

#include "graph/llama.c"
#include "graph/sim.c"

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

/* Contiguous, in the forward, only all-reduces inside, nothing behind the loop reads a value that
 * lives inside only. */
static void check_loop(const built *x, const char *what)
{
    int first = -1, last = -1, n = 0, backward = 0;
    for (size_t i = 0; i < x->g->nodes.n; i++) {
        const tt_node *e = x->g->nodes.items[i];
        for (int k = 0; k < e->n_in && !e->map; k++)
            if (e->in[k]->chunked)
                fail_msg("%s: node %d outside the loop reads a chunk", what, e->id);
        if (!e->map)
            continue;
        if (first < 0)
            first = (int)i;
        last = (int)i;
        n++;
        backward += strstr(e->op->name, "_dx") || strstr(e->op->name, "_dw");
        assert_int_equal(e->region, TT_FORWARD);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunked_step_equals_whole_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
