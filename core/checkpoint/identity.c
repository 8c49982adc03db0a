/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <string.h>

/* What tells the weights of a folder from others without reading them: names, dtypes, shapes and sizes of all tensors,
 * and SAMPLES times SAMPLE_BYTES of each, spread evenly from its first byte to its last. Every kind of training changes
 * nearly all elements of a tensor, so these show it; one row among thousands that somebody changed by hand they may
 * miss. It is a sum over tensors: in which files they lie, and in which order, does not matter. The hash of all bytes
 * would find that row, too, but no rank has them: a rank loads its boxes alone, so one would have to read each file once
 * more, and a resume compares before it loads, to choose the folder. */

#define SAMPLED 1024 /* tensors; of more, about so many are sampled: each costs a page of a file */
#define SAMPLES 8
#define SAMPLE_BYTES ((size_t)64)

static void hash_samples(tt_hasher *h, const tt_st_tensor *t)
{
    const uint8_t *p = t->data;
    const size_t n = TT_MIN(SAMPLE_BYTES, t->bytes);
    for (size_t i = 0; i < SAMPLES; i++)
        tt_hasher_update(h, p + (t->bytes - n) / (SAMPLES - 1) * i, n);
}

static uint64_t hash_shard(const tt_shard *s, const char *name, bool sampled)
{
    char text[512], hex[33];
    tt_hasher *h = tt_hasher_new();
    const tt_st_tensor *t = s->tensor;
    int n = snprintf(text, sizeof text, "%s %zu", t->dtype_name, t->bytes);
    for (int d = 0; d < t->n_dims; d++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %lld+%lld", (long long)t->offset[d],
                      (long long)t->shape[d]);
    tt_hasher_update(h, name, strlen(name) + 1);
    tt_hasher_update(h, text, (size_t)n);
    if (sampled && t->data)
        hash_samples(h, t);
    tt_hasher_hex(h, hex);
    tt_hasher_free(h);
    return tt_hash64(hex, 32, 0);
}

void tt_ckpt_identity(const tt_ckpt_reader *r, char hex[17])
{
    const size_t n = tt_map_size(r->entries), every = n / SAMPLED + 1;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        const tt_entry *e = tt_map_value(r->entries, i);
        const bool sampled = tt_hash64(e->name, strlen(e->name), 0) % every == 0;
        for (size_t k = 0; strncmp(e->name, "optimizer.", 10) != 0 && k < e->shards.n; k++)
            sum += hash_shard(&e->shards.items[k], e->name, sampled);
    }
    snprintf(hex, 17, "%016llx", (unsigned long long)sum);
}
