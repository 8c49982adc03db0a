/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of one row of n elements. dw and db are added to. */

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

/* 1 / sqrt(mean(x²) + eps) */
INLINE float rms_factor(int64_t n, const float *x, float eps)
{
    return 1.0f / sqrtf(row_dot(n, x, x) / (float)n + eps);
}

static float rms_norm(int64_t n, const float *x, const float *w, float *y, float eps)
{
    float r = rms_factor(n, x, eps);
    EACH(put(y, i, m, AT(x) * r * AT(w));)
    return r;
}

/* With h = x r: dx = r (w dy - h mean(h w dy)), dw += h dy */
static void rms_norm_bwd(int64_t n, const float *x, const float *w, const float *dy, float *dx,
                         float *dw, float eps)
{
    float r = rms_factor(n, x, eps);
    vf s = vset(0.0f);
    EACH(s += AT(x) * r * (AT(w) * AT(dy));)
    float mean = vsum(s) / (float)n;
    EACH(vf h = AT(x) * r; vf g = AT(dy); vf d = (AT(w) * g - h * mean) * r;
         put(dw, i, m, AT(dw) + h * g); put(dx, i, m, d);)
}

INLINE void layer_moments(int64_t n, const float *x, float eps, float *mean, float *factor)
{
    float u = row_sum(n, x) / (float)n;
    vf s = vset(0.0f);
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf d = vload(x + i) - u;
        s += d * d;
    }
    if (i < n) {
        vf d = vload_part(x + i, n - i, u) - u;
        s += d * d;
    }
    *mean = u;
    *factor = 1.0f / sqrtf(vsum(s) / (float)n + eps);
}

static void layer_norm(int64_t n, const float *x, const float *w, const float *b, float *y,
                       float eps)
{
    float u, r;
    layer_moments(n, x, eps, &u, &r);
    EACH(put(y, i, m, (AT(x) - u) * r * AT(w) + AT(b));)
}

/* With h = (x - mean) r and g = w dy: dx = r (g - mean(g) - h mean(h g)), dw += h dy, db += dy */
static void layer_norm_bwd(int64_t n, const float *x, const float *w, const float *dy, float *dx,
                           float *dw, float *db, float eps)
{
    float u, r;
    layer_moments(n, x, eps, &u, &r);
    vf s = vset(0.0f), t = s;
    EACH(vf g = AT(w) * AT(dy); s += g; t += (AT(x) - u) * r * g;)
    float mean_g = vsum(s) / (float)n, mean_hg = vsum(t) / (float)n;
    EACH(vf h = (AT(x) - u) * r; vf d = AT(dy); vf e = (AT(w) * d - mean_g - h * mean_hg) * r;
         put(dw, i, m, AT(dw) + h * d); put(db, i, m, AT(db) + d); put(dx, i, m, e);)
}
#undef EACH
#undef AT
