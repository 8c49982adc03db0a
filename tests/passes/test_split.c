/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/job.h"
#include "passes/compile.h"
#include <math.h>

/* cut: stages have equal costs. split: I computes the values for which the previous stage waits,
 * W computes the rest, and together they are the backward that is not split. */

#define PP2 "parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule "

static bool is_backward(const tt_node *n)
{
    return n->when->region == TT_BACKWARD && n->role != TT_NODE_EXPANDED;
}

/* The values from which a chain of backward nodes leads to a cotangent that leaves the stage. */
static bool reaches_border(const tt_graph *g, const tt_node *n)
{
    bool *wanted = calloc((size_t)g->n_values + 1, 1);
    bool yes = false;
    for (size_t i = 0; i < g->nodes.n; i++) /* forwards: what depends on n */
        if (is_backward(g->nodes.items[i])) {
            const tt_node *e = g->nodes.items[i];
            bool any = e == n;
            for (int j = 0; j < e->n_in; j++)
                any = any || wanted[e->in[j]->id];
            if (any && e != n && e->op == &tt_op_transfer)
                yes = true;
            for (int j = 0; any && e->op != &tt_op_transfer && j < e->n_out; j++)
                wanted[e->out[j]->id] = true;
        }
    free(wanted);
    return yes;
}

static void split_is_the_slice(const tt_graph *g)
{
    int n_i = 0, n_w = 0, late = 0;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (!is_backward(n))
            continue;
        late = late || n->when->is_weight_grad;
        assert_int_equal(n->when->is_weight_grad, late); /* all of I stands before all of W */
        for (int j = 0; !n->when->is_weight_grad && j < n->n_in; j++) /* I reads nothing of W */
            assert_false(is_backward(n->in[j]->node) && n->in[j]->node->when->is_weight_grad);
        if (n->accumulate_into || n->op == &tt_op_accumulate)
            assert_true(n->when->is_weight_grad); /* P5 */
        if (n->when->stage > 0 && n->op != &tt_op_transfer && n->op != &tt_op_state &&
            n->op != &tt_op_param && n->op != &tt_op_input)
            assert_int_equal(!n->when->is_weight_grad, reaches_border(g, n));
        n_i += !n->when->is_weight_grad;
        n_w += n->when->is_weight_grad;
    }
    assert_true(n_i > 10 && n_w > 10);
}

static void test_input_gradient_part_has_only_what_the_stage_sends(void **state)
{
    static const char *const more[] = {"", " activation_checkpoint.mode full",
                                       " debug.disable_fusion true",
                                       " model.args.tie_embeddings true",
                                       " parallelism.data_parallel_shard_degree 2 "
                                       "training.global_batch_size 16"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(more); i++) {
        char text[300];
        job j;
        snprintf(text, sizeof text, PP2 "InterleavedZeroBubble%s", more[i]);
        job_open(&j, text);
        split_is_the_slice(j.setup.graph);
        job_close(&j);
    }
}

/* P4: the first stage sends no cotangent, but it has an I of its own, and dW is in W. */
static void test_first_stage_is_split_too(void **state)
{
    job j;
    int dx = 0, dw = 0, sums = 0;
    (void)state;
    job_open(&j, PP2 "ZBVZeroBubble");
    for (size_t i = 0; i < j.setup.graph->nodes.n; i++) {
        const tt_node *n = j.setup.graph->nodes.items[i];
        if (!is_backward(n) || n->when->stage != 0)
            continue;
        if (!strncmp(n->op->name, "linear_dx", 9)) { /* with an epilogue or without */
            assert_false(n->when->is_weight_grad);
            dx++;
        }
        if (!strcmp(n->op->name, "linear_dw") || !strcmp(n->op->name, "embedding_dw")) {
            assert_true(n->when->is_weight_grad);
            dw++;
        }
        if (n->block < 0 && !strcmp(n->op->name, "add")) { /* then W keeps the sum, not its parts */
            assert_false(n->when->is_weight_grad);
            sums++;
        }
    }
    assert_true(dx >= 7 && dw == dx + 1 && sums == 1);
    job_close(&j);
}

static void test_schedules_without_i_do_not_split_the_backward(void **state)
{
    static const char *const names[] = {"1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS"};
    (void)state;
    for (size_t k = 0; k < TT_COUNT(names); k++) {
        char text[200];
        job j;
        snprintf(text, sizeof text, PP2 "%s", names[k]);
        job_open(&j, text);
        for (size_t i = 0; i < j.setup.graph->nodes.n; i++)
            assert_false(j.setup.graph->nodes.items[i]->when->is_weight_grad);
        job_close(&j);
    }
}

/* ---- cut ---- */

static int blocks_on(const tt_graph *g, int stage)
{
    int n = 0, last = -1;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *e = g->nodes.items[i];
        if (e->when->region == TT_FORWARD && e->when->stage == stage && e->block >= 0 &&
            e->block != last) {
            n++;
            last = e->block;
        }
    }
    return n;
}

static void cut_is(const char *overrides, const int *want)
{
    char text[300];
    job j;
    snprintf(text, sizeof text, "training.local_batch_size 8 %s", overrides);
    job_open(&j, text);
    for (int s = 0; s < j.setup.n_stages; s++)
        if (blocks_on(j.setup.graph, s) != want[s])
            fail_msg("%s: %d blocks on stage %d, wanted %d", text, blocks_on(j.setup.graph, s), s,
                     want[s]);
    job_close(&j);
}

/* Compared with a head, layers of the test job cost little if there are many tokens and much if
 * there are few. */
static void test_cuts_by_cost(void **state)
{
    (void)state;
    cut_is("parallelism.pipeline_parallel_degree 2 model.args.n_layers 8 model.args.vocab_size 262",
           (int[]){4, 4});
    cut_is("parallelism.pipeline_parallel_degree 2 model.args.n_layers 8 model.args.vocab_size "
           "4000",
           (int[]){8, 0}); /* the head alone */
    cut_is("parallelism.pipeline_parallel_degree 3 parallelism.pipeline_parallel_microbatches 4 "
           "model.args.n_layers 5 model.args.vocab_size 262",
           (int[]){2, 2, 1});
    cut_is("parallelism.pipeline_parallel_degree 4 model.args.n_layers 4", (int[]){1, 1, 1, 1});
    cut_is("parallelism.pipeline_parallel_degree 4 model.args.n_layers 2", (int[]){0, 1, 1, 0});
    cut_is("parallelism.pipeline_parallel_degree 4 model.args.n_layers 3", (int[]){1, 1, 1, 0});
}

static void test_cuts_by_name(void **state)
{
    (void)state;
    cut_is("parallelism.pipeline_parallel_degree 2 "
           "parallelism.pipeline_parallel_split_points [\"layers.1\"]",
           (int[]){1, 4});
    cut_is("parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule "
           "LoopedBFS parallelism.pipeline_parallel_split_points "
           "[\"layers.1\",\"layers.2\",\"layers.4\"]",
           (int[]){1, 1, 2, 1});
    cut_is("parallelism.pipeline_parallel_degree 3 parallelism.pipeline_parallel_microbatches 4 "
           "parallelism.pipeline_parallel_split_points [\"layers.0\",\"output\"]",
           (int[]){0, 5, 0});
    cut_is(
        "parallelism.pipeline_parallel_degree 2 parallelism.module_fqns_per_model_part "
        "[[\"tok_embeddings\",\"layers.0\",\"layers.1\",\"layers.2\"],[\"layers.3\",\"layers.4\","
        "\"norm\",\"output\"]]",
        (int[]){3, 2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_input_gradient_part_has_only_what_the_stage_sends),
        cmocka_unit_test(test_first_stage_is_split_too),
        cmocka_unit_test(test_schedules_without_i_do_not_split_the_backward),
        cmocka_unit_test(test_cuts_by_cost),
        cmocka_unit_test(test_cuts_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
