/* SPDX-License-Identifier: Apache-2.0 */
#define XXH_INLINE_ALL
#include "internal.h"
#include <xxhash.h>

struct tt_hasher {
    XXH3_state_t *state; /* allocated separately, because it needs 64-byte alignment */
};

uint64_t tt_hash64(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}

/* The canonical (big-endian) form, as xxh128sum prints it. */
static void hex(XXH128_hash_t h, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

void tt_hash128_hex(const void *p, size_t n, char out[33])
{
    hex(XXH3_128bits(p, n), out);
}

tt_hasher *tt_hasher_new(void)
{
    tt_hasher *h = malloc(sizeof *h);
    XXH3_state_t *s = XXH3_createState();
    if (!h || !s)
        tt_out_of_memory(sizeof *h + sizeof *s, "tt_hasher_new");
    XXH3_128bits_reset(s);
    h->state = s;
    return h;
}

void tt_hasher_update(tt_hasher *h, const void *p, size_t n)
{
    if (n)
        XXH3_128bits_update(h->state, p, n);
}

void tt_hasher_hex(tt_hasher *h, char out[33])
{
    hex(XXH3_128bits_digest(h->state), out);
}

void tt_hasher_free(tt_hasher *h)
{
    if (!h)
        return;
    XXH3_freeState(h->state);
    free(h);
}
