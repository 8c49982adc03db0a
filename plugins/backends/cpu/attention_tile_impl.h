/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles that attention's forward and backward are made of. Each vector lane is a query: scores
 * are [keys][queries] and outputs [dims][queries]. So per-row values are lanes too, the result of
 * one product is the operand of the next without a transpose, and keys and values are read row by
 * row as they are stored. */
#if CPU_LEVEL == 5
#define ATTN_TILE 8 /* keys, or dims, per register tile */
#else
#define ATTN_TILE 4
#endif
#define ATTN_VECS 3 /* vectors of queries per block */
#define ATTN_QUERIES (ATTN_VECS * VW)

/* Is any lane of a mask set? */
INLINE bool vany(vi mask)
{
#if CPU_LEVEL == 5
    return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif CPU_LEVEL == 2
    return _mm256_movemask_ps((__m256)mask) != 0;
#else
    return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
#endif
}

/* C[R, NV vectors] (+)= A B with k steps; A(r, p) = a[r * row + p * step], B rows of ldb. */
INLINE void attn_tile(const int R, const int NV, int64_t k, const float *a, int64_t row,
                      int64_t step, const float *b, int64_t ldb, float *c, int64_t ldc,
                      const bool add)
{
    vf t[16][3];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            t[r][j] = add ? vload(c + r * ldc + j * VW) : vset(0.0f);
    for (int64_t p = 0; p < k; p++) {
        vf v[3];
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            v[j] = vload(b + p * ldb + j * VW);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            vf x = vset(a[r * row + p * step]);
#pragma GCC unroll 3
            for (int j = 0; j < NV; j++)
                t[r][j] = vfma(x, v[j], t[r][j]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            vstore(c + r * ldc + j * VW, t[r][j]);
}

/* C [CPU_SPAN keys][nv vectors] = A B over k dims; rows of A are ld apart, B is
 * [k][ATTN_QUERIES]. */
INLINE void attn_dots(int nv, int64_t k, const float *a, int64_t ld, const float *b, float *c)
{
#define DOTS(n)                                                                                    \
    case n:                                                                                        \
        for (int64_t j = 0; j < CPU_SPAN; j += ATTN_TILE)                                          \
            attn_tile(ATTN_TILE, n, k, a + j * ld, ld, 1, b, ATTN_QUERIES, c + j * ATTN_QUERIES,   \
                      ATTN_QUERIES, false);                                                        \
        break
    switch (nv) {
        DOTS(1);
        DOTS(2);
    default:
        DOTS(3);
    }
#undef DOTS
}

/* C [dims][nv vectors] += A' B over n keys: A [n,ld], B [n][ATTN_QUERIES]; dims are rounded up to
 * whole tiles. */
INLINE void attn_mix(int nv, int64_t n, const float *a, int64_t ld, int64_t dims, const float *b,
                     float *c)
{
#define MIX(v)                                                                                     \
    case v:                                                                                        \
        for (int64_t d = 0; d < dims; d += ATTN_TILE)                                              \
            attn_tile(ATTN_TILE, v, n, a + d, 1, ld, b, ATTN_QUERIES, c + d * ATTN_QUERIES,        \
                      ATTN_QUERIES, true);                                                         \
        break
    switch (nv) {
        MIX(1);
        MIX(2);
    default:
        MIX(3);
    }
#undef MIX
}

/* y = x times factor: rows of n elements, ldx and ldy apart; rows of y are padded to n_pad with
 * zeros. */
static void attn_rows(const float *x, int64_t ldx, int64_t rows, int64_t n, float factor, float *y,
                      int64_t ldy, int64_t n_pad)
{
    for (int64_t r = 0; r < rows; r++, x += ldx, y += ldy) {
        int64_t d = 0;
        for (; d + VW <= n; d += VW)
            vstore(y + d, vload(x + d) * factor);
        for (; d < n; d++)
            y[d] = x[d] * factor;
        for (; d < n_pad; d++)
            y[d] = 0.0f;
    }
}

/* Transposes `rows` <= ATTN_QUERIES rows of n elements, times factor, into columns
 * [n][ATTN_QUERIES]; the other columns are zero. */
static void attn_columns(const float *x, int64_t ld, int64_t rows, int64_t n, float factor,
                         float *dst)
{
    for (int64_t r0 = 0; r0 < ATTN_QUERIES; r0 += VW) {
        const int count = (int)cpu_max(0, cpu_min(VW, rows - r0));
        const float *from = x + r0 * ld;
        int64_t d = 0;
        for (; d + VW <= n; d += VW) {
            vf v[VW];
            load_transposed(from + d, ld, count, v);
            for (int i = 0; i < VW; i++)
                vstore(dst + (d + i) * ATTN_QUERIES + r0, v[i] * factor);
        }
        for (; d < n; d++)
            for (int r = 0; r < VW; r++)
                dst[d * ATTN_QUERIES + r0 + r] = r < count ? from[r * ld + d] * factor : 0.0f;
    }
}

/* The inverse: rows [0, rows) of y, n elements each, ldy apart, become factor times the sum of the
 * n_x column arrays x. */
static void attn_give(const float *const *x, int64_t n_x, float factor, int64_t rows, int64_t n,
                      float *y, int64_t ldy)
{
    for (int64_t r0 = 0; r0 < rows; r0 += VW)
        for (int64_t d = 0; d < n; d += VW) {
            const int64_t keep = cpu_min(VW, n - d);
            vf v[VW];
            for (int64_t i = 0; i < VW; i++) {
                const int64_t at = (d + i) * ATTN_QUERIES + r0;
                v[i] = n_x && i < keep ? vload(x[0] + at) : vset(0.0f);
                for (int64_t j = 1; i < keep && j < n_x; j++)
                    v[i] += vload(x[j] + at);
                v[i] *= factor;
            }
            transpose(v);
            for (int64_t r = 0; r < cpu_min(VW, rows - r0); r++) {
                float *to = y + (r0 + r) * ldy + d;
                if (keep == VW)
                    vstore(to, v[r]);
                else
                    vstore_part(to, v[r], keep);
            }
        }
}

/* Do all queries see all keys of the span? Padding has segment INT32_MIN, so a span with padding is
 * never whole. */
INLINE bool attn_whole(const cpu_attn *a, const int32_t *q, const int32_t *k)
{
    return k[2] == k[3] && q[2] == q[3] && k[2] == q[2] && (!a->causal || k[1] <= q[0]) &&
           (!a->window || (int64_t)q[1] - k[0] < a->window);
}
/* Where the bias of a vector of queries and key j lies in the head's bias. */
INLINE vi attn_bias_at(const cpu_attn *a, vi pos, int64_t j)
{
    const vi last = vseti(a->n_bias - 1);
    vi at = pos - vseti(a->pos_k[j]) + vseti(a->bias_zero);
    at &= at > vseti(0);
    const vi within = at < last;
    return (at & within) | (last & ~within);
}
/* The bias of a vector of queries and key j, in base 2. Queries at consecutive positions have theirs
 * next to each other. */
INLINE vf attn_bias(const cpu_attn *a, vi pos, int64_t j)
{
    static const int32_t steps[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vi at = attn_bias_at(a, pos, j);
    vf x;
    if (!vany(at != vseti(at[0]) + *(const vi_any *)steps))
        x = vload(a->bias + at[0]);
    else
        for (int r = 0; r < VW; r++)
            x[r] = a->bias[at[r]];
    return x * vset(LOG2E);
}
/* Which lanes of a vector of queries, at positions pos and in segments seg, see key j? */
INLINE vi attn_mask(const cpu_attn *a, vi pos, vi seg, int64_t j)
{
    const vi p = vseti(a->pos_k[j]);
    vi see = seg == vseti(a->seg_k[j]);
    if (a->causal)
        see &= p <= pos;
    if (a->window)
        see &= (pos - p) < vseti((int32_t)(a->window < INT32_MAX ? a->window : INT32_MAX));
    return see;
}

/* The smallest range [v0, v1) of vectors of queries that includes all that see any key of a span;
 * v0 == v1: none does. whole: they see all of its keys. */
typedef struct attn_span {
    int v0, v1;
    bool whole;
} attn_span;

/* Does any of the n spans from `first` have a visible key? q: minima and maxima of the block's
 * vectors. */
INLINE bool attn_spans(const cpu_attn *a, const int32_t *q, int64_t first, int64_t n, attn_span *s)
{
    bool any = false;
    for (int64_t i = 0; i < n; i++) {
        const int32_t *k = a->spans + (first + i) * 4;
        int lo = ATTN_VECS, hi = 0;
        for (int v = 0; v < ATTN_VECS; v++)
            if (cpu_attn_visible(a, q + 4 * v, k)) {
                lo = v < lo ? v : lo;
                hi = v + 1;
            }
        bool whole = true;
        for (int v = lo; v < hi; v++)
            whole = whole && attn_whole(a, q + 4 * v, k);
        s[i] = (attn_span){lo < hi ? lo : 0, hi, whole};
        any = any || lo < hi;
    }
    return any;
}

/* C [dims][queries] += A' B over all spans; consecutive spans that the same vectors see are done at
 * once. */
INLINE void attn_mix_spans(const attn_span *s, int64_t n, const float *a, int64_t ld, int64_t dims,
                           const float *b, float *c)
{
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && s[end].v0 == s[i].v0 && s[end].v1 == s[i].v1;)
            end++;
        if (s[i].v1 > s[i].v0)
            attn_mix(s[i].v1 - s[i].v0, (end - i) * CPU_SPAN, a + i * CPU_SPAN * ld, ld, dims,
                     b + i * CPU_SPAN * ATTN_QUERIES + s[i].v0 * VW, c + s[i].v0 * VW);
    }
}
