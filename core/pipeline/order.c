/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/programs.h"
#include "pipeline/schedule_impl.h"

/* Puts sends, receives and waits into the ranks' programs. */

typedef struct issuer {
    const tt_schedule *s;
    const tt_issue *o;
    tt_arena *a;
    tt_programs *out;
    int *room;
    struct pair { /* directed: messages sent, and how many of them have their receive */
        TT_VEC(tt_action) sent;
        size_t n_received;
    } * pairs; /* [from * n_ranks + to] */
} issuer;

static void order_put(issuer *p, int rank, tt_item_kind kind, tt_action a, int peer)
{
    tt_programs *out = p->out;
    TT_ASSERT(out->n_items[rank] < p->room[rank]);
    out->items[rank][out->n_items[rank]++] = (tt_item){kind, a, peer};
}

static tt_action message(tt_action a)
{
    if (a.kind == TT_ACTION_B)
        a.kind = TT_ACTION_I;
    return a;
}

static bool same(const tt_action *a, const tt_action *b)
{
    return a->kind == b->kind && a->stage == b->stage && a->micro == b->micro;
}

static void receive(issuer *p, int from, int to)
{
    struct pair *x = &p->pairs[from * p->s->n_ranks + to];
    order_put(p, to, TT_ITEM_RECV, x->sent.items[x->n_received++], from);
}

/* Adds a pair's receives, in the order of its sends, up to the wanted one. */
static void receive_until(issuer *p, int from, int to, const tt_action *want)
{
    struct pair *x = &p->pairs[from * p->s->n_ranks + to];
    size_t k = x->n_received;
    while (k < x->sent.n && !same(&x->sent.items[k], want))
        k++;
    for (size_t i = x->n_received; k < x->sent.n && i <= k; i++)
        receive(p, from, to);
}

static void issue(issuer *p, const tt_event *e)
{
    const tt_schedule *s = p->s;
    const int r = e->rank, to = tt_action_to(s, &e->action), n = p->o->n_buffers;
    const int q = to < 0 || s->stage_rank[to] == r ? -1 : s->stage_rank[to];
    struct pair *x = q < 0 ? NULL : &p->pairs[r * s->n_ranks + q];
    tt_action need[2];
    for (int i = tt_action_needs(s, &e->action, need); !p->o->posted && i-- > 0;)
        if (s->stage_rank[need[i].stage] != r)
            receive_until(p, s->stage_rank[need[i].stage], r, &need[i]);
    if (x && p->o->posted && n && x->sent.n >= (size_t)n)
        order_put(p, r, TT_ITEM_WAIT, x->sent.items[x->sent.n - (size_t)n], q);
    order_put(p, r, TT_ITEM_RUN, e->action, -1);
    if (!x)
        return;
    const tt_action m = message(e->action);
    if (!p->o->posted && n && x->sent.n - x->n_received == (size_t)n)
        receive(p, r, q);
    order_put(p, r, TT_ITEM_SEND, m, q);
    tt_vec_push(p->a, &x->sent, m);
    if (p->o->posted || !n)
        receive(p, r, q);
}

/* An upper bound of the number of items: each action, and each message as send, receive and wait.
 */
static void make_room(issuer *p)
{
    const tt_schedule *s = p->s;
    p->room = tt_arena_array(p->a, (size_t)s->n_ranks, sizeof *p->room);
    for (int r = 0; r < s->n_ranks; r++)
        for (int i = 0; i < s->n_actions[r]; i++) {
            const int to = tt_action_to(s, &s->actions[r][i]);
            p->room[r]++;
            if (to < 0 || s->stage_rank[to] == r)
                continue;
            p->room[r] += p->o->posted ? 2 : 1;
            p->room[s->stage_rank[to]]++;
        }
    for (int r = 0; r < s->n_ranks; r++)
        p->out->items[r] = tt_arena_array(p->a, (size_t)p->room[r] + 1, sizeof **p->out->items);
}

tt_programs *tt_programs_make(const tt_schedule *s, const tt_run *run, const tt_issue *o,
                              tt_arena *a)
{
    const size_t n = (size_t)s->n_ranks;
    issuer p = {.s = s, .o = o, .a = a};
    p.out = tt_arena_alloc(a, sizeof *p.out);
    p.out->schedule = s;
    p.out->posted = o->posted;
    p.out->items = tt_arena_array(a, n, sizeof *p.out->items);
    p.out->n_items = tt_arena_array(a, n, sizeof *p.out->n_items);
    p.pairs = tt_arena_array(a, n * n, sizeof *p.pairs);
    make_room(&p);
    for (int i = 0; i < run->n; i++)
        issue(&p, &run->order[i]);
    return p.out;
}

void tt_programs_print(const tt_programs *p, tt_str *out)
{
    static const char *const mark[] = {"", ">", "<", "~"};
    for (int r = 0; r < p->schedule->n_ranks; r++) {
        for (int i = 0; i < p->n_items[r]; i++) {
            const tt_item *x = &p->items[r][i];
            tt_str_printf(out, "%s%s%d%c%d", i ? " " : "", mark[x->kind], x->action.stage,
                          TT_ACTION_LETTERS[x->action.kind], x->action.micro);
            if (x->kind != TT_ITEM_RUN)
                tt_str_printf(out, "@%d", x->peer);
        }
        tt_str_addc(out, '\n');
    }
}
