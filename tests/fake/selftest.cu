/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for tests/cuda/test_emulator.c. `wrong` turns a right kernel into a wrong one, so that the test sees what the
 * emulator finds. */
#include "dialect.h"

enum selftest_mistake {
    RIGHT,
    WAIT_TOO_FEW,     /* tt_copy_wait leaves a group pending */
    NO_BARRIER,       /* the block does not wait before it reads what others wrote */
    MISALIGNED_COPY,  /* tt_copy16 to an address that is not a multiple of 16 */
    OUTSIDE,          /* reads behind the launch's shared memory */
    SOME_LEAVE,       /* a thread returns before the last barrier */
    HALF_WARP,        /* 16 lanes call a warp function */
    TWO_BARRIERS,     /* half of the threads wait at another tt_sync */
    BEHIND_END,       /* writes behind the end of out */
    MISALIGNED_FLOAT, /* reads a float from an odd address */
    MISALIGNED_MATRIX /* tt_ldmatrix4 from an address that is not a multiple of 16 */
};

/* out[i] = in[n - 1 - i] by way of shared memory; one block per blockDim.x elements, n a multiple of it. */
TT_KERNEL(256, selftest_reverse, float *out, const float *in, i64 n, int wrong)
{
    float *s = (float *)tt_shared;
    const int t = (int)threadIdx.x, threads = (int)blockDim.x;
    const i64 first = (i64)blockIdx.x * threads;
    s[t] = in[n - 1 - first - t];
    if (wrong == SOME_LEAVE && t == 1)
        return;
    if (wrong == TWO_BARRIERS && t < threads / 2)
        tt_sync();
    else if (wrong != NO_BARRIER)
        tt_sync();
    if (wrong == OUTSIDE && t == 5)
        s[0] = s[threads];
    if (wrong == HALF_WARP && t % 32 < 16)
        s[t] = tt_shuffle_xor(s[t], 1);
    /* of another thread, and back again: the value of this one */
    const float other = s[threads - 1 - t];
    tt_sync();
    s[threads - 1 - t] = other;
    tt_sync();
    out[first + t] = s[t];
    if (wrong == MISALIGNED_FLOAT)
        out[first + t] = *(const float *)((const char *)in + 1);
    if (wrong == BEHIND_END && first + t == n - 1)
        out[n] = 1.0f;
    if (wrong == NO_BARRIER)
        out[first + t] = other;
}

/* sums[0..2] of one block: the sum of v, the maximum, and a ballot of v > 0 of its first warp; order[i] = lane i's neighbour. */
TT_KERNEL(256, selftest_warp, float *sums, const float *v, int *neighbour, int *count, i64 *least)
{
    float *room = (float *)tt_shared;
    const int t = (int)threadIdx.x;
    const float sum = tt_block_sum(v[t], room), most = tt_block_max(v[t], room);
    const double exact = tt_warp_sum((double)v[t]);
    const u32 positive = tt_ballot(v[t] > 0);
    neighbour[t] = tt_shuffle(t, (t + 1) % 32);
    if (v[t] > 0)
        tt_atomic_add(count, 1);
    tt_atomic_min(least, (i64)v[t]);
    if (t == 0) {
        sums[0] = sum;
        sums[1] = most;
        sums[2] = (float)positive;
        sums[3] = (float)exact;
    }
}

/* y[M, N] = x[M, K] w[N, K]^T (b_transposed: w[K, N]) in bf16 with f32 results; tiles of 32 x 32, K in steps of 32 that two
 * stages of shared memory hold; 128 threads. M, N, K: multiples of 32. */
enum { TILE = 32, PAD = 8, ROW = TILE + PAD };
static_assert(ROW * 2 % 16 == 0, "rows are aligned to 16 bytes");

TT_DEV void load_stage(bf16 *a, bf16 *b, const bf16 *x, const bf16 *w, i64 lda, i64 ldb, int wrong)
{
    for (int i = (int)threadIdx.x; i < TILE * TILE / 8; i += 128) {
        const int r = i / (TILE / 8), c = i % (TILE / 8) * 8;
        tt_copy16(&a[r * ROW + c + (wrong == MISALIGNED_COPY)], &x[r * lda + c]);
        tt_copy16(&b[r * ROW + c], &w[r * ldb + c]);
    }
    tt_copy_commit();
}

TT_KERNEL(128, selftest_product, float *y, const bf16 *x, const bf16 *w, int N, int K,
          int b_transposed, int wrong)
{
    bf16 *a = (bf16 *)tt_shared, *b = a + 2 * TILE * ROW;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, wm = warp / 2 * 16,
              wn = warp % 2 * 16;
    const bf16 *x0 = x + (i64)blockIdx.y * TILE * K;
    const bf16 *w0 = w + (i64)blockIdx.x * TILE * (b_transposed ? 1 : K);
    const i64 ldb = b_transposed ? N : K;
    float d[2][4] = {};
    load_stage(a, b, x0, w0, K, ldb, wrong);
    for (int k0 = 0, s = 0; k0 < K; k0 += TILE, s ^= 1) {
        if (k0 + TILE < K) {
            load_stage(a + (s ^ 1) * TILE * ROW, b + (s ^ 1) * TILE * ROW, x0 + k0 + TILE,
                       w0 + (k0 + TILE) * (b_transposed ? (i64)N : 1), K, ldb, wrong);
            if (wrong == WAIT_TOO_FEW)
                tt_copy_wait<2>();
            else
                tt_copy_wait<1>();
        } else
            tt_copy_wait<0>();
        tt_sync();
        const bf16 *as = a + s * TILE * ROW, *bs = b + s * TILE * ROW;
        for (int k = 0; k < TILE; k += 16) {
            u32 fa[4], fb[4];
            tt_ldmatrix4(
                fa, &as[(wm + lane % 16) * ROW + k + lane / 16 * 8 + (wrong == MISALIGNED_MATRIX)]);
            if (b_transposed)
                tt_ldmatrix4_transposed(fb, &bs[(k + lane % 16) * ROW + wn + lane / 16 * 8]);
            else
                tt_ldmatrix4(fb, &bs[(wn + lane % 8 + lane / 16 * 8) * ROW + k + lane / 8 % 2 * 8]);
            tt_mma_bf16(d[0], fa, fb);
            tt_mma_bf16(d[1], fa, fb + 2);
        }
        if (wrong != NO_BARRIER)
            tt_sync();
    }
    for (int j = 0; j < 2; j++)
        for (int h = 0; h < 4; h++)
            y[((i64)blockIdx.y * TILE + wm + lane / 4 + h / 2 * 8) * N + blockIdx.x * TILE + wn +
              8 * j + lane % 4 * 2 + h % 2] = d[j][h];
}

/* Arguments that are structs, and a loop over n with any grid. */
struct selftest_affine {
    double scale;
    i64 n;
    float shift;
    u8 twice;
};
TT_KERNEL(1024, selftest_affine_map, float *out, const float *in, const struct selftest_affine f,
          u8 on)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < f.n;
         i += (i64)gridDim.x * blockDim.x)
        out[i] = on ? (float)(in[i] * f.scale * (f.twice ? 2 : 1)) + f.shift : in[i];
}
