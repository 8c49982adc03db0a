/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/json_mask.h"
#include <stdlib.h>
#include <string.h>

/* The tokens in the order of their bytes: of two neighbours, what both begin with is tried once. */
typedef struct piece {
    const unsigned char *bytes;
    uint32_t n, shared; /* shared: bytes that it begins with as the one before it does */
    int32_t id;
} piece;

enum { SLOTS = 1024, MOST_KEPT = 512 }; /* SLOTS: a power of two */

typedef struct kept_mask {
    tt_json_text state;
    uint64_t *words; /* NULL: the slot is empty */
} kept_mask;

struct tt_json_masks {
    tt_arena *arena, *kept; /* kept: of the masks */
    piece *pieces;
    size_t n;
    size_t n_words, longest; /* longest: bytes of a token */
    tt_json_text *states;    /* [longest + 1] after so many bytes */
    kept_mask slots[SLOTS];
    int n_kept;
    int64_t made;
};

static int piece_order(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    const int d = memcmp(x->bytes, y->bytes, TT_MIN(x->n, y->n));
    return d ? d : (x->n > y->n) - (x->n < y->n);
}

tt_json_masks *tt_json_masks_new(const tt_tokenizer_vt *vt, void *tokenizer, int64_t n)
{
    char bytes[4096];
    tt_arena *a = tt_arena_new();
    tt_json_masks *m = tt_arena_alloc(a, sizeof *m);
    *m = (tt_json_masks){.arena = a, .kept = tt_arena_new(), .n_words = (size_t)(n + 63) / 64};
    m->pieces = tt_arena_array(a, (size_t)n + 1, sizeof *m->pieces);
    for (int32_t id = 0; id < n; id++) {
        const size_t k = vt->decode(tokenizer, id, bytes, sizeof bytes);
        if (!k ||
            k > sizeof bytes) /* a special token; one that is cut off would be unknown bytes */
            continue;
        piece *p = &m->pieces[m->n++];
        *p = (piece){tt_arena_dup(a, bytes, k), (uint32_t)k, 0, id};
        m->longest = TT_MAXV(m->longest, k);
    }
    qsort(m->pieces, m->n, sizeof *m->pieces, piece_order);
    for (size_t i = 1; i < m->n; i++) {
        piece *p = &m->pieces[i];
        const piece *q = p - 1;
        while (p->shared < p->n && p->shared < q->n && p->bytes[p->shared] == q->bytes[p->shared])
            p->shared++;
    }
    m->states = tt_arena_array(a, m->longest + 1, sizeof *m->states);
    return m;
}

void tt_json_masks_free(tt_json_masks *m)
{
    if (!m)
        return;
    tt_arena_free(m->kept);
    tt_arena_free(m->arena);
}

/* states[k] is known for the first `good` bytes of the token before. */
static void fill(tt_json_masks *m, uint64_t *words)
{
    size_t good = 0;
    for (size_t i = 0; i < m->n; i++) {
        const piece *p = &m->pieces[i];
        if (p->shared > good)
            continue; /* it begins with what may not come */
        for (good = p->shared; good < p->n; good++) {
            m->states[good + 1] = m->states[good];
            if (!tt_json_text_next(&m->states[good + 1], p->bytes[good]))
                break;
        }
        if (good == p->n)
            words[p->id / 64] |= (uint64_t)1 << (p->id % 64);
    }
}

const uint64_t *tt_json_masks_get(tt_json_masks *m, const tt_json_text *t)
{
    const tt_json_text s = *t;
    size_t at = (size_t)tt_hash64(&s, sizeof s, 0) & (SLOTS - 1);
    while (m->slots[at].words && memcmp(&m->slots[at].state, &s, sizeof s) != 0)
        at = (at + 1) & (SLOTS - 1);
    if (m->slots[at].words)
        return m->slots[at].words;
    if (m->n_kept == MOST_KEPT) {
        tt_arena_free(m->kept);
        m->kept = tt_arena_new();
        memset(m->slots, 0, sizeof m->slots);
        m->n_kept = 0;
        at = (size_t)tt_hash64(&s, sizeof s, 0) & (SLOTS - 1);
    }
    uint64_t *words = tt_arena_array(m->kept, m->n_words + 1, sizeof *words);
    m->states[0] = s;
    fill(m, words);
    m->slots[at] = (kept_mask){s, words};
    m->n_kept++;
    m->made++;
    return words;
}

int64_t tt_json_masks_made(const tt_json_masks *m)
{
    return m->made;
}
