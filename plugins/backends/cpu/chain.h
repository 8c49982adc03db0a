/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_CHAIN_H
#define TT_CPU_CHAIN_H
#include <stdbool.h>
#include <stdint.h>

/* Runs of simple f32 instructions of a pointwise program. A few vectors of elements go through all
 * instructions of the run before the next few vectors start, so a value that only the next
 * instruction reads stays in registers, and memory traffic overlaps computation. Each instruction
 * rounds as its own loop does, so the bits are the same. */

/* What a step does to v, the vectors in registers; x is an operand in memory. */
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
    bool fetch;     /* x is in memory: prefetch CPU_CHAIN_AHEAD bytes ahead */
    int16_t step;   /* elements from one x to the next: 1, or 0 if one x is for all */
    int16_t rx, ry; /* x and y as registers of the program; -1: not one */
    float imm;      /* what x points to if rx is -1 and op needs an operand */
    const float *x;
    float *y; /* where v is stored afterwards; NULL: nowhere, only the next step reads it */
} cpu_step;
#define CPU_CHAIN_AHEAD 2048 /* bytes */
#define CPU_CHAIN_STEPS 64

#endif
