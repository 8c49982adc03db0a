/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/offload.h"
#include "passes/recompute_impl.h"
#include <stdlib.h>

/* The states that the levels of a block go through. Without offload these are its recipes. Together with
 * it, a state is a recipe and how much of what it keeps waits in host memory. In each direction copies
 * take time on the link. As long as that is no more than the block computes meanwhile, they cost nothing;
 * beyond that they cost the time by which they are longer. Of all pairs, the corners of the lower convex
 * hull of (bytes on the device, time) are the states. What is best for a price of a byte is therefore
 * among them, whether a value is kept, computed again or offloaded. */

typedef struct tt_points {
    tt_arena *a;
    const tt_recompute_opts *o;
    tt_block_cut *c;
    double
        passing; /* the part of an offloaded byte that the device holds at the peak, because it is on
                       its way */
    int64_t room; /* bytes of host memory that the block may take */
    TT_VEC(tt_block_state) all;
} tt_points;

static double copy_seconds(const tt_machine *m, int64_t bytes)
{
    return m->op_latency + (m->host_bandwidth > 0 ? (double)bytes / m->host_bandwidth : 0);
}

/* moved: bytes whose copies take t seconds in each direction. */
static void add_state(tt_points *p, int recipe, int64_t moved, double t, tt_offload_share share)
{
    const tt_recipe *r = &p->c->recipes[recipe];
    const double late =
        TT_MAXV(t - p->c->forward, 0.0) + TT_MAXV(t - p->c->backward - r->cost, 0.0);
    const tt_block_state s = {.recipe = recipe,
                              .share = share,
                              .bytes = (double)r->bytes - (1 - p->passing) * (double)moved,
                              .cost = r->cost + (share.late ? late : 0)};
    tt_vec_push(p->a, &p->all, s);
}

/* Takes the values whose copies hide, the largest first. Returns their bytes; t: the time of their copies in one
 * direction; taken: by value; NULL: not asked for. */
static int64_t take_hidden(const tt_points *p, const tt_recipe *r, double *t, bool *taken)
{
    const double most = TT_MIN(p->c->forward, p->c->backward + r->cost);
    int64_t moved = 0;
    *t = 0;
    for (int k = 0; k < r->n_kept; k++) {
        const double s = copy_seconds(p->o->machine, r->kept[k]);
        if (*t + s > most || r->kept[k] > p->room - moved ||
            !tt_offload_worth(p->o->machine, r->kept[k]))
            continue;
        moved += r->kept[k];
        *t += s;
        if (taken)
            taken[k] = true;
    }
    return moved;
}

/* All pairs of a recipe with copies. */
static void add_pairs(tt_points *p, int recipe)
{
    const tt_recipe *r = &p->c->recipes[recipe];
    bool *taken = tt_arena_array(p->a, (size_t)r->n_kept + 1, sizeof *taken);
    double t;
    int64_t moved = take_hidden(p, r, &t, taken);
    add_state(p, recipe, 0, 0, (tt_offload_share){0});
    if (moved)
        add_state(p, recipe, moved, t, (tt_offload_share){.bytes = p->room});
    for (int k = 0; k < r->n_kept; k++) {
        if (taken[k] || r->kept[k] < TT_OFFLOAD_LEAST_BYTES || r->kept[k] > p->room - moved)
            continue;
        moved += r->kept[k];
        t += copy_seconds(p->o->machine, r->kept[k]);
        add_state(p, recipe, moved, t, (tt_offload_share){.bytes = moved, .late = true});
    }
}

static int most_bytes_first(const void *a, const void *b)
{
    const tt_block_state *x = a, *y = b;
    if (x->bytes < y->bytes || x->bytes > y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->cost < y->cost || x->cost > y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->recipe != y->recipe
               ? x->recipe - y->recipe
               : (x->share.bytes > y->share.bytes) - (x->share.bytes < y->share.bytes);
}

static double slope_of(const tt_block_state *x, const tt_block_state *y)
{
    return (y->cost - x->cost) / (x->bytes - y->bytes);
}

/* Keeps the corners of the lower convex hull, from keeping all to keeping least. */
static void find_hull(tt_points *p)
{
    tt_block_cut *c = p->c;
    qsort(p->all.items, p->all.n, sizeof *p->all.items, most_bytes_first);
    c->states = tt_arena_array(p->a, p->all.n + 1, sizeof *c->states);
    c->n_states = 0;
    for (size_t i = 0; i < p->all.n; i++) {
        const tt_block_state *y = &p->all.items[i];
        tt_block_state *s = c->states;
        int n = c->n_states;
        if (n && s[n - 1].bytes - y->bytes < 1)
            continue;
        while (n > 1 && slope_of(&s[n - 2], y) <= slope_of(&s[n - 2], &s[n - 1]))
            n--;
        s[n] = *y;
        c->n_states = n + 1;
    }
}

/* The recipes, each with the same share. */
static void use_recipes(tt_points *p, tt_offload_share share)
{
    tt_block_cut *c = p->c;
    c->states = tt_arena_array(p->a, (size_t)c->n_recipes + 1, sizeof *c->states);
    c->n_states = c->n_recipes;
    for (int k = 0; k < c->n_recipes; k++)
        c->states[k] = (tt_block_state){.recipe = k,
                                        .share = share,
                                        .bytes = (double)c->recipes[k].bytes,
                                        .cost = c->recipes[k].cost};
}

/* Gives the blocks of a stage their part of what the job allows in host memory: first for copies that
 * hide, then for the others; each time the oldest blocks first. */
static void share_room(tt_points *p, tt_block_cut *all, int n, int stage, int last)
{
    int64_t left = p->o->cut->most_bytes > 0 ? p->o->cut->most_bytes : INT64_MAX / 2;
    for (int hidden = 1; hidden >= 0; hidden--)
        for (int i = 0; i < n; i++) {
            double t;
            if (all[i].stage != stage || i == last)
                continue;
            p->c = &all[i];
            p->room = INT64_MAX / 2;
            const int64_t wanted = hidden ? take_hidden(p, &all[i].recipes[0], &t, NULL)
                                          : all[i].recipes[0].bytes - all[i].room;
            const int64_t got = TT_MIN(wanted, left);
            all[i].room += got;
            left -= got;
        }
}

static void find_stage(tt_points *p, tt_block_cut *all, int n, int stage, tt_cut_way way)
{
    const tt_recompute_cut *cut = p->o->cut;
    int last = -1, blocks = 0;
    for (int i = 0; i < n; i++)
        if (all[i].stage == stage) {
            last = i; /* nothing would hide its copies */
            blocks++;
        }
    if (way == TT_CUT_JOINT)
        share_room(p, all, n, stage, last);
    const double flights = TT_MAXV(cut->in_flight[stage], 1);
    p->passing = TT_MIN((1.0 + cut->ahead) / TT_MAXV(blocks, 1), 1.0) / flights;
    for (int i = 0; i < n; i++) {
        if (all[i].stage != stage)
            continue;
        p->c = &all[i];
        p->room = all[i].room;
        p->all.n = 0;
        if (way != TT_CUT_JOINT || i == last) {
            const bool moves = i != last && (way == TT_CUT_HIDDEN || way == TT_CUT_MOVED);
            use_recipes(
                p, (tt_offload_share){.bytes = moves ? INT64_MAX : 0, .late = way == TT_CUT_MOVED});
            continue;
        }
        for (int k = 0; k < p->c->n_recipes; k++)
            add_pairs(p, k);
        find_hull(p);
    }
}

void tt_block_states_find(tt_arena *a, const tt_recompute_opts *o, int rank, tt_block_cut *all,
                          int n)
{
    tt_points p = {.a = a, .o = o};
    const tt_cut_way way = o->cut->way ? (tt_cut_way)o->cut->way[rank] : TT_CUT_STAYS;
    for (int i = 0; i < n; i++) /* stages in the order of their first blocks */
        if (o->cut->stage_rank[all[i].stage] == rank && (!i || all[i].stage != all[i - 1].stage))
            find_stage(&p, all, n, all[i].stage, way);
}
