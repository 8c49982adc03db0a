/* SPDX-License-Identifier: Apache-2.0 */
/* What gemm.cu and gemm_f32.cu share: c[m,n] = Σ_k A[m,k] B[k,n], or with `add`, added to c, in tiles of SIDE × SIDE
 * elements. "n" and "t" of a kernel's name: A is stored as [m,k] or as [k,m], and B as [k,n] or as [n,k]. Rows follow each
 * other without gaps.
 *
 * Each element is one chain of f32 sums over ascending k, whatever the tile: its bits depend on its row of A, its column of
 * B and k alone, not on m, n, their cut over ranks or the addresses. For that reason k is never split over blocks.
 *
 * Grouped products: rows belong to experts, one expert's after the other's. `groups` is [2][batch + 2]: the first rows of
 * experts 0 to batch, then the number of rows; their first rows of tiles, likewise. Number `batch` is no expert: these rows
 * become 0. gemm_groups writes it. */
#pragma once
#include "dialect.h"

#define DENSE 0   /* `batch` products, each operand's one after the other */
#define BY_ROWS 1 /* rows of expert e (of a and c) times its B */
#define BY_SUMS 2 /* for each expert a product that sums over its rows (k) only */

struct product {
    const void *a, *b;
    void *c;
    i64 m, n, k, batch; /* BY_ROWS: m are all rows; BY_SUMS: k is not used */
    int half_out, add, mode;
    const i64 *groups;
};

struct tile {
    i64 a, b, c; /* index of the first element of its product in each */
    i64 m, k;    /* of its product; m ends with the expert */
    i64 m0, n0;
};

/* The last e of 0 to n - 1 with first[e] <= x. */
TT_DEV i64 tile_group(const i64 *first, i64 n, i64 x)
{
    i64 lo = 0, hi = n;
    while (hi - lo > 1) {
        const i64 mid = (lo + hi) / 2;
        if (first[mid] <= x)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Rows of tiles per product, some of which are empty. */
template <int SIDE> TT_DEV i64 tile_rows(const product &p)
{
    return p.mode == BY_ROWS ? p.m / SIDE + p.batch + 1 : (p.m + SIDE - 1) / SIDE;
}

/* The number of tiles of all products. */
template <int SIDE> TT_DEV i64 tile_count(const product &p)
{
    return tile_rows<SIDE>(p) * ((p.n + SIDE - 1) / SIDE) * (p.mode == BY_ROWS ? 1 : p.batch);
}

/* Tile `at`, in an order in which tiles that run at a time share rows and columns; false: it is empty. */
template <int SIDE> TT_DEV bool tile_find(const product &p, i64 at, tile *t)
{
    const i64 rows = tile_rows<SIDE>(p), columns = (p.n + SIDE - 1) / SIDE,
              z = at / (rows * columns);
    const i64 one = at % (rows * columns), band = one / (8 * columns), in = one % (8 * columns);
    const i64 height = rows - band * 8 < 8 ? rows - band * 8 : 8;
    i64 row = band * 8 + in % height;
    *t = {z * p.m * p.k, z * p.k * p.n, z * p.m * p.n, p.m, p.k, 0, in / height * SIDE};
    if (p.mode == BY_SUMS) { /* a [rows,m], b [rows,n] */
        const i64 begin = p.groups[z];
        t->k = p.groups[z + 1] - begin;
        t->a = begin * p.m;
        t->b = begin * p.n;
    } else if (p.mode == BY_ROWS) {
        const i64 *tiles = p.groups + p.batch + 2;
        if (row >= tiles[p.batch + 1])
            return false;
        const i64 e = tile_group(tiles, p.batch + 1, row), begin = p.groups[e];
        row -= tiles[e];
        t->a = begin * p.k;
        t->b = e < p.batch ? e * p.k * p.n : 0;
        t->c = begin * p.n;
        t->m = p.groups[e + 1] - begin;
        t->k = e < p.batch ? p.k : 0;
    }
    t->m0 = row * SIDE;
    return true;
}

/* Stores or adds an element of c. */
TT_DEV void tile_store(const product &p, i64 at, float x)
{
    if (p.half_out) {
        bf16 *c = (bf16 *)p.c + at;
        *c = tt_bf16(p.add ? tt_f32(*c) + x : x);
    } else {
        float *c = (float *)p.c + at;
        *c = p.add ? *c + x : x;
    }
}
