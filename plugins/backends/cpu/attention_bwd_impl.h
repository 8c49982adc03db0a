/* SPDX-License-Identifier: Apache-2.0 */
/* Attention backward: one block of CPU_KEYS keys against blocks of queries of one head. Weights are
 * recomputed from lse; dk and dv of the block stay in cache, dq is added to block by block. As in
 * the forward, each vector lane is a query. */

/* For one vector of queries and a span of keys: p turns from scores into weights, d from d(weights)
 * into d(scores before scale). biased: there is a bias; dbias: NULL, or its derivative, added to. drops: the
 * weights in the output are those of the softmax times `factors`, by key. */
INLINE void bwd_finish(const cpu_attn *a, const bool biased, double *dbias, const bool drops,
                       const vf *factors, float *p, float *d, int64_t key, vi pos, vi seg,
                       bool whole, vf lse, vf delta)
{
    const vf inverse = vset(a->softcap > 0.0f ? 1.0f / a->softcap : 0.0f),
             cap = vset(a->softcap * LOG2E);
#pragma GCC unroll 4
    for (int64_t j = 0; j < CPU_SPAN; j++, p += ATTN_QUERIES, d += ATTN_QUERIES) {
        vf s = vload(p), slope = vset(1.0f);
        if (a->softcap > 0.0f) {
            const vf th = vtanh(s * inverse);
            s = th * cap;
            slope = 1.0f - th * th;
        }
        if (biased)
            s += attn_bias(a, pos, key + j);
        vf w = vexp2(s - lse);
        if (!whole)
            w = (vf)((vi)w & attn_mask(a, pos, seg, key + j));
        vstore(p, drops ? w * factors[j] : w);
        w *= (drops ? vload(d) * factors[j] : vload(d)) - delta;
        if (biased && dbias) {
            const vi at = attn_bias_at(a, pos, key + j);
            for (int r = 0; r < VW; r++)
                dbias[at[r]] += (double)w[r];
        }
        vstore(d, a->softcap > 0.0f ? w * slope : w);
    }
}

/* C [CPU_SPAN keys, width] += A B over nv vectors of queries: A [CPU_SPAN][ATTN_QUERIES], B [..,
 * width], width a multiple of VW. */
INLINE void bwd_gather(int nv, const float *a, const float *b, int64_t width, float *c)
{
    int64_t d = 0;
    for (; d + 2 * VW <= width; d += 2 * VW)
        for (int64_t j = 0; j < CPU_SPAN; j += ATTN_TILE)
            attn_tile(ATTN_TILE, 2, nv * VW, a + j * ATTN_QUERIES, ATTN_QUERIES, 1, b + d, width,
                      c + j * width + d, width, true);
    if (d < width)
        for (int64_t j = 0; j < CPU_SPAN; j += 2 * ATTN_TILE)
            attn_tile(2 * ATTN_TILE, 1, nv * VW, a + j * ATTN_QUERIES, ATTN_QUERIES, 1, b + d,
                      width, c + j * width + d, width, true);
}

/* The weights and d(scores) of span j of a block of keys, and what they add to dk and dv. q: first
 * query of the block, t: its place in the ring. */
INLINE void bwd_span(const cpu_attn_bwd *b, const attn_span *s, int64_t j, int64_t key, int64_t q,
                     int64_t t)
{
    const cpu_attn *a = &b->a;
    const int64_t at = s->v0 * VW;
    const int nv = s->v1 - s->v0;
    float *p = b->work + j * CPU_SPAN * ATTN_QUERIES + at, *d = p + CPU_KEYS * ATTN_QUERIES;
    j *= CPU_SPAN;
    attn_dots(nv, a->hd, b->k + j * a->hd_pad, a->hd_pad, b->q_col + t * a->hd + at, p);
    attn_dots(nv, a->dv, b->v + j * a->dv_pad, a->dv_pad, b->dout_col + t * a->dv + at, d);
    q += at;
    t += at;
    for (int v = 0; v < nv; v++) {
        const vi pos = *(const vi_any *)(a->pos_q + q + v * VW),
                 seg = *(const vi_any *)(a->seg_q + q + v * VW);
        const vf lse = vload(b->lse + t + v * VW), delta = vload(b->delta + t + v * VW);
        float *const pv = p + v * VW, *const dv = d + v * VW;
        if (a->kept > 0.0f) {
            vf factors[CPU_SPAN];
            drop_factors(a, key, a->token_index + q + v * VW, factors);
            if (a->bias)
                bwd_finish(a, true, b->dbias, true, factors, pv, dv, key, pos, seg, s->whole, lse,
                           delta);
            else
                bwd_finish(a, false, NULL, true, factors, pv, dv, key, pos, seg, s->whole, lse,
                           delta);
        } else if (a->bias) {
            bwd_finish(a, true, b->dbias, false, NULL, pv, dv, key, pos, seg, s->whole, lse, delta);
        } else {
            bwd_finish(a, false, NULL, false, NULL, pv, dv, key, pos, seg, s->whole, lse, delta);
        }
    }
    bwd_gather(nv, p, b->dout + t * a->dv_pad, a->dv_pad, b->dv + j * a->dv_pad);
    bwd_gather(nv, d, b->q + t * a->hd_pad, a->hd_pad, b->dk + j * a->hd_pad);
}

/* The block of keys that begins at k0 against blocks [q0, q1) of queries. */
static void attn_bwd(const cpu_attn_bwd *b, int64_t k0, int64_t q0, int64_t q1)
{
    const cpu_attn *a = &b->a;
    const int64_t n = CPU_KEYS / CPU_SPAN;
    for (int64_t i = q0; i < q1; i++) {
        attn_span s[CPU_KEYS / CPU_SPAN];
        if (!attn_spans(a, b->extremes + i * ATTN_VECS * 4, k0 / CPU_SPAN, n, s))
            continue;
        const int64_t t = i % b->ring * ATTN_QUERIES;
        for (int64_t j = 0; j < n; j++)
            if (s[j].v1 > s[j].v0)
                bwd_span(b, &s[j], j, k0 + j * CPU_SPAN, i * ATTN_QUERIES, t);
        attn_mix_spans(s, n, b->k, a->hd_pad, a->hd, b->work + CPU_KEYS * ATTN_QUERIES,
                       b->dq + t * a->hd_pad);
    }
}
