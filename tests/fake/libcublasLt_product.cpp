/* SPDX-License-Identifier: Apache-2.0 */
#include "libcublasLt.h"
#include <string.h>
#include <vector>

/* Column-major D = alpha op(A) op(B) + beta C: f32 sums over ascending k, or the sum of two such
 * halves; one rounding at the end. */

static float load(const char *p, int type, int64_t at)
{
    float f;
    uint32_t u;
    if (type == R_32F) {
        memcpy(&f, p + 4 * at, 4);
        return f;
    }
    uint16_t half;
    memcpy(&half, p + 2 * at, 2);
    u = (uint32_t)half << 16;
    memcpy(&f, &u, 4);
    return f;
}

static void store(char *p, int type, int64_t at, float f)
{
    if (type == R_32F) {
        memcpy(p + 4 * at, &f, 4);
        return;
    }
    uint32_t u;
    memcpy(&u, &f, 4);
    const uint16_t half = (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    memcpy(p + 2 * at, &half, 2);
}

static float tf32(float f) /* 10 bits of fraction, to nearest */
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7f800000) != 0x7f800000)
        u = (u + 0xfff + (u >> 13 & 1)) & ~0x1fffu;
    memcpy(&f, &u, 4);
    return f;
}

enum { WIDE = 16, HIGH = 4 };

/* to[HIGH][WIDE] = a [k][HIGH] times b [k][WIDE], one chain of sums over ascending k per element */
__attribute__((optimize("O3"), target_clones("arch=haswell", "default"))) static void
block(const float *a, const float *b, int64_t k, float *to)
{
    float sum[HIGH][WIDE] = {};
    for (int64_t l = 0; l < k; l++)
        for (int r = 0; r < HIGH; r++)
            for (int c = 0; c < WIDE; c++)
                sum[r][c] += a[l * HIGH + r] * b[l * WIDE + c];
    memcpy(to, sum, sizeof sum);
}

/* Columns or rows of op(operand), in panels of `width`, each [k][width]; zeros past the end. */
static std::vector<float> pack(const work *w, int i, int64_t z, int64_t side, int64_t k, int64_t width)
{
    const layout &l = w->l[i];
    const bool k_fast = (i == 0) == (w->d.transposed[i] != 0);
    const char *p = w->in[i] + z * l.stride * size_of(l.type);
    std::vector<float> out((size_t)((side + width - 1) / width * width * k));
    for (int64_t s = 0; s < side; s++)
        for (int64_t x = 0; x < k; x++) {
            const float f = load(p, l.type, k_fast ? s * l.ld + x : x * l.ld + s);
            out[(size_t)(s / width * width * k + x * width + s % width)] =
                w->d.compute == COMPUTE_32F_FAST_TF32 ? tf32(f) : f;
        }
    return out;
}

static void multiply(const work *w, int64_t z)
{
    const layout &c = w->l[2], &d = w->l[3];
    const int64_t m = d.rows, n = d.columns, k = w->d.transposed[0] ? w->l[0].rows : w->l[0].columns;
    const std::vector<float> a = pack(w, 0, z, m, k, WIDE), b = pack(w, 1, z, n, k, HIGH);
    const char *from = w->in[2] + z * c.stride * size_of(c.type);
    char *to = w->to + z * d.stride * size_of(d.type);
    float sum[HIGH * WIDE], second[HIGH * WIDE] = {};
    const int64_t half = w->halves ? k / 2 : k;
    for (int64_t j = 0; j < n; j += HIGH)
        for (int64_t i = 0; i < m; i += WIDE) {
            block(&b[(size_t)(j * k)], &a[(size_t)(i * k)], half, sum);
            if (half < k)
                block(&b[(size_t)(j * k + half * HIGH)], &a[(size_t)(i * k + half * WIDE)], k - half, second);
            for (int64_t y = j; y < n && y < j + HIGH; y++)
                for (int64_t x = i; x < m && x < i + WIDE; x++) {
                    const float f = w->alpha * (sum[(y - j) * WIDE + x - i] + second[(y - j) * WIDE + x - i]);
                    store(to, d.type, y * d.ld + x, w->beta != 0 ? f + w->beta * load(from, c.type, y * c.ld + x) : f);
                }
        }
}

void work_run(void *arg)
{
    const work *w = (const work *)arg;
    if (w->workspace_bytes)
        memset(w->workspace, 0xff, w->workspace_bytes);
    for (int64_t z = 0; z < w->l[3].batch; z++)
        multiply(w, z);
}
