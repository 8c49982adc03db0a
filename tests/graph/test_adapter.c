/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"
#include <ttrun/param.h>

#include "graph/sim.c"

/* What a plugin may say of parameters that belong together, and which errors it gets for the rest: adapters, magnitudes,
 * codes. */

static tt_value *param(tt_builder *b, const char *name, int n, int64_t rows, int64_t cols)
{
    const tt_dim dims[] = {TT_DIM(rows, NULL), TT_DIM(cols, NULL), TT_DIM(1, NULL)};
    return tt_param(b, name, dims, n, NULL);
}

typedef struct opened {
    tt_arena *arena;
    tt_op_table ops;
    tt_builder *b;
} opened;

static void open_builder(opened *x)
{
    x->arena = tt_arena_new();
    x->ops = sim_ops();
    const tt_builder_opts o = {
        .ops = &x->ops, .tokens = 2, .sequences = 1, .has_kernel = sim_has_kernel};
    x->b = tt_builder_new(x->arena, &o);
}

/* want: a part of the error; NULL: there is none. */
static void close_builder(opened *x, const char *want)
{
    const tt_error *e = tt_builder_error(x->b);
    if ((e != NULL) != (want != NULL) || (e && !strstr(e->text, want)))
        fail_msg("expected: %s; seen: %s", want ? want : "no error", e ? e->text : "no error");
    tt_arena_free(x->arena);
}

#define SHAPES "adapter of w: the shapes are not w [out,in], a [r,in], b [out,r]"

static void test_adapters_fit_their_weight(void **state)
{
    static const struct {
        int n_w, n_a, n_b;
        int64_t w[2], a[2], b[2];
        const char *want;
    } rows[] = {
        {2, 2, 2, {6, 5}, {3, 5}, {6, 3}, NULL  },
        {2, 2, 2, {6, 5}, {3, 4}, {6, 3}, SHAPES},
        {2, 2, 2, {6, 5}, {3, 5}, {5, 3}, SHAPES},
        {2, 2, 2, {6, 5}, {3, 5}, {6, 2}, SHAPES},
        {2, 2, 2, {6, 5}, {5, 3}, {3, 6}, SHAPES},
        {1, 2, 2, {6, 5}, {3, 5}, {6, 3}, SHAPES},
        {2, 1, 2, {6, 5}, {3, 5}, {6, 3}, SHAPES},
        {2, 2, 1, {6, 5}, {3, 5}, {6, 3}, SHAPES},
        {3, 2, 2, {6, 5}, {3, 5}, {6, 3}, SHAPES},
        {2, 3, 2, {6, 5}, {3, 5}, {6, 3}, SHAPES},
        {2, 2, 3, {6, 5}, {3, 5}, {6, 3}, SHAPES},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        opened x;
        open_builder(&x);
        tt_value *w = param(x.b, "w", rows[i].n_w, rows[i].w[0], rows[i].w[1]);
        tt_value *a = param(x.b, "a", rows[i].n_a, rows[i].a[0], rows[i].a[1]);
        tt_value *b = param(x.b, "b", rows[i].n_b, rows[i].b[0], rows[i].b[1]);
        const double scale = tt_param_adapter(x.b, w, a, b, &(tt_adapter_opts){6, 0, i % 2 == 1});
        if (!rows[i].want)
            assert_true(scale > 1.999 && scale < 2.001);
        close_builder(&x, rows[i].want);
    }
}

static void test_a_weight_has_one_adapter_and_one_magnitude(void **state)
{
    const tt_adapter_opts opts = {3, 0, 1};
    opened x;
    (void)state;
    for (int fault = 0; fault < 7; fault++) {
        open_builder(&x);
        tt_value *w = param(x.b, "w", 2, 6, 5), *a = param(x.b, "a", 2, 3, 5);
        tt_value *b = param(x.b, "b", 2, 6, 3), *m = param(x.b, "m", 1, 6, 0);
        if (fault == 1) {
            tt_param_magnitude(x.b, w, m);
            close_builder(&x, "magnitude of w: the weight must have an adapter");
            continue;
        }
        /* a block that multiplies the weight twice says so twice */
        for (int k = 0; k < 2; k++) {
            const double scale = tt_param_adapter(x.b, w, a, b, &opts);
            assert_true(scale > 1.7320 && scale < 1.7321);
            tt_param_magnitude(x.b, w, m);
        }
        if (fault == 2)
            tt_param_adapter(x.b, w, param(x.b, "a2", 2, 3, 5), b, &opts);
        if (fault == 3)
            tt_param_magnitude(x.b, w, param(x.b, "m2", 1, 6, 0));
        if (fault == 4)
            tt_param_magnitude(x.b, w, param(x.b, "m2", 1, 5, 0));
        if (fault == 5)
            tt_param_magnitude(x.b, w, tt_scale(x.b, m, 2.0));
        if (fault == 6)
            tt_param_adapter(x.b, tt_scale(x.b, w, 2.0), a, b, &opts);
        static const char *const want[] = {
            NULL,
            NULL,
            "adapter of w: the weight has an adapter already",
            "magnitude of w: the weight has another one already",
            "magnitude of w: it has one element for each row",
            "magnitude of w: the weight must have an adapter, and "
            "its magnitude be a parameter",
            "adapter of a value: weight, a and b must be parameters"};
        close_builder(&x, want[fault]);
    }
}

static void test_codes_are_of_parameters_of_two_dims(void **state)
{
    opened x;
    (void)state;
    for (int fault = 0; fault < 5; fault++) {
        open_builder(&x);
        tt_value *w = param(x.b, "w", fault == 1 ? 1 : 2, 64, 64);
        if (fault == 2)
            w = tt_scale(x.b, w, 2.0);
        tt_param_store_codes(x.b, w, fault == 3 ? (tt_codes)99 : TT_CODES_NF4);
        if (fault == 4)
            tt_param_store_codes(x.b, w, TT_CODES_INT8);
        static const char *const want[] = {NULL, "only parameters of two dims are",
                                           "only parameters of two dims are",
                                           "there is no such format", "it is already"};
        close_builder(&x, want[fault]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adapters_fit_their_weight),
        cmocka_unit_test(test_a_weight_has_one_adapter_and_one_magnitude),
        cmocka_unit_test(test_codes_are_of_parameters_of_two_dims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
