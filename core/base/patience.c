/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <ttrun/patience.h>

#define LEAST 1e-6
#define MOST 1e6

static double read_scale(void)
{
    const char *text = getenv("TTRUN_PATIENCE");
    char *end = NULL;
    const double scale = text ? strtod(text, &end) : 1;
    return text && (end == text || *end || !(scale >= LEAST && scale <= MOST)) ? 1 : scale;
}

int64_t tt_patience(int64_t ns)
{
    static _Atomic double known; /* 0: not read yet. The environment is read once per process. */
    double scale = atomic_load_explicit(&known, memory_order_relaxed);
    if (scale <= 0) {
        scale = read_scale();
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
