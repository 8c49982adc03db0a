/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <string.h>

/* The old arrays stay in the arena; together they are never larger than the final one. */
void *tt_vec_grow(tt_arena *a, void *items, size_t n, size_t *cap, size_t elem)
{
    if (*cap > SIZE_MAX / 2)
        tt_out_of_memory(SIZE_MAX, "tt_vec_grow");
    size_t grown = *cap ? *cap * 2 : 8;
    void *p = tt_arena_array(a, grown, elem);
    if (n)
        memcpy(p, items, n * elem);
    *cap = grown;
    return p;
}
