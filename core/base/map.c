/* SPDX-License-Identifier: Apache-2.0 */
#include "base.h"
#include <string.h>

typedef struct entry {
    const char *key;
    void *value;
    uint64_t hash;
} entry;

struct tt_map {
    tt_arena *arena;
    TT_VEC(entry) entries; /* in order of insertion */
    uint32_t *slots;       /* open addressing: index + 1 into entries, 0 = free */
    size_t n_slots;        /* a power of two, at least twice the entries */
};

tt_map *tt_map_new(tt_arena *a)
{
    tt_map *m = tt_arena_alloc(a, sizeof *m);
    m->arena = a;
    m->n_slots = 16;
    m->slots = tt_arena_array(a, m->n_slots, sizeof *m->slots);
    return m;
}

/* The slot that holds key, or the free slot where it would be inserted. */
static uint32_t *find_slot(const tt_map *m, const char *key, uint64_t hash)
{
    for (size_t i = hash & (m->n_slots - 1);; i = (i + 1) & (m->n_slots - 1)) {
        uint32_t *slot = &m->slots[i];
        if (!*slot)
            return slot;
        const entry *e = &m->entries.items[*slot - 1];
        if (e->hash == hash && strcmp(e->key, key) == 0)
            return slot;
    }
}

static void grow_slots(tt_map *m)
{
    m->n_slots *= 4;
    m->slots = tt_arena_array(m->arena, m->n_slots, sizeof *m->slots);
    for (size_t i = 0; i < m->entries.n; i++)
        *find_slot(m, m->entries.items[i].key, m->entries.items[i].hash) = (uint32_t)(i + 1);
}

void tt_map_set(tt_map *m, const char *key, void *value)
{
    uint64_t hash = tt_hash64(key, strlen(key), 0);
    uint32_t *slot = find_slot(m, key, hash);
    if (*slot) {
        m->entries.items[*slot - 1].value = value;
        return;
    }
    TT_ASSERT(m->entries.n < UINT32_MAX / 2);
    if (m->entries.n + 1 > m->n_slots / 2) {
        grow_slots(m);
        slot = find_slot(m, key, hash);
    }
    entry e = {tt_arena_str(m->arena, key), value, hash};
    tt_vec_push(m->arena, &m->entries, e);
    *slot = (uint32_t)m->entries.n;
}

void *tt_map_get(const tt_map *m, const char *key)
{
    uint32_t *slot = find_slot(m, key, tt_hash64(key, strlen(key), 0));
    return *slot ? m->entries.items[*slot - 1].value : NULL;
}

size_t tt_map_size(const tt_map *m)
{
    return m->entries.n;
}

const char *tt_map_key(const tt_map *m, size_t i)
{
    TT_ASSERT(i < m->entries.n);
    return m->entries.items[i].key;
}

void *tt_map_value(const tt_map *m, size_t i)
{
    TT_ASSERT(i < m->entries.n);
    return m->entries.items[i].value;
}
