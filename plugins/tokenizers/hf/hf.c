/* SPDX-License-Identifier: Apache-2.0 */
#include "work.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* hf: tokenizer.json, tokenizer.model, tiktoken files, vocab.json and merges.txt. Encoding changes nothing but a cache of
 * words. Each call in progress has a cache of its own, taken from a pool, so any number of threads
 * may encode. */

/* The work structs that no call uses. Each thread starts to look at a place of its own, so that
 * threads do not compete for one, and each finds its cache warm. */
#define POOL_PLACES 64
typedef struct hf_pool {
    _Atomic(hf_work *) at[POOL_PLACES];
} pool;

/* Derived from the address of this thread's stack: different for threads that run at the same time,
 * which is enough. */
static unsigned place_of_thread(void)
{
    char here;
    const uint64_t h = (uint64_t)((uintptr_t)&here >> 16) * 0x9e3779b97f4a7c15u;
    return (unsigned)(h >> 58);
}

static void work_free(hf_work *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < HF_MAX_SPLITS; i++)
        hf_matcher_free(w->matchers[i]);
    hf_bpe_room_release(&w->room);
    for (size_t i = 0; i < HF_MAX_SPLITS; i++)
        free(w->pieces[i].s);
    hf_norm_room_release(&w->norms);
    free(w->nodes.nodes);
    free(w->text.s);
    free(w->cache);
    free(w);
}

static tt_status hf_take_work(hf_tokenizer *t, hf_work **out, tt_error *err)
{
    const unsigned place = place_of_thread();
    hf_work *w = NULL;
    for (unsigned i = 0; !w && i < POOL_PLACES; i++) {
        _Atomic(hf_work *) *at = &t->pool->at[(place + i) % POOL_PLACES];
        if (atomic_load_explicit(at, memory_order_relaxed))
            w = atomic_exchange(at, NULL);
    }
    if (w) {
        *out = w;
        return TT_OK;
    }
    w = calloc(1, sizeof *w);
    if (w)
        w->cache = calloc(HF_CACHE_WORDS, sizeof *w->cache);
    tt_status s = w && w->cache ? TT_OK : TT_FAIL(err, TT_ENOMEM, "out of memory to tokenize");
    for (size_t i = 0; s == TT_OK && i < t->n_splits; i++)
        if (t->splits[i].regex)
            s = hf_matcher_new(t->splits[i].regex, &w->matchers[i], err);
    if (s == TT_OK)
        *out = w;
    else
        work_free(w);
    return s;
}

/* Memory that only a giant document needed is released. */
static void give_back(hf_tokenizer *t, hf_work *w)
{
    enum { KEEP = 1 << 20 };
    if (w->room.cap > KEEP || w->room.cap_heap > KEEP)
        hf_bpe_room_release(&w->room);
    if (w->text.cap > KEEP) {
        free(w->text.s);
        w->text = (hf_bytes){0};
    }
    const unsigned place = place_of_thread();
    for (unsigned i = 0; w && i < POOL_PLACES; i++) {
        hf_work *none = NULL;
        if (atomic_compare_exchange_strong(&t->pool->at[(place + i) % POOL_PLACES], &none, w))
            w = NULL;
    }
    work_free(w); /* more calls at once than the pool has places */
}

/* A text with U+FFFD in the place of each byte that is not UTF-8. */
static tt_status mend(hf_bytes *out, const uint8_t *s, size_t n, tt_error *err)
{
    out->n = 0;
    for (size_t at = 0; at < n; at++) {
        const size_t valid = hf_utf8_valid(s + at, n - at);
        TT_TRY(hf_bytes_add(out, s + at, valid, err));
        at += valid;
        if (at < n)
            TT_TRY(hf_bytes_add(out, "\xef\xbf\xbd", 3, err));
    }
    return TT_OK;
}

/* Bytes that are not UTF-8 are words of one byte each in a byte-level model: nothing is lost and
 * nothing is rejected. Other models are made for characters, so they get U+FFFD, as sentencepiece
 * does it. */
static tt_status encode_bytes(const hf_tokenizer *t, hf_work *w, const uint8_t *s, size_t n)
{
    if (t->subword) {
        hf_bytes mended = {0};
        const bool valid = hf_utf8_valid(s, n) == n;
        tt_status status = valid ? TT_OK : mend(&mended, s, n, w->err);
        if (status == TT_OK)
            status = hf_encode_text(t, w, valid ? s : mended.s, valid ? n : mended.n);
        free(mended.s);
        return status;
    }
    for (size_t at = 0; at < n; at++) {
        const size_t valid = hf_utf8_valid(s + at, n - at);
        TT_TRY(hf_encode_text(t, w, s + at, valid));
        at += valid;
        if (at < n && !w->each)
            TT_TRY(hf_bpe(&t->vocab, &w->room, s + at, 1, w->out, w->err));
    }
    return TT_OK;
}

/* after: the text follows a special token. */
static tt_status encode(void *self, const char *text, size_t n, bool after, tt_ids *out,
                        tt_error *err)
{
    hf_tokenizer *t = self;
    const size_t before = out->n;
    hf_work *w;
    TT_TRY(hf_take_work(t, &w, err));
    w->out = out;
    w->each = NULL;
    w->after = after;
    w->err = err;
    const tt_status s = encode_bytes(t, w, (const uint8_t *)text, n);
    if (s != TT_OK)
        out->n = before;
    give_back(t, w);
    return s;
}

static tt_status hf_encode(void *self, const char *text, size_t n, tt_ids *out, tt_error *err)
{
    return encode(self, text, n, false, out, err);
}

tt_status hf_each_word(hf_tokenizer *t, const char *text, size_t n, hf_word_fn fn, void *arg,
                       tt_error *err)
{
    hf_work *w;
    TT_TRY(hf_take_work(t, &w, err));
    w->each = fn;
    w->after = false;
    w->each_arg = arg;
    w->err = err;
    const tt_status s = encode_bytes(t, w, (const uint8_t *)text, n);
    give_back(t, w);
    return s;
}

static tt_status hf_encode_after(void *self, const char *text, size_t n, tt_ids *out, tt_error *err)
{
    return encode(self, text, n, true, out, err);
}

static int special_token(void *self, size_t i, tt_special *out)
{
    const hf_tokenizer *t = self;
    if (i >= t->n_added)
        return 0;
    const hf_added *a = &t->added[i];
    out->text =
        (tt_text){a->special ? (const char *)a->content.s : "", a->special ? a->content.n : 0};
    out->id = a->id;
    out->strips =
        (a->lstrip ? TT_SPECIAL_STRIPS_LEFT : 0) | (a->rstrip ? TT_SPECIAL_STRIPS_RIGHT : 0);
    return 1;
}

static void info(void *self, tt_tokenizer_info *out)
{
    const hf_tokenizer *t = self;
    out->vocab_size = (int64_t)t->vocab.n_ids;
    out->bos = t->bos;
    out->eos = t->eos;
    out->pad = t->pad;
    memcpy(out->fingerprint, t->fingerprint, sizeof out->fingerprint);
    if (TT_HAS(out, tt_tokenizer_info, trims_begin))
        out->trims_begin = t->trims_begin;
    if (TT_HAS(out, tt_tokenizer_info, omits_bos))
        out->omits_bos = t->omits_bos;
    if (TT_HAS(out, tt_tokenizer_info, adds_eos))
        out->adds_eos = t->adds_eos;
}

void hf_close(void *self)
{
    hf_tokenizer *t = self;
    if (!t)
        return;
    if (t->pool) {
        for (unsigned i = 0; i < POOL_PLACES; i++)
            work_free(atomic_load(&t->pool->at[i]));
        free(t->pool);
    }
    hf_release(t);
    free(t);
}

hf_tokenizer *hf_new(void)
{
    hf_tokenizer *t = calloc(1, sizeof *t);
    if (t && !(t->pool = calloc(1, sizeof *t->pool))) {
        free(t);
        t = NULL;
    }
    return t;
}

static tt_status open_hf(const void *config, void **self, tt_error *err)
{
    hf_tokenizer *t = hf_new();
    if (!t)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a tokenizer");
    const tt_status s = hf_load(t, config, err);
    if (s == TT_OK)
        *self = t;
    else
        hf_close(t);
    return s;
}

static const tt_tokenizer_vt vt = {.struct_size = sizeof vt,
                                   .open = open_hf,
                                   .close = hf_close,
                                   .info = info,
                                   .encode = hf_encode,
                                   .decode = hf_decode_token,
                                   .cut = hf_cut,
                                   .train = hf_train,
                                   .decode_first = hf_decode_first,
                                   .special = special_token,
                                   .encode_after = hf_encode_after,
                                   .pieces = hf_pieces_of,
                                   .piece = hf_piece_of};

static const tt_option options[] = {
    TT_OPTION_MORE(
        hf_options, path, TT_OPT_STRING, "null", 0, 0, NULL,
        TT_OPT_NULLABLE | TT_OPT_PATH | TT_OPT_HUB, NULL,
        "tokenizer.json, tokenizer.model, vocab.json (with merges.txt) or a tiktoken file, "
        "or their folder; tokenizer_config.json and special_tokens_map.json in the same "
        "folder name bos, eos, pad and, except for tokenizer.json, added tokens"),
    TT_OPTION_MORE(
        hf_options, bos_token, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
        "text of the token before a document; null = tokenizer_config.json's, and before "
        "a document only where add_bos_token, or without that key tokenizer.json's "
        "post_processor, puts it"),
    TT_OPTION_MORE(hf_options, eos_token, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "text of the token after a document; null = tokenizer_config.json's"),
    TT_OPTION_MORE(hf_options, pad_token, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "text of the padding token; null = tokenizer_config.json's"),
    TT_OPTION(hf_options, allow_special, TT_OPT_BOOL, "false", 0, 0,
              "read special tokens in texts as such, not as plain text"),
    TT_OPTION_MORE(hf_options, pattern, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "tiktoken file: how texts are cut into words: gpt2, r50k, p50k, cl100k, o200k, "
                   "llama3, qwen2, kimi, …, or the expression itself; null = by the "
                   "tokenizer_class of tokenizer_config.json, if it is a known one"),
    TT_OPTION_MORE(hf_options, special_tokens, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE,
                   NULL,
                   "tiktoken file: special tokens and their ids, {\"<|endoftext|>\": 100257}"),
};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_TOKENIZER, "hf", "Hugging Face tokenizer.json: byte-level BPE", hf_options,
                 options, &vt),
};

TT_PLUGIN("hf", "1.0", components);
