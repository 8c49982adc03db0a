/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"

/* The epoch is part of the key, so each epoch has its own permutation, and any g takes O(1). */
int64_t tt_order_sample(const tt_order *o, int64_t g, int64_t *epoch)
{
    TT_ASSERT(o->n_samples >= 1 && g >= 0);
    const int64_t e = g / o->n_samples, i = g % o->n_samples;
    if (epoch)
        *epoch = e;
    if (o->endless)
        return g;
    if (!o->shuffle)
        return i;
    const tt_rng_key key = tt_rng_key_make(o->seed, "data.order", (uint64_t)e);
    return (int64_t)tt_rng_permute(key, (uint64_t)o->n_samples, (uint64_t)i);
}
