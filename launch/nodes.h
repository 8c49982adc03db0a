/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_NODES_H
#define TT_LAUNCH_NODES_H
#include "launch/launch.h"
#include "launch/refit.h"

/* ttrun --nnodes N: a ttrun on each of N machines starts the ranks of its machine. Node 0 listens at
 * --master_addr and --master_port; the others connect to it and keep the connection. Before each start
 * they meet: node 0 checks that all have the same job, and sends them the number of the start. When ranks
 * of a node fail, that node tells node 0, which tells all others to end theirs; node 0 then decides whether
 * all start again. The ranks themselves use the port after it.
 *
 * --nnodes MIN:MAX: the first meeting waits for MAX nodes, but once MIN are there no longer than
 * --rdzv-last-call. Later meetings go on at once with the nodes that are left, if they are MIN. A node that
 * joins while ranks run waits for the next meeting. Ranks are numbered by node in the order of --node_rank;
 * node 0 always has rank 0. */

typedef struct tt_nodes_opts {
    int n, me;           /* nodes, at most, and which one this is */
    int least;           /* of --nnodes MIN:MAX, MIN; 0: always n */
    int nproc;           /* ranks of each node, at most */
    const char *address; /* of node 0 */
    int port;
    const char *id; /* --rdzv_id, or ""; a node with another one is refused */
    double timeout_s;
    double last_call_s; /* least > 0: how long the first meeting waits for more nodes than these */
    bool restarts;      /* a node that is lost may come back */
    char digest[33];    /* of the job: equal on all nodes */
} tt_nodes_opts;

/* One start, as node 0 announces it. */
typedef struct tt_nodes_start {
    bool over; /* there is none: the run has ended */
    bool resume;
    char text[1024]; /* for TT_SUPERVISOR_VARIABLE */
    tt_refit mesh;   /* world 0: the job's */
    int64_t
        copies; /* node 0: at least this step of copies in memory to go on from; -1: from none */
} tt_nodes_start;

typedef struct tt_machines tt_machines;

tt_status tt_nodes_open(const tt_nodes_opts *o, const tt_launch_signals *signals, tt_machines **out,
                        tt_error *err);
void tt_nodes_close(tt_machines *n); /* NULL: nothing */
/* Before the first meeting: copies of the ranks' states are kept in memory (peers.h). */
void tt_nodes_keep_copies(tt_machines *n);
/* The memories of this node's ranks for copies, by local rank, for the start that was announced; NULL: there are
 * none. They are in use until tt_nodes_ended(). */
const int *tt_nodes_begin_copies(tt_machines *n);
/* Node 0: the newest step of which all ranks of such a world have a whole copy in some node's memory, -1: none. */
int64_t tt_nodes_newest_copy(const tt_machines *n, int world);
/* Node 0: the same of any world, where this node is alone and has the copies of all ranks. */
int64_t tt_nodes_own_copy(const tt_machines *n);
/* After tt_nodes_begin_copies(): memories with copies of another mesh, which the ranks read; *count: how many. */
const int *tt_nodes_copies_before(const tt_machines *n, int *count);
void tt_nodes_tidy_copies(tt_machines *n); /* ends them if all ranks, which run, have copies */
/* This node cannot take part: err says why, and all nodes that come end by it. Returns err->code. */
tt_status tt_nodes_cannot(const tt_nodes_opts *o, tt_error *err);
bool tt_nodes_is_first(const tt_machines *n);
/* Node 0: waits until the nodes are there. An error ends the run. */
tt_status tt_nodes_gather(tt_machines *n, tt_error *err);
int tt_nodes_here(const tt_machines *n); /* those that are connected, and this one */
/* Node 0: whether so many ranks can be divided evenly among the nodes that are there, with as many per node as
 * possible. */
bool tt_nodes_divide(const tt_machines *n, int world, int *nodes, int *local);
/* Node 0: gives the nodes their places and tells them to start. world: ranks of all nodes. */
void tt_nodes_announce(tt_machines *n, int world, const tt_nodes_start *start);
/* Node 0: "0, 2; spare: 1" */
void tt_nodes_list(const tt_machines *n, char *text, size_t size);
/* Another node: waits for node 0's word. Where it is that the run has ended, start->over is true, and the status
 * is that of the run. */
tt_status tt_nodes_hear(tt_machines *n, tt_nodes_start *start, tt_error *err);
/* Node 0: how many nodes have joined since the last call, while ranks run; who: "node 1 on host has come", of
 * the last one. */
int tt_nodes_came(tt_machines *n, char *who, size_t size);
/* For tt_launch_opts: a descriptor that can be read when a signal or another node needs attention, and
 * whether the ranks of this node must end because another one has failed. */
int tt_nodes_fd(const tt_machines *n);
bool tt_nodes_must_end(void *nodes);
void tt_nodes_environment(const tt_machines *n, int local_rank); /* in the process of a rank */
int tt_nodes_first_rank(const tt_machines *n);
int tt_nodes_ranks(const tt_machines *n); /* of this node, in this start */
/* The ranks of this node have ended, with this status; died: one by a signal; *stopped: the signal by which this node
 * was asked to stop, or 0. On node 0 it waits for the others and returns the first failure of all, with a text that
 * names the node, and sets *stopped if another node was asked; on the others it tells node 0. */
tt_status tt_nodes_ended(tt_machines *n, tt_status s, bool died, int *stopped, tt_error *err);
/* Node 0: the run has ended so. The others print the line, too. */
void tt_nodes_finish(tt_machines *n, tt_status s, const tt_error *err);

#endif
