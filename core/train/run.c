/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread.h"
#include "comm/call_log.h"
#include "train/loop.h"
#include "train/reference.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The training loop of one rank, and the start of the ranks. */

typedef struct world {
    const tt_setup *s;
    const tt_run_opts *o;
    const tt_run_folder *folder;
    tt_threads *threads; /* NULL: one rank */
    tt_call_log *calls;  /* NULL: nothing is logged */
    tt_shared_data data;
    tt_swaps swaps;
    pthread_mutex_t lock;
    tt_status status; /* of the rank that failed first */
    tt_error err;
} world;

typedef struct rank_thread {
    world *w;
    int rank;
} rank_thread;

static tt_status save_step(tt_loop *l, bool model_only, bool snapshot, tt_error *err)
{
    l->save_asked = false;
    TT_TRY(tt_loop_written(l, err)); /* metrics are on disk before the checkpoint */
    return tt_loop_save(l, model_only, snapshot, err);
}

/* Validates after a step. *saved: its checkpoint says that the validation is due. If a stop interrupts the
 * validation, the checkpoint goes on saying so, and the next start begins with the validation. */
static tt_status validate_step(tt_loop *l, bool saved, tt_error *err)
{
    TT_TRY(tt_loop_validate(l, err));
    if (l->validation_due) { /* interrupted */
        TT_TRY(tt_loop_exchange(l, false, err));
        return l->saver && !saved && l->stopped_by ? save_step(l, false, false, err) : TT_OK;
    }
    if (!l->saver || !l->main)
        return TT_OK;
    TT_TRY(
        tt_loop_written(l, err)); /* the validation is not made up for, so its record is on disk */
    tt_saver_validated(l->saver, l->step);
    return TT_OK;
}

/* Early stopping: this step is the run's last. saved: it has been saved with its states. */
static tt_status conclude_early(tt_loop *l, bool saved, tt_error *err)
{
    const bool model_only = l->s->core.checkpoint.last_save_model_only;
    l->steps = l->step;
    if (!l->saver)
        return TT_OK;
    if (!saved || model_only || l->frozen_from)
        TT_TRY(save_step(l, model_only, false, err));
    TT_TRY(tt_loop_finish_last_save(l, err));
    tt_loop_answer_save(l);
    return tt_loop_save_last_hf(l, true, err);
}

/* The end of a step: saves and validates if either is due, in this order, so that what happens during a
 * validation costs no step. Weights alone are saved only when nothing is left to do. */
static tt_status conclude(tt_loop *l, bool save, bool snapshot, tt_error *err)
{
    const bool at_end = l->step == l->steps, due = l->validation_due;
    const bool model_only = at_end && l->s->core.checkpoint.last_save_model_only;
    const bool saves = l->saver && (save || l->save_asked || l->stopped_by);
    if (saves)
        TT_TRY(save_step(l, model_only && !due, snapshot && !l->save_asked && !l->stopped_by, err));
    if (due && !l->stopped_by)
        TT_TRY(validate_step(l, saves, err));
    if (l->early.stops && !at_end && !l->stopped_by)
        return conclude_early(l, saves, err);
    if (!l->saver)
        return TT_OK;
    const bool last = at_end && !l->validation_due;
    if (last && due && model_only)
        TT_TRY(save_step(l, true, false, err));
    if (last || l->stopped_by)
        TT_TRY(tt_loop_finish_last_save(l, err));
    tt_loop_answer_save(l);
    return last ? tt_loop_save_last_hf(l, true, err) : TT_OK;
}

/* All ranks see a NaN at the same step, so a save in flight can still be published: it is of an earlier one. With
 * detect_nan one rank may see it alone, while the others wait for that rank within the step. */
static tt_status publish_on_nan(tt_loop *l, tt_status s, tt_error *err)
{
    tt_error ignored = {0};
    int64_t *saved = NULL;
    size_t n = 0;
    if (s != TT_ENUMERIC || l->s->core.debug.detect_nan)
        return s;
    tt_loop_finish_save(l, &ignored);
    const char *why = tt_arena_str(l->rank.arena, err->text);
    if (tt_ckpt_list(l->folder->checkpoints, l->rank.arena, &saved, &n, NULL) != TT_OK || !n)
        return TT_FAIL(err, s, "%s; no checkpoint is there yet", why);
    return TT_FAIL(err, s, "%s; the checkpoint step-%lld is good", why, (long long)saved[n - 1]);
}

/* What follows a step needs its numbers, or the states as it leaves them, or an idle device. The same on all ranks. */
static bool must_settle(const tt_loop *l, bool save)
{
    return l->step == l->steps || l->stopped_by || l->validation_due ||
           (l->saver && (save || l->save_asked)) || tt_loop_profiles(l, l->step + 1) ||
           l->swaps_now || tt_swap_due(l) || tt_loop_peer_due(l);
}

/* saves: a save has just begun, which the swap waits for once, so that the loop does not. */
static bool swap_follows(tt_loop *l, bool saves)
{
    const bool waits = l->swaps_now && saves && !l->swap.waits_for;
    if (waits)
        l->swap.waits_for = l->step;
    return tt_swap_due(l) || (l->swaps_now && !waits);
}

static tt_status after_step(tt_loop *l, tt_error *err)
{
    const tt_core_config *c = &l->s->core;
    bool snapshot = false;
    const bool save = tt_loop_save_due(l, &snapshot);
    l->validation_due = l->s->has_validation && tt_loop_due(l, l->step, c->validation.freq);
    TT_TRY(tt_loop_exchange(l, true, err));
    if (must_settle(l, save))
        TT_TRY(publish_on_nan(l, tt_loop_settle(l, err), err));
    const bool saves = l->saver && (save || l->save_asked);
    TT_TRY(conclude(l, save, snapshot, err));
    if (l->step == l->steps || l->stopped_by)
        return TT_OK;
    if (swap_follows(l, saves)) {
        tt_loop_peer_leave(l);
        TT_TRY(tt_swap_take_over(l, err));
    }
    tt_swap_plan_ahead(l);
    return tt_loop_peer_due(l) ? tt_loop_peer_copy(l, err) : TT_OK;
}

/* A stop signal during the validation before the first step ends the run there. */
static tt_status validate_first(tt_loop *l, tt_error *err)
{
    TT_TRY(tt_loop_validate(l, err));
    TT_TRY(tt_loop_exchange(l, false, err));
    l->t = (tt_times){.begin_ns = tt_now_ns()};
    return TT_OK;
}

/* checkpoint.create_seed_checkpoint */
static tt_status save_seed(tt_loop *l, tt_error *err)
{
    const char *key = "checkpoint.create_seed_checkpoint";
    if (l->step)
        return tt_job_fail(l->s->job, key, err,
                           "this run is at step %lld already: start in another dump_folder",
                           (long long)l->step);
    TT_TRY(tt_loop_save(l, true, false, err));
    return tt_loop_finish_last_save(l, err);
}

#define TELL_NS INT64_C(100000000)

/* The first step is told at once, and others now and then. */
static void tell_step(tt_loop *l)
{
    const int64_t now = tt_now_ns();
    if (!l->main || !l->o->stepped || (l->step > l->began_step + 1 && now - l->told_ns < TELL_NS))
        return;
    l->told_ns = now; /* when the supervisor was told last */
    l->o->stepped(l->step);
}

static tt_status run_steps(tt_loop *l, tt_error *err)
{
    const int64_t steps = l->steps, first = l->step + 1;
    l->t.begin_ns = l->began_ns = tt_now_ns();
    l->logged_step = l->began_step = l->step;
    l->began_tokens = l->tokens_seen;
    tell_step(l);
    TT_TRY(tt_loop_hooks_start(l, err));
    if (l->s->core.checkpoint.create_seed_checkpoint)
        return save_seed(l, err);
    if (l->main && l->step >= steps)
        tt_log(TT_INFO, "train", "nothing to do: step %lld of %lld is done already",
               (long long)l->step, (long long)steps);
    if (l->step == steps && !l->validation_due)
        return tt_loop_save_last_hf(l, false, err);
    TT_TRY(tt_loop_exchange(l, false,
                            err)); /* so that a stop before the first step takes effect now */
    if (l->stopped_by)
        return TT_FAIL(err, TT_ESIGNAL, "stopped by %s before step %lld",
                       tt_loop_stop_name(l->stopped_by), (long long)first);
    if (l->validation_due) /* the step that the run resumes from is saved */
        TT_TRY(conclude(l, false, false, err));
    if (!l->step && l->s->has_validation && l->s->core.validation.at_start)
        TT_TRY(validate_first(l, err));
    if (l->stopped_by)
        return TT_FAIL(err, TT_ESIGNAL, "stopped by %s before step %lld",
                       tt_loop_stop_name(l->stopped_by), (long long)first);
    tt_swap_plan_ahead(l);
    while (l->step < l->steps && !l->stopped_by) {
        l->step++;
        tt_called_step(l->rank.dist.called, l->step);
        TT_TRY(tt_loop_hooks_before(l, err));
        tt_loop_profile_begin(l);
        TT_TRY(publish_on_nan(l, tt_loop_step(l, err), err));
        TT_TRY(tt_loop_profile_end(l, err));
        if (!l->flight.on)
            TT_TRY(tt_loop_log(l, err));
        TT_TRY(after_step(l, err));
        if (l->step == first)
            tt_dist_set_timeout(&l->rank.dist, (double)l->s->core.comm.train_timeout_seconds);
        tell_step(l);
    }
    TT_TRY(tt_loop_written(l, err));
    TT_TRY(tt_loop_experts_write(l, true, err));
    TT_TRY(l->main ? tt_run_folder_check(l->folder, err) : TT_OK);
    tt_loop_say_end(l);
    if (!l->stopped_by || (l->step == l->steps && !l->validation_due))
        return TT_OK;
    return TT_FAIL(err, TT_ESIGNAL, "stopped by %s after step %lld%s",
                   tt_loop_stop_name(l->stopped_by), (long long)l->step, l->saver ? ", saved" : "");
}

/* If this rank fails while the numbers of the step before are late, they are logged all the same, and a
 * NaN among them came first. After a failure of another rank they may never come. */
static tt_status loop(tt_loop *l, tt_error *err)
{
    const tt_status s = run_steps(l, err);
    tt_error late = {0};
    if (s == TT_OK || s == TT_ECOMM || tt_loop_settle(l, &late) != TT_ENUMERIC)
        return s;
    *err = late;
    return TT_ENUMERIC;
}

static tt_status loop_start(tt_loop *l, tt_error *err)
{
    int64_t since = tt_now_ns();
    TT_TRY(l->main ? tt_losses_open(&l->losses, err) : TT_OK);
    tt_loop_open_measures(l);
    TT_TRY(tt_loop_open_data(l, err));
    tt_loop_say_phase(l, "data opened", &since);
    TT_TRY(tt_rank_init_params(&l->rank, err));
    tt_loop_say_phase(l, "parameters initialized", &since);
    TT_TRY(tt_loop_open_peer(l, err));
    TT_TRY(tt_agree(&l->rank.dist, tt_loop_resume(l, err), err));
    TT_TRY(tt_loop_length(l, err));
    TT_TRY(tt_loop_open_early(l, err));
    TT_TRY(tt_agree(&l->rank.dist, tt_loop_set_aside(l, err), err)); /* then ranks open files */
    tt_loop_say_phase(l, "checkpoint or weights loaded", &since);
    TT_TRY(tt_loop_open_references(l, err));
    tt_loop_say_phase(l, "reference values of the loss computed or read", &since);
    TT_TRY(tt_loop_open_saver(l, err));
    TT_TRY(tt_loop_open_stream(l, err));
    TT_TRY(tt_loop_open_sinks(l, err));
    TT_TRY(tt_loop_open_hooks(l, err));
    TT_TRY(tt_loop_open_profile(l, err));
    tt_loop_say_phase(l, "checkpoints, stream of samples and metrics opened", &since);
    TT_TRY(tt_loop_announce(l, err));
    tt_loop_open_ctl(l);
    if (l->main && l->o->progress && l->s->core.metrics.enable_progress_bar) {
        tt_progress_init(&l->progress, "train", l->step, l->steps, false);
        l->progress.unit = l->s->world > 1 ? "tps/rank" : "tps"; /* as in the line of a step */
        l->has_progress = true;
    }
    return TT_OK;
}

/* The user can correct the cause of a failure before step 1 (exit status 2), unless it is a failure
 * of communication, a time limit, a signal or a fault of ttrun. */
static tt_status before_first_step(tt_status s)
{
    return s == TT_OK || s == TT_ECOMM || s == TT_ETIMEOUT || s == TT_ESIGNAL || s == TT_EINTERNAL
               ? s
               : TT_EINVAL;
}

/* A failure after step 1 is a failure of the run (exit status 1), except for codes that have an
 * exit status of their own, and for what the job asks for and nothing here can do (2). */
static tt_status while_running(tt_status s)
{
    const bool own = s == TT_OK || s == TT_ECOMM || s == TT_ETIMEOUT || s == TT_ESIGNAL;
    return own || s == TT_ENUMERIC || s == TT_EUNSUPPORTED ? s : TT_EIO;
}

/* With several ranks the error names the rank that failed, unless it names a place in a file. */
static void name_rank(int rank, tt_error *err)
{
    if (!tt_error_place(err->text))
        tt_error_context(err, "rank %d", rank);
}

/* A rank that has waited too long writes the last calls of this machine's ranks to files; so does one that
 * another machine has stopped. What has failed otherwise is not a matter of who waits for whom. */
static void dump_calls(tt_call_log *calls, const tt_dist *d, tt_status s, tt_error *err)
{
    if (s == TT_ETIMEOUT || (s == TT_ECOMM && d->session && d->local_world < d->world))
        tt_call_log_dump(calls, err);
}

static void rank_fail(tt_dist *d, tt_status s, const tt_error *err)
{
    tt_error e = *err;
    if (d->session && s != TT_ECOMM)
        name_rank(d->rank, &e);
    tt_dist_fail(d, s, e.text);
}

/* How this start of the run has ended, for run.json. */
static void record_end(const tt_loop *l, tt_status s, const tt_error *err)
{
    tt_error ignored = {0};
    char status[sizeof err->text + 16];
    if (!l->main || !l->folder->record || tt_run_folder_check(l->folder, &ignored) != TT_OK)
        return;
    snprintf(status, sizeof status, "%s%s",
             s == TT_OK        ? "done"
             : s == TT_ESIGNAL ? ""
                               : "failed: ",
             s == TT_OK ? "" : err->text);
    tt_run_folder_end(l->folder, TT_MAXV(l->known_step, l->began_step), status, &ignored);
}

static void say_rank(const tt_setup *s, int rank)
{
    char host[256] = "", text[400];
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "rank %d of %d, process %ld on %s", rank, s->world, (long)getpid(),
             host);
    tt_log_to_file(TT_INFO, "train", text);
}

/* log.files */
static tt_status open_log_file(const tt_setup *s, int rank, tt_error *err)
{
    if (!s->core.log_files)
        return TT_OK;
    tt_arena *a = tt_arena_new();
    const char *folder = tt_path_join(a, s->core.dump_folder, "logs");
    tt_error why = {0};
    tt_status st = tt_mkdirs(folder, &why);
    if (st == TT_OK)
        st = tt_log_file_open(rank, tt_arena_printf(a, "%s/rank-%d.log", folder, rank), &why);
    tt_arena_free(a);
    return st == TT_OK ? TT_OK : tt_job_fail(s->job, "log.files", err, "%s", why.text);
}

static tt_status open_log(const tt_setup *s, int rank, tt_error *err)
{
    TT_TRY(open_log_file(s, rank, err));
    if (s->core.log_files)
        say_rank(s, rank);
    return TT_OK;
}

static void close_log(const tt_dist *d, tt_status s, const tt_error *err)
{
    if (s != TT_OK)
        tt_log_to_file(s == TT_ESIGNAL ? TT_INFO : TT_ERROR, "train", err->text);
    tt_log_file_close(d->rank);
}

/* false: the saver's thread does not end. */
static bool close_saving(tt_loop *l)
{
    const bool ended = tt_saver_free(l->saver);
    tt_loop_close_peer(l);
    return ended;
}

/* stuck: the saver's thread may still read the states. The end of the process frees them. */
static void close_rank(tt_loop *l, tt_status s, bool stuck)
{
    l->rank.failed = s != TT_OK && s != TT_ESIGNAL;
    tt_losses_close(&l->losses);
    if (stuck)
        return;
    tt_rank_close(&l->rank);
    tt_swap_close(l);
}

static tt_status join_world(world *w, int rank, tt_dist *d, tt_error *err)
{
    if (w->o->dist)
        *d = *w->o->dist;
    if (w->threads)
        TT_TRY(tt_threads_join(w->threads, rank, d, err));
    d->stop = w->o->stop;
    TT_TRY(tt_call_log_join(w->calls, d, err));
    return before_first_step(open_log(w->s, d->rank, err));
}

static tt_status run_rank(world *w, int rank, tt_error *err)
{
    bool stuck = false;
    tt_loop *l = calloc(1, sizeof *l);
    tt_dist d = {.world = 1};
    if (!l) {
        if (w->threads && tt_threads_join(w->threads, rank, &d, NULL) == TT_OK) {
            tt_dist_abort(&d, "another rank has no memory");
            tt_dist_leave(&d);
        }
        return TT_FAIL(err, TT_ENOMEM, "no memory for the loop of a rank");
    }
    l->s = w->s;
    l->o = w->o;
    l->main = rank == 0;
    l->folder = w->folder;
    l->shared = &w->data;
    l->swaps = &w->swaps;
    l->loss = l->loss_max = l->norm = l->lr = (double)NAN;
    l->lr_base = *tt_optimizer_rate(w->s->optimizer.component, w->s->optimizer.config);
    tt_status s = join_world(w, rank, &d, err);
    int64_t since = tt_now_ns();
    if (s == TT_OK)
        s = before_first_step(tt_rank_open(w->s, &d, w->s->has_validation, &l->rank, err));
    tt_loop_say_phase(l, "memory planned and allocated, kernels chosen", &since);
    if (s == TT_OK) {
        tt_swap_init(l);
        s = before_first_step(tt_agree(&l->rank.dist, loop_start(l, err), err));
        if (s == TT_OK)
            s = while_running(loop(l, err));
        if (l->has_progress)
            tt_progress_finish(&l->progress);
        dump_calls(w->calls, &d, s, err);
        if (s != TT_OK && s != TT_ESIGNAL)
            rank_fail(&l->rank.dist, s, err);
        tt_trial_close(l);
        tt_swap_settle(l);
        tt_loop_close_ctl(l, s, err);
        tt_swap_drop(l);
        tt_loop_close_profile(l);
        stuck = !close_saving(l);
        tt_loop_close_hooks(l, s, err);
        record_end(l, s, err);
        tt_loop_close_sinks(l);
        tt_loop_close_data(l);
        close_rank(l, s, stuck);
    } else if (d.vt) {
        rank_fail(&d, s, err);
    }
    close_log(&d, s, err);
    tt_call_log_leave(&d);
    if (w->threads)
        tt_dist_leave(&d);
    if (!stuck)
        free(l);
    return s;
}

static void *rank_main(void *arg)
{
    const rank_thread *t = arg;
    tt_error e = {0};
    tt_log_set_thread_rank(t->rank);
    tt_locale_fix();
    const tt_status s = run_rank(t->w, t->rank, &e);
    pthread_mutex_lock(&t->w->lock);
    /* keep the error of the rank that failed itself, not of those that it woke */
    const bool own = s != TT_OK && s != TT_ECOMM;
    if (s != TT_OK && (t->w->status == TT_OK || (own && t->w->status == TT_ECOMM))) {
        t->w->status = s;
        t->w->err = e;
        if (s != TT_ESIGNAL)
            name_rank(t->rank, &t->w->err);
    }
    pthread_mutex_unlock(&t->w->lock);
    return NULL;
}

static tt_status run_threads(world *w, tt_error *err)
{
    const int n = w->s->world;
    if (!strcmp(w->s->core.comm.backend, "auto"))
        tt_log(TT_INFO, "train",
               "%d ranks run as threads of this process; comm.backend \"local\" hides this line",
               n);
    TT_TRY(
        before_first_step(open_log_file(w->s, 0, err))); /* it begins with what was said before */
    TT_TRY(tt_threads_new(n, (double)w->s->core.comm.init_timeout_seconds, &w->threads, err));
    tt_threads_lend(w->threads, w->s->helpers ? (int)w->s->threads : 0);
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    rank_thread *args = calloc((size_t)n, sizeof *args);
    int started = 0, code = ENOMEM;
    w->data.threads = true;
    for (int i = 0; threads && args && i < n; i++) {
        args[i] = (rank_thread){w, i};
        code = pthread_create(&threads[i], NULL, rank_main, &args[i]);
        if (code)
            break;
        started++;
    }
    if (started < n) {
        tt_dist d;
        if (tt_threads_join(w->threads, 0, &d, NULL) == TT_OK) {
            tt_dist_abort(&d, "a rank's thread could not be started");
            tt_dist_leave(&d);
        }
    }
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    free(args);
    tt_threads_free(w->threads);
    if (started < n)
        return TT_FAIL(err, TT_EINVAL,
                       "only %d of %d rank-threads could be started: %s; allow more processes "
                       "(ulimit -u), or use fewer ranks",
                       started, n, strerror(code));
    if (w->status != TT_OK)
        *err = w->err;
    return w->status;
}

size_t tt_error_place(const char *text)
{
    const char *end = strstr(text, ": ");
    int colons = 0;
    for (const char *p = end; p && p > text && (isdigit((unsigned char)p[-1]) || p[-1] == ':'); p--)
        if (p[-1] == ':' && ++colons == 2)
            return p - 1 > text && isdigit((unsigned char)*p) ? (size_t)(end - text) : 0;
    return 0;
}

/* Runs this process's rank. All ranks lock the folder (tt_run_folder_open), until their process
 * ends. */
static tt_status run_process(world *w, tt_setup *setup, tt_run_folder *folder, tt_arena *a,
                             tt_error *err)
{
    tt_dist *d = w->o->dist;
    const int sig = w->o->stop ? w->o->stop() : 0;
    tt_status s = sig            ? tt_fail_stopped(sig, err)
                  : d->rank == 0 ? tt_run_folder_open(w->s, w->o, a, folder, err)
                                 : TT_OK;
    s = tt_agree(d, s, err);
    if (s == TT_OK && d->rank != 0)
        s = tt_run_folder_join(w->s, a, folder, err);
    s = tt_agree(d, s, err);
    if (s == TT_OK)
        s = tt_train_seed(setup, folder, w->o->resume, d, err);
    if (s == TT_OK)
        return run_rank(w, d->rank, err);
    s = before_first_step(s);
    if (s != TT_ESIGNAL)
        rank_fail(d, s, err);
    return s;
}

/* comm.trace_buf_size */
static tt_status open_calls(world *w, tt_arena *a, tt_error *err)
{
    const tt_comm_config *c = &w->s->core.comm;
    const tt_dist *d = w->o->dist;
    const tt_call_log_opts o = {.entries = w->s->world > 1 ? c->trace_buf_size : 0,
                                .folder =
                                    tt_path_join(a, w->s->core.dump_folder, c->save_traces_folder),
                                .prefix = c->save_traces_file_prefix,
                                .ranks = d ? d->local_world : w->s->world};
    return tt_call_log_new(&o, d ? d->session : NULL, &w->calls, err);
}

tt_status tt_train(tt_setup *s, const tt_run_opts *o, tt_error *err)
{
    tt_run_folder folder = {.lock_fd = -1, .ranks_fd = -1, .saves_fd = -1};
    world w = {.s = s,
               .o = o,
               .folder = &folder,
               .data.lock = PTHREAD_MUTEX_INITIALIZER,
               .lock = PTHREAD_MUTEX_INITIALIZER};
    tt_arena *a = tt_arena_new();
    tt_status st = open_calls(&w, a, err);
    tt_swaps_init(&w.swaps, o->dist ? 1 : s->world, s->registry);
    if (st != TT_OK)
        st = before_first_step(st);
    else if (o->dist)
        st = run_process(&w, s, &folder, a, err);
    else if ((st = tt_run_folder_open(s, o, a, &folder, err)) != TT_OK ||
             (st = tt_train_seed(s, &folder, o->resume, NULL, err)) != TT_OK)
        st = before_first_step(st);
    else
        st = s->world > 1 ? run_threads(&w, err) : run_rank(&w, 0, err);
    tt_data_parts_close(&w.data.parts, s);
    tt_run_folder_close(&folder, st != TT_OK);
    tt_swaps_release(&w.swaps);
    tt_call_log_free(w.calls);
    tt_arena_free(a);
    return st;
}
