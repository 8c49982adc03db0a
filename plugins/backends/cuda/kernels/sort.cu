/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* Sorts rows of n different 64-bit keys: tiles of TT_TILE in shared memory, then runs of a row are
 * merged two by two, until one is left. No atomics, and no order but that of the keys. */
#define TT_TILE 2048

/* A block has a tile: row blockIdx / tiles, tile blockIdx % tiles. A network of Batcher's kind:
 * bitonic, with missing keys at the end as the largest. */
TT_KERNEL(1024, sort_tiles, u64 *keys, i64 n, int tiles)
{
    u64 *const s = (u64 *)(void *)tt_shared;
    const i64 first = (i64)((int)blockIdx.x % tiles) * TT_TILE;
    u64 *const x = keys + (i64)((int)blockIdx.x / tiles) * n + first;
    const int count = n - first < TT_TILE ? (int)(n - first) : TT_TILE;
    int size = 2;
    while (size < count)
        size *= 2;
    for (int i = (int)threadIdx.x; i < size; i += (int)blockDim.x)
        s[i] = i < count ? x[i] : ~0ull;
    for (int k = 2; k <= size; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            tt_sync();
            for (int i = (int)threadIdx.x; i < size / 2; i += (int)blockDim.x) {
                const int a = i / j * 2 * j + i % j, b = a + j;
                const bool up = (a & k) == 0;
                const u64 u = s[a], v = s[b];
                if ((u > v) == up) {
                    s[a] = v;
                    s[b] = u;
                }
            }
        }
    tt_sync();
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        x[i] = s[i];
}

/* Runs of `run` keys become runs of 2 run: each key's place is its own plus the number of smaller keys
 * in the other run. */
TT_KERNEL(256, sort_merge, const u64 *from, u64 *to, i64 rows, i64 n, i64 run)
{
    const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
    if (at >= rows * n)
        return;
    const i64 row = at / n * n, i = at - row, mine = i / run * run;
    const i64 other = (i / run) % 2 ? mine - run : mine + run;
    const u64 key = from[at];
    i64 low = other < n ? other : n, high = other + run < n ? other + run : n;
    const i64 first = low;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (from[row + middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    to[row + (mine < other ? mine : other) + (i - mine) + (low - first)] = key;
}
