/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"
#include "train/loop.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The end of a step, where the ranks agree: on a stop, on a save, on how far a save has come, and on a
 * command of `ttrun ctl`, which only rank 0 has. */

const char *tt_loop_stop_name(int stopped_by)
{
    return stopped_by == TT_STOP_CTL ? "ttrun ctl" : tt_signal_name(stopped_by);
}

int tt_loop_stop_signal(const tt_loop *l)
{
    const int sig = l->o->stop ? l->o->stop() : 0;
    return !sig && l->ctl && tt_ctl_stops(l->ctl) ? TT_STOP_CTL : sig;
}

/* ---- what rank 0 tells ---- */

/* The flags, of which all ranks take the maximum. Only rank 0 has a command; its value is cut into
 * pieces that are not negative. */
enum { STOP, SAVE, SAVER, SWAP, MEMORY, COMMAND, VALUE, N_WORDS = VALUE + 3 };
#define PIECE_BITS 22
#define MEMORY_UNITS 1024.0 /* per GiB */

static void pack_value(int32_t *words, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 3; i++)
        words[VALUE + i] = (int32_t)(bits >> i * PIECE_BITS & ((1u << PIECE_BITS) - 1));
}

static double unpack_value(const int32_t *words)
{
    uint64_t bits = 0;
    double value;
    for (int i = 0; i < 3; i++)
        bits |= (uint64_t)words[VALUE + i] << i * PIECE_BITS;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double new_rate(const tt_loop *l, const tt_ctl_command *c)
{
    switch (c->rate) {
    case TT_CTL_RATE_OF_JOB:
        return *tt_optimizer_rate(l->s->optimizer.component, l->s->optimizer.config);
    case TT_CTL_RATE_TIMES:
        return l->lr_base * c->value;
    default:
        return c->value;
    }
}

/* Whether this run can do it; if not, it is answered. value: what the ranks need to know of it. */
static bool can(tt_loop *l, const tt_ctl_command *c, double *value)
{
    const char *why = NULL;
    *value = c->kind == TT_CTL_LR    ? new_rate(l, c)
             : tt_ctl_swaps(c->kind) ? (double)strlen(c->list)
                                     : (double)c->level;
    if (c->kind == TT_CTL_SAVE && !l->saver)
        why = tt_arena_printf(l->rank.arena, "this run saves nothing: %s",
                              tt_checkpoint_off(&l->s->core.checkpoint));
    if (c->kind == TT_CTL_VALIDATE && !l->s->has_validation)
        why = "this run has no validation: validation.enable is false";
    if (c->kind == TT_CTL_PROFILE && l->step == l->steps)
        why = "this was the last step: there is none to trace";
    if (c->kind == TT_CTL_LR && !isfinite(*value))
        why = "the learning rate would not be finite";
    if (why)
        tt_ctl_answer_one(l->ctl, c->number, TT_EINVAL, "%s", why);
    return !why;
}

static void issue(int32_t *words, const tt_ctl_command *c, double value)
{
    words[COMMAND] = (int32_t)c->kind;
    pack_value(words, value);
}

/* The program that was tried may be made, or the command is answered. */
static bool take_tried(tt_loop *l, int32_t *words, tt_ctl_command *c)
{
    tt_error why = {0};
    tt_status s = TT_OK;
    if (!tt_trial_take(l, c, &s, &why))
        return false;
    if (s == TT_OK)
        issue(words, c, (double)strlen(c->list));
    else
        tt_swap_say_refused(l, c->number, s, &why);
    return s == TT_OK;
}

/* c: what rank 0 knows of it */
static void take_command(tt_loop *l, int32_t *words, tt_ctl_command *c)
{
    double value;
    if (take_tried(l, words, c))
        return;
    while (tt_ctl_take(l->ctl, !l->ctl_saving,
                       (!l->swap.next || l->swap.ask.scheduled) && !tt_trial_runs(l), c)) {
        if (!can(l, c, &value) || (tt_ctl_swaps(c->kind) && tt_trial_begin(l, c)))
            continue;
        issue(words, c, value);
        return;
    }
}

/* ---- what all ranks do ---- */

static tt_status set_rate(tt_loop *l, double rate, tt_error *err)
{
    const double was = l->lr_base;
    l->lr_base = rate;
    if (!l->main)
        return TT_OK;
    TT_TRY(tt_loop_describe(l, err));
    tt_log(TT_INFO, "train", "optimizer.lr is %g from step %lld on (ttrun ctl), was %g", rate,
           (long long)l->step + 1, was);
    tt_ctl_answer(l->ctl, TT_CTL_LR, TT_OK, "optimizer.lr is %g from step %lld on, was %g", rate,
                  (long long)l->step + 1, was);
    return TT_OK;
}

static void set_level(const tt_loop *l, tt_log_level level)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    tt_log_set_level(level);
    if (l->main)
        tt_ctl_answer(l->ctl, TT_CTL_LOG, TT_OK, "the log level is %s from step %lld on",
                      names[level], (long long)l->step + 1);
}

/* of_rank_0: the command, with a list of converters, or the name of one. [collective] */
static tt_status begin_swap(tt_loop *l, tt_ctl_kind kind, const tt_ctl_command *of_rank_0, size_t n,
                            tt_error *err)
{
    char *text = calloc(n + 1, 1);
    tt_status s = text ? TT_OK : TT_FAIL(err, TT_ENOMEM, "no memory for a command");
    if (s == TT_OK)
        s = tt_share_text(&l->rank.dist, l->main ? of_rank_0->list : NULL, text, n + 1, err);
    tt_swap_ask ask = {.at = l->step};
    if (kind == TT_CTL_RELOAD)
        ask.reload = text;
    else
        ask.converters = !strcmp(text ? text : "", "job") ? l->swap.of_job : text;
    if (s == TT_OK)
        tt_swap_begin(l, &ask, of_rank_0->number);
    free(text);
    return s;
}

static tt_status obey(tt_loop *l, tt_ctl_kind kind, double value, const tt_ctl_command *of_rank_0,
                      tt_error *err)
{
    switch (kind) {
    case TT_CTL_SAVE:
        l->save_asked = true;
        l->ctl_saves = true;
        return TT_OK;
    case TT_CTL_VALIDATE:
        l->validation_due = true;
        return TT_OK;
    case TT_CTL_LR:
        return set_rate(l, value, err);
    case TT_CTL_LOG:
        set_level(l, (tt_log_level)value);
        return TT_OK;
    case TT_CTL_PROFILE:
        return tt_loop_profile_ask(l, err);
    case TT_CTL_SET:
    case TT_CTL_RELOAD:
        return begin_swap(l, kind, of_rank_0, (size_t)value, err);
    default:
        return TT_OK;
    }
}

tt_status tt_loop_exchange(tt_loop *l, bool commands, tt_error *err)
{
    int32_t words[N_WORDS] = {0};
    tt_ctl_command of_rank_0 = {0};
    words[STOP] = tt_loop_stop_signal(l);
    words[SAVE] = l->main && ((l->o->save && l->o->save()) || tt_loop_save_time(l));
    words[SAVER] = l->saver ? tt_saver_poll(l->saver) : 0;
    words[SWAP] = tt_swap_poll(l);
    words[MEMORY] = (int32_t)(tt_loop_memory_gib(l) * MEMORY_UNITS);
    if (commands && l->ctl)
        take_command(l, words, &of_rank_0);
    TT_TRY(tt_dist_reduce(&l->rank.dist, words, N_WORDS, TT_I32, TT_MAX, err));
    l->most_memory = words[MEMORY] / MEMORY_UNITS;
    l->stopped_by = words[STOP];
    l->save_asked = l->save_asked || words[SAVE];
    TT_TRY(tt_loop_save_progress(l, words[SAVER], err));
    tt_loop_answer_save(l);
    l->swaps_now = commands && tt_swap_has_turn(l, !words[SWAP], words[SAVER]);
    return obey(l, (tt_ctl_kind)words[COMMAND], unpack_value(words), &of_rank_0, err);
}

void tt_loop_answer_save(tt_loop *l)
{
    if (!l->ctl_saving || tt_saver_poll(l->saver) != 0)
        return;
    l->ctl_saving = false;
    if (!l->ctl)
        return;
    const char *why = tt_saver_failure(l->saver);
    if (why) {
        tt_ctl_answer(l->ctl, TT_CTL_SAVE, TT_EIO, "step %lld is not saved: %s",
                      (long long)tt_saver_step(l->saver), why);
        return;
    }
    tt_ctl_answer(l->ctl, TT_CTL_SAVE, TT_OK, "saved %s/step-%lld", l->folder->checkpoints,
                  (long long)tt_saver_step(l->saver));
}

/* ---- life ---- */

void tt_loop_open_ctl(tt_loop *l)
{
    if (!l->main)
        return;
    const tt_ctl_opts o = {
        .folder = l->folder->path, .converters = l->swap.list, .world = l->s->world};
    const tt_ctl_numbers n = {.step = l->step,
                              .steps = l->steps,
                              .tokens_seen = l->tokens_seen,
                              .loss = l->loss,
                              .loss_max = (double)NAN,
                              .norm = (double)NAN,
                              .lr = (double)NAN,
                              .lr_base = l->lr_base,
                              .tps = (double)NAN,
                              .tps_global = (double)NAN,
                              .seconds_left = (double)NAN};
    l->ctl = tt_ctl_open(&o);
    if (!l->ctl)
        return;
    tt_ctl_show(l->ctl, &n);
    tt_ctl_set_state(l->ctl, "training");
}

void tt_loop_close_ctl(tt_loop *l, tt_status s, const tt_error *err)
{
    tt_error gone = {0};
    char done[64];
    snprintf(done, sizeof done, "all %lld steps are done", (long long)l->steps);
    if (!l->ctl)
        return;
    const bool ours = tt_run_folder_check(l->folder, &gone) == TT_OK;
    tt_ctl_close(l->ctl, s, s == TT_OK ? done : err->text, ours);
    l->ctl = NULL;
}
