/* SPDX-License-Identifier: Apache-2.0 */
#include "subword.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A trie of bytes. While it grows, its branches are in one hash table; then it becomes a double
 * array (Aoe 1989), in which a step is one access to memory and the children of a node are
 * neighbours. */

/* ---- texts are added ---- */

static size_t branch_at(const hf_tree *t, uint32_t key)
{
    size_t i = (key * 0x9e3779b97f4a7c15u >> 24) & t->mask;
    while (t->branches[i].child && t->branches[i].key != key)
        i = (i + 1) & t->mask;
    return i;
}

static tt_status grow_branches(hf_tree *t, tt_error *err)
{
    hf_branch *old = t->branches;
    const size_t n = old ? t->mask + 1 : 0, size = old ? 2 * n : 1024;
    hf_branch *more = calloc(size, sizeof *more);
    if (!more)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a trie of %zu nodes", t->n_nodes);
    t->branches = more;
    t->mask = size - 1;
    for (size_t i = 0; i < n; i++)
        if (old[i].child)
            more[branch_at(t, old[i].key)] = old[i];
    free(old);
    return TT_OK;
}

static tt_status new_node(hf_tree *t, tt_error *err)
{
    if (t->n_nodes == t->cap_nodes) {
        const size_t cap = 2 * t->cap_nodes + 256;
        int32_t *ids = realloc(t->ids, cap * sizeof *ids);
        if (!ids)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for a trie of %zu nodes", cap);
        t->ids = ids;
        t->cap_nodes = cap;
    }
    if (t->n_nodes >= HF_MOST_NODES)
        return TT_FAIL(err, TT_EFORMAT, "the vocabulary has more than %zu different beginnings",
                       HF_MOST_NODES);
    if (2 * t->n_nodes + 2 > t->mask)
        TT_TRY(grow_branches(t, err));
    t->ids[t->n_nodes++] = -1;
    return TT_OK;
}

tt_status hf_tree_add(hf_tree *t, const uint8_t *s, size_t n, int32_t id, tt_error *err)
{
    uint32_t node = 0;
    if (t->n_nodes == 0)
        TT_TRY(new_node(t, err));
    for (size_t i = 0; i < n; i++) {
        const uint32_t key = node << 8 | s[i];
        uint32_t next = t->branches[branch_at(t, key)].child;
        if (!next) {
            next = (uint32_t)t->n_nodes;
            TT_TRY(new_node(t, err));
            t->branches[branch_at(t, key)] = (hf_branch){key, next};
        }
        node = next;
    }
    t->ids[node] = id;
    return TT_OK;
}

/* ---- the double array ---- */

#define MOST_TRIES 24 /* free units that are tried as a node's first child before new ones are */

typedef struct array {
    hf_unit *units;
    size_t cap, first_free, end; /* end: all units from here on are free */
} array;

static tt_status array_room(array *a, size_t n, tt_error *err)
{
    if (n <= a->cap)
        return TT_OK;
    const size_t cap = n + n / 2 + 1024;
    hf_unit *more = cap < UINT32_MAX ? realloc(a->units, cap * sizeof *more) : NULL;
    if (!more)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a trie of %zu units", cap);
    memset(more + a->cap, 0, (cap - a->cap) * sizeof *more);
    a->units = more;
    a->cap = cap;
    return TT_OK;
}

static bool fits(const array *a, size_t base, const hf_branch *of, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a->units[base + (of[i].key & 255)].parent)
            return false;
    return true;
}

/* A base for n children: one of the first places where all of them are free, or behind all others.
 * Most nodes have one child, which fills what others leave. */
static tt_status find_base(array *a, const hf_branch *of, size_t n, size_t *base, tt_error *err)
{
    const size_t byte = of[0].key & 255;
    TT_TRY(array_room(a, a->end + 512, err));
    int tries = n > 1 ? MOST_TRIES : INT_MAX;
    for (size_t at = a->first_free; at < a->end && tries; at++) {
        if (a->units[at].parent)
            continue;
        if (fits(a, at - byte, of, n)) {
            *base = at - byte;
            return TT_OK;
        }
        tries--;
    }
    *base = a->end;
    return TT_OK;
}

static tt_status place_children(array *a, uint32_t unit, const hf_branch *of, size_t n,
                                const int32_t *ids, uint32_t *unit_of, tt_error *err)
{
    size_t base;
    TT_TRY(find_base(a, of, n, &base, err));
    a->units[unit].base = (uint32_t)base;
    for (size_t i = 0; i < n; i++) {
        const size_t at = base + (of[i].key & 255);
        a->units[at] = (hf_unit){unit + 1, 0, ids[of[i].child]};
        unit_of[of[i].child] = (uint32_t)at;
        a->end = at >= a->end ? at + 1 : a->end;
    }
    while (a->first_free < a->end && a->units[a->first_free].parent)
        a->first_free++;
    return TT_OK;
}

static int by_key(const void *x, const void *y)
{
    const hf_branch *a = x, *b = y;
    return a->key < b->key ? -1 : a->key > b->key;
}

tt_status hf_tree_finish(hf_tree *t, tt_error *err)
{
    array a = {.first_free = 256, .end = 256}; /* so that each base is above 0 */
    size_t n = 0;
    uint32_t *unit_of = calloc(t->n_nodes + 1, sizeof *unit_of);
    tt_status s =
        unit_of ? array_room(&a, 512, err) : TT_FAIL(err, TT_ENOMEM, "out of memory for a trie");
    for (size_t i = 0; s == TT_OK && t->branches && i <= t->mask;
         i++) /* the table becomes a list */
        if (t->branches[i].child)
            t->branches[n++] = t->branches[i];
    if (n)
        qsort(t->branches, n, sizeof *t->branches, by_key);
    if (s == TT_OK)
        a.units[0] = (hf_unit){UINT32_MAX, 0, t->n_nodes ? t->ids[0] : -1};
    for (size_t i = 0, end; s == TT_OK && i < n; i = end) { /* a parent comes before its children */
        const uint32_t node = t->branches[i].key >> 8;
        for (end = i + 1; end < n && t->branches[end].key >> 8 == node;)
            end++;
        s = place_children(&a, unit_of[node], &t->branches[i], end - i, t->ids, unit_of, err);
    }
    free(unit_of);
    const size_t nodes = t->n_nodes;
    hf_tree_release(t);
    t->units = a.units;
    t->n_nodes = nodes;
    return s;
}

void hf_tree_release(hf_tree *t)
{
    free(t->units);
    free(t->branches);
    free(t->ids);
    *t = (hf_tree){0};
}
