/* SPDX-License-Identifier: Apache-2.0 */
#include "point_memory.h"

/* find_bad: the lowest index of a bad element. While it runs, "none" is the largest number; the last kernel makes -1 of it.
 * what: tt_find_bad of ttrun/device.h. */

#define NONE 0x7fffffffffffffffll

TT_KERNEL(32, tt_find_bad_begin, i64 *out)
{
    if (threadIdx.x == 0 && blockIdx.x == 0)
        *out = NONE;
}

TT_DEV bool find_is_bad(const void *x, int dtype, int what, u32 pattern, i64 i)
{
    if (what == 2)
        return ((const u8 *)x)[i] != (u8)(pattern >> 8 * (i % 4));
    const double v =
        point_is_f64(dtype) ? point_read_f64(dtype, x, i) : (double)point_read_f32(dtype, x, i);
    return v - v != 0.0 && !(what == 1 && v < 0.0);
}

/* A thread stops at its first one: its indices ascend. */
TT_KERNEL(POINT_THREADS, tt_find_bad, i64 *out, const void *x, int dtype, int what, u32 pattern,
          i64 n)
{
    bool found = false;
    for (i64 i = point_first(); i < n && !found; i += point_all()) {
        found = find_is_bad(x, dtype, what, pattern, i);
        if (found)
            tt_atomic_min(out, i);
    }
}

TT_KERNEL(32, tt_find_bad_end, i64 *out)
{
    if (threadIdx.x == 0 && blockIdx.x == 0 && *out == NONE)
        *out = -1;
}
