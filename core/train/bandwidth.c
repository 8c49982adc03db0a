/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/bandwidth.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The memory bandwidth of this machine, measured. */

#define STREAMS 4
#define STREAM_FLOATS ((int64_t)16 << 20) /* 64 MiB an array: fewer may lie in a server's cache */
#define STREAM_BLOCK 4096
#define STREAM_BYTES ((2 * STREAMS - 1) * (double)sizeof(float)) /* moved for an element */
#define STREAM_SECONDS 0.02 /* at least this, and three passes; at most twice this */

static void stream_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t at = begin; at < end; at += STREAM_BLOCK) { /* whole blocks: compilers unroll */
        float *restrict a = (float *)arg + at, *restrict b = a + STREAM_FLOATS,
                        *restrict c = b + STREAM_FLOATS;
        const float *restrict d = c + STREAM_FLOATS;
        for (int i = 0; i < STREAM_BLOCK; i++) {
            a[i] = 0.5f * a[i] + d[i];
            b[i] = 0.5f * b[i] + d[i];
            c[i] = 0.5f * c[i] + d[i];
        }
    }
}

double tt_stream_bandwidth(tt_pool *pool)
{
    const size_t bytes = STREAMS * STREAM_FLOATS * sizeof(float);
    float *memory = aligned_alloc((size_t)2 << 20, bytes);
    double best = 0;
    if (!memory)
        return 0;
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* as the arena is */
#endif
    memset(memory, 0, bytes);
    const int64_t start = tt_now_ns();
    for (int n = 0; 1e-9 * (double)(tt_now_ns() - start) < (n < 3 ? 2 : 1) * STREAM_SECONDS; n++) {
        const int64_t t0 = tt_now_ns();
        tt_parallel_for(pool, STREAM_FLOATS, 16 * STREAM_BLOCK, stream_range, memory);
        best =
            TT_MAXV(best, 1e9 * STREAM_BYTES * (double)STREAM_FLOATS / (double)(tt_now_ns() - t0));
    }
    free(memory);
    return best;
}
