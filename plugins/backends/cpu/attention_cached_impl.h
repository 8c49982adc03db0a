/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over a cache: the same arithmetic as attn_fwd, term by term and in the same order, on
 * keys and values that are in the cache. A row's bits equal those of attn_fwd, whichever rows are
 * computed together with it. Included after attention_impl.h. */

/* The panels [*p0, *p1) of which queries at positions from `low` to `high` see any key. */
INLINE void cached_range(const cpu_attn *a, int64_t low, int64_t high, int64_t *p0, int64_t *p1)
{
    *p0 = a->window && low >= a->window ? (low - a->window + 1) / CPU_PANEL : 0;
    *p1 = high / CPU_PANEL + 1;
}

/* C [R, dv] += A B, where rows of B are ldb apart: the last vector may be partial. */
INLINE void cached_accumulate(const int R, int64_t k, const float *a, const float *b, int64_t ldb,
                              int64_t dv, float *c, int64_t ldc)
{
    int64_t d = 0;
    for (; d + NR <= dv; d += NR)
        attn_tile(R, 2, k, a, FWD_KEYS, 1, b + d, ldb, c + d, ldc, true);
    for (; d + VW <= dv; d += VW)
        attn_tile(R, 1, k, a, FWD_KEYS, 1, b + d, ldb, c + d, ldc, true);
    for (int64_t p = 0; d < dv && p < k; p++) {
        const vf v = vload_part(b + p * ldb + d, dv - d, 0.0f);
        for (int r = 0; r < R; r++)
            vstore(c + r * ldc + d, vfma(vset(a[r * FWD_KEYS + p]), v, vload(c + r * ldc + d)));
    }
}

/* The dot products of R queries and two keys, whose elements follow each other: lanes are elements. */
INLINE void cached_dots(const int R, int64_t hd, const float *q, const float *k, float *s)
{
    vf t[ATTN_ROWS][2];
    int64_t d = 0;
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        t[r][0] = t[r][1] = vset(0.0f);
    for (; d + VW <= hd; d += VW) {
        const vf k0 = vload(k + d), k1 = vload(k + hd + d);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const vf x = vload(q + r * hd + d);
            t[r][0] = vfma(x, k0, t[r][0]);
            t[r][1] = vfma(x, k1, t[r][1]);
        }
    }
    if (d < hd) {
        const vf k0 = vload_part(k + d, hd - d, 0.0f), k1 = vload_part(k + hd + d, hd - d, 0.0f);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const vf x = vload_part(q + r * hd + d, hd - d, 0.0f);
            t[r][0] = vfma(x, k0, t[r][0]);
            t[r][1] = vfma(x, k1, t[r][1]);
        }
    }
    for (int r = 0; r < R; r++) {
        s[r * FWD_KEYS] = vsum(t[r][0]);
        s[r * FWD_KEYS + 1] = vsum(t[r][1]);
    }
}

/* Scores of R queries and keys [k0 + j0, k0 + j1), into s + j. */
INLINE void cached_products(const int R, const cpu_attn_cached *c, const float *q, int64_t k0,
                            int64_t j0, int64_t j1, float *s)
{
    const int64_t hd = c->a.hd;
    for (int64_t j = j0; c->latent && j < j1; j += 2)
        cached_dots(R, hd, q, c->keys + (k0 + j) * hd, s + j);
    for (int64_t j = j0; !c->latent && j < j1; j += NR)
        attn_tile(R, 2, hd, q, hd, 1,
                  c->keys + (k0 + j) / CPU_PANEL * CPU_PANEL * hd + (k0 + j) % CPU_PANEL, CPU_PANEL,
                  s + j, FWD_KEYS, false);
}

/* The scores of one row, in base 2, capped and masked, in place: as fwd_finish does it, but with
 * keys in the lanes. */
INLINE void cached_finish(const cpu_attn *a, const float *bias, float *s, int64_t j0, int64_t j1,
                          int64_t key0, int32_t pos, bool whole)
{
    if (a->softcap > 0.0f) {
        vf inverse = vset(1.0f / a->softcap), cap = vset(a->softcap * LOG2E);
        for (int64_t j = j0; j < j1; j += VW)
            vstore(s + j, vtanh(vload(s + j) * inverse) * cap);
    }
    if (bias)
        for (int64_t j = j0; j < j1; j++) {
            const int64_t at = (int64_t)pos - a->pos_k[key0 + j] + a->bias_zero;
            s[j] += bias[cpu_max(0, cpu_min(at, a->n_bias - 1))] * LOG2E;
        }
    if (whole)
        return;
    const vi window = vseti((int32_t)(a->window < INT32_MAX ? a->window : INT32_MAX));
    for (int64_t j = j0; j < j1; j += VW) {
        const vi p = *(const vi_any *)(a->pos_k + key0 + j);
        vi see = p <= vseti(pos);
        if (a->window)
            see &= (vseti(pos) - p) < window;
        vstore(s + j, vselect(see, vload(s + j), vset(-INFINITY)));
    }
}

/* One row's step of the online softmax over s[j0, j1): s becomes the weights, o is rescaled. */
INLINE void cached_softmax(float *s, int64_t j0, int64_t j1, float *top, float *sum, float *o,
                           int64_t width)
{
    vf m = vset(UNSEEN);
    for (int64_t j = j0; j < j1; j += VW)
        m = vmax(m, vload(s + j));
    float now = vmax_all(m);
    if (now > *top) {
        float shrink[VW];
        vstore(shrink, vexp2(vset(*top - now)));
        *sum *= shrink[0];
        for (int64_t d = 0; d < width; d += VW)
            vstore(o + d, vload(o + d) * shrink[0]);
        *top = now;
    }
    const vf shift = vset(*top);
    for (int64_t j = j0; j < j1; j += VW)
        vstore(s + j, vexp2(vload(s + j) - shift));
    for (int64_t j = j0; j < j1; j += 8) { /* in the order of fwd_weights */
        const float *e = s + j;
        *sum += ((e[0] + e[1]) + (e[2] + e[3])) + ((e[4] + e[5]) + (e[6] + e[7]));
    }
}

/* Rows [t, t + rows), rows <= R. */
INLINE void cached_rows(const int R, const cpu_attn_cached *c, int64_t t, int rows)
{
    const cpu_attn *a = &c->a;
    float s[ATTN_ROWS * FWD_KEYS] __attribute__((aligned(64))),
        query[ATTN_ROWS * CPU_MAX_CACHED_DIM],
        o[ATTN_ROWS * CPU_MAX_CACHED_DIM] __attribute__((aligned(64)));
    float top[ATTN_ROWS], sum[ATTN_ROWS];
    const float factor = a->softcap > 0.0f ? a->scale : a->scale * LOG2E;
    const int64_t width = a->dv_pad, low = c->pos[t / c->group],
                  high = c->pos[(t + rows - 1) / c->group];
    for (int r = 0; r < R; r++) {
        const float *q = c->q + (t + r) / c->group * a->ldq + (t + r) % c->group * a->hd;
        top[r] = UNSEEN;
        sum[r] = 0.0f;
        for (int64_t d = 0; d < a->hd; d++)
            query[r * a->hd + d] = r < rows ? q[d] * factor : 0.0f;
    }
    memset(o, 0, (size_t)(R * width) * sizeof(float));
    int64_t p0, p1;
    cached_range(a, low, high, &p0, &p1);
    for (int64_t k0 = 0; k0 < p1 * CPU_PANEL; k0 += FWD_KEYS) {
        const int64_t j0 = cpu_max(p0 * CPU_PANEL - k0, 0),
                      j1 = cpu_min(p1 * CPU_PANEL - k0, FWD_KEYS);
        if (j0 >= j1)
            continue;
        cached_products(R, c, query, k0, j0, j1, s);
        const bool whole = k0 + j1 - 1 <= low && (!a->window || high - (k0 + j0) < a->window);
        for (int r = 0; r < rows; r++) {
            const float *bias = a->bias ? a->bias + (t + r) % c->group * a->n_bias : NULL;
            cached_finish(a, bias, s + r * FWD_KEYS, j0, j1, k0, c->pos[(t + r) / c->group], whole);
            cached_softmax(s + r * FWD_KEYS, j0, j1, &top[r], &sum[r], o + r * width, width);
        }
        /* values past the last token were never written, so not even zero times them is safe */
        cached_accumulate(R, cpu_min(j1, high + 1 - k0) - j0, s + j0,
                          c->values + (k0 + j0) * c->ld_values, c->ld_values, a->dv, o, width);
    }
    for (int r = 0; r < rows; r++) {
        const int64_t head = (t + r) % c->group;
        float lse, *to = c->out + (t + r) / c->group * a->ldo + head * a->dv;
        const float close = attn_close(top[r], sum[r], c->sinks ? c->sinks + head : NULL, &lse);
        for (int64_t d = 0; d < a->dv; d++)
            to[d] = o[r * width + d] * close;
    }
}

static void attn_cached(const cpu_attn_cached *c, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t += ATTN_ROWS) {
        const int rows = (int)cpu_min(ATTN_ROWS, end - t);
        if (rows == 1)
            cached_rows(1, c, t, rows);
        else if (rows == 2)
            cached_rows(2, c, t, rows);
        else if (rows <= 4)
            cached_rows(4, c, t, rows);
        else
            cached_rows(ATTN_ROWS, c, t, rows);
    }
}
