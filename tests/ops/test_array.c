/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include <jansson.h>

/* Builder functions of numbers, indices, order and shapes against PyTorch: tests/golden/array.json,
 * written by array_golden.py. The reference backend computes in f64 and i32. Results are equal, down to
 * the sign of zero, but for erf, sin and cos, where the math libraries' last bits differ. */

static json_t *golden;
static const tt_backend_vt *backend;

static double number(const json_t *v)
{
    return json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v);
}

static int64_t arg(const json_t *c, const char *key)
{
    return (int64_t)json_number_value(json_object_get(c, key));
}

static void fill(eval *e, const tt_value *v, const json_t *values)
{
    const tt_tensor *t = &e->tensors[v->id];
    assert_int_equal((int64_t)json_array_size(values), tt_tensor_numel(t));
    for (size_t i = 0; i < json_array_size(values); i++)
        put(t, (int64_t)i, number(json_array_get(values, i)));
}

static int build(eval *e, const json_t *c, tt_value *x, tt_value *y, tt_value **out)
{
    tt_builder *b = e->b;
    const char *name = json_string_value(json_object_get(c, "name"));
    const int dim = (int)arg(c, "dim"), keep = (int)arg(c, "keep");
    const int64_t n = arg(c, "n");
    tt_value *got = !strcmp(name, "erf")                 ? tt_erf(b, x)
                    : !strcmp(name, "sin")               ? tt_sin(b, x)
                    : !strcmp(name, "cos")               ? tt_cos(b, x)
                    : !strcmp(name, "floor_div")         ? tt_floor_div(b, x, y)
                    : !strcmp(name, "mod")               ? tt_mod(b, x, y)
                    : !strcmp(name, "argmax")            ? tt_argmax(b, x, dim, keep)
                    : !strcmp(name, "argmin")            ? tt_argmin(b, x, dim, keep)
                    : !strcmp(name, "roll")              ? tt_roll(b, x, dim, n)
                    : !strcmp(name, "repeat")            ? tt_repeat(b, x, dim, n)
                    : !strcmp(name, "cast")              ? tt_cast(b, x, TT_I32)
                    : !strcmp(name, "repeat_interleave") ? tt_repeat_interleave(b, x, dim, n)
                                                         : NULL;
    if (!strcmp(name, "pad"))
        got = tt_pad(b, x, dim, arg(c, "before"), arg(c, "after"),
                     json_number_value(json_object_get(c, "value")));
    if (!strcmp(name, "one_hot"))
        got = tt_one_hot(b, x, N(n), TT_F64);
    if (!strcmp(name, "iota"))
        got = tt_iota(b, tt_value_type(x)->dims, tt_value_type(x)->n_dims, dim, TT_F64);
    out[0] = got;
    if (strcmp(name, "sort") != 0)
        return 1;
    tt_sort(b, x, (int)arg(c, "descending"), &out[0], &out[1]);
    return 2;
}

static void check(const eval *e, const char *name, size_t number_of, const tt_value *v,
                  const json_t *want)
{
    const tt_tensor *t = &e->tensors[v->id];
    const bool near = !strcmp(name, "erf") || !strcmp(name, "sin") || !strcmp(name, "cos");
    assert_int_equal((int64_t)json_array_size(want), tt_tensor_numel(t));
    for (size_t i = 0; i < json_array_size(want); i++) {
        const double w = number(json_array_get(want, i)), g = get(t, (int64_t)i);
        const bool same = (isnan(w) && isnan(g)) ||
                          (w == g && (t->dtype == TT_I32 || !signbit(w) == !signbit(g)));
        if (!same && !(near && fabs(g - w) <= 1e-15 * (1.0 + fabs(w))))
            fail_msg("%s (case %zu): element %zu is %.17g, PyTorch has %.17g", name, number_of, i,
                     g, w);
    }
}

static void check_case(const json_t *c, size_t number_of, bool decompose)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *shape = json_object_get(c, "shape"), *wants = json_object_get(c, "want"), *y;
    const tt_dtype dtype = arg(c, "ints") ? TT_I32 : TT_F64;
    tt_dim dims[TT_MAX_DIMS];
    tt_value *out[2] = {NULL, NULL}, *second = NULL;
    eval e;
    eval_init(&e, backend, decompose);
    const int n = (int)json_array_size(shape);
    for (int d = 0; d < n; d++)
        dims[d] = N(json_integer_value(json_array_get(shape, (size_t)d)));
    tt_value *x = leaf_of(&e, dtype, 0, 1, n, dims);
    if ((y = json_object_get(c, "y")) != NULL)
        second = leaf_of(&e, dtype, 0, 1, n, dims);
    const int n_out = build(&e, c, x, second, out);
    if (out[0] == NULL)
        fail_msg("%s is no function that this test knows", name);
    eval_prepare(&e);
    fill(&e, x, json_object_get(c, "x"));
    if (y != NULL)
        fill(&e, second, y);
    eval_run(&e, e.g->nodes.n);
    assert_int_equal((int)json_array_size(wants), n_out);
    for (int k = 0; k < n_out; k++)
        check(&e, name, number_of, out[k], json_array_get(wants, (size_t)k));
    eval_release(&e);
}

static void test_functions_of_arrays_are_those_of_pytorch(void **state)
{
    size_t i;
    const json_t *c;
    (void)state;
    assert_true(json_array_size(golden) > 50);
    json_array_foreach(golden, i, c)
    {
        check_case(c, i, false);
        check_case(c, i, true);
    }
}

/* ---- what no PyTorch case can say ---- */

static void test_integers_by_zero_and_out_of_range(void **state)
{
    static const double x_of[] = {5, -5, 0, INT32_MIN, INT32_MIN, INT32_MAX},
                        y_of[] = {0, 0, 0, -1, 0, -1},
                        quotient[] = {INT32_MAX, INT32_MIN, 0, INT32_MAX, INT32_MIN, -INT32_MAX};
    eval e;
    (void)state;
    eval_init(&e, backend, false);
    tt_value *x = leaf_of(&e, TT_I32, 0, 1, 1, DIMS(N(6))),
             *y = leaf_of(&e, TT_I32, 0, 1, 1, DIMS(N(6)));
    tt_value *q = tt_floor_div(e.b, x, y), *r = tt_mod(e.b, x, y);
    eval_prepare(&e);
    for (int i = 0; i < 6; i++) {
        put(&e.tensors[x->id], i, x_of[i]);
        put(&e.tensors[y->id], i, y_of[i]);
    }
    eval_run(&e, e.g->nodes.n);
    for (int i = 0; i < 6; i++) {
        assert_true(get(&e.tensors[q->id], i) == quotient[i]);
        assert_true(get(&e.tensors[r->id], i) == 0.0);
    }
    eval_release(&e);
}

static void test_an_index_outside_has_no_one(void **state)
{
    static const double idx_of[] = {-1, 0, 2, 3, INT32_MIN};
    eval e;
    (void)state;
    eval_init(&e, backend, false);
    tt_value *idx = leaf_of(&e, TT_I32, 0, 1, 1, DIMS(N(5))),
             *hot = tt_one_hot(e.b, idx, N(3), TT_I32);
    eval_prepare(&e);
    for (int i = 0; i < 5; i++)
        put(&e.tensors[idx->id], i, idx_of[i]);
    eval_run(&e, e.g->nodes.n);
    assert_int_equal(tt_value_type(hot)->dtype, TT_I32);
    for (int i = 0; i < 15; i++)
        assert_true(get(&e.tensors[hot->id], i) == (idx_of[i / 3] == i % 3 ? 1.0 : 0.0));
    eval_release(&e);
}

/* NaNs are last in both orders (PyTorch has them first if it descends), equal ones and NaNs by index. */
static void test_sort_puts_nan_last(void **state)
{
    static const double x_of[] = {NAN, 1, -INFINITY, NAN, 0.0, INFINITY, -0.0, 1};
    static const int32_t up[] = {2, 4, 6, 1, 7, 5, 0, 3}, down[] = {5, 1, 7, 4, 6, 2, 0, 3};
    eval e;
    (void)state;
    eval_init(&e, backend, false);
    tt_value *x = leaf_of(&e, TT_F64, 0, 1, 1, DIMS(N(8))), *v[2], *index[2];
    for (int d = 0; d < 2; d++)
        tt_sort(e.b, x, d, &v[d], &index[d]);
    eval_prepare(&e);
    for (int i = 0; i < 8; i++)
        put(&e.tensors[x->id], i, x_of[i]);
    eval_run(&e, e.g->nodes.n);
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < 8; i++) {
            const int at = (d ? down : up)[i];
            const double got = get(&e.tensors[v[d]->id], i);
            assert_int_equal((int)get(&e.tensors[index[d]->id], i), at);
            assert_true(got == x_of[at] || (isnan(got) && isnan(x_of[at])));
        }
    eval_release(&e);
}

static void test_empty_dims_are_allowed(void **state)
{
    eval e;
    (void)state;
    eval_init(&e, backend, false);
    tt_value *full = leaf_of(&e, TT_F64, 0, 1, 2, DIMS(N(2), N(3))), *s, *i;
    tt_value *x = tt_slice(e.b, full, 0, 1, 1), *wide = tt_slice(e.b, full, 1, 2, 2);
    tt_value *made[] = {tt_pad(e.b, x, 0, 1, 2, 4.0),
                        tt_roll(e.b, x, 1, 1),
                        tt_roll(e.b, wide, 1, 5),
                        tt_repeat(e.b, x, 1, 2),
                        tt_argmax(e.b, x, 1, 0),
                        tt_mod(e.b, x, tt_const(e.b, 2.0, TT_F64)),
                        tt_sin(e.b, x),
                        tt_iota(e.b, DIMS(N(0)), 1, 0, TT_F32)};
    tt_sort(e.b, wide, 0, &s, &i);
    eval_prepare(&e);
    eval_run(&e, e.g->nodes.n);
    assert_int_equal(tt_tensor_numel(&e.tensors[made[0]->id]), 9);
    for (int k = 0; k < 9; k++)
        assert_true(get(&e.tensors[made[0]->id], k) == 4.0);
    for (size_t k = 1; k < TT_COUNT(made); k++)
        assert_int_equal(tt_tensor_numel(&e.tensors[made[k]->id]), 0);
    assert_int_equal(tt_tensor_numel(&e.tensors[s->id]), 0);
    assert_int_equal(tt_tensor_numel(&e.tensors[i->id]), 0);
    eval_release(&e);
}

static void wrong_pad(tt_builder *b, tt_value *x)
{
    tt_pad(b, x, 0, 1, -2, 0.0);
}
static void wrong_pad_dim(tt_builder *b, tt_value *x)
{
    tt_pad(b, x, 2, 1, 1, 0.0);
}
static void wrong_roll(tt_builder *b, tt_value *x)
{
    tt_roll(b, x, -3, 1);
}
static void wrong_repeat(tt_builder *b, tt_value *x)
{
    tt_repeat(b, x, 1, 0);
}
static void wrong_interleave(tt_builder *b, tt_value *x)
{
    tt_repeat_interleave(b, x, 1, INT64_MAX);
}
static void wrong_one_hot(tt_builder *b, tt_value *x)
{
    tt_one_hot(b, x, N(3), TT_F32);
}
static void wrong_iota(tt_builder *b, tt_value *x)
{
    tt_iota(b, tt_value_type(x)->dims, 2, 2, TT_F32);
}
static void wrong_argmax(tt_builder *b, tt_value *x)
{
    tt_argmax(b, x, 5, 0);
}
static void empty_argmax(tt_builder *b, tt_value *x)
{
    tt_argmax(b, tt_slice(b, x, 1, 0, 0), 1, 0);
}
static void wrong_erf(tt_builder *b, tt_value *x)
{
    tt_erf(b, tt_cast(b, x, TT_I32));
}
static void wrong_mod(tt_builder *b, tt_value *x)
{
    tt_value *yes = tt_less(b, x, x);
    tt_mod(b, yes, yes);
}

static void test_wrong_arguments_are_named(void **state)
{
    static const struct {
        void (*call)(tt_builder *, tt_value *);
        const char *text;
    } rows[] = {
        {wrong_pad,        "pad: 1 elements before and -2 after dim 0: neither may be negative"},
        {wrong_pad_dim,    "pad: there is no dim 2 among 2"                                    },
        {wrong_roll,       "roll: there is no dim -3 among 2"                                  },
        {wrong_repeat,     "repeat: cannot repeat 3 elements 0 times"                          },
        {wrong_interleave, "repeat_interleave: cannot repeat 3 elements 9223372036854775807"   },
        {wrong_one_hot,    "one_hot: the indices must be i32, not f64"                         },
        {wrong_iota,       "iota: there is no dim 2 among 2"                                   },
        {wrong_argmax,     "argmax: there is no dim 5 among 2"                                 },
        {empty_argmax,     "dim 1 must have from 1 to 2147483647 elements, not 0"              },
        {wrong_erf,        "the operand must be of a floating dtype"                           },
        {wrong_mod,        "booleans have no arithmetic"                                       },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        eval e;
        eval_init(&e, backend, false);
        rows[i].call(e.b, leaf_of(&e, TT_F64, 0, 1, 2, DIMS(N(2), N(3))));
        const tt_error *err = tt_builder_error(e.b);
        if (!err || !strstr(err->text, rows[i].text))
            fail_msg("\"%s\" is not \"%s\"", err ? err->text : "", rows[i].text);
        eval_release(&e);
    }
}

static int load(void **state)
{
    char path[1024];
    const char *src = getenv("SRC");
    json_error_t err;
    (void)state;
    snprintf(path, sizeof path, "%s/tests/golden/array.json", src != NULL ? src : ".");
    golden = json_load_file(path, 0, &err);
    if (golden == NULL)
        fail_msg("%s: %s", path, err.text);
    backend = backend_load("reference");
    return 0;
}

static int unload(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions_of_arrays_are_those_of_pytorch),
        cmocka_unit_test(test_integers_by_zero_and_out_of_range),
        cmocka_unit_test(test_an_index_outside_has_no_one),
        cmocka_unit_test(test_sort_puts_nan_last),
        cmocka_unit_test(test_empty_dims_are_allowed),
        cmocka_unit_test(test_wrong_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
