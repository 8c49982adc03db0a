/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread.h"
#include "corpus/cache.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Turns documents, or parts of long ones, into tokens, block by block. One thread fills the blocks
 * of a ring, and workers take them in order. The worker that finishes the oldest block writes it
 * and the finished ones after it. So the output and the error are the same for any number of
 * threads. */

enum { FREE, FULL, DONE };

struct tt_encoder {
    tt_encoder_opts o;
    tt_text_block *ring;
    int64_t n_blocks, filled, taken, written; /* block k is ring[k % n_blocks] */
    bool writing, closed, failed;
    tt_error err; /* of the block that failed first in order */
    pthread_t *threads;
    int n_threads;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* Grows an array to hold n elements. array: the address of the pointer to it; it has room for *cap
 * elements of `width` bytes. */
static tt_status reserve(void *array, size_t *cap, size_t n, size_t width, tt_error *err)
{
    void *p;
    memcpy(&p, array, sizeof p);
    if (n <= *cap)
        return TT_OK;
    const size_t want = n > SIZE_MAX / 2 / width ? n : n + n / 2 + 64;
    p = want <= SIZE_MAX / width ? realloc(p, want * width) : NULL;
    if (!p)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu bytes of text and tokens",
                       want <= SIZE_MAX / width ? want * width : SIZE_MAX);
    memcpy(array, &p, sizeof p);
    *cap = want;
    return TT_OK;
}

tt_status tt_text_block_add(tt_text_block *b, const char *text, size_t n, const tt_text_part *part,
                            tt_error *err)
{
    TT_TRY(reserve(&b->text, &b->cap_text, b->n_text + n, 1, err));
    TT_TRY(reserve(&b->parts, &b->cap_parts, b->n_parts + 1, sizeof *b->parts, err));
    memcpy(b->text + b->n_text, text, n);
    b->n_text += n;
    b->parts[b->n_parts] = *part;
    b->parts[b->n_parts++].end = b->n_text;
    return TT_OK;
}

/* Appends n ids to the tokens of a block that has room for them. */
static void encoder_put(tt_text_block *b, int width, const int32_t *ids, size_t n)
{
    unsigned char *p = b->tokens + b->n_tokens * width;
    if (width == 1) {
        for (size_t i = 0; i < n; i++)
            p[i] = (unsigned char)ids[i];
    } else if (width == 2) {
        for (size_t i = 0; i < n; i++) {
            p[2 * i] = (unsigned char)ids[i];
            p[2 * i + 1] = (unsigned char)(ids[i] >> 8);
        }
    } else {
        for (size_t i = 0; i < 4 * n; i++)
            p[i] = (unsigned char)((uint32_t)ids[i / 4] >> 8 * (i % 4));
    }
    b->n_tokens += (int64_t)n;
}

static tt_status encode_part(const tt_encoder *e, tt_text_block *b, size_t k, tt_error *err)
{
    const tt_tokenizer_info *info = &e->o.info;
    const tt_text_part *part = &b->parts[k];
    const size_t from = k ? b->parts[k - 1].end : 0;
    b->ids.n = 0;
    TT_TRY(TT_PLUGIN_CALL(
        e->o.tokenizer->encode(e->o.tokenizer_self, b->text + from, part->end - from, &b->ids, err),
        err, "tokenizer", NULL));
    for (size_t i = 0; i < b->ids.n; i++)
        if (b->ids.ids[i] < 0 || b->ids.ids[i] >= info->vocab_size)
            return TT_FAIL(err, TT_EINVAL,
                           "the tokenizer gave id %d, outside its own vocabulary of %lld",
                           b->ids.ids[i], (long long)info->vocab_size);
    const size_t most = (size_t)b->n_tokens + b->ids.n + 2;
    TT_TRY(reserve(&b->tokens, &b->cap_tokens, most, (size_t)e->o.width, err));
    if (part->first)
        b->starts[b->n_starts++] = b->n_tokens;
    encoder_put(b, e->o.width, &info->bos, part->first && info->bos >= 0);
    encoder_put(b, e->o.width, b->ids.ids, b->ids.n);
    encoder_put(b, e->o.width, &info->eos, part->last && info->eos >= 0);
    return TT_OK;
}

static void encoder_run(const tt_encoder *e, tt_text_block *b)
{
    b->n_tokens = 0;
    b->n_starts = 0;
    b->err.code = reserve(&b->starts, &b->cap_starts, b->n_parts, sizeof *b->starts, &b->err);
    for (size_t k = 0; b->err.code == TT_OK && k < b->n_parts; k++) {
        const tt_text_part *it = &b->parts[k];
        b->err.code = encode_part(e, b, k, &b->err);
        if (b->err.code != TT_OK)
            tt_error_context(&b->err, "dataloader.path: %s: document %lld",
                             e->o.files->items[it->file], (long long)it->number);
    }
}

/* Writes the finished blocks that are next in order. Called and left with the lock held. */
static void flush(tt_encoder *e)
{
    if (e->writing)
        return; /* the thread that writes will see this block, too */
    e->writing = true;
    while (!e->failed && e->written < e->filled &&
           e->ring[e->written % e->n_blocks].state == DONE) {
        tt_text_block *b = &e->ring[e->written % e->n_blocks];
        pthread_mutex_unlock(&e->lock);
        if (b->err.code == TT_OK)
            b->err.code = e->o.write(e->o.user, b, &b->err);
        pthread_mutex_lock(&e->lock);
        if (b->err.code != TT_OK) {
            e->failed = true;
            e->err = b->err;
        }
        b->state = FREE;
        e->written++;
        pthread_cond_broadcast(&e->changed);
    }
    e->writing = false;
}

static void *worker(void *arg)
{
    tt_encoder *e = arg;
    pthread_mutex_lock(&e->lock);
    while (!e->failed && !(e->closed && e->taken == e->filled)) {
        if (e->taken == e->filled) {
            pthread_cond_wait(&e->changed, &e->lock);
            continue;
        }
        tt_text_block *b = &e->ring[e->taken++ % e->n_blocks];
        pthread_mutex_unlock(&e->lock);
        encoder_run(e, b);
        pthread_mutex_lock(&e->lock);
        b->state = DONE;
        flush(e);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static void encoder_release(tt_encoder *e)
{
    for (int64_t i = 0; i < e->n_blocks; i++) {
        tt_text_block *b = &e->ring[i];
        free(b->text);
        free(b->parts);
        free(b->tokens);
        free(b->starts);
        tt_ids_free(&b->ids);
    }
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e->ring);
    free(e->threads);
    free(e);
}

/* If a thread cannot be started, fewer threads do the work. */
static void encoder_start(tt_encoder *e)
{
    while (e->n_threads < e->o.threads &&
           tt_thread_start(&e->threads[e->n_threads], worker, e) == 0)
        e->n_threads++;
}

tt_status tt_encoder_new(const tt_encoder_opts *o, tt_encoder **out, tt_error *err)
{
    tt_encoder *e = calloc(1, sizeof *e);
    const int64_t n = o->threads ? 2 * (int64_t)o->threads + 1 : 1;
    if (e) {
        e->ring = calloc((size_t)n, sizeof *e->ring);
        e->threads = calloc((size_t)o->threads + 1, sizeof *e->threads);
    }
    if (!e || !e->ring || !e->threads) {
        if (e) {
            free(e->ring);
            free(e->threads);
        }
        free(e);
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a ring of %lld blocks", (long long)n);
    }
    e->o = *o;
    e->n_blocks = n;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    encoder_start(e);
    *out = e;
    return TT_OK;
}

static tt_status failure(const tt_encoder *e, tt_error *err)
{
    return TT_FAIL(err, e->err.code, "%s", e->err.text);
}

tt_status tt_encoder_block(tt_encoder *e, tt_text_block **out, tt_error *err)
{
    const size_t keep = (size_t)8 << 20; /* free the buffers that a very long document has grown */
    tt_text_block *b = &e->ring[e->filled % e->n_blocks];
    pthread_mutex_lock(&e->lock);
    while (!e->failed && b->state != FREE)
        pthread_cond_wait(&e->changed, &e->lock);
    const bool failed = e->failed;
    pthread_mutex_unlock(&e->lock);
    if (failed)
        return failure(e, err);
    b->n_text = b->n_parts = 0;
    b->at = (tt_build_point){0};
    b->err = (tt_error){0};
    if (b->cap_text > keep) {
        free(b->text);
        free(b->tokens);
        tt_ids_free(&b->ids);
        b->text = NULL;
        b->tokens = NULL;
        b->cap_text = b->cap_tokens = 0;
    }
    *out = b;
    return TT_OK;
}

tt_status tt_encoder_submit(tt_encoder *e, tt_error *err)
{
    tt_text_block *b = &e->ring[e->filled % e->n_blocks];
    if (e->n_threads == 0)
        encoder_run(e, b);
    pthread_mutex_lock(&e->lock);
    b->state = e->n_threads ? FULL : DONE;
    e->filled++;
    if (e->n_threads == 0)
        flush(e);
    pthread_cond_broadcast(&e->changed);
    const bool failed = e->failed;
    pthread_mutex_unlock(&e->lock);
    return failed ? failure(e, err) : TT_OK;
}

tt_status tt_encoder_finish(tt_encoder *e, tt_error *err)
{
    pthread_mutex_lock(&e->lock);
    e->closed = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->n_threads; i++)
        pthread_join(e->threads[i], NULL);
    const tt_status s = e->failed ? failure(e, err) : TT_OK;
    encoder_release(e);
    return s;
}
