/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/estimate.h"
#include "exec/job.h"
#include "graph/copies.h"

/* interleave and the turns of overlap, in compiled graphs of jobs that are planned for a machine: parameters exist
 * once, each micro-batch does what it does alone and in the same order, collectives of one are under way while another
 * computes, and the estimated communication that is not hidden falls. */

#define TP "parallelism.tensor_parallel_degree 2 comm.overlap on training.global_batch_size 32"
#define EXPERTS                                                                                    \
    "parallelism.data_parallel_shard_degree 4 parallelism.expert_parallel_degree 4 comm.overlap "  \
    "on training.local_batch_size 1 training.global_batch_size 16"

static const char dense[] =
    "{\"spec\":\"llama3\",\"model\":{\"flavor\":\"8B\",\"args\":{\"n_layers\":4}},"
    "\"checkpoint\":{\"enable\":false},"
    "\"training\":{\"mixed_precision_param\":\"bfloat16\"}}";
static const char experts[] =
    "{\"spec\":\"qwen3_moe\",\"model\":{\"flavor\":\"30B-A3B\",\"args\":{\"n_layers\":4}},"
    "\"checkpoint\":{\"enable\":false},\"training\":{\"mixed_precision_param\":\"bfloat16\"}}";

static void open_job(job *j, const char *text, const char *how, int k)
{
    char all[600];
    tt_error err = {0};
    const tt_setup_opts o = {
        .mode = TT_MODE_TRAIN, .compile = true, .data = true, .machine = tt_machine_find("h100")};
    snprintf(all, sizeof all, "%s training.intra_layer_micro_batch %d", how, k);
    tt_log_setup(TT_ERROR, 0, 1, false);
    if (job_try(j, text, all, &o, &err) != TT_OK)
        fail_msg("%s", err.text);
}

/* ---- what exists once, and what each micro-batch has ---- */

typedef struct counts {
    int gathers, inputs, attentions, accumulations;
} counts;

static counts count_nodes(const tt_graph *g)
{
    counts c = {0};
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        c.gathers += n->param && n->step && n->step->kind == TT_STEP_ALL_GATHER;
        c.inputs += n->op == &tt_op_input;
        c.attentions += n->op == &tt_op_attention;
        c.accumulations += n->when->region == TT_FORWARD && n->op == &tt_op_accumulate;
    }
    return c;
}

static void test_parameters_exist_once(void **state)
{
    job one, three;
    (void)state;
    open_job(&one, experts, EXPERTS, 1);
    open_job(&three, experts, EXPERTS, 4);
    const counts a = count_nodes(one.setup.graph), b = count_nodes(three.setup.graph);
    assert_true(a.gathers > 0 && a.inputs > 0 && a.attentions > 0);
    assert_int_equal(b.gathers, a.gathers);
    assert_int_equal(b.inputs, 4 * a.inputs);
    assert_int_equal(b.attentions, 4 * a.attentions);
    assert_int_equal(three.setup.graph->params.n, one.setup.graph->params.n);
    assert_int_equal(three.setup.graph->metrics.n, one.setup.graph->metrics.n);
    assert_int_equal(three.setup.graph->loads.n, one.setup.graph->loads.n);
    assert_int_equal(one.setup.calls, 4);
    assert_int_equal(three.setup.calls, 1);
    job_close(&one);
    job_close(&three);
}

/* ---- order ---- */

/* Does node n belong to micro-batch c alone? */
static bool belongs(const uint8_t *copies, const tt_node *n, int c)
{
    uint8_t bits = 0;
    for (int i = 0; i < n->n_in; i++)
        bits |= copies[n->in[i]->id];
    for (int i = 0; i < n->n_out; i++)
        bits |= copies[n->out[i]->id];
    return bits == 1u << c;
}

static bool in_block_forward(const tt_node *n)
{
    return n->when->region == TT_FORWARD && n->block >= 0 && !n->param;
}

/* The forward of micro-batch c in the blocks, as text: an op and its block per line. */
static void forward_of(const tt_graph *g, int c, tt_str *out)
{
    tt_arena *a = tt_arena_new();
    const uint8_t *copies = tt_graph_copies_of_values(g, a);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        const bool sums = n->op == &tt_op_accumulate || !strcmp(n->op->name, "expert_count");
        if (in_block_forward(n) && belongs(copies, n, c) &&
            !sums) /* what only sums read may move */
            tt_str_printf(out, "%d %s %s\n", n->block, n->op->name, n->scope);
    }
    tt_arena_free(a);
}

static void test_each_micro_batch_keeps_its_order(void **state)
{
    static const struct {
        const char *text, *how;
    } jobs[] = {
        {dense,   TP     },
        {experts, EXPERTS}
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(jobs); i++) {
        job one, two;
        tt_str alone = {0};
        open_job(&one, jobs[i].text, jobs[i].how, 1);
        open_job(&two, jobs[i].text, jobs[i].how, 2);
        forward_of(one.setup.graph, 0, &alone);
        assert_true(alone.n > 500);
        for (int c = 0; c < 2; c++) {
            tt_str text = {0};
            forward_of(two.setup.graph, c, &text);
            assert_string_equal(tt_str_get(&text), tt_str_get(&alone));
            tt_str_free(&text);
        }
        tt_str_free(&alone);
        job_close(&one);
        job_close(&two);
    }
}

static const tt_state *summed(const tt_node *n)
{
    return n->accumulate_into ? n->accumulate_into : n->op == &tt_op_accumulate ? n->state : NULL;
}

/* A line per sum: what is added to it, in order. Returns to how many more than one value is. */
static int sums_of(const tt_graph *g, tt_str *out)
{
    int n_sums = 0;
    for (size_t k = 0; k < g->states.n; k++)
        for (int m = -1; m < (int)g->params.n; m++) {
            int n_added = 0;
            tt_str_printf(out, "\n%s %d:", g->states.items[k]->name, m);
            for (size_t i = 0; i < g->nodes.n; i++)
                if (summed(g->nodes.items[i]) == g->states.items[k] &&
                    g->nodes.items[i]->accumulate_index == m) {
                    tt_str_printf(out, " %d", g->nodes.items[i]->id);
                    n_added++;
                }
            n_sums += n_added > 1;
        }
    return n_sums;
}

/* Micro-batches are added to a sum in one order, overlapped or not: addition is not associative. */
static void test_overlap_adds_to_each_sum_in_the_same_order(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++) {
        job on, off;
        tt_str a = {0}, b = {0};
        open_job(&on, e ? experts : dense, e ? EXPERTS : TP, 2);
        open_job(&off, e ? experts : dense,
                 e ? EXPERTS " comm.overlap off" : TP " comm.overlap off", 2);
        assert_true(sums_of(on.setup.graph, &a) >= 15);
        sums_of(off.setup.graph, &b);
        assert_string_equal(tt_str_get(&a), tt_str_get(&b));
        tt_str_free(&a);
        tt_str_free(&b);
        job_close(&on);
        job_close(&off);
    }
}

/* Of the collectives between activations in blocks that run concurrently, those for which another micro-batch computes
 * for half of their time, at least, before the first reader of their result; and all. */
static void count_covered(const tt_graph *g, tt_region region, int *covered, int *all)
{
    tt_arena *a = tt_arena_new();
    const tt_machine *machine = tt_machine_find("h100");
    const uint8_t *copies = tt_graph_copies_of_values(g, a);
    *covered = *all = 0;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        const int c = belongs(copies, n, 0) ? 0 : belongs(copies, n, 1) ? 1 : 2;
        double other = 0;
        bool read = false;
        if (n->when->region != region || n->block < 0 || n->param || !n->async || c == 2)
            continue;
        for (size_t k = i + 1; k < g->nodes.n && !read; k++) {
            const tt_node *m = g->nodes.items[k];
            for (int j = 0; j < m->n_in; j++)
                read = read || m->in[j] == n->out[0];
            if (!read && belongs(copies, m, 1 - c))
                other += tt_node_seconds(g, m, machine).compute;
        }
        *covered += other >= 0.5 * tt_node_seconds(g, n, machine).comm;
        *all += 1;
    }
    tt_arena_free(a);
}

static void test_products_of_another_micro_batch_cover_collectives(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++) {
        job j;
        open_job(&j, e ? experts : dense, e ? EXPERTS : TP, 2);
        for (tt_region r = TT_FORWARD; r <= TT_BACKWARD; r++) {
            int covered, all;
            count_covered(j.setup.graph, r, &covered, &all);
            print_message("    %s: %d of %d collectives\n", e ? "experts" : "tp", covered, all);
            assert_true(all >= 16 && 5 * covered >= 2 * all);
        }
        job_close(&j);
    }
}

static void test_less_communication_is_exposed(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++) {
        tt_step_time t[2];
        for (int k = 1; k <= 2; k++) {
            job j;
            open_job(&j, e ? experts : dense, e ? EXPERTS : TP, k);
            tt_step_time_of(&j.setup, tt_machine_find("h100"), &t[k - 1]);
            job_close(&j);
        }
        print_message("    %s: %.4f of %.4f s exposed, interleaved %.4f of %.4f\n",
                      e ? "experts" : "tp", t[0].exposed, t[0].step, t[1].exposed, t[1].step);
        assert_true(t[1].exposed < 0.6 * t[0].exposed);
        assert_true(t[1].step < t[0].step);
    }
}

/* ---- errors ---- */

static void test_micro_batches_that_do_not_divide_are_an_error(void **state)
{
    job j;
    tt_error err = {0};
    const tt_setup_opts o = {.mode = TT_MODE_TRAIN, .data = true};
    (void)state;
    tt_log_setup(TT_ERROR, 0, 1, false);
    assert_int_equal(job_try(&j, dense,
                             "training.local_batch_size 2 training.global_batch_size 10 "
                             "training.intra_layer_micro_batch 3",
                             &o, &err),
                     TT_EINVAL);
    assert_non_null(strstr(err.text, "training.intra_layer_micro_batch"));
    assert_non_null(strstr(err.text, "3 does not divide the 5 micro-batches of a step"));
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_exist_once),
        cmocka_unit_test(test_each_micro_batch_keeps_its_order),
        cmocka_unit_test(test_overlap_adds_to_each_sum_in_the_same_order),
        cmocka_unit_test(test_products_of_another_micro_batch_cover_collectives),
        cmocka_unit_test(test_less_communication_is_exposed),
        cmocka_unit_test(test_micro_batches_that_do_not_divide_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
