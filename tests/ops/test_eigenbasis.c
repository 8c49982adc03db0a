/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"
#include "tensors.h"
#include <ttrun/eigenbasis.h>
#include <ttrun/option.h>

/* tt_eigenbasis_at: bases are orthonormal, hold eigenvectors in their order, and have the same bits for any
 * number of threads. */

typedef struct problem {
    int64_t n;
    float *a, *q, *out;
    void *scratch;
} problem;

/* a = g gᵀ of a random g [n, rank] */
static problem make(int64_t n, int64_t rank)
{
    uint64_t random = 7;
    problem p = {.n = n};
    p.a = calloc((size_t)(n * n), sizeof *p.a);
    p.q = calloc((size_t)(n * n), sizeof *p.q);
    p.out = calloc((size_t)(n * n), sizeof *p.out);
    p.scratch = malloc(tt_eigenbasis_scratch(n));
    double *g = calloc((size_t)(n * rank + 1), sizeof *g);
    for (int64_t i = 0; i < n * rank; i++)
        g[i] = 2 * eval_uniform(&random) - 1;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < rank; k++)
                sum += g[i * rank + k] * g[j * rank + k];
            p.a[i * n + j] = (float)sum;
        }
    free(g);
    return p;
}

static void drop(problem *p)
{
    free(p->a);
    free(p->q);
    free(p->out);
    free(p->scratch);
}

static double product(const float *x, const float *y, int64_t i, int64_t j, int64_t n)
{
    double sum = 0; /* of columns i and j */
    for (int64_t k = 0; k < n; k++)
        sum += (double)x[k * n + i] * (double)y[k * n + j];
    return sum;
}

static void assert_orthonormal(const float *q, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            assert_true(fabs(product(q, q, i, j, n) - (i == j)) < 1e-6);
}

/* q[:,i]ᵀ a q[:,j] */
static double in_basis(const float *a, const float *q, int64_t i, int64_t j, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++) {
        double row = 0;
        for (int64_t l = 0; l < n; l++)
            row += (double)a[k * n + l] * (double)q[l * n + j];
        sum += (double)q[k * n + i] * row;
    }
    return sum;
}

static void test_eigenvectors_diagonalize_in_descending_order(void **state)
{
    static const int64_t sizes[][2] = {
        {1,  1 },
        {2,  2 },
        {3,  1 },
        {7,  9 },
        {33, 40},
        {24, 5 },
        {24, 0 }
    };
    (void)state;
    for (size_t s = 0; s < TT_COUNT(sizes); s++) {
        problem p = make(sizes[s][0], sizes[s][1]);
        const int64_t n = p.n;
        tt_eigenbasis_at(NULL, p.a, p.q, n, 2, p.scratch, p.out);
        assert_orthonormal(p.out, n);
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < n; j++)
                if (i != j)
                    assert_true(fabs(in_basis(p.a, p.out, i, j, n)) < 2e-6 * (double)(n + 1));
            if (i)
                assert_true(in_basis(p.a, p.out, i, i, n) <=
                            in_basis(p.a, p.out, i - 1, i - 1, n) + 1e-5);
        }
        drop(&p);
    }
}

/* Against Gram-Schmidt in double, columns by their estimated eigenvalues; equal up to signs. */
static void test_a_step_is_the_qr_of_the_product(void **state)
{
    enum { N = 13 };
    (void)state;
    problem p = make(N, 20);
    uint64_t random = 3;
    double want[N][N], estimate[N];
    int order[N];
    tt_eigenbasis_at(NULL, p.a, p.q, N, 2, p.scratch, p.q);
    for (int i = 0; i < N * N; i++) /* near eigenvectors, in another order */
        p.out[i] = p.q[i / N * N + (i % N * 5) % N] + 0.02f * (float)eval_uniform(&random);
    memcpy(p.q, p.out, sizeof(float) * N * N);
    for (int j = 0; j < N; j++) {
        estimate[j] = in_basis(p.a, p.q, j, j, N);
        order[j] = j;
        for (int k = j; k > 0 && estimate[order[k]] > estimate[order[k - 1]]; k--) {
            const int other = order[k];
            order[k] = order[k - 1];
            order[k - 1] = other;
        }
    }
    for (int r = 0; r < N; r++) {
        const int j = order[r];
        double *w = want[j], size = 0;
        for (int i = 0; i < N; i++) {
            w[i] = 0;
            for (int k = 0; k < N; k++)
                w[i] += (double)p.a[i * N + k] * (double)p.q[k * N + j];
        }
        for (int twice = 0; twice < 2; twice++)
            for (int before = 0; before < r; before++) {
                const double *v = want[order[before]];
                double along = 0;
                for (int i = 0; i < N; i++)
                    along += v[i] * w[i];
                for (int i = 0; i < N; i++)
                    w[i] -= along * v[i];
            }
        for (int i = 0; i < N; i++)
            size += w[i] * w[i];
        for (int i = 0; i < N; i++)
            w[i] /= sqrt(size);
    }
    tt_eigenbasis_at(NULL, p.a, p.q, N, 1, p.scratch, p.out);
    assert_orthonormal(p.out, N);
    for (int j = 0; j < N; j++) {
        double same = 0;
        for (int i = 0; i < N; i++)
            same += want[j][i] * (double)p.out[i * N + j];
        assert_true(fabs(fabs(same) - 1) < 1e-6);
    }
    tt_eigenbasis_at(NULL, p.a, p.q, N, 0, p.scratch, p.out);
    assert_memory_equal(p.out, p.q, sizeof(float) * N * N);
    drop(&p);
}

static void test_a_step_of_a_matrix_without_full_rank_is_orthonormal(void **state)
{
    (void)state;
    problem p = make(40, 3);
    for (int64_t i = 0; i < p.n; i++)
        p.q[i * p.n + i] = 1;
    tt_eigenbasis_at(NULL, p.a, p.q, p.n, 1, p.scratch, p.out);
    assert_orthonormal(p.out, p.n);
    drop(&p);
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    problem p = make(300, 320);
    float *alone = malloc(sizeof(float) * (size_t)(p.n * p.n));
    tt_pool *pool = NULL;
    tt_error err = {0};
    assert_int_equal(tt_pool_new(3, &pool, &err), TT_OK);
    for (float how = 2; how >= 1; how -= 1) {
        tt_eigenbasis_at(NULL, p.a, p.q, p.n, how, p.scratch, alone);
        tt_eigenbasis_at(pool, p.a, p.q, p.n, how, p.scratch, p.out);
        assert_memory_equal(alone, p.out, sizeof(float) * (size_t)(p.n * p.n));
        memcpy(p.q, p.out, sizeof(float) * (size_t)(p.n * p.n));
    }
    tt_pool_free(pool);
    free(alone);
    drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eigenvectors_diagonalize_in_descending_order),
        cmocka_unit_test(test_a_step_is_the_qr_of_the_product),
        cmocka_unit_test(test_a_step_of_a_matrix_without_full_rank_is_orthonormal),
        cmocka_unit_test(test_threads_do_not_change_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
