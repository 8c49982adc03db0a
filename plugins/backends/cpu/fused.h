/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_FUSED_H
#define TT_CPU_FUSED_H
#include "cpu.h"

/* Pointwise programs. A pointwise kernel is a program of one instruction, so fused and unfused
 * share every loop. */

#define CPU_TILE 1024 /* elements a register holds */

/* A value of n elements: stored at p, or one element for all of them. */
typedef struct cpu_reg {
    void *p;
    tt_dtype dtype;
    bool splat;
} cpu_reg;

/* y[i] = op(src…[i]), i < n. imm: "scale" and "const". work: 4 * CPU_BLOCK doubles of its own are
 * on the stack. */
void cpu_pointwise_run(const cpu_isa *isa, int op, int64_t n, const cpu_reg *src, int n_src,
                       cpu_reg *dst, double imm);

/* Elements [begin, begin + n) of a tensor broadcast to `shape`, written one after another. */
void cpu_broadcast_load(const tt_tensor *x, const int64_t *shape, int n_dims, int64_t begin,
                        int64_t n, void *dst);

#endif
