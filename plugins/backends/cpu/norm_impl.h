/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of one row of n elements; dw and db are added to. Rows are consecutive in memory: the first
 * pass over an operand prefetches what a later row needs. */
#define NORM_AHEAD 512 /* elements */
INLINE vf soon(const float *p, int64_t i, int64_t m)
{
    __builtin_prefetch(p + i + NORM_AHEAD);
    return operand(p, i, m, false, 0.0f);
}

#define EACH(body)                                                                                 \
    for (int64_t i = 0; i < n; i += VW) {                                                          \
        const int64_t m = n - i < VW ? n - i : VW;                                                 \
        body                                                                                       \
    }
#define AT(p) operand((p), i, m, false, 0.0f)

INLINE void put(float *p, int64_t i, int64_t m, vf v)
{
    if (m == VW)
        vstore(p + i, v);
    else
        vstore_part(p + i, v, m);
}

INLINE vf square(vf v)
{
    return v * v;
}
/* 1 / sqrt(mean(x²) + eps) */
INLINE float rms_factor(int64_t n, const float *x, float eps)
{
#define X(i, m) square(soon(x, (i), (m)))
    ROW_REDUCE(X)
#undef X
    return 1.0f / sqrtf((float)total / (float)n + eps);
}

/* Stores a result, and prefetches the place of a later row's result. */
INLINE void put_out(float *p, int64_t i, int64_t m, vf v)
{
    __builtin_prefetch(p + i + NORM_AHEAD, 1);
    put(p, i, m, v);
}

static float rms_norm(int64_t n, const float *x, const float *w, float *y, float eps)
{
    float r = rms_factor(n, x, eps);
    EACH(put_out(y, i, m, AT(x) * r * AT(w));)
    return r;
}

/* With h = x r: dx = r (w dy - h mean(h w dy)), dw += h dy */
static void rms_norm_bwd(int64_t n, const float *x, const float *w, const float *dy, float *dx,
                         float *dw, float eps)
{
    float r = rms_factor(n, x, eps);
#define X(i, m)                                                                                    \
    (operand(x, (i), (m), false, 0.0f) * r *                                                       \
     (operand(w, (i), (m), false, 0.0f) * soon(dy, (i), (m))))
    ROW_REDUCE(X)
#undef X
    float mean = (float)total / (float)n;
    EACH(vf h = AT(x) * r; vf g = AT(dy); vf d = (AT(w) * g - h * mean) * r;
         put(dw, i, m, AT(dw) + h * g); put_out(dx, i, m, d);)
}

INLINE float mean_of(int64_t n, const float *x)
{
#define X(i, m) soon(x, (i), (m))
    ROW_REDUCE(X)
#undef X
    return (float)total / (float)n;
}
INLINE void layer_moments(int64_t n, const float *x, float eps, float *mean, float *factor)
{
    const float u = mean_of(n, x);
#define X(i, m) square(operand(x, (i), (m), false, u) - u)
    ROW_REDUCE(X)
#undef X
    *mean = u;
    *factor = 1.0f / sqrtf((float)total / (float)n + eps);
}

static void layer_norm(int64_t n, const float *x, const float *w, const float *b, float *y,
                       float eps)
{
    float u, r;
    layer_moments(n, x, eps, &u, &r);
    EACH(put_out(y, i, m, (AT(x) - u) * r * AT(w) + AT(b));)
}

/* With h = (x - mean) r and g = w dy: dx = r (g - mean(g) - h mean(h g)), dw += h dy, db += dy */
static void layer_norm_bwd(int64_t n, const float *x, const float *w, const float *dy, float *dx,
                           float *dw, float *db, float eps)
{
    float u, r;
    layer_moments(n, x, eps, &u, &r);
    /* two accumulators each, used alternately, so that an addition need not wait for the
     * previous one */
    vf s = vset(0.0f), t = s, s1 = s, t1 = s;
    EACH(const vf g = AT(w) * soon(dy, i, m); const vf sum = s1 + g;
         const vf dot = t1 + (AT(x) - u) * r * g; s1 = s; s = sum; t1 = t; t = dot;)
    float mean_g = vsum(s + s1) / (float)n, mean_hg = vsum(t + t1) / (float)n;
    EACH(vf h = (AT(x) - u) * r; vf d = AT(dy); vf e = (AT(w) * d - mean_g - h * mean_hg) * r;
         put(dw, i, m, AT(dw) + h * d); put(db, i, m, AT(db) + d); put_out(dx, i, m, e);)
}
#undef EACH
#undef AT
