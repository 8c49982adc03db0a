/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <stdlib.h>
#include <string.h>

static int by_size(const void *a, const void *b)
{
    const tt_live *x = *(tt_live *const *)a, *y = *(tt_live *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    const int i = x->value ? x->value->id : -x->scratch_of->id - 1;
    const int j = y->value ? y->value->id : -y->scratch_of->id - 1;
    return (i > j) - (i < j);
}

/* Greedy by size: close to optimal for training's nested lifetimes, and O(n²) on n of a few thousand.
 * Source: Pisarchyk & Lee 2020, arXiv:2001.03288. */
int64_t tt_plan_color(tt_arena *a, tt_live **lives, size_t n)
{
    int64_t peak = 0;
    tt_live **placed = tt_arena_array(a, n + 1, sizeof *placed); /* by offset */
    size_t n_placed = 0;
    qsort(lives, n, sizeof *lives, by_size);
    for (size_t i = 0; i < n; i++) {
        tt_live *l = lives[i];
        int64_t at = 0;
        size_t k;
        for (k = 0; k < n_placed; k++) {
            const tt_live *o = placed[k];
            if (o->last < l->first || l->last < o->first) continue;
            if (o->offset >= at + l->bytes) break;
            at = TT_MAXV(at, o->offset + o->bytes);
        }
        l->offset = at;
        peak = TT_MAXV(peak, at + l->bytes);
        for (k = n_placed; k > 0 && placed[k - 1]->offset > at; k--)
            placed[k] = placed[k - 1];
        placed[k] = l;
        n_placed++;
    }
    return peak;
}
