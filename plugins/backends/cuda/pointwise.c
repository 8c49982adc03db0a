/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

/* A pointwise op alone is a program of one step. */

typedef struct single {
    tt_fused_instr step;
    int16_t out;
    tt_fused program;
} single;

static void make_single(const tt_kernel_call *c, single *s)
{
    s->step = (tt_fused_instr){
        .op = c->op, .src = {0, 1, 2},
             .n_src = (int16_t)c->n_in, .dtype = c->out[0].dtype
    };
    const int op = cuda_point_op(c->op);
    if (op == POINT_SCALE)
        s->step.imm = ((const tt_attrs_scale *)c->attrs)->factor;
    if (op == POINT_CONST)
        s->step.imm = ((const tt_attrs_const *)c->attrs)->value;
    s->out = (int16_t)c->n_in;
    s->program =
        (tt_fused){.n_in = c->n_in, .n_instr = 1, .n_out = 1, .instr = &s->step, .out = &s->out};
}

static tt_status pointwise(void *backend, const tt_kernel_call *c, tt_error *err)
{
    single s;
    make_single(c, &s);
    return cuda_program_run(backend, c->queue, &s.program, c->in, c->out, err);
}

static int pointwise_supports(const tt_kernel_call *c)
{
    single s;
    make_single(c, &s);
    return !c->accumulate && cuda_program_supports(c->backend, &s.program, c->in, c->out);
}

/* The same bits, of any dtype, where the dtype stays. */
static tt_status convert(void *backend, const tt_kernel_call *c, tt_error *err)
{
    if (c->in[0].dtype != c->out[0].dtype)
        return pointwise(backend, c, err);
    return cuda_copy(backend, c->queue, c->out[0].data, c->in[0].data,
                     (size_t)tt_tensor_numel(&c->in[0]) * tt_dtype_size(c->in[0].dtype), err);
}

#define POINTWISE(op_, run_, in_place_)                                                            \
    {                                                                                              \
        .struct_size = sizeof(tt_kernel), .op = op_, .run = run_, .in_place = in_place_,           \
        .supports = pointwise_supports                                                             \
    }
const tt_kernel cuda_kernels_pointwise[] = {
#define POINT_ROW(id, name, n, expression)                                                         \
    POINTWISE(name,                                                                                \
              POINT_##id == POINT_CAST || POINT_##id == POINT_CAST_DOWN ||                         \
                      POINT_##id == POINT_STOP_GRADIENT                                            \
                  ? convert                                                                        \
                  : pointwise,                                                                     \
              7),
    POINT_OPS(POINT_ROW)
#undef POINT_ROW
        {0},
};
