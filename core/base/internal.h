/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_INTERNAL_H
#define TT_BASE_INTERNAL_H
#include "base.h"

/* Shared between the files of core/base only. */

/* Out of memory for small metadata: says how much and where, then aborts. */
_Noreturn void tt_out_of_memory(size_t size, const char *where);

/* The rank a pool's workers inherit from the thread that made them; -1 = the process's. */
int tt_log_thread_rank(void);

/* Raises `errno_value` about `path`: "PATH: cannot VERB: reason". */
tt_status tt_fail_errno(tt_error *err, int errno_value, const char *verb, const char *path);

#endif
