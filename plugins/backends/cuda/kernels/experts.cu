/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* The slots of tokens sorted by their experts. keys: expert << 32 | slot; slots of no expert have
 * expert E, and so come last. */

TT_KERNEL(256, expert_keys, const int *assign, u64 *keys, i64 n, i64 experts)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= n)
        return;
    const i64 e = assign[i];
    keys[i] = (u64)(e >= 0 && e < experts ? e : experts) << 32 | (u64)i;
}

/* The number of keys below expert e's. */
TT_DEV i64 place_of(const u64 *keys, i64 n, i64 e)
{
    i64 low = 0, high = n;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if ((i64)(keys[middle] >> 32) < e)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* order [n] and counts [experts] */
TT_KERNEL(256, expert_order, const u64 *keys, int *order, int *counts, i64 n, i64 experts)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        order[i] = (int)(u32)keys[i];
    if (i < experts)
        counts[i] = (int)(place_of(keys, n, i + 1) - place_of(keys, n, i));
}
