/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DIST_H
#define TT_DIST_H
#include "comm/session.h"
#include "mesh/mesh.h"
#include <ttrun/comm.h>

/* core/comm: the ranks of a run as one rank sees them, and groups of them by mesh atoms. */

typedef struct tt_dist {
    const tt_comm_vt *vt; /* NULL: one rank, no communication */
    void *self;
    int rank, world;
    tt_comm *all; /* every rank */
    void (*free_self)(void *self);
    tt_session *session; /* ranks are processes: those of this machine; else NULL */
} tt_dist;

/* ---- rank-threads of one process (comm.backend "local") ---- */
typedef struct tt_threads tt_threads;
tt_status tt_threads_new(int world, double timeout_s, tt_threads **out, tt_error *err);
void tt_threads_set_timeout(tt_threads *t, double timeout_s); /* of waits that begin from now on */
void tt_threads_free(tt_threads *t);
/* One rank's end. [setup, called by that rank's thread] */
tt_status tt_threads_join(tt_threads *t, int rank, tt_dist *out, tt_error *err);
void tt_dist_leave(tt_dist *d);

/* ---- processes (comm.backend "shm", "mpi", or "auto": what fits) ----
 * remote: a comm plugin's, for groups that reach over machines, or, with `all_remote`, for all
 * groups; NULL: every rank is of this machine. The session is the caller's. [collective, setup] */
typedef struct tt_processes_opts {
    const tt_launch *launch;
    tt_session *session;
    const tt_comm_vt *remote;
    const void *remote_config;
    bool all_remote;
    bool beside;    /* collectives will run beside the program (async.h) */
    bool room_only; /* shared memory: never copy from process to process (shm.h) */
} tt_processes_opts;
tt_status tt_processes_join(const tt_processes_opts *o, tt_dist *out, tt_error *err);
void tt_dist_set_timeout(tt_dist *d, double timeout_s); /* of waits that begin from now on */

/* ---- a group of the ranks that differ from this one only in these atoms ---- */
typedef struct tt_group_comm {
    tt_comm *comm;
    int n, me;  /* members, own position: ascending world ranks */
    int *ranks; /* ascending */
} tt_group_comm;
tt_status tt_dist_group(tt_dist *d, const tt_mesh *m, const tt_atom_list *atoms, tt_arena *a,
                        tt_group_comm *out, tt_error *err);

/* A phase ends in agreement: every rank gets the first failing rank's status, and an error that
 * names it. [collective] */
tt_status tt_agree(tt_dist *d, tt_status mine, tt_error *err);
/* Wake every rank with an error: called by the rank that failed outside an agreed phase. */
void tt_dist_abort(tt_dist *d, const char *why);
/* The same, with the status that processes end with; only the first failure's text is told. */
void tt_dist_fail(tt_dist *d, tt_status s, const char *why);

#endif
