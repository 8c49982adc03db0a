/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/engine.h"
#include "infer/kept.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct slot {
    bool used;
    tt_request r;
    tt_sampler sampler;
    bool begun;
    int64_t done; /* tokens of the prompt that the cache has */
    int64_t told; /* tokens of the prompt that on_token got */
    int64_t at;   /* tokens of the text: those of the prompt, then with each new one */
    int64_t n_new;
    int32_t last;   /* the newest token, which the cache does not have */
    uint64_t order; /* which came first */
} slot;

struct tt_engine {
    tt_arena *arena;
    tt_calls c;
    int64_t vocab;
    slot *slots; /* [graph->slots] */
    bool *free;  /* [graph->slots] */
    uint64_t order;
    tt_kept kept;
    tt_engine_stats stats;
};

tt_status tt_engine_open(tt_exec *exec, const tt_graph *graph, int64_t vocab, bool forgets,
                         tt_engine **out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_engine *e = tt_arena_alloc(a, sizeof *e);
    *out = NULL;
    e->arena = a;
    e->slots = tt_arena_array(a, (size_t)graph->slots + 1, sizeof *e->slots);
    e->free = tt_arena_array(a, (size_t)graph->slots + 1, sizeof *e->free);
    tt_status s = tt_calls_open(&e->c, exec, graph, a, err);
    if (s != TT_OK) {
        tt_arena_free(a);
        return s;
    }
    e->vocab = TT_MIN(vocab, e->c.logits.shape[1]);
    tt_kept_open(&e->kept, exec, graph, forgets, a);
    *out = e;
    return TT_OK;
}

static void slot_free(slot *x)
{
    tt_sampler_release(&x->sampler);
    *x = (slot){0};
}

void tt_engine_close(tt_engine *e)
{
    if (!e)
        return;
    for (int64_t i = 0; i < e->c.graph->slots; i++)
        slot_free(&e->slots[i]);
    tt_kept_close(&e->kept);
    tt_arena_free(e->arena);
}

tt_status tt_engine_check(const tt_engine *e, const int32_t *prompt, int64_t n, tt_error *err)
{
    if (n < 1)
        return TT_FAIL(err, TT_EINVAL, "the prompt is empty: there is no token to continue from");
    if (n > e->c.graph->length)
        return TT_FAIL(err, TT_EINVAL, "the prompt has %lld tokens, but the context holds %lld",
                       (long long)n, (long long)e->c.graph->length);
    for (int64_t t = 0; t < n; t++)
        if (prompt[t] < 0 || prompt[t] >= e->c.logits.shape[1])
            return TT_FAIL(err, TT_EINVAL, "id %d is not in the vocabulary of %lld", (int)prompt[t],
                           (long long)e->c.logits.shape[1]);
    return TT_OK;
}

static int64_t n_used(const tt_engine *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->c.graph->slots; i++)
        n += e->slots[i].used;
    return n;
}

bool tt_engine_has_room(const tt_engine *e)
{
    return n_used(e) < e->c.graph->slots;
}

bool tt_engine_is_busy(const tt_engine *e)
{
    return n_used(e) > 0;
}

tt_engine_stats tt_engine_count(const tt_engine *e)
{
    tt_engine_stats s = e->stats;
    s.running = n_used(e);
    return s;
}

tt_status tt_engine_add(tt_engine *e, const tt_request *r, tt_error *err)
{
    for (int64_t i = 0; i < e->c.graph->slots; i++)
        e->free[i] = !e->slots[i].used;
    const int64_t at = tt_kept_choose(&e->kept, e->free, r->prompt, r->n_prompt);
    TT_ASSERT(at >= 0 && r->n_top <= TT_ENGINE_MOST_TOP);
    slot *x = &e->slots[at];
    TT_TRY(tt_sampler_init(&x->sampler, &r->sampling, e->vocab, err));
    x->used = true;
    x->r = *r;
    x->order = e->order++;
    return TT_OK;
}

void tt_engine_drop(tt_engine *e, const void *user)
{
    for (int64_t i = 0; i < e->c.graph->slots; i++)
        if (e->slots[i].used && e->slots[i].r.user == user)
            slot_free(&e->slots[i]);
}

/* ---- log-probabilities ---- */

/* The n most likely ids, the first one first; of equal ones the lower id. */
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

static void score(const tt_engine *e, const tt_request *r, const float *logits, tt_token *t)
{
    int32_t ids[TT_ENGINE_MOST_TOP];
    const double all = log_of_sum(logits, e->vocab);
    t->has_logprob = true;
    t->logprob = (double)logits[t->id] - all;
    t->n_top = find_top(logits, e->vocab, r->n_top, ids);
    for (int i = 0; i < t->n_top; i++)
        t->top[i] = (tt_scored){ids[i], (double)logits[ids[i]] - all};
}

static void end(slot *x, tt_finish finish, const char *error)
{
    const tt_request r = x->r;
    slot_free(x);
    r.on_end(r.user, finish, error);
}

/* Samples the next token from a picked row of logits. */
static tt_status engine_advance(tt_engine *e, slot *x, int64_t row, tt_error *err)
{
    const tt_request *r = &x->r;
    tt_tensor map;
    const float *logits;
    TT_TRY(tt_calls_map(&e->c, row, &map, &logits, err));
    tt_token t = {.id = tt_sample_token(&x->sampler, logits, r->stream, (uint64_t)x->at)};
    const bool stops = t.id >= 0 && tt_calls_ends(r->stop_ids, r->n_stop_ids, t.id);
    if (t.id >= 0 && !stops && r->scored)
        score(e, r, logits, &t);
    TT_TRY(tt_calls_unmap(&e->c, &map, logits, err));
    if (t.id < 0) {
        tt_kept_forget(&e->kept, x - e->slots);
        end(x, TT_FINISH_NONE,
            "the logits are not finite: the weights are not finite, or too large");
        return TT_OK;
    }
    if (stops) {
        end(x, TT_FINISH_STOP, NULL);
        return TT_OK;
    }
    x->last = t.id;
    x->n_new++;
    e->stats.new_tokens++;
    const int64_t at = x->at++;
    if (!r->on_token(r->user, &t))
        end(x, TT_FINISH_STOP, NULL);
    else if (x->n_new >= r->max_new)
        end(x, TT_FINISH_LENGTH, NULL);
    else if (at >= e->c.graph->length) /* the last token needs no position: it is not computed on */
        end(x, TT_FINISH_CONTEXT, NULL);
    return TT_OK;
}

/* Tells a token of the prompt; row: the picked row before it, -1: there is none. */
static tt_status tell_prompt(tt_engine *e, slot *x, int64_t at, int64_t row, bool *goes_on,
                             tt_error *err)
{
    const tt_request *r = &x->r;
    tt_token t = {.id = r->prompt[at], .of_prompt = true};
    if (row >= 0 && t.id < e->vocab) {
        tt_tensor map;
        const float *logits;
        TT_TRY(tt_calls_map(&e->c, row, &map, &logits, err));
        score(e, r, logits, &t);
        TT_TRY(tt_calls_unmap(&e->c, &map, logits, err));
    }
    *goes_on = r->on_token(r->user, &t);
    return TT_OK;
}

/* Tells the tokens of the prompt up to `done`; rows: row k - begin has the logits of token k + 1. */
static tt_status tell_done(tt_engine *e, slot *x, int64_t begin, bool rows, bool *goes_on,
                           tt_error *err)
{
    const tt_request *r = &x->r;
    *goes_on = true;
    if (!r->of_prompt)
        return TT_OK;
    for (; *goes_on && x->told < TT_MIN(x->done + 1, r->n_prompt); x->told++)
        TT_TRY(
            tell_prompt(e, x, x->told, rows && x->told ? x->told - 1 - begin : -1, goes_on, err));
    return TT_OK;
}

/* The logits of kept tokens are not kept. */
static tt_status begin_prompt(tt_engine *e, slot *x, tt_error *err)
{
    const tt_request *r = &x->r;
    const int64_t i = x - e->slots;
    if (r->of_prompt && r->scored)
        tt_kept_forget(&e->kept, i);
    else
        TT_TRY(tt_kept_take(&e->kept, i, r->prompt, r->n_prompt, &x->done, err));
    if (r->n_cached)
        *r->n_cached = x->done;
    x->begun = true;
    e->stats.prompt_tokens += r->n_prompt;
    e->stats.cached_tokens += x->done;
    return TT_OK;
}

/* A piece of a prompt. Where its logits are wanted, a piece has as many rows as can be picked. */
static tt_status prefill(tt_engine *e, slot *x, tt_error *err)
{
    const tt_request *r = &x->r;
    if (!x->begun)
        TT_TRY(begin_prompt(e, x, err));
    const bool rows = r->of_prompt && r->scored;
    const int64_t begin = x->done,
                  most = rows ? TT_MIN(e->c.graph->tokens, e->c.graph->slots) : e->c.graph->tokens,
                  done = TT_MIN(begin + most, r->n_prompt);
    bool goes_on;
    tt_calls_clear(&e->c);
    for (int64_t k = begin; k < done; k++) {
        tt_calls_add(&e->c, r->prompt[k], k, x - e->slots);
        if (rows || k + 1 == r->n_prompt)
            tt_calls_pick(&e->c);
    }
    TT_TRY(tt_calls_run(&e->c, err));
    for (int64_t k = begin; k < done; k++)
        TT_TRY(tt_kept_add(&e->kept, x - e->slots, r->prompt[k], err));
    x->done = done;
    x->at = done;
    TT_TRY(tell_done(e, x, begin, rows, &goes_on, err));
    if (!goes_on)
        end(x, TT_FINISH_STOP, NULL);
    else if (done == r->n_prompt && r->max_new <= 0)
        end(x, TT_FINISH_LENGTH, NULL);
    else if (done == r->n_prompt)
        return engine_advance(e, x, e->c.n_pick - 1, err);
    return TT_OK;
}

tt_status tt_engine_step(tt_engine *e, tt_error *err)
{
    slot *first = NULL;
    for (int64_t i = 0; i < e->c.graph->slots; i++) {
        slot *x = &e->slots[i];
        if (x->used && x->done < x->r.n_prompt && (!first || x->order < first->order))
            first = x;
    }
    if (first)
        TT_TRY(prefill(e, first, err));
    tt_calls_clear(&e->c);
    for (int64_t i = 0; i < e->c.graph->slots; i++) {
        const slot *x = &e->slots[i];
        if (!x->used || x->done < x->r.n_prompt)
            continue;
        tt_calls_add(&e->c, x->last, x->at - 1, i);
        tt_calls_pick(&e->c);
    }
    if (!e->c.n)
        return TT_OK;
    const int64_t n = e->c.n;
    TT_TRY(tt_calls_run(&e->c, err));
    for (int64_t i = 0; i < n; i++)
        TT_TRY(tt_kept_add(&e->kept, e->c.slot[i], e->c.ids[i], err));
    for (int64_t i = 0; i < n; i++) /* the rows still say whose they are */
        TT_TRY(engine_advance(e, &e->slots[e->c.slot[i]], i, err));
    return TT_OK;
}
