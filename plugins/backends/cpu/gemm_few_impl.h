/* SPDX-License-Identifier: Apache-2.0 */
/* A few rows times a matrix of weights whose rows lie along k. Each weight is read once, in place,
 * and transposed in registers, because packing would write all weights to memory and read them
 * again. Every element is summed as gemm_tile sums it, so the bits equal those of a product with
 * many rows. */

/* t[r] += a[r, 0..n) × rows [0, rows) of w at columns 0..n, for VW rows of w and n <= VW. */
INLINE void few_step(const int R, int64_t m, const float *a, int64_t lda, const float *w,
                     int64_t ldw, int rows, int64_t n, vf *t)
{
    vf v[VW];
    for (int i = 0; i < VW; i++)
        v[i] = i >= rows ? vset(0.0f)
               : n == VW ? vload(w + i * ldw)
                         : vload_part(w + i * ldw, n, 0);
    transpose(v);
    for (int64_t p = 0; p < n; p++)
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
            t[r] = vfma(vset(a[(r < m ? r : 0) * lda + p]), v[p], t[r]);
}

/* One block of k: C[m, VW] (+)= A W, m <= R. */
INLINE void few_block(const int R, int64_t m, int64_t k, const float *a, int64_t lda,
                      const float *w, int64_t ldw, int rows, vf *c, bool add)
{
    vf t[CPU_FEW_ROWS], sum[CPU_FEW_ROWS];
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += CPU_K_SUM) {
        const int64_t end = cpu_min(k, k0 + CPU_K_SUM);
        int64_t p = k0;
        for (int r = 0; r < R; r++)
            t[r] = vset(0.0f);
        for (; p + VW <= end; p += VW)
            few_step(R, m, a + p, lda, w + p, ldw, rows, VW, t);
        if (p < end)
            few_step(R, m, a + p, lda, w + p, ldw, rows, end - p, t);
        for (int r = 0; r < R; r++)
            sum[r] = k0 ? sum[r] + t[r] : t[r];
    }
    for (int r = 0; r < R; r++)
        c[r] = add ? c[r] + sum[r] : sum[r];
}

INLINE void few_columns(const int R, int64_t m, int64_t k, int64_t k_block, const float *a,
                        int64_t lda, const float *w, int64_t ldw, int rows, float *c, int64_t ldc,
                        bool add)
{
    vf sum[CPU_FEW_ROWS];
    for (int r = 0; r < R; r++)
        sum[r] = !add || r >= m ? vset(0.0f)
                 : rows == VW   ? vload(c + r * ldc)
                                : vload_part(c + r * ldc, rows, 0.0f);
    for (int64_t k0 = 0; k0 < k; k0 += k_block)
        few_block(R, m, cpu_min(k_block, k - k0), a + k0, lda, w + k0, ldw, rows, sum,
                  add || k0 > 0);
    for (int64_t r = 0; r < m; r++) {
        if (rows == VW)
            vstore(c + r * ldc, sum[r]);
        else
            vstore_part(c + r * ldc, sum[r], rows);
    }
}

/* C[m, n] (+)= A[m, k] Wᵀ, W [n, k], m <= CPU_FEW_ROWS. */
static void gemm_few(const cpu_gemm_call *g, int64_t k_block, int64_t begin, int64_t end)
{
    for (int64_t j = begin; j < end; j += VW) {
        const int rows = (int)cpu_min(VW, end - j);
        const float *w = g->b.p + j * g->b.cs;
        float *c = g->c + j;
#define FEW(R)                                                                                     \
    few_columns(R, g->m, g->k, k_block, g->a.p, g->a.rs, w, g->b.cs, rows, c, g->ldc, g->add)
        if (g->m == 1)
            FEW(1);
        else if (g->m == 2)
            FEW(2);
        else if (g->m <= 4)
            FEW(4);
        else if (g->m <= 8)
            FEW(8);
        else
            FEW(CPU_FEW_ROWS);
#undef FEW
    }
}
