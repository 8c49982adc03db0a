/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cuda_config.h"

#include "../plugins/backends/cuda/kernels/point_shape.h"

/* Pointwise programs of the cuda backend: the kernels that are compiled for them and the interpreter
 * have the same bits, for every op, dtypes of all kinds, broadcast operands, any alignment and in place. */

#define PROGRAMS 12
#define STEPS 10
#define INS 4

static subject reference, compiled, interpreted;
static uint64_t random_state = 5;

static int draw(int n)
{
    return (int)(eval_uniform(&random_state) * n);
}

static const char *const ops[] = {
#define POINT_ROW(id, name, n, expression) name,
    POINT_OPS(POINT_ROW)
#undef POINT_ROW
};
static const int operands[] = {
#define POINT_ROW(id, name, n, expression) n,
    POINT_OPS(POINT_ROW)
#undef POINT_ROW
};

static bool is_nan(tt_dtype t, const void *p)
{
    uint64_t u = 0;
    memcpy(&u, p, tt_dtype_size(t));
    return t == TT_F32    ? (u & 0x7fffffffu) > 0x7f800000u
           : t == TT_BF16 ? (u & 0x7fffu) > 0x7f80u
           : t == TT_F16  ? (u & 0x7fffu) > 0x7c00u
           : t == TT_F64  ? (u & UINT64_C(0x7fffffffffffffff)) > UINT64_C(0x7ff0000000000000)
                          : false;
}

static void same(const tt_tensor *a, const tt_tensor *b, const char *what, int program)
{
    const size_t size = tt_dtype_size(a->dtype);
    for (int64_t i = 0; i < tt_tensor_numel(a); i++) {
        const char *p = (char *)a->data + (size_t)i * size, *q = (char *)b->data + (size_t)i * size;
        uint64_t u = 0, v = 0;
        memcpy(&u, p, size);
        memcpy(&v, q, size);
        if (u != v && !(is_nan(a->dtype, p) && is_nan(a->dtype, q)))
            fail_msg("program %d, %s: element %lld of %s is %llx, not %llx", program, what,
                     (long long)i, tt_dtype_name(a->dtype), (unsigned long long)v,
                     (unsigned long long)u);
    }
}

static tt_tensor make(tt_arena *a, tt_dtype dtype, int n_dims, const int64_t *shape)
{
    tt_tensor t = {.dtype = dtype, .n_dims = n_dims};
    for (int d = 0; d < n_dims; d++)
        t.shape[d] = t.global[d] = shape[d];
    t.data = tt_arena_array(a, (size_t)tt_tensor_numel(&t) + 1, tt_dtype_size(dtype));
    return t;
}

/* Numbers of any dtype, by the reference's own conversion; some are special. */
static void fill(const tt_tensor *t, tt_arena *a)
{
    static const double special[] = {0.0,
                                     -0.0,
                                     (double)INFINITY,
                                     -(double)INFINITY,
                                     (double)NAN,
                                     1e-42,
                                     6e-8,
                                     65519.0,
                                     65520.0,
                                     2147483647.5,
                                     -3e9,
                                     1e300,
                                     255.5,
                                     0x1.004p0,
                                     0x1.00cp0,
                                     1e19,
                                     3e-39,
                                     -1e-310,
                                     0x1.8p-25,
                                     0x1.01p0};
    tt_tensor from = make(a, TT_F64, t->n_dims, t->shape), to = *t;
    tt_attrs_cast cast = {.to = t->dtype};
    for (int64_t i = 0; i < tt_tensor_numel(t); i++)
        ((double *)from.data)[i] = draw(8) == 0 ? special[draw(TT_COUNT(special))]
                                                : 8.0 * eval_uniform(&random_state) - 4.0;
    tt_kernel_call c = {
        .struct_size = sizeof c, .op = "cast", .in = &from, .n_in = 1, .n_out = 1, .attrs = &cast};
    assert_true(subject_run(&reference, 0, reference.vt->kernel(NULL, "cast"), &c, &to));
}

static void run(subject *u, const tt_fused *f, const tt_tensor *in, tt_tensor *out, bool tight)
{
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = "fused",
                        .in = in,
                        .n_in = f->n_in,
                        .n_out = f->n_out,
                        .attrs = f};
    for (int i = 0; i < f->n_out; i++)
        memset(out[i].data, 0x5a, out[i].data == in[0].data ? 0 : subject_bytes(&out[i]));
    u->tight = tight;
    assert_true(subject_run(u, 0, u->vt->kernel(u->self[0], "fused"), &c, out));
}

/* ---- all ops ---- */

typedef struct program {
    tt_fused_instr steps[STEPS];
    int16_t out[2];
    tt_dtype in[INS];
    int narrow[INS]; /* bit d: the operand has size 1 in dim d */
    tt_fused f;
} program;

/* Step i of program n does op n * (STEPS - 1) + i; the last one is an add in f32. Operand 0 is whole and f32. */
static void make_program(program *p, int n)
{
    static const tt_dtype floats[] = {TT_F32, TT_F32, TT_BF16, TT_F16, TT_F64};
    for (int i = 0; i < INS; i++) {
        p->in[i] = i == 0 ? TT_F32 : n % 3 == 0 ? floats[draw(3)] : (tt_dtype)draw(TT_N_DTYPES);
        p->narrow[i] = i == 0 || n % 4 == 3 ? 0 : draw(8);
    }
    for (int i = 0; i < STEPS; i++) {
        const int op = i == STEPS - 1 ? POINT_ADD : (n * (STEPS - 1) + i) % POINT_N_OPS;
        tt_fused_instr *t = &p->steps[i];
        *t = (tt_fused_instr){.op = ops[op], .n_src = (int16_t)operands[op], .dtype = TT_F32};
        if (i < STEPS - 1)
            t->dtype = op == POINT_CAST || op == POINT_CAST_DOWN || op == POINT_SELECT
                           ? (tt_dtype)draw(TT_N_DTYPES)
                       : op >= POINT_LESS && op <= POINT_EQUAL ? TT_BOOL
                                                               : floats[draw(TT_COUNT(floats))];
        if (op == POINT_SCALE || op == POINT_CONST)
            t->imm = n % 2 ? 0.1 : op == POINT_CONST ? -(double)INFINITY : -3.5;
        for (int k = 0; k < t->n_src; k++)
            t->src[k] = (int16_t)draw(INS + i);
    }
    p->out[0] = INS + STEPS - 1;
    p->out[1] = (int16_t)(INS + draw(STEPS - 1));
    p->f = (tt_fused){INS, STEPS, 2, p->steps, p->out};
}

static void check_program(const program *p, int n, const int64_t *shape, bool tight)
{
    tt_arena *a = tt_arena_new();
    tt_tensor in[INS], out[3][2];
    for (int i = 0; i < INS; i++) {
        int64_t own[3];
        for (int d = 0; d < 3; d++)
            own[d] = p->narrow[i] >> d & 1 ? 1 : shape[d];
        in[i] = make(a, p->in[i], 3, own);
        fill(&in[i], a);
    }
    for (int k = 0; k < 3; k++)
        for (int o = 0; o < 2; o++)
            out[k][o] = make(a, p->steps[p->out[o] - INS].dtype, 3, shape);
    run(&interpreted, &p->f, in, out[0], tight);
    run(&compiled, &p->f, in, out[1], tight);
    same(&out[0][0], &out[1][0], "output 0 compiled", n);
    same(&out[0][1], &out[1][1], "output 1 compiled", n);
    memcpy(out[2][0].data, in[0].data, subject_bytes(&in[0]));
    in[0].data = out[2][0].data;
    run(&compiled, &p->f, in, out[2], tight);
    same(&out[0][0], &out[2][0], "output 0 in place", n);
    same(&out[0][1], &out[2][1], "output 1 in place", n);
    tt_arena_free(a);
}

static void test_compiled_programs_have_the_bits_of_the_interpreter(void **state)
{
    static const int64_t shapes[][3] = {
        {3, 7,  48},
        {5, 3,  24},
        {2, 9,  37},
        {0, 4,  8 },
        {1, 1,  80},
        {2, 40, 8 }
    };
    static program p[PROGRAMS];
    (void)state;
    for (int n = 0; n < PROGRAMS; n++)
        make_program(&p[n], n);
    for (int n = 0; n < PROGRAMS; n++)
        for (size_t i = 0; i < TT_COUNT(shapes); i++)
            if (i != 4 || n % 4 == 0) /* another kernel, of fewer dims */
                check_program(&p[n], n, shapes[i], i % 2 == 1);
}

/* ---- all conversions ---- */

static void test_conversions_between_all_dtypes_are_the_reference_s(void **state)
{
    static const int64_t shape[] = {203};
    (void)state;
    for (int from = 0; from < TT_N_DTYPES; from++)
        for (int part = 0; part * 4 < TT_N_DTYPES; part++) {
            tt_arena *a = tt_arena_new();
            tt_fused_instr steps[4];
            int16_t outs[4];
            tt_tensor in = make(a, (tt_dtype)from, 1, shape), out[3][4];
            for (int i = 0; i < 4; i++) {
                steps[i] = (tt_fused_instr){
                    .op = "cast", .n_src = 1, .dtype = (tt_dtype)((4 * part + i) % TT_N_DTYPES)};
                outs[i] = (int16_t)(i + 1);
                for (int k = 0; k < 3; k++)
                    out[k][i] = make(a, (tt_dtype)((4 * part + i) % TT_N_DTYPES), 1, shape);
            }
            const tt_fused f = {1, 4, 4, steps, outs};
            fill(&in, a);
            run(&reference, &f, &in, out[0], false);
            run(&interpreted, &f, &in, out[1], true);
            run(&compiled, &f, &in, out[2], false);
            for (int i = 0; i < 4; i++) {
                same(&out[0][i], &out[1][i], "conversion", from);
                same(&out[0][i], &out[2][i], "compiled conversion", from);
            }
            tt_arena_free(a);
        }
}

static int load(void **state)
{
    static max_align_t zero[64];
    (void)state;
    subject_open(&reference, "reference", zero);
    subject_open(&compiled, "cuda", cuda_test_config());
    subject_open(&interpreted, "cuda", cuda_test_config());
    cuda_test_interpret(&interpreted);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    subject_close(&reference);
    subject_close(&compiled);
    subject_close(&interpreted);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compiled_programs_have_the_bits_of_the_interpreter),
        cmocka_unit_test(test_conversions_between_all_dtypes_are_the_reference_s),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
