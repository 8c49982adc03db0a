/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/programs.h"
#include "pipeline/schedule_impl.h"
#include <stdlib.h>
#include <string.h>

/* Assigns slots by interval colouring of the lifetimes in a rank's program, and proves that the
 * reuse of a slot is ordered although the queues run concurrently. */

typedef struct places { /* by tt_action_key(): the action's position in the program, -1 = absent */
    int *of[4];         /* by item kind */
} places;

static void find_places(const tt_programs *p, int rank, tt_arena *a, places *out)
{
    const tt_schedule *s = p->schedule;
    const size_t keys = 3 * (size_t)s->n_stages * (size_t)s->n_micro;
    for (int k = 0; k < 4; k++) {
        out->of[k] = tt_arena_array(a, keys + 1, sizeof(int));
        memset(out->of[k], 0xff, (keys + 1) * sizeof(int));
    }
    for (int i = 0; i < p->n_items[rank]; i++)
        out->of[p->items[rank][i].kind][tt_action_key(s, &p->items[rank][i].action)] = i;
    for (int i = 0; i < p->n_items[rank]; i++) { /* B is I and W */
        tt_action x = p->items[rank][i].action;
        if (p->items[rank][i].kind != TT_ITEM_RUN || x.kind != TT_ACTION_B)
            continue;
        x.kind = TT_ACTION_W;
        out->of[TT_ITEM_RUN][tt_action_key(s, &x)] = i;
    }
}

static int slots_place_of(const tt_schedule *s, const places *at, tt_item_kind item,
                          tt_action_kind kind, int stage, int micro)
{
    if (stage < 0 || stage >= s->n_stages)
        return -1;
    const tt_action a = {kind, stage, micro};
    return at->of[item][tt_action_key(s, &a)];
}

/* The position from which the result of a neighbour's action is on this rank: its receive, or the
 * action itself if it runs on this rank, else the own action. */
static int since(const tt_schedule *s, const places *at, tt_action_kind kind, int stage, int micro,
                 int own)
{
    const int recv = slots_place_of(s, at, TT_ITEM_RECV, kind, stage, micro);
    const int run = slots_place_of(s, at, TT_ITEM_RUN, kind, stage, micro);
    return recv >= 0 ? recv : run >= 0 ? run : own;
}

static void add_sends(const tt_schedule *s, const places *at, int end, int stage, int micro,
                      tt_slots *out)
{
    for (int k = 0; k < 2; k++) {
        const tt_action_kind kind = k ? TT_ACTION_I : TT_ACTION_F;
        const int send = slots_place_of(s, at, TT_ITEM_SEND, kind, stage, micro);
        const int wait = slots_place_of(s, at, TT_ITEM_WAIT, kind, stage, micro);
        if (send >= 0)
            out->lives[out->n++] = (tt_life){k ? TT_HOLD_OUT_I : TT_HOLD_OUT_F,
                                             stage,
                                             micro,
                                             slots_place_of(s, at, TT_ITEM_RUN, kind, stage, micro),
                                             wait >= 0 ? wait : end,
                                             send,
                                             0};
    }
}

static void add_lives(const tt_programs *p, const places *at, int end, int stage, int micro,
                      tt_slots *out)
{
    const tt_schedule *s = p->schedule;
    const int f = slots_place_of(s, at, TT_ITEM_RUN, TT_ACTION_F, stage, micro);
    const int i = slots_place_of(s, at, TT_ITEM_RUN, TT_ACTION_I, stage, micro);
    const int w = slots_place_of(s, at, TT_ITEM_RUN, TT_ACTION_W, stage, micro);
    const int x = since(s, at, TT_ACTION_F, stage - 1, micro, f);
    const int y = since(s, at, TT_ACTION_I, stage + 1, micro, i);
    const int read = i < 0 ? f : i; /* without backwards, the forward is the reader */
    out->lives[out->n++] = (tt_life){TT_HOLD_SLOT, stage, micro, x, read, read, 0};
    if (i >= 0) {
        out->lives[out->n++] = (tt_life){TT_HOLD_KEEP, stage, micro, x, w, w, 0};
        out->lives[out->n++] = (tt_life){TT_HOLD_WGRAD, stage, micro, y, w, w, 0};
    }
    if (p->posted)
        add_sends(s, at, end, stage, micro, out);
}

static int by_first(const void *x, const void *y)
{
    const tt_life *a = x, *b = y;
    if (a->stage != b->stage)
        return a->stage - b->stage;
    if (a->hold != b->hold)
        return a->hold - b->hold;
    return a->first - b->first;
}

/* Gives each lifetime of one class and stage, in the order of their beginnings, the lowest free
 * slot. The number of slots is the largest number of lifetimes at any position. */
static int colour(tt_life *l, int n, int *until)
{
    int used = 0;
    for (int k = 0; k < n; k++) {
        int slot = 0;
        while (slot < used && until[slot] >= l[k].first)
            slot++;
        used = TT_MAXV(used, slot + 1);
        until[slot] = l[k].last;
        l[k].slot = slot;
    }
    return used;
}

void tt_slots_make(const tt_programs *p, int rank, tt_arena *a, tt_slots *out)
{
    const tt_schedule *s = p->schedule;
    places at;
    find_places(p, rank, a, &at);
    size_t n_own = 0;
    for (int st = 0; st < s->n_stages; st++)
        n_own += s->stage_rank[st] == rank;
    const size_t most = n_own * (size_t)s->n_micro * TT_N_LIVES;
    *out = (tt_slots){.lives = tt_arena_array(a, most + 1, sizeof *out->lives),
                      .count = tt_arena_array(a, (size_t)s->n_stages * TT_N_LIVES, sizeof(int))};
    for (int st = 0; st < s->n_stages; st++)
        for (int m = 0; s->stage_rank[st] == rank && m < s->n_micro; m++)
            add_lives(p, &at, p->n_items[rank], st, m, out);
    qsort(out->lives, (size_t)out->n, sizeof *out->lives, by_first);
    int *until = tt_arena_array(a, (size_t)s->n_micro + 1, sizeof *until);
    for (int i = 0, end; i < out->n; i = end) {
        for (end = i; end < out->n && out->lives[end].stage == out->lives[i].stage &&
                      out->lives[end].hold == out->lives[i].hold;)
            end++;
        out->count[out->lives[i].stage * TT_N_LIVES + out->lives[i].hold] =
            colour(out->lives + i, end - i, until);
    }
}

/* ---- happens-before: vector clocks of (rank, compute queue) and (rank, communication queue) ----
 */

enum { COMPUTE, COMM };

typedef struct clocks {
    const tt_programs *p;
    bool events, waits;
    int width;                /* entries of a clock: two per rank */
    int *now;                 /* [rank][queue][width] */
    int **start, **end;       /* by rank: [item][width] */
    bool **posted;            /* by rank and item: its post is done */
    int *at;                  /* by rank */
    int **recv_at, **send_at; /* by rank, by key: item of that receive, of that send */
} clocks;

static int *now_of(clocks *c, int rank, int queue)
{
    return c->now + (size_t)(2 * rank + queue) * (size_t)c->width;
}

static void clock_join(int *to, const int *from, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = TT_MAXV(to[i], from[i]);
}

static int *stamp(clocks *c, int **table, int rank, int item)
{
    return table[rank] + (size_t)item * (size_t)c->width;
}

static void start_item(clocks *c, int rank, int queue, int item)
{
    memcpy(stamp(c, c->start, rank, item), now_of(c, rank, queue), sizeof(int) * (size_t)c->width);
}

static void end_item(clocks *c, int rank, int queue, int item)
{
    now_of(c, rank, queue)[2 * rank + queue]++;
    memcpy(stamp(c, c->end, rank, item), now_of(c, rank, queue), sizeof(int) * (size_t)c->width);
}

/* A message is transferred when both ends have posted it: it ends after both. */
static bool message_done(clocks *c, int rank, int item)
{
    const tt_item *x = &c->p->items[rank][item];
    const size_t key = tt_action_key(c->p->schedule, &x->action);
    const int other = (x->kind == TT_ITEM_SEND ? c->recv_at : c->send_at)[x->peer][key];
    if (!c->posted[rank][item]) {
        if (c->events)
            clock_join(now_of(c, rank, COMM), now_of(c, rank, COMPUTE), c->width);
        start_item(c, rank, COMM, item);
        c->posted[rank][item] = true;
        if (other < 0 || !c->posted[x->peer][other])
            return false;
        const int ends[2][2] = {
            {rank,    item },
            {x->peer, other}
        };
        for (int k = 0; k < 2; k++) {
            clock_join(now_of(c, ends[k][0], COMM), stamp(c, c->start, ends[0][0], ends[0][1]),
                       c->width);
            clock_join(now_of(c, ends[k][0], COMM), stamp(c, c->start, ends[1][0], ends[1][1]),
                       c->width);
            end_item(c, ends[k][0], COMM, ends[k][1]);
        }
    }
    return stamp(c, c->end, rank, item)[2 * rank + COMM] > 0;
}

static bool item_done(clocks *c, int rank, int item)
{
    const tt_schedule *s = c->p->schedule;
    const tt_item *x = &c->p->items[rank][item];
    tt_action need[2];
    if (x->kind == TT_ITEM_SEND || x->kind == TT_ITEM_RECV)
        return message_done(c, rank, item);
    for (int i = x->kind == TT_ITEM_RUN ? tt_action_needs(s, &x->action, need) : 0; i-- > 0;) {
        const int recv = c->recv_at[rank][tt_action_key(s, &need[i])];
        if (s->stage_rank[need[i].stage] != rank && recv >= 0)
            clock_join(now_of(c, rank, COMPUTE), stamp(c, c->end, rank, recv), c->width);
    }
    if (x->kind == TT_ITEM_WAIT && c->waits)
        clock_join(now_of(c, rank, COMPUTE),
                   stamp(c, c->end, rank, c->send_at[rank][tt_action_key(s, &x->action)]),
                   c->width);
    start_item(c, rank, COMPUTE, item);
    end_item(c, rank, COMPUTE, item);
    return true;
}

static void clocks_init(clocks *c, tt_arena *a)
{
    const tt_schedule *s = c->p->schedule;
    const size_t n = (size_t)s->n_ranks;
    c->width = 2 * s->n_ranks;
    c->now = tt_arena_array(a, 2 * n * (size_t)c->width, sizeof *c->now);
    c->start = tt_arena_array(a, n, sizeof *c->start);
    c->end = tt_arena_array(a, n, sizeof *c->end);
    c->posted = tt_arena_array(a, n, sizeof *c->posted);
    c->at = tt_arena_array(a, n, sizeof *c->at);
    c->recv_at = tt_arena_array(a, n, sizeof *c->recv_at);
    c->send_at = tt_arena_array(a, n, sizeof *c->send_at);
    for (int r = 0; r < s->n_ranks; r++) {
        const size_t items = (size_t)c->p->n_items[r] + 1;
        places at;
        find_places(c->p, r, a, &at);
        c->recv_at[r] = at.of[TT_ITEM_RECV];
        c->send_at[r] = at.of[TT_ITEM_SEND];
        c->start[r] = tt_arena_array(a, items * (size_t)c->width, sizeof(int));
        c->end[r] = tt_arena_array(a, items * (size_t)c->width, sizeof(int));
        c->posted[r] = tt_arena_array(a, items, sizeof(bool));
    }
}

static bool before(const int *end, const int *start, int n)
{
    for (int i = 0; i < n; i++)
        if (start[i] < end[i])
            return false;
    return true;
}

/* Lifetimes are sorted by (stage, class, first), so the next one in the same slot comes later. */
static tt_status check_reuse(clocks *c, int rank, const tt_slots *s, tt_error *err)
{
    for (int i = 0; i < s->n; i++)
        for (int k = i + 1; k < s->n; k++) {
            const tt_life *old = &s->lives[i], *new = &s->lives[k];
            if (new->stage != old->stage || new->hold != old->hold)
                break;
            if (new->slot != old->slot)
                continue;
            if (!before(stamp(c, c->end, rank, old->reader), stamp(c, c->start, rank, new->first),
                        c->width))
                return TT_FAIL(err, TT_EINVAL,
                               "rank %d, stage %d: slot %d may be written for micro-batch %d while "
                               "%d is read",
                               rank, old->stage, old->slot, new->micro, old->micro);
            break;
        }
    return TT_OK;
}

tt_status tt_slots_check(const tt_programs *p, const tt_slots *slots, bool events, bool waits,
                         tt_error *err)
{
    tt_arena *a = tt_arena_new();
    clocks c = {.p = p, .events = events, .waits = waits};
    tt_status s = TT_OK;
    clocks_init(&c, a);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->schedule->n_ranks; r++)
            for (; c.at[r] < p->n_items[r] && item_done(&c, r, c.at[r]); c.at[r]++)
                moved = true;
    }
    for (int r = 0; s == TT_OK && r < p->schedule->n_ranks; r++)
        if (c.at[r] < p->n_items[r])
            s = TT_FAIL(err, TT_EINVAL, "rank %d waits at item %d of %d for ever", r, c.at[r],
                        p->n_items[r]);
    for (int r = 0; s == TT_OK && r < p->schedule->n_ranks; r++)
        s = check_reuse(&c, r, &slots[r], err);
    tt_arena_free(a);
    return s;
}
