/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <stdlib.h>
#include <string.h>

/* Offsets for lives: in some order, each at the lowest place free for its whole life. Larger first
 * is close to optimal for training's nested lifetimes; where it is not (its peak is above the most
 * bytes alive at once), other orders are tried and the best is kept. O(n²) on n of a few thousand.
 * Source: Pisarchyk & Lee 2020, arXiv:2001.03288. */

static int by_id(const tt_live *x, const tt_live *y)
{
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    const int i = x->value ? x->value->id : -x->scratch_of->id - 1;
    const int j = y->value ? y->value->id : -y->scratch_of->id - 1;
    return (i > j) - (i < j);
}

static int by_size(const void *a, const void *b)
{
    const tt_live *x = *(tt_live *const *)a, *y = *(tt_live *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return by_id(x, y);
}

static double area(const tt_live *l)
{
    return (double)l->bytes * (l->last - l->first + 1);
}

static int by_area(const void *a, const void *b)
{
    const tt_live *x = *(tt_live *const *)a, *y = *(tt_live *const *)b;
    if (area(x) > area(y))
        return -1;
    if (area(x) < area(y))
        return 1;
    return by_size(a, b);
}

static int by_length(const void *a, const void *b)
{
    const tt_live *x = *(tt_live *const *)a, *y = *(tt_live *const *)b;
    const int n = x->last - x->first, m = y->last - y->first;
    if (n != m)
        return n > m ? -1 : 1;
    return by_size(a, b);
}

/* A life that has its place; side by side, as the search reads all of them for each new one. */
typedef struct occupied {
    int64_t offset, end;
    int first, last;
} occupied;

static int64_t place(tt_live **lives, size_t n, occupied *placed)
{
    int64_t peak = 0;
    size_t n_placed = 0; /* by offset */
    for (size_t i = 0; i < n; i++) {
        tt_live *l = lives[i];
        const int64_t bytes = l->bytes;
        const int first = l->first, last = l->last;
        int64_t at = 0;
        size_t k;
        for (k = 0; k < n_placed; k++) {
            const occupied *o = &placed[k];
            if (o->last < first || last < o->first)
                continue;
            if (o->offset >= at + bytes)
                break;
            at = TT_MAXV(at, o->end);
        }
        l->offset = at;
        peak = TT_MAXV(peak, at + bytes);
        for (k = n_placed; k > 0 && placed[k - 1].offset > at; k--)
            continue;
        memmove(&placed[k + 1], &placed[k], (n_placed - k) * sizeof *placed);
        placed[k] = (occupied){at, at + bytes, first, last};
        n_placed++;
    }
    return peak;
}

typedef struct change {
    int time;
    int64_t bytes;
} change;

static int by_time(const void *a, const void *b)
{
    const change *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* what ends goes first */
}

int64_t tt_plan_most_alive(tt_arena *a, tt_live *const *lives, size_t n)
{
    change *c = tt_arena_array(a, 2 * n + 1, sizeof *c);
    int64_t now = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        c[2 * i] = (change){lives[i]->first, lives[i]->bytes};
        c[2 * i + 1] = (change){lives[i]->last + 1, -lives[i]->bytes};
    }
    qsort(c, 2 * n, sizeof *c, by_time);
    for (size_t i = 0; i < 2 * n; i++) {
        now += c[i].bytes;
        most = TT_MAXV(most, now);
    }
    return most;
}

int64_t tt_plan_color(tt_arena *a, tt_live **lives, size_t n)
{
    static int (*const orders[])(const void *, const void *) = {by_size, by_area, by_length};
    occupied *placed = tt_arena_array(a, n + 1, sizeof *placed);
    tt_live **kept = tt_arena_array(a, n + 1, sizeof *kept);
    int64_t *offset = tt_arena_array(a, n + 1, sizeof *offset), best = INT64_MAX;
    const int64_t least = tt_plan_most_alive(a, lives, n);
    memcpy(kept, lives, n * sizeof *kept);
    for (size_t k = 0; k < TT_COUNT(orders) && best > least; k++) {
        qsort(lives, n, sizeof *lives, orders[k]);
        const int64_t peak = place(lives, n, placed);
        if (peak >= best)
            continue;
        best = peak;
        for (size_t i = 0; i < n; i++)
            offset[i] = kept[i]->offset;
    }
    for (size_t i = 0; i < n; i++)
        kept[i]->offset = offset[i];
    return n ? best : 0;
}
