/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_ORACLE_CHECK_H
#define TT_TESTS_ORACLE_CHECK_H
#include "oracle/oracle.h"
#include "tier.h"

/* Compares a run with its golden file: initial values, steps, and the first step's gradients (sgd's
 * momentum after one step). */

static inline uint32_t oracle_crc_of(const oracle_tensor *t)
{
    return (uint32_t)crc32(crc32(0, NULL, 0), (const Bytef *)t->data,
                           (uInt)((size_t)t->n * sizeof(float)));
}

/* The sign of element i, ±1, as signs() in oracle.py gives it. */
static inline double oracle_sign_of(int64_t i, int k)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)k * 0x9E3779B9u;
    h ^= h >> 15;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    return h >> 16 & 1 ? -1.0 : 1.0;
}

static inline void oracle_check_init(const oracle_golden *g, const oracle_run *r)
{
    const tt_json *init = oracle_get(g->root, "init");
    for (size_t i = 0; i < init->n; i++) {
        const oracle_tensor *t = oracle_find(r, init->keys[i], NULL);
        if (oracle_crc_of(t) != (uint32_t)init->items[i]->integer)
            fail_msg("%s: initial values are not those of the golden file", t->name);
    }
}

static inline void oracle_check_samples(const oracle_tensor *t, const tt_json *want,
                                        double tolerance)
{
    const tt_json *samples = oracle_get(want, "samples");
    assert_int_equal(samples->n, TT_MIN(t->n, ORACLE_SAMPLES));
    for (size_t j = 0; j < samples->n; j++) {
        const int64_t i = t->n <= ORACLE_SAMPLES
                              ? (int64_t)j
                              : (int64_t)((j * UINT64_C(2654435761) + 97) % (uint64_t)t->n);
        const double a = (double)t->data[i], b = samples->items[j]->real;
        if (!(fabs(a - b) <= tolerance))
            fail_msg("gradient of %s[%lld]: %.9g, PyTorch has %.9g: %.2f of the tolerance", t->name,
                     (long long)i, a, b, fabs(a - b) / tolerance);
    }
}

/* Compares every element through sums with random signs: errors of `tolerance` each add up as √n.
 */
static inline void oracle_check_sums(const oracle_tensor *t, const tt_json *want, double tolerance)
{
    const tt_json *sums = oracle_get(want, "sums");
    assert_int_equal(sums->n, ORACLE_SIGNS);
    for (int k = 0; k < ORACLE_SIGNS; k++) {
        double a = 0;
        const double b = sums->items[k]->real, most = tolerance * sqrt((double)t->n);
        for (int64_t i = 0; i < t->n; i++)
            a += oracle_sign_of(i, k) * (double)t->data[i];
        if (!(fabs(a - b) <= most))
            fail_msg(
                "gradient of %s: signed sum %d is %.9g, PyTorch has %.9g: %.2f of the tolerance",
                t->name, k, a, b, fabs(a - b) / most);
    }
}

/* The losses besides the cross-entropy, by name; those that ttrun logs are no more than these. */
static inline void oracle_check_losses(const tt_json *want, const tt_json *have, double loss)
{
    if (!want) {
        assert_null(have);
        return;
    }
    assert_non_null(have);
    assert_int_equal(have->n, want->n + 1);
    assert_true(fabs(oracle_get(have, "cross_entropy")->real - loss) <= 1e-9);
    for (size_t i = 0; i < want->n; i++) {
        const double a = oracle_get(have, want->keys[i])->real, b = want->items[i]->real;
        if (!(fabs(a - b) <= 1e-5 * fmax(1, fabs(b))))
            fail_msg("loss %s: %.9g, PyTorch has %.9g", want->keys[i], a, b);
    }
}

/* How many of its golden steps a job does on a backend: `reference`, which is slow, does three of them, all in the long tier: its
 * kernels are those of each step, and tests/ops compares each with those of `cpu`. */
static inline int oracle_steps_on(const oracle_golden *g, const char *backend)
{
    const int n = (int)oracle_get(g->root, "steps")->n;
    return is_long() || strcmp(backend, "reference") ? n : TT_MIN(n, 3);
}

/* These steps of the job, with their learning rates. */
static inline oracle_run *oracle_run_on(const oracle_golden *g, const char *backend)
{
    const int n = oracle_steps_on(g, backend), all = (int)oracle_get(g->root, "steps")->n;
    const char *steps = tt_arena_printf(g->arena, "%d", n),
               *schedule = tt_arena_printf(g->arena, "%d", all);
    const tt_override o[] = {
        {"backend.name",             backend },
        {"training.steps",           steps   },
        {"lr_scheduler.total_steps", schedule},
    };
    return oracle_run_job(g, o, n < all ? TT_COUNT(o) : 1);
}

/* Losses, norms and rates of a run of the first n golden steps. */
static inline void oracle_check_first_steps(const oracle_golden *g, const oracle_run *r, int n,
                                            double loss_tolerance, double norm_tolerance)
{
    const tt_json *steps = oracle_get(g->root, "steps");
    assert_int_equal(r->n_steps, n);
    for (int i = 0; i < r->n_steps; i++) {
        const double loss = oracle_get(steps->items[i], "loss")->real,
                     norm = oracle_get(steps->items[i], "grad_norm")->real,
                     lr = oracle_get(steps->items[i], "lr")->real;
        if (!(fabs(r->loss[i] - loss) <= loss_tolerance))
            fail_msg("step %d: loss %.9g, PyTorch has %.9g", i + 1, r->loss[i], loss);
        if (!(fabs(r->norm[i] / norm - 1) <= norm_tolerance))
            fail_msg("step %d: grad_norm %.9g, PyTorch has %.9g", i + 1, r->norm[i], norm);
        oracle_check_losses(tt_json_get(steps->items[i], "losses"), r->losses[i], r->loss[i]);
        if (!(fabs(r->lr[i] - lr) <= 1e-14))
            fail_msg("step %d: lr %.17g, PyTorch has %.17g", i + 1, r->lr[i], lr);
    }
}
/* Of a run of all of them. */
static inline void oracle_check_steps(const oracle_golden *g, const oracle_run *r,
                                      double loss_tolerance, double norm_tolerance)
{
    oracle_check_first_steps(g, r, (int)oracle_get(g->root, "steps")->n, loss_tolerance,
                             norm_tolerance);
}

/* Compares each parameter and its gradient, nothing else. Where PyTorch's own float32 is farther from its float64
 * than a tolerance, we may be as far. */
static inline void oracle_check_first_step(const oracle_golden *g, const oracle_run *r)
{
    const tt_json *gradients = oracle_get(g->root, "gradients");
    const double rms_all = oracle_get(g->root, "rms_all")->real;
    const tt_json *f32 = tt_json_get(g->root, "float32");
    const double most = f32 ? fmax(1, oracle_get(f32, "gradient")->real) : 1;
    oracle_check_init(g, r);
    oracle_check_steps(g, r, 1e-5, 1e-5);
    assert_int_equal(r->n_tensors, 2 * gradients->n);
    for (size_t i = 0; i < gradients->n; i++) {
        const oracle_tensor *t = oracle_find(r, gradients->keys[i], "momentum_buffer");
        const double tolerance =
            most * oracle_tolerance(oracle_get(gradients->items[i], "rms")->real, rms_all);
        oracle_check_samples(t, gradients->items[i], tolerance);
        oracle_check_sums(t, gradients->items[i], tolerance);
    }
}

#endif
