/* SPDX-License-Identifier: Apache-2.0 */
#include "eval.h"
#include "subject.h"
#include <ttrun/quantize.h>

/* tt_quantize, casts to and from float8 and tt_hadamard. The hashes of quantize_golden.def are of
 * numbers that torch and torchao computed: all bf16 numbers and 2^24 f32 numbers for each rule whose
 * blocks are small, so that a wrong bit anywhere is seen. */

static subject cpu, reference;

/* ---- the numbers of make_quantize_golden.py ---- */

enum numbers { BF16, BF16_NARROW, WIDE, NARROW, NEAR };

static uint32_t mix(uint32_t h)
{
    h *= 0x9e3779b1;
    h = (h ^ h >> 15) * 0x85ebca77;
    h = (h ^ h >> 13) * 0xc2b2ae3d;
    return h ^ h >> 16;
}

static float number_at(enum numbers kind, uint32_t i)
{
    uint32_t bits = i << 16;
    float x;
    if (kind == BF16_NARROW)
        bits = (bits & 0x8fff0000) | 0x38000000;
    else if (kind != BF16) {
        const uint32_t h = mix(i), run = mix(0x10000000 + (i >> 11)), down = (h >> 23 & 255) % 14;
        const uint32_t base = kind == WIDE     ? run % 255
                              : kind == NARROW ? 126 + run % 12
                                               : 114 + run % 31;
        bits = (h & 0x807fffff) | (base > down ? base - down : 0) << 23;
    }
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t hash_term(uint64_t value, uint64_t index)
{
    return (value + 1) * (index * 0x9e3779b97f4a7c15 | 1);
}

static uint64_t float8_byte(const tt_tensor *q, int64_t i, bool e2m1)
{
    const uint8_t c = ((const uint8_t *)q->data)[i], size = c & 0x7f;
    const bool nan = size == 0x7f || (q->dtype == TT_F8E5M2 && size > 0x7c);
    return nan ? 0x7f : e2m1 && c == 0x80 ? 0 : c;
}

static uint64_t f32_bits(const tt_tensor *s, int64_t i)
{
    const float x = ((const float *)s->data)[i];
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? 0x7fc00000 : bits;
}

/* ---- graphs on a backend ---- */

static bool has_kernel(void *user, const char *op)
{
    const subject *u = user;
    return u->vt->kernel(u->self[0], op) != NULL;
}

static void graph_init(eval *e, subject *u)
{
    memset(e, 0, sizeof *e);
    e->arena = tt_arena_new();
    e->random = 1;
    e->table.core = tt_core_ops(&e->table.n_core);
    tt_builder_opts o = {.ops = &e->table,
                         .tokens = EVAL_TOKENS,
                         .sequences = EVAL_SEQUENCES,
                         .has_kernel = has_kernel,
                         .has_kernel_user = u};
    e->b = tt_builder_new(e->arena, &o);
    e->g = tt_builder_graph(e->b);
}

static void graph_run(eval *e, subject *u)
{
    for (size_t i = 0; i < e->g->nodes.n; i++) {
        const tt_node *n = e->g->nodes.items[i];
        tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
        if (eval_is_leaf(n))
            continue;
        node_tensors(e, n, in, out);
        const tt_kernel *k = u->vt->kernel(u->self[1], n->op->name);
        if (!k)
            fail_msg("%s has no kernel %s", u->name, n->op->name);
        tt_kernel_call c = {.struct_size = sizeof c,
                            .op = n->op->name,
                            .in = in,
                            .n_in = n->n_in,
                            .n_out = n->n_out,
                            .attrs = n->attrs,
                            .seed = &(const uint64_t){7},
                            .step = &(const double){3}};
        assert_true(subject_run(u, 1, k, &c, out));
    }
}

/* ---- goldens ---- */

typedef struct golden {
    enum numbers numbers;
    int64_t rows, cols;
    tt_low_format format;
    tt_scale_rule rule;
    int64_t block_rows, block_cols;
    uint64_t q, s;
} golden;

static const golden goldens[] = {
#define GOLDEN(n, r, c, f, rule, br, bc, q, s) {n, r, c, TT_LOW_##f, TT_SCALE_##rule, br, bc, q, s},
#define CAST(n, count, dtype, hash)
#define BACK(dtype, hash)
#include "quantize_golden.def"
#undef GOLDEN
#undef CAST
#undef BACK
};

#define PART (1 << 19) /* elements that one run of the graph takes */

static void fill_numbers(tt_tensor *t, enum numbers kind, int64_t first)
{
    for (int64_t i = 0; i < tt_tensor_numel(t); i++)
        ((float *)t->data)[i] = number_at(kind, (uint32_t)(first + i));
}

static void check_golden(subject *u, const golden *g, const char *name)
{
    eval e;
    graph_init(&e, u);
    /* blocks of one row may be computed some rows at a time, but for rules of the whole tensor */
    const bool parts = g->block_rows == 1 && g->rule != TT_SCALE_NV;
    const int64_t all = g->rows * g->cols, rows = parts && all > PART ? PART / g->cols : g->rows;
    const tt_dim dims[] = {TT_DIM(rows, NULL), TT_DIM(g->cols, NULL)};
    const tt_quantize_opts o = {.struct_size = sizeof o,
                                .format = g->format,
                                .rule = g->rule,
                                .block_rows = g->block_rows,
                                .block_cols = g->block_cols};
    tt_value *s = NULL, *x = leaf_of(&e, TT_F32, 0, 1, 2, dims), *q = tt_quantize(e.b, x, &o, &s);
    uint64_t q_hash = 0, s_hash = 0, s_at = 0;
    eval_prepare(&e);
    const tt_tensor *tq = &e.tensors[q->id], *ts = &e.tensors[s->id];
    for (int64_t row = 0; row < g->rows; row += rows) {
        fill_numbers(&e.tensors[x->id], g->numbers, row * g->cols);
        graph_run(&e, u);
        for (int64_t i = 0; i < tt_tensor_numel(tq); i++)
            q_hash += hash_term(float8_byte(tq, i, g->format == TT_LOW_E2M1),
                                (uint64_t)(row * g->cols + i));
        for (int64_t i = 0; i < tt_tensor_numel(ts); i++)
            s_hash += hash_term(f32_bits(ts, i), s_at++);
    }
    if (q_hash != g->q || s_hash != g->s)
        fail_msg("%s, case %d of %s: numbers %016llx, not %016llx; scales %016llx, not %016llx",
                 u->name, (int)(g - goldens), name, (unsigned long long)q_hash,
                 (unsigned long long)g->q, (unsigned long long)s_hash, (unsigned long long)g->s);
    eval_release(&e);
}

static void test_cpu_quantizes_as_torchao(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(goldens); i++)
        check_golden(&cpu, &goldens[i], "quantize_golden.def");
}

static void test_reference_quantizes_as_torchao(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(goldens); i++)
        if (goldens[i].rows * goldens[i].cols <= 1 << 19)
            check_golden(&reference, &goldens[i], "quantize_golden.def");
}

/* ---- casts ---- */

static uint64_t cast_hash(subject *u, enum numbers kind, int64_t n, tt_dtype to)
{
    const int64_t size = n < PART ? n : PART;
    uint64_t hash = 0;
    eval e;
    graph_init(&e, u);
    tt_value *x = leaf_of(&e, TT_F32, 0, 1, 1, (tt_dim[]){TT_DIM(size, NULL)});
    tt_value *q = tt_cast(e.b, x, to);
    eval_prepare(&e);
    for (int64_t at = 0; at < n; at += size) {
        fill_numbers(&e.tensors[x->id], kind, at);
        graph_run(&e, u);
        for (int64_t i = 0; i < size; i++)
            hash += hash_term(float8_byte(&e.tensors[q->id], i, false), (uint64_t)(at + i));
    }
    eval_release(&e);
    return hash;
}

static uint64_t back_hash(subject *u, tt_dtype from)
{
    uint64_t hash = 0;
    eval e;
    graph_init(&e, u);
    tt_value *q = leaf_of(&e, from, 0, 1, 1, (tt_dim[]){TT_DIM(256, NULL)});
    tt_value *x = tt_cast(e.b, q, TT_F32);
    eval_prepare(&e);
    for (int i = 0; i < 256; i++)
        ((uint8_t *)e.tensors[q->id].data)[i] = (uint8_t)i;
    graph_run(&e, u);
    for (int i = 0; i < 256; i++)
        hash += hash_term(f32_bits(&e.tensors[x->id], i), (uint64_t)i);
    eval_release(&e);
    return hash;
}

static void test_casts_are_torch_s(void **state)
{
    (void)state;
#define GOLDEN(n, r, c, f, rule, br, bc, q, s)
#define CAST(n, count, dtype, hash)                                                                \
    assert_int_equal(cast_hash(&cpu, n, count, TT_##dtype), hash);                                 \
    assert_int_equal(cast_hash(&reference, n, count, TT_##dtype), hash);
#define BACK(dtype, hash)                                                                          \
    assert_int_equal(back_hash(&cpu, TT_##dtype), hash);                                           \
    assert_int_equal(back_hash(&reference, TT_##dtype), hash);
#include "quantize_golden.def"
}

/* Casts from other dtypes round once: 2^-10 + 2^-40 in f64 is above the tie, in f32 it is the tie. */
static void test_casts_from_other_floats_round_once(void **state)
{
    static const double numbers[] = {0x1p-10 + 0x1p-40, 0x1p-10, 0.3,      17.5,  -449.0, 1e300,
                                     -1e-300,           -0.0,    0x1.9p-9, 61440, -1e30,  NAN};
    static const tt_dtype froms[] = {TT_F64, TT_BF16, TT_F16}, tos[] = {TT_F8E4M3, TT_F8E5M2};
    enum { N = TT_COUNT(numbers) };
    (void)state;
    for (size_t f = 0; f < TT_COUNT(froms); f++)
        for (size_t t = 0; t < TT_COUNT(tos); t++) {
            uint8_t got[2][N];
            for (int k = 0; k < 2; k++) {
                subject *u = k ? &reference : &cpu;
                eval e;
                graph_init(&e, u);
                tt_value *x = leaf_of(&e, froms[f], 0, 1, 1, (tt_dim[]){TT_DIM(N, NULL)});
                tt_value *q = tt_cast(e.b, x, tos[t]);
                eval_prepare(&e);
                for (int i = 0; i < N; i++)
                    put(&e.tensors[x->id], i, numbers[i]);
                graph_run(&e, u);
                memcpy(got[k], e.tensors[q->id].data, N);
                eval_release(&e);
            }
            assert_memory_equal(got[0], got[1], N);
            if (f == 0 && t == 0) {
                assert_int_equal(got[0][0], 1);
                assert_int_equal(got[0][1], 0);
            }
        }
}

/* ---- what does not come from torch ---- */

typedef struct result {
    double q[64], s[64];
    int n_s;
} result;

/* Quantizes x [rows, cols] and dequantizes it; r->q holds q · s. */
static void quantize(const float *x, int rows, int cols, const tt_quantize_opts *o, result *r)
{
    eval e;
    graph_init(&e, &cpu);
    const tt_dim dims[] = {TT_DIM(rows, NULL), TT_DIM(cols, NULL)};
    tt_value *s = NULL, *v = leaf_of(&e, TT_F32, 0, 1, 2, dims), *q = tt_quantize(e.b, v, o, &s);
    tt_value *y = tt_dequantize(e.b, q, s, o);
    eval_prepare(&e);
    memcpy(e.tensors[v->id].data, x, (size_t)(rows * cols) * sizeof *x);
    graph_run(&e, &cpu);
    r->n_s = (int)tt_tensor_numel(&e.tensors[s->id]);
    for (int i = 0; i < rows * cols; i++)
        r->q[i] = get(&e.tensors[y->id], i);
    for (int i = 0; i < r->n_s; i++)
        r->s[i] = get(&e.tensors[s->id], i);
    eval_release(&e);
}

static void test_zeros_nan_and_infinity(void **state)
{
    static const tt_scale_rule rules[] = {TT_SCALE_F32, TT_SCALE_POW2, TT_SCALE_MX_FLOOR,
                                          TT_SCALE_MX_RCEIL, TT_SCALE_NV};
    float zero[6] = {0}, odd[6] = {1, -2, NAN, 3, -4, 5};
    result r;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rules); i++) {
        const bool nv = rules[i] == TT_SCALE_NV;
        const tt_quantize_opts o = {.struct_size = sizeof o,
                                    .format = nv ? TT_LOW_E2M1 : TT_LOW_E4M3,
                                    .rule = rules[i],
                                    .block_rows = 1,
                                    .block_cols = 3};
        quantize(zero, 2, 3, &o, &r);
        assert_int_equal(r.n_s, 2);
        for (int k = 0; k < 6; k++)
            assert_true(r.q[k] == 0);
        assert_true(r.s[0] > 0 && isfinite(r.s[0]));
        quantize(odd, 2, 3, &o, &r);
        assert_true(isnan(r.q[2]));
        if (!nv) /* the other row is not touched, but for a scale of the whole tensor */
            for (int k = 3; k < 6; k++)
                assert_true(fabs(r.q[k] - (double)odd[k]) <= 0.0625 * fabs((double)odd[k]));
    }
}

/* u stays away from 0 and 1, and the mean of many roundings is x. */
static void test_stochastic_rounding_has_the_mean_of_x(void **state)
{
    enum { N = 1 << 16 };
    static const float points[] = {0.1f, 0.7f, 1.1f, 1.9f, 2.2f, 3.7f, 4.1f, 5.9f, -2.6f, 6.0f};
    static const tt_low_format formats[] = {TT_LOW_E2M1, TT_LOW_E4M3, TT_LOW_E5M2};
    (void)state;
    for (size_t f = 0; f < TT_COUNT(formats); f++)
        for (size_t p = 0; p < TT_COUNT(points); p++) {
            eval e;
            graph_init(&e, &cpu);
            const tt_dim dims[] = {TT_DIM(N / 16, NULL), TT_DIM(16, NULL)};
            const tt_quantize_opts o = {.struct_size = sizeof o,
                                        .format = formats[f],
                                        .rule = TT_SCALE_MX_FLOOR,
                                        .stochastic = true,
                                        .stream = "dy"};
            tt_value *s = NULL, *x = leaf_of(&e, TT_F32, 0, 1, 2, dims);
            tt_value *q = tt_quantize(e.b, x, &o, &s), *y = tt_dequantize(e.b, q, s, &o);
            double sum = 0, low = INFINITY, high = -INFINITY;
            eval_prepare(&e);
            for (int i = 0; i < N; i++)
                ((float *)e.tensors[x->id].data)[i] = i ? points[p] : 6.0f;
            graph_run(&e, &cpu);
            for (int i = 1; i < N; i++) {
                const double v = get(&e.tensors[y->id], i);
                sum += v;
                low = fmin(low, v);
                high = fmax(high, v);
            }
            const double step = high - low, mean = sum / (N - 1);
            assert_true(low <= (double)points[p] && (double)points[p] <= high && step <= 2);
            assert_true(fabs(mean - (double)points[p]) < 0.012 * step + 1e-12); /* 6 sigma */
            eval_release(&e);
        }
}

static void check_hadamard(int rows)
{
    /* TransformerEngine's matrix: sign diagonal times Hadamard's, / 4; row 3 of its transpose */
    static const int sign[16] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
    enum { C = 5 };
    eval e;
    graph_init(&e, &cpu);
    const tt_dim dims[] = {TT_DIM(rows, NULL), TT_DIM(C, NULL)};
    tt_value *x = leaf_of(&e, TT_F32, -1, 1, 2, dims), *y = leaf_of(&e, TT_F32, -1, 1, 2, dims);
    tt_value *hx = tt_hadamard(e.b, x), *hy = tt_hadamard(e.b, y);
    tt_value *p = tt_matmul(e.b, x, y, 1, 0), *hp = tt_matmul(e.b, hx, hy, 1, 0);
    eval_prepare(&e);
    graph_run(&e, &cpu);
    assert_int_equal(e.tensors[hx->id].shape[0], (rows + 15) / 16 * 16);
    for (int i = 0; i < C * C; i++)
        assert_true(fabs(get(&e.tensors[p->id], i) - get(&e.tensors[hp->id], i)) < 1e-5);
    for (int i = 0; i < 16; i++)
        for (int c = 0; c < C; c++) {
            double want = 0;
            for (int j = 0; j < 16; j++)
                want += (__builtin_popcount((unsigned)(i & j)) % 2 ? -0.25 : 0.25) * sign[j] *
                        get(&e.tensors[x->id], j * C + c);
            assert_true(fabs(get(&e.tensors[hx->id], i * C + c) - want) < 1e-6);
        }
    eval_release(&e);
}

static void test_hadamard_keeps_products_and_is_orthogonal(void **state)
{
    (void)state;
    check_hadamard(21);
    check_hadamard(16); /* one block */
}

static void check_refused(const tt_quantize_opts *o, tt_dtype dtype, int n, const char *want)
{
    eval e;
    graph_init(&e, &cpu);
    const tt_dim dims[] = {TT_DIM(4, NULL), TT_DIM(4, NULL)};
    tt_value *s = NULL;
    tt_quantize(e.b, leaf_of(&e, dtype, 0, 1, n, dims), o, &s);
    assert_non_null(tt_builder_error(e.b));
    assert_non_null(strstr(tt_builder_error(e.b)->text, want));
    eval_release(&e);
}

static void test_what_cannot_be_quantized_is_refused(void **state)
{
    const tt_quantize_opts ok = {.struct_size = sizeof ok};
    tt_quantize_opts o = ok;
    (void)state;
    check_refused(&ok, TT_I32, 2, "must be a float of 2 to 4 dims, not i32 of 2");
    check_refused(&ok, TT_F32, 1, "must be a float of 2 to 4 dims, not f32 of 1");
    o.stochastic = true;
    check_refused(&o, TT_F32, 2, "needs the name of a stream");
    o.block_cols = -1;
    check_refused(&o, TT_F32, 2, "no format, rule or size");
}

static void test_ops_that_compute_refuse_float8(void **state)
{
    (void)state;
    for (int op = 0; op < 3; op++) {
        eval e;
        graph_init(&e, &cpu);
        const tt_dim dims[] = {TT_DIM(4, NULL), TT_DIM(4, NULL)};
        tt_value *q = tt_cast(e.b, leaf_of(&e, TT_F32, 0, 1, 2, dims), TT_F8E4M3);
        op == 0 ? tt_add(e.b, q, q) : op == 1 ? tt_linear_w(e.b, q, q) : tt_neg(e.b, q);
        assert_non_null(tt_builder_error(e.b));
        assert_non_null(strstr(tt_builder_error(e.b)->text, "cast it to f32"));
        eval_release(&e);
    }
}

static int load(void **state)
{
    static max_align_t zero[64];
    (void)state;
    subject_open(&cpu, "cpu", zero);
    subject_open(&reference, "reference", zero);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    subject_close(&cpu);
    subject_close(&reference);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeros_nan_and_infinity),
        cmocka_unit_test(test_what_cannot_be_quantized_is_refused),
        cmocka_unit_test(test_ops_that_compute_refuse_float8),
        cmocka_unit_test(test_hadamard_keeps_products_and_is_orthogonal),
        cmocka_unit_test(test_stochastic_rounding_has_the_mean_of_x),
        cmocka_unit_test(test_casts_from_other_floats_round_once),
        cmocka_unit_test(test_casts_are_torch_s),
        cmocka_unit_test(test_cpu_quantizes_as_torchao),
        cmocka_unit_test(test_reference_quantizes_as_torchao),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
