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
} tt_comm_vt;

#ifdef __cplusplus
}
#endif
#endif
