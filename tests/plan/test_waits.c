/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/far_folder.h"
#include "plan/judge.h"
#include "plan/planned.h"

/* Where programs wait: judge.h judges the programs of many jobs, and lists made by hand show what the waits
 * of a list are for. */

#define ON " comm.overlap on"
#define FSDP " parallelism.data_parallel_shard_degree 2"
#define TP " parallelism.tensor_parallel_degree 2"
#define PP " parallelism.pipeline_parallel_degree 2"
#define EP FSDP " parallelism.expert_parallel_degree 2"
#define FSDP_ALONE "training.seq_len 37" FSDP ON
#define ASYNC_TP "parallelism.enable_async_tensor_parallel true model.args.dim 96" TP ON
#define TWO " training.global_batch_size 16"
#define EARLY "optimizer.early_step_in_backward true training.max_norm 0"
#define FAR "backend.name far comm.backend far"
#define ACTIVATIONS " activation_checkpoint.offload all"
#define STATES " training.enable_cpu_offload true"
#define QWEN                                                                                       \
    "spec qwen3_moe model.args.n_heads 4 model.args.head_dim 12 model.args.num_experts 4 "         \
    "model.args.num_experts_per_tok 2 model.args.moe_intermediate_size 13 model.args.n_layers 2"

static const char *const jobs[] = {
    FSDP_ALONE,
    "parallelism.fsdp_reshard_after_forward never" FSDP TWO ON,
    "parallelism.data_parallel_replicate_degree 2 model.args.tie_embeddings true" FSDP ON,
    ASYNC_TP,
    "parallelism.context_parallel_degree 4 parallelism.context_parallel_rotate_method ring "
    "training.seq_len 256" ON,
    "training.seq_len 256" FSDP TP PP TWO ON,
    "parallelism.pipeline_parallel_schedule ZBVZeroBubble" FSDP PP TWO ON,
    "training.intra_layer_micro_batch 2" FSDP TWO ON,
    "training.intra_layer_micro_batch 2" FSDP TP TWO ON,
    "model.args.vocab_size 40000" FSDP ON,
    EARLY FSDP ON,
    EARLY " model.args.tie_embeddings true" FSDP ON,
    EARLY " parallelism.data_parallel_replicate_degree 2" ON,
    EARLY TP ON,
    FAR ACTIVATIONS,
    FAR ACTIVATIONS FSDP ON,
    FAR ACTIVATIONS PP " activation_checkpoint.mode full",
    FAR ACTIVATIONS PP " parallelism.pipeline_parallel_schedule ZBVZeroBubble",
    FAR ACTIVATIONS FSDP ON " " EARLY,
    FAR STATES,
    FAR STATES PP,
    FAR STATES ACTIVATIONS FSDP ON,
    FAR STATES " optimizer.name muon model.args.n_layers 1",
    QWEN EP ON,
    QWEN EP TWO ON " training.intra_layer_micro_batch 2",
    QWEN EP ON " parallelism.expert_replicas 1",
    QWEN FSDP TP ON " " FAR STATES,
};

static void test_nothing_under_way_at_once_shares_a_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(jobs); i++)
        for (int r = 0, ranks = 1, n = 0; r < ranks; r++) {
            planned x;
            char why[JUDGE_TEXT];
            open_plan(&x, jobs[i], r);
            ranks = x.j.setup.pipeline_ranks;
            n += judge_program(x.p->program, why);
            if (*why)
                fail_msg("%s: %s", jobs[i], why);
            if (r == ranks - 1)
                assert_true(n > 0);
            job_close(&x.j);
        }
}

static bool is_wait(const tt_instr *i)
{
    return i->kind == TT_INSTR_WAIT && !i->queue;
}

/* The judge itself: where queue 0 does not wait at one place, it finds a fault. (Not in every program: a
 * wait may come after one for what its queue ran later.) */
static void test_a_missing_wait_is_found(void **state)
{
    static const char *const some[] = {FSDP_ALONE, ASYNC_TP};
    int n = 0;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(some); i++) {
        planned x;
        char why[JUDGE_TEXT];
        open_plan(&x, some[i], 0);
        tt_program *p = x.p->program;
        for (int end, k = 0; k < p->n; k = end + 1) {
            for (end = k; is_wait(&p->instrs[end]); end++)
                p->instrs[end].predicate = TT_PRED_NEVER;
            if (end > k && n++ % 2 == 0) {
                judge_program(p, why);
                if (!*why)
                    fail_msg("%s: instruction %d: a missing wait is not found", some[i], k);
            }
            for (; k < end; k++)
                p->instrs[k].predicate = TT_PRED_ALWAYS;
        }
        judge_program(p, why);
        assert_string_equal(why, "");
        job_close(&x.j);
    }
    assert_true(n > 40);
}

/* ---- lists made by hand ---- */

enum { MOST_NODES = 8 };

typedef struct hand {
    tt_when when;
    tt_state state[2];
    tt_node node[MOST_NODES];
    tt_value value[MOST_NODES], *in[MOST_NODES], *out[MOST_NODES];
    tt_node *items[MOST_NODES];
    int n;
} hand;

/* A node with at most one operand and one result; returns the result. */
static tt_value *add_node(hand *h, const tt_op_def *op, tt_value *in, tt_state *s)
{
    const int i = h->n++;
    h->value[i] = (tt_value){.id = i, .node = &h->node[i]};
    h->in[i] = in;
    h->out[i] = &h->value[i];
    h->node[i] = (tt_node){.id = i,
                           .op = op,
                           .n_in = in != NULL,
                           .n_out = op != &tt_op_assign,
                           .in = &h->in[i],
                           .out = &h->out[i],
                           .when = &h->when,
                           .block = -1,
                           .state = s,
                           .accumulate_index = -1};
    h->items[i] = &h->node[i];
    return &h->value[i];
}

/* The item before which the list waits for item i. */
static int waited_before(hand *h, int i)
{
    tt_arena *a = tt_arena_new();
    tt_nodes l = {.items = h->items, .n = h->n};
    tt_under_way none = {0};
    int before = -1;
    tt_plan_find_waits(a, &l, &none, true);
    for (int k = 0; k < l.n_waits; k++)
        if (l.waits[k].node == h->items[i])
            before = l.waits[k].before;
    tt_arena_free(a);
    return before;
}

/* A state is written while a collective reads it, by a node that needs nothing of the collective. */
static void test_a_state_is_written_when_no_collective_reads_it(void **state)
{
    hand h = {.when = {.region = TT_UPDATE}};
    (void)state;
    tt_value *old = add_node(&h, &tt_op_state, NULL, &h.state[0]);
    tt_value *other = add_node(&h, &tt_op_state, NULL, &h.state[1]);
    tt_value *sent = add_node(&h, &tt_op_collective, old, NULL);
    h.node[2].async = true;
    tt_value *made = add_node(&h, &tt_op_collective, other, NULL);
    add_node(&h, &tt_op_assign, made, &h.state[1]);
    add_node(&h, &tt_op_assign, made, &h.state[0]);
    add_node(&h, &tt_op_collective, sent, NULL);
    assert_int_equal(waited_before(&h, 2), 5);
    h.node[5].state = &h.state[1];
    assert_int_equal(waited_before(&h, 2), 6); /* its reader */
}

/* A copy of states to host memory is over before the states of other members follow: then the device memory
 * of few members is taken at a time. */
static void test_states_are_copied_out_before_those_of_other_members(void **state)
{
    static tt_stack stacks[2];
    hand h = {.when = {.region = TT_UPDATE}};
    (void)state;
    h.state[0] = h.state[1] = (tt_state){.stack = &stacks[0], .offloaded = true};
    for (int i = 0; i < 2; i++) {
        tt_value *made = add_node(&h, &tt_op_collective, NULL, NULL);
        add_node(&h, &tt_op_assign, made, &h.state[i]);
        h.node[2 * i + 1].async = true;
    }
    assert_int_equal(waited_before(&h, 1), 4); /* of the same members: at the end */
    h.state[1].first = 1;
    assert_int_equal(waited_before(&h, 1), 3);
    h.state[1] = (tt_state){.stack = &stacks[1], .offloaded = true};
    assert_int_equal(waited_before(&h, 1), 3);
    h.node[3].async = false;
    assert_int_equal(waited_before(&h, 1), 4);
}

/* An activation that is copied to host memory has its device memory for one further block, or until the backward
 * begins. Parameters do not count, which may stand in any block. */
static void test_the_copy_of_an_activation_is_over_a_block_later(void **state)
{
    static tt_param_info param;
    tt_when backward = {.region = TT_BACKWARD};
    hand h = {.when = {.region = TT_FORWARD}};
    (void)state;
    tt_value *made = add_node(&h, &tt_op_collective, NULL, NULL);
    add_node(&h, &tt_op_offload, made, NULL);
    for (int i = 2; i < 6; i++)
        add_node(&h, &tt_op_collective, NULL, NULL);
    for (int i = 0; i < 6; i++) /* blocks 0 0 0 1 2 3 */
        h.node[i].block = i < 3 ? 0 : i - 2;
    h.node[1].async = true;
    assert_int_equal(waited_before(&h, 1), 4);
    h.node[4].param = &param;
    assert_int_equal(waited_before(&h, 1), 5);
    h.node[5].block = -1; /* of no block */
    assert_int_equal(waited_before(&h, 1), 6);
    h.node[3].when = &backward;
    assert_int_equal(waited_before(&h, 1), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_under_way_at_once_shares_a_byte),
        cmocka_unit_test(test_a_missing_wait_is_found),
        cmocka_unit_test(test_a_state_is_written_when_no_collective_reads_it),
        cmocka_unit_test(test_the_copy_of_an_activation_is_over_a_block_later),
        cmocka_unit_test(test_states_are_copied_out_before_those_of_other_members),
    };
    return cmocka_run_group_tests(tests, far_folder, NULL);
}
