/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DIST_H
#define TT_DIST_H
#include "comm/session.h"
#include "mesh/mesh.h"
#include <ttrun/comm.h>

/* core/comm: the communicator of one rank, and groups of ranks that are chosen by mesh atoms. */

typedef struct tt_dist {
    const tt_comm_vt *vt; /* NULL: one rank, no communication */
    void *self;
    int rank, world;
    int local_rank, local_world; /* among the ranks of this machine */
    tt_comm *all;                /* every rank */
    void (*free_self)(void *self);
    tt_session *session; /* the rank processes of this machine; NULL: ranks are threads */
    /* The communicator of tensors (data_comm.h). That above carries what the host counts and agrees on.
     * On a host backend the two are one. */
    const tt_comm_vt *data_vt;
    void *data_self;
    struct tt_called *called; /* this rank's log of calls (call_log.h); NULL: none */
    struct tt_lending
        *lending;      /* of rank-threads, whose pools it makes (base/pool.h); NULL: none */
    int (*stop)(void); /* the signal that asks this process to stop, or 0; NULL: none does */
} tt_dist;

/* ---- rank-threads of one process (comm.backend "local") ---- */
typedef struct tt_threads tt_threads;
tt_status tt_threads_new(int world, double timeout_s, tt_threads **out, tt_error *err);
void tt_threads_free(tt_threads *t);
/* From now on the ranks, whose pools have n_threads each, lend their cores to one another while they wait
 * (base/pool.h); 0: they do not. If a helper cannot be started, a warning says so and they do not. Before any
 * rank joins. [setup] */
void tt_threads_lend(tt_threads *t, int n_threads);
/* One rank's communicator. [setup, called by that rank's thread] */
tt_status tt_threads_join(tt_threads *t, int rank, tt_dist *out, tt_error *err);
/* The group of all ranks 0 … world - 1. [collective] */
tt_status tt_comm_all(const tt_comm_vt *vt, void *self, int world, tt_comm **out, tt_error *err);
void tt_dist_leave(tt_dist *d);

/* ---- processes (comm.backend "shm", "mpi", or "auto", which chooses) ----
 * remote: the communicator of a plugin. It serves the groups that span machines or, with
 * `all_remote`, every group; NULL: all ranks are on this machine. The caller keeps the session.
 * [collective, setup] */
typedef struct tt_processes_opts {
    const tt_launch *launch;
    tt_session *session;
    const tt_comm_vt *remote;
    const void *remote_config;
    bool all_remote;
    bool concurrent;    /* collectives run concurrently with the program (async.h) */
    bool buffered_only; /* never copy directly between processes (shm.h) */

} tt_processes_opts;
tt_status tt_processes_join(const tt_processes_opts *o, tt_dist *out, tt_error *err);
void tt_dist_set_timeout(tt_dist *d, double timeout_s); /* for waits that begin after this */

/* ---- a group: the ranks whose coordinates differ from this rank's only in these atoms ---- */
typedef struct tt_group_comm {
    tt_comm *comm;
    int n, me;  /* number of members, and this rank's position among them */
    int *ranks; /* ascending */
} tt_group_comm;
/* Of the communicator of tensors. */
tt_status tt_dist_group(tt_dist *d, const tt_mesh *m, const tt_atom_list *atoms, tt_arena *a,
                        tt_group_comm *out, tt_error *err);

/* Ends a phase: every rank gets the status of the lowest rank that failed, and an error that names
 * that rank; if none failed and some were stopped (TT_ESIGNAL), one that names the signal. [collective] */
tt_status tt_agree(tt_dist *d, tt_status mine, tt_error *err);
/* The same where training goes on after the failure of a rank: the others get TT_EUNSUPPORTED and the text of the
 * lowest rank that failed. TT_ECOMM and TT_ETIMEOUT: the ranks cannot reach each other. [collective] */
tt_status tt_agree_or_go_on(tt_dist *d, tt_status mine, tt_error *err);
/* A text of one rank on all ranks: `mine` is NULL on the others. n: bytes of text, with the final 0, equal on all
 * ranks; mine has less. [collective] */
tt_status tt_share_text(tt_dist *d, const char *mine, char *text, size_t n, tt_error *err);
/* Reduces n elements of buf in place over all ranks. [collective] */
tt_status tt_dist_reduce(const tt_dist *d, void *buf, int64_t n, tt_dtype dtype, tt_reduce op,
                         tt_error *err);
/* Wakes every rank with an error. Called by a rank that failed outside a phase that ends in
 * tt_dist_agree(). */
void tt_dist_abort(tt_dist *d, const char *why);
/* The same, with the status that the processes exit with; only the first failure's text is printed.
 */
void tt_dist_fail(tt_dist *d, tt_status s, const char *why);

#endif
