/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PEER_H
#define TT_PEER_H
#include "train/train.h"

/* Copies of the state in memory that a supervisor owns (checkpoint.peer_copy_interval), so that a rank that is
 * lost costs no more than the steps since the last copy, and no disk. Each rank has a memfd with two copies,
 * of which it replaces the older one, beside the next forward. A start goes on from the newest step of which
 * every rank has a whole copy, for the same job, unless a checkpoint is newer; on another mesh from the newest
 * step whose copies together have every tensor (peer_read.c). With --nnodes the supervisor sends the copies to
 * another node, too (launch/peers.h). */

struct tt_loop;
typedef struct tt_peer tt_peer;

/* The copies of this rank; l->peer stays NULL if nobody keeps any. What fails later is a line of the log. */
tt_status tt_loop_open_peer(struct tt_loop *l, tt_error *err);
void tt_loop_close_peer(struct tt_loop *l);
bool tt_loop_peer_due(const struct tt_loop *l); /* after this step; the same on all ranks */
/* Begins a copy of the state after this step, whose numbers are known. [collective] */
tt_status tt_loop_peer_copy(struct tt_loop *l, tt_error *err);
/* Waits until the states may change. */
void tt_loop_peer_wait(struct tt_loop *l);
/* Before another program takes over, which gets new copies. */
void tt_loop_peer_leave(struct tt_loop *l);
/* Fills the states from the newest copies after step `saved` or of it, -1: any. *found false: there are none,
 * and nothing has changed. [collective] */
tt_status tt_loop_peer_load(struct tt_loop *l, int64_t saved, tt_trainer_state *st, bool *found,
                            tt_error *err);

/* peer_read.c: the same from the copies of all ranks of this machine, whatever mesh they were made on. */
tt_status tt_loop_peer_load_others(struct tt_loop *l, int64_t saved, tt_trainer_state *st,
                                   bool *found, tt_error *err);
uint64_t tt_loop_peer_job(const struct tt_loop *l); /* of what is trained: equal for all meshes */

/* ---- the supervisor's side; fds: memfds of n ranks, -1: none ---- */
int64_t tt_peer_newest(const int *fds,
                       int n);              /* a step of which all have a copy; -1: there is none */
void tt_peer_forget(const int *fds, int n); /* no rank runs */
/* Gives back the memory of the copy that is not of this step. No rank runs. */
void tt_peer_keep_step(int fd, int64_t step);

#endif
