/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_POOL_H
#define TT_BASE_POOL_H
#include "base.h"
#include <ttrun/backend.h>

/* The thread pool of one rank (R12): the caller and n-1 workers; spin briefly, then futex.
 * tt_parallel_for and tt_pool_threads are in <ttrun/backend.h>. With one thread no thread is made.
 */
tt_status tt_pool_new(int n_threads, tt_pool **out, tt_error *err);
void tt_pool_free(tt_pool *p); /* joins; NULL is fine */
int tt_cpu_count(void);        /* cores this process may use (affinity, cgroup quota) */
/* Where processes of one launcher are the ranks: the cores all of them may use, and those one of
 * n_ranks should. */
int tt_cpu_count_of_ranks(void);
int tt_cpu_share(int n_ranks);

/* What the workers did, for traces: one slice a worker and tt_parallel_for, from its first piece to
 * its last; the caller's time is the caller's to note. Where a worker's slices are full, further
 * ones are counted only. */
typedef struct tt_pool_slice {
    int64_t begin_ns, end_ns;
    int64_t job; /* counts the tt_parallel_for since tracing began */
    int32_t tag; /* tt_pool_tracer.tag when it began */
    int32_t pieces;
} tt_pool_slice;
typedef struct tt_pool_slices { /* of one worker */
    tt_pool_slice *items;
    size_t n, cap, dropped;
} tt_pool_slices;
typedef struct tt_pool_tracer {
    int32_t tag; /* the caller's, between two tt_parallel_for */
    int64_t jobs;
    tt_pool_slices *workers; /* [threads - 1] */
} tt_pool_tracer;
/* From now on every worker writes into t; NULL: none does, and no clock is read. [step] */
void tt_pool_trace(tt_pool *p, tt_pool_tracer *t);

#endif
