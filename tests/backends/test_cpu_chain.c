/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cpu_harness.h"
#include <float.h>

/* Chains of simple instructions (plugins/backends/cpu/chain.h): roots and quotients computed
 * without the divider have the divider's bits, and a chain has the bits of its instructions run one
 * by one. */

static bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}
static uint64_t random_bits(void)
{
    static uint64_t s = 0x9e3779b97f4a7c15u;
    s ^= s << 13;
    s ^= s >> 7;
    return s ^= s << 17;
}
static float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static const float special[] = {0.0f,        -0.0f,      1.0f,          -1.0f,     INFINITY,
                                -INFINITY,   NAN,        FLT_MIN,       -FLT_MIN,  1e-45f,
                                -1e-45f,     1e-39f,     FLT_MAX,       -FLT_MAX,  0x1p-60f,
                                0x1p60f,     0x1.8p-61f, 0x1.8p60f,     0x1p-100f, 0x0.fffffep-100f,
                                0x1.8p-101f, 0x1p127f,   0x1.fffffep0f, 3.0f,      0x1.fffffep59f};

/* All fractions of two binades, fractions of all other exponents, and special values among them,
 * also at the end of a run. */
static void test_roots_are_rounded_to_nearest(void **state)
{
    (void)state;
    const int64_t all = (int64_t)1 << 24, more = 100003, n = all + more;
    tt_tensor x = F32(n), y = F32(n);
    float *want = malloc((size_t)n * sizeof *want);
    for (int64_t i = 0; i < all; i++)
        fp(&x)[i] = of_bits(0x3f800000u + (uint32_t)i);
    for (int64_t i = all; i < n; i++)
        fp(&x)[i] = i / 300 % 3 == 1
                        ? special[random_bits() % TT_COUNT(special)]
                        : of_bits((uint32_t)random_bits() & (i / 300 % 3 ? ~0u : 0x7fffffff));
    for (int64_t i = 0; i < n; i++)
        want[i] = sqrtf(fp(&x)[i]);
    EACH_ISA
    {
        run(isa, "sqrt", &x, 1, &y, 1, NULL);
        for (int64_t i = 0; i < n; i++)
            if (!same_bits(fp(&y)[i], want[i]))
                fail_msg("sqrt(%a) (%s) is %a, not %a", (double)fp(&x)[i], H.isa[isa],
                         (double)fp(&y)[i], (double)want[i]);
    }
    free(want);
    free(x.data);
    free(y.data);
}

/* 2^-24 modulo an odd b: quotients x / b, x = ±k 2^-24 (mod b), lie next to the middle between two
 * floats. */
static uint64_t hard_dividend(uint64_t b, uint64_t k, bool negative)
{
    uint64_t r = 1;
    for (int i = 0; i < 24; i++)
        r = (r & 1 ? r + b : r) / 2;
    r = r * k % b;
    return negative ? b - r : r;
}

static void check_quotients(tt_tensor *x, tt_tensor *y, float b)
{
    tt_tensor d = tensor(TT_F32, 0, NULL);
    fp(&d)[0] = b;
    EACH_ISA
    {
        run(isa, "div", (tt_tensor[]){*x, d}, 2, y, 1, NULL);
        for (int64_t i = 0; i < tt_tensor_numel(x); i++)
            if (!same_bits(fp(y)[i], fp(x)[i] / b))
                fail_msg("%a / %a (%s) is %a, not %a", (double)fp(x)[i], (double)b, H.isa[isa],
                         (double)fp(y)[i], (double)(fp(x)[i] / b));
    }
    free(d.data);
}

static void test_quotients_by_one_divisor_are_rounded_to_nearest(void **state)
{
    (void)state;
    enum { N = 1237 };
    tt_tensor x = F32(N), y = F32(N);
    for (int round = 0; round < 400; round++) {
        /* an odd whole number of 24 bits as a divisor, at some scale; and special ones */
        const uint64_t m = round == 0 ? 0xffffff : 0x800001 | (random_bits() & 0x7ffffe);
        const float b = round < 300 ? ldexpf((float)m, (int)(random_bits() % 40) - 40)
                                    : special[round % (int)TT_COUNT(special)];
        for (int i = 0; i < N; i++) {
            const uint64_t a = hard_dividend(m, 2 * (random_bits() % 4) + 1, i & 1);
            const bool wild = i / 256 % 2 && round % 3 == 0;
            fp(&x)[i] = wild && i % 3 ? special[random_bits() % TT_COUNT(special)]
                        : wild        ? of_bits((uint32_t)random_bits())
                        : i % 7 == 0  ? 0.0f * (float)(i % 2 ? -1 : 1)
                                      : ldexpf((float)(i % 4 < 2 && a + m < 0x1000000 ? a + m : a),
                                               (int)(random_bits() % 30) - 30) *
                                           (i % 5 ? 1 : -1);
        }
        check_quotients(&x, &y, b);
    }
    free(x.data);
    free(y.data);
}

/* ---- programs ---- */
enum { OPERANDS = 4, MOST = 24 };

typedef struct program {
    tt_fused f;
    tt_fused_instr instr[MOST];
    int16_t out[3];
} program;

/* Instructions of chains, and now and then one that cannot be in a chain; operands may be any
 * earlier register. */
static void draw(program *p)
{
    static const char *const two[] = {"add", "sub", "mul", "div", "maximum", "minimum", "pow"},
                             *const one[] = {"scale", "sqrt",     "neg", "abs",
                                             "relu",  "softplus", "tanh"};
    p->f = (tt_fused){.n_in = OPERANDS,
                      .n_instr = 1 + (int)(random_bits() % MOST),
                      .n_out = 3,
                      .instr = p->instr,
                      .out = p->out};
    for (int i = 0; i < p->f.n_instr; i++) {
        const int unary = random_bits() % 3 == 0;
        tt_fused_instr *in = &p->instr[i];
        const uint64_t op = random_bits() % 17 < 16 ? random_bits() % (unary ? 5 : 6)
                            : unary                 ? 5 + random_bits() % 2
                                                    : 6;
        *in = (tt_fused_instr){.op = unary ? one[op] : two[op],
                               .n_src = (int16_t)(2 - unary),
                               .dtype = TT_F32,
                               .imm = random_bits() % 2 ? 0.37 : -1.5};
        for (int s = 0; s < in->n_src; s++)
            in->src[s] = (int16_t)(i > 0 && random_bits() % 3
                                       ? OPERANDS + i - 1
                                       : (int)(random_bits() % (uint64_t)(OPERANDS + i)));
        if (random_bits() % 20 == 0)
            *in = (tt_fused_instr){.op = "const", .dtype = TT_F32, .imm = 0.25};
    }
    const int last = OPERANDS + p->f.n_instr - 1;
    p->out[0] = (int16_t)last;
    for (int o = 1; o < 3;
         /* any register, also an operand; a register named twice is a result that is stored
          * twice */
         o++)
        p->out[o] = (int16_t)(random_bits() % (uint64_t)(last + 1));
}

static void one_by_one(int isa, const program *p, tt_tensor *reg, const int64_t *shape)
{
    for (int i = 0; i < p->f.n_instr; i++) {
        const tt_fused_instr *in = &p->instr[i];
        const tt_attrs_scale scale = {in->imm};
        const tt_attrs_const value = {.value = in->imm};
        tt_tensor src[2];
        bool splat = true;
        for (int s = 0; s < in->n_src; s++) {
            src[s] = reg[in->src[s]];
            splat = splat && tt_tensor_numel(&src[s]) == 1;
        }
        reg[OPERANDS + i] = splat ? tensor(TT_F32, 0, NULL) : tensor(TT_F32, 2, shape);
        run(isa, in->op, src, in->n_src, &reg[OPERANDS + i], 1,
            in->n_src ? (const void *)&scale : &value);
    }
}

static void check_program(int isa, const program *p, const int64_t *shape, tt_tensor *operands)
{
    tt_tensor reg[OPERANDS + MOST], out[3];
    memcpy(reg, operands, OPERANDS * sizeof *reg);
    one_by_one(isa, p, reg, shape);
    for (int in_place = 0; in_place < 2; in_place++) {
        tt_tensor in[OPERANDS];
        memcpy(in, operands, sizeof in);
        for (int o = 0; o < 3; o++)
            out[o] = tensor(TT_F32, 2, shape);
        if (in_place) { /* over the first operand, and over the second */
            for (int o = 0; o < 2; o++) {
                memcpy(out[o].data, in[o].data, (size_t)tt_tensor_numel(&in[o]) * sizeof(float));
                in[o].data = out[o].data;
            }
            tt_kernel_call c = {.struct_size = sizeof c,
                                .op = "fused",
                                .in = in,
                                .n_in = OPERANDS,
                                .out = out,
                                .n_out = 3,
                                .attrs = &p->f};
            run_once(isa, 1, H.vt->kernel(H.self[isa], "fused"), &c);
        } else {
            run(isa, "fused", in, OPERANDS, out, 3, &p->f);
        }
        for (int o = 0; o < 3; o++) {
            const tt_tensor *w = &reg[p->out[o]];
            /* overwriting an operand that is another result is the caller's mistake */
            if (in_place && p->out[o] < 2)
                continue;
            for (int64_t i = 0; i < tt_tensor_numel(&out[o]); i++) {
                const int64_t at = tt_tensor_numel(w) == 1                          ? 0
                                   : tt_tensor_numel(w) == shape[1] && shape[0] > 1 ? i % shape[1]
                                                                                    : i;
                if (!same_bits(fp(&out[o])[i], fp(w)[at]))
                    fail_msg("%s: %d instructions, result %d, element %lld of %lld: %a, not %a",
                             H.isa[isa], p->f.n_instr, o, (long long)i,
                             (long long)(shape[0] * shape[1]), (double)fp(&out[o])[i],
                             (double)fp(w)[at]);
            }
        }
        drop(out, 3);
    }
    drop(reg + OPERANDS, p->f.n_instr);
}

static void test_a_chain_has_the_bits_of_its_instructions(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {
        {1, 1    },
        {1, 15   },
        {3, 43   },
        {1, 128  },
        {2, 257  },
        {5, 1021 },
        {1, 16384}
    };
    for (int round = 0; round < 120; round++) {
        const int64_t *shape = shapes[(size_t)round % TT_COUNT(shapes)];
        program p;
        draw(&p);
        tt_tensor x[OPERANDS] = {F32(shape[0], shape[1]), F32(shape[0], shape[1]), F32(shape[1]),
                                 tensor(TT_F32, 0, NULL)};
        for (int k = 0; k < OPERANDS; k++)
            for (int64_t i = 0; i < tt_tensor_numel(&x[k]); i++)
                fp(&x[k])[i] = random_bits() % 50 ? (float)noise()
                                                  : special[random_bits() % TT_COUNT(special)];
        EACH_ISA
        check_program(isa, &p, shape, x);
        drop(x, OPERANDS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roots_are_rounded_to_nearest),
        cmocka_unit_test(test_quotients_by_one_divisor_are_rounded_to_nearest),
        cmocka_unit_test(test_a_chain_has_the_bits_of_its_instructions),
    };
    return cmocka_run_group_tests(tests, harness_open, harness_close);
}
