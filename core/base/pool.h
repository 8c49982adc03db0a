/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_POOL_H
#define TT_BASE_POOL_H
#include "base.h"
#include <ttrun/backend.h>

/* The thread pool of one rank (R12): the caller and n_threads - 1 workers, which spin briefly for
 * work and then sleep on a futex. <ttrun/backend.h> has tt_parallel_for and tt_pool_threads. */
#define TT_POOL_MOST 4096 /* threads */
tt_status tt_pool_new(int n_threads, tt_pool **out, tt_error *err);
void tt_pool_free(tt_pool *p); /* joins the workers; NULL is fine */

/* Ranks that are threads of one process lend their cores to one another: while some wait for the others,
 * helpers, which are threads beside those of the pools, work on the pieces of the ranks that still
 * compute. A pool counts all helpers among its threads. Which thread computes a piece changes no
 * result. */
typedef struct tt_lending tt_lending;
/* How many helpers n_ranks pools of n_threads have on this machine; 0 where no core is ever free. */
int tt_lending_helpers(int n_ranks, int n_threads);
/* *out is NULL where there would be no helpers. [setup] */
tt_status tt_lending_new(int n_ranks, int n_threads, tt_lending **out, tt_error *err);
void tt_lending_free(tt_lending *l); /* after all its pools; NULL is fine */
/* The pool of the rank that calls; tt_pool_free frees it. Once by each rank. [setup] */
tt_status tt_lending_pool(tt_lending *l, tt_pool **out, tt_error *err);
/* Around a wait for other ranks: the rank that calls lends its threads, and takes them back. Nothing
 * happens in a thread that has no pool of tt_lending_pool. [step] */
void tt_pool_lend(void);
void tt_pool_take_back(void);

/* In a worker: the address in the code that called the tt_parallel_for of its pieces; elsewhere NULL.
 * [in handlers of faults] */
const void *tt_pool_caller(void);
int tt_cpu_count(void); /* cores that this process may use (affinity, cgroup quota) */
/* What of these the quotas of control groups leave, in cores; infinite: they set none. Arguments: as tt_memory_limit(). */
double tt_cpu_quota(const char *cgroup_file, const char *root);
/* If one launcher started all ranks as processes: the cores that they may use together, and the
 * number that each of n_ranks should use. */
int tt_cpu_count_of_ranks(void);
int tt_cpu_share(int n_ranks);
/* The seconds that the calling thread has run on a core, and that it was ready to run and had none, by
 * /proc/thread-self/schedstat. false: the system does not say. */
bool tt_core_times(double *ran, double *waited);
bool tt_read_core_times(const char *text, double *ran, double *waited); /* of such a file */
/* The part of the time in which a thread waited for a core, if that makes a run clearly slower; else 0. seconds: what
 * the clock says; the first TT_CORE_WAIT_SECONDS tell nothing. */
#define TT_CORE_WAIT_SECONDS 30
double tt_core_wait_share(double seconds, double ran, double waited);

/* What the workers did, for traces: one slice per worker and tt_parallel_for, from the worker's
 * first piece to its last. The caller of tt_parallel_for records its own time. When a worker's
 * array is full, further slices are only counted as dropped. */
typedef struct tt_pool_slice {
    int64_t begin_ns, end_ns;
    int64_t job;    /* number of the tt_parallel_for, counted since tracing began */
    int32_t tag;    /* tt_pool_tracer.tag when the job began */
    int32_t pieces; /* that this worker ran */
} tt_pool_slice;
typedef struct tt_pool_slices { /* of one worker */
    tt_pool_slice *items;
    size_t n, cap, dropped;
} tt_pool_slices;
typedef struct tt_pool_tracer {
    int32_t tag;             /* set by the caller between two tt_parallel_for */
    int64_t jobs;            /* number of tt_parallel_for so far */
    tt_pool_slices *workers; /* [threads - 1] */
} tt_pool_tracer;
/* From now on workers record their slices in t; NULL: none does, and no clock is read. [step] */
void tt_pool_trace(tt_pool *p, tt_pool_tracer *t);

#endif
