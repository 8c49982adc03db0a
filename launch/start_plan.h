/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_START_PLAN_H
#define TT_LAUNCH_START_PLAN_H
#include "launch/environment.h"
#include "launch/nodes.h"
#include "launch/start.h"
#include "train/train.h"

/* What this process knows of the run. The job is loaded and set up once, and all that follows uses this one. */
typedef struct tt_start_plan {
    const tt_start_opts *o;
    tt_launch launch;          /* how another launcher has started this process */
    const tt_restart *restart; /* of the supervisor that has; NULL: none has */
    tt_nodes_opts nodes;       /* the machines of the ranks; n 1: this one */
    int nproc,
        least;   /* ranks of all machines, as in tt_start_opts; with nodes, `least` is of nodes */
    tt_job *job; /* NULL: not loaded yet */
    tt_registry *registry;
    tt_setup setup; /* without graphs until tt_setup_train() */
    int64_t read_ns,
        made_ns; /* how long it took to load the job and list plugins; to make the setup */
    /* what starts the ranks, by the setup */
    bool processes; /* each rank is a process; otherwise all are threads of one */
    bool mpirun;    /* mpirun starts them */
} tt_start_plan;

tt_status tt_start_load(tt_start_plan *p, tt_error *err); /* the job, unless it is loaded */
/* The setup of the job, in a process with ranks_here ranks of this machine, 0: all ranks, of which this is `rank`. */
tt_status tt_start_setup(tt_start_plan *p, int ranks_here, int rank, tt_error *err);

#endif
