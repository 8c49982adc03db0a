/* SPDX-License-Identifier: Apache-2.0 */
#include "hf.h"
#include <stdlib.h>

/* Added tokens: a trie of their bytes, which finds the leftmost and longest match. */

static uint32_t child_of(const hf_trie *t, uint32_t node, uint8_t byte)
{
    if (node == 0)
        return t->first[byte];
    uint32_t c = t->nodes[node].child;
    while (c && t->nodes[c].byte != byte)
        c = t->nodes[c].sibling;
    return c;
}

tt_status hf_trie_new(const hf_added *added, size_t n, bool normalized, hf_trie *out, tt_error *err)
{
    size_t total = 1;
    for (size_t i = 0; i < n; i++)
        if (added[i].normalized == normalized)
            total += added[i].sought.n;
    if (total == 1)
        return TT_OK;
    hf_trie t = {.nodes =
                     total < UINT32_MAX / sizeof *t.nodes ? calloc(total, sizeof *t.nodes) : NULL,
                 .n_nodes = 1};
    if (!t.nodes)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu added tokens", n);
    t.nodes[0].added = -1;
    for (size_t i = 0; i < n; i++) {
        uint32_t node = 0;
        if (added[i].normalized != normalized)
            continue;
        for (size_t k = 0; k < added[i].sought.n; k++) {
            const uint8_t byte = added[i].sought.s[k];
            uint32_t next = child_of(&t, node, byte);
            if (!next) {
                next = (uint32_t)t.n_nodes++;
                t.nodes[next] = (hf_trie_node){.added = -1, .byte = byte};
                if (node == 0) {
                    t.first[byte] = next;
                } else {
                    t.nodes[next].sibling = t.nodes[node].child;
                    t.nodes[node].child = next;
                }
            }
            node = next;
        }
        if (t.nodes[node].added < 0)
            t.nodes[node].added = (int32_t)i;
    }
    *out = t;
    return TT_OK;
}

/* The longest token that begins at s[i]: its end, or 0. */
static size_t longest(const hf_trie *t, const uint8_t *s, size_t n, size_t i, int32_t *which)
{
    size_t end = 0;
    uint32_t node = 0;
    while (i < n && (node = child_of(t, node, s[i]))) {
        i++;
        if (t->nodes[node].added >= 0) {
            *which = t->nodes[node].added;
            end = i;
        }
    }
    return end;
}

/* The beginning of the code point that ends at i > 0. */
static size_t back(const uint8_t *s, size_t i)
{
    do
        i--;
    while (i > 0 && (s[i] & 0xc0) == 0x80);
    return i;
}

static unsigned flags_at(const hf_tokenizer *t, const uint8_t *s, size_t i)
{
    unsigned k;
    return t->flags[hf_decode(s + i, &k)];
}

static bool whole_word(const hf_tokenizer *t, const uint8_t *s, size_t n, size_t begin, size_t end)
{
    return (begin == 0 || !(flags_at(t, s, back(s, begin)) & HF_WORD)) &&
           (end == n || !(flags_at(t, s, end) & HF_WORD));
}

void hf_added_find(const hf_tokenizer *t, const hf_trie *trie, const uint8_t *s, size_t n,
                   size_t from, size_t *search, size_t *begin, size_t *end, int32_t *which)
{
    *begin = *end = n;
    *which = -1;
    for (size_t i = *search; trie->n_nodes > 1 && i < n;) {
        int32_t found = -1;
        size_t first = i, stop = trie->first[s[i]] ? longest(trie, s, n, i, &found) : 0;
        if (!stop) {
            i++;
            continue;
        }
        const hf_added *a = &t->added[found];
        /* A match that does not count still occupies its place: no other token is searched within
         * it. */
        if ((a->special && !t->allow_special) ||
            (a->single_word && !whole_word(t, s, n, first, stop))) {
            i = stop;
            continue;
        }
        *search = stop;
        while (a->lstrip && first > from && (flags_at(t, s, back(s, first)) & HF_SPACE))
            first = back(s, first);
        while (a->rstrip && stop < n && (flags_at(t, s, stop) & HF_SPACE)) {
            unsigned k;
            hf_decode(s + stop, &k);
            stop += k;
        }
        *begin = a->lstrip && first < from ? from : first;
        *end = stop;
        *which = found;
        return;
    }
}
