/* SPDX-License-Identifier: Apache-2.0 */
/* How the other fake libraries (cuBLASLt, NCCL) put work of the host on a stream of the fake driver. They link with the
 * fake libcuda.so.1 (-l:libcuda.so.1, rpath $ORIGIN), which defines these functions.
 *
 * Nothing runs when it is put on a stream. Work runs later, inside the calls of a thread that waits (cuStreamSynchronize,
 * cuEventSynchronize, …), in an order drawn from FAKE_CUDA_SEED; any waiting thread may run the work of any other's stream.
 * The functions of an item are called one at a time, under the lock of the driver, and may touch the device memory of every
 * device. They must not call the driver; fake_memory_device and fake_queue_fail are allowed. */
#ifndef TT_TESTS_FAKE_QUEUE_H
#define TT_TESTS_FAKE_QUEUE_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct fake_item {
    const char *name; /* of the function, for messages; a literal */
    void *arg;
    /* NULL, or: everything before the item on its stream is done. Called once per launch, before ready: an item of a
     * collective notes here that this member has arrived. */
    void (*at_head)(void *arg);
    bool (*ready)(void *arg); /* NULL: always. Asked again whenever other work has run. */
    void (*run)(
        void *arg); /* called once per launch, when ready has answered true; then the item leaves */
    void (*release)(void *arg); /* NULL, or: called once, when nothing needs arg any more */
} fake_item;

/* Copies *item. stream: a CUstream. Returns a CUresult; when it is not 0, release was not called. While the stream is being
 * captured the item goes to the graph, and each launch of the graph calls at_head, ready and run of the same arg again (one
 * launch at a time); release is called when the graph and its executables are destroyed. [any-thread] */
int fake_queue_add(void *stream, const fake_item *item);

/* Something that ready looks at has changed outside of an item (an abort, for example): waiting threads ask again. Locks the
 * driver, so not for use in an item. */
void fake_queue_wake(void);
/* Lock and unlock the driver, for state that items share with the library's functions. Not around fake_queue_add. */
void fake_queue_lock(void);
void fake_queue_unlock(void);

/* The stream's device, as an ordinal. */
int fake_queue_device(void *stream);
/* A late failure: the device of the stream answers this CUresult from now on, everywhere. */
void fake_queue_fail(void *stream, int result);

/* The device whose memory [p, p + n) is, -1: of no one block. n may be 0. [any-thread] */
int fake_memory_device(const void *p, size_t n);
/* Pinned host memory? [any-thread] */
bool fake_memory_pinned(const void *p, size_t n);

/* What FAKE_CUDA_FAIL asks of this call of `function`, 0: nothing. FAKE_CUDA_FAIL="ncclAllReduce:2=3,…": the second call
 * of ncclAllReduce returns 3. */
int fake_injected(const char *function);

#ifdef __cplusplus
}
#endif
#endif
