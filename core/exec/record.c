/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/exec_impl.h"
#include <stdlib.h>
#include <time.h>

/* What ran when, in a traced step. The rank's own thread notes each instruction and, when it has
 * waited for it, the call of a queue's thread; the pool's workers note each tt_parallel_for that
 * they took part in (base/pool.h). Names and costs are for whoever reads the record. */

#define MOST_EVENTS ((size_t)1 << 20) /* 40 MB: a step of more says what it dropped */
#define SLICES_PER_EVENT 4            /* tt_parallel_for per instruction, about */

/* A loop's instructions once per chunk; a collective on its own queue twice: its call, its wait. */
static size_t events_of_section(const tt_program *p, const tt_section *s)
{
    size_t n = 0, times = 1;
    for (int i = s->begin; i < s->end; i++) {
        if (p->instrs[i].kind == TT_INSTR_LOOP)
            times = (size_t)p->most_chunks;
        if (p->instrs[i].kind == TT_INSTR_END_LOOP)
            times = 1;
        n += times;
    }
    return n;
}

static size_t events_of_step(const tt_program *p)
{
    size_t n = events_of_section(p, &p->sections[p->epilogue]) +
               events_of_section(p, &p->sections[p->update]);
    for (int s = 0; s < p->epilogue && n < MOST_EVENTS; s++)
        n += (size_t)p->n_micro * events_of_section(p, &p->sections[s]);
    return TT_MIN(n, MOST_EVENTS);
}

static bool allocate_trace(tt_trace *t)
{
    t->events = calloc(t->cap + 1, sizeof *t->events);
    t->items = calloc((size_t)t->most_items + 1, sizeof *t->items);
    t->pool.workers = calloc((size_t)t->n_workers + 1, sizeof *t->pool.workers);
    bool whole = t->events && t->items && t->pool.workers;
    for (int i = 0; whole && i < t->n_workers; i++) {
        tt_pool_slices *w = &t->pool.workers[i];
        w->cap = SLICES_PER_EVENT * t->cap + 1;
        w->items = calloc(w->cap, sizeof *w->items);
        whole = w->items != NULL;
    }
    return whole;
}

tt_status tt_exec_trace_open(tt_exec *x, tt_error *err)
{
    const size_t events = events_of_step(x->p);
    const int threads = tt_pool_threads(x->o.pool);
    tt_trace *t = calloc(1, sizeof *t);
    if (t)
        *t = (tt_trace){.program = x->p,
                        .rank = x->o.dist->rank,
                        .cap = events,
                        .n_workers = threads - 1,
                        .most_items = x->p->n_calls};
    if (!t || !allocate_trace(t)) {
        tt_trace_free(t);
        return TT_FAIL(
            err, TT_ENOMEM,
            "no memory to trace %zu ops per step on %d threads; set profiling.enable false", events,
            threads);
    }
    x->recording = t;
    return tt_exec_times_trace_open(x, events, (size_t)x->p->n_calls, err);
}

void tt_trace_free(tt_trace *t)
{
    if (!t)
        return;
    for (int i = 0; t->pool.workers && i < t->n_workers; i++)
        free(t->pool.workers[i].items);
    free(t->pool.workers);
    free(t->items);
    free(t->events);
    free(t);
}

void tt_exec_trace(tt_exec *x, bool on)
{
    tt_trace *t = x->recording;
    x->trace = on ? t : NULL;
    tt_pool_trace(x->o.pool, on && t ? &t->pool : NULL);
    if (!on || !t)
        return;
    t->n = 0;
    t->n_items = 0;
    t->dropped = 0;
    for (int i = 0; i < t->n_workers; i++)
        t->pool.workers[i].n = t->pool.workers[i].dropped = 0;
}

const tt_trace *tt_exec_traced(const tt_exec *x)
{
    return x->recording;
}

void tt_trace_next(tt_trace *t)
{
    t->pool.tag = t->n < t->cap ? (int32_t)t->n : -1;
}

void tt_trace_add(tt_trace *t, const tt_trace_event *e)
{
    if (t->n < t->cap)
        t->events[t->n++] = *e;
    else
        t->dropped++;
}

/* ---- the items of the schedule: on the wall clock, and in this thread's own time, which other
 * threads on the same cores do not lengthen ---- */

static int64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

tt_status tt_trace_item_begins(tt_exec *x, tt_error *err)
{
    tt_item_time *i = &x->trace->items[x->trace->n_items];
    i->message_ns = -x->message_ns;
    i->begin_ns = tt_now_ns();
    i->cpu_ns = -thread_ns();
    return tt_exec_mark_item(x, false, err);
}

tt_status tt_trace_item_ends(tt_exec *x, const tt_item *item, tt_error *err)
{
    tt_trace *t = x->trace;
    tt_item_time *i = &t->items[t->n_items];
    i->cpu_ns += thread_ns();
    i->item = item;
    i->end_ns = tt_now_ns();
    i->message_ns += x->message_ns;
    TT_TRY(tt_exec_mark_item(x, true, err));
    t->n_items += t->n_items < t->most_items;
    return TT_OK;
}
