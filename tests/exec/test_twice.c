/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/steps.h"

/* An epilogue whose instructions run again (tt_exec_run_twice), where one result of a reduction is wrong on one
 * rank alone: all ranks make the same calls, and the right bits stay. */

typedef struct watched {
    int calls, wrong; /* of all_reduce; wrong: the number of the one with a wrong bit, 0: none */
    int64_t differing, unsettled;
    double norm;
    tt_status status;
    tt_error err;
} watched;

static watched of_rank[2];
static _Thread_local watched *mine;
static const tt_comm_vt *real; /* of rank-threads */
static tt_comm_vt wrong_once;

static tt_status reduce(tt_comm *g, void *buf, int64_t n, tt_dtype t, tt_reduce op, tt_error *err)
{
    TT_TRY(real->all_reduce(g, buf, n, t, op, err));
    if (++mine->calls == mine->wrong)
        *(float *)buf += 1;
    return TT_OK;
}

static tt_status epilogue_again(tt_rank *r, tt_error *err)
{
    steps s = {.setup = r->s};
    TT_TRY(tt_exec_micro_batches(r->exec, 2, steps_fill, &s, err));
    mine->calls = 0;
    tt_exec_run_twice(r->exec, true);
    TT_TRY(tt_exec_epilogue(r->exec, err));
    mine->norm = tt_exec_metric(r->exec, TT_METRIC_NORM);
    mine->differing = tt_exec_differed(r->exec)->n;
    mine->unsettled = tt_exec_differed(r->exec)->unsettled;
    tt_exec_run_twice(r->exec, false);
    return TT_OK;
}

static void run_again(tt_rank *r)
{
    mine = &of_rank[r->dist.rank];
    r->dist.data_vt = &wrong_once; /* the program's own dist */
    mine->status = epilogue_again(r, &mine->err);
    if (mine->status != TT_OK)
        tt_dist_abort(&r->dist, mine->err.text);
}

static double norm_of(const char *mesh, int wrong)
{
    char text[300];
    steps s;
    snprintf(text, sizeof text,
             "%s debug.replay_interval 1 model.args.n_layers 2 training.seq_len 8", mesh);
    memset(of_rank, 0, sizeof of_rank);
    of_rank[1].wrong = wrong;
    steps_after = run_again;
    steps_run(text, 1, &s);
    steps_after = NULL;
    for (size_t i = 0; i < TT_COUNT(of_rank); i++)
        if (of_rank[i].status != TT_OK)
            fail_msg("%s: rank %zu: %s", mesh, i, of_rank[i].err.text);
    return of_rank[0].norm;
}

static void test_a_rank_alone_makes_no_third_call(void **state)
{
    static const char *const meshes[] = {
        "parallelism.data_parallel_shard_degree 2",
        "parallelism.data_parallel_replicate_degree 2",
        "parallelism.pipeline_parallel_degree 2",
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        const double norm = norm_of(meshes[i], 0);
        const int calls = of_rank[1].calls;
        assert_true(calls >= 6 && calls % 3 == 0 && norm > 0);
        assert_int_equal(of_rank[1].differing, 0);
        const int some[] = {1, calls - 1, calls}; /* of the first and the last reduction */
        for (size_t k = 0; k < TT_COUNT(some); k++) {
            const int wrong = some[k];
            const bool last = wrong % 3 == 0; /* of the three runs of an instruction */
            const double got = norm_of(meshes[i], wrong);
            assert_true(!memcmp(&got, &norm, sizeof got));
            assert_true(last || !memcmp(&of_rank[1].norm, &norm, sizeof norm));
            assert_int_equal(of_rank[0].calls, of_rank[1].calls);
            assert_int_equal(of_rank[0].differing, 0);
            assert_int_equal(of_rank[1].differing, 1);
            assert_int_equal(of_rank[1].unsettled, last);
        }
    }
}

int main(void)
{
    real = steps_comm();
    if (!real)
        return 1;
    wrong_once = *real;
    wrong_once.all_reduce = reduce;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rank_alone_makes_no_third_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
