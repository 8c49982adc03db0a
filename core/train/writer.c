/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/writer.h"
#include "base/base.h"
#include "base/thread.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS 64 /* at most this many are held */
#define LATE 32    /* of them, for a sink that fails; older ones are lost to it */

typedef struct entry {
    tt_metrics_record r;
    tt_metric *metrics; /* room for tt_writer.most */
} entry;

typedef struct sink_state { /* the thread's, but for tt_writer_forget */
    int64_t next;           /* the first record that the sink does not have */
    int64_t lost;           /* records, since it began to fail */
    bool fails;             /* a line has said so */
} sink_state;

struct tt_writer {
    const tt_sink *sinks;
    sink_state *states;
    int n_sinks;
    bool goes_on;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Records; number i lies in ring[i % RECORDS]. Before `tried` all were offered to all sinks, and from
     * `oldest` on a sink may still want one. */
    int64_t put, tried, oldest;
    bool stop;
    size_t most;
    tt_metric *metrics; /* of all entries */
    tt_status status;   /* of the first record that failed; later ones are not written */
    tt_error err;
    entry ring[RECORDS];
};

/* ---- the thread ---- */

static void say_failed(sink_state *s, int64_t step, const tt_error *err)
{
    if (!s->fails)
        tt_log(TT_WARN, "metrics",
               "step %lld: %s; training goes on, and each record tries again (metrics.on_error)",
               (long long)step, err->text);
    s->fails = true;
}

static void say_works(sink_state *s, const char *name, int64_t step)
{
    if (s->fails)
        tt_log(TT_INFO, "metrics", "step %lld: the sink %s works again; %lld records are lost",
               (long long)step, name, (long long)s->lost);
    s->fails = false;
    s->lost = 0;
}

/* Gives a sink the records that it does not have, before number `end`. */
static tt_status bring_up(const tt_writer *w, int sink, int64_t end, tt_error *err)
{
    const tt_sink *k = &w->sinks[sink];
    sink_state *state = &w->states[sink];
    for (; state->next < end; state->next++) {
        const tt_metrics_record *r = &w->ring[state->next % RECORDS].r;
        const tt_status s = TT_PLUGIN_CALL(k->vt->log(k->self, r, err), err, "metrics", k->name);
        if (s != TT_OK && w->goes_on)
            say_failed(state, r->step, err);
        if (s != TT_OK)
            return w->goes_on ? TT_OK : s;
        say_works(state, k->name, r->step);
    }
    return TT_OK;
}

/* Under the lock: a sink that fails holds LATE records and no more. */
static void drop_old(tt_writer *w)
{
    w->oldest = w->tried;
    for (int i = 0; i < w->n_sinks; i++) {
        sink_state *s = &w->states[i];
        const int64_t least = TT_MAXV(w->tried - LATE, (int64_t)0);
        if (s->next < least) {
            s->lost += least - s->next;
            s->next = least;
        }
        w->oldest = TT_MIN(w->oldest, s->next);
    }
}

static void try_late(const tt_writer *w)
{
    tt_error ignored = {0};
    for (int i = 0; i < w->n_sinks && w->status == TT_OK; i++) {
        bring_up(w, i, w->tried, &ignored);
        if (w->states[i].fails)
            tt_log(TT_WARN, "metrics", "the sink %s has failed to the end; %lld records are lost",
                   w->sinks[i].name, (long long)(w->states[i].lost + w->tried - w->states[i].next));
    }
}

static void *writer_run(void *arg)
{
    tt_writer *w = arg;
    tt_error err = {0};
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->tried == w->put && !w->stop)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->tried == w->put)
            break;
        tt_status s = w->status;
        pthread_mutex_unlock(&w->lock);
        for (int i = 0; i < w->n_sinks && s == TT_OK; i++)
            s = bring_up(w, i, w->tried + 1, &err);
        pthread_mutex_lock(&w->lock);
        if (w->status == TT_OK && s != TT_OK) {
            w->status = s;
            w->err = err;
        }
        w->tried++;
        drop_old(w);
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    try_late(w);
    return NULL;
}

/* ---- the caller's side ---- */

static void writer_release(tt_writer *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->states);
    free(w->metrics);
    free(w);
}

tt_status tt_writer_new(const tt_sink *sinks, int n, bool goes_on, size_t most, tt_writer **out,
                        tt_error *err)
{
    tt_writer *w = calloc(1, sizeof *w);
    sink_state *states = calloc((size_t)n + 1, sizeof *states);
    tt_metric *metrics = calloc(RECORDS * most, sizeof *metrics);
    if (!w || !states || !metrics) {
        free(w);
        free(states);
        free(metrics);
        return TT_FAIL(err, TT_ENOMEM, "out of memory for metrics");
    }
    w->goes_on = goes_on;
    w->states = states;
    w->most = most;
    w->metrics = metrics;
    for (size_t i = 0; i < RECORDS; i++)
        w->ring[i].metrics = metrics + i * most;
    w->sinks = sinks;
    w->n_sinks = n;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    const int rc = tt_thread_start(&w->thread, writer_run, w);
    if (rc) {
        writer_release(w);
        return TT_FAIL(err, TT_ENOMEM, "cannot start the metrics thread: %s", strerror(rc));
    }
    *out = w;
    return TT_OK;
}

/* Must be called with the lock held. */
static tt_status outcome(const tt_writer *w, tt_error *err)
{
    if (w->status != TT_OK)
        *err = w->err;
    return w->status;
}

tt_status tt_writer_log(tt_writer *w, const tt_metrics_record *r, tt_error *err)
{
    if (r->n_metrics > w->most)
        return TT_FAIL(err, TT_EINTERNAL, "a record has %zu metrics, at most %zu are allowed",
                       r->n_metrics, w->most);
    pthread_mutex_lock(&w->lock);
    while (w->put - w->oldest == RECORDS)
        pthread_cond_wait(&w->changed, &w->lock);
    entry *e = &w->ring[w->put % RECORDS];
    memcpy(e->metrics, r->metrics, r->n_metrics * sizeof *e->metrics);
    e->r = *r;
    e->r.metrics = e->metrics;
    w->put++;
    pthread_cond_broadcast(&w->changed);
    const tt_status s = outcome(w, err);
    pthread_mutex_unlock(&w->lock);
    return s;
}

tt_status tt_writer_finish(tt_writer *w, tt_error *err)
{
    pthread_mutex_lock(&w->lock);
    while (w->tried < w->put)
        pthread_cond_wait(&w->changed, &w->lock);
    const tt_status s = outcome(w, err);
    pthread_mutex_unlock(&w->lock);
    return s;
}

void tt_writer_forget(tt_writer *w)
{
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < w->n_sinks; i++) {
        w->states[i].lost += w->tried - w->states[i].next;
        w->states[i].next = w->tried;
    }
    w->oldest = w->tried;
    pthread_mutex_unlock(&w->lock);
}

void tt_writer_free(tt_writer *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    writer_release(w);
}
