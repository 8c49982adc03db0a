/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DEVICE_H
#define TT_DEVICE_H
#include "base/pool.h"
#include "mesh/mesh.h"
#include <ttrun/backend.h>
#include <ttrun/comm.h>

/* core/device: the memory of one rank's backend (R25). Every function works for host memory, where it
 * acts at once and queues and events are NULL, and for a device, where it puts work on a queue. No
 * other folder reads or writes at a tensor's address. */

typedef struct tt_device {
    const tt_device_vt *vt; /* NULL: host memory */
    void *backend;
} tt_device;

tt_device tt_device_of(const tt_backend_vt *vt, void *backend);
static inline bool tt_device_is_host(const tt_device *d)
{
    return !d->vt;
}
bool tt_comm_is_of_device(const tt_comm_vt *vt);      /* its buffers are memory of a device */
int64_t tt_device_alignment(const tt_backend_vt *vt); /* of addresses and of the plan's offsets */

/* Device memory, not initialised; of the host: zeros, of huge pages if the kernel has them. */
tt_status tt_device_alloc(const tt_device *d, size_t bytes, void **out, tt_error *err);
void tt_device_free(const tt_device *d, void *p, size_t bytes);
/* Host memory that the device copies from and to. */
tt_status tt_device_alloc_pinned(const tt_device *d, size_t bytes, void **out, tt_error *err);
void tt_device_clear_pinned(void *p, size_t bytes); /* to zeros; no copy may name it */
void tt_device_free_pinned(const tt_device *d, void *p, size_t bytes);

/* Bytes that tt_device_alloc could still give, and all of them. Only of a device. */
tt_status tt_device_memory(const tt_device *d, uint64_t *left, uint64_t *all, tt_error *err);

tt_status tt_device_enter(const tt_device *d, tt_error *err); /* by each thread that uses it */
tt_status tt_device_queue_new(const tt_device *d, bool urgent, tt_device_queue **out,
                              tt_error *err);
void tt_device_queue_free(const tt_device *d, tt_device_queue *q);
tt_status tt_device_event_new(const tt_device *d, bool timed, tt_device_event **out, tt_error *err);
void tt_device_event_free(const tt_device *d, tt_device_event *e);
tt_status tt_device_record(const tt_device *d, tt_device_event *e, tt_device_queue *q,
                           tt_error *err);
tt_status tt_device_wait(const tt_device *d, tt_device_queue *q, tt_device_event *e, tt_error *err);
tt_status tt_device_sync(const tt_device *d, tt_device_event *e, tt_error *err);
/* Between two timed events that the host has waited for; on the host 0. */
tt_status tt_device_seconds(const tt_device *d, tt_device_event *from, tt_device_event *to,
                            double *out, tt_error *err);
tt_status tt_device_copy(const tt_device *d, tt_device_queue *q, void *to, const void *from,
                         size_t bytes, tt_error *err);
tt_status tt_device_fill(const tt_device *d, tt_device_queue *q, void *to, uint32_t pattern,
                         size_t bytes, tt_error *err);

/* Between begin and end, what is put on q and on queues that wait for it becomes a graph; launch puts
 * that work on a queue again. Only of a device that captures. */
bool tt_device_captures(const tt_device *d);
tt_status tt_device_capture_begin(const tt_device *d, tt_device_queue *q, tt_error *err);
tt_status tt_device_capture_end(const tt_device *d, tt_device_queue *q, tt_device_graph **out,
                                tt_error *err);
tt_status tt_device_launch(const tt_device *d, tt_device_graph *g, tt_device_queue *q,
                           tt_error *err);
void tt_device_graph_free(const tt_device *d, tt_device_graph *g); /* its launches are over */

/* ---- moving data on a queue ---- */
typedef struct tt_mover {
    tt_device device;
    tt_device_queue *queue;
    tt_pool *pool;
    const tt_kernel *copy_box, *reduce_members; /* of a device; NULL on the host */
} tt_mover;
/* A kernel with one output, outside of programs. */
tt_status tt_move_kernel(const tt_mover *m, const tt_kernel *k, const tt_tensor *in, int n_in,
                         tt_tensor *out, const void *attrs, tt_error *err);
tt_status tt_move_copy(const tt_mover *m, void *to, const void *from, size_t bytes, tt_error *err);
/* The part `box` of `from`, a contiguous tensor that holds `from_box`, to the same part of `to`. */
tt_status tt_move_box(const tt_mover *m, const tt_box *box, const void *from,
                      const tt_box *from_box, void *to, const tt_box *to_box, int n_dims,
                      tt_dtype dtype, tt_error *err);
/* out[i] = xs[0][i] op xs[1][i] op …, in this order. */
tt_status tt_move_reduce(const tt_mover *m, void *out, const void *const *xs, int n_members,
                         int64_t n, tt_dtype dtype, tt_reduce op, tt_error *err);
/* The neutral element of a reduction: 0, or -inf for the maximum of f32. */
tt_status tt_move_fill(const tt_mover *m, const tt_tensor *t, tt_reduce op, tt_error *err);

/* ---- between a device and ordinary host memory; these wait until the copy is done ---- */
typedef struct tt_stage { /* pinned memory for two pieces in flight, and an event for each */
    tt_device device;
    void *pinned[2];
    tt_device_event *done[2];
    size_t bytes; /* of one piece */
} tt_stage;
/* Of a host backend it holds nothing. [setup] */
tt_status tt_stage_open(tt_stage *s, const tt_device *d, size_t piece_bytes, tt_error *err);
void tt_stage_close(tt_stage *s); /* zeros, never opened, are fine */
tt_status tt_stage_read(tt_stage *s, tt_device_queue *q, void *host, const void *from, size_t bytes,
                        tt_error *err);
tt_status tt_stage_write(tt_stage *s, tt_device_queue *q, void *to, const void *host, size_t bytes,
                         tt_error *err);

#endif
