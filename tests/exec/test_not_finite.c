/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/steps.h"
#include <math.h>

/* A step whose loss or gradient norm is not finite changes no parameter, no optimizer state and
 * no buffer, on any mesh. The program itself makes sure of this, whatever the caller checks
 * (R7). The next step, with finite numbers, trains on from there. */

enum { LOSS_IS_NAN, NORM_IS_INF, HEAD_IS_INF };

typedef struct numbers {
    double ok, loss, norm;
} numbers;

static tt_status bad_step(steps *s, tt_rank *r, int how, numbers *n, tt_error *err)
{
    tt_exec *x = r->exec;
    tt_exec_set_scalar(x, TT_SCALAR_INV_TOKENS, how == LOSS_IS_NAN ? 1.0 / 300 : 3e38);
    tt_exec_set_scalar(x, TT_SCALAR_LR, how == LOSS_IS_NAN ? 1e30 : 1e-3);
    TT_TRY(tt_exec_micro_batches(x, 2, steps_fill, s, err));
    TT_TRY(tt_exec_epilogue(x, err));
    TT_TRY(tt_exec_update(x, err));
    *n = (numbers){tt_exec_metric(x, TT_METRIC_OK), tt_exec_metric(x, TT_METRIC_LOSS),
                   tt_exec_metric(x, TT_METRIC_NORM)};
    return TT_OK;
}

typedef struct member {
    steps *s;
    int rank, how;
    tt_status status;
    tt_error err;
    uint64_t before, after, next;
    numbers bad;
} member;

/* With a head of zeros all other gradients are 0, whatever they are multiplied by. */
static void clear_head(tt_rank *r)
{
    tt_exec_tensor *t;
    const size_t n = tt_exec_tensors(r->exec, r->arena, &t);
    for (size_t i = 0; i < n; i++)
        if (!t[i].suffix && !strcmp(t[i].name, "lm_head.weight"))
            memset(t[i].tensor.data, 0, (size_t)tt_tensor_bytes(&t[i].tensor));
}

/* A good step, then a bad one: weights of infinity make the loss NaN, or a factor of 3e38 makes
 * the norm infinite, or the gradient of the head alone. */
static tt_status member_steps(member *m, tt_rank *r, tt_error *err)
{
    TT_TRY(steps_one(m->s, r, 0, m->rank, err));
    tt_exec_tensor *t;
    float was = 0, *at = NULL;
    const size_t n = tt_exec_tensors(r->exec, r->arena, &t);
    for (size_t i = 0; i < n && m->how == LOSS_IS_NAN; i++)
        if (!t[i].suffix && strstr(t[i].name, "norm") && tt_tensor_numel(&t[i].tensor))
            at = t[i].tensor.data;
    if (at) {
        was = *at;
        *at = (float)NAN;
    }
    if (m->how == HEAD_IS_INF)
        clear_head(r);
    m->before = steps_bits(r);
    TT_TRY(bad_step(m->s, r, m->how, &m->bad, err));
    m->after = steps_bits(r);
    if (at)
        *at = was;
    TT_TRY(steps_one(m->s, r, 2, m->rank, err));
    m->next = steps_bits(r);
    return TT_OK;
}

static void *member_main(void *arg)
{
    member *m = arg;
    tt_dist d = {.world = 1};
    tt_rank r = {0};
    if (m->s->threads)
        m->status = tt_threads_join(m->s->threads, m->rank, &d, &m->err);
    if (m->status == TT_OK)
        m->status = tt_rank_open(m->s->setup, &d, false, &r, &m->err);
    if (m->status == TT_OK) {
        m->status = tt_rank_init_params(&r, &m->err);
        if (m->status == TT_OK)
            m->status = member_steps(m, &r, &m->err);
        if (m->status != TT_OK)
            tt_dist_abort(&d, m->err.text);
        tt_rank_close(&r);
    }
    tt_dist_leave(&d);
    return NULL;
}

static void bad_steps_change_nothing(const char *overrides, int how)
{
    job j;
    steps s = {0};
    member m[16];
    pthread_t threads[16];
    tt_error err = {0};
    job_open(&j, overrides);
    s.setup = &j.setup;
    const int n = j.setup.world;
    if (n > 1 && tt_threads_new(n, 0, &s.threads, &err) != TT_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < n; i++) {
        m[i] = (member){.s = &s, .rank = i, .how = how};
        assert_int_equal(pthread_create(&threads[i], NULL, member_main, &m[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < n; i++) {
        if (m[i].status != TT_OK)
            fail_msg("%s, rank %d: %s", overrides, i, m[i].err.text);
        if (m[i].bad.ok > 0 || m[i].bad.ok < 0)
            fail_msg("%s, rank %d: ok is %g", overrides, i, m[i].bad.ok);
        assert_true(how == LOSS_IS_NAN ? isnan(m[i].bad.loss)
                                       : isfinite(m[i].bad.loss) && !isfinite(m[i].bad.norm));
        if (m[i].before != m[i].after)
            fail_msg("%s, rank %d: a step that is not finite changed the weights", overrides, i);
        assert_true(m[i].next != m[i].before);
    }
    assert_true(isfinite(s.loss[2]) && isfinite(s.norm[2]) &&
                (how == HEAD_IS_INF || s.norm[2] > 0));
    tt_threads_free(s.threads);
    job_close(&j);
}

static void test_a_step_that_is_not_finite_changes_nothing(void **state)
{
    static const char *const meshes[] = {
        "",
        "training.max_norm 0",
        "training.global_batch_size 12 debug.disable_fusion true",
        "parallelism.data_parallel_shard_degree 2 comm.overlap on",
        "parallelism.data_parallel_replicate_degree 2 parallelism.tensor_parallel_degree 2",
        "parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule "
        "ZBVZeroBubble debug.poison true",
        "backend.name reference training.seq_len 7",
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        bad_steps_change_nothing(meshes[i], LOSS_IS_NAN);
        bad_steps_change_nothing(meshes[i], NORM_IS_INF);
    }
}

/* The group of the head is not clipped, so that it is no part of the norm. */
static void test_a_group_without_clipping_must_be_finite(void **state)
{
    static const char *const meshes[] = {"", "parallelism.tensor_parallel_degree 2"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        char overrides[200];
        snprintf(overrides, sizeof overrides,
                 "optimizer.param_groups [{\"match\":\"lm_head\",\"clip_grad\":false}] %s",
                 meshes[i]);
        bad_steps_change_nothing(overrides, HEAD_IS_INF);
    }
}

static void test_ok_is_1_in_a_good_step(void **state)
{
    job j;
    tt_rank r;
    const tt_dist d = {.world = 1};
    tt_error err = {0};
    (void)state;
    job_open(&j, "");
    steps s = {.setup = &j.setup};
    assert_int_equal(tt_rank_open(&j.setup, &d, false, &r, &err), TT_OK);
    assert_int_equal(tt_rank_init_params(&r, &err), TT_OK);
    assert_int_equal(steps_one(&s, &r, 0, 0, &err), TT_OK);
    assert_true(tt_exec_metric(r.exec, TT_METRIC_OK) > 0.999 &&
                tt_exec_metric(r.exec, TT_METRIC_OK) < 1.001);
    tt_rank_close(&r);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_that_is_not_finite_changes_nothing),
        cmocka_unit_test(test_a_group_without_clipping_must_be_finite),
        cmocka_unit_test(test_ok_is_1_in_a_good_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
