/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding; the FMA peak; and the table of all entries of a level. */

/* cos and sin of pos * inv_freq[j]: the angle and its reduction to [-pi/4, pi/4] in double, the
 * polynomials (Cephes) in single precision. cos_sin: n cosines, then n sines. */
static void rope_table(int64_t n, int32_t pos, const double *inv_freq, double factor,
                       float *cos_sin)
{
    for (int64_t j = 0; j < n; j++) {
        double angle = (double)pos * inv_freq[j];
        double turns = angle * 0.63661977236758134308; /* 2/pi */
        double k = (turns + 6755399441055744.0) - 6755399441055744.0;
        double red = angle - k * 1.57079632679489655800;
        red = red - k * 6.12323399573676603587e-17;
        int64_t quadrant = (int64_t)k;
        double z = red * red;
        double s =
            red + red * z *
                      (-1.6666666666666666e-1 +
                       z * (8.3333333333e-3 +
                            z * (-1.9841269841e-4 + z * (2.7557319224e-6 + z * -2.50521084e-8))));
        double c =
            1.0 +
            z * (-0.5 + z * (4.16666666666667e-2 +
                             z * (-1.38888888889e-3 +
                                  z * (2.48015873e-5 + z * (-2.75573192e-7 + z * 2.0876757e-9)))));
        double cosine = quadrant & 1 ? s : c, sine = quadrant & 1 ? c : s;
        cosine = (quadrant + 1) & 2 ? -cosine : cosine;
        sine = quadrant & 2 ? -sine : sine;
        cos_sin[j] = (float)(cosine * factor);
        cos_sin[n + j] = (float)(sine * factor);
    }
}

/* One head, pairs (j, j + n): y = x rotated by sign * angle. */
static void rope_half(int64_t n, const float *cs, const float *sn, const float *x, float *y,
                      float sign)
{
    for (int64_t j = 0; j < n; j += VW) {
        int64_t m = n - j < VW ? n - j : VW;
        vf c = operand(cs, j, m, false, 0.0f), s = operand(sn, j, m, false, 0.0f) * sign;
        vf a = operand(x, j, m, false, 0.0f), b = operand(x + n, j, m, false, 0.0f);
        vf ra = a * c - b * s, rb = b * c + a * s;
        if (m == VW) {
            vstore(y + j, ra);
            vstore(y + n + j, rb);
        } else {
            vstore_part(y + j, ra, m);
            vstore_part(y + n + j, rb, m);
        }
    }
}

static double peak(double seconds)
{
    vf c[12];
    for (int i = 0; i < 12; i++)
        c[i] = vset((float)i);
    const vf a = vset(0.5f), b = vset(0.25f);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double start = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec, passed = 0, flops = 0;
    while (passed < seconds) {
        for (int i = 0; i < 20000; i++)
#pragma GCC unroll 12
            for (int j = 0; j < 12; j++)
                c[j] = vfma(c[j], a, b);
        flops += 20000.0 * 12 * 2 * VW;
        clock_gettime(CLOCK_MONOTONIC, &t);
        passed = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec - start;
    }
    volatile float keep = 0;
    for (int i = 0; i < 12; i++)
        keep = keep + vsum(c[i]);
    return flops / passed;
}

static const cpu_tiles fma_tiles = {.mr = MR,
                                    .k_cut = CPU_K_BLOCK,
                                    .nr = NR,
                                    .k_unit = 1,
                                    .size = sizeof(float),
                                    .m_task = 532, /* 817 KB packed; a strip is 393 */
                                    .strip = 256,
                                    .tasks = 2, /* measured: 4 are 2-11 % slower */
                                    .pack = fma_pack,
                                    .tile = fma_tile,
                                    .tile_rows = gemm_tile_rows,
                                    .peak = peak};

#define CPU_ISA_ENTRIES                                                                            \
    .lanes = VW, .unary = unary, .binary = binary, .ternary = ternary, .compare = compare,         \
    .select = select_f32, .to_bf16 = to_bf16, .from_bf16 = from_bf16, .tiles = &fma_tiles,         \
    .rms_norm = rms_norm, .rms_norm_bwd = rms_norm_bwd, .layer_norm = layer_norm,                  \
    .layer_norm_bwd = layer_norm_bwd, .max = row_max, .sum = row_sum,                              \
    .sum_squares = row_sum_squares, .sum_exp = row_sum_exp, .exp_sub = row_exp_sub,                \
    .dot = row_dot, .softmax_bwd = softmax_bwd, .column_sum = column_sum,                          \
    .column_max = column_max, .rope_table = rope_table, .rope_half = rope_half,                    \
    .attn_fwd = attn_fwd, .attn_queries = ATTN_QUERIES, .attn_bwd = attn_bwd,                      \
    .attn_rows = attn_rows, .attn_columns = attn_columns, .attn_give = attn_give,                  \
    .attn_cached = attn_cached, .few = gemm_few
