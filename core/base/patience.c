/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#define LEAST 1e-6
#define MOST 1e6

tt_status tt_patience_read(double *out, tt_error *err)
{
    const char *text = getenv("TTRUN_PATIENCE");
    char *end = NULL;
    const double scale = text && *text ? strtod(text, &end) : 1;
    if (end && (*end || !(scale >= LEAST && scale <= MOST)))
        return TT_FAIL(err, TT_EINVAL,
                       "TTRUN_PATIENCE: expected a number from 1e-6 to 1e6, got \"%s\"", text);
    *out = scale;
    return TT_OK;
}

int64_t tt_patience(int64_t ns)
{
    static _Atomic double known; /* 0: not read yet. The environment is read once per process. */
    double scale = atomic_load_explicit(&known, memory_order_relaxed);
    if (scale <= 0) {
        scale = 1;
        (void)tt_patience_read(&scale, NULL); /* the program has refused what is no number */
        atomic_store_explicit(&known, scale, memory_order_relaxed);
    }
    const double scaled = floor((double)ns * scale);
    return scaled < 0x1p62 ? (int64_t)scaled : INT64_MAX / 2;
}

int tt_patience_ms(int64_t ns)
{
    const int64_t ms = tt_patience(ns) / 1000000;
    return ms < 1 ? 1 : ms > INT_MAX ? INT_MAX : (int)ms;
}
