/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include "exec/steps.h"
#include "tier.h"
#include <math.h>

/* Asynchronous tensor parallelism: gathers and reduce-scatters of rows are split into pieces
 * that run concurrently with their products. On any mesh, the result has the bits of the unsplit
 * collective and the run needs only the memory that was planned. */

/* The pieces of these tiny jobs have so few rows that AMX tiles are used for the unsplit
 * products only. */
/* Our own tiles: an element's bits do not depend on how many rows a product has, as with OpenBLAS, which machines without
 * AVX-512 use by default, they may. */
#define FMA " backend.f32_products fma backend.blas own"
#define PIECES " parallelism.enable_async_tensor_parallel true"
#define TP(n) "parallelism.tensor_parallel_degree " #n

static const char *const meshes[] = {
    TP(2),
    TP(3) " training.local_batch_size 1",
    TP(6) " training.local_batch_size 1 training.seq_len 7",
    TP(2) " parallelism.data_parallel_shard_degree 2 activation_checkpoint.mode selective",
    TP(2) " parallelism.context_parallel_degree 2 training.local_batch_size 1",
    TP(2) " parallelism.data_parallel_replicate_degree 2 parallelism.data_parallel_shard_degree 2 "
          "parallelism.context_parallel_degree 2 activation_checkpoint.mode full",
    TP(2) " parallelism.pipeline_parallel_degree 2 training.mixed_precision_param bfloat16 "
          "training.mixed_precision_reduce bfloat16",
    TP(2) " parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule "
          "ZBVZeroBubble parallelism.data_parallel_shard_degree 2 training.global_batch_size 16",
    TP(6) " training.mixed_precision_param bfloat16 activation_checkpoint.mode full",
    TP(3) " debug.disable_fusion true model.args.tie_embeddings true",
    TP(2) " parallelism.data_parallel_shard_degree 2 parallelism.pipeline_parallel_degree 2 "
          "parallelism.fsdp_reshard_after_forward never training.global_batch_size 16",
    TP(2) " parallelism.context_parallel_degree 2 parallelism.context_parallel_rotate_method ring "
          "activation_checkpoint.store_dtype bfloat16",
    TP(2) " parallelism.data_parallel_shard_degree 2 parallelism.fsdp_reshard_after_forward never "
          "training.global_batch_size 16 debug.disable_fusion true",
    TP(2) " training.seq_len 1 training.local_batch_size 3",
};

/* Gathers and reduce-scatters of a layer: of attention and MLP, in the forward and in the
 * backward. */
static void check_counts(const char *mesh)
{
    job j;
    char text[600];
    snprintf(text, sizeof text, "%s%s", mesh, PIECES);
    job_open(&j, text);
    const tt_graph *g = j.setup.graph;
    assert_true(j.setup.async_tp);
    if (g->async_tp.gathers < 4 * 5 || g->async_tp.reductions < 4 * 5 || g->async_tp.whole)
        fail_msg("%s: %d gathers, %d reductions, %d whole", text, g->async_tp.gathers,
                 g->async_tp.reductions, g->async_tp.whole);
    job_close(&j);
}

static void test_async_tp_changes_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        steps one, more;
        char text[600];
        check_counts(meshes[i]);
        snprintf(text, sizeof text, "%s%s", meshes[i], FMA);
        steps_run(text, 3, &one);
        assert_true(isfinite(one.loss[2]) && one.loss[2] > 0);
        for (int how = 0; how < 3; how++) {
            int64_t used = 0, planned = 0;
            if (!in_tier(i, (size_t)how, 2))
                continue;
            snprintf(text, sizeof text, "%s%s%s comm.overlap %s debug.poison %s", meshes[i], FMA,
                     PIECES, how ? "on" : "off", how == 2 ? "true" : "false");
            steps_run(text, 3, &more);
            steps_same_bits(&one, &more, text);
            for (int r = 0; how == 2 && r < 16; r++) {
                used = TT_MAXV(used, more.ranks[r].high_water);
                planned = TT_MAXV(planned, more.ranks[r].planned);
            }
            if (used != planned)
                fail_msg("%s: %lld bytes used, %lld planned", text, (long long)used,
                         (long long)planned);
        }
    }
}

/* ---- which instructions run concurrently ---- */

static bool is_product(const tt_node *n)
{
    return n->own_rows && !strncmp(n->op->name, "linear", 6);
}

/* In a list, the message of each piece begins before a product of another piece, and its wait
 * comes after that product. */
static int check_list(const char *mesh, const tt_nodes *l, int *gathers)
{
    int n = 0;
    for (int k = 0; k < l->n_waits; k++) {
        const tt_node *s = l->waits[k].node;
        int at = 0, meanwhile = 0;
        if (s->step->kind != TT_STEP_SHIFT)
            continue;
        while (l->items[at] != s)
            at++;
        for (int i = at + 1; i < l->waits[k].before; i++) {
            bool reads = false;
            for (int j = 0; j < l->items[i]->n_in; j++)
                reads = reads || l->items[i]->in[j] == s->out[0];
            meanwhile += is_product(l->items[i]) && !reads;
        }
        if (!meanwhile)
            fail_msg("%s: nothing is multiplied during %%%d", mesh, s->out[0]->id);
        *gathers += !s->own_rows;
        n++;
    }
    return n;
}

static void test_each_message_is_concurrent_with_a_product(void **state)
{
    static const struct {
        const char *mesh;
        int n; /* pieces */
    } of[] = {
        {TP(2),                                                                  2},
        {TP(3) " parallelism.data_parallel_shard_degree 2",                      3},
        {TP(6) " activation_checkpoint.mode full training.global_batch_size 16", 6},
        {TP(2) " parallelism.pipeline_parallel_degree 2 training.seq_len 65",    2},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(of); i++) {
        job j;
        char text[600];
        int shifts = 0, gathers = 0, planned = 0;
        snprintf(text, sizeof text, "%s%s comm.overlap on model.args.dim 192 training.seq_len 256",
                 of[i].mesh, PIECES);
        job_open(&j, text);
        const tt_graph *g = j.setup.graph;
        for (size_t k = 0; k < g->nodes.n; k++)
            planned += g->nodes.items[k]->step && g->nodes.items[k]->step->kind == TT_STEP_SHIFT;
        for (int pp = 0; pp < j.setup.pipeline_ranks; pp++) {
            tt_plan *p;
            tt_error err = {0};
            if (tt_setup_plan(&j.setup, g, j.setup.schedule, pp, j.arena, &p, &err) != TT_OK)
                fail_msg("%s: %s", text, err.text);
            for (int s = 0; s < p->n_stages; s++)
                for (int part = 0; part < TT_N_PARTS; part++)
                    shifts += check_list(text, &p->stages[s].part[part], &gathers);
        }
        assert_int_equal(shifts, planned); /* all are begun early */
        assert_int_equal(gathers, g->async_tp.gathers * (of[i].n - 1));
        assert_int_equal(shifts - gathers, g->async_tp.reductions * (of[i].n - 1));
        job_close(&j);
    }
}

/* Where rows are replicated already, or are never sharded, nothing changes. */
static void test_collectives_that_cannot_be_split_stay_whole(void **state)
{
    static const char *const of[] = {"parallelism.data_parallel_shard_degree 2" PIECES,
                                     TP(2) " parallelism.enable_sequence_parallel false" PIECES};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(of); i++) {
        job j;
        job_open(&j, of[i]);
        assert_false(j.setup.async_tp);
        for (size_t k = 0; k < j.setup.graph->nodes.n; k++)
            assert_false(j.setup.graph->nodes.items[k]->own_rows);
        job_close(&j);
    }
}

/* The head's products run over token chunks if the logits are large: then its gather and the
 * reduction of its gradient stay unsplit, and the test counts them. */
static void test_the_loop_over_token_chunks_stays_whole(void **state)
{
    job j;
    (void)state;
    job_open(&j, TP(2) " model.args.vocab_size 40001 model.args.n_layers 1 "
                       "training.seq_len 301" PIECES);
    assert_true(j.setup.graph->chunk_rows > 0);
    assert_int_equal(j.setup.graph->async_tp.whole, 2);
    assert_int_equal(j.setup.graph->async_tp.gathers, 4);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_async_tp_changes_no_bit),
        cmocka_unit_test(test_each_message_is_concurrent_with_a_product),
        cmocka_unit_test(test_collectives_that_cannot_be_split_stay_whole),
        cmocka_unit_test(test_the_loop_over_token_chunks_stays_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
