/* SPDX-License-Identifier: Apache-2.0 */
#include "hf.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* hf: tokenizer.json, byte-level BPE. Encoding changes nothing but a cache of words. Each call in
 * progress has a cache of its own, taken from a pool, so any number of threads may encode. */

/* A word encoded before: one cache line. */
typedef struct entry {
    uint32_t hash; /* never 0 in a used entry */
    uint8_t n_bytes, n_ids;
    uint8_t bytes[26];
    int32_t ids[8];
} entry;
#define CACHE_WORDS ((size_t)1 << 15) /* 2 MiB */

typedef struct work {
    entry *cache;
    hf_bpe_room room;
    hf_bytes text; /* normalized */
    hf_matcher *matchers[HF_MAX_SPLITS];
    tt_ids *out;
    hf_word_fn each; /* if set, it is called with each word, and nothing is encoded */
    void *each_arg;
    tt_error *err;
} work;

/* The work structs that no call uses. Each thread starts to look at a place of its own, so that
 * threads do not compete for one, and each finds its cache warm. */
#define POOL_PLACES 64
typedef struct hf_pool {
    _Atomic(work *) at[POOL_PLACES];
} pool;

/* Derived from the address of this thread's stack: different for threads that run at the same time,
 * which is enough. */
static unsigned place_of_thread(void)
{
    char here;
    const uint64_t h = (uint64_t)((uintptr_t)&here >> 16) * 0x9e3779b97f4a7c15u;
    return (unsigned)(h >> 58);
}

static void work_free(work *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < HF_MAX_SPLITS; i++)
        hf_matcher_free(w->matchers[i]);
    hf_bpe_room_release(&w->room);
    free(w->text.s);
    free(w->cache);
    free(w);
}

static tt_status hf_take_work(hf_tokenizer *t, work **out, tt_error *err)
{
    const unsigned place = place_of_thread();
    work *w = NULL;
    for (unsigned i = 0; !w && i < POOL_PLACES; i++) {
        _Atomic(work *) *at = &t->pool->at[(place + i) % POOL_PLACES];
        if (atomic_load_explicit(at, memory_order_relaxed))
            w = atomic_exchange(at, NULL);
    }
    if (w) {
        *out = w;
        return TT_OK;
    }
    w = calloc(1, sizeof *w);
    if (w)
        w->cache = calloc(CACHE_WORDS, sizeof *w->cache);
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
static void give_back(hf_tokenizer *t, work *w)
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
        work *none = NULL;
        if (atomic_compare_exchange_strong(&t->pool->at[(place + i) % POOL_PLACES], &none, w))
            w = NULL;
    }
    work_free(w); /* more calls at once than the pool has places */
}

static inline tt_status hf_put(work *w, int32_t id)
{
    if (w->out->n < w->out->cap) {
        w->out->ids[w->out->n++] = id;
        return TT_OK;
    }
    return tt_ids_push(w->out, id, w->err);
}

static tt_status encode_uncached(const hf_tokenizer *t, work *w, const uint8_t *s, size_t n)
{
    const int32_t whole = t->vocab.ignore_merges ? hf_vocab_word(&t->vocab, s, n) : -1;
    return whole >= 0 ? hf_put(w, whole) : hf_bpe(&t->vocab, &w->room, s, n, w->out, w->err);
}

static tt_status encode_word(const hf_tokenizer *t, work *w, const uint8_t *s, size_t n)
{
    if (w->each)
        return w->each(w->each_arg, s, n, w->err);
    if (n > sizeof w->cache->bytes)
        return encode_uncached(t, w, s, n);
    const uint64_t h = hf_hash(s, n);
    const uint32_t tag = (uint32_t)(h >> 32) | 1u;
    entry *e = &w->cache[h & (CACHE_WORDS - 1)];
    if (e->hash == tag && e->n_bytes == n && memcmp(e->bytes, s, n) == 0) {
        for (unsigned i = 0; i < e->n_ids; i++)
            TT_TRY(hf_put(w, e->ids[i]));
        return TT_OK;
    }
    const size_t before = w->out->n;
    TT_TRY(encode_uncached(t, w, s, n));
    const size_t m = w->out->n - before;
    if (m <= TT_COUNT(e->ids)) {
        e->hash = tag;
        e->n_bytes = (uint8_t)n;
        e->n_ids = (uint8_t)m;
        memcpy(e->bytes, s, n);
        memcpy(e->ids, w->out->ids + before, m * sizeof *e->ids);
    }
    return TT_OK;
}

/* Finds the next match of a split in s[from, n): *begin == n if there is none. */
static tt_status hf_find_match(const hf_tokenizer *t, work *w, size_t k, const uint8_t *s, size_t n,
                               size_t from, size_t *begin, size_t *end)
{
    const hf_split *split = &t->splits[k];
    if (split->regex)
        return hf_regex_find(split->regex, w->matchers[k], s, n, from, begin, end, w->err);
    for (size_t i = from; i < n;) {
        const size_t m = split->scan(t->flags, s + i, s + n);
        if (m) {
            *begin = i;
            *end = i + m;
            return TT_OK;
        }
        unsigned bytes;
        hf_decode(s + i, &bytes);
        i += bytes;
    }
    *begin = *end = n;
    return TT_OK;
}

static tt_status split(const hf_tokenizer *t, work *w, size_t k, const uint8_t *s, size_t n,
                       bool prefixed);

/* add_prefix_space: puts a space before a piece that does not begin with one. */
static tt_status split_prefixed(const hf_tokenizer *t, work *w, size_t k, const uint8_t *s,
                                size_t n)
{
    hf_bytes copy = {0};
    tt_status status = hf_bytes_add(&copy, " ", 1, w->err);
    if (status == TT_OK)
        status = hf_bytes_add(&copy, s, n, w->err);
    if (status == TT_OK)
        status = split(t, w, k, copy.s, copy.n, true);
    free(copy.s);
    return status;
}

/* Applies split k and those after it, then BPE. The recursion is n_splits deep. */
static tt_status split(const hf_tokenizer *t, work *w, size_t k, const uint8_t *s, size_t n,
                       bool prefixed)
{
    const bool prefix = k < t->n_splits ? t->splits[k].prefix_space : t->prefix_space;
    if (n == 0)
        return TT_OK;
    if (prefix && !prefixed && s[0] != ' ')
        return split_prefixed(t, w, k, s, n);
    if (k == t->n_splits)
        return encode_word(t, w, s, n);
    const bool last = k + 1 == t->n_splits && !t->prefix_space;
    for (size_t at = 0; at < n;) {
        size_t begin, end;
        TT_TRY(hf_find_match(t, w, k, s, n, at, &begin, &end));
        if (begin > at && t->splits[k].keep_gaps)
            TT_TRY(split(t, w, k + 1, s + at, begin - at, false));
        if (end > begin && t->splits[k].keep_matches)
            TT_TRY(last ? encode_word(t, w, s + begin, end - begin)
                        : split(t, w, k + 1, s + begin, end - begin, false));
        at = end;
    }
    return TT_OK;
}

/* Handles the text between added tokens of the second kind: it is normalized. */
static tt_status encode_normal(const hf_tokenizer *t, work *w, const uint8_t *s, size_t n)
{
    size_t search = 0, begin, end;
    int32_t which;
    for (size_t at = 0;; at = end) {
        hf_added_find(t, &t->normalized, s, n, at, &search, &begin, &end, &which);
        if (begin > at)
            TT_TRY(split(t, w, 0, s + at, begin - at, false));
        if (which < 0)
            return TT_OK;
        TT_TRY(hf_put(w, t->added[which].id));
    }
}

static tt_status encode_piece(const hf_tokenizer *t, work *w, const uint8_t *s, size_t n)
{
    if (!t->nfc || hf_nfc_stable(t->flags, s, n))
        return encode_normal(t, w, s, n);
    w->text.n = 0;
    TT_TRY(hf_nfc(t->flags, s, n, &w->text, w->err));
    return encode_normal(t, w, w->text.s, w->text.n);
}

/* Encodes valid UTF-8, which may contain added tokens. */
static tt_status encode_text(const hf_tokenizer *t, work *w, const uint8_t *s, size_t n)
{
    size_t search = 0, begin, end;
    int32_t which;
    for (size_t at = 0;; at = end) {
        hf_added_find(t, &t->raw, s, n, at, &search, &begin, &end, &which);
        if (begin > at)
            TT_TRY(encode_piece(t, w, s + at, begin - at));
        if (which < 0)
            return TT_OK;
        TT_TRY(hf_put(w, t->added[which].id));
    }
}

/* Bytes that are not UTF-8 are words of one byte each: nothing is lost and nothing is rejected. */
static tt_status encode_bytes(const hf_tokenizer *t, work *w, const uint8_t *s, size_t n)
{
    for (size_t at = 0; at < n; at++) {
        const size_t valid = hf_utf8_valid(s + at, n - at);
        TT_TRY(encode_text(t, w, s + at, valid));
        at += valid;
        if (at < n && !w->each)
            TT_TRY(hf_put(w, t->vocab.byte_ids[s[at]]));
    }
    return TT_OK;
}

static tt_status hf_encode(void *self, const char *text, size_t n, tt_ids *out, tt_error *err)
{
    hf_tokenizer *t = self;
    const size_t before = out->n;
    work *w;
    TT_TRY(hf_take_work(t, &w, err));
    w->out = out;
    w->each = NULL;
    w->err = err;
    const tt_status s = encode_bytes(t, w, (const uint8_t *)text, n);
    if (s != TT_OK)
        out->n = before;
    give_back(t, w);
    return s;
}

tt_status hf_each_word(hf_tokenizer *t, const char *text, size_t n, hf_word_fn fn, void *arg,
                       tt_error *err)
{
    work *w;
    TT_TRY(hf_take_work(t, &w, err));
    w->each = fn;
    w->each_arg = arg;
    w->err = err;
    const tt_status s = encode_bytes(t, w, (const uint8_t *)text, n);
    give_back(t, w);
    return s;
}

/* Every known pattern splits between a newline and a letter after it, and unless the character
 * before the newline is a space, matching never looks past the newline. Other expressions may look
 * anywhere. */
static bool may_cut(const hf_tokenizer *t)
{
    if (t->prefix_space)
        return false;
    for (size_t i = 0; i < t->n_splits; i++)
        if (t->splits[i].regex || t->splits[i].prefix_space)
            return false;
    const bool sought = t->raw.n_nodes > 1 || t->normalized.n_nodes > 1;
    for (size_t i = 0; sought && i < t->n_added; i++) {
        const hf_bytes *text = &t->added[i].sought;
        if (t->added[i].lstrip || (text->n && memchr(text->s, '\n', text->n)))
            return false;
    }
    return true;
}

size_t hf_cut(void *self, const char *text, size_t n, size_t from)
{
    const hf_tokenizer *t = self;
    const char *p;
    if (!may_cut(t) || n < 3)
        return n;
    for (size_t at = from > 2 ? from - 1 : 1; at + 1 < n; at = (size_t)(p - text) + 1) {
        p = memchr(text + at, '\n', n - 1 - at);
        if (!p)
            break;
        const unsigned char before = (unsigned char)p[-1], letter = (unsigned char)p[1] | 0x20;
        if (before > 0x20 && before < 0x7f && letter >= 'a' && letter <= 'z')
            return (size_t)(p - text) + 1;
    }
    return n;
}

static size_t hf_decode_token(void *self, int32_t id, char *buf, size_t cap)
{
    const hf_tokenizer *t = self;
    if (id < 0 || (size_t)id >= t->vocab.n_ids)
        return 0;
    const hf_token *token = &t->vocab.tokens[id];
    const size_t n = token->special ? 0 : token->n < cap ? token->n : cap;
    if (n)
        memcpy(buf, t->vocab.bytes.s + token->at, n);
    return n;
}

static void info(void *self, tt_tokenizer_info *out)
{
    const hf_tokenizer *t = self;
    out->vocab_size = (int64_t)t->vocab.n_ids;
    out->bos = t->bos;
    out->eos = t->eos;
    out->pad = t->pad;
    memcpy(out->fingerprint, t->fingerprint, sizeof out->fingerprint);
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

static const tt_tokenizer_vt vt = {sizeof vt, open_hf,         hf_close, info,
                                   hf_encode, hf_decode_token, hf_cut,   hf_train};

static const tt_option options[] = {
    TT_OPTION_MORE(hf_options, path, TT_OPT_STRING, "null", 0, 0, NULL,
                   TT_OPT_NULLABLE | TT_OPT_PATH, NULL,
                   "tokenizer.json, its folder, or a tiktoken file; "
                   "tokenizer_config.json in the same folder names bos, eos and pad"),
    TT_OPTION_MORE(hf_options, bos_token, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "text of the token before a document; null = tokenizer_config.json's"),
    TT_OPTION_MORE(hf_options, eos_token, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "text of the token after a document; null = tokenizer_config.json's"),
    TT_OPTION_MORE(hf_options, pad_token, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "text of the padding token; null = tokenizer_config.json's"),
    TT_OPTION(hf_options, allow_special, TT_OPT_BOOL, "false", 0, 0,
              "read special tokens in texts as such, not as plain text"),
    TT_OPTION_MORE(hf_options, pattern, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "tiktoken file: how texts are cut into words: gpt2, r50k, p50k, cl100k, o200k, "
                   "llama3, qwen2, …, or the expression itself"),
    TT_OPTION_MORE(hf_options, special_tokens, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE,
                   NULL,
                   "tiktoken file: special tokens and their ids, {\"<|endoftext|>\": 100257}"),
};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_TOKENIZER, "hf", "Hugging Face tokenizer.json: byte-level BPE", hf_options,
                 options, &vt),
};

TT_PLUGIN("hf", "1.0", components);
