/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 to and from f32. */

/* Rounds to nearest even; a NaN stays a NaN. */
static void to_bf16(int64_t n, const float *x, uint16_t *y)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t m = n - i < VW ? n - i : VW;
        vf v = operand(x, i, m, false, 0.0f);
        vi bits = (vi)v, up = bits + 0x7fff + ((bits >> 16) & 1);
        vi r = ((v != v) & (bits | 0x400000)) | ((v == v) & up);
        vs half = __builtin_convertvector(r >> 16, vs);
        if (m == VW) /* a copy of constant size compiles to one store */
            memcpy(y + i, &half, sizeof half);
        else
            memcpy(y + i, &half, (size_t)m * sizeof *y);
    }
}
static void from_bf16(int64_t n, const uint16_t *x, float *y)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t m = n - i < VW ? n - i : VW;
        vs half = {0};
        if (m == VW)
            memcpy(&half, x + i, sizeof half);
        else
            memcpy(&half, x + i, (size_t)m * sizeof *x);
        vf v = (vf)(__builtin_convertvector(half, vi) << 16);
        if (m == VW)
            vstore(y + i, v);
        else
            vstore_part(y + i, v, m);
    }
}
