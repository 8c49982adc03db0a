/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <stdlib.h>
#include <string.h>

/* Checks that members of a group agree on the boxes that each of them sends and receives in a
 * collective. The check covers each step between two placements, on every rank, with the boxes
 * that core/exec uses. */

typedef struct stepped { /* nodes whose boxes are equal have one key */
    uint64_t key;
    const tt_node *node;
} stepped;

typedef struct boxes { /* of the ranks that differ in the atoms that the step uses */
    const tt_graph *g;
    const tt_node *n;
    tt_atom_list atoms; /* the group's atoms come first, so ranks of one group are n_groups apart */
    int n_ranks, n_groups;
    tt_box *src, *dst;
} boxes;

static uint64_t key_of(const tt_node *n)
{
    const tt_type *t = &n->out[0]->type;
    uint64_t h = tt_hash64(&n->step->src, sizeof n->step->src, (uint64_t)n->step->kind);
    h = tt_hash64(&n->step->dst, sizeof n->step->dst, h);
    h = tt_hash64(&n->step->atoms, sizeof n->step->atoms, h);
    for (int d = 0; d < t->n_dims; d++) {
        const int64_t dim[3] = {t->dims[d].size, t->dims[d].unit, t->dims[d].lines};
        h = tt_hash64(dim, sizeof dim, h);
    }
    return h;
}

static void know(boxes *b, uint16_t *known, const uint16_t *atoms, int n)
{
    for (int i = 0; i < n; i++) {
        const unsigned a = TT_ATOM(atoms[i]);
        if (!(*known >> a & 1))
            b->atoms.atom[b->atoms.n++] = (uint16_t)a;
        *known |= (uint16_t)(1u << a);
    }
}

/* Finds the boxes of these ranks; over all other atoms, boxes are equal. */
static void cut_boxes(boxes *b, tt_arena *a)
{
    const tt_lower_step *s = b->n->step;
    const tt_type *t = &b->n->out[0]->type;
    const tt_mesh *m = b->g->mesh;
    uint16_t known = 0;
    know(b, &known, s->atoms.atom, s->atoms.n);
    for (int d = 0; d < t->n_dims; d++) {
        know(b, &known, s->src.atom[d], s->src.n[d]);
        know(b, &known, s->dst.atom[d], s->dst.n[d]);
    }
    b->n_ranks = tt_mesh_degree(m, &b->atoms);
    b->n_groups = b->n_ranks / tt_mesh_degree(m, &s->atoms);
    b->src = tt_arena_array(a, (size_t)b->n_ranks, sizeof *b->src);
    b->dst = tt_arena_array(a, (size_t)b->n_ranks, sizeof *b->dst);
    for (int r = 0; r < b->n_ranks; r++) {
        int32_t c[TT_MAX_ATOMS] = {0};
        for (int k = b->atoms.n - 1, left = r; k >= 0; k--) {
            c[b->atoms.atom[k]] = left % m->atom_size[b->atoms.atom[k]];
            left /= m->atom_size[b->atoms.atom[k]];
        }
        tt_box_of(m, t->dims, t->n_dims, &s->src, c, &b->src[r]);
        tt_box_of(m, t->dims, t->n_dims, &s->dst, c, &b->dst[r]);
    }
}

static bool equal_boxes(const tt_box *a, const tt_box *b, int n)
{
    for (int d = 0; d < n; d++)
        if (a->begin[d] != b->begin[d] || a->end[d] != b->end[d])
            return false;
    return true;
}

static int64_t shared(const tt_box *a, const tt_box *b, int n)
{
    tt_box both;
    return tt_box_intersect(a, b, n, &both) ? tt_box_numel(&both, n) : 0;
}

static bool inside(const tt_box *a, const tt_box *b, int n)
{
    return !tt_box_numel(a, n) || shared(a, b, n) == tt_box_numel(a, n);
}

/* Are the parts disjoint and together the whole, and do all members have the same whole? */
static bool parts_of(const boxes *b, const tt_box *part, const tt_box *whole, int group)
{
    const int n = b->n->out[0]->type.n_dims;
    int64_t sum = 0;
    for (int r = group; r < b->n_ranks; r += b->n_groups) {
        if (!equal_boxes(&whole[r], &whole[group], n) || !inside(&part[r], &whole[r], n))
            return false;
        sum += tt_box_numel(&part[r], n);
    }
    return sum == tt_box_numel(&whole[group], n);
}

/* Does each member give all that it has, and get all that it needs? */
static bool exchanged(const boxes *b, int group)
{
    const int n = b->n->out[0]->type.n_dims;
    for (int r = group; r < b->n_ranks; r += b->n_groups) {
        int64_t gives = 0, gets = 0;
        for (int q = group; q < b->n_ranks; q += b->n_groups) {
            gives += shared(&b->src[r], &b->dst[q], n);
            gets += shared(&b->src[q], &b->dst[r], n);
        }
        if (gives != tt_box_numel(&b->src[r], n) || gets != tt_box_numel(&b->dst[r], n))
            return false;
    }
    return true;
}

static bool fits(const boxes *b, int group)
{
    const int n = b->n->out[0]->type.n_dims;
    switch (b->n->step->kind) {
    case TT_STEP_ALL_GATHER:
        return parts_of(b, b->src, b->dst, group);
    case TT_STEP_REDUCE_SCATTER:
        return parts_of(b, b->dst, b->src, group);
    case TT_STEP_ALL_REDUCE:
        for (int r = group; r < b->n_ranks; r += b->n_groups)
            if (!equal_boxes(&b->src[r], &b->src[group], n) ||
                !equal_boxes(&b->dst[r], &b->src[group], n))
                return false;
        return true;
    default:
        return exchanged(b, group);
    }
}

static int by_key(const void *x, const void *y)
{
    const stepped *a = x, *b = y;
    return a->key < b->key ? -1 : a->key > b->key;
}

tt_status tt_plan_check_sizes(const tt_graph *g, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    TT_VEC(stepped) all = {0};
    tt_status st = TT_OK;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (!n->step || !tt_plan_communicates(n))
            continue;
        const stepped s = {key_of(n), n};
        tt_vec_push(a, &all, s);
    }
    if (all.n)
        qsort(all.items, all.n, sizeof *all.items, by_key);
    for (size_t i = 0; st == TT_OK && i < all.n; i++) {
        boxes b = {.g = g, .n = all.items[i].node};
        bool good = true;
        if (i && all.items[i].key == all.items[i - 1].key)
            continue;
        cut_boxes(&b, a);
        for (int k = 0; good && k < b.n_groups; k++)
            good = fits(&b, k);
        if (!good)
            st = TT_FAIL(
                err, TT_EINTERNAL,
                "%s %%%d in \"%s\": the boxes that its members send and receive do not match",
                tt_step_kind_name(b.n->step->kind), b.n->out[0]->id, b.n->scope ? b.n->scope : "");
    }
    tt_arena_free(a);
    return st;
}
