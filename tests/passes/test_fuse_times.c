/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/job.h"

/* Fusion merges only nodes that run at the same times (R24): for every `when`, recomputed or not, a graph
 * has as many pointwise instructions with fusion as without it, as nodes of their own or in programs.
 * test_chunk.c checks the same for the loop over token chunks. */

typedef struct tally {
    tt_when when;
    int n, nodes,
        recomputed; /* pointwise instructions; nodes that have some; instructions of clones */
} tally;

typedef struct tallies {
    tally of[64];
    int n;
} tallies;

/* The pointwise instructions of a node. */
static int pointwise(const tt_graph *g, const tt_node *n)
{
    if (n->op == &tt_op_fused)
        return ((const tt_fused *)n->attrs)->n_instr;
    if (strstr(n->op->name, "_fused_rope"))
        return ((const tt_fused_rope *)n->attrs)->product.program.n_instr;
    if (strstr(n->op->name, "_fused"))
        return ((const tt_fused_product *)n->attrs)->program.n_instr;
    return tt_op_is_fusible(g->ops, n->op);
}

static tally *tally_of(tallies *t, const tt_when *w)
{
    for (int i = 0; i < t->n; i++)
        if (tt_when_same_times(&t->of[i].when, w))
            return &t->of[i];
    assert_true(t->n < (int)TT_COUNT(t->of));
    t->of[t->n] = (tally){.when = *w};
    return &t->of[t->n++];
}

static void count(const char *text, bool fused, tallies *t)
{
    char all[400];
    job j;
    snprintf(all, sizeof all, "%s%s", text, fused ? "" : " debug.disable_fusion true");
    job_open(&j, all);
    *t = (tallies){0};
    const tt_graph *g = j.setup.graph;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const int n = pointwise(g, g->nodes.items[i]);
        tally *at = tally_of(t, g->nodes.items[i]->when);
        at->n += n;
        at->nodes += n > 0;
        at->recomputed += g->nodes.items[i]->when->recomputed ? n : 0;
    }
    job_close(&j);
}

typedef struct times { /* of pointwise instructions, in all jobs */
    int recomputed, is_weight_grad, per_step, replicated, stages, backward;
} times;

static void check(const char *text, times *seen)
{
    tallies fused, apart;
    int programs = 0;
    count(text, true, &fused);
    count(text, false, &apart);
    for (int i = 0; i < apart.n; i++) {
        const tally *a = &apart.of[i], *b = tally_of(&fused, &a->when);
        const tt_when *w = &a->when;
        if (a->n != b->n)
            fail_msg("%s: region %d, stage %d, W %d, loop %d, per step %d: %d instructions, %d "
                     "with fusion",
                     text, (int)w->region, w->stage, w->is_weight_grad, w->in_chunk_loop,
                     w->per_step, a->n, b->n);
        programs += a->nodes > b->nodes;
        seen->recomputed += a->recomputed;
        seen->is_weight_grad += w->is_weight_grad ? a->n : 0;
        seen->per_step += w->per_step ? a->n : 0;
        seen->replicated += w->replicated_stages ? a->n : 0;
        seen->stages += w->stage ? a->n : 0;
        seen->backward += w->region == TT_BACKWARD ? a->n : 0;
    }
    assert_true(programs > 1);
}

#define PP2                                                                                        \
    "training.local_batch_size 8 parallelism.pipeline_parallel_degree 2 "                          \
    "parallelism.pipeline_parallel_schedule "

static void test_what_runs_at_other_times_is_not_fused(void **state)
{
    static const char *const jobs[] = {
        "activation_checkpoint.mode none",
        "activation_checkpoint.mode selective",
        "activation_checkpoint.mode full",
        "training.dtype bfloat16",
        PP2 "1F1B activation_checkpoint.mode full model.args.tie_embeddings true",
        PP2 "InterleavedZeroBubble activation_checkpoint.mode selective",
        "training.mixed_precision_param bfloat16 training.global_batch_size 8 "
        "parallelism.fsdp_reshard_after_forward never",
    };
    times seen = {0};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(jobs); i++)
        check(jobs[i], &seen);
    print_message("instructions: %d recomputed, %d of W, %d per step, %d replicated, "
                  "%d of later stages, %d of backwards\n",
                  seen.recomputed, seen.is_weight_grad, seen.per_step, seen.replicated, seen.stages,
                  seen.backward);
    assert_true(seen.recomputed && seen.is_weight_grad && seen.per_step && seen.replicated &&
                seen.stages && seen.backward);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_runs_at_other_times_is_not_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
