/* SPDX-License-Identifier: Apache-2.0 */
/* The inner parts of the matrix product: packing into panels, and a register tile of MR × NR. */

/* Packs one panel of `width` rows of a row-major matrix (cs 1), k columns: dst[p * width + r].
 * Missing rows are zero. Stores are whole vectors: what a store writes past a column's `width` is
 * overwritten by the next column, and at the end goes into slack that the caller provides. */
INLINE void pack_rows(const float *p, int64_t rs, int64_t rows, int64_t k, int width, float *dst)
{
    int64_t c = 0;
    for (int r0 = 0; r0 < width; r0 += VW) {
        int count = (int)cpu_max(0, cpu_min(VW, rows - r0)),
            keep = width - r0 < VW ? width - r0 : VW;
        for (c = 0; c + VW <= k; c += VW) {
            vf v[VW];
            load_transposed(p + r0 * rs + c, rs, count, v);
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

/* The same for a matrix whose rows (or columns, of the right operand) are interleaved in memory:
 * several whole panels at once, so that each read is long. */
#define PANELS 4
INLINE void pack_beside(const float *p, int64_t cs, int64_t n_panels, int64_t k, int width,
                        float *dst)
{
    for (int64_t c = 0; c < k; c++)
        for (int64_t i = 0; i < n_panels; i++)
            memcpy(dst + (i * k + c) * width, p + c * cs + i * width,
                   (size_t)width * sizeof(float));
}

static void pack_part(const float *p, int64_t cs, int64_t rows, int64_t k, int width, float *dst)
{
    for (int64_t c = 0; c < k; c++) {
        float *to = dst + c * width;
        memcpy(to, p + c * cs, (size_t)rows * sizeof(float));
        memset(to + rows, 0, (size_t)(width - rows) * sizeof(float));
    }
}

/* Packs `rows` rows (or, with swapped strides, columns of the right operand) into panels of
 * `width`, each k × width. */
INLINE void pack_panels(cpu_mat a, int64_t rows, int64_t k, int width, float *dst)
{
    int64_t r = 0;
    for (; a.cs == 1 && r < rows; r += width)
        pack_rows(a.p + r * a.rs, a.rs, cpu_min(width, rows - r), k, width, dst + r * k);
    for (; r + PANELS * width <= rows; r += PANELS * width)
        pack_beside(a.p + r * a.rs, a.cs, PANELS, k, width, dst + r * k);
    for (; r + width <= rows; r += width)
        pack_beside(a.p + r * a.rs, a.cs, 1, k, width, dst + r * k);
    if (r < rows)
        pack_part(a.p + r * a.rs, a.cs, rows - r, k, width, dst + r * k);
}

static void gemm_pack(cpu_mat a, int64_t rows, int64_t k, int width, float *dst)
{
    if (width == MR)
        pack_panels(a, rows, k, MR, dst);
    else
        pack_panels(a, rows, k, NR, dst);
}

/* t += one column of a, whose element of row r is A(r), × one row of the b panel. */
#define TILE_STEP(R, A, b)                                                                         \
    do {                                                                                           \
        const vf b0 = vload(b), b1 = vload((b) + VW);                                              \
        _Pragma("GCC unroll 14") for (int r = 0; r < (R); r++)                                     \
        {                                                                                          \
            const vf x = vset(A(r));                                                               \
            t[r][0] = vfma(x, b0, t[r][0]);                                                        \
            t[r][1] = vfma(x, b1, t[r][1]);                                                        \
        }                                                                                          \
    } while (0)

/* Between two short sums the tile prefetches a little, because a burst of requests would delay its
 * own loads: its C, ROWS_A_TURN rows at a time, then what is packed next. */
#define ROWS_A_TURN 3
INLINE void tile_fetch(int64_t turn, const float *c, int64_t ldc, int64_t rows, cpu_fetch *f)
{
    for (int64_t r = turn * ROWS_A_TURN; r < (turn + 1) * ROWS_A_TURN && r < rows; r++) {
        __builtin_prefetch(c + r * ldc, 1);
        __builtin_prefetch(c + r * ldc + VW, 1);
    }
    cpu_fetch_turn(f);
    cpu_fetch_turn(f + 1);
}

INLINE void tile_clear(const int R, vf t[MR][2])
{
#pragma GCC unroll 14
    for (int r = 0; r < R; r++)
        t[r][0] = t[r][1] = vset(0.0f);
}

INLINE void tile_sum(const int R, vf sum[MR][2], vf t[MR][2])
{
#pragma GCC unroll 14
    for (int r = 0; r < R; r++) {
        sum[r][0] = sum[r][0] + t[r][0];
        sum[r][1] = sum[r][1] + t[r][1];
    }
}

/* C[rows, cols] (+)= t. */
INLINE void tile_store(const int R, vf t[MR][2], float *c, int64_t ldc, int64_t rows, int64_t cols,
                       bool add)
{
    if (rows == R && cols == NR) {
#pragma GCC unroll 14
        for (int r = 0; r < R; r++) {
            float *q = c + r * ldc;
            vstore(q, add ? vload(q) + t[r][0] : t[r][0]);
            vstore(q + VW, add ? vload(q + VW) + t[r][1] : t[r][1]);
        }
        return;
    }
    float edge[NR];
    for (int64_t r = 0; r < rows; r++) {
        float *to = c + r * ldc;
        vstore(edge, t[r][0]);
        vstore(edge + VW, t[r][1]);
        for (int64_t j = 0; j < cols; j++)
            to[j] = add ? to[j] + edge[j] : edge[j];
    }
}

/* C[rows, cols] (+)= the first R rows of a panel × the b panel; rows <= R, cols <= NR. Two steps of
 * k per iteration: measured 8 % faster than one, and than four. */
INLINE void tile_part(const int R, int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                      int64_t rows, int64_t cols, bool add, cpu_fetch *next)
{
#define FIRST(r) a[r]
#define SECOND(r) a[MR + (r)]
    vf t[MR][2], sum[MR][2];
    tile_clear(R, sum);
    for (int64_t k0 = 0; k0 < k; k0 += CPU_K_SUM) {
        const int64_t n = k - k0 < CPU_K_SUM ? k - k0 : CPU_K_SUM;
        tile_fetch(k0 / CPU_K_SUM, c, ldc, rows, next);
        tile_clear(R, t);
        for (int64_t p = 0; p + 1 < n; p += 2, a += 2 * MR, b += 2 * NR) {
            TILE_STEP(R, FIRST, b);
            TILE_STEP(R, SECOND, b + NR);
        }
        if (n & 1)
            TILE_STEP(R, FIRST, b);
        tile_sum(R, sum, t);
    }
#undef FIRST
#undef SECOND
    tile_store(R, sum, c, ldc, rows, cols, add);
}

/* The last rows of a matrix, in tiles of their number. */
static void gemm_tile(int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                      int64_t rows, int64_t cols, bool add, cpu_fetch *next)
{
    if (rows > MR / 2 + 1)
        tile_part(MR, k, a, b, c, ldc, rows, cols, add, next);
    else if (rows > MR / 3)
        tile_part(MR / 2 + 1, k, a, b, c, ldc, rows, cols, add, next);
    else
        tile_part(MR / 3, k, a, b, c, ldc, rows, cols, add, next);
}

/* The same for MR whole rows of a row-major matrix in place, ld elements apart. The order of
 * operations is the same, so the bits are too. Three rows share a pointer: their addresses are p, p
 * + ld and p + 2 * ld. */
static void gemm_tile_rows(int64_t k, const float *a, int64_t ld, const void *panel, float *c,
                           int64_t ldc, int64_t cols, bool add, cpu_fetch *next)
{
#define ROW(r)                                                                                     \
    *((r) < 3    ? p0 + (r)*ld                                                                     \
      : (r) < 6  ? p1 + ((r)-3) * ld                                                               \
      : (r) < 9  ? p2 + ((r)-6) * ld                                                               \
      : (r) < 12 ? p3 + ((r)-9) * ld                                                               \
                 : p4 + ((r)-12) * ld)
    const float *b = panel, *p0 = a, *p1 = p0 + 3 * ld, *p2 = p1 + 3 * ld, *p3 = p2 + 3 * ld,
                *p4 = p3 + 3 * ld;
    vf t[MR][2], sum[MR][2];
    tile_clear(MR, sum);
    for (int64_t k0 = 0; k0 < k; k0 += CPU_K_SUM) {
        const int64_t n = k - k0 < CPU_K_SUM ? k - k0 : CPU_K_SUM;
        tile_fetch(k0 / CPU_K_SUM, c, ldc, MR, next);
        tile_clear(MR, t);
        for (int64_t p = 0; p < n; p++, b += NR) {
            TILE_STEP(MR, ROW, b);
            p0++;
            p1++;
            p2++;
            p3++;
            p4++;
        }
        tile_sum(MR, sum, t);
    }
#undef ROW
    tile_store(MR, sum, c, ldc, MR, cols, add);
}

static void fma_pack(cpu_mat a, int64_t rows, int64_t k, bool left, void *dst)
{
    gemm_pack(a, rows, k, left ? MR : NR, dst);
}

static void fma_tile(int64_t k, const void *a, const void *b, float *c, int64_t ldc, int64_t rows,
                     int64_t cols, bool add, cpu_fetch *next)
{
    gemm_tile(k, a, b, c, ldc, rows, cols, add, next);
}
