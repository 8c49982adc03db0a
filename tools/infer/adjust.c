/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/adjust.h"
#include "base/reserve.h"
#include <math.h>
#include <stdlib.h>

static bool repeats(const tt_adjust_opts *o)
{
    return o->repetition > 0 && o->repetition != 1;
}

static bool counts(const tt_adjust_opts *o)
{
    return repeats(o) || o->presence != 0 || o->frequency != 0;
}

tt_status tt_adjust_init(tt_adjust *a, const tt_adjust_opts *o, int64_t vocab,
                         const int32_t *prompt, int64_t n, tt_error *err)
{
    *a = (tt_adjust){.o = *o};
    if (!counts(o))
        return TT_OK;
    a->counts = tt_reserve_calloc((size_t)vocab, sizeof *a->counts);
    a->in_prompt = tt_reserve_calloc((size_t)vocab, sizeof *a->in_prompt);
    if (!a->counts || !a->in_prompt) {
        tt_adjust_free(a);
        return TT_FAIL(err, TT_ENOMEM, "no memory to count %lld ids", (long long)vocab);
    }
    for (int64_t i = 0; i < n; i++)
        if (prompt[i] >= 0 && prompt[i] < vocab)
            a->in_prompt[prompt[i]] = true;
    return TT_OK;
}

void tt_adjust_free(tt_adjust *a)
{
    free(a->counts);
    free(a->in_prompt);
    *a = (tt_adjust){0};
}

bool tt_adjust_is_needed(const tt_adjust *a, int64_t n_new)
{
    return a->counts || a->o.n_bias || n_new < a->o.min_new;
}

static float penalise(const tt_adjust *a, int64_t id, float logit)
{
    const tt_adjust_opts *o = &a->o;
    const int32_t n = a->counts[id];
    double x = logit;
    if ((n || a->in_prompt[id]) && repeats(o))
        x = x > 0 ? x / o->repetition : x * o->repetition;
    if (n)
        x -= o->presence + n * o->frequency;
    return (float)x;
}

void tt_adjust_logits(const tt_adjust *a, float *logits, int64_t vocab, int64_t n_new,
                      const int32_t *ends, size_t n_ends)
{
    for (size_t i = 0; i < a->o.n_bias; i++)
        if (a->o.bias[i].id < vocab)
            logits[a->o.bias[i].id] += a->o.bias[i].bias;
    for (int64_t i = 0; a->counts && i < vocab; i++)
        logits[i] = penalise(a, i, logits[i]);
    for (size_t i = 0; n_new < a->o.min_new && i < n_ends; i++)
        if (ends[i] >= 0 && ends[i] < vocab)
            logits[ends[i]] = -INFINITY;
}

void tt_adjust_took(tt_adjust *a, int32_t id)
{
    if (a->counts)
        a->counts[id]++;
}
