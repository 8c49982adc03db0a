/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/sample.h"
#include <math.h>
#include <stdlib.h>

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

static int by_logit(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->logit > y->logit || x->logit < y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int32_t greedy(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

int32_t tt_sample_token(const tt_sampling *s, const float *logits, int64_t n, uint64_t position)
{
    if (s->temperature <= 0)
        return greedy(logits, n);
    candidate *c = calloc((size_t)n, sizeof *c);
    if (!c)
        return greedy(logits, n);
    for (int64_t i = 0; i < n; i++)
        c[i] = (candidate){logits[i], (int32_t)i};
    qsort(c, (size_t)n, sizeof *c, by_logit);
    int64_t k = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    double sum = 0, mass = 0;
    for (int64_t i = 0; i < k; i++)
        sum += exp(((double)c[i].logit - (double)c[0].logit) / s->temperature);
    double keep = sum;
    for (int64_t i = 0; s->top_p < 1 && i < k; i++) {
        mass += exp(((double)c[i].logit - (double)c[0].logit) / s->temperature);
        if (mass < s->top_p * sum)
            continue;
        keep = mass;
        k = i + 1;
    }
    double u = keep * tt_rng_uniform(tt_rng_key_make(s->seed, "sample", 0), position);
    int32_t id = c[k - 1].id;
    for (int64_t i = 0; i < k; i++) {
        u -= exp(((double)c[i].logit - (double)c[0].logit) / s->temperature);
        if (u > 0)
            continue;
        id = c[i].id;
        break;
    }
    free(c);
    return id;
}
