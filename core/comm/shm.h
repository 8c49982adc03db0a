/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SHM_H
#define TT_SHM_H
#include "comm/session.h"
#include <ttrun/comm.h>

/* comm.backend "shm": collectives among the processes of one machine. Small transfers go through
 * buffers in the session's shared memory; large ones are copied directly from process to process if
 * the kernel allows it, which the members of a group find out together. All members must be ranks
 * of the session. */
typedef struct tt_shm tt_shm;
extern const tt_comm_vt tt_shm_vt; /* self: a tt_shm, made by tt_shm_new() */
/* buffered_only: never copy directly from process to process. */
tt_status tt_shm_new(tt_session *s, int rank, bool buffered_only, tt_shm **out, tt_error *err);

#endif
