/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_HIDDEN_H
#define TT_PLAN_HIDDEN_H
#include "cost/cost.h"
#include "plan/program.h"

/* The time of sections of a program, one after the other, on a machine: queues run beside each
 * other, what is on one queue one by one. Every instruction of the first micro-batch counts, with
 * the largest boxes. of: what passes in each section, waits for what it needs included. exposed:
 * communication that nothing is computed beside. */
typedef struct tt_list_seconds {
    double total, comm, exposed;
} tt_list_seconds;
tt_list_seconds tt_program_seconds(const tt_program *p, const tt_section *const *sections, int n,
                                   const tt_machine *m, double *of);

#endif
