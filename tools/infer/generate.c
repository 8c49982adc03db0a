/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/generate.h"
#include <stdio.h>

typedef struct generation {
    const tt_generate_opts *o;
    tt_sequence *s;
    tt_status status; /* of what the engine told */
    tt_error *err;
} generation;

typedef struct generated { /* the user of a request */
    generation *g;
    size_t i;
} generated;

static bool on_token(void *user, const tt_token *t)
{
    const generated *x = user;
    generation *g = x->g;
    if (t->ends)
        return true;
    g->status = tt_ids_push(&g->s[x->i].ids, t->id, g->err);
    if (g->status == TT_OK && g->o->on_token)
        g->o->on_token(g->o->user, x->i, t->id);
    return g->status == TT_OK;
}

static void on_end(void *user, tt_finish finish, const char *error)
{
    const generated *x = user;
    generation *g = x->g;
    if (error)
        g->status = TT_FAIL(g->err, TT_ENUMERIC, "%s", error);
    if (g->status != TT_OK)
        return;
    g->s[x->i].finish = finish;
    if (g->o->on_end)
        g->o->on_end(g->o->user, x->i);
}

static tt_status add_sequence(generated *x, tt_error *err)
{
    const tt_generate_opts *o = x->g->o;
    tt_sequence *s = &x->g->s[x->i];
    const tt_request r = {.prompt = s->prompt,
                          .n_prompt = s->n_prompt,
                          .max_new = o->max_new,
                          .sampling = o->sampling,
                          .stream = s->stream,
                          .stop_ids = o->stop_ids,
                          .n_stop_ids = o->n_stop_ids,
                          .n_cached = &s->n_cached,
                          .on_token = on_token,
                          .on_end = on_end,
                          .user = x};
    return tt_engine_add(o->engine, &r, err);
}

static tt_status run(generation *g, generated *x, size_t n, tt_error *err)
{
    tt_engine *e = g->o->engine;
    size_t next = 0;
    while (g->status == TT_OK && !(g->o->stop && g->o->stop())) {
        for (; next < n && tt_engine_has_room(e); next++)
            TT_TRY(add_sequence(&x[next], err));
        if (!tt_engine_is_busy(e))
            break;
        TT_TRY(tt_engine_step(e, err));
    }
    return g->status;
}

tt_status tt_generate(const tt_generate_opts *o, tt_sequence *s, size_t n, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    generation g = {.o = o, .s = s, .err = err};
    generated *x = tt_arena_array(a, n, sizeof *x);
    tt_status st = TT_OK;
    for (size_t i = 0; st == TT_OK && i < n; i++) {
        char name[40];
        snprintf(name, sizeof name, "prompt %zu", i + 1);
        st = tt_engine_check(o->engine, name, s[i].prompt, s[i].n_prompt, err);
        x[i] = (generated){&g, i};
    }
    if (st == TT_OK)
        st = run(&g, x, n, err);
    for (size_t i = 0; i < n; i++)
        tt_engine_drop(o->engine, &x[i]);
    tt_arena_free(a);
    return st;
}
