/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_RANKS_H
#define TT_LAUNCH_RANKS_H
#include "launch/start_plan.h"

/* The ranks that are in this process, and what it says when it ends before the run is done. */

/* From here on until tt_ranks_unguard() a plugin that ends this process makes no success. */
void tt_ranks_guard(void);
void tt_ranks_unguard(void);
/* Runs all ranks in this process: there is one, or they are threads. dry_run: prints what they would do. */
tt_status tt_ranks_run(tt_start_plan *p, tt_error *err);
/* Runs this process's rank of many processes. */
tt_status tt_ranks_run_process(tt_start_plan *p, tt_error *err);

#endif
