/* SPDX-License-Identifier: Apache-2.0 */
#include "point_memory.h"

/* Pointwise programs without a compiler: a thread runs all steps on one element after the other. The bits are those of the
 * kernels that fused_source.c writes, which use the same functions. */

union point_register {
    float f;
    double d;
};

TT_DEV i64 interpret_at(const point_shape &s, int k, i64 i)
{
    i64 at = 0, rest = i;
    POINT_ROLLED
    for (int d = s.n_dims - 1; d > 0; d--) {
        at += rest % s.size[d] * s.stride[k][d];
        rest /= s.size[d];
    }
    return at + rest * s.stride[k][0];
}

TT_DEV void interpret_step(const point_step &t, const point_register *r, const bool *is_f64,
                           point_register *out)
{
    double v[3];
    for (int j = 0; j < 3; j++)
        v[j] = j >= t.n_src ? 0.0 : is_f64[t.src[j]] ? r[t.src[j]].d : (double)r[t.src[j]].f;
    if (point_is_f64(t.dtype))
        out->d = point_round_f64(t.dtype, point_f64(t.op, v[0], v[1], v[2], t.imm));
    else if (t.is_f64)
        out->f = point_round_f32(t.dtype, point_f64(t.op, v[0], v[1], v[2], t.imm));
    else
        out->f = point_round_f32(t.dtype, point_f32(t.op, v[0], v[1], v[2], t.imm));
}

TT_KERNEL(POINT_THREADS, tt_point_interpret, const point_shape s, const point_program p)
{
    point_register r[POINT_INS + POINT_STEPS];
    bool is_f64[POINT_INS + POINT_STEPS];
    for (int k = 0; k < p.n_in; k++)
        is_f64[k] = point_is_f64(p.in_dtype[k]);
    for (int k = 0; k < p.n_steps; k++)
        is_f64[p.n_in + k] = point_is_f64(p.steps[k].dtype);
    for (i64 i = point_first(); i < s.n; i += point_all()) {
        POINT_ROLLED
        for (int k = 0; k < p.n_in; k++) {
            const i64 at = interpret_at(s, k, i);
            if (is_f64[k])
                r[k].d = point_read_f64(p.in_dtype[k], s.in[k], at);
            else
                r[k].f = point_read_f32(p.in_dtype[k], s.in[k], at);
        }
        POINT_ROLLED
        for (int k = 0; k < p.n_steps; k++)
            interpret_step(p.steps[k], r, is_f64, &r[p.n_in + k]);
        POINT_ROLLED
        for (int k = 0; k < p.n_out; k++) {
            const int q = p.out[k], dtype = q < p.n_in ? p.in_dtype[q] : p.steps[q - p.n_in].dtype;
            if (is_f64[q])
                point_write(dtype, s.out[k], i, r[q].d);
            else
                point_write(dtype, s.out[k], i, r[q].f);
        }
    }
}
