/* SPDX-License-Identifier: Apache-2.0 */
/* Attention forward in AMX tiles. Products are computed as in gemm_amx.c (each f32 is three bf16,
 * and six of the nine products are computed), the softmax in f32. A block is SIX_QUERIES queries,
 * one per vector lane as in attention_impl.h; a panel is CPU_PANEL keys. While the tiles compute
 * the scores of the next panel and add the previous panel to the output, vector instructions turn
 * this panel's scores into weights. Included after attention_impl.h. Naive twin: ref_attention in
 * backends/reference/attention.c. */
#include "attention_amx_pack_impl.h"

#include "attention_amx_tile_impl.h"

/* A row's reference value, subtracted before exp, rises only when the row's maximum has risen by
 * more than this: weights reach 2^8, and outputs are seldom rescaled. Each row decides for itself,
 * so its bits do not depend on other rows. */
#define SIX_SLACK 8.0f

/* The next panel at or after `at` that any of the queries sees. */
INLINE six_panel six_next(const cpu_attn *a, const six_block *b, int64_t at)
{
    for (; at < b->panels[1]; at++) {
        const int32_t *k = a->spans + at * (CPU_PANEL / CPU_SPAN) * 4, *q = b->extremes;
        six_panel p = {.at = at, .v0 = 2, .whole = true};
        for (int v = 0; v < 2; v++, q += 4)
            if (cpu_attn_visible(a, q, k) || cpu_attn_visible(a, q, k + 4)) {
                p.v0 = v < p.v0 ? v : p.v0;
                p.v1 = v + 1;
                p.whole = p.whole && attn_whole(a, q, k) && attn_whole(a, q, k + 4);
            }
        if (p.v0 < p.v1)
            return p;
    }
    return (six_panel){.at = at};
}

/* The range of panels that queries [begin, end) see; computed once for all of their blocks. */
INLINE void six_range(const cpu_attn *a, six_block *b, int64_t begin, int64_t end)
{
    int32_t all[4];
    cpu_attn_extremes(a->pos_q + begin, a->seg_q + begin, end - begin, all);
    b->panels[0] = b->panels[1] = 0;
    for (int64_t i = 0; i < a->tk_pad / CPU_SPAN; i++)
        if (cpu_attn_visible(a, all, a->spans + 4 * i)) {
            if (!b->panels[1])
                b->panels[0] = i * CPU_SPAN / CPU_PANEL;
            b->panels[1] = i * CPU_SPAN / CPU_PANEL + 1;
        }
}

/* Caps and masks the panel's scores and updates the rows' references; returns whether any reference
 * rises. */
INLINE bool six_rise(const cpu_attn *a, six_block *b)
{
    const int64_t key = b->now.at * CPU_PANEL;
    bool any = false;
    for (int v = b->now.v0; v < b->now.v1; v++) {
        const vi pos = *(const vi_any *)(b->pos + v * VW), seg = *(const vi_any *)(b->seg + v * VW);
        const vf before = b->top[v];
        float *s = b->now.s + v * VW;
        const vf low = fwd_finish(a, s, key, pos, seg, b->now.whole),
                 high = vmax(low, fwd_finish(a, s + CPU_SPAN * ATTN_QUERIES, key + CPU_SPAN, pos,
                                             seg, b->now.whole));
        const vi rise = high > before + SIX_SLACK;
        b->shrink[v] = vset(1.0f);
        if (vany(rise)) {
            b->top[v] = vselect(rise, high, before);
            b->shrink[v] = vexp2(before - b->top[v]);
            b->sum[v] *= b->shrink[v];
            any = true;
        }
    }
    return any;
}

INLINE void six_shrink(const cpu_attn *a, six_block *b)
{
    for (int v = b->now.v0; v < b->now.v1; v++)
        for (int64_t d = 0; d < a->dv; d++) {
            float *o = b->o + d * SIX_QUERIES + v * VW;
            vstore(o, vload(o) * b->shrink[v]);
        }
}

INLINE void six_open(const cpu_attn *a, six_block *b, const float *q, int64_t t, int64_t rows)
{
    const vf factor = vset(a->softcap > 0.0f ? a->scale : a->scale * LOG2E);
    for (int v = 0; v < 2; v++) {
        const float *from = q + (t + v * VW) * a->ldq;
        for (int64_t d = 0; d < a->hd; d += 32) {
            uint16_t *dst = b->q + d / 32 * SIX_PARTS * SIX_PART + v * SIX_TILE;
            vf x[16], y[16];
            six_load_transposed(from + d, a->ldq, rows - v * VW, a->hd - d, x);
            if (a->hd - d > 16)
                six_load_transposed(from + d + 16, a->ldq, rows - v * VW, a->hd - d - 16, y);
            for (int i = 0; i < 16; i++)
                if (a->hd - d > 16)
                    split_row(x[i] * factor, y[i] * factor, dst + i * 32, SIX_PART);
                else
                    six_split_right(x[i] * factor, dst + i * 32);
        }
        b->top[v] = vset(UNSEEN);
        b->sum[v] = vset(0.0f);
    }
    memset(b->o, 0, (size_t)(cpu_round_up(a->dv, 16) * SIX_QUERIES) * sizeof(float));
    for (int64_t r = 0; r < SIX_QUERIES; r++) {
        b->pos[r] = r < rows ? a->pos_q[t + r] : 0;
        b->seg[r] = r < rows ? a->seg_q[t + r] : CPU_NO_SEGMENT;
    }
    for (int v = 0; v < 2; v++)
        cpu_attn_extremes(b->pos + v * VW, b->seg + v * VW, cpu_min(VW, rows - v * VW),
                          b->extremes + 4 * v);
    b->at = b->end = b->due = 0;
}

/* The panels one after another, alternating between two sets of buffers. */
INLINE void six_run(const cpu_attn *a, six_block *b, const uint16_t *k, const uint16_t *v)
{
    six_panel last = {0}, next = six_next(a, b, b->panels[0]);
    next.p = b->p[0];
    next.s = b->s[0];
    six_dots(a, k, next, b);
    for (int i = 1; next.v0 < next.v1; i = !i) {
        b->now = next;
        next = six_next(a, b, next.at + 1);
        next.p = b->p[i];
        next.s = b->s[i];
        const bool rises = six_rise(a, b);
        b->at = b->now.v0 * VW;
        b->end = b->now.v1 * VW;
        b->due = 0;
        six_dots(a, k, next, b);
        six_mix(a, v, last, b);
        while (b->at < b->end)
            six_weights(b);
        if (rises)
            six_shrink(a, b);
        last = b->now;
    }
    six_mix(a, v, last, b);
}

/* What a vector of rows is multiplied by at the end, and the rows' lse; returns which rows saw a
 * key. */
INLINE vi six_factors(const six_block *b, int v, const float *sink, vf *factor, vf *lse)
{
    const vf top = b->top[v], sum = b->sum[v];
    const vi seen = (top > vset(UNSEEN)) | (sum != sum);
    if (!sink) {
        *factor = (vf)((vi)(1.0f / sum) & seen);
        *lse = vselect(seen, vfma(top, vset(1.0f / LOG2E), vlog(sum)), vset(-INFINITY));
        return seen;
    }
    float t[VW], s[VW], f[VW], l[VW];
    vstore(t, top);
    vstore(s, sum);
    for (int r = 0; r < VW; r++)
        f[r] = attn_close(t[r], s[r], sink, l + r);
    *factor = vload(f);
    *lse = vload(l);
    return seen;
}

/* Returns whether every row that saw a key is finite. */
INLINE bool six_close(const cpu_attn *a, const six_block *b, const float *sink, float *out,
                      float *lse, int64_t ld_lse, int64_t rows)
{
    vi bad = vseti(0);
    for (int64_t v = 0; v * VW < rows; v++) {
        const int64_t n = cpu_min(VW, rows - v * VW);
        vf factor, l;
        const vi seen = six_factors(b, (int)v, sink, &factor, &l);
        vf zero = (vf)((vi)(l * 0.0f) & seen); /* stays, of what is finite */
        for (int64_t d = 0; d < a->dv; d += VW) {
            const float *o = b->o + d * SIX_QUERIES + v * VW;
            vf x[VW];
            for (int i = 0; i < VW; i++) {
                x[i] = (vf)((vi)(vload(o + i * SIX_QUERIES) * factor) & seen);
                zero = vfma(x[i], vset(0.0f), zero);
            }
            transpose(x);
            for (int64_t r = 0; r < n; r++)
                _mm512_mask_storeu_ps(out + (v * VW + r) * a->ldo + d, vmask(a->dv - d),
                                      (__m512)x[r]);
        }
        for (int64_t r = 0; r < VW; r++) {
            if (r < n)
                lse[(v * VW + r) * ld_lse] = l[r];
            bad[r] |= r < n && zero[r] != 0.0f ? -1 : 0;
        }
    }
    return !vany(bad);
}

INLINE cpu_fetch six_fetch(const float *x, int64_t ld, int64_t n, int64_t begin, int64_t end)
{
    return (cpu_fetch){.p = x + begin * ld,
                       .stride = ld,
                       .lines = (n * 4 + CPU_LINE - 1) / CPU_LINE,
                       .n_rows = cpu_max(0, cpu_min(SIX_QUERIES, end - begin)),
                       .step = 2};
}

/* Queries [begin, end) of one head. Returns false if some row is not finite: then multiply-adds
 * have to compute the whole block. */
static bool six_fwd(const cpu_attn *a, const void *k, const void *v, const float *q, float *out,
                    float *lse, int64_t ld_lse, const float *sink, int64_t begin, int64_t end)
{
    six_block b;
    bool finite = true;
    b.products = (int)(a->hd / 32 * 6 +
                       (a->hd % 32 > 16 ? 6
                        : a->hd % 32    ? 3
                                        : 0) +
                       (a->dv + 31) / 32 * 6);
    six_range(a, &b, begin, end);
    cpu_amx_begin();
    for (int64_t t = begin; t < end; t += SIX_QUERIES) {
        const int64_t rows = cpu_min(SIX_QUERIES, end - t);
        six_open(a, &b, q, t, rows);
        b.fetch[0] = six_fetch(q, a->ldq, a->hd, t + rows, end);
        b.fetch[1] = six_fetch(out, a->ldo, a->dv, t, t + rows);
        six_run(a, &b, k, v);
        finite &= six_close(a, &b, sink, out + t * a->ldo, lse + t * ld_lse, ld_lse, rows);
    }
    cpu_amx_end();
    return finite;
}

static const cpu_attn_tiles six_tiles = {
    .pack_keys = six_pack_keys, .pack_values = six_pack_values, .fwd = six_fwd};
