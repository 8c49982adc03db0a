/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/programs.h"
#include "pipeline/schedule_impl.h"

/* The abstract run of all ranks' messages and collectives. */

typedef struct lane { /* a directed pair; tags of what is sent and not received */
    int64_t tag[TT_MAX_BUFFERS + 2];
    int sent, received;
} lane;

typedef struct meeting {
    int arrived, done; /* ranks inside the meeting now forming; meetings done */
    int64_t tag;
} meeting;

typedef struct begun { /* a collective beside the programs */
    int arrived;
    int64_t tag;
} begun;

typedef struct machine {
    const tt_wires *w;
    int n_buffers;
    lane *lanes; /* [from * n_ranks + to] */
    tt_arena *a;
    meeting *meetings;      /* by group */
    TT_VEC(begun) * beside; /* by group: the nth of each */
    int *at;                /* by rank */
    int *posted; /* by rank: 0, or 1 + the meeting it arrived at, or 1: its send is out */
    const char *bad;
} machine;

static bool begins(machine *m, const tt_wire *x)
{
    while (m->beside[x->to].n <= (size_t)x->nth) {
        const begun none = {0};
        tt_vec_push(m->a, &m->beside[x->to], none);
    }
    begun *b = &m->beside[x->to].items[x->nth];
    if (b->arrived && b->tag != x->tag)
        m->bad = "members of a group begin different collectives";
    b->tag = x->tag;
    if (++b->arrived > m->w->group_size[x->to])
        m->bad = "a member begins a collective twice";
    return true;
}

static bool is_over(const machine *m, const tt_wire *x)
{
    return m->beside[x->to].n > (size_t)x->nth &&
           m->beside[x->to].items[x->nth].arrived == m->w->group_size[x->to];
}

/* Does the rank's item end now? */
static bool ends(machine *m, int r)
{
    const tt_wire *x = &m->w->items[r][m->at[r]];
    const int n = m->w->n_ranks, ring = TT_MAX_BUFFERS + 2;
    if (x->kind == TT_WIRE_BEGIN)
        return begins(m, x);
    if (x->kind == TT_WIRE_WAIT)
        return is_over(m, x);
    if (x->kind == TT_WIRE_MEET) {
        meeting *g = &m->meetings[x->to];
        if (!m->posted[r]) {
            if (g->arrived && g->tag != x->tag)
                m->bad = "members of a group are at different collectives";
            g->tag = x->tag;
            m->posted[r] = 1 + g->done;
            if (++g->arrived == m->w->group_size[x->to]) {
                g->arrived = 0;
                g->done++;
            }
        }
        return g->done >= m->posted[r];
    }
    lane *l = x->kind == TT_WIRE_SEND ? &m->lanes[r * n + x->to] : &m->lanes[x->to * n + r];
    if (x->kind == TT_WIRE_SEND) {
        if (!m->posted[r])
            l->tag[l->sent++ % ring] = x->tag;
        m->posted[r] = 1;
        return l->sent - l->received <= m->n_buffers;
    }
    if (l->received == l->sent)
        return false;
    if (l->tag[l->received++ % ring] != x->tag)
        m->bad = "a message is not the one its receiver waits for";
    return true;
}

static tt_status verdict(const machine *m, tt_error *err)
{
    static const char *const doing[] = {"sends to rank", "receives from rank", "meets group",
                                        "begins in group", "waits in group"};
    for (int r = 0; r < m->w->n_ranks; r++)
        if (m->at[r] < m->w->n_items[r]) {
            const tt_wire *x = &m->w->items[r][m->at[r]];
            return TT_FAIL(err, TT_EINVAL, "%s: rank %d %s %d at its message %d of %d",
                           m->bad ? m->bad : "deadlock", r, doing[x->kind], x->to, m->at[r],
                           m->w->n_items[r]);
        }
    const int n = m->w->n_ranks * m->w->n_ranks;
    for (int i = 0; i < n; i++)
        if (m->lanes[i].sent != m->lanes[i].received)
            return TT_FAIL(err, TT_EINVAL, "rank %d never receives what rank %d sent",
                           i % m->w->n_ranks, i / m->w->n_ranks);
    return m->bad ? TT_FAIL(err, TT_EINVAL, "%s", m->bad) : TT_OK;
}

tt_status tt_wires_run(const tt_wires *w, int n_buffers, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const size_t n = (size_t)w->n_ranks;
    machine m = {.w = w, .a = a, .n_buffers = TT_MIN(n_buffers, TT_MAX_BUFFERS)};
    m.lanes = tt_arena_array(a, n * n, sizeof *m.lanes);
    m.meetings = tt_arena_array(a, (size_t)w->n_groups + 1, sizeof *m.meetings);
    m.beside = tt_arena_array(a, (size_t)w->n_groups + 1, sizeof *m.beside);
    m.at = tt_arena_array(a, n, sizeof *m.at);
    m.posted = tt_arena_array(a, n, sizeof *m.posted);
    for (bool moved = true; moved && !m.bad;) {
        moved = false;
        for (int r = 0; r < w->n_ranks; r++)
            while (!m.bad && m.at[r] < w->n_items[r]) {
                const int was = m.posted[r];
                const bool end = ends(&m, r);
                moved = moved || end || m.posted[r] != was;
                if (!end)
                    break;
                m.posted[r] = 0;
                m.at[r]++;
            }
    }
    const tt_status s = verdict(&m, err);
    tt_arena_free(a);
    return s;
}

void tt_programs_wires(const tt_programs *p, int n_values, tt_arena *a, tt_wires *out)
{
    const int n = p->schedule->n_ranks;
    *out = (tt_wires){.n_ranks = n,
                      .items = tt_arena_array(a, (size_t)n, sizeof *out->items),
                      .n_items = tt_arena_array(a, (size_t)n, sizeof *out->n_items)};
    for (int r = 0; r < n; r++) {
        out->items[r] = tt_arena_array(a, (size_t)p->n_items[r] * (size_t)TT_MAXV(n_values, 1) + 1,
                                       sizeof **out->items);
        for (int i = 0; i < p->n_items[r]; i++) {
            const tt_item *x = &p->items[r][i];
            if (x->kind != TT_ITEM_SEND && x->kind != TT_ITEM_RECV)
                continue;
            for (int v = 0; v < n_values; v++)
                out->items[r][out->n_items[r]++] =
                    (tt_wire){x->kind == TT_ITEM_SEND ? TT_WIRE_SEND : TT_WIRE_RECV, x->peer,
                              (int64_t)tt_action_key(p->schedule, &x->action) * n_values + v, 0};
        }
    }
}
