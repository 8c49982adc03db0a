/* SPDX-License-Identifier: Apache-2.0 */
/* The products of one panel in AMX tiles and, interleaved with them, the softmax weights of another
 * panel. Scores are K Q' (tiles: 16 keys × 16 queries) and outputs are V' P (16 dims × 16 queries),
 * so the weights of the first product feed the second without shuffling. Tile registers: 0 to 3
 * hold C, 4 and 5 hold A, 6 and 7 hold B. */

/* A panel of keys that some queries of a block see, namely those in vectors [v0, v1); whole: they
 * see all of its keys. */
typedef struct six_panel {
    int64_t at;
    int v0, v1; /* v0 == v1: no panel */
    bool whole;
    uint16_t *p; /* its weights */
    float *s;    /* its scores */
} six_panel;

typedef struct six_block {
    uint16_t q[CPU_MAX_HEAD_DIM / 32 * SIX_PARTS * SIX_PART] __attribute__((aligned(64)));
    uint16_t p[2][SIX_PARTS * SIX_PART] __attribute__((aligned(64)));
    float s[2][CPU_PANEL * ATTN_QUERIES] __attribute__((aligned(64)));
    float o[CPU_MAX_HEAD_DIM * SIX_QUERIES] __attribute__((aligned(64)));
    vf top[2], sum[2], shrink[2];
    int32_t pos[SIX_QUERIES], seg[SIX_QUERIES], extremes[2 * 4];
    /* The weights of panel `now` that are still to be computed: keys from `at` to `end` (16 per
     * vector, each together with the one 16 further on); each product is followed by a share of
     * them. */
    six_panel now;
    int at, end, due, products;
    int64_t panels[2]; /* begin and end of the panels that the task's queries see */
    /* The rows of the next block's q and of this block's out to prefetch: rows of a head are a
     * token apart, which the hardware prefetcher does not follow, and prefetching all at once
     * would stall the tiles. */
    cpu_fetch fetch[2];
} six_block;

/* The weights of two vectors of keys and their partners. Not inlined, because it is called between
 * all products. */
static __attribute__((noinline)) void six_weights(six_block *b)
{
    const int v = b->at / 16, j = b->at % 16;
    const float *s = b->now.s + j * ATTN_QUERIES + v * VW;
    uint16_t *p = b->now.p + v * SIX_TILE + j * 32;
    const vf top = b->top[v];
    vf e[4];
    cpu_fetch_turn(&b->fetch[0]);
    cpu_fetch_turn(&b->fetch[1]);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        e[i] = vexp2(vload(s + i * ATTN_QUERIES) - top);
        e[i + 2] = vexp2(vload(s + (i + 16) * ATTN_QUERIES) - top);
        split_row(e[i], e[i + 2], p + i * 32, SIX_PART);
    }
    b->sum[v] += (e[0] + e[1]) + (e[2] + e[3]);
    b->at += 2;
}
INLINE void six_turn(six_block *b)
{
    b->due += 16;
    while (b->due >= b->products && b->at < b->end) {
        b->due -= b->products;
        six_weights(b);
    }
}

/* C += A B for one part each, of R × S tiles, as in gemm_amx.c; followed by a share of the
 * weights. */
INLINE void six_product(const int R, const int S, const uint16_t *a, const uint16_t *b,
                        six_block *w)
{
    if (a)
        _tile_loadd(4, a, 64);
    if (b)
        _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (S > 1) {
        if (b)
            _tile_loadd(7, b + SIX_TILE, 64);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (R > 1) {
        if (a)
            _tile_loadd(5, a + SIX_TILE, 64);
        _tile_dpbf16ps(2, 5, 6);
        if (S > 1)
            _tile_dpbf16ps(3, 5, 7);
    }
    six_turn(w);
}
INLINE void six_step(const int R, const int S, const uint16_t *a, const uint16_t *b, six_block *w)
{
    six_product(R, S, a + 2 * R * SIX_TILE, b, w);
    six_product(R, S, a + R * SIX_TILE, NULL, w);
    six_product(R, S, NULL, b + SIX_PART, w);
    six_product(R, S, a, NULL, w);
    six_product(R, S, NULL, b + 2 * SIX_PART, w);
    six_product(R, S, NULL, b, w);
}
INLINE void six_store(const int R, const int S, float *c, int64_t ld)
{
    _tile_stored(0, c, ld * 4);
    if (S > 1)
        _tile_stored(1, c + 16, ld * 4);
    if (R > 1)
        _tile_stored(2, c + 16 * ld, ld * 4);
    if (R > 1 && S > 1)
        _tile_stored(3, c + 16 * ld + 16, ld * 4);
}

/* gcc's tile loads do not declare that they read memory: this keeps earlier stores before them. */
INLINE void six_fence(void)
{
    __asm__ volatile("" ::: "memory");
}

/* The scores of a panel for S vectors of queries. */
INLINE void six_dots_of(const int S, int64_t hd, const uint16_t *k, const uint16_t *q, float *s,
                        six_block *w)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; hd > 16; hd -= 32, k += SIX_PARTS * SIX_PART, q += SIX_PARTS * SIX_PART)
        six_step(2, S, k, q, w);
    if (hd > 0) {
        six_product(2, S, k, q, w);
        six_product(2, S, k + SIX_PART, q + SIX_PART, w);
        six_product(2, S, NULL, q + 2 * SIX_PART, w);
    }
    six_store(2, S, s, ATTN_QUERIES);
}
INLINE void six_dots(const cpu_attn *a, const uint16_t *k, six_panel p, six_block *b)
{
    six_fence();
    k += p.at * cpu_attn_six_keys(a->hd);
    if (p.v1 - p.v0 == 2)
        six_dots_of(2, a->hd, k, b->q, p.s, b);
    else if (p.v1 > p.v0)
        six_dots_of(1, a->hd, k, b->q + p.v0 * SIX_TILE, p.s + p.v0 * VW, b);
}

/* o [dims][queries] += V' P of a panel, in R × S tiles. */
INLINE void six_mix_tiles(const int R, const int S, const uint16_t *v, const uint16_t *p, float *o,
                          six_block *w)
{
    _tile_loadd(0, o, SIX_QUERIES * 4);
    if (S > 1)
        _tile_loadd(1, o + 16, SIX_QUERIES * 4);
    if (R > 1)
        _tile_loadd(2, o + 16 * SIX_QUERIES, SIX_QUERIES * 4);
    if (R > 1 && S > 1)
        _tile_loadd(3, o + 16 * SIX_QUERIES + 16, SIX_QUERIES * 4);
    six_step(R, S, v, p, w);
    six_store(R, S, o, SIX_QUERIES);
}
INLINE void six_mix_of(const int S, int64_t dv, const uint16_t *v, const uint16_t *p, float *o,
                       six_block *w)
{
    for (; dv > 16; dv -= 32, v += SIX_PARTS * SIX_PART, o += 32 * SIX_QUERIES)
        six_mix_tiles(2, S, v, p, o, w);
    if (dv > 0)
        six_mix_tiles(1, S, v, p, o, w);
}
INLINE void six_mix(const cpu_attn *a, const uint16_t *v, six_panel p, six_block *b)
{
    six_fence();
    v += p.at * cpu_attn_six_values(a->dv);
    if (p.v1 - p.v0 == 2)
        six_mix_of(2, a->dv, v, p.p, b->o, b);
    else if (p.v1 > p.v0)
        six_mix_of(1, a->dv, v, p.p + p.v0 * SIX_TILE, b->o + p.v0 * VW, b);
}
