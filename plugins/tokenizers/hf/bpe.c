/* SPDX-License-Identifier: Apache-2.0 */
#include "hf.h"
#include <stdlib.h>
#include <string.h>

/* Merging: again and again the pair of lowest rank, the leftmost of equals. Short words by looking
 * at all pairs, long ones (a megabyte of spaces is one word) with a heap. */

static uint32_t rank_of(const hf_vocab *v, uint32_t left, uint32_t right, uint32_t *id)
{
    const hf_slot *s = hf_merges_get(v, left, right);
    *id = s ? s->id : 0;
    return s ? s->rank : UINT32_MAX;
}

size_t hf_bpe_short(const hf_vocab *v, const uint8_t *s, size_t n, uint32_t *ids)
{
    uint32_t ranks[HF_SHORT_WORD], merged[HF_SHORT_WORD]; /* of the pair that begins here */
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)v->byte_ids[s[i]];
    for (size_t i = 0; i + 1 < n; i++)
        ranks[i] = rank_of(v, ids[i], ids[i + 1], &merged[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == UINT32_MAX)
            break;
        ids[best] = merged[best];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i - 1] = ranks[i];
            merged[i - 1] = merged[i];
        }
        if (best > 0)
            ranks[best - 1] = rank_of(v, ids[best - 1], ids[best], &merged[best - 1]);
        if (best + 1 < n)
            ranks[best] = rank_of(v, ids[best], ids[best + 1], &merged[best]);
    }
    return n;
}

#define NONE UINT32_MAX

static tt_status room(hf_bpe_room *r, size_t n, tt_error *err)
{
    if (n <= r->cap)
        return TT_OK;
    hf_bpe_room_release(r);
    r->ids = malloc(n * sizeof *r->ids);
    r->next = malloc(n * sizeof *r->next);
    r->prev = malloc(n * sizeof *r->prev);
    if (!r->ids || !r->next || !r->prev) {
        hf_bpe_room_release(r);
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a word of %zu bytes", n);
    }
    r->cap = n;
    return TT_OK;
}

void hf_bpe_room_release(hf_bpe_room *r)
{
    free(r->ids);
    free(r->next);
    free(r->prev);
    free(r->heap);
    *r = (hf_bpe_room){0};
}

/* The pair at `left`, where it merges, into the heap: rank, then place. */
static tt_status push(const hf_vocab *v, hf_bpe_room *r, uint32_t left, tt_error *err)
{
    uint32_t id;
    const uint32_t right = r->next[left];
    const uint32_t rank = right == NONE ? NONE : rank_of(v, r->ids[left], r->ids[right], &id);
    if (rank == NONE)
        return TT_OK;
    if (r->n_heap == r->cap_heap) {
        const size_t cap = r->cap_heap + r->cap_heap / 2 + 256;
        uint64_t *heap = realloc(r->heap, cap * sizeof *heap);
        if (!heap)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for a word of %zu bytes", r->cap);
        r->heap = heap;
        r->cap_heap = cap;
    }
    const uint64_t key = (uint64_t)rank << 32 | left;
    size_t i = r->n_heap++;
    for (; i > 0 && r->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = key;
    return TT_OK;
}

static uint64_t pop(hf_bpe_room *r)
{
    const uint64_t top = r->heap[0], last = r->heap[--r->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < r->n_heap; i = child) {
        if (child + 1 < r->n_heap && r->heap[child + 1] < r->heap[child])
            child++;
        if (r->heap[child] >= last)
            break;
        r->heap[i] = r->heap[child];
    }
    if (r->n_heap)
        r->heap[i] = last;
    return top;
}

tt_status hf_bpe_long(const hf_vocab *v, hf_bpe_room *r, const uint8_t *s, size_t n, tt_ids *out,
                      tt_error *err)
{
    if (n >= INT32_MAX)
        return TT_FAIL(err, TT_EINVAL,
                       "a word of %zu bytes is too long to tokenize; split the text", n);
    TT_TRY(room(r, n, err));
    r->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        r->ids[i] = (uint32_t)v->byte_ids[s[i]];
        r->prev[i] = i ? (uint32_t)i - 1 : NONE;
        r->next[i] = i + 1 < n ? (uint32_t)i + 1 : NONE;
    }
    for (size_t i = 0; i < n; i++)
        TT_TRY(push(v, r, (uint32_t)i, err));
    while (r->n_heap) {
        const uint64_t top = pop(r);
        const uint32_t left = (uint32_t)top, right = r->ids[left] == NONE ? NONE : r->next[left];
        uint32_t id;
        if (right == NONE || rank_of(v, r->ids[left], r->ids[right], &id) != top >> 32)
            continue; /* one of the two has merged since */
        r->ids[left] = id;
        r->ids[right] = NONE;
        r->next[left] = r->next[right];
        if (r->next[left] != NONE)
            r->prev[r->next[left]] = left;
        TT_TRY(push(v, r, left, err));
        if (r->prev[left] != NONE)
            TT_TRY(push(v, r, r->prev[left], err));
    }
    for (uint32_t i = 0; i != NONE; i = r->next[i])
        TT_TRY(tt_ids_push(out, (int32_t)r->ids[i], err));
    return TT_OK;
}
