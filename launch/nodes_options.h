/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_NODES_OPTIONS_H
#define TT_LAUNCH_NODES_OPTIONS_H
#include "launch/start_plan.h"

/* Reads --nnodes and the options that go with it into p->nodes, whose n is 1 if there is one machine. Otherwise
 * p->nproc becomes the number of all ranks. */
tt_status tt_nodes_take(tt_start_plan *p, tt_error *err);
tt_status tt_nodes_take_job(tt_start_plan *p, tt_error *err); /* what the job says; loads it */

#endif
