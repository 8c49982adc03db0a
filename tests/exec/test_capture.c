/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/exec_impl.h"
#include "exec/far_folder.h"
#include "exec/steps.h"
#include "plugins/far/far.h"
#include "tier.h"
#include <unistd.h>

/* Sections of a program as graphs of the device of tests/plugins/far: which parts become graphs, that
 * all of them do, and that the numbers are those of the reference. */

#define SMALL "training.seq_len 9 model.args.n_layers 2 model.args.dim 48 "
#define PIPELINE                                                                                   \
    SMALL "training.local_batch_size 4 parallelism.pipeline_parallel_degree 2 "                    \
          "parallelism.pipeline_parallel_microbatches 4 "

/* Without a pipeline: forward, backward, epilogue, update, and two more if further micro-batches add to
 * what the first stores. With one: the micro-batches that use a slot share a graph, the first one's
 * is another. Only receives stay alone. */
static const struct {
    const char *overrides;
    size_t graphs[2]; /* of pipeline ranks 0 and 1 */
    int loose;        /* instructions that are in no graph, but for inputs */
} jobs[] = {
    {SMALL "training.local_batch_size 2",                                                             {4, 4}, 0},
    {SMALL "training.local_batch_size 2 training.global_batch_size 8",                                {6, 6}, 0},
    {SMALL "training.local_batch_size 2 training.enable_cpu_offload true",                            {4, 4}, 0},
    {SMALL "training.local_batch_size 2 training.seq_len 64",                                         {4, 4}, 0},
    {SMALL "training.local_batch_size 2 parallelism.data_parallel_shard_degree 2 comm.overlap on "
           "training.global_batch_size 8",                                                       {6, 6},
     0                                                                                                         },
    {SMALL "training.local_batch_size 2 training.seq_len 16 comm.overlap on "
           "parallelism.tensor_parallel_degree 2 parallelism.enable_async_tensor_parallel true", {4, 4},
     0                                                                                                         },
    {PIPELINE,                                                                                        {8, 6}, 1},
    {PIPELINE "parallelism.data_parallel_shard_degree 2 comm.overlap on "
              "training.local_batch_size 8",                                                     {8, 6},
     1                                                                                                         },
    {PIPELINE "parallelism.pipeline_parallel_schedule ZBVZeroBubble model.args.n_layers 4",
     {20, 24},
     2                                                                                                         },
};

enum { N_STEPS = 4, N_MORE = 2, N_ORDERS = 4 }; /* orders: of far, by seed */

static struct {
    tt_exec_graph_counts counts[16]; /* by rank */
    int64_t per_step[16];            /* parts of calls that graphs run */
    int loose[16];
    bool captured_comm[16];
    bool trace; /* two steps more, the first of them traced */
} seen;

static void count_parts(const tt_rank *r)
{
    const tt_exec *x = r->exec;
    const int rank = r->dist.rank;
    seen.counts[rank] = tt_exec_count_graphs(x);
    seen.loose[rank] = 0;
    seen.per_step[rank] = 0;
    seen.captured_comm[rank] = false;
    for (size_t k = 0; k < x->graphs.parts.n; k++) {
        const tt_graph_part *part = &x->graphs.parts.items[k];
        for (int i = part->begin; i < part->end; i++) {
            const tt_instr *n = &x->p->instrs[i];
            seen.loose[rank] +=
                !part->captured && n->kind < TT_INSTR_ADOPT && n->kind != TT_INSTR_INPUT;
            seen.captured_comm[rank] |= part->captured && tt_instr_communicates(n);
        }
    }
    for (size_t u = 0; u < x->graphs.uses.n; u++)
        seen.per_step[rank] += x->graphs.uses.items[u] >= 0;
}

/* A traced step launches nothing, the next one does again. */
static void step_traced(tt_rank *r)
{
    tt_error err = {0};
    steps s = {.setup = r->s};
    const int64_t before = tt_exec_count_graphs(r->exec).launches;
    if (tt_exec_trace_open(r->exec, &err) != TT_OK)
        fail_msg("%s", err.text);
    tt_exec_trace(r->exec, true);
    if (steps_one(&s, r, N_STEPS, r->dist.rank, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(tt_exec_count_graphs(r->exec).launches, before);
    tt_exec_trace(r->exec, false);
    if (steps_one(&s, r, N_STEPS + 1, r->dist.rank, &err) != TT_OK)
        fail_msg("%s", err.text);
}

static void after_steps(tt_rank *r)
{
    if (seen.trace)
        step_traced(r);
    count_parts(r);
}

static void run_far(job *j, int n_steps, int seed, steps *s, const char *what)
{
    tt_error err = {0};
    ((far_config *)(void *)(uintptr_t)j->setup.backend.config)->seed = seed;
    steps_after = after_steps;
    if (steps_of_job(j, n_steps, s, &err) != TT_OK)
        fail_msg("%s: seed %d: %s", what, seed, err.text);
    steps_after = NULL;
}

static void open_far(job *j, const char *overrides, const char *more)
{
    char text[1000];
    snprintf(text, sizeof text, "%s backend.name far %s", overrides, more);
    job_open(j, text);
}

/* Several tests compare with the same steps, which are made once. */
static void reference(const char *overrides, int n_steps, steps *s)
{
    static struct {
        const char *overrides;
        steps of[N_STEPS + N_MORE + 1]; /* by their number; 0 steps: not made yet */
    } kept[2 * TT_COUNT(jobs)];
    char text[1000];
    size_t k = 0;
    while (kept[k].overrides && strcmp(kept[k].overrides, overrides))
        assert_true(++k < TT_COUNT(kept));
    kept[k].overrides = overrides;
    snprintf(text, sizeof text, "%s backend.name reference", overrides);
    if (!kept[k].of[n_steps].n_steps)
        steps_run(text, n_steps, &kept[k].of[n_steps]);
    *s = kept[k].of[n_steps];
}

static void same(const steps *a, const steps *b, const char *what)
{
    for (int i = 0; i < N_STEPS; i++)
        if (memcmp(&a->loss[i], &b->loss[i], sizeof *a->loss) ||
            memcmp(&a->norm[i], &b->norm[i], sizeof *a->norm))
            fail_msg("%s: other numbers in step %d", what, i + 1);
    for (int r = 0; r < 16; r++)
        if (a->ranks[r].bits != b->ranks[r].bits)
            fail_msg("%s: other parameters on rank %d", what, r);
}

/* Each part is captured when it runs for the second time and launched from then on. */
static void test_graphs_give_the_numbers_of_the_reference(void **state)
{
    (void)state;
    seen.trace = true;
    for (size_t k = 0; k < TT_COUNT(jobs); k++) {
        steps right, s;
        job j;
        reference(jobs[k].overrides, N_STEPS + N_MORE, &right);
        open_far(&j, jobs[k].overrides, "comm.backend far");
        run_far(&j, N_STEPS, (int)k % N_ORDERS, &s, jobs[k].overrides);
        same(&right, &s, jobs[k].overrides);
        for (int r = 0; r < j.setup.world; r++) {
            const tt_exec_graph_counts *c = &seen.counts[r];
            const bool last = r >= j.setup.world / 2 && j.setup.world > 1;
            assert_int_equal(c->n_graphs, jobs[k].graphs[last]);
            assert_int_equal(c->captured, (int64_t)c->n_graphs);
            assert_int_equal(c->refused, 0);
            assert_int_equal(c->launches,
                             seen.per_step[r] * (N_STEPS + N_MORE - 1) - (int64_t)c->n_graphs);
            assert_int_equal(seen.loose[r], jobs[k].loose);
            assert_int_equal(seen.captured_comm[r], j.setup.world > 1);
        }
        job_close(&j);
    }
    seen.trace = false;
}

static void check_off(const char *more)
{
    const char *overrides = jobs[7].overrides;
    steps right, s;
    job j;
    reference(overrides, N_STEPS, &right);
    open_far(&j, overrides, more);
    run_far(&j, N_STEPS, 1, &s, more);
    same(&right, &s, more);
    for (int r = 0; r < j.setup.world; r++) {
        assert_int_equal(seen.counts[r].n_graphs, 0); /* none was tried */
        assert_int_equal(seen.counts[r].captured, 0);
        assert_int_equal(seen.counts[r].launches, 0);
    }
    job_close(&j);
}

static void test_nothing_is_captured_where_each_op_is_looked_at(void **state)
{
    (void)state;
    check_off("comm.backend far debug.capture off");
    check_off("comm.backend far debug.sync true");
    check_off("comm.backend far debug.poison true");
    check_off("comm.backend far debug.detect_nan true");
}

/* Collectives of the host's communicator stand between graphs. */
static void test_calls_on_the_host_end_a_graph(void **state)
{
    (void)state;
    for (size_t k = 4; k < TT_COUNT(jobs); k++) {
        steps right, s;
        job j;
        reference(jobs[k].overrides, N_STEPS, &right);
        open_far(&j, jobs[k].overrides, "comm.backend local");
        run_far(&j, N_STEPS, 1, &s, jobs[k].overrides);
        same(&right, &s, jobs[k].overrides);
        for (int r = 0; r < j.setup.world; r++) {
            assert_true(seen.counts[r].launches > 0);
            assert_int_equal(seen.counts[r].refused, 0);
            assert_false(seen.captured_comm[r]);
        }
        job_close(&j);
    }
}

/* ---- parts between which collectives are under way ---- */

enum { MOST_INSTRS = 16 };

/* Cuts the program's sections into short parts, of which every third runs instruction by instruction. */
static void cut_short(tt_rank *r)
{
    tt_exec *x = r->exec;
    memset(&x->graphs, 0, sizeof x->graphs);
    tt_exec_graphs_open(x, MOST_INSTRS);
    for (size_t i = 2; i < x->graphs.graphs.n; i += 3)
        x->graphs.graphs.items[i].refused = true;
}

static void test_queues_stay_in_order_across_graphs(void **state)
{
    static const char *const spanning[] = {
        SMALL "training.local_batch_size 2 parallelism.data_parallel_shard_degree 2 comm.overlap "
              "on training.global_batch_size 8",
        SMALL "training.seq_len 16 training.local_batch_size 2 comm.overlap on "
              "parallelism.tensor_parallel_degree 2 parallelism.data_parallel_shard_degree 2",
    };
    (void)state;
    for (size_t k = 0; k < TT_COUNT(spanning); k++) {
        steps right, s;
        job j;
        reference(spanning[k], N_STEPS, &right);
        open_far(&j, spanning[k], "comm.backend far");
        steps_break = cut_short;
        for (int seed = 0; seed < N_ORDERS; seed++) {
            if (!in_tier(k, (size_t)seed, 2))
                continue;
            run_far(&j, N_STEPS, seed, &s, spanning[k]);
            same(&right, &s, spanning[k]);
            for (int r = 0; r < j.setup.world; r++) {
                assert_true(seen.counts[r].launches > 10);
                assert_int_equal(seen.counts[r].refused, 0);
            }
        }
        steps_break = NULL;
        job_close(&j);
    }
}

/* ---- a device that cannot capture ---- */

static bool begin_refuses;
static int n_calls;
static tt_status (*real_end)(void *, tt_device_queue *, tt_device_graph **, tt_error *);
static void (*real_free)(void *, tt_device_graph *);

static tt_status refuse_begin(void *self, tt_device_queue *q, tt_error *err)
{
    (void)self, (void)q;
    return TT_FAIL(err, TT_EUNSUPPORTED, "no capture today");
}

/* After some calls the device has captured, but does not give a graph. */
static tt_status refuse_end(void *self, tt_device_queue *q, tt_device_graph **out, tt_error *err)
{
    tt_device_graph *g = NULL;
    TT_TRY(real_end(self, q, &g, err));
    if (__atomic_add_fetch(&n_calls, 1, __ATOMIC_RELAXED) % 2)
        return *out = g, TT_OK;
    real_free(self, g);
    return TT_FAIL(err, TT_EUNSUPPORTED, "no graph today");
}

static void refuse_captures(tt_rank *r)
{
    tt_device_vt *vt = tt_arena_alloc(r->exec->arena, sizeof *vt);
    *vt = *r->exec->o.device.vt;
    real_end = vt->capture_end;
    real_free = vt->graph_free;
    vt->capture_end = refuse_end;
    if (begin_refuses)
        vt->capture_begin = refuse_begin;
    r->exec->o.device.vt = vt;
}

static void check_refused(const char *overrides)
{
    steps right, s;
    job j;
    int64_t refused = 0;
    reference(overrides, N_STEPS, &right);
    open_far(&j, overrides, "comm.backend far");
    steps_break = refuse_captures;
    run_far(&j, N_STEPS, 1, &s, overrides);
    steps_break = NULL;
    same(&right, &s, overrides);
    for (int r = 0; r < j.setup.world; r++) {
        const tt_exec_graph_counts *c = &seen.counts[r];
        refused += c->refused;
        assert_int_equal(c->refused + c->captured, (int64_t)c->n_graphs);
    }
    assert_true(refused > 0);
    job_close(&j);
}

static void test_what_the_device_does_not_capture_runs_op_by_op(void **state)
{
    (void)state;
    for (size_t k = 0; k < TT_COUNT(jobs); k += 3) {
        begin_refuses = k % 2;
        check_refused(jobs[k].overrides);
    }
}

/* ---- failures of work that the host does not wait for ---- */

static void check_failure(const char *more, const char *text)
{
    steps s;
    job j;
    tt_error err = {0};
    open_far(&j, jobs[4].overrides, more);
    ((far_config *)(void *)(uintptr_t)j.setup.backend.config)->fail = "attention_bwd";
    ((far_config *)(void *)(uintptr_t)j.setup.backend.config)->fail_at =
        2 * 4 + 3; /* of step 3, the third of 4 */
    assert_int_equal(steps_of_job(&j, N_STEPS, &s, &err), TT_EIO);
    if (!strstr(err.text, text))
        fail_msg("%s: \"%s\" is not in: %s", more, text, err.text);
    job_close(&j);
}

static void test_a_late_failure_names_step_and_rank(void **state)
{
    (void)state;
    check_failure("comm.backend far", "step 3, rank ");
    check_failure("comm.backend far", "--debug.sync true names the op");
    check_failure("comm.backend far debug.capture off", "--debug.sync true names the op");
}

static void test_with_sync_a_failure_names_the_op(void **state)
{
    (void)state;
    check_failure("comm.backend far debug.sync true",
                  "step 3, attention_bwd in \"model.layers.1.self_attn\": rank ");
    check_failure("comm.backend local debug.sync true",
                  "step 3, attention_bwd in \"model.layers.1.self_attn\": rank ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs_give_the_numbers_of_the_reference),
        cmocka_unit_test(test_nothing_is_captured_where_each_op_is_looked_at),
        cmocka_unit_test(test_calls_on_the_host_end_a_graph),
        cmocka_unit_test(test_queues_stay_in_order_across_graphs),
        cmocka_unit_test(test_what_the_device_does_not_capture_runs_op_by_op),
        cmocka_unit_test(test_a_late_failure_names_step_and_rank),
        cmocka_unit_test(test_with_sync_a_failure_names_the_op),
    };
    return cmocka_run_group_tests(tests, far_folder, NULL);
}
