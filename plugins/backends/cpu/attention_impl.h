/* SPDX-License-Identifier: Apache-2.0 */
/* Tiled attention forward (Dao et al. 2022, arXiv:2205.14135): ATTN_QUERIES queries against blocks
 * of FWD_KEYS keys with an online softmax in base 2. A row's bits do not depend on which rows are
 * computed together with it. Included after attention_tile_impl.h. Naive twin: ref_attention in
 * backends/reference/attention.c. */
#define FWD_KEYS 96
#define UNSEEN -1e30f /* below any score: the running maximum of a row that has seen no key */

/* The state of one block of queries that is updated key by key. */
typedef struct fwd_block {
    float q[CPU_MAX_HEAD_DIM * ATTN_QUERIES], o[CPU_MAX_HEAD_DIM * ATTN_QUERIES];
    float s[FWD_KEYS * ATTN_QUERIES]; /* scores, then weights */
    float top[ATTN_QUERIES], sum[ATTN_QUERIES];
    int32_t pos[ATTN_QUERIES], seg[ATTN_QUERIES], extremes[ATTN_VECS * 4], all[4];
    int32_t token_index[ATTN_QUERIES]; /* with dropout */
} fwd_block;

/* Caps, biases and masks one vector's scores of a span, in base 2, in place. Returns the maxima. */
INLINE vf fwd_finish(const cpu_attn *a, float *s, int64_t key, vi pos, vi seg, bool whole)
{
    vf high[4];
    if (a->softcap > 0.0f) {
        const vf inverse = vset(1.0f / a->softcap), cap = vset(a->softcap * LOG2E);
        for (int64_t j = 0; j < CPU_SPAN; j++)
            vstore(s + j * ATTN_QUERIES, vtanh(vload(s + j * ATTN_QUERIES) * inverse) * cap);
    }
    if (a->bias)
        for (int64_t j = 0; j < CPU_SPAN; j++)
            vstore(s + j * ATTN_QUERIES, vload(s + j * ATTN_QUERIES) + attn_bias(a, pos, key + j));
    if (!whole)
        for (int64_t j = 0; j < CPU_SPAN; j++)
            vstore(s + j * ATTN_QUERIES, vselect(attn_mask(a, pos, seg, key + j),
                                                 vload(s + j * ATTN_QUERIES), vset(-INFINITY)));
    for (int64_t j = 0; j < 4; j++)
        high[j] = vload(s + j * ATTN_QUERIES);
    for (int64_t j = 4; j < CPU_SPAN; j += 4)
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; i++)
            high[i] = vmax(high[i], vload(s + (j + i) * ATTN_QUERIES));
    return vmax(vmax(high[0], high[1]), vmax(high[2], high[3]));
}

/* Turns one vector's scores of a span into weights. Eight keys are summed as a tree, then added. */
INLINE vf fwd_weights(float *s, vf top, vf sum)
{
    for (int64_t j = 0; j < CPU_SPAN; j += 8) {
        vf e[8];
#pragma GCC unroll 8
        for (int64_t i = 0; i < 8; i++) {
            e[i] = vexp2(vload(s + (j + i) * ATTN_QUERIES) - top);
            vstore(s + (j + i) * ATTN_QUERIES, e[i]);
        }
        sum += ((e[0] + e[1]) + (e[2] + e[3])) + ((e[4] + e[5]) + (e[6] + e[7]));
    }
    return sum;
}

/* Dropout of one vector's weights of a span, after they are summed. */
static void fwd_drop(const cpu_attn *a, const int32_t *token_index, float *s, int64_t key)
{
    vf factors[CPU_SPAN];
    drop_factors(a, key, token_index, factors);
    for (int64_t j = 0; j < CPU_SPAN; j++)
        vstore(s + j * ATTN_QUERIES, vload(s + j * ATTN_QUERIES) * factors[j]);
}

/* A step of the online softmax over the block's n spans of scores. */
INLINE void fwd_softmax(const cpu_attn *a, fwd_block *f, const attn_span *s, int64_t n, int64_t k0)
{
    for (int v = 0; v < ATTN_VECS; v++) {
        const vf before = vload(f->top + v * VW);
        const vi pos = *(const vi_any *)(f->pos + v * VW), seg = *(const vi_any *)(f->seg + v * VW);
        vf top = before, sum = vload(f->sum + v * VW);
        float *x = f->s + v * VW;
        for (int64_t i = 0; i < n; i++)
            if (v >= s[i].v0 && v < s[i].v1)
                top = vmax(top, fwd_finish(a, x + i * CPU_SPAN * ATTN_QUERIES, k0 + i * CPU_SPAN,
                                           pos, seg, s[i].whole));
        const vf shrink = vexp2(before - top); /* 1 where the maximum is unchanged */
        if (vany(top > before)) {
            sum *= shrink;
            for (int64_t d = 0; d < a->dv; d++) {
                float *o = f->o + d * ATTN_QUERIES + v * VW;
                vstore(o, vload(o) * shrink);
            }
        }
        for (int64_t i = 0; i < n; i++)
            if (v >= s[i].v0 && v < s[i].v1)
                sum = fwd_weights(x + i * CPU_SPAN * ATTN_QUERIES, top, sum);
        for (int64_t i = 0; a->kept > 0.0f && i < n; i++)
            if (v >= s[i].v0 && v < s[i].v1)
                fwd_drop(a, f->token_index + v * VW, x + i * CPU_SPAN * ATTN_QUERIES,
                         k0 + i * CPU_SPAN);
        vstore(f->top + v * VW, top);
        vstore(f->sum + v * VW, sum);
    }
}

/* What a row's output is multiplied by at the end, and its lse. A row that saw no key is 0. */
INLINE float attn_close(float top, float sum, const float *sink, float *lse)
{
    bool seen = top > UNSEEN || top != top || sum != sum;
    if (seen && sink) {
        float s = *sink * LOG2E, high = s > top ? s : top, e[VW];
        vf both = vset(s - high);
        both[1] = top - high;
        vstore(e, vexp2(both));
        sum = sum * e[1] + e[0];
        *lse = (high + log2f(sum)) / LOG2E;
        return e[1] / sum;
    }
    *lse = seen ? (top + log2f(sum)) / LOG2E : sink ? *sink : -INFINITY;
    return seen ? 1.0f / sum : 0.0f;
}

INLINE void fwd_open(const cpu_attn *a, fwd_block *f, const float *q, int64_t t, int64_t rows)
{
    attn_columns(q + t * a->ldq, a->ldq, rows, a->hd,
                 a->softcap > 0.0f ? a->scale : a->scale * LOG2E, f->q);
    memset(f->o, 0, (size_t)(a->dv_pad * ATTN_QUERIES) * sizeof(float));
    for (int64_t r = 0; r < ATTN_QUERIES; r++) {
        f->top[r] = UNSEEN;
        f->sum[r] = 0.0f;
        f->pos[r] = r < rows ? a->pos_q[t + r] : 0;
        f->seg[r] = r < rows ? a->seg_q[t + r] : CPU_NO_SEGMENT;
        f->token_index[r] = a->kept > 0.0f && r < rows ? a->token_index[t + r] : 0;
    }
    for (int64_t v = 0; v < ATTN_VECS; v++)
        cpu_attn_extremes(f->pos + v * VW, f->seg + v * VW, cpu_min(VW, rows - v * VW),
                          f->extremes + 4 * v);
    cpu_attn_extremes(f->pos, f->seg, rows, f->all);
}

/* Does any query of the block see a key of the n spans from `first`? */
INLINE bool fwd_sees(const cpu_attn *a, const int32_t all[4], int64_t first, int64_t n)
{
    bool any = false;
    for (int64_t i = first; i < first + n; i++)
        any = any || cpu_attn_visible(a, all, a->spans + 4 * i);
    return any;
}

INLINE void fwd_close(const cpu_attn *a, fwd_block *f, const float *sink, float *out, float *lse,
                      int64_t ld_lse, int64_t rows)
{
    float factor[ATTN_QUERIES] = {0};
    for (int64_t r = 0; r < rows; r++) {
        factor[r] = attn_close(f->top[r], f->sum[r], sink, lse + r * ld_lse);
        if (!(f->top[r] > UNSEEN) && f->top[r] == f->top[r] && f->sum[r] == f->sum[r])
            /* stored as 0, not multiplied by 0: the sum may hold NaN or infinity */
            for (int64_t d = 0; d < a->dv; d++)
                f->o[d * ATTN_QUERIES + r] = 0.0f;
    }
    for (int64_t v = 0; v * VW < rows; v++) {
        const vf x = vload(factor + v * VW);
        for (int64_t d = 0; d < a->dv; d++) {
            float *o = f->o + d * ATTN_QUERIES + v * VW;
            vstore(o, vload(o) * x);
        }
    }
    const float *o = f->o;
    attn_give(&o, 1, 1.0f, rows, a->dv, out, a->ldo);
}

/* Rows of one head are a token apart, which the hardware prefetcher does not follow: prefetch them
 * one block ahead. */
INLINE void attn_prefetch(const float *x, int64_t ld, int64_t n, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < cpu_min(end, begin + ATTN_QUERIES); r++)
        for (int64_t d = 0; d < n; d += 16)
            __builtin_prefetch(x + r * ld + d);
}

/* Queries [begin, end) of one head; k [tk_pad,hd_pad], v [tk_pad,dv_pad]. */
static void attn_fwd(const cpu_attn *a, const float *k, const float *v, const float *q, float *out,
                     float *lse, int64_t ld_lse, const float *sink, int64_t begin, int64_t end)
{
    fwd_block f;
    for (int64_t t = begin; t < end; t += ATTN_QUERIES) {
        const int64_t rows = cpu_min(ATTN_QUERIES, end - t);
        fwd_open(a, &f, q, t, rows);
        attn_prefetch(q, a->ldq, a->hd, t + ATTN_QUERIES, end);
        attn_prefetch(out, a->ldo, a->dv, t, end);
        for (int64_t k0 = 0; k0 < a->tk_pad; k0 += FWD_KEYS) {
            attn_span s[FWD_KEYS / CPU_SPAN];
            const int64_t n = cpu_min(FWD_KEYS, a->tk_pad - k0) / CPU_SPAN;
            if (!fwd_sees(a, f.all, k0 / CPU_SPAN, n) ||
                !attn_spans(a, f.extremes, k0 / CPU_SPAN, n, s))
                continue;
            for (int64_t i = 0; i < n; i++)
                if (s[i].v1 > s[i].v0)
                    attn_dots(s[i].v1 - s[i].v0, a->hd, k + (k0 + i * CPU_SPAN) * a->hd_pad,
                              a->hd_pad, f.q + s[i].v0 * VW,
                              f.s + i * CPU_SPAN * ATTN_QUERIES + s[i].v0 * VW);
            fwd_softmax(a, &f, s, n, k0);
            attn_mix_spans(s, n, v + k0 * a->dv_pad, a->dv_pad, a->dv, f.s, f.o);
        }
        fwd_close(a, &f, sink, out + t * a->ldo, lse + t * ld_lse, ld_lse, rows);
    }
}

/* The largest scale q·k of queries [begin, end) of one head over the keys that they see; -inf: they see none.
 * a has neither softcap nor bias. */
static float attn_top(const cpu_attn *a, const float *k, const float *q, int64_t begin, int64_t end)
{
    fwd_block f;
    float most = -INFINITY;
    for (int64_t t = begin; t < end; t += ATTN_QUERIES) {
        const int64_t rows = cpu_min(ATTN_QUERIES, end - t);
        fwd_open(a, &f, q, t, rows);
        attn_columns(q + t * a->ldq, a->ldq, rows, a->hd, a->scale, f.q); /* not in base 2 */
        for (int64_t k0 = 0; k0 < a->tk_pad; k0 += FWD_KEYS) {
            attn_span s[FWD_KEYS / CPU_SPAN];
            const int64_t n = cpu_min(FWD_KEYS, a->tk_pad - k0) / CPU_SPAN;
            if (!fwd_sees(a, f.all, k0 / CPU_SPAN, n) ||
                !attn_spans(a, f.extremes, k0 / CPU_SPAN, n, s))
                continue;
            for (int64_t i = 0; i < n; i++) {
                float *x = f.s + i * CPU_SPAN * ATTN_QUERIES;
                if (s[i].v1 > s[i].v0)
                    attn_dots(s[i].v1 - s[i].v0, a->hd, k + (k0 + i * CPU_SPAN) * a->hd_pad,
                              a->hd_pad, f.q + s[i].v0 * VW, x + s[i].v0 * VW);
                for (int v = (int)s[i].v0; v < s[i].v1; v++) {
                    const vi pos = *(const vi_any *)(f.pos + v * VW),
                             seg = *(const vi_any *)(f.seg + v * VW);
                    vstore(f.top + v * VW,
                           vmax(vload(f.top + v * VW), fwd_finish(a, x + v * VW, k0 + i * CPU_SPAN,
                                                                  pos, seg, s[i].whole)));
                }
            }
        }
        for (int64_t r = 0; r < rows; r++)
            if (f.top[r] > UNSEEN)
                most = f.top[r] > most ? f.top[r] : most;
    }
    return most;
}
