/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/converters/mxfp8.c"
#include "eval.h"
#include <ttrun/narrow.h>

/* The products of quantized operands that the converters build, against the definition of
 * torch._scaled_mm: the sum of q_a q_b, times the scales (or the sum over blocks of scale_a scale_b times
 * the block's sum), in f64, of the numbers and scales that tt_quantize gives. Sizes do not divide. */

static const tt_backend_vt *backend;

enum { T = 45, IN = 37, OUT = 50 }; /* tokens, in, out */

typedef struct recipe {
    const char *name;
    tt_low_format format;
    tt_scale_rule rule;
    int64_t along, across_a, across_b;
} recipe;

static const recipe recipes[] = {
    {"tensorwise", TT_LOW_E5M2, TT_SCALE_F32,      0,  0, 0 },
    {"rowwise",    TT_LOW_E4M3, TT_SCALE_POW2,     0,  1, 1 },
    {"one side",   TT_LOW_E4M3, TT_SCALE_POW2,     0,  1, 0 },
    {"mxfp8",      TT_LOW_E4M3, TT_SCALE_MX_RCEIL, 32, 1, 1 },
    {"blockwise",  TT_LOW_E4M3, TT_SCALE_F32,      16, 1, 16},
    {"nvfp4",      TT_LOW_E2M1, TT_SCALE_NV,       16, 1, 16},
};

/* The value of element (r, c) of a quantized operand. */
static double number(const eval *e, const tt_value *q, const tt_value *s, const tt_quantize_opts *o,
                     int64_t r, int64_t c)
{
    const tt_tensor *tq = &e->tensors[q->id], *ts = &e->tensors[s->id];
    const int64_t br = o->block_rows ? r / o->block_rows : 0;
    const int64_t bc = o->block_cols ? c / o->block_cols : 0;
    const uint8_t byte = ((const uint8_t *)tq->data)[r * tq->shape[1] + c];
    return (double)tt_from_float8(byte, tq->dtype == TT_F8E5M2) * get(ts, br * ts->shape[1] + bc);
}

/* exps: powers of two of the operands. */
static void check(const recipe *r, tt_product_role role, const int *exps)
{
    static const int64_t shapes[3][2][2] = {
        {{T, IN},  {OUT, IN}},
        {{T, OUT}, {OUT, IN}},
        {{T, OUT}, {T, IN}  }
    };
    eval e;
    eval_init(&e, backend, false);
    tt_product p = {.struct_size = sizeof p, .role = role, .in = IN, .out = OUT};
    tt_value *v[2], *q[2], *s[2];
    tt_quantize_opts o[2];
    for (int i = 0; i < 2; i++) {
        const int64_t *d = shapes[role][i];
        v[i] = leaf_of(&e, TT_F32, -3, 2, 2, (tt_dim[]){TT_DIM(d[0], NULL), TT_DIM(d[1], NULL)});
        o[i] = low_blocks(&p, (low_side)i, r->format, r->rule, r->along,
                          i ? r->across_b : r->across_a);
        q[i] = tt_quantize(e.b, v[i], &o[i], &s[i]);
    }
    const config mx = {.scaling = "rceil"};
    p.a = v[0];
    p.b = v[1];
    tt_value *y = strcmp(r->name, "mxfp8") ? low_scaled_product(e.b, &p, v[0], &o[0], v[1], &o[1])
                                           : product(&mx, e.b, &p);
    eval_prepare(&e);
    for (int i = 0; i < 2; i++) { /* numbers so far apart that their block matters */
        float *x = e.tensors[v[i]->id].data;
        for (int64_t k = 0; k < tt_tensor_numel(&e.tensors[v[i]->id]); k++)
            x[k] = ldexpf(x[k], exps[i] - (int)(k * 7 % 23));
    }
    eval_run(&e, e.g->nodes.n);
    const tt_tensor *ty = &e.tensors[y->id];
    const int rows_a = low_sums_rows(&p, LOW_A), rows_b = low_sums_rows(&p, LOW_B);
    const int64_t n = shapes[role][0][rows_a ? 0 : 1];
    for (int64_t i = 0; i < ty->shape[0]; i++)
        for (int64_t j = 0; j < ty->shape[1]; j++) {
            double want = 0, size = 0;
            for (int64_t k = 0; k < n; k++) {
                const double a = number(&e, q[0], s[0], &o[0], rows_a ? k : i, rows_a ? i : k);
                const double b = number(&e, q[1], s[1], &o[1], rows_b ? k : j, rows_b ? j : k);
                want += a * b;
                size += fabs(a * b);
            }
            const double got = get(ty, i * ty->shape[1] + j);
            if (!(fabs(got - want) <= size * 0x1p-22))
                fail_msg("%s, 2^%d, 2^%d, role %d: [%d,%d] is %.9g, not %.9g", r->name, exps[0],
                         exps[1], (int)role, (int)i, (int)j, got, want);
        }
    eval_release(&e);
}

/* ---- experts ---- */

enum { E = 3 };
static const int counts[E] = {20, 0, 22}; /* the last rows belong to no expert */

/* The dims of an operand: rows [T, n], or a weight [E, OUT, IN]. */
static tt_value *operand(eval *e, const tt_product *p, low_side side)
{
    const int64_t n = side == LOW_A && p->role != TT_PRODUCT_FORWARD ? OUT : IN;
    const tt_dim rows[] = {TT_DIM(T, NULL), TT_DIM(n, NULL)};
    const tt_dim weight[] = {TT_DIM(E, NULL), TT_DIM(OUT, NULL), TT_DIM(IN, NULL)};
    return low_is_weight(p, side) ? leaf_of(e, TT_F32, -3, 2, 3, weight)
                                  : leaf_of(e, TT_F32, -3, 2, 2, rows);
}

/* What the experts' product of the dequantized operands must be at [r,c], or for expert e if it is dw. */
static double expert_sum(const tt_tensor *a, const tt_tensor *b, tt_product_role role, int e, int r,
                         int c, double *size)
{
    const int n = role == TT_PRODUCT_FORWARD ? IN : role == TT_PRODUCT_GRAD_INPUT ? OUT : counts[e];
    int first = 0;
    double sum = 0;
    for (int k = 0; k < e; k++)
        first += counts[k];
    for (int k = 0; k < n; k++) {
        const double x =
            role == TT_PRODUCT_GRAD_WEIGHT ? get(a, (first + k) * OUT + r) : get(a, r * n + k);
        const double y = role == TT_PRODUCT_FORWARD      ? get(b, (e * OUT + c) * IN + k)
                         : role == TT_PRODUCT_GRAD_INPUT ? get(b, (e * OUT + k) * IN + c)
                                                         : get(b, (first + k) * IN + c);
        sum += x * y;
        *size += fabs(x * y);
    }
    return sum;
}

static int expert_of(int row)
{
    int e = 0;
    for (int end = counts[0]; e < E && row >= end; e++)
        end += e + 1 < E ? counts[e + 1] : 0;
    return e;
}

static void check_experts(const recipe *r, tt_product_role role)
{
    eval e;
    eval_init(&e, backend, false);
    tt_product p = {.struct_size = sizeof p, .role = role, .layer = TT_PRODUCT_GROUPED};
    p.counts = leaf_of(&e, TT_I32, 0, 1, 1, (tt_dim[]){TT_DIM(E, NULL)});
    tt_value *v[2], *back[2];
    tt_quantize_opts o[2];
    for (int i = 0; i < 2; i++) {
        tt_value *s = NULL, *q;
        v[i] = operand(&e, &p, (low_side)i);
        o[i] = low_blocks(&p, (low_side)i, r->format, r->rule, r->along,
                          i ? r->across_b : r->across_a);
        q = tt_quantize(e.b, v[i], &o[i], &s);
        back[i] = tt_dequantize(e.b, q, s, &o[i]);
    }
    tt_value *y = low_scaled_product(e.b, &p, v[0], &o[0], v[1], &o[1]);
    eval_prepare(&e);
    for (int k = 0; k < E; k++)
        put(&e.tensors[p.counts->id], k, counts[k]);
    eval_run(&e, e.g->nodes.n);
    const tt_tensor *a = &e.tensors[back[0]->id], *b = &e.tensors[back[1]->id],
                    *ty = &e.tensors[y->id];
    const int64_t n = tt_tensor_numel(ty), cols = ty->shape[ty->n_dims - 1];
    for (int64_t i = 0; i < n; i++) {
        const int row = (int)(i / cols), col = (int)(i % cols);
        const int dw = role == TT_PRODUCT_GRAD_WEIGHT, expert = dw ? row / OUT : expert_of(row);
        double size = 0, want = 0;
        if (expert < E)
            want = expert_sum(a, b, role, expert, dw ? row % OUT : row, col, &size);
        if (!(fabs(get(ty, i) - want) <= size * 0x1p-22))
            fail_msg("%s, experts, role %d: [%d,%d] is %.9g, not %.9g", r->name, (int)role, row,
                     col, get(ty, i), want);
    }
    eval_release(&e);
}

static void test_products_of_experts(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(recipes); i++)
        for (int role = 0; role < 3; role++)
            check_experts(&recipes[i], (tt_product_role)role);
}

static void test_products_are_those_of_scaled_mm(void **state)
{
    static const int none[2] = {0, 0};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(recipes); i++)
        for (int role = 0; role < 3; role++)
            check(&recipes[i], (tt_product_role)role, none);
}

/* The sum times one operand's scales would be infinite, or 0; times both it is not. */
static void test_large_operands_beside_small_ones(void **state)
{
    static const int exps[][2] = {
        {126, -30},
        {-30, 126},
        {126, -8 },
        {-8,  126},
        {-20, -20}
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(recipes); i++)
        for (size_t k = 0; k < TT_COUNT(exps); k++)
            for (int role = 0; role < 3; role++)
                check(&recipes[i], (tt_product_role)role, exps[k]);
}

static int load(void **state)
{
    (void)state;
    backend = backend_load("reference");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products_are_those_of_scaled_mm),
                                       cmocka_unit_test(test_large_operands_beside_small_ones),
                                       cmocka_unit_test(test_products_of_experts)};
    return cmocka_run_group_tests(tests, load, NULL);
}
