/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_H
#define TT_LAUNCH_H
#include "base/base.h"

/* What the launcher's variables say of this process: mpirun, srun, torchrun, mpiexec, or ttrun. */
typedef struct tt_launch {
    int rank, world;             /* world 1: no launcher, or a launcher of one */
    int local_rank, local_world; /* among the ranks of this machine */
    const char *launcher;        /* its name; NULL: none */
    char key[33];                /* equal on all ranks of this start, no other's */
} tt_launch;

typedef char *(*tt_getenv)(const char *name);
/* get: getenv, or a test's. Errors: variables that contradict each other. */
tt_status tt_launch_read(tt_getenv get, tt_launch *out, tt_error *err);
/* Of a process that no launcher started: an error where WORLD_SIZE says that there are others. */
tt_status tt_launch_alone(tt_getenv get, tt_error *err);
/* From now on this process is killed when its parent, the launcher, ends (R22). */
tt_status tt_launch_follow(tt_error *err);

#endif
