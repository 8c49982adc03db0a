/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/mesh.h"
#include <string.h>

/* Lowering turns a redistribute between two placements into collectives and gives their cost. It
 * reduces before it gathers, and reduce-scatters before it all-reduces, so that the all-reduce
 * works on the shard. */

typedef struct lowering {
    const tt_mesh *m;
    const tt_dim *dims;
    int n_dims;
    const tt_placement *from, *to;
    tt_placement cur;
    tt_lower_step *steps;
    int n;
} lowering;

const char *tt_step_kind_name(tt_step_kind k)
{
    static const char *const names[] = {[TT_STEP_ALL_GATHER] = "all_gather",
                                        [TT_STEP_REDUCE_SCATTER] = "reduce_scatter",
                                        [TT_STEP_ALL_REDUCE] = "all_reduce",
                                        [TT_STEP_ALL_TO_ALL] = "all_to_all",
                                        [TT_STEP_SHIFT] = "ring_shift",
                                        [TT_STEP_SLICE] = "slice",
                                        [TT_STEP_MASK] = "mask",
                                        [TT_STEP_JOIN] = "join",
                                        [TT_STEP_SUM] = "sum"};
    return names[k];
}

/* A double, because the product of sizes may overflow int64; exact below 2^53. */
static double padded_numel(const lowering *w, const tt_placement *p)
{
    double n = 1;
    for (int d = 0; d < w->n_dims; d++)
        n *= (double)tt_chunk(w->m, &w->dims[d], p->atom[d], p->n[d]);
    return n;
}

static double step_cost(const lowering *w, tt_step_kind kind, const tt_placement *dst, int degree)
{
    double elements = 0;
    switch (kind) {
    case TT_STEP_ALL_GATHER:
        elements = padded_numel(w, dst);
        break;
    case TT_STEP_ALL_REDUCE:
        elements = 2 * padded_numel(w, &w->cur);
        break;
    case TT_STEP_REDUCE_SCATTER:
    case TT_STEP_ALL_TO_ALL:
        elements = padded_numel(w, &w->cur);
        break;
    case TT_STEP_SHIFT:
        return padded_numel(w, &w->cur);
    case TT_STEP_SLICE:
    case TT_STEP_MASK:
    case TT_STEP_JOIN:
    case TT_STEP_SUM:
        break;
    }
    return elements * (degree - 1) / degree;
}

/* Appends one step from the current placement to dst. No step except a mask adds partial atoms. */
static void go(lowering *w, tt_step_kind kind, const uint16_t *atoms, int n, tt_placement dst)
{
    TT_ASSERT(w->n < TT_MAX_STEPS);
    tt_lower_step *s = &w->steps[w->n++];
    memset(s, 0, sizeof *s);
    if (dst.partial == 0)
        dst.partial_max = 0;
    else if (kind != TT_STEP_SHIFT)
        dst.partial_max = (kind == TT_STEP_MASK ? w->to : w->from)->partial_max;
    s->kind = kind;
    s->atoms.n = (uint8_t)n;
    for (int i = 0; i < n; i++)
        s->atoms.atom[i] = TT_ATOM(atoms[i]);
    s->src = w->cur;
    s->dst = dst;
    s->cost = step_cost(w, kind, &dst, tt_mesh_degree(w->m, &s->atoms));
    w->cur = dst;
}

/* The number of leading atoms that dim d has in common with the target. */
static int prefix(const lowering *w, int d)
{
    int k = 0, n = TT_MIN(w->cur.n[d], w->to->n[d]);
    while (k < n && w->cur.atom[d][k] == w->to->atom[d][k])
        k++;
    return k;
}

static void truncate_dim(tt_placement *p, int d, int n)
{
    memset(&p->atom[d][n], 0, (size_t)(TT_MAX_ATOMS - n) * sizeof p->atom[d][0]);
    p->n[d] = (uint8_t)n;
}

static void append_atoms(tt_placement *p, int d, const uint16_t *atoms, int n)
{
    memcpy(&p->atom[d][p->n[d]], atoms, (size_t)n * sizeof *atoms);
    p->n[d] = (uint8_t)(p->n[d] + n);
}

/* The number of the last atoms of dim i, as many as possible, that are the next ones the target has on
 * dim j. */
static int movable(const lowering *w, int i, int j)
{
    const int at = w->cur.n[j];
    if (i == j || prefix(w, j) != at)
        return 0;
    for (int n = TT_MIN(w->cur.n[i] - prefix(w, i), w->to->n[j] - at); n > 0; n--)
        if (!memcmp(&w->cur.atom[i][w->cur.n[i] - n], &w->to->atom[j][at],
                    (size_t)n * sizeof w->cur.atom[i][0]))
            return n;
    return 0;
}

/* All-to-all: moves the end of a dim's atoms to the end of another dim. Returns whether there was one. */
static bool move_suffixes(lowering *w)
{
    bool any = false;
    for (int i = 0; i < w->n_dims; i++) {
        for (int j = 0; j < w->n_dims; j++) {
            const int n = movable(w, i, j);
            if (!n)
                continue;
            const uint16_t *moved = &w->to->atom[j][w->cur.n[j]];
            tt_placement dst = w->cur;
            truncate_dim(&dst, i, dst.n[i] - n);
            append_atoms(&dst, j, moved, n);
            go(w, TT_STEP_ALL_TO_ALL, moved, n, dst);
            any = true;
        }
    }
    return any;
}

static void gather_suffix(lowering *w, int d)
{
    int keep = prefix(w, d);
    tt_placement src = w->cur, dst = w->cur;
    truncate_dim(&dst, d, keep);
    go(w, TT_STEP_ALL_GATHER, &src.atom[d][keep], src.n[d] - keep, dst);
}

/* Gathers atoms that are in the way of an added cut: those behind the common prefix of the same
 * dim, and those that the target has on another dim. */
static void gather_obstacles(lowering *w)
{
    for (int i = 0; i < w->n_dims; i++) {
        int keep = prefix(w, i);
        unsigned wanted = w->to->partial;
        for (int j = 0; j < w->n_dims; j++) {
            int k = prefix(w, j);
            wanted |= tt_atoms_mask(&w->to->atom[j][k], w->to->n[j] - k);
        }
        unsigned drop = tt_atoms_mask(&w->cur.atom[i][keep], w->cur.n[i] - keep);
        if (drop != 0 && (w->to->n[i] > keep || (drop & wanted) != 0))
            gather_suffix(w, i);
    }
}

/* Adds the target's missing cuts, major first, in runs: a reduce_scatter of partial atoms or a
 * slice of replicated ones. gather_obstacles has left a prefix of the target on every dim that
 * needs one. */
static void add_cuts(lowering *w)
{
    for (int d = 0; d < w->n_dims; d++) {
        while (w->cur.n[d] < w->to->n[d]) {
            const uint16_t *run = &w->to->atom[d][w->cur.n[d]];
            int left = w->to->n[d] - w->cur.n[d], n = 1;
            unsigned partial = w->from->partial >> TT_ATOM(run[0]) & 1u;
            while (n < left && (w->from->partial >> TT_ATOM(run[n]) & 1u) == partial)
                n++;
            tt_placement dst = w->cur;
            append_atoms(&dst, d, run, n);
            dst.partial = (uint16_t)(dst.partial & ~tt_atoms_mask(run, n));
            go(w, partial ? TT_STEP_REDUCE_SCATTER : TT_STEP_SLICE, run, n, dst);
        }
    }
}

static tt_placement unshifted(const tt_placement *p, int n_dims, tt_atom_list *shifted)
{
    tt_placement out = *p;
    for (int d = 0; d < n_dims; d++)
        for (int i = 0; i < p->n[d]; i++) {
            out.atom[d][i] = TT_SHIFTED(p->atom[d][i], 0);
            if (TT_SHIFT(p->atom[d][i]) != 0)
                shifted->atom[shifted->n++] = p->atom[d][i];
        }
    return out;
}

/* If the placements differ only in which rank of a ring holds which part, one shift along the atoms
 * that differ is enough. Returns whether that was so. */
static bool only_shifts(lowering *w)
{
    tt_atom_list none = {0}, moved = {0};
    const tt_placement a = unshifted(w->from, w->n_dims, &none),
                       b = unshifted(w->to, w->n_dims, &none);
    if (!tt_placement_equal(&a, &b))
        return false;
    for (int d = 0; d < w->n_dims; d++)
        for (int i = 0; i < w->from->n[d]; i++)
            if (w->from->atom[d][i] != w->to->atom[d][i])
                moved.atom[moved.n++] = w->from->atom[d][i];
    if (moved.n > 0)
        go(w, TT_STEP_SHIFT, moved.atom, moved.n, *w->to);
    return true;
}

int tt_lower(const tt_mesh *m, const tt_dim *dims, int n_dims, const tt_placement *from,
             const tt_placement *to, tt_lower_step steps[TT_MAX_STEPS])
{
    lowering w = {.m = m,
                  .dims = dims,
                  .n_dims = n_dims,
                  .from = from,
                  .to = to,
                  .cur = *from,
                  .steps = steps};
    if (only_shifts(&w))
        return w.n;
    /* Otherwise undo the shift of `from` first, and apply the shift of `to` last. */
    tt_atom_list shifted = {0}, shifts = {0};
    const tt_placement home = unshifted(from, n_dims, &shifted),
                       goal = unshifted(to, n_dims, &shifts);
    if (shifted.n > 0)
        go(&w, TT_STEP_SHIFT, shifted.atom, shifted.n, home);
    w.from = &home;
    w.to = &goal;
    while (move_suffixes(&w))
        ;
    gather_obstacles(&w);
    add_cuts(&w);
    /* Partial atoms stay if the target has them; if its kind (sum, max) differs, reduce them
     * first. */
    unsigned stay = from->partial_max == to->partial_max ? to->partial : 0;
    unsigned reduce = w.cur.partial & ~stay;
    if (reduce != 0) {
        tt_atom_list atoms = tt_mesh_atoms_by_name(m, (uint16_t)reduce);
        tt_placement dst = w.cur;
        dst.partial = (uint16_t)(dst.partial & ~reduce);
        go(&w, TT_STEP_ALL_REDUCE, atoms.atom, atoms.n, dst);
    }
    for (int d = 0; d < n_dims; d++)
        if (w.cur.n[d] > prefix(&w, d))
            gather_suffix(&w, d);
    unsigned fresh = to->partial & ~(unsigned)w.cur.partial;
    if (fresh != 0) { /* replicated → partial: coordinate 0 keeps the value, others get 0 or -inf */
        tt_atom_list atoms = tt_mesh_atoms_by_name(m, (uint16_t)fresh);
        tt_placement dst = w.cur;
        dst.partial = to->partial;
        go(&w, TT_STEP_MASK, atoms.atom, atoms.n, dst);
    }
    if (shifts.n > 0)
        go(&w, TT_STEP_SHIFT, shifts.atom, shifts.n, *to);
    TT_ASSERT(tt_placement_equal(&w.cur, to));
    return w.n;
}

double tt_lower_cost(const tt_mesh *m, const tt_dim *dims, int n_dims, const tt_placement *from,
                     const tt_placement *to)
{
    tt_lower_step steps[TT_MAX_STEPS];
    double cost = 0;
    int n = tt_lower(m, dims, n_dims, from, to, steps);
    for (int i = 0; i < n; i++)
        cost += steps[i].cost;
    return cost;
}
