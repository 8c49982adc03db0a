/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of scan.c and of delta_rule's cached form. One token of the recurrence: `rows` decays a, of each of which `m` states follow each other
 * in memory. There is no multiply-add, so every instruction set gives the same h and dx. */

/* h = a prev + x; h may be x. A whole vector, or its first k elements. */
INLINE void scan_vector(vf a, const float *prev, const float *x, float *h, int64_t k)
{
    if (k >= VW)
        vstore(h, a * vload(prev) + vload(x));
    else
        vstore_part(h, a * vload_part(prev, k, 0.0f) + vload_part(x, k, 0.0f), k);
}

static void scan_token(int64_t rows, int64_t m, const float *a, const float *prev, const float *x,
                       float *h)
{
    if (m == 1) {
        for (int64_t i = 0; i < rows; i += VW)
            scan_vector(operand(a, i, cpu_min(rows - i, VW), false, 0.0f), prev + i, x + i, h + i,
                        rows - i);
        return;
    }
    for (int64_t r = 0; r < rows; r++, prev += m, x += m, h += m)
        for (int64_t i = 0; i < m; i += VW)
            scan_vector(vset(a[r]), prev + i, x + i, h + i, m - i);
}

/* dx = dh + a next, or dh if next (the dx of the token after) is NULL; dx may be dh. Returns dx * prev,
 * the part of da, or 0 if prev (the h of the token before) is NULL. */
INLINE vf scan_bwd_vector(vf a, const float *next, const float *prev, const float *dh, float *dx,
                          int64_t k)
{
    const int64_t n = cpu_min(k, VW);
    vf g = operand(dh, 0, n, false, 0.0f);
    if (next)
        g = g + a * operand(next, 0, n, false, 0.0f);
    if (k >= VW)
        vstore(dx, g);
    else
        vstore_part(dx, g, k);
    return prev ? g * operand(prev, 0, n, false, 0.0f) : vset(0.0f);
}

/* The same for all rows; da [rows] = Σ dx prev over the states of a row. `a` is that of the token after. */
static void scan_token_bwd(int64_t rows, int64_t m, const float *a, const float *next,
                           const float *prev, const float *dh, float *dx, float *da)
{
    if (m == 1) {
        for (int64_t i = 0; i < rows; i += VW) {
            const int64_t k = rows - i, n = cpu_min(k, VW);
            const vf d =
                scan_bwd_vector(next ? operand(a, i, n, false, 0.0f) : vset(0.0f),
                                next ? next + i : NULL, prev ? prev + i : NULL, dh + i, dx + i, k);
            if (k >= VW)
                vstore(da + i, d);
            else
                vstore_part(da + i, d, k);
        }
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const vf decay = vset(next ? a[r] : 0.0f);
        vf sum = vset(0.0f);
        for (int64_t i = r * m; i < (r + 1) * m; i += VW)
            sum += scan_bwd_vector(decay, next ? next + i : NULL, prev ? prev + i : NULL, dh + i,
                                   dx + i, (r + 1) * m - i);
        da[r] = vsum(sum);
    }
}

/* y = the cumulative sums of CPU_LANES adjacent columns over n rows, which are `step` elements apart
 * (negative: from the last row up). Sums in f64, each rounded once. */
static void scan_columns(int64_t n, int64_t step, const float *x, float *y, bool exclusive)
{
    vd sum[2 * CPU_LANES / VW];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * CPU_LANES / VW; i++)
        sum[i] = (vd){0};
    for (int64_t k = 0; k < n; k++, x += step, y += step)
#pragma GCC unroll 4
        for (int i = 0; i < CPU_LANES / VW; i++) {
            const vf v = vload(x + i * VW);
            const vd low = sum[2 * i] + vlow(v), high = sum[2 * i + 1] + vhigh(v);
            *(vh_any *)(y + i * VW) = __builtin_convertvector(exclusive ? sum[2 * i] : low, vh);
            *(vh_any *)(y + i * VW + VW / 2) =
                __builtin_convertvector(exclusive ? sum[2 * i + 1] : high, vh);
            sum[2 * i] = low;
            sum[2 * i + 1] = high;
        }
}

/* n <= DELTA_VECTORS vectors of columns of a head's state S [rows, ld], of the last one the first `part` elements:
 * d = beta (v - decay Sᵀ k); S = decay S + k dᵀ; out = Sᵀ q. */
#define DELTA_VECTORS 4

INLINE vf delta_load(const float *p, int64_t part)
{
    return part < VW ? vload_part(p, part, 0.0f) : vload(p);
}

INLINE void delta_store(float *p, vf x, int64_t part)
{
    if (part < VW)
        vstore_part(p, x, part);
    else
        vstore(p, x);
}

INLINE void delta_columns(int n, int64_t part, int64_t rows, int64_t ld, const float *q,
                          const float *k, const float *v, float decay, float beta, float *state,
                          float *out)
{
    vf known[DELTA_VECTORS], sum[DELTA_VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < n; j++)
        known[j] = sum[j] = vset(0.0f);
    for (int64_t i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++)
            known[j] = vfma(vset(k[i]), delta_load(state + i * ld + j * VW, j == n - 1 ? part : VW),
                            known[j]);
#pragma GCC unroll 4
    for (int j = 0; j < n; j++)
        known[j] =
            vset(beta) * (delta_load(v + j * VW, j == n - 1 ? part : VW) - vset(decay) * known[j]);
    for (int64_t i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) {
            float *at = state + i * ld + j * VW;
            const int64_t here = j == n - 1 ? part : VW;
            const vf s = vfma(vset(k[i]), known[j], vset(decay) * delta_load(at, here));
            delta_store(at, s, here);
            sum[j] = vfma(vset(q[i]), s, sum[j]);
        }
#pragma GCC unroll 4
    for (int j = 0; j < n; j++)
        delta_store(out + j * VW, sum[j], j == n - 1 ? part : VW);
}

/* One token of one head: q, k [rows], v, out [cols], state [rows, cols]. */
static void delta_token(int64_t rows, int64_t cols, const float *q, const float *k, const float *v,
                        float decay, float beta, float *state, float *out)
{
    int64_t e = 0;
    for (; e + DELTA_VECTORS * VW <= cols; e += DELTA_VECTORS * VW)
        delta_columns(DELTA_VECTORS, VW, rows, cols, q, k, v + e, decay, beta, state + e, out + e);
    for (; e < cols; e += VW)
        delta_columns(1, cpu_min(VW, cols - e), rows, cols, q, k, v + e, decay, beta, state + e,
                      out + e);
}
