/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_NODES_H
#define TT_CLI_NODES_H
#include "cli/launch.h"

/* ttrun --nnodes N: a ttrun on each of N machines starts the ranks of its machine. Node 0 listens at
 * --master_addr and --master_port; the others connect to it and keep the connection. Before each start
 * they meet: node 0 checks that all have the same job, and sends them the number of the start. When ranks
 * of a node fail, that node tells node 0, which tells all others to end theirs; node 0 then decides whether
 * all start again. The ranks themselves use the port after it. */

typedef struct tt_nodes_opts {
    int n, me;           /* nodes, and which one this is */
    int nproc;           /* ranks of each node */
    const char *address; /* of node 0 */
    int port;
    const char *id; /* --rdzv_id, or ""; a node with another one is refused */
    double timeout_s;
    bool restarts;   /* a node that is lost may come back */
    char digest[33]; /* of the job: equal on all nodes */
} tt_nodes_opts;

/* One start, as node 0 announces it. */
typedef struct tt_nodes_start {
    bool over; /* there is none: the run has ended */
    bool resume;
    char text[1024]; /* for TT_SUPERVISOR_VARIABLE */
} tt_nodes_start;

typedef struct tt_machines tt_machines;

tt_status tt_nodes_open(const tt_nodes_opts *o, const tt_launch_signals *signals, tt_machines **out,
                        tt_error *err);
void tt_nodes_close(tt_machines *n); /* NULL: nothing */
/* This node cannot take part: err says why, and all nodes that come end by it. Returns err->code. */
tt_status tt_nodes_cannot(const tt_nodes_opts *o, tt_error *err);
bool tt_nodes_is_first(const tt_machines *n);
/* Waits until all nodes are there. in: node 0's; the others get it. An error ends the run; where it is node 0's
 * word that the run has ended, start->over is true, and the status is that of the run. */
tt_status tt_nodes_meet(tt_machines *n, tt_nodes_start *start, tt_error *err);
/* For tt_launch_opts: a descriptor that can be read when a signal or another node needs attention, and
 * whether the ranks of this node must end because another one has failed. */
int tt_nodes_fd(const tt_machines *n);
bool tt_nodes_must_end(void *nodes);
void tt_nodes_environment(const tt_machines *n, int local_rank); /* in the process of a rank */
int tt_nodes_first_rank(const tt_machines *n);
/* The ranks of this node have ended, with this status; died: one by a signal. On node 0 it waits for the others and returns the first
 * failure of all, with a text that names the node; on the others it tells node 0. */
tt_status tt_nodes_ended(tt_machines *n, tt_status s, bool died, tt_error *err);
/* Node 0: the run has ended so. The others print the line, too. */
void tt_nodes_finish(tt_machines *n, tt_status s, const tt_error *err);

#endif
