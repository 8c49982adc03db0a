/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_CHAIN_H
#define TT_CPU_CHAIN_H
#include <stdbool.h>
#include <stdint.h>

/* Runs of simple f32 instructions of a pointwise program. A few vectors of elements go through all
 * of them before the next: what only the next instruction reads stays in registers, memory is read
 * and written while others compute. Each instruction rounds as its own loop does: same bits. */

/* What a step does to the vectors in hand, v; x is an operand in memory. */
enum cpu_step_op {
    CPU_STEP_LOAD, /* x */
    CPU_STEP_ADD,  /* v + x */
    CPU_STEP_SUB,  /* v - x */
    CPU_STEP_FROM, /* x - v */
    CPU_STEP_MUL,  /* v * x */
    CPU_STEP_DIV,  /* v / x */
    CPU_STEP_INTO, /* x / v */
    CPU_STEP_MAX,  /* maximum(v, x) */
    CPU_STEP_MIN,
    CPU_STEP_MAX_OF, /* maximum(x, v): of a NaN and of zeros of both signs the order decides */
    CPU_STEP_MIN_OF,
    CPU_STEP_RELU,
    CPU_STEP_SQRT,
    CPU_STEP_NEG,
    CPU_STEP_ABS,
};

typedef struct cpu_step {
    int8_t op;
    bool fetch;     /* x lies in memory: ask for what comes CPU_CHAIN_AHEAD bytes later */
    int16_t step;   /* from one element of x to the next: 1, or 0 where one is for all */
    int16_t rx, ry; /* x and y as registers of the program; -1: none */
    float imm;      /* what x points to where rx is -1 and op wants an operand */
    const float *x;
    float *y; /* where v goes afterwards; NULL: to the next step alone */
} cpu_step;
#define CPU_CHAIN_AHEAD 2048 /* bytes */
#define CPU_CHAIN_STEPS 64

#endif
