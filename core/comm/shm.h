/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SHM_H
#define TT_SHM_H
#include "comm/session.h"
#include <ttrun/comm.h>

/* comm.backend "shm": collectives among processes of one machine: what is little through their
 * session's memory, what is much from process to process where the kernel lets them, which the
 * members of a group find out together. All must be ranks of the session. */
typedef struct tt_shm tt_shm;
extern const tt_comm_vt tt_shm_vt; /* self: a tt_shm. It has no open: tt_shm_new. */
/* room_only: never from process to process. */
tt_status tt_shm_new(tt_session *s, int rank, bool room_only, tt_shm **out, tt_error *err);

#endif
