/* SPDX-License-Identifier: Apache-2.0 */
#include "train/swap.h"
#include "base/thread.h"
#include "train/loop.h"
#include <stdlib.h>
#include <string.h>

/* Other converters for a run that goes on. A thread of each rank makes the next program (setup, graph, plan)
 * beside the running one. At the end of a step, the same on all ranks, the program gets memory and
 * kernels, takes over the states by name, and the old one is freed. If any of this fails on a rank, all
 * ranks drop the new program and go on with the old one. */

/* A setup that the ranks of this process share. */
struct tt_next {
    int64_t number;
    int users; /* ranks of this process that have not dropped it; protected by the swaps' lock */
    char *converters; /* JSON; NULL: as they were */
    int64_t at;
    pthread_mutex_t lock; /* of what follows, while it is made */
    bool made;
    tt_status status;
    tt_error err;
    tt_arena *arena;
    tt_setup setup;
};

/* ---- the shared setup ---- */

static tt_next *next_new(int64_t number, int users, const char *converters, int64_t at)
{
    tt_arena *a = tt_arena_new();
    tt_next *n = tt_arena_alloc(a, sizeof *n);
    n->arena = a;
    n->number = number;
    n->users = users;
    n->converters = tt_arena_str(a, converters);
    n->at = at;
    pthread_mutex_init(&n->lock, NULL);
    return n;
}

/* The n-th swap of every rank is the same. */
static tt_next *next_join(tt_loop *l, const char *converters, int64_t at)
{
    tt_swaps *all = l->swaps;
    const int64_t number = ++l->swap.number;
    pthread_mutex_lock(&all->lock);
    if (!all->newest || all->newest->number != number)
        all->newest = next_new(number, all->ranks, converters, at);
    tt_next *n = all->newest;
    pthread_mutex_unlock(&all->lock);
    return n;
}

static void next_drop(tt_loop *l, tt_next *n)
{
    if (!n)
        return;
    pthread_mutex_lock(&l->swaps->lock);
    const bool last = --n->users == 0;
    if (last && l->swaps->newest == n)
        l->swaps->newest = NULL;
    pthread_mutex_unlock(&l->swaps->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&n->lock);
    tt_arena_free(n->arena);
}

/* The first rank makes it, the others wait. */
static tt_status next_make(tt_loop *l, tt_next *n, tt_error *err)
{
    pthread_mutex_lock(&n->lock);
    if (!n->made) {
        pthread_mutex_lock(&l->swaps->registry);
        n->status = tt_setup_again(l->s, n->converters, n->at, n->arena, &n->setup, &n->err);
        pthread_mutex_unlock(&l->swaps->registry);
        n->made = true;
    }
    pthread_mutex_unlock(&n->lock);
    *err = n->err;
    return n->status;
}

/* ---- making it beside the run ---- */

static void *make_main(void *arg)
{
    tt_loop *l = arg;
    tt_swap *w = &l->swap;
    tt_log_set_thread_rank(l->rank.dist.vt ? l->rank.dist.rank : -1);
    w->status = next_make(l, w->next, &w->err);
    if (w->status == TT_OK)
        w->status =
            tt_rank_plan(&l->rank, &w->next->setup, l->s->has_validation, &w->rank, &w->err);
    atomic_store(&w->done, true);
    return NULL;
}

void tt_swap_begin(tt_loop *l, const char *converters, int64_t at, bool scheduled)
{
    tt_swap *w = &l->swap;
    tt_swap_drop(l);
    w->next = next_join(l, converters, at);
    w->at = at;
    w->scheduled = scheduled;
    w->status = TT_OK;
    w->err = (tt_error){0};
    memset(&w->rank, 0, sizeof w->rank);
    atomic_store(&w->done, false);
    w->has_thread = tt_thread_start(&w->thread, make_main, l) == 0;
    if (!w->has_thread)
        make_main(l); /* the loop waits for it */
}

static void swap_wait(tt_swap *w)
{
    if (w->has_thread)
        pthread_join(w->thread, NULL);
    w->has_thread = false;
}

void tt_swap_drop(tt_loop *l)
{
    tt_swap *w = &l->swap;
    if (!w->next)
        return;
    swap_wait(w);
    tt_rank_programs_close(&w->rank);
    next_drop(l, w->next);
    w->next = NULL;
}

int32_t tt_swap_poll(const tt_loop *l)
{
    return l->swap.next && !l->swap.scheduled && !atomic_load(&l->swap.done);
}

/* ---- taking over ---- */

static void swap_say(const tt_loop *l, const tt_kept *k, double seconds)
{
    char names[512] = "";
    size_t at = 0;
    for (int i = 0; i < l->s->n_converters; i++)
        if (tt_converter_active(l->s, i, l->s->converters_at) && at < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                                   l->s->converters[i].name);
    tt_str o = {0};
    tt_str_printf(&o, "converters from step %lld on: %s; %d parameters and buffers kept",
                  (long long)l->step + 1, at ? names : "none", k->kept);
    if (k->added)
        tt_str_printf(&o, ", %d added (%s%s)", k->added, k->added_first, k->added > 1 ? ", …" : "");
    if (k->dropped)
        tt_str_printf(&o, ", %d dropped (%s%s)", k->dropped, k->dropped_first,
                      k->dropped > 1 ? ", …" : "");
    tt_log(TT_INFO, "train", "%s; the loop stood still for %.1f ms", tt_str_get(&o), 1e3 * seconds);
    if (l->ctl) {
        tt_ctl_set_converters(l->ctl, tt_loop_converters(l));
        tt_ctl_answer(l->ctl, TT_CTL_SET, TT_OK, "%s", tt_str_get(&o));
    }
    tt_str_free(&o);
}

static void swap_refuse(tt_loop *l, tt_status s, const tt_error *e)
{
    if (l->main)
        tt_log(TT_WARN, "train", "the converters stay as they are after step %lld: %s",
               (long long)l->step, e->text);
    if (l->ctl)
        tt_ctl_answer(l->ctl, TT_CTL_SET, s, "the converters stay as they are: %s", e->text);
    l->swap.tried = TT_MAXV(l->swap.tried, l->swap.at);
    tt_swap_drop(l);
}

static void swap_exchange(tt_loop *l)
{
    tt_swap *w = &l->swap;
    const tt_rank new = w->rank;
    tt_rank old = l->rank;
    tt_next *was = w->using;
    l->rank.s = l->s = new.s;
    l->rank.programs = new.programs;
    l->rank.plan = new.plan;
    l->rank.eval_plan = new.eval_plan;
    l->rank.exec = new.exec;
    l->rank.eval = new.eval;
    tt_rank_programs_close(&old);
    w->using = w->next;
    w->next = NULL;
    memset(&w->rank, 0, sizeof w->rank);
    if (was != w->first)
        next_drop(l, was);
}

/* What holds addresses or names of the old program is closed before it, and opened after it. */
static tt_status swap_now(tt_loop *l, tt_error *err)
{
    const bool profiles = l->profile != NULL;
    TT_TRY(tt_loop_finish_save(l, err));
    tt_loop_answer_save(l);
    tt_saver_free(l->saver);
    l->saver = NULL;
    tt_loop_close_profile(l);
    swap_exchange(l);
    TT_TRY(tt_loop_open_saver(l, err));
    return profiles ? tt_loop_profile_open(l, err) : TT_OK;
}

tt_status tt_swap_take_over(tt_loop *l, tt_error *err)
{
    tt_swap *w = &l->swap;
    tt_dist *d = &l->rank.dist;
    tt_error why = {0};
    tt_kept kept = {0};
    const int64_t t0 = tt_now_ns();
    swap_wait(w);
    why = w->err;
    tt_status s = tt_agree(d, w->status, &why);
    if (s == TT_OK)
        s = tt_agree(d, tt_rank_start(&w->rank, &l->rank, d, &why), &why);
    if (s == TT_OK)
        s = tt_agree(d, tt_rank_keep_states(&w->rank, &l->rank, &kept, &why), &why);
    if (s == TT_ECOMM) {
        *err = why;
        return s;
    }
    if (s != TT_OK) {
        swap_refuse(l, s, &why);
        return TT_OK;
    }
    TT_TRY(tt_loop_written(l, err)); /* records have names of the old program */
    TT_TRY(swap_now(l, err));
    const double seconds = tt_seconds_since(t0);
    l->t.begin_ns += tt_now_ns() - t0; /* does not count as part of the step */
    if (!l->main)
        return TT_OK;
    swap_say(l, &kept, seconds);
    return tt_loop_describe(l, err);
}

/* ---- by schedule ---- */

void tt_swap_plan_ahead(tt_loop *l)
{
    if (l->swap.next)
        return;
    const int64_t at = tt_converters_change(l->s, TT_MAXV(l->step, l->swap.tried));
    if (at >= 0)
        tt_swap_begin(l, NULL, at, true);
}

bool tt_swap_due(const tt_loop *l)
{
    return l->swap.next && l->swap.scheduled && l->swap.at == l->step;
}

tt_status tt_swap_to_step(tt_loop *l, int64_t step, tt_error *err)
{
    const int64_t was = l->step;
    if (tt_converters_equal(l->s, l->s->converters_at, step))
        return TT_OK;
    tt_swap_begin(l, NULL, step, true);
    swap_wait(&l->swap);
    TT_TRY(tt_agree(&l->rank.dist, l->swap.status, l->swap.status == TT_OK ? err : &l->swap.err));
    l->step = step;
    const tt_status s = tt_swap_take_over(l, err);
    l->step = was;
    l->swap.first = l->swap.using;
    return s;
}

/* ---- life ---- */

void tt_swaps_init(tt_swaps *w, int ranks)
{
    *w = (tt_swaps){.ranks = ranks};
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->registry, NULL);
}

void tt_swaps_release(tt_swaps *w)
{
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->registry);
}

void tt_swap_close(tt_loop *l)
{
    tt_swap_drop(l);
    next_drop(l, l->swap.using);
    if (l->swap.first != l->swap.using)
        next_drop(l, l->swap.first);
    l->swap.first = l->swap.using = NULL;
}
