/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_SUPERVISE_COPIES_H
#define TT_LAUNCH_SUPERVISE_COPIES_H
#include "base/base.h"

/* The memory of a supervisor for copies of its ranks' states (train/peer.h), without a name: it ends with this process.
 * After a change of the mesh the newest copies of the mesh before stay until all ranks have a copy of their own, so a
 * start that fails before that finds them, too. */

typedef struct tt_held {
    int *fds; /* by rank; NULL: no copies are kept */
    int n;
    int *before; /* by rank of the mesh before */
    int n_before;
} tt_held;

void tt_held_open(tt_held *k, int n); /* if it fails a line says so */
void tt_held_close(tt_held *k);
/* A step of which all ranks of a mesh have a copy; world: the ranks of the start that has ended. -1: there is none. */
int64_t tt_held_newest(const tt_held *k, int world);
/* No rank runs, and the next start has another mesh than that of `world` ranks. */
void tt_held_change_mesh(tt_held *k, int world);
/* Ends the copies of the mesh before, if all `world` ranks, which run now, have copies. */
void tt_held_tidy(tt_held *k, int world);
void tt_held_forget(tt_held *k); /* no rank runs */

#endif
