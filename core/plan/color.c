/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <stdlib.h>
#include <string.h>

/* Finds offsets for lives (values with a first and a last time): in some order, each gets the
 * lowest offset that is free for its whole life. To place larger ones first is close to optimal
 * for the nested lifetimes of training. Where it is not (the peak is above the most bytes alive
 * at once), other orders are tried and the best one is kept. Source: Pisarchyk & Lee 2020,
 * arXiv:2001.03288.
 *
 * A segment tree over the times at which lives begin and end stores the occupied bytes. A life
 * covers O(log n) nodes. Each node has, as sorted ranges, the bytes that are occupied during all
 * of its times and those that are occupied during any of them. Lives that lie directly one after
 * the other in memory form one range, so a model of many layers, whose lives are nested, has few
 * ranges, and each life is placed in about O(log² n). */

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

typedef struct range {
    int64_t offset, end;
} range;

/* Occupied bytes: sorted ranges that neither overlap nor touch. */
typedef struct ranges {
    range *r;
    int n, room;
} ranges;

/* How far a query has come in a set of ranges: its first range that ends behind the offset that the
 * query has reached. */
typedef struct cursor {
    const ranges *s;
    int k;
    int64_t next; /* s->r[k].offset; INT64_MAX: behind the last range */
} cursor;

#define MOST_SETS 128 /* of a query: at most four nodes on each of 31 levels */

typedef struct taken {
    tt_arena *a;
    int *time; /* sorted; node leaves + i has the times from time[i] to before time[i + 1] */
    int n_times, leaves;
    ranges *all, *any; /* by node, 1 = root: occupied at all of its times, at any of them */
    cursor set[MOST_SETS];
    int n_sets;
} taken;

/* The first range from number lo on that ends at or after `at`. */
static int first_to(const ranges *s, int lo, int64_t at)
{
    int hi = s->n;
    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        if (s->r[mid].end < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void add_range(tt_arena *a, ranges *s, range r)
{
    const int from = first_to(s, 0, r.offset);
    int to = from;
    for (; to < s->n && s->r[to].offset <= r.end; to++) {
        r.offset = TT_MIN(r.offset, s->r[to].offset);
        r.end = TT_MAXV(r.end, s->r[to].end);
    }
    if (from == to && s->n == s->room) {
        const int room = s->room ? 2 * s->room : 4;
        range *more = tt_arena_array(a, (size_t)room, sizeof *more);
        if (s->n)
            memcpy(more, s->r, (size_t)s->n * sizeof *more);
        s->r = more;
        s->room = room;
    }
    if (from + 1 != to)
        memmove(&s->r[from + 1], &s->r[to], (size_t)(s->n - to) * sizeof *s->r);
    s->r[from] = r;
    s->n += 1 - (to - from);
}

/* Marks the bytes of a life that has the times [first, last] among the node's leaves [begin,
 * end). */
static void take(taken *t, int node, int begin, int end, int first, int last, range r)
{
    if (last < begin || end <= first)
        return;
    add_range(t->a, &t->any[node], r);
    if (first <= begin && end - 1 <= last) {
        add_range(t->a, &t->all[node], r);
        return;
    }
    const int mid = begin + (end - begin) / 2;
    take(t, 2 * node, begin, mid, first, last, r);
    take(t, 2 * node + 1, mid, end, first, last, r);
}

static void add_set(taken *t, const ranges *s)
{
    if (s->n)
        t->set[t->n_sets++] = (cursor){s, 0, s->r[0].offset};
}

/* Finds the sets whose union is occupied at some time of [first, last]. */
static void find_sets(taken *t, int node, int begin, int end, int first, int last)
{
    if (last < begin || end <= first || !t->any[node].n)
        return;
    if (first <= begin && end - 1 <= last) {
        add_set(t, &t->any[node]);
        return;
    }
    const int mid = begin + (end - begin) / 2;
    add_set(t, &t->all[node]);
    find_sets(t, 2 * node, begin, mid, first, last);
    find_sets(t, 2 * node + 1, mid, end, first, last);
}

/* The lowest offset at or above `at` where one set has `bytes` free bytes. */
static int64_t skip(cursor *c, int64_t at, int64_t bytes)
{
    const ranges *s = c->s;
    c->k = first_to(s, c->k, at + 1);
    for (; c->k < s->n && s->r[c->k].offset < at + bytes; c->k++)
        at = s->r[c->k].end;
    c->next = c->k < s->n ? s->r[c->k].offset : INT64_MAX;
    return at;
}

/* The lowest offset that is free in all sets. */
static int64_t lowest(taken *t, int64_t bytes)
{
    int64_t at = 0;
    for (int since = 0, i = 0; since < t->n_sets; i = i + 1 < t->n_sets ? i + 1 : 0) {
        const int64_t was = at;
        if (t->set[i].next < at + bytes)
            at = skip(&t->set[i], at, bytes);
        since = at > was ? 1 : since + 1; /* the sets in a row that are free there */
    }
    return at;
}

static int index_of(const taken *t, int time)
{
    int lo = 0, hi = t->n_times - 1;
    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        if (t->time[mid] < time)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Places all lives and returns the peak, or gives up once the peak is `most` or above. */
static int64_t place(tt_live **lives, size_t n, taken *t, int64_t most)
{
    int64_t peak = 0;
    for (int i = 0; i < 2 * t->leaves; i++)
        t->all[i].n = t->any[i].n = 0;
    for (size_t i = 0; i < n && peak < most; i++) {
        tt_live *l = lives[i];
        const int first = index_of(t, l->first), last = index_of(t, l->last);
        t->n_sets = 0;
        l->offset = 0;
        if (l->bytes == 0)
            continue;
        find_sets(t, 1, 0, t->leaves, first, last);
        l->offset = lowest(t, l->bytes);
        const range r = {l->offset, l->offset + l->bytes};
        peak = TT_MAXV(peak, r.end);
        take(t, 1, 0, t->leaves, first, last, r);
    }
    return peak;
}

static int by_value(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Makes the tree over the times at which these lives begin or end: two lives overlap in time if
 * they share one of these times. */
static taken tree_of(tt_arena *a, tt_live *const *lives, size_t n)
{
    taken t = {.a = a, .time = tt_arena_array(a, 2 * n + 1, sizeof *t.time), .leaves = 1};
    for (size_t i = 0; i < n; i++) {
        t.time[2 * i] = lives[i]->first;
        t.time[2 * i + 1] = lives[i]->last;
    }
    qsort(t.time, 2 * n, sizeof *t.time, by_value);
    for (size_t i = 0; i < 2 * n; i++)
        if (!i || t.time[i] != t.time[t.n_times - 1])
            t.time[t.n_times++] = t.time[i];
    while (t.leaves < t.n_times)
        t.leaves *= 2;
    t.all = tt_arena_array(a, 2 * (size_t)t.leaves, sizeof *t.all);
    t.any = tt_arena_array(a, 2 * (size_t)t.leaves, sizeof *t.any);
    return t;
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
    tt_live **kept = tt_arena_array(a, n + 1, sizeof *kept);
    int64_t *offset = tt_arena_array(a, n + 1, sizeof *offset), best = INT64_MAX;
    const int64_t least = tt_plan_most_alive(a, lives, n);
    tt_arena *scratch = tt_arena_new();
    taken t = tree_of(scratch, lives, n);
    memcpy(kept, lives, n * sizeof *kept);
    for (size_t k = 0; k < TT_COUNT(orders) && best > least; k++) {
        qsort(lives, n, sizeof *lives, orders[k]);
        const int64_t peak = place(lives, n, &t, best);
        if (peak >= best)
            continue;
        best = peak;
        for (size_t i = 0; i < n; i++)
            offset[i] = kept[i]->offset;
    }
    for (size_t i = 0; i < n; i++)
        kept[i]->offset = offset[i];
    tt_arena_free(scratch);
    return n ? best : 0;
}
