/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/generate.h"
#include "infer/calls.h"
#include <stdlib.h>
#include <string.h>

typedef struct generator {
    const tt_generate_opts *o;
    tt_sequence *s;
    size_t n, next; /* next: the first sequence that has had no slot yet */
    int64_t *slots; /* [graph->slots] the sequence in each slot; -1 = free */
    tt_calls c;
    tt_sampler sampler;
    tt_generate_stats *stats;
} generator;

/* Samples the next token of sequence i from a row of the logits. */
static tt_status advance(generator *g, size_t i, int64_t row, tt_error *err)
{
    tt_sequence *s = &g->s[i];
    const int64_t at = s->n_prompt + (int64_t)s->ids.n;
    int32_t id;
    TT_TRY(tt_calls_sample(&g->c, &g->sampler, row, s->stream, at, &id, err));
    if (id < 0)
        return TT_FAIL(err, TT_ENUMERIC,
                       "the logits of token %lld are not finite: the weights are not finite, "
                       "or too large",
                       (long long)at);
    g->stats->new_tokens++;
    if (tt_calls_ends(g->o->stop_ids, g->o->n_stop_ids, id)) {
        s->finish = TT_FINISH_STOP;
    } else {
        TT_TRY(tt_ids_push(&s->ids, id, err));
        if (g->o->on_token)
            g->o->on_token(g->o->user, i, id);
        if ((int64_t)s->ids.n >= g->o->max_new)
            s->finish = TT_FINISH_LENGTH;
        else if (at >= g->o->graph->length) /* the last token need not be computed on, so it needs
                                               no position */
            s->finish = TT_FINISH_CONTEXT;
    }
    if (s->finish && g->o->on_end)
        g->o->on_end(g->o->user, i);
    return TT_OK;
}

/* Computes a prompt's keys and values into its slot and samples its first token. How a prompt is
 * cut into calls depends on its length and n_cached only. */
static tt_status prefill(generator *g, size_t i, int64_t slot, tt_error *err)
{
    const tt_sequence *s = &g->s[i];
    const int64_t most = g->o->graph->tokens;
    for (int64_t t = s->n_cached; t < s->n_prompt; t += most) {
        tt_calls_clear(&g->c);
        for (int64_t k = t; k < TT_MIN(t + most, s->n_prompt); k++)
            tt_calls_add(&g->c, s->prompt[k], k, slot);
        if (t + most >= s->n_prompt)
            tt_calls_pick(&g->c);
        TT_TRY(tt_calls_run(&g->c, err));
    }
    g->stats->prompt_tokens += s->n_prompt - s->n_cached;
    g->slots[slot] = (int64_t)i;
    TT_TRY(advance(g, i, 0, err));
    if (s->finish)
        g->slots[slot] = -1;
    return TT_OK;
}

static tt_status admit(generator *g, tt_error *err)
{
    const int64_t t0 = tt_now_ns();
    for (int64_t slot = 0; slot < g->o->graph->slots && g->next < g->n; slot++) {
        while (g->slots[slot] < 0 && g->next < g->n && !(g->o->stop && g->o->stop()))
            TT_TRY(prefill(g, g->next++, slot, err));
    }
    g->stats->prompt_seconds += 1e-9 * (double)(tt_now_ns() - t0);
    return TT_OK;
}

/* Samples one more token for every sequence that has a slot. */
static tt_status generate_step(generator *g, bool *any, tt_error *err)
{
    const int64_t t0 = tt_now_ns();
    tt_calls_clear(&g->c);
    for (int64_t slot = 0; slot < g->o->graph->slots; slot++) {
        if (g->slots[slot] < 0)
            continue;
        const tt_sequence *s = &g->s[g->slots[slot]];
        tt_calls_add(&g->c, s->ids.ids[s->ids.n - 1], s->n_prompt + (int64_t)s->ids.n - 1, slot);
        tt_calls_pick(&g->c);
    }
    *any = g->c.n > 0;
    if (!*any)
        return TT_OK;
    TT_TRY(tt_calls_run(&g->c, err));
    int64_t row = 0;
    for (int64_t slot = 0; slot < g->o->graph->slots; slot++) {
        if (g->slots[slot] < 0)
            continue;
        const size_t i = (size_t)g->slots[slot];
        TT_TRY(advance(g, i, row++, err));
        if (g->s[i].finish)
            g->slots[slot] = -1;
    }
    g->stats->new_seconds += 1e-9 * (double)(tt_now_ns() - t0);
    return TT_OK;
}

static tt_status run_cached(generator *g, tt_error *err)
{
    bool any = true;
    while (any && !(g->o->stop && g->o->stop())) {
        TT_TRY(admit(g, err));
        TT_TRY(generate_step(g, &any, err));
    }
    return TT_OK;
}

/* ---- without a cache: one sequence after the other, the whole context again for every token ----
 */

/* Tokens after the current one do not matter: attention is causal. */
static tt_status recompute(generator *g, size_t i, tt_error *err)
{
    tt_sequence *s = &g->s[i];
    tt_calls *r = &g->c;
    r->n = g->o->graph->tokens;
    for (int64_t t = 0; t < r->n; t++) {
        r->ids[t] = t < s->n_prompt ? s->prompt[t] : 0;
        r->pos[t] = (int32_t)t;
        r->slot[t] = 0;
    }
    g->stats->prompt_tokens += s->n_prompt;
    while (!s->finish && !(g->o->stop && g->o->stop())) {
        const int64_t at = s->n_prompt + (int64_t)s->ids.n;
        if (s->ids.n)
            r->ids[at - 1] = s->ids.ids[s->ids.n - 1];
        TT_TRY(tt_calls_run(r, err));
        TT_TRY(advance(g, i, at - 1, err));
    }
    return TT_OK;
}

static tt_status run_whole(generator *g, tt_error *err)
{
    const int64_t t0 = tt_now_ns();
    for (; g->next < g->n; g->next++)
        TT_TRY(recompute(g, g->next, err));
    g->stats->new_seconds = 1e-9 * (double)(tt_now_ns() - t0);
    return TT_OK;
}

static tt_status check_prompts(const generator *g, tt_error *err)
{
    for (size_t i = 0; i < g->n; i++) {
        const tt_sequence *s = &g->s[i];
        TT_ASSERT(!s->n_cached || (g->n == 1 && s->n_cached < s->n_prompt));
        if (!s->n_prompt)
            return TT_FAIL(err, TT_EINVAL,
                           "prompt %zu is empty: there is no token to continue from", i + 1);
        if (s->n_prompt > g->o->graph->length)
            return TT_FAIL(err, TT_EINVAL,
                           "prompt %zu has %lld tokens, but the context holds %lld: shorten it",
                           i + 1, (long long)s->n_prompt, (long long)g->o->graph->length);
        for (int64_t t = 0; t < s->n_prompt; t++)
            if (s->prompt[t] < 0 || s->prompt[t] >= g->c.logits.shape[1])
                return TT_FAIL(err, TT_EINVAL, "prompt %zu: id %d is not in the vocabulary of %lld",
                               i + 1, (int)s->prompt[t], (long long)g->c.logits.shape[1]);
    }
    return TT_OK;
}

int64_t tt_generate_cached(const tt_sequence *s)
{
    if (!s->ids.n && s->finish != TT_FINISH_STOP) /* perhaps it was stopped before it began */
        return s->n_cached;
    /* the id that ended the text is not among ids; else the last one was not computed on */
    return s->n_prompt + (int64_t)s->ids.n - (s->finish != TT_FINISH_STOP);
}

tt_status tt_generate(const tt_generate_opts *o, tt_sequence *s, size_t n, tt_generate_stats *stats,
                      tt_error *err)
{
    const size_t slots = (size_t)o->graph->slots;
    tt_arena *a = tt_arena_new();
    generator g = {.o = o, .s = s, .n = n, .stats = stats};
    *stats = (tt_generate_stats){0};
    g.slots = tt_arena_array(a, slots + 1, sizeof *g.slots);
    for (size_t i = 0; i < slots; i++)
        g.slots[i] = -1;
    tt_status st = tt_calls_open(&g.c, o->exec, o->graph, a, err);
    if (st == TT_OK)
        st = check_prompts(&g, err);
    if (st == TT_OK)
        st = tt_sampler_init(&g.sampler, &o->sampling, TT_MIN(o->vocab, g.c.logits.shape[1]), err);
    if (st == TT_OK)
        st = slots ? run_cached(&g, err) : run_whole(&g, err);
    stats->calls = g.c.n_calls;
    tt_sampler_release(&g.sampler);
    tt_arena_free(a);
    return st;
}
