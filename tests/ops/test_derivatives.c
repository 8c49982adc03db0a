/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

/* For every case, with kernels and decomposed as far as it goes: the ops' derivatives against
 * central differences of the reference kernels, all in f64. */

static const tt_backend_vt *backend;

/* Central differences with h = 1e-5 in f64 err by h² f''' ≈ 1e-10 and by 1e-16/h ≈ 1e-11 of the
 * loss; random and rope hold f32 constants on both sides alike. 1e-7 leaves room for steep
 * functions. */
#define STEP 1e-5
#define TOLERANCE 1e-7

static double loss_of(eval *e, tt_value *const *y, tt_value *const *dy, int n_y, size_t n_nodes)
{
    double loss = 0.0;
    eval_run(e, n_nodes);
    for (int k = 0; k < n_y; k++) {
        const tt_tensor *t = &e->tensors[y[k]->id], *d = &e->tensors[dy[k]->id];
        for (int64_t i = 0; i < tt_tensor_numel(t); i++)
            loss += get(t, i) * get(d, i);
    }
    return loss;
}

/* A leaf without a cotangent (grad NULL) moves the loss by nothing: it is behind a choice of top_k, or a rounding. But max_last
 * gives a number that is taken away again, so its derivative is none by design. */
static void check_leaf(eval *e, const char *name, int l, const tt_value *grad, tt_value *const *y,
                       tt_value *const *dy, int n_y, size_t n_nodes)
{
    tt_tensor *x = &e->tensors[e->leaves[l].v->id];
    int64_t n = tt_tensor_numel(x), step = n > 24 ? n / 24 : 1;
    if (!grad && !strcmp(name, "max_last"))
        return;
    if (grad)
        assert_int_equal(tt_type_numel(&grad->type), n);
    for (int64_t i = 0; i < n; i += step) {
        double at = get(x, i), analytic = grad ? get(&e->tensors[grad->id], i) : 0.0;
        put(x, i, at + STEP);
        double up = loss_of(e, y, dy, n_y, n_nodes);
        put(x, i, at - STEP);
        double down = loss_of(e, y, dy, n_y, n_nodes);
        put(x, i, at);
        double numeric = (up - down) / (2.0 * STEP);
        if (!(fabs(numeric - analytic) <= TOLERANCE * (1.0 + fabs(numeric))))
            fail_msg("%s%s: leaf %d element %lld: derivative %.12g, by differences %.12g", name,
                     e->decompose ? " (decomposed)" : "", l, (long long)i, analytic, numeric);
    }
}

/* Cases of ops that have no derivative. */
static bool is_flat(const char *name)
{
    static const char *const names[] = {"stop", "member_stats", "attention_max"};
    for (size_t i = 0; i < TT_COUNT(names); i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

static int check_case(size_t c, bool decompose)
{
    eval e;
    tt_value *y[TT_MAX_OUTS] = {0}, *dy[TT_MAX_OUTS] = {0}, *grads[24] = {0};
    int checked = 0;
    eval_init(&e, backend, decompose);
    int n_y = cases[c].fn(&e, y), n_leaves = e.n_leaves;
    if (tt_builder_error(e.b) != NULL)
        fail_msg("%s: %s", cases[c].name, tt_builder_error(e.b)->text);
    size_t n_forward = e.g->nodes.n;
    for (int k = 0; k < n_y; k++)
        dy[k] = leaf_of(&e, TT_F64, -1, 1, y[k]->type.n_dims, y[k]->type.dims);
    e.n_leaves = n_leaves;
    eval_backward(&e, y, dy, n_y, grads);
    for (int k = 0; k < n_y; k++)
        e.leaves[e.n_leaves++] = (leaf){.v = dy[k], .lo = -1, .hi = 1};
    eval_prepare(&e);
    eval_run(&e, e.g->nodes.n);
    for (int l = 0; l < n_leaves; l++) {
        if (e.leaves[l].v->type.dtype != TT_F64 || is_flat(cases[c].name))
            continue;
        check_leaf(&e, cases[c].name, l, grads[l], y, dy, n_y, n_forward);
        checked += grads[l] != NULL;
    }
    eval_release(&e);
    return checked;
}

static void test_derivatives_agree_with_differences(void **state)
{
    (void)state;
    for (size_t c = 0; c < TT_COUNT(cases); c++)
        if (check_case(c, false) == 0 && !is_flat(cases[c].name))
            fail_msg("%s: no leaf has a derivative", cases[c].name);
}

static void test_decomposed_derivatives_agree_with_differences(void **state)
{
    (void)state;
    for (size_t c = 0; c < TT_COUNT(cases); c++)
        if (check_case(c, true) == 0 && !is_flat(cases[c].name))
            fail_msg("%s: no leaf has a derivative", cases[c].name);
}

/* A stop_gradient cuts the cotangent; otherwise it is the identity. */
static void test_stop_gradient_has_no_derivative(void **state)
{
    eval e;
    tt_value *y[1], *dy[1], *grads[24] = {0};
    (void)state;
    eval_init(&e, backend, false);
    case_stop(&e, y);
    dy[0] = leaf_of(&e, TT_F64, -1, 1, y[0]->type.n_dims, y[0]->type.dims);
    eval_backward(&e, y, dy, 1, grads);
    assert_null(grads[0]);
    eval_release(&e);
}

/* Values of the decomposition and of the kernel agree to f64 rounding; rope's f32 tables are in
 * both. */
static void test_decompositions_agree_with_kernels(void **state)
{
    (void)state;
    for (size_t c = 0; c < TT_COUNT(cases); c++) {
        eval e[2];
        tt_value *y[2][TT_MAX_OUTS];
        int n_y = 0;
        for (int i = 0; i < 2; i++) {
            eval_init(&e[i], backend, i == 1);
            n_y = cases[c].fn(&e[i], y[i]);
            eval_prepare(&e[i]);
            eval_run(&e[i], e[i].g->nodes.n);
        }
        for (int k = 0; k < n_y; k++) {
            const tt_tensor *a = &e[0].tensors[y[0][k]->id], *b = &e[1].tensors[y[1][k]->id];
            assert_int_equal(tt_tensor_numel(a), tt_tensor_numel(b));
            assert_int_equal(a->dtype, b->dtype);
            for (int64_t i = 0; i < tt_tensor_numel(a); i++)
                if (!(fabs(get(a, i) - get(b, i)) <= 1e-12 * (1.0 + fabs(get(a, i)))))
                    fail_msg("%s: output %d element %lld: %.17g by its kernel, %.17g decomposed",
                             cases[c].name, k, (long long)i, get(a, i), get(b, i));
        }
        for (int i = 0; i < 2; i++)
            eval_release(&e[i]);
    }
}

static int load(void **state)
{
    (void)state;
    backend = backend_load("reference");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derivatives_agree_with_differences),
        cmocka_unit_test(test_decomposed_derivatives_agree_with_differences),
        cmocka_unit_test(test_stop_gradient_has_no_derivative),
        cmocka_unit_test(test_decompositions_agree_with_kernels),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
