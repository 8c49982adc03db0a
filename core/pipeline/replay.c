/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/programs.h"
#include "pipeline/schedule_impl.h"

/* Simulates programs whose receives wait: the abstract run, plus the cost of full buffers and of
 * early receives. */

typedef struct message_times { /* of a directed pair, by message */
    TT_VEC(double) sent;       /* when it was sent; without buffers: when the sender arrived */
    TT_VEC(double) received;
} message_times;

typedef struct replay {
    const tt_programs *p;
    const tt_costs *c;
    int n_buffers;
    tt_arena *a;
    message_times *pairs; /* [from * n_ranks + to] */
    int *at;              /* by rank */
    bool *posted;         /* by rank: its send is waiting for the receiver */
    double *now;
} replay;

/* Whether the rank's item can end, and when. */
static bool item_ends(replay *y, int r, const tt_item *x)
{
    const int n = y->p->schedule->n_ranks;
    message_times *w =
        x->kind == TT_ITEM_SEND ? &y->pairs[r * n + x->peer] : &y->pairs[x->peer * n + r];
    if (x->kind == TT_ITEM_RUN) {
        y->now[r] += tt_action_cost(y->c, &x->action);
        return true;
    }
    if (x->kind == TT_ITEM_RECV) {
        const size_t k = w->received.n;
        if (w->sent.n <= k)
            return false;
        y->now[r] = TT_MAXV(y->now[r], w->sent.items[k] + (y->n_buffers ? y->c->comm : 0));
        if (!y->n_buffers)
            y->now[r] += y->c->comm;
        tt_vec_push(y->a, &w->received, y->now[r]);
        return true;
    }
    if (y->n_buffers) {
        if (w->sent.n >= w->received.n + (size_t)y->n_buffers)
            return false;
        if (w->sent.n >= (size_t)y->n_buffers)
            y->now[r] = TT_MAXV(y->now[r], w->received.items[w->sent.n - (size_t)y->n_buffers]);
        tt_vec_push(y->a, &w->sent, y->now[r]);
        return true;
    }
    if (!y->posted[r])
        tt_vec_push(y->a, &w->sent, y->now[r]);
    y->posted[r] = w->received.n < w->sent.n;
    if (!y->posted[r])
        y->now[r] = w->received.items[w->sent.n - 1];
    return !y->posted[r];
}

tt_status tt_programs_replay(const tt_programs *p, const tt_costs *c, int n_buffers, tt_arena *a,
                             double *makespan, tt_error *err)
{
    const size_t n = (size_t)p->schedule->n_ranks;
    replay y = {.p = p, .c = c, .n_buffers = n_buffers, .a = a};
    y.pairs = tt_arena_array(a, n * n, sizeof *y.pairs);
    y.at = tt_arena_array(a, n, sizeof *y.at);
    y.posted = tt_arena_array(a, n, sizeof *y.posted);
    y.now = tt_arena_array(a, n, sizeof *y.now);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->schedule->n_ranks; r++)
            for (; y.at[r] < p->n_items[r]; y.at[r]++, moved = true) {
                const bool was = y.posted[r];
                const bool ends = item_ends(&y, r, &p->items[r][y.at[r]]);
                moved = moved || was != y.posted[r];
                if (!ends)
                    break;
            }
    }
    *makespan = 0;
    for (int r = 0; r < p->schedule->n_ranks; r++) {
        if (y.at[r] < p->n_items[r])
            return TT_FAIL(err, TT_EINVAL, "rank %d waits at item %d of %d for ever", r, y.at[r],
                           p->n_items[r]);
        *makespan = TT_MAXV(*makespan, y.now[r]);
    }
    return TT_OK;
}

tt_status tt_programs_bubble(const tt_programs *p, const tt_costs *c, int n_buffers, tt_arena *a,
                             double *bubble, tt_error *err)
{
    const tt_schedule *s = p->schedule;
    double busy = 0, makespan;
    TT_TRY(tt_programs_replay(p, c, n_buffers, a, &makespan, err));
    for (int r = 0; r < s->n_ranks; r++)
        for (int i = 0; i < s->n_actions[r]; i++)
            busy += tt_action_cost(c, &s->actions[r][i]);
    *bubble = makespan > 0 ? 1 - busy / (makespan * s->n_ranks) : 0;
    return TT_OK;
}
