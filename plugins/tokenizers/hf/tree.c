/* SPDX-License-Identifier: Apache-2.0 */
#include "subword.h"
#include <stdlib.h>
#include <string.h>

/* A trie of bytes whose branches are in one hash table. */

static tt_status grow_branches(hf_tree *t, tt_error *err)
{
    const size_t size = t->branches ? 2 * (t->mask + 1) : 1024;
    hf_branch *more = calloc(size, sizeof *more);
    if (!more)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a trie of %zu nodes", t->n_nodes);
    for (size_t i = 0; t->branches && i <= t->mask; i++) {
        const hf_branch *b = &t->branches[i];
        size_t k = (b->key * 0x9e3779b97f4a7c15u >> 24) & (size - 1);
        if (!b->child)
            continue;
        while (more[k].child)
            k = (k + 1) & (size - 1);
        more[k] = *b;
    }
    free(t->branches);
    t->branches = more;
    t->mask = size - 1;
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

static tt_status step(hf_tree *t, uint32_t *node, uint8_t byte, tt_error *err)
{
    uint32_t next = hf_tree_next(t, *node, byte);
    if (!next) {
        next = (uint32_t)t->n_nodes;
        TT_TRY(new_node(t, err));
        if (*node == 0) {
            t->first[byte] = next;
        } else {
            const uint32_t key = *node << 8 | byte;
            size_t i = (key * 0x9e3779b97f4a7c15u >> 24) & t->mask;
            while (t->branches[i].child)
                i = (i + 1) & t->mask;
            t->branches[i] = (hf_branch){key, next};
        }
    }
    *node = next;
    return TT_OK;
}

tt_status hf_tree_add(hf_tree *t, const uint8_t *s, size_t n, int32_t id, tt_error *err)
{
    uint32_t node = 0;
    if (t->n_nodes == 0)
        TT_TRY(new_node(t, err));
    for (size_t i = 0; i < n; i++)
        TT_TRY(step(t, &node, s[i], err));
    t->ids[node] = id;
    return TT_OK;
}

void hf_tree_release(hf_tree *t)
{
    free(t->branches);
    free(t->ids);
    *t = (hf_tree){0};
}
