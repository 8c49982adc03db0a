/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_EXEC_STEPS_H
#define TT_TESTS_EXEC_STEPS_H
#include "exec/job.h"
#include "passes/passes.h"
#include <pthread.h>

/* A few training steps directly on the executor, on synthetic tokens, on every rank of a job's
 * mesh, with the results that tests of the executor compare. */

static void (*steps_break)(tt_rank *r); /* once a rank is open; NULL = nothing */
static void (*steps_after)(tt_rank *r); /* its steps; NULL = nothing */

/* The communicator of rank-threads, for tests that stand between it and a program; NULL: there is none. */
static inline const tt_comm_vt *steps_comm(void)
{
    tt_threads *t;
    tt_dist d;
    tt_error err = {0};
    if (tt_threads_new(1, 1, &t, &err) != TT_OK)
        return NULL;
    const tt_comm_vt *vt = tt_threads_join(t, 0, &d, &err) == TT_OK ? d.vt : NULL;
    if (vt)
        tt_dist_leave(&d);
    tt_threads_free(t);
    return vt;
}

typedef struct steps_rank {
    int64_t high_water, planned; /* of work memory */
    uint64_t bits;               /* of this rank's parameters and optimizer state at the end */
    uint64_t owned;              /* of those it owns, by name and box: the sum over ranks is the
                                    same wherever they lie */
    double ns_per_instr;
} steps_rank;

typedef struct steps {
    const tt_setup *setup;
    tt_threads *threads; /* NULL: one rank */
    int n_steps;
    double loss[16], norm[16];
    uint64_t metrics[16]; /* by rank: of all metrics after each step */
    steps_rank ranks[16];
    uint64_t param_bits; /* of all, whatever the pipeline */
    tt_status status[16];
    tt_error err[16];
} steps;

static inline tt_status steps_fill(void *user, const char *input, int micro, int64_t begin,
                                   int64_t end, int32_t *dst, tt_error *err)
{
    const tt_setup *s = ((const steps *)user)->setup;
    const int64_t seq = s->core.training.seq_len;
    (void)err;
    for (int64_t t = begin; t < end; t++) {
        const int32_t id = (int32_t)((t * 7919 + micro * 104729 + t * t % 31) % 263);
        dst[t - begin] = !strcmp(input, "pos")           ? (int32_t)(t % seq)
                         : !strcmp(input, "token_index") ? (int32_t)(t + micro * 100000)
                         : !strcmp(input, "seg")         ? (int32_t)(t / seq)
                         : !strcmp(input, "labels")      ? (id % 11 ? id : -100)
                                                         : id;
    }
    return TT_OK;
}

static inline tt_status steps_one(steps *s, tt_rank *r, int step, int rank, tt_error *err)
{
    tt_exec_set_scalar(r->exec, TT_SCALAR_INV_TOKENS, 1.0 / 300);
    tt_exec_set_scalar(r->exec, TT_SCALAR_LR, 1e-3);
    TT_TRY(tt_exec_micro_batches(r->exec, step + 1, steps_fill, s, err));
    TT_TRY(tt_exec_epilogue(r->exec, err));
    if (rank == 0) {
        s->loss[step] = tt_exec_metric(r->exec, TT_METRIC_LOSS);
        s->norm[step] = tt_exec_metric(r->exec, TT_METRIC_NORM);
    }
    const tt_program *p = r->plan->program;
    for (int i = 0; i < p->n_states; i++)
        if (p->states[i].for_host) {
            const double v = tt_exec_metric(r->exec, p->states[i].name);
            s->metrics[rank] = tt_hash64(&v, sizeof v, s->metrics[rank]);
        }
    return tt_exec_update(r->exec, err);
}

/* The hash of a tensor's bytes, wherever the backend has them. */
static inline uint64_t steps_hash(const tt_rank *r, const tt_tensor *t, uint64_t seed)
{
    void *p = NULL;
    tt_error err = {0};
    if (tt_exec_map(r->exec, t, true, &p, &err) != TT_OK)
        fail_msg("%s", err.text);
    const uint64_t h = tt_hash64(p, (size_t)tt_tensor_bytes(t), seed);
    assert_int_equal(tt_exec_unmap(r->exec, t, p, false, &err), TT_OK);
    return h;
}

static inline uint64_t steps_bits(const tt_rank *r)
{
    tt_exec_tensor *t;
    uint64_t h = 0;
    const size_t n = tt_exec_tensors(r->exec, r->arena, &t);
    for (size_t i = 0; i < n; i++)
        h = steps_hash(r, &t[i].tensor, h + i);
    return h;
}

static inline uint64_t steps_owned(const tt_rank *r)
{
    tt_exec_tensor *t;
    uint64_t sum = 0;
    const size_t n = tt_exec_tensors(r->exec, r->arena, &t);
    for (size_t i = 0; i < n; i++) {
        const char *suffix = t[i].suffix ? t[i].suffix : "";
        uint64_t h = tt_hash64(t[i].name, strlen(t[i].name), 1);
        h = tt_hash64(suffix, strlen(suffix), h);
        h = tt_hash64(t[i].tensor.begin, sizeof t[i].tensor.begin, h);
        if (t[i].owner)
            sum += steps_hash(r, &t[i].tensor, h);
    }
    return sum;
}

static inline tt_status steps_rank_run(steps *s, int rank, tt_error *err)
{
    tt_dist d = {.world = 1};
    tt_rank r;
    if (s->threads)
        TT_TRY(tt_threads_join(s->threads, rank, &d, err));
    tt_status st = tt_rank_open(s->setup, &d, false, &r, err);
    if (st == TT_OK) {
        st = tt_rank_init_params(&r, err);
        if (steps_break)
            steps_break(&r);
        for (int i = 0; st == TT_OK && i < s->n_steps; i++)
            st = steps_one(s, &r, i, rank, err);
        if (st == TT_OK && steps_after)
            steps_after(&r);
        if (st == TT_OK)
            st = tt_exec_sync(r.exec, err);
        if (st != TT_OK)
            tt_dist_abort(&r.dist, err->text);
        else
            s->ranks[rank] = (steps_rank){tt_exec_high_water(r.exec), r.plan->bytes[TT_SPACE_WORK],
                                          steps_bits(&r), steps_owned(&r), 0};
        tt_rank_close(&r);
    }
    tt_dist_leave(&d);
    return st;
}

typedef struct steps_arg {
    steps *s;
    int rank;
} steps_arg;

static void *steps_main(void *arg)
{
    steps_arg *a = arg;
    a->s->status[a->rank] = steps_rank_run(a->s, a->rank, &a->s->err[a->rank]);
    return NULL;
}

static void (*steps_change)(job *j); /* before the ranks open; NULL = nothing */

/* The status of the first rank that failed by itself, not because another rank failed. */
static inline tt_status steps_of_job(const job *j, int n_steps, steps *s, tt_error *err)
{
    pthread_t threads[16];
    steps_arg args[16];
    memset(s, 0, sizeof *s);
    s->setup = &j->setup;
    s->n_steps = n_steps;
    const int n = j->setup.world;
    if (n > 1 && tt_threads_new(n, 0, &s->threads, err) != TT_OK)
        fail_msg("%s", err->text);
    for (int i = 0; i < n; i++) {
        args[i] = (steps_arg){s, i};
        if (n == 1)
            steps_main(&args[0]);
        else if (pthread_create(&threads[i], NULL, steps_main, &args[i]))
            fail_msg("no thread");
    }
    tt_status st = TT_OK;
    for (int i = 0; i < n; i++) {
        if (n > 1)
            pthread_join(threads[i], NULL);
        if (s->status[i] == TT_OK || (st != TT_OK && s->status[i] == TT_ECOMM))
            continue;
        st = s->status[i];
        *err = s->err[i];
    }
    for (int i = 0; i < n; i++)
        s->param_bits += s->ranks[i].owned;
    tt_threads_free(s->threads);
    return st;
}

static inline tt_status steps_try(const char *overrides, int n_steps, steps *s, tt_error *err)
{
    job j;
    job_open(&j, overrides);
    if (steps_change)
        steps_change(&j);
    const tt_status st = steps_of_job(&j, n_steps, s, err);
    job_close(&j);
    return st;
}

static inline void steps_run(const char *overrides, int n_steps, steps *s)
{
    tt_error err = {0};
    if (steps_try(overrides, n_steps, s, &err) != TT_OK)
        fail_msg("%s: %s", overrides, err.text);
}

static inline void steps_same_bits(const steps *a, const steps *b, const char *what)
{
    for (int i = 0; i < a->n_steps; i++)
        if (memcmp(&a->loss[i], &b->loss[i], sizeof *a->loss) ||
            memcmp(&a->norm[i], &b->norm[i], sizeof *a->norm))
            fail_msg("%s: step %d: loss %.9g and %.9g, norm %.9g and %.9g", what, i + 1, a->loss[i],
                     b->loss[i], a->norm[i], b->norm[i]);
    for (int r = 0; r < 16; r++)
        if (a->ranks[r].bits != b->ranks[r].bits)
            fail_msg("%s: parameters of rank %d differ", what, r);
}

#endif
