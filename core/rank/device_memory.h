/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DEVICE_MEMORY_H
#define TT_DEVICE_MEMORY_H
#include "device/device.h"
#include "plan/memory.h"
#include "setup/setup.h"

/* core/rank/device_memory.c: the memory of a rank whose backend has a device. */

typedef struct tt_device_use { /* bytes per rank; all programs of a run */
    int64_t device;
    int64_t pinned; /* of the host: the sum of what follows */
    int64_t inputs, scalars, staging, offloaded, activations;
    int64_t saving;   /* the copy from which an asynchronous save writes */
    int64_t comm;     /* of the device: what the comm plugin keeps for its groups' calls */
    int64_t messages; /* of the device: of a pipeline, sent and not yet received */
} tt_device_use;
/* What the comm plugin of devices keeps for the groups of a program. */
int64_t tt_comm_scratch_of(const tt_setup *s, const tt_program *p);
tt_status tt_device_use_of(const tt_setup *s, const tt_plan *p, tt_device_use *out, tt_error *err);
/* An error if the device has less memory free than the program takes. */
tt_status tt_device_memory_check(const tt_setup *s, const tt_plan *p, const tt_device *d,
                                 tt_error *err);

#endif
