/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/saver.h"
#include "base/pages.h"
#include "base/thread.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The phase of the save in flight. The saver's thread works during STAGING, WRITING and COMMITTING. */
typedef enum phase {
    IDLE,
    STAGING, /* its pieces are being copied: nothing may write them */
    WRITING,
    WRITTEN, /* this rank has written; other ranks have not */
    COMMITTING,
    COMMITTED,
    FAILED,
    QUIT,
} phase;

struct tt_saver {
    tt_saver_opts o;
    tt_arena *arena;
    /* of each part; staged: the same with data in the buffer */
    tt_ckpt_piece *pieces[TT_N_SAVED_PARTS], *staged;
    size_t n[TT_N_SAVED_PARTS];
    char *buffer;
    size_t bytes;
    tt_exec_reader *reader; /* NULL: nothing is staged */
    /* the save in flight; the thread's while it works, else the caller's */
    tt_trainer_state state;
    const tt_ckpt_piece *now;
    size_t n_now;
    int64_t began_ns;
    bool model_only;
    tt_error err;
    tt_step_loss *losses;  /* those of `state`: the loop goes on adding to its own */
    bool stuck;            /* an error has said that the save in flight does not get on */
    atomic_bool follows;   /* the save is published, and what follows it runs */
    atomic_llong moved_ns; /* when the phase changed last */
    tt_error failure;      /* goes_on: of the save that was started last; code TT_OK: none */
    bool failing;          /* goes_on: the saves fail, and a line has said so */
    /* protected by lock */
    phase phase;
    int64_t published; /* the step that was published last */
    int64_t validated; /* the step that was validated last */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread; /* false: it could not be started */
};

static bool alone(const tt_saver *s)
{
    return !s->o.rank->dist.vt;
}

static size_t piece_bytes(const tt_ckpt_piece *p)
{
    return p->owner ? (size_t)tt_box_numel(&p->box, p->n_dims) * tt_dtype_size(p->dtype) : 0;
}

/* ---- the work, on the saver's thread ---- */

static tt_status check_folder(const tt_saver *s, tt_error *err)
{
    return s->o.held ? tt_run_folder_check(s->o.held, err) : TT_OK;
}

static bool works(phase p)
{
    return p == STAGING || p == WRITING || p == COMMITTING;
}

static tt_status saver_begin(const tt_saver *s, int64_t step, tt_error *err)
{
    TT_TRY(check_folder(s, err));
    return tt_ckpt_begin(s->o.folder, step, err);
}

/* If the run folder is gone, that is the error to report. When no rank writes any more, the
 * incomplete step is removed: a full disk needs the space. Where others may write still,
 * saver_give_up does so. */
static phase failed(tt_saver *s, bool all_written)
{
    tt_error gone = {0}, ignored = {0};
    if (check_folder(s, &gone) != TT_OK)
        s->err = gone;
    else if (all_written)
        tt_ckpt_clear(s->o.folder, &ignored);
    return FAILED;
}

static void after_commit(tt_saver *s)
{
    const int64_t step = s->state.step;
    pthread_mutex_lock(&s->lock);
    s->published = step;
    const bool validated = s->validated == step && s->state.validation_due;
    pthread_mutex_unlock(&s->lock);
    if (validated)
        tt_saved_validated(&s->o, step);
    atomic_store(&s->follows, true); /* after_save has a limit of its own */
    tt_saved_follow(&s->o, step);
    atomic_store(&s->follows, false);
}

static phase commit(tt_saver *s)
{
    if (check_folder(s, &s->err) != TT_OK)
        return FAILED;
    if (tt_ckpt_commit(s->o.folder, s->state.step, &s->state, &s->err) != TT_OK)
        return failed(s, true);
    const bool cast = s->model_only && s->o.weights_as != TT_N_DTYPES;
    tt_log(TT_INFO, "checkpoint", "saved %s/step-%lld%s%s%s in %.2f s", s->o.folder,
           (long long)s->state.step, s->model_only ? ", weights only" : "", cast ? ", as " : "",
           cast ? tt_dtype_name(s->o.weights_as) : "", 1e-9 * (double)(tt_now_ns() - s->began_ns));
    after_commit(s);
    return COMMITTED;
}

static tt_status stage(tt_saver *s, tt_error *err)
{
    const tt_ckpt_piece *p = s->now;
    tt_ckpt_stage(p, s->n_now, s->staged, s->buffer);
    for (size_t i = 0; i < s->n_now; i++)
        TT_TRY(
            tt_exec_reader_copy(s->reader, s->staged[i].data, p[i].data, piece_bytes(&p[i]), err));
    s->now = s->staged;
    return TT_OK;
}

/* Weights alone are written as another dtype from memory of their own, which only this save needs. */
static tt_status write_cast(tt_saver *s, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_ckpt_piece *cast = tt_arena_array(a, s->n_now + 1, sizeof *cast);
    const size_t bytes = tt_ckpt_cast(s->now, s->n_now, s->o.weights_as, cast, NULL);
    void *memory = tt_pages_new(bytes + 1); /* its pieces are not copied again (tt_ckpt_stage) */
    tt_status st = TT_OK;
    if (memory)
        tt_ckpt_cast(s->now, s->n_now, s->o.weights_as, cast, memory);
    else
        st = TT_FAIL(err, TT_ENOMEM, "no memory for the %zu bytes of the weights as %s", bytes,
                     tt_dtype_name(s->o.weights_as));
    if (st == TT_OK)
        st = tt_ckpt_write(s->o.folder, s->state.step, s->o.rank->dist.rank, cast, s->n_now, err);
    tt_pages_free(memory, bytes + 1);
    tt_arena_free(a);
    return st;
}

static tt_status write_pieces(tt_saver *s, tt_error *err)
{
    if (s->model_only && s->o.weights_as != TT_N_DTYPES)
        return write_cast(s, err);
    return tt_ckpt_write(s->o.folder, s->state.step, s->o.rank->dist.rank, s->now, s->n_now, err);
}

static phase work(tt_saver *s, phase p)
{
    if (p == COMMITTING)
        return commit(s);
    if (p == STAGING)
        return stage(s, &s->err) == TT_OK ? WRITING : failed(s, alone(s));
    if (write_pieces(s, &s->err) != TT_OK)
        return failed(s, alone(s));
    return alone(s) ? commit(s) : WRITTEN;
}

static void *thread_main(void *arg)
{
    tt_saver *s = arg;
    tt_locale_fix();
    if (!alone(s))
        tt_log_set_thread_rank(s->o.rank->dist.rank);
    pthread_mutex_lock(&s->lock);
    while (s->phase != QUIT) {
        if (!works(s->phase)) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        const phase p = s->phase;
        pthread_mutex_unlock(&s->lock);
        const phase next = work(s, p);
        pthread_mutex_lock(&s->lock);
        s->phase = next;
        atomic_store(&s->moved_ns, tt_now_ns());
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static phase saver_phase(tt_saver *s)
{
    pthread_mutex_lock(&s->lock);
    const phase p = s->phase;
    pthread_mutex_unlock(&s->lock);
    return p;
}

static void set(tt_saver *s, phase p)
{
    pthread_mutex_lock(&s->lock);
    s->phase = p;
    atomic_store(&s->moved_ns, tt_now_ns());
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Whether the thread has worked at the same for longer than the limit, and the caller has waited as long. */
static bool too_long(tt_saver *s, int64_t since_ns)
{
    const int64_t from = TT_MAXV(since_ns, (int64_t)atomic_load(&s->moved_ns));
    return s->o.limit_s > 0 && !atomic_load(&s->follows) &&
           1e-9 * (double)(tt_now_ns() - from) > s->o.limit_s;
}

/* Waits until the thread has nothing to do. */
static void wait_idle(tt_saver *s)
{
    pthread_mutex_lock(&s->lock);
    while (works(s->phase))
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the caller's side ---- */

#define TOO_LONG 4 /* beside the values of tt_saver_poll() */

/* mine: it is this rank's part that does not get on. */
static tt_status is_stuck(tt_saver *s, bool mine, tt_error *err)
{
    s->stuck = true;
    tt_status st = TT_OK;
    if (mine)
        st = TT_FAIL(err, TT_ETIMEOUT,
                     "the save of step %lld has not got on for %g s "
                     "(checkpoint.save_timeout_seconds): %s",
                     (long long)s->state.step, s->o.limit_s,
                     "does the file system of checkpoint.folder answer?");
    return tt_agree(&s->o.rank->dist, st, err);
}

static tt_status failure(tt_saver *s, tt_error *err)
{
    if (saver_phase(s) != FAILED)
        return TT_OK;
    /* Why a file is not there, if the folder went while it was written. */
    TT_TRY(check_folder(s, err));
    *err = s->err;
    return tt_error_context(err, "checkpoint of step %lld", (long long)s->state.step);
}

/* The text of the lowest rank that failed, on all ranks. mine: NULL = this rank did not fail. [collective] */
static tt_status share_failure(tt_saver *s, const tt_error *mine, tt_error *err)
{
    tt_dist *d = &s->o.rank->dist;
    int32_t first = mine ? d->world - d->rank : 0;
    const int32_t me = first;
    TT_TRY(tt_dist_reduce(d, &first, 1, TT_I32, TT_MAX, err));
    s->failure.code = first ? TT_EIO : TT_OK;
    if (!first)
        return TT_OK;
    return tt_share_text(d, first == me ? mine->text : NULL, s->failure.text,
                         sizeof s->failure.text, err);
}

/* goes_on: the ranks learn whether one has failed, and the first failure of several in a row is said.
 * [collective] */
static tt_status survive(tt_saver *s, int64_t step, const tt_error *mine, tt_error *err)
{
    TT_TRY(share_failure(s, mine, err));
    if (s->failure.code == TT_OK)
        return TT_OK;
    if (!s->failing && s->o.rank->dist.rank == 0)
        tt_log(
            TT_WARN, "checkpoint",
            "step %lld is not saved: %s; training goes on (checkpoint.on_error), and the next save "
            "tries again",
            (long long)step, s->failure.text);
    s->failing = true;
    return TT_OK;
}

const char *tt_saver_failure(const tt_saver *s)
{
    return s->failure.code == TT_OK ? NULL : s->failure.text;
}

tt_status tt_saver_start(tt_saver *s, const tt_trainer_state *st, tt_saved_part part, tt_error *err)
{
    TT_TRY(tt_saver_finish(s, err));
    s->began_ns = tt_now_ns();
    s->failure = (tt_error){0};
    const bool main = s->o.rank->dist.rank == 0;
    const tt_status begun = main ? saver_begin(s, st->step, err) : TT_OK;
    if (s->o.goes_on) {
        const tt_error mine = begun != TT_OK ? *err : (tt_error){0};
        s->state.step = st->step;
        TT_TRY(survive(s, st->step, begun != TT_OK ? &mine : NULL, err));
        if (s->failure.code != TT_OK)
            return TT_OK;
    } else {
        TT_TRY(tt_agree(&s->o.rank->dist, begun, err));
    }
    s->state.step = st->step;
    s->state.tokens_seen = st->tokens_seen;
    s->state.samples_seen = st->samples_seen;
    s->state.last_loss = st->last_loss;
    s->state.validation_due = st->validation_due;
    s->state.since = st->since;
    s->state.train_seconds = st->train_seconds;
    s->state.snapshot = st->snapshot;
    s->state.n_losses = st->n_losses;
    if (st->n_losses)
        memcpy(s->losses, st->losses, st->n_losses * sizeof *s->losses);
    s->state.optimizer_from = st->optimizer_from;
    s->state.schedule_from = st->schedule_from;
    s->state.has_lr = st->has_lr;
    s->state.lr = st->lr;
    s->state.lr_of_job = st->lr_of_job;
    s->published = s->validated = -1; /* nothing is in flight */
    s->model_only = part == TT_SAVE_WEIGHTS;
    s->now = s->pieces[part];
    s->n_now = s->n[part];
    if (s->reader)
        TT_TRY(tt_exec_reader_begin(s->reader, err));
    set(s, s->reader ? STAGING : WRITING);
    return TT_OK;
}

void tt_saver_wait_staged(tt_saver *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->phase == STAGING)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void tt_saver_validated(tt_saver *s, int64_t step)
{
    pthread_mutex_lock(&s->lock);
    const bool in_flight =
        s->state.step == step && s->published != step && (works(s->phase) || s->phase == WRITTEN);
    s->validated = step;
    pthread_mutex_unlock(&s->lock);
    if (!in_flight)
        tt_saved_validated(&s->o, step);
}

int64_t tt_saver_step(const tt_saver *s)
{
    return s->state.step;
}

bool tt_saver_in_flight(tt_saver *s)
{
    return saver_phase(s) != IDLE;
}

int32_t tt_saver_poll(tt_saver *s)
{
    switch (saver_phase(s)) {
    case IDLE:
        return 0;
    case STAGING:
    case WRITING:
    case COMMITTING:
        return 2;
    case FAILED:
        return 3;
    default:
        return 1;
    }
}

/* A rank could not write. When none writes any more, rank 0 removes the incomplete step. The ranks
 * wait in many short reductions, as in tt_saver_finish. */
static tt_status saver_give_up(tt_saver *s, tt_error *err)
{
    tt_dist *d = &s->o.rank->dist;
    tt_error ignored = {0};
    const int64_t began = tt_now_ns();
    for (int32_t busy = 1; busy;) {
        busy = tt_saver_poll(s) == 2;
        const bool mine = busy && too_long(s, began);
        busy = mine ? TOO_LONG : busy;
        TT_TRY(tt_dist_reduce(d, &busy, 1, TT_I32, TT_MAX, err));
        if (busy == TOO_LONG)
            return is_stuck(s, mine, err);
        if (busy)
            nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    const bool bad = saver_phase(s) == FAILED;
    tt_status status;
    if (s->o.goes_on)
        status = survive(s, s->state.step, bad ? &s->err : NULL, err);
    else
        status = tt_agree(d, failure(s, err), err);
    if (d->rank == 0 && check_folder(s, &ignored) == TT_OK)
        tt_ckpt_clear(s->o.folder, &ignored);
    if (s->o.goes_on && status == TT_OK) {
        s->err = (tt_error){0};
        set(s, IDLE);
    }
    return status;
}

/* All ranks call this with the same value, so all see the same save end. Only rank 0 commits. */
tt_status tt_saver_advance(tt_saver *s, int32_t all, tt_error *err)
{
    if (all == 0 || all == 2)
        return TT_OK;
    if (all == 3)
        return saver_give_up(s, err);
    if (saver_phase(s) == WRITTEN) {
        set(s, s->o.rank->dist.rank == 0 ? COMMITTING : COMMITTED);
        return TT_OK;
    }
    if (s->failing && s->o.rank->dist.rank == 0)
        tt_log(TT_INFO, "checkpoint", "step %lld: saves succeed again", (long long)s->state.step);
    s->failing = false;
    set(s, IDLE);
    return s->o.ended ? s->o.ended(s->o.user, s->state.step, s->model_only, s->state.snapshot, err)
                      : TT_OK;
}

/* The ranks wait in many short reductions, not in one long one: a save may take longer than the
 * time limit of a collective. *stuck: it does not get on; *mine: because of this rank. */
static tt_status wait_saved(tt_saver *s, bool *stuck, bool *mine, tt_error *err)
{
    const tt_dist *d = &s->o.rank->dist;
    const int64_t began = tt_now_ns();
    for (;;) {
        int32_t all = tt_saver_poll(s);
        *mine = all == 2 && too_long(s, began);
        all = *mine ? TOO_LONG : all;
        TT_TRY(tt_dist_reduce(d, &all, 1, TT_I32, TT_MAX, err));
        *stuck = all == TOO_LONG;
        if (all == 0 || *stuck)
            return TT_OK;
        TT_TRY(tt_saver_advance(s, all, err));
        if (all == 2)
            nanosleep(&(struct timespec){0, alone(s) ? 200000 : 2000000}, NULL);
    }
}

tt_status tt_saver_finish(tt_saver *s, tt_error *err)
{
    bool stuck = false, mine = false;
    TT_TRY(wait_saved(s, &stuck, &mine, err));
    return stuck ? is_stuck(s, mine, err) : TT_OK;
}

tt_status tt_saver_await(tt_saver *s, int64_t step, bool *ready, tt_error *err)
{
    bool stuck = false, mine = false;
    TT_TRY(wait_saved(s, &stuck, &mine, err));
    *ready = !stuck;
    if (!stuck)
        return TT_OK;
    if (!s->o.goes_on)
        return is_stuck(s, mine, err);
    tt_error why = {0};
    TT_FAIL(&why, TT_ETIMEOUT,
            "that of step %lld has not got on for %g s (checkpoint.save_timeout_seconds)",
            (long long)s->state.step, s->o.limit_s);
    return survive(s, step, mine ? &why : NULL, err);
}

/* ---- life ---- */

static void close_staging(tt_saver *s)
{
    tt_pages_free(s->buffer, TT_MAXV(s->bytes, (size_t)1));
    s->buffer = NULL;
    s->bytes = 0;
}

static tt_status open_staging(tt_saver *s, tt_error *err)
{
    const size_t n = s->n[TT_SAVE_WHOLE],
                 bytes = tt_ckpt_stage(s->pieces[TT_SAVE_WHOLE], n, NULL, NULL);
    s->staged = tt_arena_array(s->arena, n + 1, sizeof *s->staged);
    if (s->buffer && s->bytes == bytes)
        return tt_exec_reader_new(s->o.rank->exec, &s->reader, err);
    close_staging(s);
    s->bytes = bytes;
    s->buffer = tt_pages_new(TT_MAXV(s->bytes, (size_t)1));
    if (!s->buffer)
        return TT_FAIL(err, TT_ENOMEM, "no memory for the %zu bytes that a save copies%s", s->bytes,
                       tt_device_is_host(&s->o.rank->device)
                           ? "; set checkpoint.async_mode to \"disabled\""
                           : "");
    return tt_exec_reader_new(s->o.rank->exec, &s->reader, err);
}

static void keep_state(tt_saver *s)
{
    s->state = s->o.state;
    s->state.job_json = tt_arena_str(s->arena, s->o.state.job_json);
    s->state.model_fingerprint = tt_arena_str(s->arena, s->o.state.model_fingerprint);
    s->state.tokenizer_fingerprint = tt_arena_str(s->arena, s->o.state.tokenizer_fingerprint);
    s->state.converters = tt_arena_str(s->arena, s->o.state.converters);
    s->state.converters_of_job = tt_arena_str(s->arena, s->o.state.converters_of_job);
    s->state.averaged = tt_arena_str(s->arena, s->o.state.averaged);
    s->state.frozen_from = tt_arena_str(s->arena, s->o.state.frozen_from);
    s->state.initial_identity = tt_arena_str(s->arena, s->o.state.initial_identity);
    s->state.losses = s->losses;
}

/* What belongs to the program that runs. */
static tt_status open_program(tt_saver *s, const tt_saver_opts *o, tt_error *err)
{
    s->o = *o;
    s->arena = tt_arena_new();
    s->o.folder = tt_arena_str(s->arena, o->folder);
    s->o.after_save = o->after_save ? tt_arena_str(s->arena, o->after_save) : NULL;
    keep_state(s);
    s->n[TT_SAVE_WHOLE] = tt_rank_pieces(o->rank, s->arena, true, &s->pieces[TT_SAVE_WHOLE]);
    s->n[TT_SAVE_WEIGHTS] = tt_rank_pieces(o->rank, s->arena, false, &s->pieces[TT_SAVE_WEIGHTS]);
    s->n[TT_SAVE_TRAINED] = tt_rank_trained_pieces(o->rank, s->arena, &s->pieces[TT_SAVE_TRAINED]);
    const bool copies = o->background || !tt_device_is_host(&o->rank->device);
    return copies ? open_staging(s, err) : TT_OK;
}

tt_status tt_saver_follow(tt_saver *s, const tt_saver_opts *o, tt_error *err)
{
    const tt_trainer_state was = s->state;
    wait_idle(s);
    tt_exec_reader_free(s->reader);
    s->reader = NULL;
    tt_arena_free(s->arena);
    const tt_status st = open_program(s, o, err);
    s->state.step = was.step;
    return st;
}

tt_status tt_saver_new(const tt_saver_opts *o, tt_saver **out, tt_error *err)
{
    tt_saver *s = calloc(1, sizeof *s);
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "no memory for saving checkpoints");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->losses = calloc(TT_MOST_LOSSES, sizeof *s->losses); /* untouched pages take no memory */
    tt_status st = s->losses ? open_program(s, o, err)
                             : TT_FAIL(err, TT_ENOMEM, "no memory for saving checkpoints");
    if (st == TT_OK) {
        s->has_thread = pthread_create(&s->thread, NULL, thread_main, s) == 0;
        if (!s->has_thread)
            st = TT_FAIL(err, TT_ENOMEM, "cannot start the thread that saves checkpoints");
    }
    if (st != TT_OK)
        tt_saver_free(s);
    else
        *out = s;
    return st;
}

bool tt_saver_free(tt_saver *s)
{
    if (!s)
        return true;
    if (s->stuck && works(saver_phase(s))) {
        pthread_detach(s->thread);
        return false;
    }
    if (s->has_thread) {
        wait_idle(s);
        set(s, QUIT);
        pthread_join(s->thread, NULL);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    tt_exec_reader_free(s->reader);
    close_staging(s);
    tt_arena_free(s->arena);
    free(s->losses);
    free(s);
    return true;
}
