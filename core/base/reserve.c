/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reserve.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t lock;
    void *memory;
    size_t bytes; /* 0: there is none to take */
    atomic_bool spent;
} reserve = {.lock = PTHREAD_MUTEX_INITIALIZER};

tt_status tt_reserve_open(size_t bytes, tt_error *err)
{
    void *p = malloc(bytes);
    if (!p)
        return TT_FAIL(err, TT_ENOMEM,
                       "no memory for a reserve of %zu MiB, with which requests that need too much "
                       "are refused: free memory, or lower --batch or --context",
                       bytes >> 20);
    /* So that the reserve can be had again. What is larger is given back to the system when it is free: by itself glibc
     * raises this number to 32 MiB, and keeps twice as much. Where memory is out, it would take 64 MiB of addresses for
     * another arena, and keep them. */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_ARENA_MAX, 1);
    tt_reserve_close();
    pthread_mutex_lock(&reserve.lock);
    reserve.memory = p;
    reserve.bytes = bytes;
    pthread_mutex_unlock(&reserve.lock);
    return TT_OK;
}

void tt_reserve_close(void)
{
    pthread_mutex_lock(&reserve.lock);
    free(reserve.memory);
    reserve.memory = NULL;
    reserve.bytes = 0;
    atomic_store(&reserve.spent, false);
    pthread_mutex_unlock(&reserve.lock);
}

bool tt_reserve_is_low(void)
{
    if (!atomic_load_explicit(&reserve.spent, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&reserve.lock);
    if (reserve.bytes && !reserve.memory)
        reserve.memory = malloc(reserve.bytes);
    const bool low = reserve.bytes && !reserve.memory;
    atomic_store(&reserve.spent, low);
    pthread_mutex_unlock(&reserve.lock);
    return low;
}

/* False: there is none. */
static bool spend(void)
{
    pthread_mutex_lock(&reserve.lock);
    const bool had = reserve.memory != NULL;
    free(reserve.memory);
    reserve.memory = NULL;
    if (had)
        atomic_store(&reserve.spent, true);
    pthread_mutex_unlock(&reserve.lock);
    return had;
}

void *tt_reserve_calloc(size_t n, size_t size)
{
    void *p = calloc(n, size);
    return p || !spend() ? p : calloc(n, size);
}

void *tt_reserve_realloc(void *p, size_t size)
{
    void *q = realloc(p, size);
    return q || !spend() ? q : realloc(p, size);
}
