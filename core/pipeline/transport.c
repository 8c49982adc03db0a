/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/programs.h"
#include "pipeline/schedule_impl.h"
#include <string.h>

/* Simulates the messages and collectives of all ranks, to prove that no rank waits for ever. */

#define RING (TT_MAX_BUFFERS + 2) /* at most this many messages to one rank are in flight */

typedef struct arrival { /* a rank at an item of its list */
    const tt_message *message;
    int64_t micro, at;
    int rank;
} arrival;

typedef struct lane { /* the messages to one other rank that are sent and not received */
    int to, sent, received;
    arrival at[RING];
} lane;

typedef struct group {
    int arrived, done; /* members at the current collective; number of finished collectives */
    arrival first;     /* of those */
    struct {
        arrival first;
        int arrived;
    } * pending; /* begun by some members and not by all, from number n_over on */
    size_t n, cap, n_over;
} group;

typedef struct reader { /* where a rank is in its list */
    int part, item;
    int64_t at;    /* items that it has finished */
    int posted;    /* 0, or 1 + the number of its collective, or 1: its send is in flight */
    size_t *begun; /* by own group */
    TT_VEC(lane) lanes;
} reader;

typedef struct machine {
    const tt_messages *w;
    tt_arena *a;
    int n_buffers;
    reader *ranks;
    group *groups;
    const char *bad;
    arrival one, other; /* the arrivals at which it was noticed */
} machine;

/* The item that a rank is at; NULL: the rank has ended. */
static const tt_message *item_of(machine *m, int r)
{
    reader *x = &m->ranks[r];
    while (x->part < m->w->n_parts[r] && x->item >= m->w->traces[r][x->part].n) {
        x->part++;
        x->item = 0;
    }
    return x->part < m->w->n_parts[r] ? &m->w->traces[r][x->part].items[x->item] : NULL;
}

static arrival transport_place_of(machine *m, int r)
{
    const tt_message *w = item_of(m, r);
    const reader *x = &m->ranks[r];
    return (arrival){w, w ? m->w->traces[r][x->part].micro : 0, x->at, r};
}

static int peer_of(const tt_messages *w, int r, int to)
{
    return w->peer ? w->peer[r * w->n_peers + to] : to;
}

static int group_of(const tt_messages *w, int r, int to)
{
    return w->group ? w->group[r * w->n_own + to] : to;
}

static bool same(const arrival *a, const arrival *b)
{
    return a->message->tag == b->message->tag && a->micro == b->micro;
}

static void transport_fail(machine *m, const char *bad, const arrival *one, const arrival *other)
{
    m->bad = bad;
    m->one = *one;
    m->other = *other;
}

static lane *lane_of(machine *m, int from, int to)
{
    reader *x = &m->ranks[from];
    for (size_t i = 0; i < x->lanes.n; i++)
        if (x->lanes.items[i].to == to)
            return &x->lanes.items[i];
    const lane fresh = {.to = to};
    tt_vec_push(m->a, &x->lanes, fresh);
    return &x->lanes.items[x->lanes.n - 1];
}

/* ---- one item ---- */

static bool begins(machine *m, int r, const arrival *c)
{
    group *g = &m->groups[group_of(m->w, r, c->message->to)];
    const int size = m->w->group_size[g - m->groups];
    size_t *begun = &m->ranks[r].begun[c->message->to];
    const size_t k = *begun - g->n_over;
    if (*begun < g->n_over) {
        transport_fail(m, "a group has more members than it should", c, c);
        return true;
    }
    ++*begun;
    if (k == g->n) {
        if (g->n == g->cap)
            g->pending = tt_vec_grow(m->a, g->pending, g->n, &g->cap, sizeof *g->pending);
        g->n++;
        g->pending[k].first = *c;
        g->pending[k].arrived = 0;
    }
    if (!same(&g->pending[k].first, c))
        transport_fail(m, "members of a group begin different collectives", &g->pending[k].first,
                       c);
    size_t over = 0;
    g->pending[k].arrived++;
    while (over < g->n && g->pending[over].arrived == size)
        over++;
    g->n_over += over;
    g->n -= over;
    if (over)
        memmove(g->pending, g->pending + over, g->n * sizeof *g->pending);
    return true;
}

static bool is_over(const machine *m, int r, const tt_message *x)
{
    const group *g = &m->groups[group_of(m->w, r, x->to)];
    return m->ranks[r].begun[x->to] - (size_t)x->back <= g->n_over;
}

static bool meets(machine *m, int r, const arrival *c)
{
    group *g = &m->groups[group_of(m->w, r, c->message->to)];
    reader *x = &m->ranks[r];
    if (!x->posted) {
        if (!g->arrived)
            g->first = *c;
        else if (!same(&g->first, c))
            transport_fail(m, "members of a group are at different collectives", &g->first, c);
        x->posted = 1 + g->done;
        if (++g->arrived == m->w->group_size[g - m->groups]) {
            g->arrived = 0;
            g->done++;
        }
    }
    return g->done >= x->posted;
}

static bool sends(machine *m, int r, const arrival *c)
{
    lane *l = lane_of(m, r, peer_of(m->w, r, c->message->to));
    if (!m->ranks[r].posted)
        l->at[l->sent++ % RING] = *c;
    m->ranks[r].posted = 1;
    return l->sent - l->received <= m->n_buffers;
}

static bool receives(machine *m, int r, const arrival *c)
{
    lane *l = lane_of(m, peer_of(m->w, r, c->message->to), r);
    if (l->received == l->sent)
        return false;
    const arrival *s = &l->at[l->received++ % RING];
    if (!same(s, c))
        transport_fail(m, "a message is not the one its receiver waits for", s, c);
    return true;
}

/* Whether the rank's item ends now. */
static bool ends(machine *m, int r)
{
    const arrival c = transport_place_of(m, r);
    switch (c.message->kind) {
    case TT_MESSAGE_SEND:
        return sends(m, r, &c);
    case TT_MESSAGE_RECV:
        return receives(m, r, &c);
    case TT_MESSAGE_COLLECTIVE:
        return meets(m, r, &c);
    case TT_MESSAGE_BEGIN:
        return begins(m, r, &c);
    case TT_MESSAGE_WAIT:
        return is_over(m, r, c.message);
    }
    return false;
}

/* ---- the error, in one line ---- */

static int name_of(const machine *m, int r)
{
    return m->w->name ? m->w->name[r] : r;
}

static int64_t length_of(const machine *m, int r)
{
    int64_t n = 0;
    for (int i = 0; i < m->w->n_parts[r]; i++)
        n += m->w->traces[r][i].n;
    return n;
}

static void say(const machine *m, const arrival *c, tt_str *out)
{
    static const char *const doing[] = {"sends to rank", "receives from rank",
                                        "is in a collective of group", "begins in group",
                                        "waits in group"};
    const tt_message *w = c->message;
    if (!w) {
        tt_str_printf(out, "rank %d has ended", name_of(m, c->rank));
        return;
    }
    const bool message = w->kind == TT_MESSAGE_SEND || w->kind == TT_MESSAGE_RECV;
    tt_str_printf(out, "rank %d %s %d", name_of(m, c->rank), doing[w->kind],
                  message ? name_of(m, peer_of(m->w, c->rank, w->to))
                          : group_of(m->w, c->rank, w->to));
    if (m->w->describe) {
        tt_str_add(out, ", ");
        m->w->describe(m->w->user, w, out);
    }
    tt_str_printf(out, ", micro-batch %lld, at %lld of %lld", (long long)c->micro,
                  (long long)c->at + 1, (long long)length_of(m, c->rank));
}

/* Whether another rank waits here for something that this rank has not done. */
static bool holds_up(machine *m, int waits, const tt_message *w, int r)
{
    const reader *x = &m->ranks[r];
    if (w->kind == TT_MESSAGE_SEND || w->kind == TT_MESSAGE_RECV)
        return r == peer_of(m->w, waits, w->to);
    const int g = group_of(m->w, waits, w->to);
    if (!m->w->group || group_of(m->w, r, w->to) != g)
        return false; /* not a member, or unknown */
    if (w->kind == TT_MESSAGE_WAIT)
        return x->begun[w->to] + (size_t)w->back < m->ranks[waits].begun[w->to];
    const tt_message *at = item_of(m, r);
    return !(at && x->posted && at->kind == TT_MESSAGE_COLLECTIVE &&
             group_of(m->w, r, at->to) == g);
}

static tt_status report(const machine *m, const char *bad, const arrival *one, const arrival *other,
                        tt_error *err)
{
    tt_str text = {0};
    say(m, one, &text);
    if (other) {
        tt_str_add(&text, "; ");
        say(m, other, &text);
    }
    const tt_status s = TT_FAIL(err, TT_EINVAL, "%s: %s", bad, tt_str_get(&text));
    tt_str_free(&text);
    return s;
}

static tt_status deadlock(machine *m, int r, tt_error *err)
{
    const arrival c = transport_place_of(m, r);
    for (int q = 0; q < m->w->n_ranks; q++) {
        const arrival d = transport_place_of(m, q);
        if (q != r && holds_up(m, r, c.message, q))
            return report(m, "deadlock", &c, &d, err);
    }
    return report(m, "deadlock", &c, NULL, err);
}

static tt_status verdict(machine *m, tt_error *err)
{
    if (m->bad)
        return report(m, m->bad, &m->one, &m->other, err);
    for (int r = 0; r < m->w->n_ranks; r++)
        if (item_of(m, r))
            return deadlock(m, r, err);
    for (int r = 0; r < m->w->n_ranks; r++)
        for (size_t i = 0; i < m->ranks[r].lanes.n; i++) {
            const lane *l = &m->ranks[r].lanes.items[i];
            if (l->sent != l->received)
                return report(m, "a message is never received", &l->at[l->received % RING], NULL,
                              err);
        }
    for (int g = 0; g < m->w->n_groups; g++)
        if (m->groups[g].n)
            return report(m, "not all members begin a collective", &m->groups[g].pending[0].first,
                          NULL, err);
    return TT_OK;
}

tt_status tt_messages_run(const tt_messages *w, int n_buffers, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    machine m = {.w = w, .a = a, .n_buffers = TT_MIN(n_buffers, TT_MAX_BUFFERS)};
    const size_t own = (size_t)(w->group ? w->n_own : w->n_groups) + 1;
    m.ranks = tt_arena_array(a, (size_t)w->n_ranks, sizeof *m.ranks);
    m.groups = tt_arena_array(a, (size_t)w->n_groups + 1, sizeof *m.groups);
    for (int r = 0; r < w->n_ranks; r++)
        m.ranks[r].begun = tt_arena_array(a, own, sizeof *m.ranks[r].begun);
    for (bool moved = true; moved && !m.bad;) {
        moved = false;
        for (int r = 0; r < w->n_ranks; r++)
            while (!m.bad && item_of(&m, r)) {
                reader *x = &m.ranks[r];
                const int was = x->posted;
                const bool end = ends(&m, r);
                moved = moved || end || x->posted != was;
                if (!end)
                    break;
                x->posted = 0;
                x->item++;
                x->at++;
            }
    }
    const tt_status s = verdict(&m, err);
    tt_arena_free(a);
    return s;
}

void tt_programs_messages(const tt_programs *p, int n_values, tt_arena *a, tt_messages *out)
{
    const int n = p->schedule->n_ranks;
    *out = (tt_messages){.n_ranks = n,
                         .traces = tt_arena_array(a, (size_t)n, sizeof *out->traces),
                         .n_parts = tt_arena_array(a, (size_t)n, sizeof *out->n_parts)};
    for (int r = 0; r < n; r++) {
        tt_trace_part *s = out->traces[r] = tt_arena_alloc(a, sizeof *s);
        tt_message *w =
            tt_arena_array(a, (size_t)p->n_items[r] * (size_t)TT_MAXV(n_values, 1) + 1, sizeof *w);
        out->n_parts[r] = 1;
        s->items = w;
        for (int i = 0; i < p->n_items[r]; i++) {
            const tt_item *x = &p->items[r][i];
            if (x->kind != TT_ITEM_SEND && x->kind != TT_ITEM_RECV)
                continue;
            for (int v = 0; v < n_values; v++)
                w[s->n++] = (tt_message){
                    .kind = x->kind == TT_ITEM_SEND ? TT_MESSAGE_SEND : TT_MESSAGE_RECV,
                    .to = x->peer,
                    .tag = (int64_t)tt_action_key(p->schedule, &x->action) * n_values + v};
        }
    }
}
