/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <string.h>
#include <ttrun/backend.h>
#include <ttrun/eigenbasis.h>

/* tt_eigenbasis, in f64. Matrices of work are kept as rows that are columns of what they stand for, so that
 * inner loops run along memory. Work is shared by rows or by runs of columns, each computed by one thread in
 * one order: the bits do not depend on the number of threads.
 *   Sources: Golub & Van Loan, Matrix Computations, 5.2 (QR by reflections), 8.3 (tridiagonal form, implicit QL). */

#define PIECE 1048576 /* elements that are worth a task: threads meet after each row */

typedef struct basis {
    tt_pool *pool;
    int64_t n;
    const float *a, *q;
    double *w, *z;                            /* [n,n] */
    double *d, *e, *beta, *p, *cosine, *sine; /* [n] */
    int64_t *order;                           /* [n] */
    int64_t k, from, to;                      /* of the step that tasks work on */
} basis;

size_t tt_eigenbasis_scratch(int64_t n)
{
    return (size_t)(2 * n * n + 6 * n) * sizeof(double) + (size_t)n * sizeof(int64_t);
}

static double dot(const double *x, const double *y, int64_t n)
{
    double s[8] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += x[i + k] * y[i + k];
    for (; i < n; i++)
        rest += x[i] * y[i];
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7])) + rest;
}

static void add_times(double *y, double c, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += c * x[i];
}

static void share(basis *b, int64_t n, int64_t each, tt_range_fn fn)
{
    const int64_t grain = PIECE / (each > 0 ? each : 1);
    if (n > 0 && !b->pool)
        fn(b, 0, n, 0);
    else if (n > 0)
        tt_parallel_for(b->pool, n, grain > 1 ? grain : 1, fn, b);
}

/* x [n] becomes the vector v of the reflection 1 - beta v vᵀ that leaves x[0] alone, *first. Returns beta; 0: x
 * has nothing but x[0]. */
static double reflection(double *x, int64_t n, double *first)
{
    const double rest = dot(x + 1, x + 1, n - 1), norm = sqrt(x[0] * x[0] + rest);
    *first = x[0];
    if (rest == 0)
        return 0;
    *first = x[0] > 0 ? -norm : norm;
    x[0] -= *first;
    return 2 / (x[0] * x[0] + rest);
}

static void reflect(double *x, const double *v, double beta, int64_t n)
{
    add_times(x, -beta * dot(v, x, n), v, n);
}

/* order: the numbers d from the largest to the smallest, equal ones as they stand. */
static void sort(basis *b)
{
    for (int64_t i = 0; i < b->n; i++) {
        int64_t at = i;
        for (; at > 0 && b->d[b->order[at - 1]] < b->d[i]; at--)
            b->order[at] = b->order[at - 1];
        b->order[at] = i;
    }
}

/* ---- one step of orthogonal iteration: QR of a·q ---- */

/* w[j] = column j of a·q, d[j] = its product with that of q, the estimated eigenvalue */
static void eigen_multiply(void *arg, int64_t begin, int64_t end, int thread)
{
    basis *b = arg;
    const int64_t n = b->n;
    (void)thread;
    for (int64_t j = begin; j < end; j++) {
        double *w = b->w + j * n;
        memset(w, 0, (size_t)n * sizeof *w);
        for (int64_t k = 0; k < n; k++) {
            const double q = (double)b->q[k * n + j];
            for (int64_t i = 0; i < n; i++)
                w[i] += q * (double)b->a[k * n + i];
        }
        b->d[j] = 0;
        for (int64_t k = 0; k < n; k++)
            b->d[j] += (double)b->q[k * n + j] * w[k];
    }
}

static void reflect_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    basis *b = arg;
    const int64_t n = b->n, k = b->k;
    const double *v = b->w + b->order[k] * n + k;
    (void)thread;
    for (int64_t r = k + 1 + begin; r < k + 1 + end; r++)
        reflect(b->w + b->order[r] * n + k, v, b->beta[k], n - k);
}

/* z[r] = column r of the product of all reflections */
static void make_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    basis *b = arg;
    const int64_t n = b->n;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        double *z = b->z + r * n;
        memset(z, 0, (size_t)n * sizeof *z);
        z[r] = 1;
        for (int64_t k = r; k >= 0; k--)
            reflect(z + k, b->w + b->order[k] * n + k, b->beta[k], n - k);
    }
}

static void iterate(basis *b, float *out)
{
    const int64_t n = b->n;
    double first;
    share(b, n, n * n, eigen_multiply);
    sort(b);
    for (int64_t k = 0; k < n; k++) {
        b->k = k;
        b->beta[k] = reflection(b->w + b->order[k] * n + k, n - k, &first);
        share(b, n - k - 1, n - k, reflect_columns);
    }
    share(b, n, n * n, make_columns);
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < n; r++)
            out[i * n + b->order[r]] = (float)b->z[r * n + i];
}

/* ---- eigenvectors: tridiagonal form by reflections, then implicit QL ---- */

static void times_reflection(void *arg, int64_t begin, int64_t end, int thread)
{
    basis *b = arg;
    const int64_t n = b->n, at = b->k + 1;
    const double *v = b->w + b->k * n + at;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        b->p[i] = b->beta[b->k] * dot(b->w + (at + i) * n + at, v, n - at);
}

static void subtract_products(void *arg, int64_t begin, int64_t end, int thread)
{
    basis *b = arg;
    const int64_t n = b->n, at = b->k + 1;
    const double *v = b->w + b->k * n + at;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        double *w = b->w + (at + i) * n + at;
        const double x = v[i], y = b->p[i];
        for (int64_t j = 0; j < n - at; j++)
            w[j] -= x * b->p[j] + y * v[j];
    }
}

/* w becomes tridiagonal: d its diagonal, e beside it; row k of w then holds reflection k from k + 1 on. */
static void make_tridiagonal(basis *b)
{
    const int64_t n = b->n;
    for (int64_t k = 0; k < n; k++) {
        double *v = b->w + k * n + k + 1;
        const int64_t left = n - k - 1;
        b->d[k] = v[-1];
        b->e[k] = b->beta[k] = 0;
        if (!left)
            return;
        b->k = k;
        b->beta[k] = reflection(v, left, &b->e[k]);
        if (b->beta[k] == 0)
            continue;
        share(b, left, left, times_reflection);
        add_times(b->p, -0.5 * b->beta[k] * dot(b->p, v, left), v, left);
        share(b, left, left, subtract_products);
    }
}

static void make_vectors(void *arg, int64_t begin, int64_t end, int thread)
{
    basis *b = arg;
    const int64_t n = b->n;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        double *z = b->z + r * n;
        memset(z, 0, (size_t)n * sizeof *z);
        z[r] = 1;
        for (int64_t k = r - 1 < n - 2 ? r - 1 : n - 2; k >= 0; k--)
            if (b->beta[k] != 0)
                reflect(z + k + 1, b->w + k * n + k + 1, b->beta[k], n - k - 1);
    }
}

/* The rotations of a sweep, from row `to` down to `from`, on columns [begin, end) of z. */
static void rotate(void *arg, int64_t begin, int64_t end, int thread)
{
    const basis *b = arg;
    (void)thread;
    for (int64_t i = b->to; i >= b->from; i--) {
        double *x = b->z + i * b->n, *y = x + b->n;
        const double c = b->cosine[i], s = b->sine[i];
        for (int64_t j = begin; j < end; j++) {
            const double f = y[j];
            y[j] = s * x[j] + c * f;
            x[j] = c * x[j] - s * f;
        }
    }
}

/* One implicit QL step on rows l to m. */
static void sweep(basis *b, int64_t l, int64_t m)
{
    double *d = b->d, *e = b->e, s = 1, c = 1, p = 0, r = 1;
    double g = (d[l + 1] - d[l]) / (2 * e[l]);
    g = d[m] - d[l] + e[l] / (g + copysign(hypot(g, 1), g));
    int64_t i = m - 1;
    for (; i >= l; i--) {
        const double f = s * e[i], h = c * e[i];
        e[i + 1] = r = hypot(f, g);
        if (r == 0) {
            d[i + 1] -= p;
            e[m] = 0;
            break;
        }
        b->sine[i] = s = f / r;
        b->cosine[i] = c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * h;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - h;
    }
    b->to = m - 1;
    b->from = i + 1;
    share(b, b->n, m - b->from, rotate);
    if (i < l) {
        d[l] -= p;
        e[l] = g;
        e[m] = 0;
    }
}

static void decompose(basis *b, float *out)
{
    const int64_t n = b->n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            b->w[i * n + j] = 0.5 * ((double)b->a[i * n + j] + (double)b->a[j * n + i]);
    make_tridiagonal(b);
    share(b, n, n * n, make_vectors);
    for (int64_t l = 0; l < n; l++)
        for (int tries = 0; tries < 60;
             tries++) { /* a few: more only of numbers that are not finite */
            int64_t m = l;
            while (m < n - 1 &&
                   !(fabs(b->e[m]) <= DBL_EPSILON * (fabs(b->d[m]) + fabs(b->d[m + 1]))))
                m++;
            if (m == l)
                break;
            sweep(b, l, m);
        }
    sort(b);
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < n; r++)
            out[i * n + r] = (float)b->z[b->order[r] * n + i];
}

void tt_eigenbasis_at(tt_pool *pool, const float *a, const float *q, int64_t n, float how,
                      void *scratch, float *out)
{
    double *at = scratch;
    basis b = {.pool = pool, .n = n, .a = a, .q = q};
    b.w = at, at += n * n;
    b.z = at, at += n * n;
    double **const vectors[] = {&b.d, &b.e, &b.beta, &b.p, &b.cosine, &b.sine};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++, at += n)
        *vectors[i] = at;
    b.order = (int64_t *)(void *)at;
    if (how > 1.5f)
        decompose(&b, out);
    else if (how > 0.5f)
        iterate(&b, out);
    else
        memmove(out, q, (size_t)(n * n) * sizeof *out);
}
