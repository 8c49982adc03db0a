/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch of a pointwise program gets, in C too. */
#pragma once
#include "point_ops.h"

#define POINT_INS 16
#define POINT_OUTS 4
#define POINT_DIMS 6
#define POINT_STEPS 96
#define POINT_THREADS 256

enum point_op {
#define POINT_ROW(id, name, n, expression) POINT_##id,
    POINT_OPS(POINT_ROW)
#undef POINT_ROW
        POINT_N_OPS
};
/* The numbers of tt_dtype. */
enum point_dtype {
    POINT_F32,
    POINT_BF16,
    POINT_F16,
    POINT_F64,
    POINT_I32,
    POINT_I64,
    POINT_U8,
    POINT_BOOL,
    POINT_F8E4M3,
    POINT_F8E5M2
};

/* Where the elements are. Element i of the result has the index x[d] in the dims of `size`; operand k
 * has it at Σ x[d] stride[k][d]. Dims in which all operands go on from each other are one dim. */
typedef struct point_shape {
    long long n; /* elements */
    long long
        n_wide; /* pieces of several elements, from the first on, that are worked on at a time */
    long long size[POINT_DIMS];
    long long stride[POINT_INS][POINT_DIMS];
    const void *in[POINT_INS];
    void *out[POINT_OUTS];
    int n_dims;
} point_shape;

/* A program for the interpreter. Register r < n_in is an operand; step i writes register n_in + i. */
typedef struct point_step {
    unsigned char op, dtype;
    unsigned char n_src, is_f64; /* is_f64: of its arithmetic */
    unsigned char src[3], unused;
    double imm;
} point_step;
typedef struct point_program {
    int n_in, n_steps, n_out;
    unsigned char in_dtype[POINT_INS], out[POINT_OUTS]; /* out: registers */
    point_step steps[POINT_STEPS];
} point_program;
