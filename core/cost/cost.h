/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_COST_H
#define TT_COST_H
#include "graph/graph.h"
#include <ttrun/backend.h>

/* core/cost: what a node does, in FLOPs and bytes, and how long that takes on a machine. Planner,
 * passes, traces and `ttrun plan` all ask here. A roofline: an op takes the longer of its FLOPs at
 * the reachable peak and its bytes at the reachable bandwidth, plus what it takes to start one. */

/* ---- what a node does ---- */

typedef struct tt_work {
    double flops, bytes; /* multiply-adds count two; moved to and from memory at least */
    double sent;         /* collectives: bytes that each rank sends */
    tt_op_class cls;
    tt_dtype dtype; /* that it computes in */
} tt_work;

/* On the rank with the largest boxes; of a graph without placements as if on one rank. Zero for
 * nodes without a kernel: views, leaves, what stands for an expansion. */
tt_work tt_node_work(const tt_graph *g, const tt_node *n);
/* Of operands of these local shapes. */
tt_work tt_node_work_of(const tt_graph *g, const tt_node *n, const tt_tensor *in,
                        const tt_tensor *out);

/* ---- machines ---- */

/* Costs of one FLOP and one byte as small whole numbers, not as speeds: sums of such costs are
 * exact, so whoever adds them up, in whatever order, decides alike. */
typedef struct tt_ratios {
    double flop, attention_flop, byte, byte_sent;
} tt_ratios;

typedef struct tt_machine {
    const char *name;
    int64_t ranks_per_node;                  /* devices with a fast link between them */
    double flops_f32, flops_bf16, flops_f16; /* dense matmul peak of a device, 1/s */
    double flops_vector; /* of what multiplies no matrices; 0: as fast as what does */
    double memory_bytes, memory_bandwidth; /* of a device; B/s; 0 = not known: bounds nothing */
    double link_bandwidth, link_latency;   /* between devices of a node, each way; B/s, s */
    double net_bandwidth, net_latency;     /* of a device to other nodes, each way */
    double op_latency;                     /* from one op's end to the next one's begin, s */
    /* what of the peaks is reached in practice, 0 … 1 */
    double matmul_efficiency, attention_efficiency, memory_efficiency, network_efficiency;
    const tt_ratios *ratios; /* NULL: speeds; else these, and nothing above */
} tt_machine;

/* By it the programs of all ranks are ordered, stages are cut, and communication is begun early. It
 * is no machine of the user's: all ranks must come to the same order, and a plan for 512 GPUs is
 * made on a laptop. Nothing is measured; only the ratios matter. */
extern const tt_machine tt_machine_order;
/* NULL: no such machine. */
const tt_machine *tt_machine_find(const char *name);
/* "h100, h200, …": for errors. */
void tt_machine_names(tt_str *out);
double tt_machine_flops(const tt_machine *m, tt_dtype t); /* peak; 0 = not known */

/* ---- how long it takes there ---- */

/* Seconds; on a machine of ratios, its units. Communication apart. */
double tt_work_seconds(const tt_work *w, const tt_machine *m);
typedef struct tt_seconds {
    double compute, comm;
} tt_seconds;
/* Of one node on the rank that has the largest boxes: either compute or communication. */
tt_seconds tt_node_seconds(const tt_graph *g, const tt_node *n, const tt_machine *m);
/* A message of so many bytes to a rank's pipeline neighbour. */
double tt_message_seconds(const tt_graph *g, double bytes, const tt_machine *m);

#endif
