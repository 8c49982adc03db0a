/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cpu_harness.h"

/* A product fused with a program and RoPE has the bits of the product, then the program, then RoPE
 * (R11), for all shapes, dtypes, instruction sets and numbers of threads, and wherever the product
 * is stored. */

#define BF16(...) tensor(TT_BF16, DIMS(__VA_ARGS__))

static tt_tensor some(tt_dtype dtype, int64_t rows, int64_t cols)
{
    tt_tensor t = tensor(dtype, DIMS(rows, cols));
    for (int64_t i = 0; i < tt_tensor_numel(&t); i++) {
        const float v = (float)noise();
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        if (dtype == TT_BF16)
            ((uint16_t *)t.data)[i] = (uint16_t)(bits >> 16);
        else
            fp(&t)[i] = v;
    }
    return t;
}

typedef struct program_case {
    const char *what;
    int n_in, n_instr,
        n_out; /* registers: 0 the product, 1 full, 2 a row, 3 one element, 4 a column */
    int16_t out[3];
    int into;
    tt_fused_instr instr[4];
} program_case;

/* D: the product's dtype. */
#define D TT_BOOL
static const program_case cases[] = {
    {"residual",                                   2, 1, 1, {2},       0, {{"add", {1, 0}, 2, D, 0}}                                                          },
    {"bias, activation",
     3,                                               2,
     2,                                                     {3, 4},
     0,                                                                   {{"add", {0, 2}, 2, D, 0}, {"gelu_tanh", {3}, 1, D, 0}}                             },
    {"bias, softplus, clipped",
     4,                                               3,
     1,                                                     {6},
     0,                                                                   {{"add", {0, 2}, 2, D, 0}, {"softplus", {4}, 1, D, 0}, {"minimum", {5, 3}, 2, D, 0}}},
    {"the product kept",                           2, 2, 3, {0, 2, 3}, 0, {{"silu", {1}, 1, D, 0}, {"mul", {2, 0}, 2, D, 0}}                                  },
    {"read after an output is made in its memory",
     2,                                               3,
     2,                                                     {2, 4},
     0,                                                                   {{"add", {0, 1}, 2, D, 0}, {"scale", {0}, 1, D, 0.3}, {"mul", {3, 2}, 2, D, 0}}     },
    {"in the second output",
     2,                                               2,
     2,                                                     {3, 2},
     1,                                                                   {{"sub", {0, 1}, 2, D, 0}, {"cast", {2}, 1, TT_F32, 0}}                             },
    {"broadcast",
     5,                                               4,
     1,                                                     {8},
     0,                                                                   {{"add", {0, 2}, 2, D, 0},
      {"mul", {5, 3}, 2, D, 0},
      {"add", {6, 4}, 2, D, 0},
      {"silu_bwd", {7, 1}, 2, D, 0}}                                                                                                                   },
};
#undef D

static void check_program(const char *op, const program_case *p, const tt_tensor *a,
                          const tt_tensor *b, tt_dtype dtype, int64_t m, int64_t n)
{
    tt_fused_instr instr[4];
    tt_tensor ins[6] = {
        *a, *b, some(dtype, m, n), some(dtype, 1, n), some(dtype, 1, 1), some(dtype, m, 1)};
    tt_tensor y = tensor(dtype, DIMS(m, n)), apart[5], want[3], got[3];
    ins[3].n_dims = 1;
    ins[3].shape[0] = ins[3].global[0] = n;
    for (int i = 0; i < p->n_instr; i++) {
        instr[i] = p->instr[i];
        if (instr[i].dtype == TT_BOOL)
            instr[i].dtype = dtype;
    }
    const tt_fused_product f = {
        {p->n_in, p->n_instr, p->n_out, instr, p->out},
        p->into
    };
    for (int o = 0; o < p->n_out; o++) {
        const int r = p->out[o];
        want[o] = tensor(r < p->n_in ? dtype : instr[r - p->n_in].dtype, DIMS(m, n));
        got[o] = tensor(want[o].dtype, DIMS(m, n));
    }
    apart[0] = y;
    memcpy(apart + 1, ins + 2, 4 * sizeof *apart);
    EACH_ISA
    {
        run(isa, strcmp(op, "linear_fused") ? "linear_dx" : "linear", ins, 2, &y, 1, NULL);
        run(isa, "fused", apart, p->n_in, want, p->n_out, &f.program);
        run(isa, op, ins, p->n_in + 1, got, p->n_out, &f);
        for (int o = 0; o < p->n_out; o++)
            if (memcmp(want[o].data, got[o].data,
                       (size_t)tt_tensor_numel(&want[o]) * tt_dtype_size(want[o].dtype)))
                fail_msg("%s, %s (%s): output %d of [%d, %d] differs", op, p->what, H.isa[isa], o,
                         (int)m, (int)n);
    }
    drop(ins + 2, 4);
    drop(&y, 1);
    drop(want, p->n_out);
    drop(got, p->n_out);
}

static void check_shape(int64_t m, int64_t n, int64_t k, tt_dtype x, tt_dtype w)
{
    const tt_dtype y = x == w ? x : TT_F32;
    tt_tensor a = some(x, m, k), b = some(w, n, k), c = some(w, k, n);
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        check_program("linear_fused", &cases[i], &a, &b, y, m, n);
        check_program("linear_dx_fused", &cases[i], &a, &c, y, m, n);
    }
    tt_tensor all[] = {a, b, c};
    drop(all, 3);
}

/* Products without a program, with a few rows, with partial tiles, with several blocks of each
 * extent, and empty ones. */
static void test_product_and_program_have_the_bits_of_both(void **state)
{
    static const int64_t shapes[][3] = {
        {1,   1,    1  },
        {1,   130,  40 },
        {3,   77,   500},
        {16,  33,   65 },
        {17,  64,   400},
        {90,  515,  390},
        {200, 1030, 64 },
        {5,   7,    0  },
        {0,   9,    4  },
        {40,  0,    4  },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(shapes); i++) {
        check_shape(shapes[i][0], shapes[i][1], shapes[i][2], TT_F32, TT_F32);
        check_shape(shapes[i][0], shapes[i][1], shapes[i][2], TT_BF16, TT_BF16);
    }
    check_shape(33, 70, 80, TT_F32, TT_BF16); /* through copies in f32 */
}

/* ---- and RoPE ---- */

/* Without a program, or with a bias (a row) and a residual. */
static void check_rope(int64_t tokens, int64_t heads, int64_t hd, int64_t rot, int64_t k,
                       tt_dtype dtype, int with)
{
    static const int16_t outs[] = {0, 4};
    const int64_t n = heads * hd;
    const tt_fused_instr instr[] = {
        {"add", {0, 1}, 2, dtype, 0},
        {"add", {3, 2}, 2, dtype, 0}
    };
    tt_attrs_rope at = {
        .opts = {.head_dim = hd, .rotary_dim = rot, .theta = 1e4, .factor = 1},
          .inverse = 0
    };
    tt_tensor ins[6] = {some(dtype, tokens, k), some(dtype, n, k), some(dtype, 1, n),
                        some(dtype, tokens, n)},
              pos = I32(tokens), y = tensor(dtype, DIMS(tokens, n)), want = y, got = y, in[3];
    const int n_own = with ? 4 : 2;
    ins[2].n_dims = 1;
    ins[2].shape[0] = ins[2].global[0] = n;
    want = tensor(dtype, DIMS(tokens, n));
    got = tensor(dtype, DIMS(tokens, n));
    for (int64_t t = 0; t < tokens; t++)
        ip(&pos)[t] = (int32_t)(t * 7 % 101);
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        at.opts.interleaved = interleaved;
        const tt_fused_rope f = {
            {{with ? 3 : 1, with ? 2 : 0, 1, instr, &outs[with]}, 0},
            at
        };
        EACH_ISA
        {
            tt_tensor all[6];
            run(isa, "linear", ins, 2, &y, 1, NULL);
            in[0] = y, in[1] = ins[2], in[2] = ins[3];
            if (with)
                run(isa, "fused", in, 3, &y, 1, &f.product.program);
            in[0] = y, in[1] = pos;
            run(isa, "rope", in, 2, &want, 1, &at);
            memcpy(all, ins, sizeof all);
            all[n_own] = pos;
            run(isa, "linear_fused_rope", all, n_own + 1, &got, 1, &f);
            if (memcmp(want.data, got.data, (size_t)(tokens * n) * tt_dtype_size(dtype)))
                fail_msg("linear_fused_rope (%s): [%d, %d heads of %d, %d turned] differs",
                         H.isa[isa], (int)tokens, (int)heads, (int)hd, (int)rot);
        }
    }
    tt_tensor all[] = {ins[0], ins[1], ins[2], ins[3], pos, y, want, got};
    drop(all, 8);
}

/* Heads that are smaller than the columns of a tile, as wide as several tiles, and neither; and
 * products with few rows. */
static void test_product_program_and_rope_have_the_bits_of_all(void **state)
{
    static const int64_t shapes[][5] = {
        {200, 16, 16,  16,  65 },
        {90,  8,  64,  64,  390},
        {90,  5,  24,  24,  40 },
        {33,  3,  80,  80,  40 },
        {40,  9,  128, 128, 20 },
        {40,  3,  96,  32,  20 },
        {7,   5,  24,  12,  50 },
        {16,  40, 64,  64,  30 },
        {0,   2,  16,  16,  8  },
        {9,   2,  16,  16,  0  },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(shapes); i++)
        for (int with = 0; with < 2; with++) {
            const int64_t *c = shapes[i];
            check_rope(c[0], c[1], c[2], c[3], c[4], TT_F32, with);
            check_rope(c[0], c[1], c[2], c[3], c[4], TT_BF16, with);
        }
}

/* The tiles of OpenBLAS end at other columns. */
static void test_openblas_and_program_have_the_bits_of_both(void **state)
{
    const char *config[3] = {"auto", "openblas", "auto"};
    tt_backend_env env = {.struct_size = sizeof env, .n_threads = 2, .world = 1};
    tt_error err;
    void *own = H.self[0], *blas = NULL;
    (void)state;
    assert_int_equal(H.vt->open(config, &env, &blas, &err), TT_OK);
    H.self[0] = blas;
    check_shape(700, 70, 50, TT_F32, TT_F32);
    check_shape(20, 600, 50, TT_F32, TT_F32);
    check_rope(33, 40, 24, 24, 50, TT_F32, 1);
    H.self[0] = own;
    H.vt->close(blas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_product_and_program_have_the_bits_of_both),
        cmocka_unit_test(test_product_program_and_rope_have_the_bits_of_all),
        cmocka_unit_test(test_openblas_and_program_have_the_bits_of_both),
    };
    return cmocka_run_group_tests(tests, harness_open, harness_close);
}
