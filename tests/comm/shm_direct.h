/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_SHM_DIRECT_H
#define TT_TESTS_SHM_DIRECT_H
#include "comm/processes.h"
#include "comm/shm_impl.h"

/* What the tests of copies from process to process share. If the kernel refuses such copies, the same calls go
 * through shared memory, and cases that only a direct copy can have are skipped. */

enum { MUCH = 1 << 20 }; /* elements, in many pieces */

static inline bool direct(const tt_dist *d)
{
    return atomic_load(d->all->path) == TT_SHM_DIRECT;
}

static bool allowed; /* may a process of this machine copy from its sibling? */

static inline void find_out(world *w, tt_dist *d)
{
    tt_error err;
    if (d->vt->barrier(d->all, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    if (direct(d))
        atomic_fetch_add(&w->count, 1);
}

static inline int find_out_first(void **state)
{
    (void)state;
    allowed = world_run(2, find_out) == 2;
    return 0;
}

static inline void sum_large(world *w, tt_dist *d, tt_comm *g, int64_t n, int32_t own, int32_t all)
{
    int32_t *x = calloc((size_t)n, sizeof *x);
    tt_error err;
    for (int64_t k = 0; k < n; k++)
        x[k] = own + (int32_t)k;
    if (d->vt->all_reduce(g, x, n, TT_I32, TT_MAX, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    for (int64_t k = 0; k < n; k++)
        if (x[k] != all + (int32_t)k)
            world_fail(w, "element %lld is %d", (long long)k, x[k]);
    free(x);
}

#endif
