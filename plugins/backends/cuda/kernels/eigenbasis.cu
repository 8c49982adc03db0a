/* SPDX-License-Identifier: Apache-2.0 */
#include "dialect.h"

/* eigenbasis (ttrun/eigenbasis.h; lib/linalg/eigenbasis.c has the same steps for hosts): a block computes a matrix
 * after another in f64. Rows of w and z are columns of what they stand for; a warp takes a row. Threads meet
 * before they read what others wrote. */

#define WARPS 8

struct eigen_work {
    i64 n;
    const float *a, *q;
    double *w, *z;                            /* [n,n] */
    double *d, *e, *beta, *p, *cosine, *sine; /* [n] */
    i64 *order;                               /* [n] */
};

/* Equal on all lanes. */
TT_DEV double eigen_dot(const double *x, const double *y, i64 n)
{
    double sum = 0.0;
    for (i64 i = threadIdx.x % 32; i < n; i += 32)
        sum += x[i] * y[i];
    for (int lanes = 16; lanes; lanes /= 2)
        sum += tt_shuffle_xor(sum, lanes);
    return sum;
}

TT_DEV void eigen_reflect(double *x, const double *v, double beta, i64 n)
{
    const double c = beta * eigen_dot(v, x, n);
    for (i64 i = threadIdx.x % 32; i < n; i += 32)
        x[i] -= c * v[i];
    tt_sync_warp();
}

/* Of x [n]: by one warp; *first is written by its first lane. */
TT_DEV void eigen_reflection(double *x, i64 n, double *first, double *beta)
{
    const double rest = eigen_dot(x + 1, x + 1, n - 1), head = x[0];
    const double norm = sqrt(head * head + rest), to = head > 0.0 ? -norm : norm, v = head - to;
    tt_sync_warp();
    if (threadIdx.x % 32 == 0) {
        *first = rest == 0.0 ? head : to;
        *beta = rest == 0.0 ? 0.0 : 2.0 / (v * v + rest);
        if (rest != 0.0)
            x[0] = v;
    }
}

TT_DEV void eigen_sort(const eigen_work &b)
{
    for (i64 i = 0; i < b.n; i++) {
        i64 at = i;
        for (; at > 0 && b.d[b.order[at - 1]] < b.d[i]; at--)
            b.order[at] = b.order[at - 1];
        b.order[at] = i;
    }
}

/* z[r] = e_r by reflections from..0, of rows rows[k] (rows: order or NULL) and lengths n - k - skip */
TT_DEV void eigen_columns(const eigen_work &b, const i64 *rows, int skip)
{
    const i64 n = b.n;
    for (i64 r = threadIdx.x / 32; r < n; r += WARPS) {
        double *z = b.z + r * n;
        for (i64 i = threadIdx.x % 32; i < n; i += 32)
            z[i] = i == r ? 1.0 : 0.0;
        tt_sync_warp();
        i64 k = r - skip;
        if (k > n - 1 - skip)
            k = n - 1 - skip;
        for (; k >= 0; k--)
            if (b.beta[k] != 0.0)
                eigen_reflect(z + k + skip, b.w + (rows ? rows[k] : k) * n + k + skip, b.beta[k],
                              n - k - skip);
    }
}

TT_DEV void eigen_iterate(const eigen_work &b, float *out)
{
    const i64 n = b.n;
    const int warp = (int)threadIdx.x / 32;
    for (i64 at = threadIdx.x; at < n * n; at += 32 * WARPS) {
        const i64 j = at / n, i = at % n;
        double sum = 0.0;
        for (i64 k = 0; k < n; k++)
            sum += (double)b.q[k * n + j] * (double)b.a[k * n + i];
        b.w[at] = sum;
    }
    tt_sync();
    for (i64 j = threadIdx.x; j < n; j += 32 * WARPS) {
        double sum = 0.0;
        for (i64 k = 0; k < n; k++)
            sum += (double)b.q[k * n + j] * b.w[j * n + k];
        b.d[j] = sum;
    }
    tt_sync();
    if (threadIdx.x == 0)
        eigen_sort(b);
    tt_sync();
    for (i64 k = 0; k < n; k++) {
        double *v = b.w + b.order[k] * n + k;
        if (warp == 0)
            eigen_reflection(v, n - k, &b.e[k], &b.beta[k]);
        tt_sync();
        if (b.beta[k] != 0.0)
            for (i64 r = k + 1 + warp; r < n; r += WARPS)
                eigen_reflect(b.w + b.order[r] * n + k, v, b.beta[k], n - k);
        tt_sync();
    }
    eigen_columns(b, b.order, 0);
    tt_sync();
    for (i64 at = threadIdx.x; at < n * n; at += 32 * WARPS)
        out[at % n * n + b.order[at / n]] = (float)b.z[at];
}

TT_DEV void eigen_tridiagonal(const eigen_work &b)
{
    const i64 n = b.n;
    const int warp = (int)threadIdx.x / 32;
    for (i64 k = 0; k < n; k++) {
        double *v = b.w + k * n + k + 1;
        const i64 left = n - k - 1;
        if (threadIdx.x == 0) {
            b.d[k] = v[-1];
            b.e[k] = b.beta[k] = 0.0;
        }
        tt_sync();
        if (left > 0 && warp == 0)
            eigen_reflection(v, left, &b.e[k], &b.beta[k]);
        tt_sync();
        if (b.beta[k] == 0.0)
            continue;
        for (i64 i = warp; i < left; i += WARPS) {
            const double sum = eigen_dot(b.w + (k + 1 + i) * n + k + 1, v, left);
            if (threadIdx.x % 32 == 0)
                b.p[i] = b.beta[k] * sum;
        }
        tt_sync();
        const double half = -0.5 * b.beta[k] * eigen_dot(b.p, v, left);
        tt_sync();
        for (i64 i = threadIdx.x; i < left; i += 32 * WARPS)
            b.p[i] += half * v[i];
        tt_sync();
        for (i64 i = warp; i < left; i += WARPS) {
            double *w = b.w + (k + 1 + i) * n + k + 1;
            for (i64 j = threadIdx.x % 32; j < left; j += 32)
                w[j] -= v[i] * b.p[j] + b.p[i] * v[j];
        }
        tt_sync();
    }
}

/* One implicit QL step on rows l to m, by one thread; returns the last row whose rotation counts. */
TT_DEV i64 eigen_sweep(const eigen_work &b, i64 l, i64 m)
{
    double *d = b.d, *e = b.e, s = 1.0, c = 1.0, p = 0.0, g = (d[l + 1] - d[l]) / (2.0 * e[l]);
    g = d[m] - d[l] + e[l] / (g + copysign(hypot(g, 1.0), g));
    i64 i = m - 1;
    for (; i >= l; i--) {
        const double f = s * e[i], h = c * e[i];
        double r = hypot(f, g);
        e[i + 1] = r;
        if (r == 0.0) {
            d[i + 1] -= p;
            e[m] = 0.0;
            break;
        }
        b.sine[i] = s = f / r;
        b.cosine[i] = c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2.0 * c * h;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - h;
    }
    if (i < l) {
        d[l] -= p;
        e[l] = g;
        e[m] = 0.0;
    }
    return i + 1;
}

TT_DEV void eigen_decompose(const eigen_work &b, float *out)
{
    const i64 n = b.n;
    i64 *range = (i64 *)(void *)tt_shared; /* from, to */
    for (i64 at = threadIdx.x; at < n * n; at += 32 * WARPS)
        b.w[at] = 0.5 * ((double)b.a[at] + (double)b.a[at % n * n + at / n]);
    tt_sync();
    eigen_tridiagonal(b);
    eigen_columns(b, 0, 1);
    tt_sync();
    for (i64 l = 0; l < n; l++)
        for (int tries = 0; tries < 60; tries++) {
            if (threadIdx.x == 0) {
                i64 m = l;
                while (m < n - 1 &&
                       !(fabs(b.e[m]) <= 2.220446049250313e-16 * (fabs(b.d[m]) + fabs(b.d[m + 1]))))
                    m++;
                range[1] = m - 1;
                range[0] = m == l ? m : eigen_sweep(b, l, m);
            }
            tt_sync();
            const i64 from = range[0], to = range[1];
            const bool done = to < l;
            for (i64 j = threadIdx.x; !done && j < n; j += 32 * WARPS)
                for (i64 i = to; i >= from; i--) {
                    double *x = b.z + i * n + j, f = x[n];
                    x[n] = b.sine[i] * x[0] + b.cosine[i] * f;
                    x[0] = b.cosine[i] * x[0] - b.sine[i] * f;
                }
            tt_sync();
            if (done)
                break;
        }
    if (threadIdx.x == 0)
        eigen_sort(b);
    tt_sync();
    for (i64 at = threadIdx.x; at < n * n; at += 32 * WARPS)
        out[at] = (float)b.z[b.order[at % n] * n + at / n];
}

/* a, q, out [count,n,n], how [count]; work: 2 n² + 7 n numbers of 8 bytes for each block */
TT_KERNEL(256, eigenbasis, const float *a, const float *q, const float *how, float *out,
          double *work, i64 n, i64 count)
{
    const i64 size = n * n;
    eigen_work b;
    b.n = n;
    b.w = work + (i64)blockIdx.x * (2 * size + 7 * n);
    b.z = b.w + size;
    b.d = b.z + size;
    b.e = b.d + n;
    b.beta = b.e + n;
    b.p = b.beta + n;
    b.cosine = b.p + n;
    b.sine = b.cosine + n;
    b.order = (i64 *)(void *)(b.sine + n);
    for (i64 i = blockIdx.x; i < count; i += gridDim.x) {
        b.a = a + i * size;
        b.q = q + i * size;
        if (how[i] > 1.5f)
            eigen_decompose(b, out + i * size);
        else if (how[i] > 0.5f)
            eigen_iterate(b, out + i * size);
        else
            for (i64 at = threadIdx.x; at < size; at += 32 * WARPS)
                out[i * size + at] = b.q[at];
        tt_sync();
    }
}
