/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/writer.h"
#include "base/base.h"
#include "base/thread.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS 64 /* at most this many are unwritten */

typedef struct entry {
    tt_metrics_record r;
    tt_metric *metrics; /* room for tt_writer.most */
} entry;

struct tt_writer {
    const tt_sink *sinks;
    int n_sinks;
    bool goes_on, *failed; /* failed: by sink; the thread's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t put, written; /* records; number i lies in ring[i % RECORDS] */
    bool stop;
    size_t most;
    tt_metric *metrics; /* of all entries */
    tt_status status;   /* of the first record that failed; later ones are not written */
    tt_error err;
    entry ring[RECORDS];
};

static tt_status write_one(const tt_writer *w, const tt_metrics_record *r, tt_error *err)
{
    for (int i = 0; i < w->n_sinks; i++) {
        const tt_sink *k = &w->sinks[i];
        if (w->failed[i])
            continue;
        const tt_status s = TT_PLUGIN_CALL(k->vt->log(k->self, r, err), err, "metrics", k->name);
        if (s != TT_OK && !w->goes_on)
            return s;
        w->failed[i] = s != TT_OK;
        if (s != TT_OK)
            tt_log(TT_WARN, "metrics",
                   "step %lld: %s; it gets no more records, and training goes on "
                   "(metrics.on_error)",
                   (long long)r->step, err->text);
    }
    return TT_OK;
}

static void *writer_run(void *arg)
{
    tt_writer *w = arg;
    tt_error err = {0};
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->written == w->put && !w->stop)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->written == w->put)
            break;
        const tt_metrics_record *r = &w->ring[w->written % RECORDS].r;
        tt_status s = w->status;
        pthread_mutex_unlock(&w->lock);
        if (s == TT_OK)
            s = write_one(w, r, &err);
        pthread_mutex_lock(&w->lock);
        if (w->status == TT_OK && s != TT_OK) {
            w->status = s;
            w->err = err;
        }
        w->written++;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void writer_release(tt_writer *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->failed);
    free(w->metrics);
    free(w);
}

tt_status tt_writer_new(const tt_sink *sinks, int n, bool goes_on, size_t most, tt_writer **out,
                        tt_error *err)
{
    tt_writer *w = calloc(1, sizeof *w);
    bool *failed = calloc((size_t)n + 1, sizeof *failed);
    tt_metric *metrics = calloc(RECORDS * most, sizeof *metrics);
    if (!w || !failed || !metrics) {
        free(w);
        free(failed);
        free(metrics);
        return TT_FAIL(err, TT_ENOMEM, "out of memory for metrics");
    }
    w->goes_on = goes_on;
    w->failed = failed;
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
    while (w->put - w->written == RECORDS)
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
    while (w->written < w->put)
        pthread_cond_wait(&w->changed, &w->lock);
    const tt_status s = outcome(w, err);
    pthread_mutex_unlock(&w->lock);
    return s;
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
