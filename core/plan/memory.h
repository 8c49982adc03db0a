/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_MEMORY_H
#define TT_PLAN_MEMORY_H
#include "plan/program.h"

/* How much memory a program takes where it runs. core/exec allocates by these functions, and `ttrun
 * plan` adds them up. */

#define TT_CANARY_BYTES 4096 /* behind each space */
#define TT_STAGE_BYTES                                                                             \
    ((int64_t)4 << 20) /* pinned, per piece on its way between host and device; there are two */

int64_t tt_program_space_bytes(const tt_program *p, tt_space space); /* with canaries */
int64_t tt_program_most_written(const tt_program *p); /* by an instruction of epilogue or update */
/* Of the sums of stages, and of a number that says where a bad value was found. */
int64_t tt_program_sums_bytes(const tt_program *p);
/* The inputs of all micro-batches of a step, which a device has at once; an INPUT finds those of
 * micro-batch m at input_at + m × input_stride. -1: more than can be addressed. */
int64_t tt_program_input_bytes(const tt_program *p);
int64_t tt_program_input_at(const tt_program *p, const tt_instr *input);
int64_t tt_program_input_stride(const tt_program *p, const tt_instr *input);
/* Of messages that are sent before they are received: so many of the largest, for each receiver. */
int64_t tt_program_message_bytes(const tt_program *p);

typedef struct tt_program_memory { /* of a program that runs on a device */
    int64_t device;                /* in the device's memory */
    int64_t inputs;                /* of that; and as much pinned host memory */
    int64_t scalars;               /* pinned: scalars and metrics on their way */
    int64_t staging;               /* pinned: of tt_exec_read and tt_exec_write */
    int64_t offloaded;             /* pinned: optimizer states */
    int64_t activations;           /* pinned: values of forwards that wait for their backward */
    int64_t messages; /* in the device's memory, beside `device`: of the communicator, which
                                      keeps them for all programs of a run */
} tt_program_memory;
tt_program_memory tt_program_memory_of(const tt_program *p);

typedef struct tt_offloaded { /* activations in host memory, over the stages of the rank */
    int64_t values, bytes;    /* that are copied there for a micro-batch */
} tt_offloaded;
tt_offloaded tt_program_offloaded(const tt_program *p);

#endif
