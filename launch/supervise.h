/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_SUPERVISE_H
#define TT_LAUNCH_SUPERVISE_H
#include "launch/launch.h"
#include "launch/refit.h"
#include "train/train.h"

/* --max-restarts N: this process starts the ranks itself, and when one of them dies, hangs or fails while
 * running (exit status 1) it ends the others at once and starts all again from the newest checkpoint. Other
 * exit statuses end the run: wrong usage or job (2), a numerical policy (3), a signal (4).
 *
 * N is a budget: it is whole again when TT_SUPERVISE_STEPS more steps are in a checkpoint than when it was whole
 * last. A start that ends with no new checkpoint is followed by the next after 0, 1, 2, 4, … seconds, at most
 * TT_SUPERVISE_MOST_S. If the budget is used up, the run ends with the first failure since it was whole. */

#define TT_SUPERVISE_STEPS 100
#define TT_SUPERVISE_MOST_S 30

typedef struct tt_supervise_opts {
    int most_restarts;
    int n;            /* ranks of all nodes; of --nproc MIN:MAX and --nnodes MIN:MAX, at most */
    int least;        /* of such a range, at least; 0: always n */
    bool threads;     /* ranks are threads of one process */
    tt_refit_job job; /* least > 0: its mesh */
    const char *checkpoints; /* the folder of the steps; NULL: nothing is saved */
    bool saves;              /* a stop saves the step */
    bool copies;             /* checkpoint.peer_copy_interval is set: ranks get memory for copies */
    double init_timeout_s;
    const struct tt_nodes_opts *nodes; /* NULL: all ranks are here */
    /* least > 0, without nodes: how many ranks this machine has room for now, its devices or cores. */
    int (*room)(void *user);
    void *user;
} tt_supervise_opts;
tt_status tt_supervise(const tt_start_opts *start, const tt_supervise_opts *o, tt_error *err);

/* Of a process that a supervisor has started, read from the environment, which then forgets it; false: none
 * has. out: which restart this is. */
bool tt_supervised(tt_arena *a, tt_restart *out);

#endif
