/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/dead.h"
#include "heap.h"
#include "plan/plan_impl.h"
#include "tier.h"
#include <math.h>

/* comm.overlap: communication that runs concurrently with computation changes no bit and needs
 * only the planned memory, and every reader of its result waits for it. */

#define ON " comm.overlap on"
#define OFF " comm.overlap off"

enum { N_STEPS = 2 }; /* the second one's parameters are the first one's result */

static const char *const more_meshes[] = {
    "parallelism.data_parallel_replicate_degree 2 parallelism.data_parallel_shard_degree 2",
    "parallelism.data_parallel_shard_degree 2 parallelism.context_parallel_degree 2",
    "parallelism.tensor_parallel_degree 2 parallelism.context_parallel_degree 2",
    "parallelism.data_parallel_shard_degree 2 activation_checkpoint.mode full "
    "training.global_batch_size 16",
    "parallelism.data_parallel_shard_degree 2 parallelism.tensor_parallel_degree 2 "
    "parallelism.pipeline_parallel_degree 2 training.global_batch_size 16",
    "parallelism.data_parallel_shard_degree 2 training.mixed_precision_param bfloat16 "
    "training.mixed_precision_reduce bfloat16 parallelism.tensor_parallel_degree 2",
    "parallelism.data_parallel_shard_degree 2 debug.detect_nan true",
    "parallelism.context_parallel_degree 4 parallelism.context_parallel_rotate_method ring "
    "training.seq_len 256",
    "parallelism.context_parallel_degree 2 parallelism.context_parallel_rotate_method ulysses "
    "training.seq_len 256",
    "parallelism.data_parallel_replicate_degree 2 parallelism.data_parallel_shard_degree 1",
    "parallelism.data_parallel_replicate_degree 2 parallelism.data_parallel_shard_degree 2 "
    "model.args.tie_embeddings true training.mixed_precision_param bfloat16 "
    "training.mixed_precision_reduce bfloat16",
    "parallelism.data_parallel_replicate_degree 2 parallelism.data_parallel_shard_degree 1 "
    "parallelism.tensor_parallel_degree 2 model.args.tie_embeddings true",
    "parallelism.tensor_parallel_degree 3 parallelism.enable_async_tensor_parallel true "
    "model.args.dim 96",
    "parallelism.tensor_parallel_degree 2 parallelism.data_parallel_shard_degree 2 "
    "parallelism.pipeline_parallel_degree 2 parallelism.enable_async_tensor_parallel true "
    "training.global_batch_size 16",
};

static const char *mesh_at(size_t i)
{
    const size_t n = TT_COUNT(job_meshes);
    return i < n ? job_meshes[i] : i < n + TT_COUNT(more_meshes) ? more_meshes[i - n] : NULL;
}

static size_t n_async(const tt_graph *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->nodes.n; i++)
        n += g->nodes.items[i]->async;
    return n;
}

/* Runs N_STEPS of a job; returns how many of its nodes are asynchronous. */
static size_t run(const char *overrides, steps *s)
{
    job j;
    tt_error err = {0};
    job_open(&j, overrides);
    const size_t n = n_async(j.setup.graph);
    if (steps_of_job(&j, N_STEPS, s, &err) != TT_OK)
        fail_msg("%s: %s", overrides, err.text);
    job_close(&j);
    return n;
}

/* The steps of a mesh with overlap off, which have no asynchronous node: both tests compare with them. */
static const steps *without_overlap(size_t i, const char *mesh)
{
    static steps kept[64];
    char text[500];
    assert_true(i < TT_COUNT(kept));
    if (!kept[i].n_steps) {
        snprintf(text, sizeof text, "%s%s", mesh, *mesh ? OFF : OFF + 1);
        assert_int_equal(run(text, &kept[i]), 0);
    }
    return &kept[i];
}

static void test_overlap_changes_no_bit(void **state)
{
    const char *mesh;
    size_t n = 0;
    (void)state;
    for (size_t i = 0; (mesh = mesh_at(i)); i++) {
        steps on;
        char text[500];
        const steps *off = without_overlap(i, mesh);
        assert_true(isfinite(off->loss[N_STEPS - 1]) && off->loss[N_STEPS - 1] > 0);
        snprintf(text, sizeof text, "%s%s", mesh, *mesh ? ON : ON + 1);
        n += run(text, &on) > 0;
        steps_same_bits(off, &on, text);
    }
    assert_true(n >= 19); /* all with dp_shard, cp or tp */
}

/* With poison every async collective runs at its wait, and its destination is NaN until then: an
 * instruction that reads too early reads NaN, and one that overwrites its source corrupts it. */
static void test_poisoned_overlap_uses_the_bytes_of_the_plan(void **state)
{
    const char *mesh;
    (void)state;
    for (size_t i = 0; (mesh = mesh_at(i)); i++) {
        steps on;
        char text[500];
        int64_t used = 0, planned = 0;
        if (!in_tier(i, 0, 2))
            continue;
        snprintf(text, sizeof text, "%s%s debug.poison true", mesh, *mesh ? ON : ON + 1);
        dead_left = 0;
        steps_after = dead_look;
        steps_run(text, N_STEPS, &on);
        steps_after = NULL;
        assert_int_equal(dead_left, 0);
        steps_same_bits(without_overlap(i, mesh), &on, text);
        for (int r = 0; r < 16; r++) {
            used = TT_MAXV(used, on.ranks[r].high_water);
            planned = TT_MAXV(planned, on.ranks[r].planned);
        }
        if (used != planned)
            fail_msg("%s: %lld bytes used, %lld planned", text, (long long)used,
                     (long long)planned);
    }
}

/* ---- broken on purpose ---- */

static int broken_wait; /* of the waits of forward and backward */
static _Atomic int n_broken;

static void forget_a_wait(tt_rank *r)
{
    const tt_program *p = r->plan->program;
    int at = 0;
    for (int i = 0; i < p->sections[p->epilogue].begin; i++) {
        tt_bound *b = &r->exec->code[i];
        if (b->kind == TT_INSTR_WAIT && b->pending && at++ == broken_wait) {
            b->pending = NULL;
            n_broken = 1;
        }
    }
}

static void test_a_missing_wait_changes_the_result(void **state)
{
    static const char *const meshes[] = {
        "parallelism.data_parallel_shard_degree 2" ON " debug.poison true",
        "parallelism.tensor_parallel_degree 2" ON " debug.poison true",
        "parallelism.tensor_parallel_degree 2 parallelism.enable_async_tensor_parallel "
        "true model.args.dim 96" ON " debug.poison true",
    };
    int n = 0;
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        steps right, wrong;
        steps_run(meshes[m], 1, &right);
        n_broken = 1;
        for (broken_wait = 0; n_broken; broken_wait += 3) {
            tt_error err = {0};
            n_broken = 0;
            steps_break = forget_a_wait;
            const tt_status s = steps_try(meshes[m], 1, &wrong, &err);
            steps_break = NULL;
            n += n_broken;
            if (n_broken && s == TT_OK &&
                !memcmp(&right.loss[0], &wrong.loss[0], sizeof right.loss[0]) &&
                !memcmp(&right.norm[0], &wrong.norm[0], sizeof right.norm[0]))
                fail_msg("%s: nobody noticed that wait %d is gone", meshes[m], broken_wait);
        }
    }
    assert_true(n > 12);
}

/* The program of a plan that a test has changed. */
static bool refused(const tt_plan *p)
{
    tt_arena *a = tt_arena_new();
    tt_program program;
    tt_error err = {0};
    tt_program_make(p, NULL, a, &program);
    const tt_status s = tt_program_verify(&program, &err);
    tt_arena_free(a);
    assert_true(s == TT_OK || strstr(err.text, "memory plan: "));
    return s != TT_OK;
}

/* Each wait of a plan in turn is dropped or comes one item too late; the scratch and the result
 * of each async collective are moved to a value that is alive at the same time. */
static void test_the_plan_is_refused_without_a_wait(void **state)
{
    const char *mesh;
    int n = 0;
    (void)state;
    for (size_t i = 0; (mesh = mesh_at(i)); i++) {
        job j;
        tt_plan *p;
        tt_error err = {0};
        char text[500];
        snprintf(text, sizeof text, "%s%s", mesh, *mesh ? ON : ON + 1);
        job_open(&j, text);
        assert_int_equal(
            tt_setup_plan(&j.setup, j.setup.graph, j.setup.schedule, 0, j.arena, &p, &err), TT_OK);
        for (int part = 0; part < TT_N_PARTS; part++) {
            tt_nodes *l = &p->stages[0].part[part];
            for (int k = 0; k < l->n_waits; k++) {
                const tt_wait w = l->waits[k];
                memmove(l->waits + k, l->waits + k + 1,
                        (size_t)(l->n_waits - k - 1) * sizeof *l->waits);
                l->n_waits--;
                if (!refused(p))
                    fail_msg("%s: a plan without the wait before item %d", text, w.before);
                memmove(l->waits + k + 1, l->waits + k,
                        (size_t)(l->n_waits - k) * sizeof *l->waits);
                l->n_waits++;
                l->waits[k] = w;
                n++;
                if (w.before == l->n || (k + 1 < l->n_waits && l->waits[k + 1].before == w.before))
                    continue;
                l->waits[k].before++;
                if (!refused(p))
                    fail_msg("%s: a plan with a wait behind item %d", text, w.before);
                l->waits[k] = w;
            }
        }
        assert_false(refused(p));
        job_close(&j);
    }
    assert_true(n > 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap_changes_no_bit),
        cmocka_unit_test(test_poisoned_overlap_uses_the_bytes_of_the_plan),
        cmocka_unit_test(test_a_missing_wait_changes_the_result),
        cmocka_unit_test(test_the_plan_is_refused_without_a_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
