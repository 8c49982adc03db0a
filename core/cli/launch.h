/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_LAUNCH_H
#define TT_CLI_LAUNCH_H
#include "cli/cli.h"

/* --nproc N: starts N processes of this program with the same command line, with mpirun or without.
 * This process waits for them, passes signals on and exits with their status. One SIGTERM, SIGINT
 * or SIGHUP to it or to mpirun reaches every rank, even one that starts later (line.h); a second
 * one, later than TT_SIGNALS_GRACE_NS, kills them. */
bool tt_launch_has_mpirun(void);
/* Returns the status of the ranks. If they have printed their error themselves, err has no text.
 * init_timeout_s: the time limit for the first rank to start. */
tt_status tt_launch_ranks(const tt_cli *cli, int n, bool mpirun, double init_timeout_s,
                          tt_error *err);

#endif
