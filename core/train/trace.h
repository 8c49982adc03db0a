/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRAIN_TRACE_H
#define TT_TRAIN_TRACE_H
#include "exec/exec.h"

/* What is made of the record of a traced step. */

typedef struct tt_op_sum { /* the ops of one name */
    const char *op;
    /* Run by a thread of communication: its time is no part of the step's. The wait for it is, as
     * the op "wait". */
    bool concurrent;
    int64_t calls, ns;
    double flops, bytes; /* by the ops' cost rules, for this rank's shapes */
    double bound_s;      /* least seconds on this machine */
} tt_op_sum;
/* Adds what was recorded to sums[0..n); returns the new n, at most cap. */
size_t tt_trace_sums(const tt_trace *t, const struct tt_machine *limit, tt_op_sum *sums, size_t n,
                     size_t cap);
int64_t tt_trace_dropped(const tt_trace *t); /* events and slices for which there was no room */

/* The record as events of the Chrome trace format: objects, each with a ',' behind it. pid is the
 * rank, tid the thread; times are microseconds of tt_now_ns. */
void tt_trace_print(const tt_trace *t, tt_str *out);
/* One slice of that format. cat NULL: none. */
void tt_trace_slice(tt_str *out, int pid, int tid, const char *name, const char *cat,
                    int64_t begin_ns, int64_t end_ns, const char *args_json);

#endif
