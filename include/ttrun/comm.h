/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_COMM_H
#define TTRUN_COMM_H
#include <ttrun/plugin.h>
#include <ttrun/tensor.h>

/* A communicator among the ranks of a group. Blocking; every call is [collective]: all members,
 * same order. Reductions add in ascending member order, whatever the transport, so results do not
 * depend on it. */

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tt_reduce { TT_SUM = 0, TT_MAX = 1 } tt_reduce;
typedef struct tt_comm tt_comm; /* one rank's end of a group, made by the plugin */

typedef struct tt_comm_env {
    size_t struct_size;
    int rank, world;
    double timeout_s; /* longest wait for another rank; set_timeout changes it */
    /* Ask while waiting: TT_OK, or TT_ECOMM with the reason the run is being stopped.
     * [any-thread] */
    tt_status (*stopped)(void *user, tt_error *err);
    void *user;
    int beside; /* nonzero: groups will be used by threads of their own, where it can be had */
} tt_comm_env;

typedef struct tt_comm_vt {
    size_t struct_size;
    /* The group `ranks` (ascending world ranks, this one among them). key: equal on members, unique
     * a group. [collective] */
    tt_status (*group)(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                       tt_error *err);
    void (*group_free)(tt_comm *g);
    /* Member i contributes counts[i] elements, in member order into recv. send may be recv + own
     * offset. */
    tt_status (*all_gather)(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                            tt_dtype dtype, tt_error *err);
    /* send holds Σcounts elements; member i receives the reduction of its counts[i] piece. */
    tt_status (*reduce_scatter)(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                                tt_dtype dtype, tt_reduce op, tt_error *err);
    tt_status (*all_reduce)(tt_comm *g, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                            tt_error *err); /* in place */
    /* send_counts[i] elements to member i, packed in member order; likewise recv. */
    tt_status (*all_to_all)(tt_comm *g, const void *send, const int64_t *send_counts, void *recv,
                            const int64_t *recv_counts, tt_dtype dtype, tt_error *err);
    tt_status (*send)(
        tt_comm *g, int to_member, const void *buf, int64_t bytes,
        tt_error *err); /* buffered: does not block for the receiver while two are in flight */
    tt_status (*recv)(tt_comm *g, int from_member, void *buf, int64_t bytes, tt_error *err);
    tt_status (*barrier)(tt_comm *g, tt_error *err);
    /* From any thread: every pending and later call of every member fails with TT_ECOMM. */
    void (*abort)(void *self, const char *why);
    /* This rank's end of the world. [collective, setup] Without open, close and set_timeout a comm
     * can be tested, but joins no run. (optional) */
    tt_status (*open)(const void *config, const tt_comm_env *env, void **self, tt_error *err);
    void (*close)(void *self, int ok); /* ok 0: after a failure, others may be gone */
    void (*set_timeout)(void *self, double timeout_s);
    /* Nonzero: groups may be used beside each other, each by one thread at a time, and a group's
     * send beside its recv; NULL = no. (optional) */
    int (*beside)(void *self);
    /* The program --nproc has to start ranks with, "mpirun"; NULL = ttrun may start them itself.
     * (optional) */
    const char *launcher;
} tt_comm_vt;

/* out[i] = xs[0][i] op xs[1][i] op …, in that order: the bits every transport gives. bf16 is added
 * in f32 and rounded once. out may be xs[0] or xs[1]; n = 0 asks only for the error. Errors name a
 * dtype that cannot be reduced. [any-thread] */
TT_EXPORT tt_status tt_reduce_members(void *out, const void *const *xs, int n_members, int64_t n,
                                      tt_dtype dtype, tt_reduce op, tt_error *err);

#ifdef __cplusplus
}
#endif
#endif
