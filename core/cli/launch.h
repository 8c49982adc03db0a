/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_LAUNCH_H
#define TT_CLI_LAUNCH_H
#include "cli/cli.h"

/* --nproc N: N processes of this program with the same command line, by mpirun or by itself. This
 * process waits for them, hands signals on and ends as they do. */
bool tt_launch_has_mpirun(void);
/* Status of the ranks, which have told their errors themselves: err is then without a text. */
tt_status tt_launch_ranks(const tt_cli *cli, int n, bool mpirun, tt_error *err);
/* Of a rank: the launcher learns that it lives. */
void tt_launch_report(void);

#endif
