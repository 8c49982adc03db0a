/* SPDX-License-Identifier: Apache-2.0 */
#include "train/swap.h"
#include "base/thread.h"
#include "train/begin.h"
#include "train/loop.h"
#include "train/next.h"
#include <stdlib.h>
#include <string.h>

/* Other converters for a run that goes on. A thread of each rank makes the next program beside the running
 * one: setup, graph, plan, memory and kernels. At the end of a step, the same on all ranks, it takes over
 * the states, where they lie or by name, and a thread frees the old program beside the next step. If any of
 * this fails on a rank, all ranks drop the new program and go on with the old one. */

/* ---- making it beside the run ---- */

static void *make_main(void *arg)
{
    tt_loop *l = arg;
    tt_swap *w = &l->swap;
    tt_log_set_thread_rank(l->rank.dist.vt ? l->rank.dist.rank : -1);
    w->status = tt_next_make(l, w->next, &w->err);
    if (w->status == TT_OK)
        w->status =
            tt_rank_plan(&l->rank, &w->next->setup, l->s->has_validation, &w->rank, &w->err);
    if (w->status == TT_OK)
        w->status = tt_rank_prepare(&w->rank, &l->rank, &w->err);
    atomic_store(&w->done, true);
    return NULL;
}

void tt_swap_begin(tt_loop *l, const tt_swap_ask *ask, uint64_t command)
{
    tt_swap *w = &l->swap;
    tt_swap_drop(l);
    w->next = tt_next_join(l, ask);
    w->ask = (tt_swap_ask){.at = ask->at, .scheduled = ask->scheduled};
    w->command = command;
    w->status = TT_OK;
    w->waits_for = 0;
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
    tt_next_drop(l, w->next);
    w->next = NULL;
}

int32_t tt_swap_poll(const tt_loop *l)
{
    return l->swap.next && !l->swap.ask.scheduled && !atomic_load(&l->swap.done);
}

bool tt_swap_has_turn(tt_loop *l, bool made, bool saving)
{
    tt_swap *w = &l->swap;
    if (!w->next || w->ask.scheduled || !made)
        return false;
    if (saving && !w->waits_for)
        w->waits_for = tt_saver_step(l->saver);
    return !saving || tt_saver_step(l->saver) != w->waits_for;
}

/* ---- after it has taken over: beside the next steps ---- */

static void *after_main(void *arg)
{
    tt_swap_after *a = arg;
    tt_loop *l = a->l;
    tt_error e = {0};
    tt_log_set_thread_rank(l->rank.dist.vt ? l->rank.dist.rank : -1);
    tt_rank_programs_close(&a->old);
    tt_next_taken(l, a->now);
    if (a->was != l->swap.first)
        tt_next_drop(l, a->was);
    if (a->s && tt_run_folder_describe(l->folder, a->s, tt_str_get(&a->backend),
                                       a->changes.n ? tt_str_get(&a->changes) : NULL, &e) != TT_OK)
        tt_log(TT_WARN, "train", "run.json still has the converters before: %s", e.text);
    if (a->command && l->ctl)
        tt_ctl_answer_one(l->ctl, a->command, TT_OK, "%s", tt_str_get(&a->answer));
    return NULL;
}

/* A device is left to the rank's own thread. */
static void after_begin(tt_loop *l)
{
    tt_swap_after *a = &l->swap.after;
    const bool beside = tt_device_is_host(&a->old.device);
    a->l = l;
    a->has_thread = beside && tt_thread_start(&a->thread, after_main, a) == 0;
    if (!a->has_thread)
        after_main(a);
}

void tt_swap_settle(tt_loop *l)
{
    tt_swap_after *a = &l->swap.after;
    if (a->has_thread)
        pthread_join(a->thread, NULL);
    a->has_thread = false;
}

/* ---- taking over ---- */

static void swap_print(const tt_loop *l, const tt_kept *k, const tt_next *now, tt_str *o)
{
    const char *sep = "";
    if (now->reload)
        tt_str_printf(o, "%s was reloaded; ", now->reload);
    tt_str_printf(o, "converters from step %lld on: ", (long long)l->step + 1);
    for (int i = 0; i < l->s->n_converters; i++)
        if (tt_converter_active(l->s, i, l->s->converters_at)) {
            tt_str_printf(o, "%s%s", sep, l->s->converters[i].name);
            sep = ", ";
        }
    tt_str_printf(o, "%s; %d parameters and buffers kept", *sep ? "" : "none", k->kept);
    if (k->added)
        tt_str_printf(o, ", %d added (%s%s)", k->added, k->added_first, k->added > 1 ? ", …" : "");
    if (k->dropped)
        tt_str_printf(o, ", %d dropped (%s%s)", k->dropped, k->dropped_first,
                      k->dropped > 1 ? ", …" : "");
}

/* What rank 0 writes and answers when the loop goes on. */
static void say_later(tt_loop *l, const tt_kept *k)
{
    tt_swap_after *a = &l->swap.after;
    tt_str_clear(&a->answer);
    tt_str_clear(&a->changes);
    tt_str_clear(&a->backend);
    a->s = NULL;
    a->command = 0;
    if (!l->main)
        return;
    swap_print(l, k, a->now, &a->answer);
    tt_loop_changes(l, &a->changes);
    tt_loop_backend(l, &a->backend);
    a->s = l->s;
    a->command = l->swap.command;
    if (l->ctl)
        tt_ctl_set_converters(l->ctl, l->swap.list);
}

void tt_swap_say_refused(tt_loop *l, uint64_t command, tt_status s, const tt_error *e)
{
    tt_log(TT_WARN, "train", "the converters stay as they are after step %lld: %s",
           (long long)l->step, e->text);
    if (l->ctl && command)
        tt_ctl_answer_one(l->ctl, command, s, "the converters stay as they are: %s", e->text);
}

static void swap_refuse(tt_loop *l, tt_status s, const tt_error *e)
{
    if (l->main)
        tt_swap_say_refused(l, l->swap.command, s, e);
    l->swap.tried = TT_MAXV(l->swap.tried, l->swap.ask.at);
    tt_swap_drop(l);
}

static void swap_exchange(tt_loop *l)
{
    tt_swap *w = &l->swap;
    tt_swap_after *a = &w->after;
    a->old = l->rank;
    a->was = w->using;
    a->now = w->next;
    l->rank.s = l->s = w->rank.s;
    l->rank.programs = w->rank.programs;
    l->rank.plan = w->rank.plan;
    l->rank.eval_plan = w->rank.eval_plan;
    l->rank.exec = w->rank.exec;
    l->rank.eval = w->rank.eval;
    tt_exec_succeed(l->rank.exec);
    if (l->rank.eval)
        tt_exec_succeed(l->rank.eval);
    w->using = w->next;
    w->next = NULL;
    w->list = w->using->list;
    memset(&w->rank, 0, sizeof w->rank);
}

/* What holds addresses or names of the old program ends before it is freed. */
static tt_status swap_now(tt_loop *l, tt_error *err)
{
    const bool profiles = l->profile != NULL;
    TT_TRY(tt_loop_finish_save(l, err));
    tt_loop_answer_save(l);
    tt_loop_close_profile(l);
    if (l->swap.next->version)
        tt_registry_use(l->s->registry, l->swap.next->version, true);
    TT_TRY(tt_loop_written(l, err)); /* records name what the old program has named */
    if (l->writer)
        tt_writer_forget(l->writer);
    swap_exchange(l);
    tt_loop_open_measures(l);
    tt_loop_save_frozen(l, "other converters may freeze what was trained");
    TT_TRY(tt_loop_follow_saver(l, err));
    return profiles ? tt_loop_profile_open(l, err) : TT_OK;
}

/* Another machine may have another file at the same path. [collective] */
static tt_status check_files(tt_loop *l, tt_error *err)
{
    const int64_t mine = (int64_t)(l->swap.next->file_hash >> 1);
    int64_t h[2] = {mine, -mine};
    if (!l->swap.next->reload || !l->rank.dist.vt)
        return TT_OK;
    TT_TRY(l->rank.dist.vt->all_reduce(l->rank.dist.all, h, 2, TT_I64, TT_MAX, err));
    if (h[0] == mine && -h[1] == mine)
        return TT_OK;
    return TT_FAIL(
        err, TT_EBUSY,
        "the ranks read different files of converter \"%s\": is it still being built, or "
        "copied to the other machines? reload it again",
        l->swap.next->reload);
}

/* The ranks are ready, or agree that one is not. [collective] */
static tt_status prepare(tt_loop *l, tt_kept *kept, tt_error *why)
{
    tt_swap *w = &l->swap;
    tt_dist *d = &l->rank.dist;
    TT_TRY(tt_agree_or_go_on(d, check_files(l, why), why));
    TT_TRY(tt_agree_or_go_on(d, tt_rank_start(&w->rank, &l->rank, d, why), why));
    return tt_agree_or_go_on(d, tt_rank_keep_states(&w->rank, &l->rank, kept, why), why);
}

/* The steps did not wait for the program that `ttrun ctl` asked for. If a change of its own schedule was among
 * them, it has the converters of a step that is over, and is made again for this one. */
static bool make_again(tt_loop *l)
{
    const tt_swap *w = &l->swap;
    const tt_next *n = w->next;
    if (w->ask.scheduled || tt_converters_equal(&n->setup, n->at, l->step))
        return false;
    tt_arena *a = tt_arena_new();
    const tt_swap_ask ask = {.converters = tt_arena_str(a, n->converters),
                             .reload = tt_arena_str(a, n->reload),
                             .at = l->step};
    tt_swap_begin(l, &ask, w->command);
    tt_arena_free(a);
    return true;
}

tt_status tt_swap_take_over(tt_loop *l, tt_error *err)
{
    tt_kept kept = {0};
    const int64_t t0 = tt_now_ns();
    tt_swap_settle(l);
    swap_wait(&l->swap);
    tt_error why = l->swap.err;
    tt_status s = tt_agree_or_go_on(&l->rank.dist, l->swap.status, &why);
    if (s == TT_OK && make_again(l))
        return TT_OK;
    if (s == TT_OK)
        s = prepare(l, &kept, &why);
    if (s == TT_ECOMM || s == TT_ETIMEOUT) {
        *err = why;
        return s;
    }
    if (s != TT_OK) {
        swap_refuse(l, s, &why);
        return TT_OK;
    }
    TT_TRY(swap_now(l, err));
    say_later(l, &kept);
    after_begin(l);
    const int64_t stood = tt_now_ns() - t0;
    l->t.begin_ns += stood; /* does not count as part of the step */
    if (l->main)
        tt_log(TT_INFO, "train", "%s; the loop stood still for %.1f ms",
               tt_str_get(&l->swap.after.answer), 1e-6 * (double)stood);
    return TT_OK;
}

/* ---- by schedule ---- */

void tt_swap_plan_ahead(tt_loop *l)
{
    if (l->swap.next)
        return;
    const tt_swap_ask ask = {.at = tt_converters_change(l->s, TT_MAXV(l->step, l->swap.tried)),
                             .scheduled = true};
    if (ask.at >= 0 && ask.at < l->steps)
        tt_swap_begin(l, &ask, 0);
}

bool tt_swap_due(const tt_loop *l)
{
    return l->swap.next && l->swap.ask.scheduled && l->swap.ask.at == l->step;
}

tt_status tt_swap_to_step(tt_loop *l, const char *converters, int64_t step, tt_error *err)
{
    const int64_t was = l->step;
    const tt_swap_ask ask = {.converters = converters, .at = step, .scheduled = true};
    if (!converters && tt_converters_equal(l->s, l->s->converters_at, step))
        return TT_OK;
    tt_swap_begin(l, &ask, 0);
    swap_wait(&l->swap);
    TT_TRY(tt_agree(&l->rank.dist, l->swap.status, l->swap.status == TT_OK ? err : &l->swap.err));
    l->step = step;
    const tt_status s = tt_swap_take_over(l, err);
    tt_swap_settle(l);
    l->step = was;
    l->swap.first = l->swap.using;
    return s;
}

/* ---- life ---- */

void tt_swaps_init(tt_swaps *w, int ranks, tt_registry *registry)
{
    *w = (tt_swaps){.ranks = ranks, .registry_of = registry};
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->registry, NULL);
}

void tt_swaps_release(tt_swaps *w)
{
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->registry);
}

void tt_swap_init(tt_loop *l)
{
    l->swap.of_job = l->swap.list = tt_next_list(l->s, l->rank.arena);
}

void tt_swap_close(tt_loop *l)
{
    tt_swap_after *a = &l->swap.after;
    tt_swap_settle(l);
    tt_swap_drop(l);
    tt_next_drop(l, l->swap.using);
    if (l->swap.first != l->swap.using)
        tt_next_drop(l, l->swap.first);
    l->swap.first = l->swap.using = NULL;
    tt_str_free(&a->answer);
    tt_str_free(&a->changes);
    tt_str_free(&a->backend);
}
