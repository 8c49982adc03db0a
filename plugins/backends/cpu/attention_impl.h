/* SPDX-License-Identifier: Apache-2.0 */
/* Tiled attention forward (Dao et al. 2022, arXiv:2205.14135): ATTN_ROWS queries against blocks of
 * FWD_KEYS keys with an online softmax in base 2. Scores live in a small buffer on the stack; keys
 * are read from transposed panels of NR keys. */
#define FWD_KEYS 288
#define UNSEEN -1e30f /* below any score: the running maximum of a row that has seen no key */

/* C[R, NV vectors] (+)= A B with k steps; A(r, p) = a[r * row + p * step], B rows of ldb. */
INLINE void attn_tile(const int R, const int NV, int64_t k, const float *a, int64_t row,
                      int64_t step, const float *b, int64_t ldb, float *c, int64_t ldc,
                      const bool add)
{
    vf t[12][2];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int j = 0; j < NV; j++)
            t[r][j] = add ? vload(c + r * ldc + j * VW) : vset(0.0f);
    for (int64_t p = 0; p < k; p++) {
        vf v[2];
#pragma GCC unroll 2
        for (int j = 0; j < NV; j++)
            v[j] = vload(b + p * ldb + j * VW);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            vf x = vset(a[r * row + p * step]);
#pragma GCC unroll 2
            for (int j = 0; j < NV; j++)
                t[r][j] = vfma(x, v[j], t[r][j]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int j = 0; j < NV; j++)
            vstore(c + r * ldc + j * VW, t[r][j]);
}

/* C[ATTN_ROWS, NR] = A B for rows of A as far apart as the head dimensions in use: then their
 * addresses are constants, not a register each. */
INLINE void attn_scores(int64_t k, const float *a, int64_t row, const float *b, float *c,
                        int64_t ldc)
{
#define ROWS(n)                                                                                    \
    case n:                                                                                        \
        attn_tile(ATTN_ROWS, 2, k, a, n, 1, b, NR, c, ldc, false);                                 \
        break
    switch (row) {
        ROWS(16);
        ROWS(32);
        ROWS(64);
        ROWS(128);
    default:
        attn_tile(ATTN_ROWS, 2, k, a, row, 1, b, NR, c, ldc, false);
    }
#undef ROWS
}

/* C[R, width] += A B; width a multiple of VW */
INLINE void attn_accumulate(const int R, int64_t k, const float *a, int64_t row, int64_t step,
                            const float *b, int64_t width, float *c)
{
    int64_t d = 0;
    for (; d + NR <= width; d += NR)
        attn_tile(R, 2, k, a, row, step, b + d, width, c + d, width, true);
    if (d < width)
        attn_tile(R, 1, k, a, row, step, b + d, width, c + d, width, true);
}

/* May any of the queries with extremes q see any key of a panel with extremes k? */
INLINE bool attn_visible(const cpu_attn *a, const int32_t *q, const int32_t *k)
{
    return k[3] >= q[2] && k[2] <= q[3] && (!a->causal || k[0] <= q[1]) &&
           (!a->window || (int64_t)q[0] - k[1] < a->window);
}
/* Do all of the queries see all of its keys? Padding has segment INT32_MIN, so such a panel is
 * never whole. */
INLINE bool attn_whole(const cpu_attn *a, const int32_t *q, const int32_t *k)
{
    return k[2] == k[3] && q[2] == q[3] && k[2] == q[2] && (!a->causal || k[1] <= q[0]) &&
           (!a->window || (int64_t)q[1] - k[0] < a->window);
}
/* Lanes of keys from j that the query at (pos, seg) sees. */
INLINE vi attn_mask(const cpu_attn *a, int32_t pos, int32_t seg, int64_t j)
{
    vi p = *(const vi_any *)(a->pos_k + j), see = *(const vi_any *)(a->seg_k + j) == vseti(seg);
    if (a->causal)
        see &= p <= vseti(pos);
    if (a->window)
        see &= (vseti(pos) - p) < vseti((int32_t)(a->window < INT32_MAX ? a->window : INT32_MAX));
    return see;
}
/* Panels [*p0, *p1) of the n from `first` that hold all visible ones; *whole: all of these are seen
 * in full. */
INLINE bool attn_range(const cpu_attn *a, const int32_t *q, int64_t first, int64_t n, int64_t *p0,
                       int64_t *p1, bool *whole)
{
    int64_t lo = n, hi = 0;
    const int32_t *k = a->panel + first * 4;
    for (int64_t i = 0; i < n; i++)
        if (attn_visible(a, q, k + 4 * i)) {
            lo = i < lo ? i : lo;
            hi = i + 1;
        }
    *whole = true;
    for (int64_t i = lo; i < hi; i++)
        *whole = *whole && attn_whole(a, q, k + 4 * i);
    *p0 = lo;
    *p1 = hi;
    return lo < hi;
}

/* Scores of one row, in base 2, capped and masked, in place. */
INLINE void attn_finish_scores(const cpu_attn *a, float *s, int64_t j0, int64_t j1, int64_t key0,
                               int32_t pos, int32_t seg, bool whole)
{
    if (a->softcap > 0.0f) {
        vf inverse = vset(1.0f / a->softcap), cap = vset(a->softcap * LOG2E);
        for (int64_t j = j0; j < j1; j += VW)
            vstore(s + j, vtanh(vload(s + j) * inverse) * cap);
    }
    if (!whole)
        for (int64_t j = j0; j < j1; j += VW)
            vstore(s + j, vselect(attn_mask(a, pos, seg, key0 + j), vload(s + j), vset(-INFINITY)));
}

/* One row's step of the online softmax over s[j0, j1): s becomes the weights, o is rescaled. */
INLINE void attn_softmax_row(float *s, int64_t j0, int64_t j1, float *top, float *sum, float *o,
                             int64_t width)
{
    vf m = vset(UNSEEN);
    for (int64_t j = j0; j < j1; j += VW)
        m = vmax(m, vload(s + j));
    float now = vmax_all(m);
    if (now > *top) {
        float shrink[VW];
        vstore(shrink, vexp2_negative(vset(*top - now)));
        *sum *= shrink[0];
        for (int64_t d = 0; d < width; d += VW)
            vstore(o + d, vload(o + d) * shrink[0]);
        *top = now;
    }
    const vf shift = vset(*top);
    vf t = vset(0.0f);
    for (int64_t j = j0; j < j1; j += VW) {
        vf e = vexp2_negative(vload(s + j) - shift);
        t += e;
        vstore(s + j, e);
    }
    *sum += vsum(t);
}

INLINE void attn_scale(const float *x, float factor, int64_t n, float *y)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW)
        vstore(y + i, vload(x + i) * factor);
    for (; i < n; i++)
        y[i] = x[i] * factor;
}

INLINE void attn_write(const cpu_attn *a, const float *o, float top, float sum, const float *sink,
                       float *out, float *lse)
{
    bool seen = top > UNSEEN || top != top || sum != sum;
    if (seen && sink) {
        float s = *sink * LOG2E, high = s > top ? s : top, e[VW];
        vf both = vset(s - high);
        both[1] = top - high;
        vstore(e, vexp2_negative(both));
        float shrink = e[1];
        sum = sum * shrink + e[0];
        float factor = shrink / sum;
        attn_scale(o, factor, a->dv, out);
        *lse = (high + log2f(sum)) / LOG2E;
        return;
    }
    if (seen)
        attn_scale(o, 1.0f / sum, a->dv, out);
    else
        memset(out, 0, (size_t)a->dv * sizeof *out);
    *lse = seen ? (top + log2f(sum)) / LOG2E : sink ? *sink : -INFINITY;
}

/* Rows of one head lie a token apart, where no hardware looks ahead: ask for them a block early. */
INLINE void attn_prefetch(const float *x, int64_t ld, int64_t n, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < cpu_min(end, begin + ATTN_ROWS); r++)
        for (int64_t d = 0; d < n; d += 16)
            __builtin_prefetch(x + r * ld + d);
}

/* Queries [begin, end) of one head. kt: panels [tk_pad / NR][hd][NR]; v [tk_pad, dv_pad]. */
static void attn_fwd(const cpu_attn *a, const float *kt, const float *v, const float *q, float *out,
                     float *lse, int64_t ld_lse, const float *sink, int64_t begin, int64_t end)
{
    float s[ATTN_ROWS * FWD_KEYS] __attribute__((aligned(64))),
        o[ATTN_ROWS * CPU_MAX_HEAD_DIM] __attribute__((aligned(64)));
    float query[ATTN_ROWS * CPU_MAX_HEAD_DIM], top[ATTN_ROWS], sum[ATTN_ROWS];
    const float factor = a->softcap > 0.0f ? a->scale : a->scale * LOG2E;
    const int64_t width = a->dv_pad;
    for (int64_t t = begin; t < end; t += ATTN_ROWS) {
        int rows = (int)cpu_min(ATTN_ROWS, end - t);
        int32_t extremes[4];
        cpu_attn_extremes(a->pos_q + t, a->seg_q + t, rows, extremes);
        for (int r = 0; r < ATTN_ROWS; r++) {
            top[r] = UNSEEN;
            sum[r] = 0.0f;
            if (r < rows)
                attn_scale(q + (t + r) * a->ldq, factor, a->hd, query + r * a->hd);
            else
                memset(query + r * a->hd, 0, (size_t)a->hd * sizeof *query);
        }
        attn_prefetch(q, a->ldq, a->hd, t + ATTN_ROWS, end);
        attn_prefetch(out, a->ldo, a->dv, t, end);
        memset(o, 0, (size_t)(ATTN_ROWS * width) * sizeof(float));
        for (int64_t k0 = 0; k0 < a->tk_pad; k0 += FWD_KEYS) {
            int64_t p0, p1;
            bool whole;
            if (!attn_range(a, extremes, k0 / CPU_PANEL,
                            cpu_min(FWD_KEYS, a->tk_pad - k0) / CPU_PANEL, &p0, &p1, &whole))
                continue;
            int64_t j0 = p0 * CPU_PANEL, j1 = p1 * CPU_PANEL;
            for (int64_t j = j0; j < j1; j += NR)
                attn_scores(a->hd, query, a->hd, kt + (k0 + j) * a->hd, s + j, FWD_KEYS);
            for (int r = 0; r < rows; r++) {
                attn_finish_scores(a, s + r * FWD_KEYS, j0, j1, k0, a->pos_q[t + r],
                                   a->seg_q[t + r], whole);
                attn_softmax_row(s + r * FWD_KEYS, j0, j1, &top[r], &sum[r], o + r * width, width);
            }
            attn_accumulate(ATTN_ROWS, j1 - j0, s + j0, FWD_KEYS, 1, v + (k0 + j0) * width, width,
                            o);
        }
        for (int r = 0; r < rows; r++)
            attn_write(a, o + r * width, top[r], sum[r], sink, out + (t + r) * a->ldo,
                       lse + (t + r) * ld_lse);
    }
}
