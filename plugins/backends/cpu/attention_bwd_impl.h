/* SPDX-License-Identifier: Apache-2.0 */
/* Attention backward: one block of CPU_KEYS keys against all queries of one head. Weights are
 * computed again from lse; dk and dv of the block stay in cache, dq is added to block by block. */
#if CPU_LEVEL == 5
#define BWD_COLUMNS 8 /* keys a register tile of dk, dv */
#else
#define BWD_COLUMNS 4
#endif

/* p: scores → weights; d: d(weights) → d(scores before scale). Rows of CPU_KEYS. */
INLINE void bwd_row(const cpu_attn *a, float *p, float *d, int64_t j0, int64_t j1, int64_t key0,
                    int32_t pos, int32_t seg, bool whole, float lse, float delta)
{
    const vf shift = vset(lse), dl = vset(delta);
    if (a->softcap > 0.0f) {
        const vf scale = vset(a->scale / a->softcap), cap = vset(a->softcap * LOG2E);
        for (int64_t j = j0; j < j1; j += VW) {
            vf th = vtanh(vload(p + j) * scale);
            vf w = vexp2_negative(th * cap - shift);
            if (!whole)
                w = (vf)((vi)w & attn_mask(a, pos, seg, key0 + j));
            vstore(p + j, w);
            vstore(d + j, w * (vload(d + j) - dl) * (1.0f - th * th));
        }
        return;
    }
    const vf scale = vset(a->scale * LOG2E);
    for (int64_t j = j0; j < j1; j += VW) {
        vf w = vexp2_negative(vload(p + j) * scale - shift);
        if (!whole)
            w = (vf)((vi)w & attn_mask(a, pos, seg, key0 + j));
        vstore(p + j, w);
        vstore(d + j, w * (vload(d + j) - dl));
    }
}

static void attn_bwd(const cpu_attn_bwd *b, int64_t k0)
{
    const cpu_attn *a = &b->a;
    float *p = b->work, *d = b->work + CPU_QUERIES * CPU_KEYS;
    for (int64_t t = 0; t < a->tq; t += CPU_QUERIES) {
        int64_t p0, p1;
        bool whole;
        if (!attn_range(a, b->extremes + t / CPU_QUERIES * 4, k0 / CPU_PANEL, CPU_KEYS / CPU_PANEL,
                        &p0, &p1, &whole))
            continue;
        const int64_t rows = cpu_min(CPU_QUERIES, a->tq - t), j0 = p0 * CPU_PANEL,
                      j1 = p1 * CPU_PANEL, n = j1 - j0;
        const float *q = b->q + t * a->hd_pad, *dout = b->dout + t * a->dv_pad;
        for (int64_t r = 0; r < CPU_QUERIES; r += ATTN_ROWS)
            for (int64_t j = j0; j < j1; j += NR) {
                attn_scores(a->hd, q + r * a->hd_pad, a->hd_pad, b->kt + (k0 + j) * a->hd,
                            p + r * CPU_KEYS + j, CPU_KEYS);
                attn_scores(a->dv, dout + r * a->dv_pad, a->dv_pad, b->vt + (k0 + j) * a->dv,
                            d + r * CPU_KEYS + j, CPU_KEYS);
            }
        for (int64_t r = 0; r < CPU_QUERIES; r++) {
            if (r < rows) {
                bwd_row(a, p + r * CPU_KEYS, d + r * CPU_KEYS, j0, j1, k0, a->pos_q[t + r],
                        a->seg_q[t + r], whole, b->lse[t + r], b->delta[t + r]);
            } else {
                memset(p + r * CPU_KEYS, 0, CPU_KEYS * sizeof(float));
                memset(d + r * CPU_KEYS, 0, CPU_KEYS * sizeof(float));
            }
        }
        for (int64_t j = j0; j < j1; j += BWD_COLUMNS) {
            attn_accumulate(BWD_COLUMNS, rows, p + j, 1, CPU_KEYS, dout, a->dv_pad,
                            b->dv + j * a->dv_pad);
            attn_accumulate(BWD_COLUMNS, rows, d + j, 1, CPU_KEYS, q, a->hd_pad,
                            b->dk + j * a->hd_pad);
        }
        for (int64_t r = 0; r < CPU_QUERIES; r += ATTN_ROWS)
            attn_accumulate(ATTN_ROWS, n, d + r * CPU_KEYS + j0, CPU_KEYS, 1,
                            b->kr + (k0 + j0) * a->hd_pad, a->hd_pad, b->dq + (t + r) * a->hd_pad);
    }
}
