/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* setenv, mkdtemp */
#include "cuda/cuda_config.h"
#include <ttrun/ops.h>

/* Products of several tiles, where tests/ops/backends.def has at most two: by cuBLASLt and by own
 * kernels, against sums in f64; and what no tolerance sees: the bits of an element of an own product
 * depend on its row, its column and k alone. */

typedef struct product_case {
    const char *op;
    int64_t shape[2][3]; /* of the operands; 0 at the end: fewer dims; of experts also counts */
    int trans_a, trans_b;
} product_case;

/* clang-format off */
static const product_case cases[] = {
    {"linear",    {{200, 96}, {136, 96}}, 0, 0},  /* tiles of 64, edges in all dims */
    {"linear",    {{1, 1000}, {257, 1000}}, 0, 0},
    {"linear",    {{1030, 40}, {1160, 40}}, 0, 0}, /* tiles of 128, bands of 8 of them */
    {"linear",    {{130, 0}, {70, 0}}, 0, 0},     /* the sum of no terms */
    {"linear_dx", {{200, 136}, {136, 97}}, 0, 0},
    {"linear_dw", {{333, 136}, {333, 200}}, 0, 0},
    {"linear_dw", {{35, 1029}, {35, 1090}}, 0, 0},
    {"matmul",    {{3, 129, 65}, {3, 65, 70}}, 0, 0},
    {"matmul",    {{3, 65, 129}, {3, 65, 70}}, 1, 0},
    {"matmul",    {{3, 129, 65}, {3, 70, 65}}, 0, 1},
    {"matmul",    {{3, 65, 129}, {3, 70, 65}}, 1, 1},
    {"grouped_linear",    {{700, 72}, {6, 200, 72}}, 0, 0},
    {"grouped_linear",    {{1500, 35}, {9, 600, 35}}, 0, 0}, /* tiles of 128 */
    {"grouped_linear_dx", {{700, 200}, {6, 200, 72}}, 0, 0},
    {"grouped_linear_dw", {{700, 200}, {700, 72}}, 0, 0},
};
/* clang-format on */
#define EXPERTS 6
/* One expert has no rows, and the last rows are nobody's; the counts of EXPERTS + 3 experts. */
static const int32_t counts[] = {100, 0, 129, 64, 1, 333, 500, 120, 90};

static subject it[2]; /* cuBLASLt, own kernels */
static uint64_t random_state = 5;

static bool has_counts(const product_case *p)
{
    return strncmp(p->op, "grouped", 7) == 0;
}
static bool is_grouped_dw(const product_case *p)
{
    return strcmp(p->op, "grouped_linear_dw") == 0;
}

static tt_tensor new_tensor(tt_dtype dtype, const int64_t *shape, int n_dims)
{
    tt_tensor t = {.dtype = dtype, .n_dims = n_dims};
    for (int d = 0; d < n_dims; d++)
        t.shape[d] = t.global[d] = shape[d];
    t.data = calloc((size_t)tt_tensor_numel(&t) + 1, tt_dtype_size(dtype));
    assert_non_null(t.data);
    for (int64_t i = 0; i < tt_tensor_numel(&t); i++)
        put(&t, i, 2.0 * eval_uniform(&random_state) - 1.0);
    return t;
}

/* A call as an array of m × n × k products, the operands' elements by index. */
typedef struct view {
    const tt_tensor *b;
    double *as, *bs; /* the operands' elements */
    int64_t m, n, k;
    bool a_t, b_t;
} view;

static double *elements_of(const tt_tensor *t)
{
    double *e = calloc((size_t)tt_tensor_numel(t) + 1, sizeof *e);
    assert_non_null(e);
    for (int64_t i = 0; i < tt_tensor_numel(t); i++)
        e[i] = get(t, i);
    return e;
}

static view view_of(const product_case *p, const tt_tensor *in, const tt_tensor *out)
{
    const int last = out->n_dims - 1;
    view v = {.b = &in[1],
              .as = elements_of(&in[0]),
              .bs = elements_of(&in[1]),
              .m = out->shape[last - 1],
              .n = out->shape[last],
              .k = in[0].shape[in[0].n_dims - 1],
              .a_t = p->trans_a != 0,
              .b_t = p->trans_b != 0};
    if (strstr(p->op, "_dw") != NULL)
        v.a_t = true;
    if (strcmp(p->op, "linear") == 0 || strcmp(p->op, "grouped_linear") == 0)
        v.b_t = true;
    if (v.a_t)
        v.k = in[0].shape[in[0].n_dims - 2];
    return v;
}

/* Element (i, j) of product z, whose operands begin at these elements; k terms from the first. */
static double element(const view *v, int64_t a0, int64_t b0, int64_t i, int64_t j, int64_t k)
{
    double sum = 0.0;
    for (int64_t l = 0; l < k; l++)
        sum += v->as[a0 + (v->a_t ? l * v->m + i : i * v->k + l)] *
               v->bs[b0 + (v->b_t ? j * v->k + l : l * v->n + j)];
    return sum;
}

/* The rows of expert e: the first one, and how many. */
static int64_t expert(int64_t e, int64_t rows, int64_t *n)
{
    int64_t at = 0;
    for (int64_t i = 0; i < e; i++)
        at += counts[i];
    *n = counts[e] < rows - at ? counts[e] : rows - at;
    return at;
}

/* What element (z, i, j) of the result must be. */
static double wanted(const product_case *p, const view *v, int64_t z, int64_t i, int64_t j)
{
    int64_t n = 0, first = 0;
    if (is_grouped_dw(p)) {
        first = expert(z, v->k, &n);
        return element(v, first * v->m, first * v->n, i, j, n);
    }
    if (!has_counts(p))
        return element(v, z * v->m * v->k, z * v->k * v->n, i, j, v->k);
    for (int64_t e = 0; e < v->b->shape[0]; e++) {
        first = expert(e, v->m, &n);
        if (i >= first && i < first + n)
            return element(v, 0, e * v->n * v->k, i, j, v->k);
    }
    return 0.0; /* nobody's row */
}

static tt_tensor result_of(const product_case *p, const tt_tensor *in, tt_dtype dtype)
{
    const int d = in[0].n_dims;
    int64_t shape[3] = {in[0].shape[0], in[1].shape[in[1].n_dims - 2], 0};
    if (strcmp(p->op, "matmul") == 0) {
        shape[1] = in[0].shape[p->trans_a ? d - 1 : d - 2];
        shape[2] = in[1].shape[p->trans_b ? d - 2 : d - 1];
        return new_tensor(dtype, shape, 3);
    }
    if (strstr(p->op, "_dw") != NULL) {
        const int64_t dw[3] = {EXPERTS, in[0].shape[1], in[1].shape[1]};
        return is_grouped_dw(p) ? new_tensor(TT_F32, dw, 3) : new_tensor(TT_F32, dw + 1, 2);
    }
    if (strstr(p->op, "_dx") != NULL)
        shape[1] = in[1].shape[in[1].n_dims - 1];
    return new_tensor(dtype, shape, 2);
}

/* Runs a case on a backend: operands of these dtypes; the result is checked and freed. */
static void check_case(subject *u, const product_case *p, tt_dtype a, tt_dtype b, bool accumulate)
{
    const tt_dtype both = a == TT_BF16 && b == TT_BF16 ? TT_BF16 : TT_F32;
    const tt_attrs_matmul attrs = {p->trans_a, p->trans_b};
    const int n_dims[2] = {p->shape[0][2] != 0 ? 3 : 2, p->shape[1][2] != 0 ? 3 : 2};
    tt_tensor in[3] = {new_tensor(a, p->shape[0], n_dims[0]),
                       new_tensor(b, p->shape[1], n_dims[1])};
    const int64_t experts = is_grouped_dw(p) ? EXPERTS : p->shape[1][0];
    tt_tensor out = result_of(p, in, both);
    const int64_t n = tt_tensor_numel(&out);
    double *before = calloc((size_t)n + 1, sizeof *before);
    in[2] = (tt_tensor){
        .data = (void *)(uintptr_t)counts, .dtype = TT_I32, .n_dims = 1, .shape = {experts}};
    for (int64_t i = 0; i < n && accumulate; i++)
        before[i] = get(&out, i);
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = p->op,
                        .in = in,
                        .n_in = has_counts(p) ? 3 : 2,
                        .n_out = 1,
                        .attrs = &attrs,
                        .accumulate = accumulate};
    assert_true(subject_run(u, 0, u->vt->kernel(u->self[0], p->op), &c, &out));
    const view v = view_of(p, in, &out);
    const double tolerance =
        2e-6 * sqrt((double)v.k + 1.0) + (out.dtype == TT_BF16 ? 1.0 / 256 : 0.0);
    for (int64_t i = 0; i < n; i++) {
        const double want = before[i] + wanted(p, &v, i / (v.m * v.n), i / v.n % v.m, i % v.n);
        if (!(fabs(get(&out, i) - want) <= tolerance * fmax(1.0, fabs(want))))
            fail_msg("%s (%s times %s%s): element %lld is %.9g, not %.9g", p->op, tt_dtype_name(a),
                     tt_dtype_name(b), accumulate ? ", added" : "", (long long)i, get(&out, i),
                     want);
    }
    free(v.as);
    free(v.bs);
    free(before);
    free(in[0].data);
    free(in[1].data);
    free(out.data);
}

/* Mixed dtypes, whose kernel has one size of tiles, in small cases only: the emulator is slow. */
static void check_cases(subject *u)
{
    static const tt_dtype dtypes[][2] = {
        {TT_BF16, TT_BF16},
        {TT_F32,  TT_F32 },
        {TT_F32,  TT_BF16},
        {TT_BF16, TT_F32 }
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++)
        for (size_t d = 0; d < TT_COUNT(dtypes); d++)
            if (d < (cases[i].shape[0][0] < 1000 && cases[i].shape[1][1] < 1000 ? 4 : 2))
                check_case(u, &cases[i], dtypes[d][0], dtypes[d][1], (i + d) % 2 != 0);
}

static void test_products_of_several_tiles_by_cublaslt(void **state)
{
    (void)state;
    char text[256];
    it[0].vt->describe(it[0].self[0], text, sizeof text);
    if (strstr(text, "cuBLASLt") == NULL)
        fail_msg("%s", text);
    check_cases(&it[0]);
}

static void test_products_of_several_tiles_by_own_kernels(void **state)
{
    (void)state;
    check_cases(&it[1]);
}

static void test_operands_aligned_to_one_element(void **state)
{
    (void)state;
    for (int u = 0; u < 2; u++) {
        it[u].tight = true;
        check_cases(&it[u]);
        it[u].tight = false;
    }
}

/* linear of the first `rows` rows and `columns` weights, own kernels. */
static tt_tensor part_of_linear(tt_tensor x, tt_tensor w, int64_t rows, int64_t columns)
{
    tt_tensor in[2] = {x, w}, out;
    tt_kernel_call c = {.struct_size = sizeof c, .op = "linear", .in = in, .n_in = 2, .n_out = 1};
    in[0].shape[0] = rows;
    in[1].shape[0] = columns;
    out = new_tensor(x.dtype, (const int64_t[]){rows, columns}, 2);
    assert_true(subject_run(&it[1], 0, it[1].vt->kernel(NULL, "linear"), &c, &out));
    return out;
}

/* Of 1100 × 1100 elements in tiles of 128, the first 70 × 50 in tiles of 64, at odd addresses. */
static void test_bits_of_own_products_depend_on_k_alone(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        const tt_dtype dtype = d == 0 ? TT_F32 : TT_BF16;
        const tt_tensor x = new_tensor(dtype, (const int64_t[]){1100, 76}, 2),
                        w = new_tensor(dtype, (const int64_t[]){1100, 76}, 2);
        const tt_tensor all = part_of_linear(x, w, 1100, 1100);
        it[1].tight = true;
        const tt_tensor some = part_of_linear(x, w, 70, 50);
        it[1].tight = false;
        for (int64_t i = 0; i < 70; i++)
            for (int64_t j = 0; j < 50; j++)
                if (get(&all, i * 1100 + j) != get(&some, i * 50 + j))
                    fail_msg("%s: element (%lld, %lld) has other bits", tt_dtype_name(dtype),
                             (long long)i, (long long)j);
        free(x.data);
        free(w.data);
        free(all.data);
        free(some.data);
    }
}

/* A product of f32, by cuBLASLt with the choices of algorithms kept in `cache`; its bits as a sum. */
static uint64_t bits_with_cache(const char *cache)
{
    cuda_config config = *cuda_test_config();
    subject u;
    uint64_t hash = 5;
    random_state = 9;
    tt_tensor in[2] = {new_tensor(TT_F32, (const int64_t[]){33, 301}, 2),
                       new_tensor(TT_F32, (const int64_t[]){20, 301}, 2)},
              out = new_tensor(TT_F32, (const int64_t[]){33, 20}, 2);
    tt_kernel_call c = {.struct_size = sizeof c, .op = "linear", .in = in, .n_in = 2, .n_out = 1};
    config.gemm = "cublaslt";
    config.cache = cache;
    subject_open(&u, "cuda", &config);
    assert_true(subject_run(&u, 0, u.vt->kernel(u.self[0], "linear"), &c, &out));
    subject_close(&u);
    for (int64_t i = 0; i < 33 * 20; i++)
        hash = hash * 31 + ((const uint32_t *)out.data)[i];
    free(in[0].data);
    free(in[1].data);
    free(out.data);
    return hash;
}

static void new_folder(char *path, size_t size)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, size, "%s/tt-pins-XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(path));
}

/* The heuristics of the fake library answer otherwise in the second and third start. */
static void test_a_choice_of_algorithm_is_kept_on_disk(void **state)
{
    char kept[2][512];
    (void)state;
    if (!cuda_test_is_fake())
        skip();
    for (int i = 0; i < 2; i++)
        new_folder(kept[i], sizeof kept[i]);
    const uint64_t first = bits_with_cache(kept[0]);
    assert_int_equal(setenv("FAKE_BLASLT_OTHER", "1", 1), 0);
    assert_int_equal(bits_with_cache(kept[0]), first);
    assert_int_not_equal(bits_with_cache(kept[1]), first);
    unsetenv("FAKE_BLASLT_OTHER");
}

static int load(void **state)
{
    cuda_config config = *cuda_test_config();
    static char folder[512];
    (void)state;
    new_folder(folder, sizeof folder);
    config.cache = folder; /* no choice of another run */
    config.gemm = "cublaslt";
    subject_open(&it[0], "cuda", &config);
    config.gemm = "own";
    subject_open(&it[1], "cuda", &config);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    subject_close(&it[0]);
    subject_close(&it[1]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_of_several_tiles_by_cublaslt),
        cmocka_unit_test(test_products_of_several_tiles_by_own_kernels),
        cmocka_unit_test(test_operands_aligned_to_one_element),
        cmocka_unit_test(test_bits_of_own_products_depend_on_k_alone),
        cmocka_unit_test(test_a_choice_of_algorithm_is_kept_on_disk),
    };
    return cmocka_run_group_tests_name("cuda products", tests, load, unload);
}
