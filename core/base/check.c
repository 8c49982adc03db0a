/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <stdlib.h>
#include <unistd.h>

_Noreturn void tt_assert_failed(const char *cond, const char *file, int line)
{
    tt_log(TT_ERROR, "base",
           "%s:%d: assertion failed: %s; this is a bug in ttrun, please report it", file, line,
           cond);
    abort();
}

_Noreturn void tt_out_of_memory(size_t size, const char *where)
{
    tt_log(TT_ERROR, "base", "out of memory: %zu bytes of metadata in %s; free memory and retry",
           size, where);
    _exit(1); /* no fault of ttrun's: no core, and the status of what goes wrong in a run */
}

bool tt_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool tt_add_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}
