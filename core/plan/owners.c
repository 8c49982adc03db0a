/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/owners.h"

#define MIXED INT32_MAX

void tt_owners_forget(tt_owners *m)
{
    m->pieces.items[0].owner = TT_OWNER_UNKNOWN;
}

void tt_owners_init(tt_owners *m, tt_arena *a, int64_t bytes)
{
    const tt_owner_piece whole = {TT_OWNER_UNKNOWN, 0};
    *m = (tt_owners){.a = a, .bytes = bytes, .span = 1};
    while (m->span < bytes && m->span <= INT64_MAX / 2)
        m->span *= 2;
    tt_vec_push(a, &m->pieces, whole);
}

static int64_t middle(int64_t lo, int64_t hi)
{
    return lo + (hi - lo) / 2;
}

/* The halves of piece i, which then has no single owner. */
static int halves_of(tt_owners *m, int i)
{
    const tt_owner_piece p = m->pieces.items[i], part = {p.owner, 0};
    int half = p.half;
    if (!half) {
        half = (int)m->pieces.n;
        tt_vec_push(m->a, &m->pieces, part);
        tt_vec_push(m->a, &m->pieces, part);
    } else if (p.owner != MIXED) {
        m->pieces.items[half].owner = m->pieces.items[half + 1].owner = p.owner;
    }
    m->pieces.items[i] = (tt_owner_piece){MIXED, half};
    return half;
}

/* Writes [begin, end) of piece i, which is [lo, hi). */
static void write_piece(tt_owners *m, int i, int64_t lo, int64_t hi, int64_t begin, int64_t end,
                        int owner)
{
    if (end <= lo || hi <= begin || m->pieces.items[i].owner == owner)
        return;
    if (begin <= lo && hi <= end) {
        m->pieces.items[i].owner = owner;
        return;
    }
    const int half = halves_of(m, i);
    const int64_t mid = middle(lo, hi);
    write_piece(m, half, lo, mid, begin, end, owner);
    write_piece(m, half + 1, mid, hi, begin, end, owner);
    if (m->pieces.items[half].owner == m->pieces.items[half + 1].owner)
        m->pieces.items[i].owner = m->pieces.items[half].owner;
}

bool tt_owners_write(tt_owners *m, int64_t begin, int64_t bytes, int owner)
{
    if (begin < 0 || bytes < 0 || begin > m->bytes - bytes)
        return false;
    if (!bytes)
        return true;
    write_piece(m, 0, 0, m->span, begin, begin + bytes, owner);
    return true;
}

static bool piece_holds(const tt_owners *m, int i, int64_t lo, int64_t hi, int64_t begin,
                        int64_t end, int owner)
{
    if (end <= lo || hi <= begin || begin >= end)
        return true;
    const tt_owner_piece p = m->pieces.items[i];
    if (p.owner != MIXED)
        return p.owner == owner;
    const int64_t mid = middle(lo, hi);
    return piece_holds(m, p.half, lo, mid, begin, end, owner) &&
           piece_holds(m, p.half + 1, mid, hi, begin, end, owner);
}

bool tt_owners_hold(const tt_owners *m, int64_t begin, int64_t bytes, int owner)
{
    return begin >= 0 && bytes >= 0 && begin <= m->bytes - bytes &&
           piece_holds(m, 0, 0, m->span, begin, begin + bytes, owner);
}

int tt_owner_at(const tt_owners *m, int64_t begin)
{
    begin = TT_MAXV(TT_MIN(begin, m->bytes - 1), (int64_t)0);
    int64_t lo = 0, hi = m->span;
    int i = 0;
    while (m->pieces.items[i].owner == MIXED) {
        const int64_t mid = middle(lo, hi);
        const bool upper = begin >= mid;
        i = m->pieces.items[i].half + upper;
        lo = upper ? mid : lo;
        hi = upper ? hi : mid;
    }
    return m->pieces.items[i].owner;
}
