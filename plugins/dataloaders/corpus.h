/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_CORPUS_H
#define TT_DATALOADERS_CORPUS_H
#include <stdbool.h>
#include <stdlib.h>
#include <ttrun/dataloader.h>

/* Documents as one stream of tokens in memory, in the smallest width the vocabulary needs. Sample i
 * is tokens [i*seq_len, i*seq_len + seq_len]: inputs all but the last, labels all but the first. */

typedef struct {
    void *tokens; /* [n_tokens] of `width` bytes: 1, 2 or 4 */
    size_t width, n_tokens, cap;
    int64_t *starts; /* [n_starts] first token of each document, ascending; kept for document_mask
                        only */
    size_t n_starts, cap_starts;
    bool document_mask;
    int64_t seq_len, n_samples;
} corpus;

static tt_tokenizer_info corpus_begin(corpus *c, const tt_dataloader_env *env, bool document_mask)
{
    tt_tokenizer_info info = {.struct_size = sizeof info, .bos = -1, .eos = -1, .pad = -1};
    env->tokenizer->info(env->tokenizer_self, &info);
    c->width = info.vocab_size <= 256 ? 1 : info.vocab_size <= 65536 ? 2 : 4;
    c->seq_len = env->seq_len;
    c->document_mask = document_mask;
    return info;
}

/* An array of `cap` elements grown to hold n; large ones grow by half. */
static tt_status reserve(void **p, size_t *cap, size_t n, size_t width, tt_error *err)
{
    if (n <= *cap)
        return TT_OK;
    const size_t want = n > SIZE_MAX / 2 / width ? n : n + n / 2 + 1024;
    void *grown = want <= SIZE_MAX / width ? realloc(*p, want * width) : NULL;
    if (!grown)
        return TT_FAIL(
            err, TT_ENOMEM,
            "out of memory for %zu tokens of text (%zu bytes, %zu held); use fewer files", want,
            want * width, *cap * width);
    *p = grown;
    *cap = want;
    return TT_OK;
}

static void put(corpus *c, size_t at, int32_t id)
{
    if (c->width == 1)
        ((uint8_t *)c->tokens)[at] = (uint8_t)id;
    else if (c->width == 2)
        ((uint16_t *)c->tokens)[at] = (uint16_t)id;
    else
        ((int32_t *)c->tokens)[at] = id;
}

static int32_t get(const corpus *c, size_t at)
{
    if (c->width == 1)
        return ((const uint8_t *)c->tokens)[at];
    if (c->width == 2)
        return ((const uint16_t *)c->tokens)[at];
    return ((const int32_t *)c->tokens)[at];
}

static tt_status add_document(corpus *c, const tt_tokenizer_info *info, const tt_ids *ids,
                              tt_error *err)
{
    TT_TRY(reserve(&c->tokens, &c->cap, c->n_tokens + ids->n + 2, c->width, err));
    if (c->document_mask) {
        void *starts = c->starts;
        const tt_status status =
            reserve(&starts, &c->cap_starts, c->n_starts + 1, sizeof *c->starts, err);
        c->starts = starts;
        TT_TRY(status);
        c->starts[c->n_starts++] = (int64_t)c->n_tokens;
    }
    if (info->bos >= 0)
        put(c, c->n_tokens++, info->bos);
    for (size_t i = 0; i < ids->n; i++) {
        if (ids->ids[i] < 0 || ids->ids[i] >= info->vocab_size)
            return TT_FAIL(err, TT_EINVAL,
                           "the tokenizer gave id %d, outside its own vocabulary of %lld",
                           ids->ids[i], (long long)info->vocab_size);
        put(c, c->n_tokens++, ids->ids[i]);
    }
    if (info->eos >= 0)
        put(c, c->n_tokens++, info->eos);
    return TT_OK;
}

/* Nothing more comes. */
static tt_status corpus_end(corpus *c, size_t n_files, tt_error *err)
{
    c->n_samples = c->n_tokens > 0 ? (int64_t)(c->n_tokens - 1) / c->seq_len : 0;
    if (c->n_samples < 1)
        return TT_FAIL(
            err, TT_EINVAL,
            "dataloader.path: %zu files give %zu tokens, and one sample of training.seq_len %lld "
            "takes %lld; add text or lower training.seq_len",
            n_files, c->n_tokens, (long long)c->seq_len, (long long)c->seq_len + 1);
    void *tight = realloc(c->tokens, c->n_tokens * c->width);
    if (tight)
        c->tokens = tight;
    return TT_OK;
}

static void corpus_close(void *self)
{
    corpus *c = self;
    if (!c)
        return;
    free(c->tokens);
    free(c->starts);
    free(c);
}

static int64_t corpus_samples(void *self)
{
    return ((const corpus *)self)->n_samples;
}

/* pos restarts and seg grows at each document that begins inside the sample. */
static void mark_documents(const corpus *c, size_t begin, tt_sample *out)
{
    size_t lo = 0, hi = c->n_starts; /* the first document that starts after `begin` */
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if ((size_t)c->starts[mid] <= begin)
            lo = mid + 1;
        else
            hi = mid;
    }
    int32_t seg = 0, pos = 0;
    for (int64_t t = 0; t < c->seq_len; t++, pos++) {
        if (lo < c->n_starts && (size_t)c->starts[lo] == begin + (size_t)t) {
            lo++;
            seg++;
            pos = 0;
        }
        out->pos[t] = pos;
        out->seg[t] = seg;
    }
}

static tt_status corpus_read(void *self, int64_t i, tt_sample *out, tt_error *err)
{
    const corpus *c = self;
    if (i < 0 || i >= c->n_samples || out->seq_len != c->seq_len)
        return TT_FAIL(err, TT_EINTERNAL,
                       "loader of text: sample %lld of %lld, %lld tokens, was asked for",
                       (long long)i, (long long)c->n_samples, (long long)out->seq_len);
    const size_t begin = (size_t)(i * c->seq_len);
    for (int64_t t = 0; t < c->seq_len; t++) {
        out->ids[t] = get(c, begin + (size_t)t);
        out->labels[t] = get(c, begin + (size_t)t + 1);
    }
    if (c->document_mask)
        mark_documents(c, begin, out);
    return TT_OK;
}
#endif
