/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bf16 matrices on levels without instructions for them: operands are widened to f32
 * while they are packed, then the f32 tile multiplies, with the sum over k cut as in gemm.c. So the
 * bits are those of the f32 product of the same numbers, rounded. */
#define HALF_K 384

static void half_pack(const uint16_t *p, int64_t rs, int64_t cs, int64_t rows, int64_t k, bool left,
                      void *to)
{
    const int width = left ? MR : NR;
    float *dst = to;
    float wide[NR][HALF_K]; /* NR >= MR */
    for (int64_t k0 = 0; cs == 1 && k0 < k; k0 += HALF_K) {
        const int64_t n = cpu_min(HALF_K, k - k0);
        for (int64_t r = 0; r < rows; r++)
            from_bf16(n, p + r * rs + k0, wide[r]);
        gemm_pack((cpu_mat){wide[0], HALF_K, 1}, rows, n, width, dst + k0 * width);
    }
    for (int64_t c = 0; cs != 1 && c < k; c++) {
        from_bf16(rows, p + c * cs, dst + c * width);
        memset(dst + c * width + rows, 0, (size_t)(width - rows) * sizeof(float));
    }
}

static void half_tile(int64_t k, const void *a, const void *b, float *c)
{
    cpu_fetch none[2] = {0};
    for (int64_t k0 = 0; k0 < k; k0 += HALF_K)
        gemm_tile(cpu_min(HALF_K, k - k0), (const float *)a + k0 * MR, (const float *)b + k0 * NR,
                  c, NR, MR, NR, k0 > 0, none);
}

static const cpu_half half = {
    .mr = MR, .nr = NR, .kr = 1, .size = 4, .pack = half_pack, .tile = half_tile};
