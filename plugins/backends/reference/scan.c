/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <string.h>

/* cumsum, scan and the cached forms of scan and conv1d. */

tt_status ref_cumsum(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_cumsum *a = c->attrs;
    int64_t outer, n, inner;
    (void)backend, (void)err;
    ref_split(&c->in[0], ref_dim(&c->in[0], a->dim), &outer, &n, &inner);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0.0;
            for (int64_t k = 0; k < n; k++) {
                const int64_t at = (o * n + (a->reverse ? n - 1 - k : k)) * inner + i;
                const double x = ref_load(&c->in[0], at);
                ref_store(&c->out[0], at, a->exclusive ? sum : sum + x);
                sum += x;
            }
        }
    return TT_OK;
}

/* ---- scan: x, h [T, n * m], a [T or 1, n] ---- */

typedef struct recurrence {
    const tt_tensor *a, *seg, *pos;
    int64_t tokens, n, m; /* m: states that share one decay */
} recurrence;

static recurrence recurrence_of(const tt_tensor *x, const tt_tensor *a, const tt_tensor *seg)
{
    recurrence r = {.a = a, .seg = seg, .pos = seg + 1, .tokens = x->shape[0], .n = 1, .m = 1};
    int d = x->n_dims - 1;
    for (; d > 0 && a->shape[d] == 1; d--)
        r.m *= x->shape[d];
    for (; d > 0; d--)
        r.n *= x->shape[d];
    return r;
}

static double decay(const recurrence *r, int64_t t, int64_t i)
{
    return ref_load(r->a, (r->a->global[0] == 1 ? 0 : t * r->n) + i);
}

static bool continues(const recurrence *r, int64_t t) /* token t the segment of token t - 1 */
{
    return t > 0 && t < r->tokens && ref_index(r->seg, t - 1) == ref_index(r->seg, t) &&
           ref_index(r->pos, t - 1) == ref_index(r->pos, t) - 1;
}

tt_status ref_scan(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const recurrence r = recurrence_of(&c->in[0], &c->in[1], &c->in[2]);
    const int64_t width = r.n * r.m;
    (void)backend, (void)err;
    for (int64_t i = 0; i < width; i++) {
        double h = 0.0;
        for (int64_t t = 0; t < r.tokens; t++) {
            const double x = ref_load(&c->in[0], t * width + i);
            h = continues(&r, t) ? decay(&r, t, i / r.m) * h + x : x;
            ref_store(&c->out[0], t * width + i, h);
        }
    }
    return TT_OK;
}

size_t ref_scan_bwd_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)recurrence_of(&c->in[0], &c->in[1], &c->in[3]).m * sizeof(double);
}

/* With g[t] = dh[t] + a[t+1] g[t+1]: dx = g, da[t] = Σ g[t] h[t-1] over the states that share a. */
tt_status ref_scan_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const recurrence r = recurrence_of(&c->in[0], &c->in[1], &c->in[3]);
    const int64_t width = r.n * r.m;
    double *g = c->scratch;
    (void)backend, (void)err;
    for (int64_t i = 0; i < r.n; i++)
        for (int64_t t = r.tokens - 1; t >= 0; t--) {
            double da = 0.0;
            for (int64_t k = 0; k < r.m; k++) {
                const int64_t at = t * width + i * r.m + k;
                g[k] = ref_load(&c->in[2], at) +
                       (continues(&r, t + 1) ? decay(&r, t + 1, i) * g[k] : 0.0);
                ref_store(&c->out[0], at, g[k]);
                if (continues(&r, t))
                    da += g[k] * ref_load(&c->in[0], at - width);
            }
            ref_store(&c->out[1], t * r.n + i, da);
        }
    return TT_OK;
}

/* ---- decoding ---- */

tt_status ref_begin_cached(const tt_kernel_call *c, int at_slot, tt_error *err)
{
    const tt_tensor *state = &c->out[1], *slot = &c->in[at_slot], *pos = slot + 1, *from = slot + 2;
    if (state->data != from->data)
        memcpy(state->data, from->data,
               (size_t)tt_tensor_numel(state) * tt_dtype_size(state->dtype));
    for (int64_t t = 0; t < c->in[0].shape[0]; t++)
        if (ref_index(slot, t) >= state->shape[0] ||
            (ref_index(slot, t) >= 0 && ref_index(pos, t) < 0))
            return TT_FAIL(err, TT_EINVAL,
                           "%s: token %lld is number %lld of sequence %lld, there is room for %lld "
                           "sequences",
                           c->op, (long long)t, (long long)ref_index(pos, t),
                           (long long)ref_index(slot, t), (long long)state->shape[0]);
    return TT_OK;
}

/* x [T,n*m], a, slot, pos [T], state [S,n*m] → h, state */
tt_status ref_scan_cached(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const recurrence r = recurrence_of(&c->in[0], &c->in[1], &c->in[2]);
    const int64_t width = r.n * r.m;
    (void)backend;
    TT_TRY(ref_begin_cached(c, 2, err));
    for (int64_t t = 0; t < r.tokens; t++)
        for (int64_t i = 0; i < width; i++) {
            const int64_t slot = ref_index(&c->in[2], t), at = slot * width + i;
            double h = ref_load(&c->in[0], t * width + i);
            if (slot >= 0 && ref_index(&c->in[3], t) > 0)
                h += decay(&r, t, i / r.m) * ref_load(&c->out[1], at);
            if (slot >= 0)
                ref_store(&c->out[1], at, h);
            ref_store(&c->out[0], t * width + i, slot >= 0 ? h : 0.0);
        }
    return TT_OK;
}

/* x [T,D], w [D,K], slot, pos [T], state [S,K-1,D] → y, state */
tt_status ref_conv1d_cached(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const int64_t width = c->in[0].shape[1], taps = c->in[1].shape[1], rows = c->out[1].shape[1];
    (void)backend;
    TT_TRY(ref_begin_cached(c, 2, err));
    for (int64_t t = 0; t < c->in[0].shape[0]; t++)
        for (int64_t d = 0; d < width; d++) {
            const int64_t slot = ref_index(&c->in[2], t), pos = ref_index(&c->in[3], t);
            const double x = ref_load(&c->in[0], t * width + d);
            double y = 0.0;
            for (int64_t j = 0; slot >= 0 && j < taps && j <= pos; j++)
                y += ref_load(&c->in[1], d * taps + taps - 1 - j) *
                     (j ? ref_load(&c->out[1], (slot * rows + (pos - j) % rows) * width + d) : x);
            if (slot >= 0)
                ref_store(&c->out[1], (slot * rows + pos % rows) * width + d, x);
            ref_store(&c->out[0], t * width + d, y);
        }
    return TT_OK;
}
