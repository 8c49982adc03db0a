/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix product's inner parts: packing into panels and a register tile of MR × NR. */

/* One panel of `width` rows of a row-major matrix (cs 1), k columns: dst[p * width + r]. Missing
 * rows are zero. Stores are whole vectors; what spills over a column's `width` is overwritten by
 * the next one, at the end by the caller's slack. */
INLINE void pack_rows(const float *p, int64_t rs, int64_t rows, int64_t k, int width, float *dst)
{
    int64_t c = 0;
    for (int r0 = 0; r0 < width; r0 += VW) {
        int count = (int)cpu_max(0, cpu_min(VW, rows - r0)),
            keep = width - r0 < VW ? width - r0 : VW;
        for (c = 0; c + VW <= k; c += VW) {
            vf v[VW];
            for (int r = 0; r < VW; r++)
                v[r] = r < count ? vload(p + (r0 + r) * rs + c) : vset(0.0f);
            transpose(v);
            for (int i = 0; i < VW; i++) {
                if (keep == VW)
                    vstore(dst + (c + i) * width + r0, v[i]);
                else
                    memcpy(dst + (c + i) * width + r0, &v[i], (size_t)keep * sizeof(float));
            }
        }
        for (; c < k; c++)
            for (int r = 0; r < keep; r++)
                dst[c * width + r0 + r] = r < count ? p[(r0 + r) * rs + c] : 0.0f;
    }
}

/* `rows` rows (or columns of the right operand, by swapped strides) into panels of `width`, each k
 * × width. */
static void gemm_pack(cpu_mat a, int64_t rows, int64_t k, int width, float *dst)
{
    for (int64_t r0 = 0; r0 < rows; r0 += width) {
        int64_t count = cpu_min(width, rows - r0);
        const float *p = a.p + r0 * a.rs;
        if (a.cs == 1 && width == MR) {
            pack_rows(p, a.rs, count, k, MR, dst);
        } else if (a.cs == 1) {
            pack_rows(p, a.rs, count, k, NR, dst);
        } else {
            for (int64_t c = 0; c < k; c++) {
                float *to = dst + c * width;
                if (count == MR && width == MR) {
                    memcpy(to, p + c * a.cs, MR * sizeof(float));
                } else if (count == NR) {
                    memcpy(to, p + c * a.cs, NR * sizeof(float));
                } else {
                    memcpy(to, p + c * a.cs, (size_t)count * sizeof(float));
                    memset(to + count, 0, (size_t)(width - count) * sizeof(float));
                }
            }
        }
        dst += k * width;
    }
}

/* t (+)= one column of a, its element of row r being A(r), × one row of the b panel. */
#define TILE_STEP(A, b)                                                                            \
    do {                                                                                           \
        const vf b0 = vload(b), b1 = vload((b) + VW);                                              \
        _Pragma("GCC unroll 14") for (int r = 0; r < MR; r++)                                      \
        {                                                                                          \
            const vf x = vset(A(r));                                                               \
            t[r][0] = vfma(x, b0, t[r][0]);                                                        \
            t[r][1] = vfma(x, b1, t[r][1]);                                                        \
        }                                                                                          \
    } while (0)

/* The sum over k is one of sums this short: a large term early on would round every later one to
 * its own last place. */
#define K_SUM 64

INLINE void tile_prefetch(const float *c, int64_t ldc, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        __builtin_prefetch(c + r * ldc, 1);
        __builtin_prefetch(c + r * ldc + VW, 1);
    }
}

INLINE void tile_clear(vf t[MR][2])
{
#pragma GCC unroll 14
    for (int r = 0; r < MR; r++)
        t[r][0] = t[r][1] = vset(0.0f);
}

/* sum and t become the sum so far: t, the first of them, or t added to it. */
INLINE void tile_sum(vf sum[MR][2], vf t[MR][2], bool first)
{
#pragma GCC unroll 14
    for (int r = 0; r < MR; r++) {
        sum[r][0] = t[r][0] = first ? t[r][0] : sum[r][0] + t[r][0];
        sum[r][1] = t[r][1] = first ? t[r][1] : sum[r][1] + t[r][1];
    }
}

INLINE void tile_store(vf t[MR][2], float *c, int64_t ldc, bool add)
{
#pragma GCC unroll 14
    for (int r = 0; r < MR; r++) {
        float *q = c + r * ldc;
        vstore(q, add ? vload(q) + t[r][0] : t[r][0]);
        vstore(q + VW, add ? vload(q + VW) + t[r][1] : t[r][1]);
    }
}

/* C[rows, cols] (+)= a panel × b panel; rows <= MR, cols <= NR. Two steps of k a turn: measured 8 %
 * over one, and over four. */
static void gemm_tile(int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                      int64_t rows, int64_t cols, bool add)
{
#define FIRST(r) a[r]
#define SECOND(r) a[MR + (r)]
    vf t[MR][2], sum[MR][2];
    tile_prefetch(c, ldc, rows);
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += K_SUM) {
        const int64_t n = k - k0 < K_SUM ? k - k0 : K_SUM;
        tile_clear(t);
        for (int64_t p = 0; p + 1 < n; p += 2, a += 2 * MR, b += 2 * NR) {
            TILE_STEP(FIRST, b);
            TILE_STEP(SECOND, b + NR);
        }
        if (n & 1)
            TILE_STEP(FIRST, b);
        if (k <= K_SUM)
            break;
        tile_sum(sum, t, k0 == 0);
    }
#undef FIRST
#undef SECOND
    if (rows == MR && cols == NR) {
        tile_store(t, c, ldc, add);
        return;
    }
    float edge[MR][NR];
#pragma GCC unroll 14
    for (int r = 0; r < MR; r++) {
        vstore(edge[r], t[r][0]);
        vstore(edge[r] + VW, t[r][1]);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++)
            c[r * ldc + j] = add ? c[r * ldc + j] + edge[r][j] : edge[r][j];
}

/* The same for MR whole rows of a row-major matrix as it lies, ld elements from one to the next: in
 * the same order, so the same bits. Three rows share a pointer: their addresses are it, + ld, + 2
 * ld. */
static void gemm_tile_rows(int64_t k, const float *a, int64_t ld, const float *b, float *c,
                           int64_t ldc, bool add)
{
#define ROW(r)                                                                                     \
    *((r) < 3    ? p0 + (r)*ld                                                                     \
      : (r) < 6  ? p1 + ((r)-3) * ld                                                               \
      : (r) < 9  ? p2 + ((r)-6) * ld                                                               \
      : (r) < 12 ? p3 + ((r)-9) * ld                                                               \
                 : p4 + ((r)-12) * ld)
    const float *p0 = a, *p1 = p0 + 3 * ld, *p2 = p1 + 3 * ld, *p3 = p2 + 3 * ld, *p4 = p3 + 3 * ld;
    vf t[MR][2], sum[MR][2];
    tile_prefetch(c, ldc, MR);
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += K_SUM) {
        const int64_t n = k - k0 < K_SUM ? k - k0 : K_SUM;
        tile_clear(t);
        for (int64_t p = 0; p < n; p++, b += NR) {
            TILE_STEP(ROW, b);
            p0++;
            p1++;
            p2++;
            p3++;
            p4++;
        }
        if (k <= K_SUM)
            break;
        tile_sum(sum, t, k0 == 0);
    }
#undef ROW
    tile_store(t, c, ldc, add);
}
