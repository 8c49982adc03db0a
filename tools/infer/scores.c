/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/scores.h"
#include "base/reserve.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int find_top(const float *logits, int64_t vocab, int n, int32_t *ids)
{
    int k = 0;
    for (int64_t i = 0; n > 0 && i < vocab; i++) {
        if (k == n && !(logits[i] > logits[ids[k - 1]]))
            continue;
        int at = k < n ? k++ : n - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = (int32_t)i;
    }
    return k;
}

/* The logarithm of the sum of e^logits: logprobs are logits minus it. */
static double log_of_sum(const float *logits, int64_t vocab)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        top = fmax(top, (double)logits[i]);
    for (int64_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - top);
    return top + log(sum);
}

void tt_token_score(tt_token *t, const float *logits, int64_t vocab, int n_top)
{
    int32_t ids[TT_MOST_TOP];
    const double all = log_of_sum(logits, vocab);
    t->has_logprob = true;
    t->logprob = (double)logits[t->id] - all;
    t->n_top = find_top(logits, vocab, n_top, ids);
    for (int i = 0; i < t->n_top; i++)
        t->top[i] = (tt_scored){ids[i], (double)logits[ids[i]] - all};
}

/* ---- lists ---- */

void tt_scores_free(tt_scores *s)
{
    free(s->all);
    free(s->ends);
    *s = (tt_scores){0};
}

void tt_scores_cut(tt_scores *s, size_t n)
{
    s->n = TT_MIN(s->n, n);
    s->n_all = s->n ? s->ends[s->n - 1] : 0;
}

static tt_status grow(void *items, size_t *cap, size_t least, size_t size, tt_error *err)
{
    void *old;
    memcpy(&old, items, sizeof old);
    if (least <= *cap)
        return TT_OK;
    const size_t wanted = TT_MAXV(least, *cap + *cap / 2 + 256);
    void *p = tt_reserve_realloc(old, wanted * size);
    if (!p)
        return TT_FAIL(err, TT_ENOMEM, "no memory for the log-probabilities of %zu tokens", wanted);
    memcpy(items, &p, sizeof p);
    *cap = wanted;
    return TT_OK;
}

static tt_status scores_room(tt_scores *s, size_t n, size_t n_all, tt_error *err)
{
    TT_TRY(grow(&s->ends, &s->cap, n, sizeof *s->ends, err));
    return grow(&s->all, &s->cap_all, n_all, sizeof *s->all, err);
}

tt_status tt_scores_set(tt_scores *s, size_t at, const tt_token *t, tt_error *err)
{
    tt_scores_cut(s, at);
    TT_TRY(scores_room(s, at + 1, s->n_all + 1 + (size_t)t->n_top, err));
    while (s->n < at)
        s->ends[s->n++] = s->n_all;
    if (t->has_logprob) {
        s->all[s->n_all++] = (tt_scored){t->id, t->logprob};
        memcpy(s->all + s->n_all, t->top, (size_t)t->n_top * sizeof *t->top);
        s->n_all += (size_t)t->n_top;
    }
    s->ends[s->n++] = s->n_all;
    return TT_OK;
}

bool tt_scores_get(const tt_scores *s, size_t at, int n_top, tt_token *t)
{
    if (at >= s->n)
        return false;
    const size_t begin = at ? s->ends[at - 1] : 0, has = s->ends[at] - begin;
    if (has < 1 + (size_t)n_top)
        return false;
    if (!t)
        return true;
    t->has_logprob = true;
    t->logprob = s->all[begin].logprob;
    t->n_top = n_top;
    memcpy(t->top, s->all + begin + 1, (size_t)n_top * sizeof *t->top);
    return true;
}

tt_status tt_scores_copy(tt_scores *to, const tt_scores *from, size_t n, tt_error *err)
{
    n = TT_MIN(n, from->n);
    const size_t n_all = n ? from->ends[n - 1] : 0;
    TT_TRY(scores_room(to, n, n_all, err));
    if (n)
        memcpy(to->ends, from->ends, n * sizeof *to->ends);
    if (n_all)
        memcpy(to->all, from->all, n_all * sizeof *to->all);
    to->n = n;
    to->n_all = n_all;
    return TT_OK;
}
