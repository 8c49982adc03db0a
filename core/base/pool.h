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

#endif
