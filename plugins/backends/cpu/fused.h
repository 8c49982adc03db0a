/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_FUSED_H
#define TT_CPU_FUSED_H
#include "cpu.h"

/* Pointwise programs. A single pointwise kernel is a program of one instruction, so fused and
 * unfused ops share every loop. */

#define CPU_TILE 1024 /* elements per register */

/* A value of n elements at p, or (splat) one element that stands for all n. */
typedef struct cpu_reg {
    void *p;
    tt_dtype dtype;
    bool splat;
} cpu_reg;

/* y[i] = op(src…[i]) for i < n. imm is the number of "scale" and "const". It needs 4 * CPU_BLOCK
 * doubles of stack. */
void cpu_pointwise_run(const cpu_isa *isa, int op, int64_t n, const cpu_reg *src, int n_src,
                       cpu_reg *dst, double imm);

/* Writes elements [begin, begin + n) of a tensor broadcast to `shape`, one after another. */
void cpu_broadcast_load(const tt_tensor *x, const int64_t *shape, int n_dims, int64_t begin,
                        int64_t n, void *dst);

/* A program prepared to run over parts of its elements. */
#define CPU_MAX_REGS 512
typedef struct cpu_program {
    const tt_fused *f;
    const tt_tensor *in, *out;
    const cpu_isa *isa;
    char *scratch;
    int64_t n; /* number of elements of the result */
    const int64_t *shape;
    int n_dims, n_slots;
    bool in_rows;                 /* each part of the work is within one row of the result */
    int16_t op[CPU_MAX_REGS];     /* per instruction */
    int16_t slot[CPU_MAX_REGS];   /* per register */
    int16_t direct[CPU_MAX_REGS]; /* the output that the register is written to directly, or -1 */
    bool splat[CPU_MAX_REGS], row[CPU_MAX_REGS]; /* row: an operand that is the same for each row */
    bool loaded[CPU_MAX_REGS];                   /* an operand that some instruction reads */
    tt_dtype dtype[CPU_MAX_REGS];
    char *base[CPU_MAX_REGS];     /* NULL: the register is in its slot */
    int64_t step[CPU_MAX_REGS];   /* bytes from one element to the next */
    int16_t stream[CPU_MAX_REGS]; /* operands that are read in place, and not first by a chain */
    int n_streams;
    /* per register, the last instruction that reads it (as a register) */
    int16_t last[CPU_MAX_REGS];
    int16_t chain[CPU_MAX_REGS]; /* number of instructions of the chain that begins here, or 0 */
    int16_t n_steps[CPU_MAX_REGS];
    /* the steps of the chain that begins at instruction i begin at 2 i */
    cpu_step steps[2 * CPU_MAX_REGS];
    /* ahead: bytes of each stream that one instruction prefetches */
    int64_t slot_bytes, ahead;
} cpu_program;
size_t cpu_program_scratch(const tt_fused *f, int n_threads);
tt_status cpu_program_make(cpu_program *p, const tt_fused *f, const cpu_isa *isa,
                           const tt_tensor *in, const tt_tensor *out, void *scratch, bool in_rows,
                           tt_error *err);
/* Finds the runs of instructions that are chains. */
void cpu_chains_find(cpu_program *p);
void cpu_chain_run(const cpu_program *p, int first, int64_t begin, int64_t n, char *slots);
/* Where the elements of register r from `begin` on are stored, for the thread whose slots these
 * are. */
char *cpu_program_at(const cpu_program *p, int r, int64_t begin, char *slots);
/* Computes elements [begin, end) of the result, on a thread of the pool. */
void cpu_program_run(const cpu_program *p, int64_t begin, int64_t end, int thread);

#endif
