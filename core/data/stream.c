/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread.h"
#include "data/data.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* One step of this rank: its micro-batches, or the error of reading them. */
typedef struct {
    tt_batch *micro; /* [micro_batches] */
    int64_t epoch;
    tt_status status;
    tt_error err;
} slot;

/* A ring of depth + 1 slots: the consumer uses one, and the others may be filled ahead. Steps count
 * from 0 in the stream; step k is in slot k % n_slots. `filled` steps are ready, and the consumer
 * has taken `taken` of them, of which it still reads the last one. */
struct tt_stream {
    tt_stream_opts o;
    slot *slots;
    int64_t n_slots;
    tt_batch *batches; /* [n_slots * micro_batches] */
    /* [n_slots * micro_batches] of ids, labels, pos, seg [local * seq_len] each, then the loader's
     * own inputs */
    int32_t *tokens;
    int64_t filled, taken;
    atomic_bool stop; /* also read between samples, without the lock */
    bool threaded, failed;
    tt_error failure; /* every call after a failed one returns this error again */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* Kernels use the ids of a plugin or a file as indices into tables, so every one is checked. */
static tt_status check_sample(const tt_stream_opts *o, const tt_sample *s, tt_error *err)
{
    for (int64_t t = 0; t < o->seq_len; t++) {
        const bool bad_id = s->ids[t] < 0 || s->ids[t] >= o->vocab_size;
        if (bad_id || s->labels[t] >= o->vocab_size)
            return TT_FAIL(
                err, TT_EINVAL,
                "%s %d at position %lld is outside the model's vocabulary of %lld; use the "
                "tokenizer the data was made with, or a larger model.args.vocab_size",
                bad_id ? "token id" : "label", bad_id ? s->ids[t] : s->labels[t], (long long)t,
                (long long)o->vocab_size);
        if (s->pos[t] < 0 || s->seg[t] < 0)
            return TT_FAIL(err, TT_EINVAL, "the dataloader gave a negative %s at position %lld",
                           s->pos[t] < 0 ? "position" : "segment", (long long)t);
        if (o->one_segment && (s->pos[t] != t || s->seg[t] != s->seg[0]))
            return TT_FAIL(
                err, TT_EINVAL,
                "the dataloader promised samples of one segment, and gave position %d of "
                "segment %d at %lld; it is a fault of the plugin",
                s->pos[t], s->seg[t], (long long)t);
    }
    return TT_OK;
}

/* The weights that the core gives by the number of counted labels of a document, n: 1/n or 1/sqrt(n). A
 * document is a run of one segment. */
static void weigh_documents(const tt_stream_opts *o, const tt_sample *s, float *w)
{
    const bool root = !strcmp(o->weights, TT_INPUT_ROOT_WEIGHTS);
    for (int64_t begin = 0, end; begin < o->seq_len; begin = end) {
        int64_t n = 0;
        for (end = begin; end < o->seq_len && s->seg[end] == s->seg[begin]; end++)
            n += s->labels[end] >= 0;
        const double x = n ? 1.0 / (root ? sqrt((double)n) : (double)n) : 0;
        for (int64_t t = begin; t < end; t++)
            w[t] = (float)x;
    }
}

/* Adds the weights of the tokens that count, in their order. */
static tt_status add_weights(const tt_stream_opts *o, const tt_sample *s, tt_batch *b,
                             tt_error *err)
{
    const int i = o->weights ? tt_inputs_find(o->inputs, o->weights) : -1;
    const bool one = i >= 0 && o->inputs->items[i].per_sample;
    if (i < 0) {
        for (int64_t t = 0; t < o->seq_len; t++)
            b->weight += s->labels[t] >= 0;
        return TT_OK;
    }
    if (i >= o->inputs->n_of_loader)
        weigh_documents(o, s, s->inputs[i]);
    for (int64_t t = 0; t < o->seq_len; t++) {
        const double w = (double)((const float *)s->inputs[i])[one ? 0 : t];
        if (s->labels[t] < 0)
            continue;
        if (!(w >= 0) || isinf(w))
            return TT_FAIL(err, TT_EINVAL,
                           "%s at position %lld is %g; a loss weight is a finite number of at "
                           "least 0",
                           o->weights, (long long)t, w);
        b->weight += w;
    }
    return TT_OK;
}

/* Reads sample `index` into sequence j of a micro-batch and numbers its segments after those of the
 * sequences before it. */
static tt_status read_sample(tt_stream *s, int64_t index, tt_batch *b, int64_t j, int32_t *seg_base,
                             tt_error *err)
{
    const int64_t T = s->o.seq_len;
    tt_sample x = {.struct_size = sizeof x,
                   .seq_len = T,
                   .ids = b->ids + j * T,
                   .labels = b->labels + j * T,
                   .pos = b->pos + j * T,
                   .seg = b->seg + j * T};
    for (int64_t t = 0; t < T; t++)
        x.pos[t] = (int32_t)t;
    memset(x.seg, 0, (size_t)T * sizeof *x.seg);
    void *own[TT_MAX_INPUTS];
    for (int i = 0; s->o.inputs && i < s->o.inputs->n; i++) {
        const int64_t n = s->o.inputs->items[i].per_sample ? 1 : T;
        own[i] = (int32_t *)b->more[i] + j * n;
        memset(own[i], 0, (size_t)n * sizeof(int32_t));
    }
    x.inputs = own;
    TT_TRY(TT_PLUGIN_CALL(s->o.loader->read(s->o.loader_self, index, &x, err), err, "dataloader",
                          s->o.loader_name));
    TT_TRY(check_sample(&s->o, &x, err));
    if (s->o.reference)
        memcpy(own[s->o.reference_input], s->o.reference + index * T, (size_t)T * sizeof(float));
    TT_TRY(add_weights(&s->o, &x, b, err));
    int32_t top = 0;
    for (int64_t t = 0; t < T; t++) {
        top = TT_MAXV(top, x.seg[t]);
        b->counted += x.labels[t] >= 0;
    }
    if (top >= INT32_MAX - *seg_base)
        return TT_FAIL(err, TT_EINVAL, "the dataloader gave segment %d, too large to number", top);
    for (int64_t t = 0; t < T; t++)
        x.seg[t] += *seg_base;
    *seg_base += top + 1;
    return TT_OK;
}

/* Fills sequence j for a sample after the last one: token 0 everywhere, and no label counts. */
static void pad_sample(const tt_stream *s, tt_batch *b, int64_t j, int32_t *seg_base)
{
    const int64_t T = s->o.seq_len;
    for (int64_t i = 0; i < T; i++) {
        b->ids[j * T + i] = 0;
        b->labels[j * T + i] = -100;
        b->pos[j * T + i] = (int32_t)i;
        b->seg[j * T + i] = *seg_base;
    }
    ++*seg_base;
    for (int i = 0; s->o.inputs && i < s->o.inputs->n; i++) {
        const int64_t n = s->o.inputs->items[i].per_sample ? 1 : T;
        memset((int32_t *)b->more[i] + j * n, 0, (size_t)n * sizeof(int32_t));
    }
}

/* *g: the first sample of step k of the global batch; *end: after its last one. */
static tt_status first_of_step(const tt_stream_opts *o, int64_t k, int64_t *g, int64_t *end,
                               tt_error *err)
{
    const tt_epochs e = {o->order.n_samples, o->global_batch};
    int64_t offset = 0;
    if (o->by_epoch) {
        TT_TRY(tt_epoch_sample(&e, o->first_sample, k, g, err));
        *end = *g + tt_epoch_rest(&e, *g);
        return TT_OK;
    }
    if (!tt_mul_i64(k, o->global_batch, &offset) || !tt_add_i64(offset, o->first_sample, g) ||
        !tt_add_i64(*g, o->global_batch, end))
        return TT_FAIL(err, TT_EINVAL, "the run is past 2^63 samples");
    return TT_OK;
}

static tt_status read_step(tt_stream *s, int64_t k, slot *out, tt_error *err)
{
    const tt_stream_opts *o = &s->o;
    int64_t g = 0, end = 0;
    TT_TRY(first_of_step(o, k, &g, &end, err));
    (void)tt_order_sample(&o->order, g, &out->epoch);
    g += o->data_rank * o->local * o->micro_batches;
    for (int64_t m = 0; m < o->micro_batches; m++) {
        tt_batch *b = &out->micro[m];
        int32_t seg_base = 0;
        b->counted = 0;
        b->weight = 0;
        b->first_token = (o->data_rank * o->micro_batches + m) * o->local * o->seq_len;
        for (int64_t j = 0; j < o->local; j++, g++) {
            if (atomic_load_explicit(&s->stop, memory_order_relaxed))
                return TT_OK; /* the stream ends; nothing will read this step */
            if (g >= end) {
                pad_sample(s, b, j, &seg_base);
                continue;
            }
            int64_t epoch;
            const int64_t index = tt_order_sample(&o->order, g, &epoch);
            if (read_sample(s, index, b, j, &seg_base, err) != TT_OK)
                return tt_error_context(err, "data: sample %lld of epoch %lld", (long long)index,
                                        (long long)epoch);
        }
    }
    return TT_OK;
}

static void stream_fill(tt_stream *s, int64_t k)
{
    slot *at = &s->slots[k % s->n_slots];
    at->err = (tt_error){0};
    at->status = read_step(s, k, at, &at->err);
}

static void *prefetch(void *arg)
{
    tt_stream *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop && (s->o.n_steps < 0 || s->filled < s->o.n_steps)) {
        /* slots in use: the steps ahead and the one that the consumer reads */
        if (s->filled - s->taken >= s->n_slots - (s->taken > 0)) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        const int64_t k = s->filled;
        pthread_mutex_unlock(&s->lock);
        stream_fill(s, k);
        pthread_mutex_lock(&s->lock);
        s->filled = k + 1;
        pthread_cond_broadcast(&s->changed);
        if (s->slots[k % s->n_slots].status != TT_OK)
            break;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static tt_status check_opts(const tt_stream_opts *o, tt_error *err)
{
    int64_t n = 0;
    const bool whole = tt_mul_i64(o->local, o->micro_batches, &n) &&
                       tt_mul_i64(n, o->data_world, &n) && n == o->global_batch;
    if (o->local < 1 || o->micro_batches < 1 || o->data_world < 1 || !whole)
        return TT_FAIL(
            err, TT_EINVAL,
            "a global batch of %lld samples is not %lld samples times %lld micro-batches "
            "times %d data ranks",
            (long long)o->global_batch, (long long)o->local, (long long)o->micro_batches,
            o->data_world);
    if (o->data_rank < 0 || o->data_rank >= o->data_world || o->seq_len < 1 ||
        o->seq_len > INT32_MAX || o->order.n_samples < 1 || o->first_sample < 0 ||
        o->vocab_size < 1 || o->depth < 0)
        return TT_FAIL(
            err, TT_EINVAL,
            "data stream: rank %d of %d, seq_len %lld, %lld samples per epoch, first sample "
            "%lld, vocabulary %lld, depth %d: out of range",
            o->data_rank, o->data_world, (long long)o->seq_len, (long long)o->order.n_samples,
            (long long)o->first_sample, (long long)o->vocab_size, o->depth);
    return TT_OK;
}

/* Places the arrays of a micro-batch one after the other from p on. */
static void lay_out(const tt_stream_opts *o, int64_t n_tokens, int32_t *p, tt_batch *out)
{
    *out = (tt_batch){.n_tokens = n_tokens,
                      .seq_len = o->seq_len,
                      .ids = p,
                      .labels = p + n_tokens,
                      .pos = p + 2 * n_tokens,
                      .seg = p + 3 * n_tokens,
                      .inputs = o->inputs};
    p += 4 * n_tokens;
    for (int i = 0; o->inputs && i < o->inputs->n; i++) {
        out->more[i] = p;
        p += o->inputs->items[i].per_sample ? o->local : n_tokens;
    }
}

/* Allocates all memory that the stream will use. */
static tt_status allocate(tt_stream *s, tt_error *err)
{
    const tt_stream_opts *o = &s->o;
    int64_t n_batches, n_tokens, plane, bytes;
    const int n_planes = 4 + (o->inputs ? o->inputs->n : 0);
    if (!tt_mul_i64(s->n_slots, o->micro_batches, &n_batches) ||
        !tt_mul_i64(o->local, o->seq_len, &n_tokens) || !tt_mul_i64(n_tokens, n_planes, &plane) ||
        !tt_mul_i64(plane, n_batches, &bytes) || !tt_mul_i64(bytes, sizeof(int32_t), &bytes))
        return TT_FAIL(err, TT_EINVAL, "a batch of %lld samples of %lld tokens is too large",
                       (long long)o->local, (long long)o->seq_len);
    s->slots = calloc((size_t)s->n_slots, sizeof *s->slots);
    s->batches = calloc((size_t)n_batches, sizeof *s->batches);
    s->tokens = malloc((size_t)bytes);
    if (!s->slots || !s->batches || !s->tokens)
        return TT_FAIL(err, TT_ENOMEM,
                       "out of memory for %lld bytes of batches (%lld steps of %lld)",
                       (long long)bytes, (long long)s->n_slots, (long long)(bytes / s->n_slots));
    for (int64_t i = 0; i < s->n_slots; i++)
        s->slots[i].micro = s->batches + i * o->micro_batches;
    for (int64_t i = 0; i < n_batches; i++)
        lay_out(o, n_tokens, s->tokens + i * plane, &s->batches[i]);
    return TT_OK;
}

static tt_status stream_start(tt_stream *s, tt_error *err)
{
    const int rc = tt_thread_start(&s->thread, prefetch, s);
    if (rc != 0)
        return TT_FAIL(err, TT_ENOMEM, "cannot start the data thread: %s", strerror(rc));
    s->threaded = true;
    return TT_OK;
}

tt_status tt_stream_new(const tt_stream_opts *o, tt_stream **out, tt_error *err)
{
    TT_TRY(check_opts(o, err));
    tt_stream *s = calloc(1, sizeof *s);
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a data stream");
    s->o = *o;
    s->n_slots = (int64_t)o->depth + 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    tt_status status = allocate(s, err);
    if (status == TT_OK && o->depth > 0)
        status = stream_start(s, err);
    if (status != TT_OK) {
        tt_stream_free(s);
        return status;
    }
    *out = s;
    return TT_OK;
}

tt_status tt_stream_next(tt_stream *s, const tt_batch **micro, int64_t *epoch, tt_error *err)
{
    if (s->failed)
        return TT_FAIL(err, s->failure.code, "%s", s->failure.text);
    const int64_t k = s->taken;
    if (s->o.n_steps >= 0 && k >= s->o.n_steps)
        return TT_FAIL(err, TT_EINVAL, "the data stream ended after %lld steps", (long long)k);
    if (!s->threaded) {
        stream_fill(s, k);
        s->taken = k + 1;
    } else {
        pthread_mutex_lock(&s->lock);
        while (s->filled <= k)
            pthread_cond_wait(&s->changed, &s->lock);
        s->taken = k + 1; /* frees the slot of step k - 1 */
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    const slot *at = &s->slots[k % s->n_slots];
    if (at->status != TT_OK) {
        s->failed = true;
        s->failure = at->err;
        s->failure.code = at->status;
        return TT_FAIL(err, at->status, "%s", at->err.text);
    }
    *micro = at->micro;
    if (epoch)
        *epoch = at->epoch;
    return TT_OK;
}

void tt_stream_free(tt_stream *s)
{
    if (!s)
        return;
    if (s->threaded) {
        pthread_mutex_lock(&s->lock);
        atomic_store(&s->stop, true);
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->slots);
    free(s->batches);
    free(s->tokens);
    free(s);
}
