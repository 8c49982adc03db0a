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

/* A program made ready to run over parts of its elements. */
#define CPU_MAX_REGS 512
typedef struct cpu_program {
    const tt_fused *f;
    const tt_tensor *in, *out;
    const cpu_isa *isa;
    char *scratch;
    int64_t n; /* elements of the result */
    const int64_t *shape;
    int n_dims, n_slots;
    bool in_rows;                 /* no part crosses rows of the result */
    int16_t op[CPU_MAX_REGS];     /* of each instruction */
    int16_t slot[CPU_MAX_REGS];   /* of each register */
    int16_t direct[CPU_MAX_REGS]; /* output written in place by the register, or -1 */
    bool splat[CPU_MAX_REGS], row[CPU_MAX_REGS]; /* row: an operand that is the same for each row */
    bool loaded[CPU_MAX_REGS];                   /* an operand that some instruction reads */
    tt_dtype dtype[CPU_MAX_REGS];
    char *base[CPU_MAX_REGS];     /* NULL: in its slot */
    int64_t step[CPU_MAX_REGS];   /* bytes from one element to the next */
    int16_t stream[CPU_MAX_REGS]; /* operands read where they lie, but by no chain first */
    int n_streams;
    int16_t last[CPU_MAX_REGS];  /* the last instruction, as a register, that reads a register */
    int16_t chain[CPU_MAX_REGS]; /* instructions of the chain that begins at one, or 0 */
    int16_t n_steps[CPU_MAX_REGS];
    cpu_step steps[2 * CPU_MAX_REGS]; /* those of the chain that begins at i: from 2 i on */
    int64_t slot_bytes, ahead;        /* ahead: bytes of each stream an instruction asks for */
} cpu_program;
size_t cpu_program_scratch(const tt_fused *f, int n_threads);
tt_status cpu_program_make(cpu_program *p, const tt_fused *f, const cpu_isa *isa,
                           const tt_tensor *in, const tt_tensor *out, void *scratch, bool in_rows,
                           tt_error *err);
/* Finds the runs of instructions that are chains. */
void cpu_chains_find(cpu_program *p);
void cpu_chain_run(const cpu_program *p, int first, int64_t begin, int64_t n, char *slots);
/* Where register r of elements [begin, …) lies for a thread. */
char *cpu_program_at(const cpu_program *p, int r, int64_t begin, char *slots);
/* Elements [begin, end) of the result, on a thread of the pool. */
void cpu_program_run(const cpu_program *p, int64_t begin, int64_t end, int thread);

#endif
