/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/engine.h"
#include "infer/kept.h"
#include "passes/passes.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct slot {
    bool used;
    tt_request r;
    tt_sampler sampler;
    tt_adjust adjust;
    bool begun;
    int64_t done; /* tokens of the prompt that the cache has */
    int64_t told; /* tokens of the prompt that on_token got */
    int64_t at;   /* tokens of the text: those of the prompt, then with each new one */
    int64_t n_new;
    int32_t last;   /* the newest token, which the cache does not have */
    bool longer;    /* the text has more tokens than the border */
    tt_ids text;    /* if there is a border: the tokens so far */
    uint64_t order; /* which came first */
} slot;

struct tt_engine {
    tt_arena *arena;
    tt_engine_opts o;
    tt_calls c;
    int64_t vocab, n_slots; /* vocab: ids that may be sampled */
    int64_t border;         /* a text of more tokens is computed otherwise; 0: none is */
    float *changed;   /* [vocab] logits as a request wants them; NULL: none has wanted others */
    slot *slots;      /* [n_slots] */
    bool *free;       /* [n_slots] */
    tt_token *scored; /* [c.most_pick] of a piece of a prompt: those after its rows */
    uint64_t order;
    tt_kept kept;
    tt_engine_stats stats;
};

tt_status tt_engine_open(const tt_engine_opts *o, tt_engine **out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_engine *e = tt_arena_alloc(a, sizeof *e);
    *out = NULL;
    *e = (tt_engine){.arena = a, .o = *o, .n_slots = TT_MAXV(o->graph->slots, (int64_t)1)};
    e->slots = tt_arena_array(a, (size_t)e->n_slots, sizeof *e->slots);
    e->free = tt_arena_array(a, (size_t)e->n_slots, sizeof *e->free);
    tt_status s = tt_calls_open(&e->c, o->exec, o->graph, a, err);
    if (s != TT_OK) {
        tt_arena_free(a);
        return s;
    }
    e->scored = tt_arena_array(a, (size_t)e->c.most_pick, sizeof *e->scored);
    e->border = tt_decode_border(o->graph);
    e->vocab = TT_MIN(o->vocab, e->c.logits.shape[1]);
    tt_kept_open(&e->kept, o->exec, o->graph, o->forgets, a);
    *out = e;
    return TT_OK;
}

int64_t tt_engine_picked(int64_t rows, int64_t slots, int64_t vocab)
{
    const int64_t most = TT_ENGINE_LOGITS_BYTES / ((int64_t)sizeof(float) * vocab);
    return TT_MAXV(TT_MIN(rows, most), slots);
}

static void slot_free(slot *x)
{
    tt_sampler_release(&x->sampler);
    tt_adjust_free(&x->adjust);
    tt_ids_free(&x->text);
    *x = (slot){0};
}

void tt_engine_close(tt_engine *e)
{
    if (!e)
        return;
    for (int64_t i = 0; i < e->n_slots; i++)
        slot_free(&e->slots[i]);
    tt_kept_close(&e->kept);
    tt_arena_free(e->arena);
}

tt_status tt_engine_check(const tt_engine *e, const char *name, const int32_t *prompt, int64_t n,
                          tt_error *err)
{
    if (n < 1)
        return TT_FAIL(err, TT_EINVAL, "%s is empty: there is no token to continue from", name);
    if (n > e->c.graph->length)
        return TT_FAIL(err, TT_EINVAL, "%s has %lld tokens, but the context holds %lld: shorten it",
                       name, (long long)n, (long long)e->c.graph->length);
    for (int64_t t = 0; t < n; t++)
        if (prompt[t] < 0 || prompt[t] >= e->c.logits.shape[1])
            return TT_FAIL(err, TT_EINVAL, "%s: id %d is not in the vocabulary of %lld", name,
                           (int)prompt[t], (long long)e->c.logits.shape[1]);
    return TT_OK;
}

static int64_t n_used(const tt_engine *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_slots; i++)
        n += e->slots[i].used;
    return n;
}

bool tt_engine_has_room(const tt_engine *e)
{
    return n_used(e) < e->n_slots;
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

/* Are the logprobs of the prompt's own tokens wanted? */
static bool scores_prompt(const tt_request *r)
{
    return r->of_prompt && r->scored;
}

static tt_kept_prompt prompt_of(const tt_engine *e, const tt_request *r)
{
    return (tt_kept_prompt){.ids = r->prompt,
                            .n = r->n_prompt,
                            .longer = e->border && r->n_prompt > e->border,
                            .salt = r->salt,
                            .n_top = scores_prompt(r) ? r->n_top : -1};
}

tt_status tt_engine_add(tt_engine *e, const tt_request *r, tt_error *err)
{
    const tt_kept_prompt p = prompt_of(e, r);
    for (int64_t i = 0; i < e->n_slots; i++)
        e->free[i] = !e->slots[i].used;
    const int64_t at = tt_kept_choose(&e->kept, e->free, &p);
    TT_ASSERT(at >= 0 && r->n_top <= TT_MOST_TOP);
    slot *x = &e->slots[at];
    TT_TRY(tt_sampler_init(&x->sampler, &r->sampling, e->vocab, err));
    if (tt_adjust_init(&x->adjust, &r->adjust, e->vocab, r->prompt, r->n_prompt, err) != TT_OK) {
        slot_free(x);
        return err ? err->code : TT_ENOMEM;
    }
    x->used = true;
    x->r = *r;
    x->order = e->order++;
    return TT_OK;
}

void tt_engine_drop(tt_engine *e, const void *user)
{
    for (int64_t i = 0; i < e->n_slots; i++)
        if (e->slots[i].used && e->slots[i].r.user == user)
            slot_free(&e->slots[i]);
}

void tt_engine_forget(tt_engine *e)
{
    for (int64_t i = 0; i < e->n_slots; i++)
        tt_kept_forget(&e->kept, i);
}

static void end(slot *x, tt_finish finish, const char *error)
{
    const tt_request r = x->r;
    slot_free(x);
    r.on_end(r.user, finish, error);
}

static bool ends_text(const tt_request *r, int32_t id)
{
    for (size_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id)
            return true;
    return false;
}

static void end_not_finite(tt_engine *e, slot *x)
{
    char why[160];
    snprintf(why, sizeof why,
             "the logits of token %lld are not finite: the weights are not finite, or too large%s",
             (long long)x->at, x->r.allowed ? "; or no token may come there" : "");
    tt_kept_forget(&e->kept, x - e->slots);
    end(x, TT_FINISH_NONE, why);
}

/* The logits as the request wants them; those of ids that may not come are -infinity. */
static const float *change_logits(tt_engine *e, const slot *x, const float *logits)
{
    const tt_request *r = &x->r;
    if (!r->allowed && !tt_adjust_is_needed(&x->adjust, x->n_new))
        return logits;
    const uint64_t *words = r->allowed ? r->allowed(r->user) : NULL;
    if (!e->changed)
        e->changed = tt_arena_array(e->arena, (size_t)e->vocab, sizeof *e->changed);
    for (int64_t i = 0; i < e->vocab; i++)
        e->changed[i] = !words || words[i / 64] >> (i % 64) & 1 ? logits[i] : -INFINITY;
    tt_adjust_logits(&x->adjust, e->changed, e->vocab, x->n_new, r->stop_ids, r->n_stop_ids);
    return e->changed;
}

/* The text has grown past the border: what is computed of it is of no use, and it becomes a prompt. */
static tt_status compute_again(slot *x, tt_error *err)
{
    tt_ids whole = {0};
    tt_status s = TT_OK;
    for (int64_t i = 0; s == TT_OK && i < x->at; i++)
        s = tt_ids_push(&whole, i < x->r.n_prompt ? x->r.prompt[i] : x->text.ids[i - x->r.n_prompt],
                        err);
    tt_ids_free(&x->text);
    x->text = whole;
    x->r.prompt = whole.ids;
    x->r.n_prompt = x->at;
    x->r.of_prompt = false; /* they are told */
    x->r.n_cached = NULL;
    x->begun = false;
    x->done = 0;
    return s;
}

/* Samples the next token from a picked row of logits. */
static tt_status engine_advance(tt_engine *e, slot *x, int64_t row, tt_error *err)
{
    const tt_request *r = &x->r;
    tt_tensor map;
    const float *logits;
    TT_TRY(tt_calls_map(&e->c, row, 1, &map, &logits, err));
    tt_token t = {.id = tt_sample_token(&x->sampler, change_logits(e, x, logits), r->stream,
                                        (uint64_t)x->at)};
    t.ends = t.id >= 0 && ends_text(r, t.id);
    if (t.id >= 0 && r->scored)
        tt_token_score(&t, logits, e->c.logits.shape[1], r->n_top);
    TT_TRY(tt_calls_unmap(&e->c, &map, logits, err));
    if (t.id < 0) {
        end_not_finite(e, x);
        return TT_OK;
    }
    if (r->scored)
        TT_TRY(tt_kept_score(&e->kept, x - e->slots, x->at, &t, err));
    tt_adjust_took(&x->adjust, t.id);
    x->last = t.id;
    x->n_new++;
    e->stats.new_tokens++;
    const int64_t at = x->at++;
    if (e->border && !x->longer)
        TT_TRY(tt_ids_push(&x->text, t.id, err));
    if (!r->on_token(r->user, &t) || t.ends)
        end(x, TT_FINISH_STOP, NULL);
    else if (x->n_new >= r->max_new)
        end(x, TT_FINISH_LENGTH, NULL);
    else if (at >= e->c.graph->length) /* the last token needs no position: it is not computed on */
        end(x, TT_FINISH_CONTEXT, NULL);
    else if (e->border && !x->longer && x->at > e->border)
        return compute_again(x, err);
    return TT_OK;
}

/* ---- prompts ---- */

typedef struct scoring {
    tt_engine *e;
    const tt_request *r;
    int64_t begin; /* row k - begin has the logits of token k + 1 */
    const float *logits;
} scoring;

static void score_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const scoring *s = arg;
    const int64_t vocab = s->e->c.logits.shape[1];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        tt_token *t = &s->e->scored[i];
        *t = (tt_token){.id = s->r->prompt[s->begin + i + 1], .of_prompt = true};
        tt_token_score(t, s->logits + i * vocab, vocab, s->r->n_top);
    }
}

/* Scores the n tokens after `begin`. */
static tt_status score_prompt(tt_engine *e, const slot *x, int64_t begin, int64_t n, tt_error *err)
{
    scoring s = {.e = e, .r = &x->r, .begin = begin};
    tt_tensor map;
    if (n <= 0)
        return TT_OK;
    TT_TRY(tt_calls_map(&e->c, 0, n, &map, &s.logits, err));
    if (e->o.pool)
        tt_parallel_for(e->o.pool, n, 1, score_rows, &s);
    else
        score_rows(&s, 0, n, 0);
    TT_TRY(tt_calls_unmap(&e->c, &map, s.logits, err));
    for (int64_t i = 0; i < n; i++)
        TT_TRY(tt_kept_score(&e->kept, x - e->slots, begin + 1 + i, &e->scored[i], err));
    return TT_OK;
}

/* Tells the tokens of the prompt whose logprobs are known; the first row of the call was the prompt's token `begin`. */
static tt_status tell_prompt(tt_engine *e, slot *x, int64_t begin, bool *goes_on, tt_error *err)
{
    const tt_request *r = &x->r;
    const int64_t n = TT_MIN(x->done + 1, r->n_prompt);
    const bool scored = scores_prompt(r);
    *goes_on = true;
    if (!r->of_prompt)
        return TT_OK;
    if (scored)
        TT_TRY(score_prompt(e, x, begin, n - 1 - begin, err));
    for (; *goes_on && x->told < n; x->told++) {
        tt_token t = {.id = r->prompt[x->told], .of_prompt = true};
        if (scored && x->told > begin)
            t = e->scored[x->told - 1 - begin];
        else if (scored)
            tt_kept_get_score(&e->kept, x - e->slots, x->told, r->n_top, &t);
        *goes_on = r->on_token(r->user, &t);
    }
    return TT_OK;
}

static tt_status begin_prompt(tt_engine *e, slot *x, tt_error *err)
{
    const tt_request *r = &x->r;
    const tt_kept_prompt p = prompt_of(e, r);
    x->longer = p.longer;
    TT_TRY(tt_kept_take(&e->kept, x - e->slots, &p, &x->done, err));
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
    const bool rows = scores_prompt(r);
    const int64_t begin = x->done,
                  most = rows ? TT_MIN(e->c.graph->tokens, e->c.most_pick) : e->c.graph->tokens,
                  done = TT_MIN(begin + most, r->n_prompt);
    bool goes_on;
    tt_calls_clear(&e->c);
    for (int64_t k = begin; k < done; k++) {
        tt_calls_add(&e->c, r->prompt[k], k, x - e->slots, x->longer);
        if (rows || k + 1 == r->n_prompt)
            tt_calls_pick(&e->c);
    }
    TT_TRY(tt_calls_run(&e->c, err));
    for (int64_t k = begin; k < done; k++)
        TT_TRY(tt_kept_add(&e->kept, x - e->slots, r->prompt[k], err));
    x->done = done;
    x->at = done;
    TT_TRY(tell_prompt(e, x, begin, &goes_on, err));
    if (!goes_on)
        end(x, TT_FINISH_STOP, NULL);
    else if (done == r->n_prompt && r->max_new <= 0)
        end(x, TT_FINISH_LENGTH, NULL);
    else if (done == r->n_prompt)
        return engine_advance(e, x, e->c.n_pick - 1, err);
    return TT_OK;
}

/* ---- steps ---- */

/* Of the requests whose prompt is not done, the one that came first. */
static slot *find_prompt(tt_engine *e)
{
    slot *first = NULL;
    for (int64_t i = 0; i < e->n_slots; i++) {
        slot *x = &e->slots[i];
        if (x->used && x->done < x->r.n_prompt && (!first || x->order < first->order))
            first = x;
    }
    return first;
}

/* One token of every request whose prompt is done. */
static tt_status add_tokens(tt_engine *e, tt_error *err)
{
    tt_calls_clear(&e->c);
    for (int64_t i = 0; i < e->n_slots; i++) {
        const slot *x = &e->slots[i];
        if (!x->used || x->done < x->r.n_prompt)
            continue;
        tt_calls_add(&e->c, x->last, x->at - 1, i, x->longer);
        tt_calls_pick(&e->c);
    }
    const int64_t n = e->c.n_pick;
    if (!n)
        return TT_OK;
    TT_TRY(tt_calls_run(&e->c, err));
    for (int64_t i = 0; i < n; i++) { /* the rows still say whose they are */
        const int32_t row = e->c.pick[i];
        TT_TRY(tt_kept_add(&e->kept, e->c.slot[row], e->c.ids[row], err));
    }
    for (int64_t i = 0; i < n; i++)
        TT_TRY(engine_advance(e, &e->slots[e->c.slot[e->c.pick[i]]], i, err));
    return TT_OK;
}

tt_status tt_engine_step(tt_engine *e, tt_error *err)
{
    slot *prompt = find_prompt(e);
    const int64_t t0 = tt_now_ns();
    if (prompt)
        TT_TRY(prefill(e, prompt, err));
    const int64_t t1 = tt_now_ns();
    e->stats.prompt_seconds += 1e-9 * (double)(t1 - t0);
    if (!prompt || !e->o.prompts_first)
        TT_TRY(add_tokens(e, err));
    e->stats.new_seconds += 1e-9 * (double)(tt_now_ns() - t1);
    return TT_OK;
}
