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

/* As tt_to_f16 in core/base/f16.h, which says why each step is right. */
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
