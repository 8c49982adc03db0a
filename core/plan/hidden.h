/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_HIDDEN_H
#define TT_PLAN_HIDDEN_H
#include "cost/cost.h"
#include "plan/program.h"

/* Simulates sections of a program, one after the other, on a machine. Queues run concurrently,
 * the instructions of one queue one by one. Every instruction of the first micro-batch counts,
 * with the largest boxes. `of` gets the time that passes in each section, including its waits.
 * exposed is the communication during which nothing is computed, and copies_exposed the same of
 * copies between the device and host memory. */
typedef struct tt_list_seconds {
    double total, comm, exposed, copies, copies_exposed;
} tt_list_seconds;
tt_list_seconds tt_program_seconds(const tt_program *p, const tt_section *const *sections, int n,
                                   const tt_machine *m, double *of);

#endif
