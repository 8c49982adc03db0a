/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_DEVICE_H
#define TTRUN_DEVICE_H
#include <ttrun/tensor.h>

/* The memory and the queues of a backend whose kernels use memory of their own: a GPU. A backend
 * whose kernels use host memory has none (tt_backend_vt.device is NULL).
 *
 * An address of device memory is only passed on: to kernels, to a communicator with device_memory
 * and to the functions here. The host does not read or write there, nor in pinned memory while a
 * copy that names it is pending.
 *
 * Kernels, copies and collectives are put on a queue and run later, in the order of their queue.
 * Queues do not wait for each other, except through events. A call that fails late, on the queue,
 * is reported by the next sync of that rank.
 *
 * Every function takes the backend's object first. Functions are [any-thread] if they do not say
 * otherwise; a thread calls `enter` before its first call of another function, and so does the
 * thread that opened the backend. */

#ifdef __cplusplus
extern "C" {
#endif

/* The plugin defines and owns these. */
typedef struct tt_device_queue tt_device_queue;
typedef struct tt_device_event tt_device_event;
typedef struct tt_device_graph tt_device_graph;

typedef struct tt_device_vt {
    size_t struct_size;
    /* Of every address that alloc returns and of every offset that the plan gives out: a power of
     * two, at least 64. */
    size_t alignment;
    /* Memory of the device, not initialised. bytes > 0. TT_ENOMEM says how much is free. [setup] */
    tt_status (*alloc)(void *backend, size_t bytes, void **out, tt_error *err);
    /* The host has awaited all work that uses the memory, or gives up after an error; so also for
     * free_pinned. */
    void (*free)(void *backend, void *p);
    /* Host memory that the device can copy from and to while the host goes on. [setup] */
    tt_status (*alloc_pinned)(void *backend, size_t bytes, void **out, tt_error *err);
    void (*free_pinned)(void *backend, void *p);
    /* Bytes that alloc could still give, and all bytes of the device. */
    tt_status (*memory)(void *backend, uint64_t *free_bytes, uint64_t *total_bytes, tt_error *err);
    /* Makes the device the current one of this thread. */
    tt_status (*enter)(void *backend, tt_error *err);

    /* urgent: its work goes before that of other queues where the device has room for one of them
     * only. A queue is used by one thread at a time. [setup] */
    tt_status (*queue_new)(void *backend, int urgent, tt_device_queue **out, tt_error *err);
    void (*queue_free)(void *backend, tt_device_queue *q); /* after its work is done */
    /* timed: `seconds` may ask for it. [setup] */
    tt_status (*event_new)(void *backend, int timed, tt_device_event **out, tt_error *err);
    void (*event_free)(void *backend, tt_device_event *e);
    /* The event happens when all work that is on the queue now is done. A later record of the same
     * event replaces it; a wait refers to the last record before the wait. */
    tt_status (*record)(void *backend, tt_device_event *e, tt_device_queue *q, tt_error *err);
    /* What is put on the queue after this waits for the event; nothing, if it was never recorded. */
    tt_status (*wait)(void *backend, tt_device_queue *q, tt_device_event *e, tt_error *err);
    /* The host waits for the event, and learns of errors of the work before it; at once, if it was
     * never recorded. */
    tt_status (*sync)(void *backend, tt_device_event *e, tt_error *err);
    /* Nonzero: the event has happened, or was never recorded; or work has failed: sync tells. */
    int (*done)(void *backend, tt_device_event *e);
    /* The time between two timed events that have happened. */
    tt_status (*seconds)(void *backend, tt_device_event *from, tt_device_event *to, double *out,
                         tt_error *err);

    /* Copies between device and pinned memory, in any direction. The two do not overlap. */
    tt_status (*copy)(void *backend, tt_device_queue *q, void *to, const void *from, size_t bytes,
                      tt_error *err);
    /* Fills device memory with the four bytes of pattern over and over; the last may be cut off. to
     * is a multiple of 4 if bytes is more than 4. */
    tt_status (*fill)(void *backend, tt_device_queue *q, void *to, uint32_t pattern, size_t bytes,
                      tt_error *err);

    /* (optional, all four or none) Between begin and end, what is put on q, and on queues that wait
     * for it, is not run but becomes a graph; launch puts all of it on a queue again. */
    tt_status (*capture_begin)(void *backend, tt_device_queue *q, tt_error *err);
    tt_status (*capture_end)(void *backend, tt_device_queue *q, tt_device_graph **out,
                             tt_error *err);
    tt_status (*launch)(void *backend, tt_device_graph *g, tt_device_queue *q, tt_error *err);
    void (*graph_free)(void *backend, tt_device_graph *g);
    /* (optional) Ranks may be threads of one process, each with an object of the backend. Nonzero:
     * `wait` also takes events of `other`, and copy, "copy_box" and "reduce_members" also take
     * device memory of `other`, for reading and for writing. NULL: never. Both have been opened.
     * [setup] */
    int (*reaches)(void *backend, void *other);
    /* (optional) 16 bytes that differ between the devices of a machine, and are equal for ranks that
     * share one. [setup] */
    tt_status (*identity)(void *backend, unsigned char *out, tt_error *err);
} tt_device_vt;

/* ---- three ops that every backend with a device has, for the core; they are in no graph ----
 * Unlike those of other ops, their attrs are valid until run returns only, and their operands are
 * aligned to one element only.
 * "copy_box" copies a box of in[0] to a box of out[0], both of one dtype. All numbers are elements;
 * element (i0, i1, …) of the box, with i < size, lies at from + Σ i·from_stride in in[0] and at
 * to + Σ i·to_stride in out[0]. The last stride of both is 1. n_dims 0: one element. */
#define TT_OP_COPY_BOX "copy_box"
typedef struct tt_attrs_copy_box {
    int32_t n_dims;
    int64_t size[TT_MAX_DIMS];
    int64_t from, from_stride[TT_MAX_DIMS];
    int64_t to, to_stride[TT_MAX_DIMS];
} tt_attrs_copy_box;
/* "reduce_members": out[0][i] = in[0][i] op in[1][i] op … in this order, as tt_reduce_members
 * (comm.h) computes it. All operands have one dtype and one number of elements; out[0] may be in[0]
 * or in[1]. n_in is at least 1 and may be above TT_MAX_INS. */
#define TT_OP_REDUCE_MEMBERS "reduce_members"
typedef struct tt_attrs_reduce_members {
    int32_t op; /* tt_reduce */
} tt_attrs_reduce_members;
/* "find_bad": out[0], an i64 scalar, becomes the lowest index of an element of in[0] that is not
 * what attrs asks for, or -1. For debug.detect_nan and debug.poison. */
#define TT_OP_FIND_BAD "find_bad"
typedef enum tt_find_bad {
    TT_FIND_NOT_FINITE = 0, /* floats */
    TT_FIND_NOT_FINITE_NOR_MINUS_INF = 1,
    TT_FIND_NOT_PATTERN = 2 /* u8: bytes that differ from those of pattern, over and over */
} tt_find_bad;
typedef struct tt_attrs_find_bad {
    int32_t what; /* tt_find_bad */
    uint32_t pattern;
} tt_attrs_find_bad;

/* ---- (optional) one more of them ----
 * "initial" gives out[0], a part of a parameter, its initial values. An element with index i in the
 * whole tensor, in row-major order of out[0].global, becomes a function of u, number i of Philox
 * 4x32-10 with this key, 0 < u < 1:
 *   constant: a     uniform: v = from + width u     normal: a Q(u)     trunc_normal: a Q(v) in [lo, hi]
 * with Q the quantile of the normal distribution by Wichura's AS 241, all in f64 without fused
 * multiply-adds, and rounded to f32 and then to out[0].dtype: the bits of the core (core/rank/initial.c).
 * A backend without it gets the core's values through pinned memory. */
#define TT_OP_INITIAL "initial"
typedef struct tt_attrs_initial {
    int32_t kind; /* tt_init_kind */
    uint64_t key;
    double a, lo, hi, from, width;
} tt_attrs_initial;

#ifdef __cplusplus
}
#endif
#endif
