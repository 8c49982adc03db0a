/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_NODES_OPTIONS_H
#define TT_LAUNCH_NODES_OPTIONS_H
#include "cli/cli.h"
#include "launch/environment.h"
#include "launch/nodes.h"

/* Reads --nnodes and the options that go with it. out->n is 1 if there is one machine. Otherwise the number
 * of all ranks becomes cli->nproc. */
tt_status tt_nodes_take(tt_cli *cli, const tt_launch *l, tt_nodes_opts *out, tt_error *err);
tt_status tt_nodes_take_job(tt_cli *cli, tt_nodes_opts *out, tt_error *err); /* what the job says */

#endif
