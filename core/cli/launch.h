/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_LAUNCH_H
#define TT_CLI_LAUNCH_H
#include "cli/cli.h"

/* --nproc N: N processes of this program with the same command line, by mpirun or by itself. This
 * process waits for them, hands signals on and ends as they do. One SIGTERM, SIGINT or SIGHUP to it
 * or to mpirun reaches every rank, whenever they come to run (line.h); a second one, later than
 * TT_SIGNALS_GRACE_NS, kills them. */
bool tt_launch_has_mpirun(void);
/* Status of the ranks, which have told their errors themselves: err is then without a text.
 * init_timeout_s: for the first rank to run. */
tt_status tt_launch_ranks(const tt_cli *cli, int n, bool mpirun, double init_timeout_s,
                          tt_error *err);

#endif
