/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include "../../plugins/models/moe.h"

/* tt_experts(), tt_choose_experts() and the router of plugins/models/moe.h against loops that are
 * written out. T tokens, k choices, E experts, D inputs and O outputs of an expert. */

enum { D = 5, O = 3, MOST = 512 };

static const tt_backend_vt *backend;

typedef struct sizes {
    int64_t T, k, E;
    double lo, hi; /* of the experts that are chosen, [lo, hi) */
    tt_dtype dtype;
} sizes;

static tt_value *one_product(tt_builder *b, const tt_expert_rows *rows, const void *user)
{
    return tt_grouped_linear(b, rows->x, (tt_value *)(uintptr_t)user, rows->counts);
}

static void near_all(const eval *e, const tt_value *v, const double *want, int64_t n, double most)
{
    for (int64_t i = 0; i < n; i++) {
        const double have = get(&e->tensors[v->id], i);
        if (!(fabs(have - want[i]) <= most))
            fail_msg("element %lld: %.9g, wanted %.9g", (long long)i, have, want[i]);
    }
}

static void copy(const eval *e, const tt_value *v, double *to, int64_t n)
{
    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++)
        to[i] = get(&e->tensors[v->id], i);
}

/* Values and derivatives of sum over t, o of c[t,o] * experts(x)[t,o]. */
typedef struct sums {
    double x[MOST], a[MOST], r[MOST], w[MOST], c[MOST]; /* inputs; r: weights of the choices */
    double y[MOST], dx[MOST], dr[MOST], dw[MOST];       /* results */
} sums;

static void by_loops(const sizes *s, sums *v)
{
    for (int64_t t = 0; t < s->T; t++)
        for (int64_t j = 0; j < s->k; j++) {
            const int64_t e = (int64_t)v->a[t * s->k + j];
            const double r = v->r[t * s->k + j];
            for (int64_t o = 0; e >= 0 && e < s->E && o < O; o++)
                for (int64_t i = 0; i < D; i++) {
                    const double x = v->x[t * D + i], w = v->w[(e * O + o) * D + i],
                                 c = v->c[t * O + o];
                    v->y[t * O + o] += r * w * x;
                    v->dx[t * D + i] += c * r * w;
                    v->dr[t * s->k + j] += c * w * x;
                    v->dw[(e * O + o) * D + i] += c * r * x;
                }
        }
}

static void check_experts(const sizes *s)
{
    eval e;
    sums *v = calloc(1, sizeof *v);
    eval_init(&e, backend, false);
    tt_value *x = leaf_of(&e, s->dtype, -1, 1, 2, DIMS(N(s->T), N(D)));
    tt_value *a = leaf_of(&e, TT_I32, s->lo, s->hi, 2, DIMS(N(s->T), N(s->k)));
    tt_value *r = leaf_of(&e, TT_F32, 0, 1, 2, DIMS(N(s->T), N(s->k)));
    tt_value *w = leaf_of(&e, s->dtype, -1, 1, 3, DIMS(N(s->E), N(O), N(D)));
    tt_value *c = leaf_of(&e, s->dtype, -1, 1, 2, DIMS(N(s->T), N(O))), *grads[24];
    tt_value *y = tt_experts(e.b, x, a, r, s->E, one_product, w);
    assert_int_equal(tt_value_type(y)->dtype, s->dtype);
    eval_backward(&e, &y, &c, 1, grads);
    eval_prepare(&e);
    eval_run(&e, e.g->nodes.n);
    copy(&e, x, v->x, s->T * D);
    copy(&e, a, v->a, s->T * s->k);
    copy(&e, r, v->r, s->T * s->k);
    copy(&e, w, v->w, s->E * O * D);
    copy(&e, c, v->c, s->T * O);
    by_loops(s, v);
    const double most = s->dtype == TT_BF16 ? 0.05 : 1e-5; /* bf16: rows are rounded, too */
    near_all(&e, y, v->y, s->T * O, most);
    near_all(&e, grads[0], v->dx, s->T * D, most);
    near_all(&e, grads[2], v->dr, s->T * s->k, most);
    near_all(&e, grads[3], v->dw, s->E * O * D, most);
    eval_release(&e);
    free(v);
}

/* Odd numbers of slots, experts without slots, slots of no expert, k = E, one of each, all to one. */
static void test_experts_equal_loops(void **state)
{
    static const sizes all[] = {
        {5,  3, 7, 0,  7, TT_F32 },
        {3,  3, 9, 2,  6, TT_F32 },
        {7,  2, 4, -2, 6, TT_F32 },
        {4,  3, 3, 0,  3, TT_F32 },
        {1,  1, 1, 0,  1, TT_F32 },
        {9,  1, 5, 4,  5, TT_F32 },
        {3,  2, 4, -5, 0, TT_F32 },
        {11, 3, 5, 0,  5, TT_BF16},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(all); i++)
        check_experts(&all[i]);
}

/* Choices of whole numbers have ties: the lower expert first. (test_check_own.sh compares the
 * derivatives of mixtral with differences.) */
static void test_choice_is_by_bias_and_weights_are_not(void **state)
{
    enum { T = 7, E = 6, K = 3 };
    eval e;
    tt_value *assign, *weights;
    (void)state;
    eval_init(&e, backend, false);
    tt_value *x = leaf_of(&e, TT_F32, 0, 1, 2, DIMS(N(T), N(E)));
    tt_value *whole = tt_floor(e.b, leaf_of(&e, TT_F32, 0, 4, 2, DIMS(N(T), N(E))));
    tt_choose_experts(e.b, x, whole, K, &assign, &weights);
    eval_prepare(&e);
    eval_run(&e, e.g->nodes.n);
    for (int t = 0; t < T; t++)
        for (int j = 0; j < K; j++) {
            const int a = (int)get(&e.tensors[assign->id], t * K + j);
            int before = 0;
            for (int i = 0; i < E; i++) {
                const double p = get(&e.tensors[whole->id], t * E + i),
                             q = get(&e.tensors[whole->id], t * E + a);
                before += p > q || (!(p < q) && i < a);
            }
            assert_int_equal(before, j);
            assert_true(get(&e.tensors[weights->id], t * K + j) ==
                        get(&e.tensors[x->id], t * E + a));
        }
    eval_release(&e);
}

/* Which groups of a row are kept: the number of better ones, the lower of equals first, is below the
 * limit. */
static bool kept(const double *group, int n, int g, int limit)
{
    int better = 0;
    for (int i = 0; i < n; i++)
        better += group[i] > group[g] || (!(group[i] < group[g]) && i < g);
    return better < limit;
}

static void check_groups(int score)
{
    enum { T = 9, G = 4, S = 3, LIMIT = 2 };
    const moe_config c = {
        .experts = G * S, .groups = G, .group_limit = LIMIT, .group_score = score};
    eval e;
    eval_init(&e, backend, false);
    tt_value *x = leaf_of(&e, TT_F32, -1, 1, 2, DIMS(N(T), N(G * S)));
    tt_value *y = moe_limit_groups(e.b, &c, x);
    eval_prepare(&e);
    eval_run(&e, e.g->nodes.n);
    for (int t = 0; t < T; t++) {
        double group[G];
        for (int g = 0; g < G; g++) {
            double first = -9, second = -9;
            for (int i = 0; i < S; i++) {
                const double v = get(&e.tensors[x->id], t * G * S + g * S + i);
                second = v > first ? first : v > second ? v : second;
                first = v > first ? v : first;
            }
            group[g] = score == MOE_GROUP_MAX ? first : first + second;
        }
        for (int i = 0; i < G * S; i++) {
            const double v = get(&e.tensors[y->id], t * G * S + i);
            assert_true(kept(group, G, i / S, LIMIT) ? v == get(&e.tensors[x->id], t * G * S + i)
                                                     : v < -3e38);
        }
    }
    eval_release(&e);
}

static void test_groups_by_the_best_two_and_by_the_best(void **state)
{
    (void)state;
    check_groups(MOE_GROUP_TOP2);
    check_groups(MOE_GROUP_MAX);
}

/* Slots 5, 1, 3, 3 of a mean of 3: steps -1, 1, 0, 0; of 8, 1, 1, 2: -1, 1, 1, 1, less 0.5 if centred. In f32
 * the numbers of the last row would be equal. */
static void test_bias_moves_towards_equally_busy_experts(void **state)
{
    static const double slots[3][4] =
        {
            {5,        1,        3,        3       },
            {8,        1,        1,        2       },
            {67108865, 67108864, 67108864, 67108863}
    },
                        steps[3][4] = {{-1, 1, 0, 0}, {-1, 1, 1, 1}, {-1, 0, 0, 1}};
    (void)state;
    for (int i = 0; i < 6; i++) {
        const bool centred = i & 1;
        moe_config c = {.experts = 4, .bias_update_rate = 0.25, .bias_update_centred = centred};
        eval e;
        eval_init(&e, backend, false);
        tt_value *bias = leaf_of(&e, TT_F32, -1, 1, 1, DIMS(N(4))),
                 *all = leaf_of(&e, TT_F64, 0, 1, 1, DIMS(N(4)));
        tt_value *y = moe_next_bias(e.b, bias, all, &c);
        eval_prepare(&e);
        for (int k = 0; k < 4; k++)
            put(&e.tensors[all->id], k, slots[i / 2][k]);
        eval_run(&e, e.g->nodes.n);
        for (int k = 0; k < 4; k++) {
            const double step = steps[i / 2][k] - (centred && i / 2 == 1 ? 0.5 : 0);
            assert_true(fabs(get(&e.tensors[y->id], k) - get(&e.tensors[bias->id], k) -
                             0.25 * step) < 1e-6);
        }
        eval_release(&e);
    }
}

int main(void)
{
    backend = backend_load("reference");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts_equal_loops),
        cmocka_unit_test(test_choice_is_by_bias_and_weights_are_not),
        cmocka_unit_test(test_groups_by_the_best_two_and_by_the_best),
        cmocka_unit_test(test_bias_moves_towards_equally_busy_experts),
    };
    return cmocka_run_group_tests_name("experts", tests, NULL, NULL);
}
