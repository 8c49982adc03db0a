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

/* counts [experts]: a block per expert reads all slots. */
TT_KERNEL(256, expert_count, const int *assign, double *counts, i64 n)
{
    int *const part = (int *)(void *)tt_shared;
    const i64 e = blockIdx.x;
    int sum = 0;
    TT_UNROLL(4)
    for (i64 i = threadIdx.x; i < n; i += 256)
        sum += assign[i] == e;
    part[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        tt_sync();
        if ((int)threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        counts[e] = (double)part[0];
}

/* ---- experts that are cut over ranks (dispatch.c): the index of each row of a result ----
 * B parts of the tokens in groups of `senders`; m places per part, in bins of `local` experts; part (group, bin)
 * of the rows has `each` rows. */

/* keys of n slots: (part, expert) << 32 | the slot's number within its part of `slots` */
TT_KERNEL(256, dispatch_keys, const int *assign, u64 *keys, i64 n, i64 slots, i64 experts)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= n)
        return;
    const i64 e = assign[i], part = i / slots;
    keys[i] = (u64)(part * (experts + 1) + (e >= 0 && e < experts ? e : experts)) << 32 |
              (u64)(i - part * slots);
}

/* places [parts,m], counts [parts,experts]: of each bin the slots from `begin` on for which there are places */
TT_KERNEL(256, dispatch_places, const u64 *keys, int *places, int *counts, i64 n, i64 parts, i64 m,
          i64 bins, i64 experts, i64 begin)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x, room = m / bins, local = experts / bins;
    if (i < parts * m) {
        const i64 at = i % m, bin = at / room, first = i / m * (experts + 1) + bin * local;
        const i64 key = bin < bins ? place_of(keys, n, first) + begin + (at - bin * room) : n;
        places[i] = bin < bins && key < place_of(keys, n, first + local) ? (int)(u32)keys[key] : -1;
    }
    if (i < parts * experts) {
        const i64 expert = i % experts, of_part = i / experts * (experts + 1),
                  from = place_of(keys, n, of_part + expert / local * local) + begin,
                  low = place_of(keys, n, of_part + expert),
                  high = place_of(keys, n, of_part + expert + 1),
                  to = high < from + room ? high : from + room, at = low > from ? low : from;
        counts[i] = at < to ? (int)(to - at) : 0;
    }
}

/* index [n]: the row of x [B each] that goes to place i */
TT_KERNEL(256, dispatch_from_places, const int *places, int *index, i64 n, i64 m, i64 each)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        index[i] = places[i] < 0 ? -1 : (int)(i / m * each + places[i]);
}

/* index [B each], zero before: 1 + the place of each slot that has one, the last of several */
TT_KERNEL(256, dispatch_from_slots, const int *places, int *index, i64 n, i64 m, i64 each)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < n && places[i] >= 0 && places[i] < each)
        tt_atomic_max(&index[i / m * each + places[i]], (int)i + 1);
}

/* index [rows]: the place of row i, or if m is 0 its expert counted from `first`; -1: nothing. The rows of a
 * part are by expert, then by sender. */
TT_KERNEL(256, dispatch_from_rows, const int *counts, int *index, i64 rows, i64 each, i64 senders,
          i64 experts, i64 local, i64 m, i64 first)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= rows)
        return;
    const i64 bins = experts / local, part = i / each, bin = part % bins,
              group = part / bins * senders;
    i64 left = i - part * each, found = -1;
    for (i64 e = bin * local; e < (bin + 1) * local && found < 0; e++)
        for (i64 s = 0; s < senders && found < 0; s++) {
            const i64 n = counts[(group + s) * experts + e];
            if (left >= n) {
                left -= n;
                continue;
            }
            found = m ? (group + s) * m + bin * (m / bins) + left : first + e;
            for (i64 f = bin * local; m && f < e; f++)
                found += counts[(group + s) * experts + f];
        }
    index[i] = (int)found;
}

/* index [n]: the row that place i has, or -1: the inverse of dispatch_from_rows */
TT_KERNEL(256, dispatch_from_bins, const int *counts, int *index, i64 n, i64 m, i64 each,
          i64 senders, i64 experts, i64 local)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= n)
        return;
    const i64 bins = experts / local, from = i / m, sender = from % senders, group = from - sender,
              room = m / bins, bin = i % m / room;
    i64 left = i % m - bin * room, row = -1, above = 0;
    for (i64 e = bin * local; bin < bins && e < (bin + 1) * local && row < 0; e++) {
        const i64 mine = counts[from * experts + e];
        for (i64 s = 0; s < senders && (left >= mine || s < sender); s++)
            above += counts[(group + s) * experts + e];
        if (left < mine)
            row = (group / senders * bins + bin) * each + above + left;
        left -= mine;
    }
    index[i] = (int)row;
}

/* counts [groups,senders,experts] → sums [groups,experts] over the senders */
TT_KERNEL(256, dispatch_sums, const int *counts, int *sums, i64 groups, i64 senders, i64 experts)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= groups * experts)
        return;
    int sum = 0;
    for (i64 s = 0; s < senders; s++)
        sum += counts[(i / experts * senders + s) * experts + i % experts];
    sums[i] = sum;
}
