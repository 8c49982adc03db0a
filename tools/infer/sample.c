/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/sample.h"
#include "base/reserve.h"
#include <math.h>
#include <stdlib.h>

tt_status tt_sampler_init(tt_sampler *s, const tt_sampling *o, int64_t n, tt_error *err)
{
    *s = (tt_sampler){.o = *o, .n = n};
    if (o->temperature <= 0)
        return TT_OK;
    s->heap = tt_reserve_calloc((size_t)n, sizeof *s->heap);
    return s->heap ? TT_OK
                   : TT_FAIL(err, TT_ENOMEM, "no memory to sample from %lld ids", (long long)n);
}

void tt_sampler_release(tt_sampler *s)
{
    free(s->heap);
    s->heap = NULL;
}

static int32_t largest(const float *logits, int64_t n)
{
    int32_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(logits[i]))
            return -1;
        if (isfinite(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = (int32_t)i;
    }
    return best;
}

/* Whether a comes before b: the more likely one does; of equal ones, the one with the lower id. */
static bool before(const tt_candidate *a, const tt_candidate *b)
{
    return a->weight > b->weight || (a->weight == b->weight && a->id < b->id);
}

static void sift(tt_candidate *h, int64_t n, int64_t i)
{
    for (int64_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && before(&h[c + 1], &h[c]))
            c++;
        if (!before(&h[c], &h[i]))
            return;
        const tt_candidate t = h[i];
        h[i] = h[c];
        h[c] = t;
    }
}

/* Sorts the k most likely of n candidates to the END of h: h[n-1] is the most likely one. Takes
 * them from a heap and stops when their weights add up to `enough`. Returns how many it took. */
static int64_t sample_take(tt_candidate *h, int64_t n, int64_t k, double enough, double *mass)
{
    int64_t left = n;
    *mass = 0;
    for (int64_t i = n / 2; i-- > 0;)
        sift(h, n, i);
    while (left > n - k && (left == n || *mass < enough)) {
        const tt_candidate top = h[0];
        h[0] = h[--left];
        h[left] = top;
        sift(h, left, 0);
        *mass += top.weight;
    }
    return n - left;
}

int32_t tt_sample_token(tt_sampler *s, const float *logits, uint64_t stream, uint64_t position)
{
    const int32_t best = largest(logits, s->n);
    if (best < 0 || s->o.temperature <= 0)
        return best;
    tt_candidate *h = s->heap;
    double mass = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const double weight = exp(((double)logits[i] - (double)logits[best]) / s->o.temperature);
        if (weight < s->o.min_p)
            continue;
        h[n++] = (tt_candidate){weight, (int32_t)i};
        mass += weight;
    }
    const int64_t k = s->o.top_k > 0 && s->o.top_k < n ? s->o.top_k : n;
    int64_t kept = n;
    if (k < n)
        kept = sample_take(h, n, k, (double)INFINITY, &mass);
    if (s->o.top_p < 1) { /* a share of the weight of the k that are left */
        const double enough = s->o.top_p * mass;
        h += n - kept;
        kept = sample_take(h, kept, kept, enough, &mass);
        h += (k < n ? k : n) - kept;
    } else {
        h += n - kept;
    }
    double u = mass * tt_rng_uniform(tt_rng_key_make(s->o.seed, "sample", stream), position);
    for (int64_t i = kept; i-- > 0;) {
        u -= h[i].weight;
        if (u <= 0)
            return h[i].id;
    }
    return best; /* reached only because of rounding in the sums */
}
