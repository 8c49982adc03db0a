/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding, the measurement of the multiply-add peak, and the function table of a level. */

/* cos and sin of a token for each pair; read and written in whole vectors. */
typedef struct rope_table {
    float cos[CPU_MAX_HEAD_DIM / 2 + VW], sin[CPU_MAX_HEAD_DIM / 2 + VW];
} rope_table;

/* cos and sin of pos * inv_freq: the angle and its reduction to [-pi/4, pi/4] in double, the
 * polynomials (Cephes) in single precision. */
INLINE void rope_angles(const cpu_rope *r, int32_t pos, rope_table *t)
{
    const double factor = r->factor, sine_factor = r->inverse ? -factor : factor;
    for (int64_t j = 0; j < r->pairs; j += VW / 2) {
        vd inv;
        memcpy(&inv, r->inv_freq + j, sizeof inv);
        const vd angle = (double)pos * inv;
        const vd turns = angle * 0.63661977236758134308 + 6755399441055744.0; /* 2/pi; 1.5 * 2^52 */
        const vl quadrant = (vl)turns;                                        /* its lowest bits */
        const vd k = turns - 6755399441055744.0;
        const vd red = angle - k * 1.57079632679489655800 - k * 6.12323399573676603587e-17;
        const vd z = red * red;
        const vd s =
            red + red * z *
                      (-1.6666666666666666e-1 +
                       z * (8.3333333333e-3 +
                            z * (-1.9841269841e-4 + z * (2.7557319224e-6 + z * -2.50521084e-8))));
        const vd c =
            1.0 +
            z * (-0.5 + z * (4.16666666666667e-2 +
                             z * (-1.38888888889e-3 +
                                  z * (2.48015873e-5 + z * (-2.75573192e-7 + z * 2.0876757e-9)))));
        const vl odd = -(quadrant & 1), minus = (vl){0} + INT64_MIN;
        const vl cosine = ((vl)c & ~odd) | ((vl)s & odd), sine = ((vl)s & ~odd) | ((vl)c & odd);
        const vl down = -((quadrant + 1) >> 1 & 1) & minus, under = -(quadrant >> 1 & 1) & minus;
        const vh cs = __builtin_convertvector((vd)(cosine ^ down) * factor, vh),
                 sn = __builtin_convertvector((vd)(sine ^ under) * sine_factor, vh);
        memcpy(t->cos + j, &cs, sizeof cs);
        memcpy(t->sin + j, &sn, sizeof sn);
    }
}

/* Rotates the pairs (j, j + n) of all heads of a token. */
INLINE void rope_halves(const cpu_rope *r, const rope_table *t, const float *x, float *y,
                        int64_t heads)
{
    const int64_t n = r->pairs, all = heads * r->head_dim;
    for (int64_t j = 0; j < n; j += VW) {
        const int64_t m = n - j < VW ? n - j : VW;
        const vf c = vload(t->cos + j), s = vload(t->sin + j);
        for (int64_t i = j; i < all; i += r->head_dim) {
            const vf a = operand(x, i, m, false, 0.0f), b = operand(x + n, i, m, false, 0.0f);
            const vf ra = a * c - b * s, rb = b * c + a * s;
            if (m == VW) {
                vstore(y + i, ra);
                vstore(y + n + i, rb);
            } else {
                vstore_part(y + i, ra, m);
                vstore_part(y + n + i, rb, m);
            }
        }
    }
}

/* Rotates a vector of whole pairs: y = x * c + (x with the elements of each pair exchanged) * s. */
typedef struct rope_lanes {
    vi pair, other; /* per lane: the index of its pair within the vector; the lane of its partner */
    vi sign;        /* -0 in lanes that are the first of their pair */
    bool many;      /* a vector holds whole heads */
} rope_lanes;

/* Are both elements of every pair in the same vector? */
INLINE bool rope_lanes_of(const cpu_rope *r, rope_lanes *l)
{
    const int n = (int)r->pairs;
    l->many = VW % r->head_dim == 0 && 2 * r->pairs == r->head_dim;
    for (int i = 0; i < VW; i++) {
        const int at = l->many ? i % (2 * n) : i;
        l->pair[i] = r->interleaved ? at / 2 : at % n;
        l->other[i] = r->interleaved ? i ^ 1 : i - at + (at + n) % (2 * n);
        l->sign[i] = (r->interleaved ? at & 1 : at >= n) ? 0 : INT32_MIN;
    }
    return l->many || r->interleaved;
}

INLINE void rope_within(const cpu_rope *r, const rope_lanes *l, const rope_table *t, const float *x,
                        float *y, int64_t heads)
{
    const int64_t all = heads * r->head_dim, turned = l->many ? VW : 2 * r->pairs,
                  step = l->many ? VW : r->head_dim;
    for (int64_t j = 0; j < turned; j += VW) {
        const vf c = __builtin_shuffle(vload(t->cos + j / 2), l->pair),
                 s = (vf)((vi)__builtin_shuffle(vload(t->sin + j / 2), l->pair) ^ l->sign);
        for (int64_t i = j; i < all; i += step) {
            const int64_t m = cpu_min(VW, l->many ? all - i : turned - j);
            const vf a = operand(x, i, m, false, 0.0f);
            const vf ra = a * c + __builtin_shuffle(a, l->other) * s;
            if (m == VW)
                vstore(y + i, ra);
            else
                vstore_part(y + i, ra, m);
        }
    }
}

/* Rotates some heads of some tokens; rows of x and y are ld apart. If x and y differ, the elements
 * that are not rotated are copied. */
static void rope_turn(const cpu_rope *r, const int32_t *pos, int64_t tokens, const float *x,
                      float *y, int64_t ld, int64_t heads)
{
    rope_table table;
    const int64_t kept = r->head_dim - 2 * r->pairs;
    rope_lanes lanes;
    const bool within = rope_lanes_of(r, &lanes);
    memset(&table, 0, sizeof table);
    for (int64_t i = 0; i < tokens; i++, x += ld, y += ld) {
        rope_angles(r, pos[i], &table);
        if (within)
            rope_within(r, &lanes, &table, x, y, heads);
        else
            rope_halves(r, &table, x, y, heads);
        for (int64_t h = 0; x != y && kept && h < heads; h++) {
            const int64_t at = h * r->head_dim + 2 * r->pairs;
            memcpy(y + at, x + at, (size_t)kept * sizeof *y);
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
                                    .m_task = 532, /* 817 KB packed; a strip is 393 KB */
                                    .strip = 256,
                                    .tasks = 2, /* measured: 4 are 2-11 % slower */
                                    .pack = fma_pack,
                                    .tile = fma_tile,
                                    .tile_rows = gemm_tile_rows,
                                    .peak = peak};

#define CPU_ISA_ENTRIES                                                                            \
    .lanes = VW, .unary = unary, .binary = binary, .ternary = ternary,                             \
    .compare = pointwise_compare, .select = select_f32, .chain = chain, .to_bf16 = to_bf16,        \
    .stochastic_bf16 = stochastic_bf16, .from_bf16 = from_bf16, .to_f16 = to_f16,                  \
    .from_f16 = from_f16, .to_float8 = to_float8, .from_float8 = from_float8, .tiles = &fma_tiles, \
    .rms_norm = rms_norm, .rms_norm_bwd = rms_norm_bwd, .layer_norm = layer_norm,                  \
    .layer_norm_bwd = layer_norm_bwd, .max = row_max, .sum = row_sum,                              \
    .sum_squares = row_sum_squares, .sum_exp = row_sum_exp, .exp_sub = row_exp_sub,                \
    .dot = row_dot, .softmax_bwd = softmax_bwd, .column_sum = column_sum,                          \
    .column_max = column_max, .rope = rope_turn, .attn_fwd = attn_fwd, .attn_top = attn_top,       \
    .attn_queries = ATTN_QUERIES, .attn_bwd = attn_bwd, .attn_rows = attn_rows,                    \
    .attn_columns = attn_columns, .attn_give = attn_give, .attn_cached = attn_cached,              \
    .few = gemm_few, .check_sums = check_sums, .check_total = check_total,                         \
    .check_columns = check_columns, .check_half = check_half, .scan = scan_token,                  \
    .scan_bwd = scan_token_bwd, .columns = scan_columns, .delta_token = delta_token
