/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/converters/delayed.h"
#include "eval.h"

/* Delayed scaling, step by step: the scale after each step has the bits of TransformerEngine's formulas
 * (make_delayed_golden.py). */

static const tt_backend_vt *backend;

enum { STEPS = 24 };

typedef struct golden {
    int length, most_recent;
    double largest;
    uint32_t steps[STEPS][2]; /* bits of this step's maximum, and of the scale after it */
} golden;

static const golden goldens[] = {
#define DELAYED(length, most_recent, largest, ...) {length, most_recent, largest, {__VA_ARGS__}},
#include "delayed_golden.def"
#undef DELAYED
};

static float number_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Two scales with the same maxima, as two experts have them: both must be right. */
static void check(const golden *g)
{
    eval e;
    eval_init(&e, backend, false);
    const tt_dim dims[] = {TT_DIM(g->length + 1, NULL), TT_DIM(2, NULL)};
    const tt_dim maxima[] = {TT_DIM(2, NULL), TT_DIM(1, NULL), TT_DIM(1, NULL)};
    delayed_rule rule = {g->largest > 1000 ? TT_LOW_E5M2 : TT_LOW_E4M3, g->most_recent};
    tt_value *state = leaf_of(&e, TT_F32, 0, 0, 2, dims);
    tt_value *amax = leaf_of(&e, TT_F32, 0, 0, 3, maxima);
    tt_value *next = delayed_next(e.b, state, amax, &rule);
    eval_prepare(&e);
    float *s = e.tensors[state->id].data, *a = e.tensors[amax->id].data;
    const float *n = e.tensors[next->id].data;
    memset(s, 0, sizeof *s * 2 * (size_t)(g->length + 1));
    for (int k = 0; k < STEPS; k++) {
        a[0] = a[1] = number_of(g->steps[k][0]);
        eval_run(&e, e.g->nodes.n);
        memcpy(s, n, sizeof *s * 2 * (size_t)(g->length + 1));
        for (int i = 0; i < 2; i++) {
            const float scale = s[2 * g->length + i], got = scale > 0 ? scale : 1.0f;
            if (bits_of(got) != g->steps[k][1])
                fail_msg("length %d, most recent %d, step %d: scale %a, not %a", g->length,
                         g->most_recent, k, (double)got, (double)number_of(g->steps[k][1]));
            if (bits_of(s[2 * (g->length - 1) + i]) != g->steps[k][0])
                fail_msg("length %d, step %d: the last maximum is %a", g->length, k,
                         (double)s[2 * (g->length - 1) + i]);
        }
    }
    eval_release(&e);
}

static void test_scales_are_those_of_the_formulas(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(goldens); i++)
        check(&goldens[i]);
}

/* A number that grows beyond what the scale of earlier steps leaves room for becomes the largest; the
 * inverse of the factor is the scale. */
static void test_a_given_factor_saturates(void **state)
{
    (void)state;
    static const float x[] = {0.5f, -3.0f, 1000.0f, -1e30f};
    static const double q[] = {1.0, -6.0, 448.0, -448.0};
    eval e;
    eval_init(&e, backend, false);
    const tt_dim dims[] = {TT_DIM(2, NULL), TT_DIM(2, NULL)};
    const tt_dim one[] = {TT_DIM(1, NULL), TT_DIM(1, NULL)};
    tt_value *v = leaf_of(&e, TT_F32, 0, 0, 2, dims), *times = leaf_of(&e, TT_F32, 2, 2, 2, one);
    tt_quantize_opts o = {.struct_size = sizeof o, .times = times};
    tt_value *scale = NULL, *low = tt_quantize(e.b, v, &o, &scale);
    tt_value *amax = tt_amax(e.b, v, &o), *back = tt_cast(e.b, low, TT_F32);
    eval_prepare(&e);
    memcpy(e.tensors[v->id].data, x, sizeof x);
    eval_run(&e, e.g->nodes.n);
    assert_true(get(&e.tensors[scale->id], 0) == 0.5);
    assert_true(get(&e.tensors[amax->id], 0) == (double)1e30f);
    for (int i = 0; i < 4; i++)
        assert_true(get(&e.tensors[back->id], i) == q[i]);
    eval_release(&e);
}

static int load(void **state)
{
    (void)state;
    backend = backend_load("reference");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scales_are_those_of_the_formulas),
                                       cmocka_unit_test(test_a_given_factor_saturates)};
    return cmocka_run_group_tests(tests, load, NULL);
}
