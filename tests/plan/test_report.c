/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/estimate.h"
#include "exec/job.h"
#include "tier.h"
#include <math.h>

/* `ttrun plan`: its output, without data, ranks or memory for the model; and that plans of the
 * largest models are small: nodes by layers, memory by nodes. They take seconds. */

typedef struct report {
    job j;
    const tt_json *o;
    tt_plan **plans; /* by pipeline rank */
} report;

static report make_of(const char *base, const char *overrides)
{
    report r;
    tt_error err = {0};
    tt_str text = {0};
    job_open_text(&r.j, base, overrides);
    const tt_setup *s = &r.j.setup;
    if (tt_setup_plan_all(s, r.j.arena, &r.plans, &err) != TT_OK)
        fail_msg("%s: %s", overrides, err.text);
    assert_int_equal(tt_plan_report(s, r.plans, s->pipeline_ranks, NULL, true, &text, &err), TT_OK);
    const char *copy = tt_arena_strn(r.j.arena, tt_str_get(&text), text.n);
    if (tt_json_parse(r.j.arena, "plan", copy, text.n, &r.o, &err) != TT_OK)
        fail_msg("%s", err.text);
    tt_str_clear(&text);
    assert_int_equal(tt_plan_report(s, r.plans, s->pipeline_ranks, NULL, false, &text, &err),
                     TT_OK);
    assert_non_null(strstr(tt_str_get(&text), "memory "));
    assert_non_null(strstr(tt_str_get(&text), "network "));
    tt_str_free(&text);
    return r;
}

static report make(const char *overrides)
{
    return make_of(job_text, overrides);
}

static const tt_json *get(const tt_json *o, const char *key)
{
    const tt_json *v = tt_json_get(o, key);
    if (!v)
        fail_msg("no \"%s\" in the plan", key);
    return v;
}

/* The number of calls of a collective for one reason; -1 = it is not in the list. */
static int64_t calls(const report *r, const char *collective, const char *cause)
{
    const tt_json *list = get(r->o, "communication");
    for (size_t i = 0; i < list->n; i++)
        if (!strcmp(get(list->items[i], "collective")->string, collective) &&
            !strcmp(get(list->items[i], "cause")->string, cause))
            return get(list->items[i], "calls")->integer;
    return -1;
}

static double bytes(const report *r, const char *collective, const char *cause)
{
    const tt_json *list = get(r->o, "communication");
    for (size_t i = 0; i < list->n; i++)
        if (!strcmp(get(list->items[i], "collective")->string, collective) &&
            !strcmp(get(list->items[i], "cause")->string, cause))
            return get(list->items[i], "bytes_sent")->real;
    return -1;
}

static void test_one_rank_does_not_communicate(void **state)
{
    (void)state;
    report r = make("");
    assert_int_equal(get(r.o, "communication")->n, 0);
    assert_int_equal(get(r.o, "world")->integer, 1);
    assert_int_equal(get(r.o, "parameters")->integer, r.j.setup.size.parameters);
    assert_int_equal(get(r.o, "pipeline_ranks")->n, 1);
    assert_true(get(r.o, "fits")->boolean);
    job_close(&r.j);
}

/* FSDP: each parameter is gathered once in the forward, those of blocks once more in the
 * backward, and each gradient is reduced once. In each of these a rank sends half of every
 * parameter. */
static void test_fsdp_counts(void **state)
{
    (void)state;
    report r = make("parallelism.data_parallel_shard_degree 2");
    const int64_t n = (int64_t)r.j.setup.graph->params.n;
    assert_int_equal(calls(&r, "all_gather over dp_shard", "parameters"), n);
    assert_int_equal(calls(&r, "all_gather over dp_shard", "parameters, again for the backward"),
                     n - 3);
    assert_int_equal(calls(&r, "reduce_scatter over dp_shard", "gradients"), n);
    assert_int_equal(calls(&r, "all_reduce over dp_shard", "gradient norm"), 1);
    const double half = 4.0 * (double)r.j.setup.size.parameters / 2;
    const double sent = bytes(&r, "all_gather over dp_shard", "parameters");
    assert_true(sent >= half && sent < half * 1.05); /* the larger of two uneven halves */
    job_close(&r.j);
}

/* TP with sequence parallelism (the example in docs/design/rules.md): two gathers and two
 * reduce-scatters per block and direction. */
static void test_tp_counts(void **state)
{
    (void)state;
    report r = make("parallelism.tensor_parallel_degree 2");
    assert_int_equal(calls(&r, "all_gather over tp", "activations"), 2 * 5 + 1);
    assert_int_equal(calls(&r, "reduce_scatter over tp", "activations"), 2 * 5 + 1);
    assert_int_equal(calls(&r, "all_gather over tp", "gradients of activations"), 2 * 5 + 1);
    assert_int_equal(calls(&r, "reduce_scatter over tp", "gradients of activations"), 2 * 5 + 1);
    job_close(&r.j);
}

/* One value crosses a stage border per micro-batch and direction: 37 tokens × 48 f32 of one
 * sample. */
static void test_pipeline_counts(void **state)
{
    (void)state;
    report r = make("parallelism.pipeline_parallel_degree 2 training.global_batch_size 8");
    const int64_t micro = get(r.o, "micro_batches")->integer;
    assert_int_equal(micro, 8);
    assert_int_equal(calls(&r, "send over pp", "activations"), micro);
    assert_int_equal(calls(&r, "send over pp", "gradients of activations"), micro);
    const double sent = bytes(&r, "send over pp", "activations");
    assert_true(fabs(sent - (double)(micro * 37 * 48 * 4)) <= (double)micro * 64);
    assert_int_equal(get(r.o, "pipeline_ranks")->n, 2);
    /* (p - 1) / (m + p - 1), plus the time of messages and uneven stages */
    assert_true(get(r.o, "bubble")->real > 1.0 / 9 && get(r.o, "bubble")->real < 0.3);
    job_close(&r.j);
}

/* If ranks are planned together, they share the parts that are the same for all, and the plans
 * do not change. */
/* The accumulators of a table that the first and the last stage share are exchanged once per
 * step. */
static void test_a_tied_table_is_exchanged_as_gradients(void **state)
{
    (void)state;
    report r = make("parallelism.pipeline_parallel_degree 2 training.global_batch_size 8 "
                    "model.args.tie_embeddings true");
    const int64_t micro = r.j.setup.micro_batches;
    assert_int_equal(calls(&r, "send over pp", "activations"), micro);
    assert_int_equal(calls(&r, "send over pp", "gradients of activations"), micro);
    assert_int_equal(calls(&r, "send over pp", "gradients, once per step"), 1);
    job_close(&r.j);
}

static void test_plans_of_all_ranks_are_each_ranks(void **state)
{
    (void)state;
    tt_error err = {0};
    tt_plan **all, *one;
    report r = make("parallelism.pipeline_parallel_degree 3 training.global_batch_size 16 "
                    "parallelism.pipeline_parallel_schedule ZBVZeroBubble");
    const tt_setup *s = &r.j.setup;
    s->graph->mesh = &s->mesh; /* where it lies now */
    assert_int_equal(tt_setup_plan_all(s, r.j.arena, &all, &err), TT_OK);
    for (int p = 0; p < 3; p++) {
        assert_int_equal(tt_setup_plan(s, s->graph, s->schedule, p, r.j.arena, &one, &err), TT_OK);
        assert_memory_equal(one->bytes, all[p]->bytes, sizeof one->bytes);
        assert_int_equal(one->n_stages, all[p]->n_stages);
        assert_true(one->hash == all[p]->hash && one->bubble == all[p]->bubble);
        assert_int_equal(tt_program_verify(all[p]->program, &err), TT_OK);
    }
    job_close(&r.j);
}

static void test_plan_needs_no_data(void **state)
{
    (void)state;
    report r = make("dataloader.path [\"/nowhere/at/all.txt\"] "
                    "parallelism.data_parallel_shard_degree 64 training.local_batch_size 1");
    assert_int_equal(get(r.o, "world")->integer, 64);
    job_close(&r.j);
}

/* A plan for 512 ranks; with TEST_LONG=1 for every schedule. */
#define BIG                                                                                        \
    "model.flavor 405B parallelism.data_parallel_shard_degree 8 "                                  \
    "parallelism.tensor_parallel_degree 8 parallelism.pipeline_parallel_degree 8 "                 \
    "training.local_batch_size 16 parallelism.pipeline_parallel_microbatches 16 "                  \
    "activation_checkpoint.mode full parallelism.pipeline_parallel_schedule "

static void test_largest_models_plan_in_seconds(void **state)
{
    static const char *const jobs[] = {
        "model.flavor 8B parallelism.data_parallel_shard_degree 8",
        "model.flavor 70B parallelism.data_parallel_shard_degree 32 "
        "parallelism.tensor_parallel_degree 8",
        "model.flavor 405B parallelism.data_parallel_shard_degree 8 "
        "parallelism.tensor_parallel_degree 8 "
        "parallelism.pipeline_parallel_degree 8 training.local_batch_size 8",
        "model.flavor 405B parallelism.data_parallel_shard_degree 64 "
        "parallelism.tensor_parallel_degree 8 "
        "activation_checkpoint.mode full",
        BIG "ZBVZeroBubble",
        BIG "Interleaved1F1B",
        BIG "1F1B",
        BIG "GPipe",
        BIG "InterleavedZeroBubble",
        BIG "LoopedBFS",
        BIG "DualPipeV",
    };
    const size_t n = is_long() ? TT_COUNT(jobs) : 5;
    (void)state;
    for (size_t i = 0; i < n; i++) {
        char text[500];
        snprintf(text, sizeof text, "%s training.seq_len 8192", jobs[i]);
        report r = make_of("{\"spec\": \"llama3\"}", text);
        const size_t nodes = r.j.setup.graph->nodes.n;
        assert_in_range(nodes, 1000, 20000);
        assert_in_range(tt_arena_used(r.j.arena), 4000 * nodes, 12000 * nodes); /* all passes */
        assert_true(get(get(r.o, "bytes_per_rank"), "state")->real > 1e9);
        job_close(&r.j);
    }
}

#define FSDP4 "parallelism.data_parallel_shard_degree 2 training.global_batch_size 32 "
#define NEVER "parallelism.fsdp_reshard_after_forward never "

/* Four micro-batches: one gather per parameter and one reduction per stack in a step. */
static void test_kept_parameters_are_gathered_once_per_step(void **state)
{
    (void)state;
    report always = make(FSDP4 "parallelism.fsdp_reshard_after_forward always");
    report never = make(FSDP4 NEVER);
    const int64_t params = (int64_t)never.j.setup.graph->params.n;
    assert_int_equal(always.j.setup.micro_batches, 4);
    assert_int_equal(calls(&always, "all_gather over dp_shard", "parameters"), 4 * params);
    assert_true(calls(&always, "all_gather over dp_shard", "parameters, again for the backward") >
                0);
    assert_int_equal(calls(&always, "reduce_scatter over dp_shard", "gradients"), 4 * params);
    assert_int_equal(calls(&never, "all_gather over dp_shard", "parameters"), params);
    assert_int_equal(
        calls(&never, "all_gather over dp_shard", "parameters, again for the backward"), -1);
    assert_int_equal(calls(&never, "reduce_scatter over dp_shard", "gradients"), -1);
    assert_int_equal(calls(&never, "reduce_scatter over dp_shard", "gradients, once per step"),
                     never.j.setup.graph->stacks.n);
    assert_true(fabs(4 * bytes(&never, "all_gather over dp_shard", "parameters") -
                     bytes(&always, "all_gather over dp_shard", "parameters")) < 1);
    job_close(&always.j);
    job_close(&never.j);
}

/* The update reduces what the backward does not: gradients that replicas or all micro-batches add up. */
static void test_the_update_reduces_as_the_job_says(void **state)
{
    static const struct {
        const char *mesh, *collective;
    } c[] = {
        {"parallelism.data_parallel_replicate_degree 2", "all_reduce over dp_replicate"},
        {FSDP4 NEVER,                                    "reduce_scatter over dp_shard"},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(c); i++) {
        char half[200];
        snprintf(half, sizeof half, "%s training.mixed_precision_reduce bfloat16", c[i].mesh);
        report f32 = make(c[i].mesh), bf16 = make(half);
        const double sent = bytes(&f32, c[i].collective, "gradients, once per step");
        assert_true(sent > 0);
        assert_true(bytes(&bf16, c[i].collective, "gradients, once per step") < 0.51 * sent);
        job_close(&f32.j);
        job_close(&bf16.j);
    }
}

/* A pipeline keeps gathered parameters by default, but once for all micro-batches in flight:
 * slots hold none of them. */
static void test_a_pipeline_gathers_once_per_step(void **state)
{
    (void)state;
    const char *pp = "parallelism.pipeline_parallel_degree 2 " FSDP4;
    report def = make(pp),
           always = make_of(job_text, "parallelism.pipeline_parallel_degree 2 " FSDP4
                                      "parallelism.fsdp_reshard_after_forward always");
    assert_true(def.j.setup.micro_batches > 1);
    assert_int_equal(calls(&def, "all_gather over dp_shard", "parameters") *
                         def.j.setup.micro_batches,
                     calls(&always, "all_gather over dp_shard", "parameters"));
    assert_int_equal(calls(&def, "all_gather over dp_shard", "parameters, again for the backward"),
                     -1);
    assert_int_equal(calls(&def, "reduce_scatter over dp_shard", "gradients"),
                     calls(&always, "reduce_scatter over dp_shard", "gradients"));
    job_close(&def.j);
    job_close(&always.j);
}

/* Gathered parameters take the bytes of their tensors in the compute dtype, once. */
static void test_gathered_bytes_are_the_parameters(void **state)
{
    (void)state;
    report r = make(FSDP4 NEVER "training.mixed_precision_param bfloat16");
    const tt_graph *g = r.j.setup.graph;
    int64_t want = 0;
    for (size_t i = 0; i < g->params.n; i++)
        want += (tt_type_numel(&g->params.items[i]->type) * 2 + 63) / 64 * 64;
    assert_int_equal(r.plans[0]->state_bytes_by_kind[TT_STATE_GATHERED], want);
    job_close(&r.j);
}

/* Context parallelism: how evenly the work of attention is distributed, and how many bytes each
 * method sends. 5 layers, k and v: a ring of 2 shifts both once, and once more in the backward,
 * where their gradients are shifted, too. Two samples over four ranks are two pairs of ranks
 * that exchange nothing with each other. */
static void test_context_parallel_work_and_traffic(void **state)
{
    static const struct {
        const char *degrees, *axis;
    } meshes[] = {
        {"parallelism.context_parallel_degree 2 training.local_batch_size 1", "cp" },
        {"parallelism.context_parallel_degree 4 training.local_batch_size 2", "cp1"},
    };
    static const struct {
        const char *method, *forward, *backward;
        int n_forward, n_backward;
    } rows[] = {
        {"allgather", "all_gather", "reduce_scatter", 10, 10},
        {"ring",      "ring_shift", "ring_shift",     10, 20},
        {"alltoall",  "ring_shift", "ring_shift",     10, 20},
        {"ulysses",   "all_to_all", "all_to_all",     20, 20},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows) * TT_COUNT(meshes); i++) {
        const size_t row = i % TT_COUNT(rows), mesh = i / TT_COUNT(rows);
        char text[400], name[64];
        snprintf(text, sizeof text,
                 "%s training.seq_len 40 parallelism.context_parallel_rotate_method %s",
                 meshes[mesh].degrees, rows[row].method);
        report r = make(text);
        snprintf(name, sizeof name, "%s over %s", rows[row].forward, meshes[mesh].axis);
        assert_int_equal(calls(&r, name, "activations"), rows[row].n_forward);
        snprintf(name, sizeof name, "%s over %s", rows[row].backward, meshes[mesh].axis);
        assert_int_equal(calls(&r, name, "gradients of activations"), rows[row].n_backward);
        const bool heads = strcmp(rows[row].method, "ulysses") == 0;
        assert_true(heads == (tt_json_get(r.o, "context_busiest") == NULL));
        if (!heads)
            assert_true(fabs(get(r.o, "context_busiest")->real - 1) < 1e-9);
        job_close(&r.j);
        strcat(text, " parallelism.context_parallel_load_balancer none");
        r = make(text);
        if (!heads) /* 21 + … + 40 of 820 */
            assert_true(fabs(get(r.o, "context_busiest")->real - 610 / 410.0) < 1e-4);
        job_close(&r.j);
    }
}

/* With as many tokens per rank, a longer ring takes no more memory, because it keeps neither
 * parts of the keys nor parts of the gradients over its steps. Gathered keys would take more
 * memory for a longer sequence. */
static void test_memory_of_a_ring_is_that_of_its_pieces(void **state)
{
    int64_t work[2][2];
    (void)state;
    for (int ring = 0; ring < 2; ring++)
        for (int longer = 0; longer < 2; longer++) {
            char text[300];
            snprintf(text, sizeof text,
                     "parallelism.context_parallel_degree %d training.seq_len %d "
                     "training.local_batch_size 1 model.args.dim 192 "
                     "parallelism.context_parallel_rotate_method %s",
                     longer ? 8 : 4, longer ? 2048 : 1024, ring ? "ring" : "allgather");
            report r = make(text);
            work[ring][longer] = get(get(r.o, "bytes_per_rank"), "work")->integer;
            job_close(&r.j);
        }
    print_message("work of a rank: ring of 4 %lld, of 8 %lld; gathered %lld, %lld\n",
                  (long long)work[1][0], (long long)work[1][1], (long long)work[0][0],
                  (long long)work[0][1]);
    assert_true((double)work[1][1] < 1.02 * (double)work[1][0]);
    assert_true((double)work[0][1] > 1.10 * (double)work[0][0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_of_a_ring_is_that_of_its_pieces),
        cmocka_unit_test(test_context_parallel_work_and_traffic),
        cmocka_unit_test(test_one_rank_does_not_communicate),
        cmocka_unit_test(test_fsdp_counts),
        cmocka_unit_test(test_tp_counts),
        cmocka_unit_test(test_pipeline_counts),
        cmocka_unit_test(test_a_tied_table_is_exchanged_as_gradients),
        cmocka_unit_test(test_plan_needs_no_data),
        cmocka_unit_test(test_plans_of_all_ranks_are_each_ranks),
        cmocka_unit_test(test_largest_models_plan_in_seconds),
        cmocka_unit_test(test_kept_parameters_are_gathered_once_per_step),
        cmocka_unit_test(test_the_update_reduces_as_the_job_says),
        cmocka_unit_test(test_a_pipeline_gathers_once_per_step),
        cmocka_unit_test(test_gathered_bytes_are_the_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
