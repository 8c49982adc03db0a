/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 and f16 to and from f32, a vector at a time. */

static inline void store_half(uint16_t *y, vi bits, int64_t m)
{
    vs half = __builtin_convertvector(bits, vs);
    if (m == VW) /* a copy of constant size compiles to one store */
        memcpy(y, &half, sizeof half);
    else
        memcpy(y, &half, (size_t)m * sizeof *y);
}

static inline vi load_half(const uint16_t *x, int64_t m)
{
    vs half = {0};
    if (m == VW)
        memcpy(&half, x, sizeof half);
    else
        memcpy(&half, x, (size_t)m * sizeof *x);
    return __builtin_convertvector(half, vi);
}

static inline void store_float(float *y, vf v, int64_t m)
{
    if (m == VW)
        vstore(y, v);
    else
        vstore_part(y, v, m);
}

/* Rounds to nearest even; a NaN stays a NaN. */
static void to_bf16(int64_t n, const float *x, uint16_t *y)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t m = n - i < VW ? n - i : VW;
        vf v = operand(x, i, m, false, 0.0f);
        vi bits = (vi)v, up = bits + 0x7fff + ((bits >> 16) & 1);
        vi r = ((v != v) & (bits | 0x400000)) | ((v == v) & up);
        store_half(y + i, r >> 16, m);
    }
}

static void from_bf16(int64_t n, const uint16_t *x, float *y)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t m = n - i < VW ? n - i : VW;
        store_float(y + i, (vf)(load_half(x + i, m) << 16), m);
    }
}

/* As tt_to_f16 in <ttrun/narrow.h>, which says why each step is right. */
static void to_f16(int64_t n, const float *x, uint16_t *y)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t m = n - i < VW ? n - i : VW;
        vi bits = (vi)operand(x, i, m, false, 0.0f), sign = bits >> 16 & 0x8000;
        vi size = bits & 0x7fffffff, odd = size >> 13 & 1;
        vi nan = size > 0x7f800000, large = size >= 0x477ff000, normal = size >= 0x38800000;
        vi small = (vi)((vf)size + 0.5f) - 0x3f000000;
        vi r = (size - 0x38000000 + 0xfff + odd) >> 13;
        r = (normal & r) | (~normal & small);
        r = (large & 0x7c00) | (~large & r);
        r = (nan & (0x7e00 | (size >> 13 & 0x3ff))) | (~nan & r);
        store_half(y + i, sign | r, m);
    }
}
static void from_f16(int64_t n, const uint16_t *x, float *y)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t m = n - i < VW ? n - i : VW;
        vi h = load_half(x + i, m), sign = (h & 0x8000) << 16, size = h & 0x7fff;
        vi normal = (size << 13) + 0x38000000; /* the bias is 127, no longer 15 */
        vi whole = normal + 0x38000000;        /* infinite or a NaN: all bits of the exponent */
        vi small = (vi)(__builtin_convertvector(size, vf) * 0x1p-24f);
        vi is_whole = size >= 0x7c00, is_small = size < 0x400;
        vi r = (is_small & small) | (~is_small & normal);
        store_float(y + i, (vf)(sign | (is_whole & whole) | (~is_whole & r)), m);
    }
}

/* f32 to and from float8, whose sizes differ in these numbers: fraction bits, exponent of the least
 * number, largest code. The table is indexed by e5m2. */
static const struct {
    int32_t mantissa, bias, top;
    float normal, magic; /* the least normal number; the f32 whose last place is the least number */
} float8_of[2] = {
    {3, 7,  0x7e, 0x1p-6f,  0x1p14f},
    {2, 15, 0x7b, 0x1p-14f, 0x1p7f }
};

/* Rounds to nearest even and saturates; a NaN stays a NaN. */
static void to_float8(int64_t n, const float *x, uint8_t *y, bool e5m2)
{
    const int32_t cut = 23 - float8_of[e5m2].mantissa;
    const vf normal = vset(float8_of[e5m2].normal), magic = vset(float8_of[e5m2].magic);
    const vi less = vseti((127 - float8_of[e5m2].bias) << float8_of[e5m2].mantissa),
             top = vseti(float8_of[e5m2].top);
    for (int64_t i = 0; i < n; i += VW) {
        const int64_t m = n - i < VW ? n - i : VW;
        const vf v = operand(x, i, m, false, 0.0f), a = vabs(v);
        const vi bits = (vi)a, even = (bits >> cut) & 1;
        const vi large = ((bits + ((1 << (cut - 1)) - 1) + even) >> cut) - less;
        const vi small = (vi)(a + magic) - (vi)magic;
        vi code = (vi)vselect(a < normal, (vf)small, (vf)large);
        code = (vi)vselect(code > top, (vf)top, (vf)code);
        code = (vi)vselect(v != v, (vf)vseti(0x7f), (vf)code) | (((vi)v >> 24) & 0x80);
        const vb byte = __builtin_convertvector(code, vb);
        memcpy(y + i, &byte, (size_t)m);
    }
}
static void from_float8(int64_t n, const uint8_t *x, float *y, bool e5m2)
{
    const int32_t mantissa = float8_of[e5m2].mantissa, top = float8_of[e5m2].top;
    const vi more = vseti((127 - float8_of[e5m2].bias) << 23);
    const vf least = vset(float8_of[e5m2].normal / (float)(1 << mantissa));
    for (int64_t i = 0; i < n; i += VW) {
        const int64_t m = n - i < VW ? n - i : VW;
        vb byte = {0};
        memcpy(&byte, x + i, (size_t)m);
        const vi all = __builtin_convertvector(byte, vi), code = all & 0x7f;
        const vf small = __builtin_convertvector(code, vf) * least;
        const vf large = (vf)((code << (23 - mantissa)) + more);
        vf v = vselect(code < (1 << mantissa), small, large);
        const vi odd =
            vseti(0x7f800000) | (vi)vselect(code == 0x7c, (vf)vseti(0), (vf)vseti(0x400000));
        v = vselect(code > top, (vf)odd, v);
        v = (vf)((vi)v | (all & (int32_t)0x80) << 24);
        if (m == VW)
            vstore(y + i, v);
        else
            vstore_part(y + i, v, m);
    }
}
