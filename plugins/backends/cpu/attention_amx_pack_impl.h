/* SPDX-License-Identifier: Apache-2.0 */
/* The operands of attention in AMX tiles: three bf16 per f32 (split_impl.h), in the order in which
 * the tiles read them. Queries, keys and dims come in panels of 32, each two tiles. */
#include "split_impl.h"

#define SIX_QUERIES 32
#define SIX_TILE SPLIT_TILE
#define SIX_PART (2 * SIX_TILE)
#define SIX_PARTS SPLIT_PARTS

/* A step of at most 16 k has room for two parts next to each other: left 1 3, 1 2 against right 3
 * 1, 2 1, 1 2 are the six products in three. */
INLINE void six_split_left(vf x, uint16_t *dst)
{
    vi a[SIX_PARTS];
    split_parts(x, a);
    split_pair(a[0], a[2], dst);
    split_pair(a[0], a[1], dst + SIX_PART);
}
INLINE void six_split_right(vf x, uint16_t *dst)
{
    vi a[SIX_PARTS];
    split_parts(x, a);
    split_pair(a[2], a[0], dst);
    split_pair(a[1], a[0], dst + SIX_PART);
    split_pair(a[0], a[1], dst + 2 * SIX_PART);
}

INLINE vf six_load(const float *p, __mmask16 keep)
{
    return (vf)_mm512_maskz_loadu_ps(keep, p);
}

/* v[i] = element i of each of `rows` rows of n elements, ld apart; the rest is zero. */
INLINE void six_load_transposed(const float *p, int64_t ld, int64_t rows, int64_t n, vf *v)
{
    if (rows >= VW && n >= VW) {
        load_transposed(p, ld, VW, v);
        return;
    }
    for (int64_t r = 0; r < VW; r++)
        v[r] = r < rows && n > 0 ? six_load(p + r * ld, vmask(n)) : vset(0.0f);
    transpose(v);
}

/* Packs a panel's keys: `rows` rows, ld apart, in steps of 32 dims, each step its parts, each part
 * two tiles. */
static void six_pack_keys(const float *k, int64_t ld, int64_t rows, int64_t hd, void *to)
{
    uint16_t *dst = to;
    if (rows < CPU_PANEL)
        memset(to, 0, (size_t)cpu_attn_six_keys(hd) * sizeof *dst);
    for (int64_t d = 0; d < hd; d += 32) {
        const int64_t n = hd - d;
        const __mmask16 first = vmask(n), second = vmask(n - 16);
        const float *from = k + d;
        for (int64_t r = 0; r < rows; r++, from += ld)
            if (n <= 16)
                six_split_left(six_load(from, first), dst + r * 32);
            else
                split_row(six_load(from, first), six_load(from + 16, second), dst + r * 32,
                          SIX_PART);
        dst += n <= 16 ? 2 * SIX_PART : SIX_PARTS * SIX_PART;
    }
}

/* Packs a panel's values, transposed: panels of 32 dims, each its parts, each part two tiles (the
 * last one a single tile if 16 dims are left). Keys j and j + 16 are pairs, as the rows of weights
 * are. */
static void six_pack_values(const float *v, int64_t ld, int64_t rows, int64_t dv, void *to)
{
    for (int64_t d = 0; d < dv; d += 16) {
        const int64_t tiles = dv - d / 32 * 32 > 16 ? 2 : 1;
        uint16_t *dst = (uint16_t *)to + d / 32 * SIX_PARTS * SIX_PART + d % 32 / 16 * SIX_TILE;
        vf x[16], y[16];
        six_load_transposed(v + d, ld, rows, dv - d, x);
        six_load_transposed(v + 16 * ld + d, ld, rows - 16, dv - d, y);
        for (int i = 0; i < 16; i++)
            split_row(x[i], y[i], dst + i * 32, tiles * SIX_TILE);
    }
}
