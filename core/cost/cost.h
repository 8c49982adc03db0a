/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_COST_H
#define TT_COST_H
#include "graph/graph.h"
#include <ttrun/backend.h>

/* core/cost: the work of a node in FLOPs and bytes, and the time that this work takes on a machine.
 * The planner, passes, traces and `ttrun plan` all use this model, a roofline: the time of an op is
 * its FLOPs at the reachable peak or its bytes at the reachable bandwidth, whichever is longer, plus
 * the time to start a kernel. */

/* ---- the work of a node ---- */

typedef struct tt_work {
    double flops, bytes; /* a multiply-add is two FLOPs; bytes: the least that memory moves */
    double sent;         /* of a collective: the bytes that each rank sends */
    double
        depth; /* of a product: the length of its sums; of attention: of the sequences; 0: not known */
    tt_op_class cls;
    tt_dtype dtype; /* the dtype in which it computes */
} tt_work;

/* The work of a node on the rank with the largest boxes; in a graph without placements, on one rank.
 * Nodes that run no kernel (views, leaves, TT_NODE_EXPANDED) have no work. */
tt_work tt_node_work(const tt_graph *g, const tt_node *n);
/* The work of a node whose operands have these local shapes. */
tt_work tt_node_work_of(const tt_graph *g, const tt_node *n, const tt_tensor *in,
                        const tt_tensor *out);

/* ---- machines ---- */

/* Costs of one FLOP and one byte as small whole numbers instead of speeds. Sums of such costs are
 * exact, so all ranks get the same sum, in whatever order they add. */
typedef struct tt_ratios {
    double flop, attention_flop, byte, byte_sent;
} tt_ratios;

typedef struct tt_machine {
    const char *name;
    int64_t ranks_per_node;                  /* devices with a fast link between them */
    double flops_f32, flops_bf16, flops_f16; /* dense matmul peak of a device, 1/s */
    double flops_f8, flops_f4; /* 0: it has no such products; f4: of blocks with scales */
    double flops_vector;       /* of ops that are no matrix products; 0: as fast as these */
    double memory_bytes, memory_bandwidth; /* of a device; bytes, B/s; 0: not known, no limit */
    double link_bandwidth, link_latency;   /* between devices of a node, per direction; B/s, s */
    double net_bandwidth, net_latency;     /* from a device to other nodes, per direction */
    double host_bandwidth; /* between a device and pinned host memory; 0: no limit */
    double op_latency;     /* from the end of an op to the start of the next, s */
    double turn_latency;   /* what each further turn of a ring adds, s */
    /* The part of each peak that is reached in practice, 0 … 1. attention_backward_efficiency 0: as the
     * forward's. Of products and attention it holds for long sums and sequences: those of depth n
     * reach n / (n + ramp) of it. */
    double matmul_efficiency, attention_efficiency, attention_backward_efficiency;
    double memory_efficiency, network_efficiency;
    double net_efficiency; /* between nodes; 0: network_efficiency */
    double matmul_ramp, attention_ramp;
    double
        overlap_efficiency;  /* of the speed of computing, what is left while a collective within a
                                  node runs concurrently; a slower one takes less; 0: all of it */
    const tt_ratios *ratios; /* if not NULL, only these count, and not the speeds above */
} tt_machine;

/* The machine by which the order of a program, the cuts between stages and the early start of
 * communication are chosen. It does not describe the user's machine: all ranks must choose the same
 * order, and a plan for 512 GPUs can be made on a laptop. Only its ratios matter. */
extern const tt_machine tt_machine_order;
/* NULL: there is no machine of this name. */
const tt_machine *tt_machine_find(const char *name);
/* "h100, h200, …", for messages. */
void tt_machine_names(tt_str *out);
double tt_machine_flops(const tt_machine *m, tt_dtype t); /* the peak; 0: not known */

/* ---- the time on a machine ---- */

/* Seconds; on a machine with ratios, multiples of its unit. Without communication. */
double tt_work_seconds(const tt_work *w, const tt_machine *m);
typedef struct tt_seconds {
    double compute, comm;
} tt_seconds;
/* The time of a node on the rank with the largest boxes. Either compute or comm is 0. */
tt_seconds tt_node_seconds(const tt_graph *g, const tt_node *n, const tt_machine *m);
/* The time of a message of so many bytes between neighbouring pipeline stages. */
double tt_message_seconds(const tt_graph *g, double bytes, const tt_machine *m);

#endif
