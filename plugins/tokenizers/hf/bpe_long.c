/* SPDX-License-Identifier: Apache-2.0 */
#include "hf.h"
#include <stdlib.h>
#include <string.h>

/* Long words. Up to HF_HEAP_WORD bytes it uses a heap of pairs. For longer words (20 MB of spaces,
 * say) a heap would miss the cache at every step. But a merge hardly ever creates a pair of lower
 * rank than its own, so the ranks are processed in order, each with a list of the places where its
 * pair begins. */

#define NONE UINT32_MAX

static tt_status grow(uint32_t **array, size_t n, tt_error *err)
{
    free(*array);
    *array = malloc(n * sizeof **array);
    return *array ? TT_OK
                  : TT_FAIL(err, TT_ENOMEM, "out of memory to tokenize a word of %zu bytes", n);
}

tt_status hf_bpe_reserve(hf_bpe_room *r, size_t n, tt_error *err)
{
    if (n >= INT32_MAX)
        return TT_FAIL(err, TT_EINVAL,
                       "a word of %zu bytes is too long to tokenize; split the text", n);
    if (n <= r->cap)
        return TT_OK;
    r->cap = 0;
    TT_TRY(grow(&r->ids, n, err));
    TT_TRY(grow(&r->next, n, err));
    TT_TRY(grow(&r->prev, n, err));
    r->cap = n;
    return TT_OK;
}

void hf_bpe_room_release(hf_bpe_room *r)
{
    free(r->ids);
    free(r->next);
    free(r->prev);
    free(r->rank);
    free(r->after);
    free(r->before);
    free(r->first);
    free(r->heap);
    *r = (hf_bpe_room){0};
}

/* Links each id to its neighbours. */
static void lay_out(hf_bpe_room *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        r->prev[i] = i ? (uint32_t)i - 1 : NONE;
        r->next[i] = i + 1 < n ? (uint32_t)i + 1 : NONE;
    }
}

/* Replaces the token at `left` and the next one by id; returns the place of the one that was
 * removed. */
static uint32_t bpe_join(hf_bpe_room *r, uint32_t left, uint32_t id)
{
    const uint32_t right = r->next[left], after = r->next[right];
    r->ids[left] = id;
    r->ids[right] = NONE;
    r->next[left] = after;
    if (after != NONE)
        r->prev[after] = left;
    return right;
}

static uint32_t rank_at(const hf_vocab *v, const hf_bpe_room *r, uint32_t left, uint32_t *id)
{
    const uint32_t right = r->ids[left] == NONE ? NONE : r->next[left];
    *id = 0;
    return right == NONE ? NONE : hf_rank_of(v, r->ids[left], r->ids[right], id);
}

/* ---- the heap ---- */

/* If the pair at `left` merges, pushes its rank and place onto the heap. */
static tt_status bpe_push(const hf_vocab *v, hf_bpe_room *r, uint32_t left, tt_error *err)
{
    uint32_t id;
    const uint32_t rank = rank_at(v, r, left, &id);
    if (rank == NONE)
        return TT_OK;
    if (r->n_heap == r->cap_heap) {
        const size_t cap = r->cap_heap + r->cap_heap / 2 + 256;
        uint64_t *heap = realloc(r->heap, cap * sizeof *heap);
        if (!heap)
            return TT_FAIL(err, TT_ENOMEM, "out of memory to tokenize a word of %zu bytes", r->cap);
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

static tt_status merge_by_heap(const hf_vocab *v, hf_bpe_room *r, size_t n, tt_error *err)
{
    r->n_heap = 0;
    for (size_t i = 0; i < n; i++)
        TT_TRY(bpe_push(v, r, (uint32_t)i, err));
    while (r->n_heap) {
        const uint64_t top = pop(r);
        const uint32_t left = (uint32_t)top;
        uint32_t id;
        if (rank_at(v, r, left, &id) != top >> 32)
            continue; /* one of the two tokens was merged in the meantime */
        bpe_join(r, left, id);
        TT_TRY(bpe_push(v, r, left, err));
        if (r->prev[left] != NONE)
            TT_TRY(bpe_push(v, r, r->prev[left], err));
    }
    return TT_OK;
}

/* ---- the lists ---- */

static tt_status list_room(const hf_vocab *v, hf_bpe_room *r, size_t n, tt_error *err)
{
    if (!r->first || r->n_first != v->n_ranks) {
        TT_TRY(grow(&r->first, v->n_ranks, err));
        memset(r->first, 0xff, v->n_ranks * sizeof *r->first);
        r->n_first = v->n_ranks;
    }
    if (n <= r->cap_lists)
        return TT_OK;
    r->cap_lists = 0;
    TT_TRY(grow(&r->rank, n, err));
    TT_TRY(grow(&r->after, n, err));
    TT_TRY(grow(&r->before, n, err));
    r->cap_lists = n;
    return TT_OK;
}

/* Adds a place to its pair's list; a place is in at most one list. */
static void enlist(const hf_vocab *v, hf_bpe_room *r, uint32_t place)
{
    uint32_t id;
    const uint32_t rank = rank_at(v, r, place, &id);
    r->rank[place] = rank;
    if (rank == NONE)
        return;
    r->before[place] = NONE;
    r->after[place] = r->first[rank];
    if (r->first[rank] != NONE)
        r->before[r->first[rank]] = place;
    r->first[rank] = place;
}

static void strike(hf_bpe_room *r, uint32_t place)
{
    if (place == NONE || r->rank[place] == NONE)
        return;
    const uint32_t before = r->before[place], after = r->after[place];
    if (before == NONE)
        r->first[r->rank[place]] = after;
    else
        r->after[before] = after;
    if (after != NONE)
        r->before[after] = before;
    r->rank[place] = NONE;
}

static int by_place(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Copies the list of a rank into r->heap, in ascending order. Lists grow at the head, mostly with
 * ascending places. */
static tt_status take_list(hf_bpe_room *r, uint32_t rank, tt_error *err)
{
    size_t n = 0;
    bool sorted = true;
    for (uint32_t i = r->first[rank]; i != NONE; i = r->after[i])
        n++;
    if (n > r->cap_heap) {
        free(r->heap);
        r->heap = malloc(n * sizeof *r->heap);
        r->cap_heap = r->heap ? n : 0;
        if (!r->heap)
            return TT_FAIL(err, TT_ENOMEM, "out of memory to tokenize a word of %zu bytes", r->cap);
    }
    r->n_heap = n;
    for (uint32_t i = r->first[rank]; i != NONE; i = r->after[i]) {
        r->heap[--n] = i;
        sorted = sorted && (n + 1 == r->n_heap || r->heap[n] < r->heap[n + 1]);
    }
    if (!sorted)
        qsort(r->heap, r->n_heap, sizeof *r->heap, by_place);
    return TT_OK;
}

/* Merges at `left` and updates the pairs around it; returns the lowest rank of the new pairs. */
static uint32_t merge_at(const hf_vocab *v, hf_bpe_room *r, uint32_t left)
{
    const uint32_t before = r->prev[left];
    uint32_t id;
    rank_at(v, r, left, &id);
    strike(r, before);
    strike(r, left);
    strike(r, r->next[left]);
    bpe_join(r, left, id);
    enlist(v, r, left);
    if (before == NONE)
        return r->rank[left];
    enlist(v, r, before);
    return r->rank[before] < r->rank[left] ? r->rank[before] : r->rank[left];
}

/* A vocabulary may be such that merges often create pairs of lower rank; after too many returns to
 * lower ranks the heap takes over. */
static tt_status merge_by_rank(const hf_vocab *v, hf_bpe_room *r, size_t n, tt_error *err)
{
    int returns = 1000;
    for (size_t i = 0; i < n; i++)
        enlist(v, r, (uint32_t)i);
    for (uint32_t rank = 0, next; rank < v->n_ranks; rank = next) {
        next = rank + 1;
        if (r->first[rank] == NONE)
            continue;
        TT_TRY(take_list(r, rank, err));
        for (size_t k = 0; k < r->n_heap && next > rank; k++) {
            const uint32_t left = (uint32_t)r->heap[k];
            if (r->rank[left] != rank)
                continue; /* the previous merge changed this pair */
            const uint32_t made = merge_at(v, r, left);
            next = made < next ? made : next;
        }
        if (next <= rank && --returns == 0) {
            memset(r->first, 0xff, r->n_first * sizeof *r->first);
            return merge_by_heap(v, r, n, err);
        }
    }
    return TT_OK;
}

tt_status hf_bpe_long(const hf_vocab *v, hf_bpe_room *r, size_t n, tt_error *err)
{
    const bool lists = n > HF_HEAP_WORD && v->n_ranks > 0;
    if (lists)
        TT_TRY(list_room(v, r, n, err));
    lay_out(r, n);
    const tt_status status = lists ? merge_by_rank(v, r, n, err) : merge_by_heap(v, r, n, err);
    if (status != TT_OK)
        hf_bpe_room_release(r); /* an error may leave the lists half changed */
    return status;
}
