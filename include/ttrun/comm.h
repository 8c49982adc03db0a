/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_COMM_H
#define TTRUN_COMM_H
#include <ttrun/device.h>
#include <ttrun/plugin.h>
#include <ttrun/tensor.h>

/* A communicator: collectives among the ranks of a group, which are its members 0 to n-1. Calls
 * block until this rank's part is done. Every call is [collective] unless it says otherwise: all
 * members make the same calls in the same order. Reductions combine in ascending member order on
 * every transport, so results do not depend on the transport. A function that fails returns
 * TT_ECOMM, or TT_ETIMEOUT after timeout_s, and the group is then unusable. */

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tt_reduce { TT_SUM = 0, TT_MAX = 1 } tt_reduce;
typedef struct tt_comm tt_comm; /* one rank's handle of a group; the plugin defines and owns it */

/* Which keys of the job timeout_s comes from, for the errors that name a limit. */
#define TT_COMM_LIMIT_KEYS                                                                         \
    "comm.init_timeout_seconds until the first step is done, train_timeout_seconds from then on"

typedef struct tt_comm_env {
    size_t struct_size;
    int rank, world;
    double timeout_s; /* longest wait for another rank, in seconds; set_timeout changes it */
    /* A transport polls this while it waits: TT_OK, or TT_ECOMM with the reason why the run is
     * being stopped. [any-thread] */
    tt_status (*stopped)(void *user, tt_error *err);
    void *user;
    int concurrent; /* nonzero: use groups concurrently, each from its own thread, if supported */
    /* For a comm with device_memory; else NULL. device's functions take `backend`. */
    const tt_device_vt *device;
    void *backend;
    /* An all-gather among all ranks over host memory, for an id that rank 0 makes: rank i's `bytes`
     * bytes of send become part i of recv. [collective] [setup] */
    tt_status (*host_all_gather)(void *user, const void *send, void *recv, size_t bytes,
                                 tt_error *err);
    /* For a comm with device_memory: the communicator of host memory, among the same ranks, for what
     * members of a group tell each other at setup. The plugin frees the groups that it makes there;
     * their keys may be those of its own groups. One thread uses it. */
    const struct tt_comm_vt *host;
    void *host_self;
    /* Likewise: the backend's name, and its kernel "reduce_members" (device.h), a tt_kernel. */
    const char *backend_name;
    const struct tt_kernel *reduce_members;
} tt_comm_env;

/* Where a comm with device_memory would work. */
typedef struct tt_comm_place {
    size_t struct_size;
    const char *backend_name;
    int ranks;   /* of this machine */
    int devices; /* different ones that these ranks have; 0: it cannot be told */
} tt_comm_place;

typedef struct tt_comm_vt {
    size_t struct_size;
    /* Makes the group of `ranks`: ascending world ranks that include this one. key is equal on all
     * members and unique per group. group_free frees *out. [collective] */
    tt_status (*group)(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                       tt_error *err);
    void (*group_free)(tt_comm *g);
    /* Member i contributes counts[i] elements; recv holds Σcounts elements in member order. send
     * may be this member's place in recv. */
    tt_status (*all_gather)(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                            tt_dtype dtype, tt_error *err);
    /* send holds Σcounts elements in member order; member i receives its counts[i] of them, reduced
     * over all members. */
    tt_status (*reduce_scatter)(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                                tt_dtype dtype, tt_reduce op, tt_error *err);
    /* Reduces `count` elements of buf in place. */
    tt_status (*all_reduce)(tt_comm *g, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                            tt_error *err);
    /* Sends send_counts[i] elements to member i, packed in member order, and receives
     * recv_counts[i] from member i likewise. */
    tt_status (*all_to_all)(tt_comm *g, const void *send, const int64_t *send_counts, void *recv,
                            const int64_t *recv_counts, tt_dtype dtype, tt_error *err);
    /* Point to point: sender and receiver call, both with the same number of bytes. send is
     * buffered: up to two messages to a member may be in flight before it waits for recv. */
    tt_status (*send)(tt_comm *g, int to_member, const void *buf, int64_t bytes, tt_error *err);
    tt_status (*recv)(tt_comm *g, int from_member, void *buf, int64_t bytes, tt_error *err);
    tt_status (*barrier)(tt_comm *g, tt_error *err);
    /* Makes every pending and later call of every member fail with TT_ECOMM and the text `why`. One
     * rank calls it. [any-thread] */
    void (*abort)(void *self, const char *why);
    /* (optional) Joins the world: *self is this rank's handle, which close frees. A comm without
     * open, close and set_timeout can be tested but joins no run. [collective] [setup] */
    tt_status (*open)(const void *config, const tt_comm_env *env, void **self, tt_error *err);
    void (*close)(void *self, int ok); /* ok 0: after a failure; other ranks may have ended */
    void (*set_timeout)(void *self, double timeout_s);
    /* (optional) Nonzero: groups may be used concurrently, each by one thread at a time, and so may
     * a group's send and its recv; NULL = no. */
    int (*concurrent)(void *self);
    /* The program --nproc has to start ranks with, "mpirun"; "threads": ranks are threads of one
     * process; NULL = ttrun may start them itself. (optional) */
    const char *launcher;
    /* 1: the buffers of all calls are memory of a device, and `on` and `poll` exist; barrier, send
     * and recv are collectives like the others. 0: they are host memory. */
    int device_memory;
    /* Later calls of this group are put on the queue and return at once; it is called before the
     * first one. Errors of the work come from poll, or from the device's sync. */
    tt_status (*on)(tt_comm *g, tt_device_queue *queue, tt_error *err);
    /* Whether work of the group has failed so far. A thread that watches a run calls it while
     * another waits. [any-thread] */
    tt_status (*poll)(tt_comm *g, tt_error *err);
    /* 1: calls may be put on a queue that is being captured (tt_device_vt.capture_begin), and each
     * launch of the graph makes them again, in the order of the other calls of their group. */
    int capture;
    /* (optional; without it "auto" does not take the comm) Whether open would succeed at this place:
     * TT_OK, or why not. It is called before open, in each rank and in the process that starts the
     * ranks. [setup] */
    tt_status (*works)(const void *config, const tt_comm_place *place, tt_error *err);
    /* (optional) Device memory that a group of n ranks keeps on each of them besides the buffers of
     * its calls, for an all_reduce of `count` elements, or (all_reduce 0) for a reduce_scatter whose
     * own part has `count`. Of a group's calls the largest answer counts. NULL: none. */
    int64_t (*scratch_bytes)(const void *config, int n, int all_reduce, int64_t count,
                             tt_dtype dtype);
    /* (optional, both or none; with device_memory) Most buffers of calls, of groups made before or
     * later, lie in these bytes from now on, until forget_memory(base), which comes before they are
     * freed: a transport may map them beforehand. A failure is none of the caller's. [setup] */
    void (*use_memory)(void *self, void *base, size_t bytes);
    void (*forget_memory)(void *self, void *base);
} tt_comm_vt;

/* out[i] = xs[0][i] op xs[1][i] op … for i < n, in that order; every transport uses this function,
 * so all give equal bits. bf16 is added in f32 and rounded once. out may be xs[0] or xs[1].
 *   Errors: TT_EUNSUPPORTED for a dtype that cannot be reduced; n = 0 only checks this.
 *   [any-thread] */
TT_EXPORT tt_status tt_reduce_members(void *out, const void *const *xs, int n_members, int64_t n,
                                      tt_dtype dtype, tt_reduce op, tt_error *err);

#ifdef __cplusplus
}
#endif
#endif
