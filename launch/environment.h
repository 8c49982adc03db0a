/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_ENVIRONMENT_H
#define TT_ENVIRONMENT_H
#include "comm/session.h"

/* Which rank this process is, as the launcher that started it says in environment variables. */

typedef char *(*tt_getenv)(const char *name);
/* get: getenv, or a function of a test. Fails if the variables contradict each other. */
tt_status tt_launch_read(tt_getenv get, tt_launch *out, tt_error *err);
/* For a process that no launcher started: fails if WORLD_SIZE or RANK says that there are other ranks. */
tt_status tt_launch_alone(tt_getenv get, tt_error *err);
/* From now on the kernel kills this process when its parent, the launcher, exits (R22). */
tt_status tt_launch_follow(tt_error *err);

#endif
