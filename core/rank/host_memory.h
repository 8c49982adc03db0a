/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_HOST_MEMORY_H
#define TT_HOST_MEMORY_H
#include "setup/setup.h"

/* core/rank/host_memory.c: the memory of the host, which all ranks on it share. */

/* Bytes of the copy from which an asynchronous save writes (saver.c): this rank's part of
 * parameters and optimizer. */
int64_t tt_save_bytes(const tt_setup *s, const tt_plan *p);
/* The copies of n ranks that would each copy `bytes`. Only one of several replicas saves, so all
 * ranks together copy no more than all parameters and optimizer states. */
double tt_saves_bytes(const tt_setup *s, double bytes, int n);
/* An error if the host has less memory than its ranks take. eval: of the validation beside p; NULL: there is none. */
tt_status tt_host_memory_check(const tt_setup *s, const tt_plan *p, const tt_plan *eval,
                               tt_error *err);

#endif
