/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MACHINE_H
#define TT_MACHINE_H
#include "graph/graph.h"

/* A machine, as far as the time of a step depends on it, and what a graph's nodes take on it. A
 * roofline: an op takes the longer of its FLOPs at the reachable peak of its dtype and its bytes at
 * the reachable bandwidth, plus what it takes to start one. */

typedef struct tt_machine {
    const char *name;
    int64_t ranks_per_node;                  /* devices with a fast link between them */
    double flops_f32, flops_bf16, flops_f16; /* dense matmul peak of a device, 1/s */
    double memory_bytes, memory_bandwidth;   /* of a device; B/s */
    double link_bandwidth, link_latency;     /* between devices of a node, each way; B/s, s */
    double net_bandwidth, net_latency;       /* of a device to other nodes, each way */
    double op_latency;                       /* from one op's end to the next one's begin, s */
    /* what of the peaks is reached in practice, 0 … 1 */
    double matmul_efficiency, attention_efficiency, memory_efficiency, network_efficiency;
} tt_machine;

/* NULL: no such machine. */
const tt_machine *tt_machine_find(const char *name);
/* "h100, h200, …": for errors. */
void tt_machine_names(tt_str *out);
double tt_machine_flops(const tt_machine *m, tt_dtype t); /* peak; 0 = not known */

/* Seconds of one node on the rank that has the largest boxes: compute or communication. */
typedef struct tt_seconds {
    double compute, comm;
} tt_seconds;
tt_seconds tt_node_seconds(const tt_graph *g, const tt_node *n, const tt_machine *m);
/* The type of a rank's part of v, of this shape, for the ops' cost rules. */
tt_type tt_local_type(const tt_graph *g, const tt_value *v, const int64_t *shape);
/* FLOPs and bytes of its local shapes on that rank; zero for nodes without a kernel. */
tt_cost tt_node_cost(const tt_graph *g, const tt_node *n);
/* Nodes one after the other, async collectives beside them, those of a group one by one: what
 * passes at each node, waits for what it needs included, is added to at[]. exposed: communication
 * that nothing is computed beside. */
typedef struct tt_list_seconds {
    double total, comm, exposed;
} tt_list_seconds;
tt_list_seconds tt_nodes_seconds(const tt_graph *g, tt_node *const *nodes, int n,
                                 const tt_machine *m, double *at);
/* A message of a rank to its pipeline neighbour. */
double tt_transfer_seconds(const tt_graph *g, const tt_value *v, const tt_machine *m);

#endif
