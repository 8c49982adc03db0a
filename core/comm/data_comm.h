/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATA_COMM_H
#define TT_DATA_COMM_H
#include "comm/dist.h"
#include "device/device.h"

/* The communicator of tensors. Its buffers are memory of the rank's backend:
 *   a host backend         the communicator of the host itself
 *   a device, with a comm  a plugin's with device_memory (NCCL): calls are put on queues
 *   a device, without one  of rank-threads whose devices reach each other: copies between their buffers;
 *                          else the host's, between copies through pinned memory; these calls wait */

typedef struct tt_data_opts {
    tt_device device;
    const tt_comm_vt *comm; /* with device_memory; NULL: none */
    bool if_works;          /* only if it works on all ranks (tt_comm_vt.works) */
    const char *name;       /* the comm's */
    const void *config;
    const char *backend_name;
    const tt_kernel *reduce_members; /* the device's; NULL: it has none */
    double timeout_s;
    bool concurrent; /* collectives run concurrently with the program */
} tt_data_opts;
/* For a device; of a host backend, and after tt_dist_close_data, it is the host's. d stays in its place
 * while it is open. [collective] [setup] */
tt_status tt_dist_open_data(tt_dist *d, const tt_data_opts *o, tt_error *err);
void tt_dist_close_data(tt_dist *d, bool ok);
/* Its groups put their calls on queues, and may be used concurrently with each other. */
bool tt_dist_has_queues(const tt_dist *d);
/* Its calls may become part of a device's graphs. */
bool tt_dist_captures(const tt_dist *d);

/* data_choice.c: whether o->comm works on all ranks; err says on which it does not, and why. All ranks
 * get the same answer. [collective] [setup] */
tt_status tt_dist_data_works(tt_dist *d, const tt_data_opts *o, bool *out, tt_error *err);

/* device_local.c: between rank-threads, if all their devices serve. [collective] */
tt_status tt_local_serves(const tt_data_opts *o, tt_dist *d, bool *out, tt_error *err);
tt_status tt_local_new(const tt_data_opts *o, const tt_dist *d, void **out, tt_error *err);
extern const tt_comm_vt tt_local_vt;
/* staged.c: the host's communicator between copies. */
tt_status tt_staged_new(const tt_device *device, const tt_dist *d, void **out, tt_error *err);
extern const tt_comm_vt tt_staged_vt;

#endif
