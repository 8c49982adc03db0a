/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_MPIRUN_H
#define TT_LAUNCH_MPIRUN_H
#include <stdbool.h>
#include <sys/types.h>

/* What the launcher does for mpirun, and what the system tells of it. Linux. */

/* Whether a batch system may have given mpirun other machines than this one. */
bool tt_mpirun_in_allocation(void);
/* Sets the environment in the child that becomes mpirun. files: a temporary folder for its files; NULL: there is none. */
void tt_mpirun_prepare(const char *files);
/* Whether mpirun has started any process; true if the system does not tell. */
bool tt_mpirun_has_children(pid_t pid);
/* The stop signal that somebody sent to mpirun, which has it blocked; 0: none. */
int tt_mpirun_signal(pid_t pid);

#endif
