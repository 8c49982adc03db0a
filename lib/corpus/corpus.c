/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pool.h"
#include "corpus/cache.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens text as tokens: from the cache, or tokenised into the cache, or, without one, into
 * memory. */

static const int64_t block_bytes = (int64_t)1 << 20; /* text that a thread tokenises at a time */
/* Smaller texts are tokenised at each start: that takes some ten milliseconds, so a cache would
 * gain nothing. */
static const int64_t cached_from = (int64_t)1 << 20;

#define LONG_TIMES 1000
static const int64_t long_text = (int64_t)16 << 20; /* a shorter text does no harm */

struct tt_documents {
    const tt_dataloader_env *wanted; /* its `document` gets the texts; NULL: they become tokens */
    tt_encoder *encoder;
    tt_text_block *block; /* the one that the reader fills */
    const tt_text_key *key;
    tt_build_point from; /* an earlier run's progress: skip the documents before it */
    int64_t file, document, part, done_bytes; /* part: bytes of this document in blocks */
    int64_t submitted;                        /* bytes of text */
    bool told_long;
    int64_t n_strange; /* documents that are no text; the first of them: */
    int64_t strange_file, strange_document;
    size_t strange_at; /* byte of the document */
};

typedef struct {
    const tt_corpus_opts *o;
    tt_tokenizer_info info;
    tt_text_key key;
    char *folder; /* of the cache, NULL = no cache */
    tt_str note;  /* why there is no cache */
    int width, threads;
} corpus;

static const char *packing_of(const tt_corpus_opts *o)
{
    return TT_HAS(o, tt_corpus_opts, packing) && o->packing ? o->packing : "none";
}

/* Whether something will read the index of documents. */
static bool needs_index(const tt_corpus_opts *o)
{
    return o->document_mask || strcmp(packing_of(o), "none") != 0;
}

/* A compressed file, or a table that repeats a value, may hold more than whoever gave it knows. */
static void tell_long(tt_documents *d)
{
    const int64_t files = d->key->text_bytes;
    if (d->told_long || d->submitted < long_text || d->submitted / LONG_TIMES < files)
        return;
    d->told_long = true;
    tt_log(
        TT_WARN, "data",
        "the text is more than %d times as long as its files (%lld MiB so far, of %lld bytes): if "
        "that is not meant, stop the run and look at the files",
        LONG_TIMES, (long long)(d->submitted >> 20), (long long)files);
}

static tt_status submit(tt_documents *d, tt_error *err)
{
    d->block->at.file = d->file;
    d->block->at.document = d->document;
    d->block->at.part = d->part;
    d->submitted += (int64_t)d->block->n_text;
    tell_long(d);
    d->block = NULL;
    return tt_encoder_submit(d->encoder, err);
}

/* A part is encoded whole: its text twice, the tokenizer's words, and its tokens. */
#define BYTES_PER_BYTE 12.0

static tt_status check_memory(const tt_documents *to, size_t n_bytes, tt_error *err)
{
    const double wanted = BYTES_PER_BYTE * (double)n_bytes;
    if (n_bytes < (size_t)64 << 20)
        return TT_OK;
    const double limit = tt_memory_here();
    if (wanted <= limit)
        return TT_OK;
    return TT_FAIL(err, TT_EINVAL,
                   "dataloader.path: %s: a document of %.2f GiB that this tokenizer cannot split "
                   "takes about %.0f GiB to tokenise, and there are %.1f GiB of memory: split it "
                   "into documents, a file or a line of .jsonl each",
                   to->key->o->files->items[to->file], (double)n_bytes / (1 << 30),
                   wanted / (1 << 30), limit / (1 << 30));
}

/* The bytes of the next part of a document, of which n_bytes are left. A long document is split
 * where the tokenizer says that its tokens stay the same. */
static size_t next_part(const tt_documents *to, const char *text, size_t n_bytes)
{
    const tt_dataloader_env *env = to->key->o->env;
    const tt_tokenizer_vt *t = env->tokenizer;
    if (n_bytes <= (size_t)block_bytes || !TT_HAS(t, tt_tokenizer_vt, cut) || !t->cut)
        return n_bytes;
    const size_t cut = t->cut(env->tokenizer_self, text, n_bytes, (size_t)block_bytes);
    return cut > 0 && cut < n_bytes ? cut : n_bytes;
}

/* Passes the block on if n_bytes more are too many for it. left: bytes of the document after the
 * block. */
static tt_status make_room(tt_documents *to, size_t n_bytes, int64_t at, size_t left, tt_error *err)
{
    const tt_text_key *k = to->key;
    if (to->block && to->block->n_text > 0 &&
        (int64_t)(to->block->n_text + n_bytes) > block_bytes) {
        TT_TRY(submit(to, err));
        at = TT_MAXV(at - (int64_t)left, (int64_t)0);
        tt_text_progress(k->o->env, "tokenising",
                         to->done_bytes + TT_MIN(at, k->ids[to->file].bytes), k->text_bytes);
        TT_TRY(tt_text_stopped(k->o->env, err));
    }
    return to->block ? TT_OK : tt_encoder_block(to->encoder, &to->block, err);
}

/* Notes a document whose beginning has a byte that text does not have: 0, or one that is not UTF-8.
 * It is trained on as it is, but few mean to. */
static void note_strange(tt_documents *to, const char *text, size_t n_bytes)
{
    const size_t n = TT_MIN(n_bytes, (size_t)1 << 16);
    const char *zero = n ? memchr(text, 0, n) : NULL;
    const size_t valid = tt_utf8_valid(text, zero ? (size_t)(zero - text) : n);
    /* the last character looked at may be cut */
    if (!zero && (valid == n || (n < n_bytes && n - valid < 4)))
        return;
    if (to->n_strange++)
        return;
    to->strange_file = to->file;
    to->strange_document = to->document + 1;
    to->strange_at = valid;
}

static void tell_strange(const tt_documents *d)
{
    const long long more = d->n_strange - 1;
    tt_str others = {0};
    if (more < 0)
        return;
    if (more)
        tt_str_printf(&others, ", and %lld other document%s", more, more == 1 ? "" : "s");
    tt_log(TT_WARN, "data", "%s: document %lld is not text in UTF-8 (byte %zu)%s: trained on as %s",
           d->key->o->files->items[d->strange_file], (long long)d->strange_document,
           d->strange_at + 1, tt_str_get(&others), more ? "they are" : "it is");
    tt_str_free(&others);
}

tt_status tt_documents_add(tt_documents *to, const char *text, size_t n_bytes, int64_t at,
                           tt_error *err)
{
    size_t from = 0;
    if (to->wanted)
        return to->wanted->document(to->wanted->document_user, text, n_bytes, err);
    if (to->file == to->from.file && to->document < to->from.document) {
        to->document++;
        return TT_OK;
    }
    if (to->file == to->from.file && to->document == to->from.document)
        from = TT_MIN((size_t)to->from.part, n_bytes);
    note_strange(to, text, n_bytes);
    to->part = (int64_t)from;
    do {
        const size_t n = next_part(to, text + from, n_bytes - from);
        const tt_text_part part = {.file = to->file,
                                   .number = to->document + 1,
                                   .first = from == 0,
                                   .last = from + n == n_bytes};
        TT_TRY(make_room(to, n, at, n_bytes - from, err));
        TT_TRY(check_memory(to, n, err));
        if (n_bytes > 0)
            TT_TRY(tt_text_block_add(to->block, text + from, n, &part, err));
        else
            to->block->at.n_empty++;
        from += n;
        to->part = (int64_t)from;
    } while (from < n_bytes);
    to->part = 0;
    to->document++;
    return TT_OK;
}

static tt_status read_files(const corpus *c, tt_documents *d, tt_error *err)
{
    const int64_t n = (int64_t)c->o->files->n;
    for (int64_t i = 0; i < n; i++) {
        d->file = i;
        d->document = d->part = 0;
        if (i >= d->from.file)
            TT_TRY(c->o->read(c->o->user, c->o->files->items[i], d, err));
        d->done_bytes += c->key.ids[i].bytes;
    }
    return d->block ? submit(d, err) : TT_OK;
}

/* Tokenises from the store's progress to the end of the text. */
static tt_status corpus_build(const corpus *c, tt_store *store, tt_error *err)
{
    const tt_dataloader_env *env = c->o->env;
    const int64_t blocks = c->key.text_bytes / block_bytes; /* compressed files may have more */
    const tt_encoder_opts eo = {.tokenizer = env->tokenizer,
                                .tokenizer_self = env->tokenizer_self,
                                .info = c->info,
                                .files = c->o->files,
                                .width = c->width,
                                .threads = blocks > 0 ? c->threads : 0,
                                .write = tt_store_write,
                                .user = store};
    tt_documents d = {.key = &c->key, .from = store->at};
    tt_error first = {0};
    if (store->at.n_tokens > 0)
        tt_log(TT_INFO, "data", "an earlier run left %lld documents, %lld tokens; continuing there",
               (long long)store->at.n_documents, (long long)store->at.n_tokens);
    TT_TRY(tt_encoder_new(&eo, &d.encoder, err));
    const tt_status read = read_files(c, &d, err), written = tt_encoder_finish(d.encoder, &first);
    tell_strange(&d);
    if (read == TT_OK && written == TT_OK)
        return TT_OK;
    tt_store_commit(store, NULL); /* the next run continues here */
    /* a block's error comes first: its document is before the one where the reader stopped */
    return written != TT_OK ? TT_FAIL(err, written, "%s", first.text) : read;
}

static tt_status build_in_memory(const corpus *c, tt_tokens *out, tt_error *err)
{
    tt_store store;
    tt_store_memory(c->width, &store);
    const tt_status s = corpus_build(c, &store, err);
    if (s == TT_OK)
        tt_store_release(&store, out);
    else
        tt_store_close(&store);
    return s;
}

/* *lost: the error is the cache folder's, not the text's. */
static tt_status build_in_folder(corpus *c, tt_tokens *out, bool *lost, tt_error *err)
{
    tt_store store;
    bool published = false;
    *lost = true;
    TT_TRY(tt_store_file(c->folder, c->key.by_content, c->width, &c->key, &published, &store, err));
    if (!published) {
        tt_error why = {0};
        *lost = false;
        tt_status s = corpus_build(c, &store, err);
        if (s == TT_OK)
            s = tt_text_key_same(&c->key, err);
        if (s == TT_OK && store.path &&
            tt_store_publish(&store, c->folder, (int64_t)c->o->files->n, &why) != TT_OK)
            s = tt_store_to_memory(&store, &why, err);
        if (s == TT_OK && !store.path) {
            tt_str_add(&c->note, TT_NOTE_UNWRITTEN "its folder is full or cannot be written");
            tt_store_release(&store, out);
            return TT_OK;
        }
        if (s == TT_OK)
            tt_store_close(&store);
        else
            tt_store_abandon(&store);
        TT_TRY(s);
    }
    *lost = true;
    return tt_store_find(c->folder, c->key.by_content, needs_index(c->o), out, err);
}

/* Opens the finished file of this text; removes it if it is damaged. */
static bool corpus_find(const corpus *c, tt_tokens *out)
{
    tt_error why = {0};
    const tt_status s = tt_store_find(c->folder, c->key.by_content, needs_index(c->o), out, &why);
    if (s == TT_OK || s == TT_ENOTFOUND)
        return s == TT_OK;
    tt_str path = {0};
    tt_str_printf(&path, "%s/%s.tokens", c->folder, c->key.by_content);
    tt_log(TT_WARN, "data", "%s; tokenising again", why.text);
    unlink(path.s);
    tt_str_free(&path);
    return false;
}

static tt_status find_or_build(corpus *c, tt_tokens *out, bool *found, bool *lost, tt_error *err)
{
    const int64_t began_ns = (int64_t)(tt_wall_seconds() * 1e9);
    *lost = false;
    *found = tt_text_key_recall(&c->key, c->folder) && corpus_find(c, out);
    if (*found)
        return TT_OK;
    TT_TRY(tt_text_key_read(&c->key, c->threads, err));
    *found = corpus_find(c, out);
    if (!*found)
        TT_TRY(build_in_folder(c, out, lost, err));
    if (out->cache)
        tt_text_key_note(&c->key, c->folder, began_ns);
    return TT_OK;
}

/* $XDG_CACHE_HOME/ttrun, else ~/.cache/ttrun; each only if it is absolute, as the XDG specification
 * says. NULL: neither is. */
static char *default_folder(void)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    tt_str s = {0};
    if (base && base[0] == '/')
        tt_str_printf(&s, "%s/ttrun", base);
    else if (home && home[0] == '/')
        tt_str_printf(&s, "%s/.cache/ttrun", home);
    return s.s;
}

/* Sets the folder that the option means and makes it; NULL and a note if tokens stay in memory. */
static void choose_folder(corpus *c)
{
    const char *cache = c->o->cache, *dir = c->o->env->job_dir;
    const bool automatic = strcmp(cache, "auto") == 0;
    tt_error why = {0};
    tt_str path = {0};
    if (strcmp(cache, "off") == 0) {
        tt_str_add(&c->note, "dataloader.cache is \"off\"");
        return;
    }
    if (!c->info.fingerprint[0]) {
        tt_str_add(&c->note, "the tokenizer has no fingerprint");
        return;
    }
    if (automatic && c->key.text_bytes < cached_from) {
        tt_str_add(&c->note, "less than 1 MiB of text");
        return;
    }
    if (automatic) {
        path.s = default_folder();
        if (!path.s)
            tt_fail(&why, TT_ENOTFOUND, "neither XDG_CACHE_HOME nor HOME names a folder");
    } else {
        tt_str_printf(&path, "%s%s%s", cache[0] == '/' || !dir ? "" : dir,
                      cache[0] == '/' || !dir ? "" : "/", cache);
    }
    if (path.s && tt_mkdirs(path.s, &why) == TT_OK) {
        c->folder = path.s;
        tt_store_clear(c->folder);
        return;
    }
    free(path.s);
    tt_log(TT_WARN, "data", TT_KEPT_IN_MEMORY, why.text);
    tt_str_printf(&c->note, TT_NOTE_UNWRITTEN "%s", why.text);
}

static void say(const corpus *c, const tt_tokens *t, bool found)
{
    if (t->n_empty > 0)
        tt_log(TT_INFO, "data", "%lld of %lld documents %s empty and left out",
               (long long)t->n_empty, (long long)(t->n_documents + t->n_empty),
               t->n_empty == 1 ? "is" : "are");
    if (c->o->env->seq_len == 1) /* `ttrun eval` opens the text once more, to count its tokens */
        return;
    tt_log(TT_INFO, "data",
           "%zu file%s, %lld document%s, %lld bytes of text, %lld tokens, "
           "%lld sample%s per epoch; %s %s",
           c->o->files->n, c->o->files->n == 1 ? "" : "s", (long long)t->n_documents,
           t->n_documents == 1 ? "" : "s", (long long)t->text_bytes, (long long)t->n_tokens,
           (long long)t->n_samples, t->n_samples == 1 ? "" : "s", found ? "from" : "in",
           t->cache ? t->cache : "memory");
}

static tt_status make(corpus *c, tt_tokens *t, tt_error *err)
{
    tt_error why = {0};
    bool found = false, lost = false;
    tt_status s = TT_OK;
    t->spans = calloc(1, sizeof *t->spans);
    if (!t->spans)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening text");
    choose_folder(c);
    if (c->folder)
        s = find_or_build(c, t, &found, &lost, &why);
    lost = lost && s != TT_OK && s != TT_ESIGNAL;
    if (lost)
        tt_log(TT_WARN, "data", TT_KEPT_IN_MEMORY, why.text);
    if (s != TT_OK && !lost)
        return TT_FAIL(err, s, "%s", why.text);
    if (!c->folder || lost)
        TT_TRY(build_in_memory(c, t, err));
    t->n_files = (int64_t)c->o->files->n;
    t->note = strdup(tt_str_get(&c->note));
    t->document_mask = c->o->document_mask;
    if (t->n_documents == 0)
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s%s is empty: no document has text",
                       c->o->files->items[0], c->o->files->n > 1 ? " (as every other file)" : "");
    TT_TRY(tt_tokens_ready(t, c->o->env, packing_of(c->o), err));
    say(c, t, found);
    return TT_OK;
}

static tt_status pass_documents(const tt_corpus_opts *o, tt_error *err)
{
    tt_documents d = {.wanted = o->env};
    for (size_t i = 0; i < o->files->n; i++)
        TT_TRY(o->read(o->user, o->files->items[i], &d, err));
    return TT_OK;
}

tt_status tt_corpus_open(const tt_corpus_opts *o, tt_tokens **out, tt_error *err)
{
    const tt_dataloader_env *env = o->env;
    *out = NULL;
    if (TT_HAS(env, tt_dataloader_env, document) && env->document)
        return pass_documents(o, err);
    corpus c = {.o = o, .threads = tt_cpu_count()};
    if (!env->tokenizer)
        return TT_FAIL(err, TT_EINVAL,
                       "this dataloader reads text and needs a tokenizer; set "
                       "tokenizer.name");
    c.info = (tt_tokenizer_info){.struct_size = sizeof c.info, .bos = -1, .eos = -1, .pad = -1};
    env->tokenizer->info(env->tokenizer_self, &c.info);
    /* GPT-2's <|endoftext|> is both: one is written between documents, not two. */
    if (c.info.omits_bos || c.info.bos == c.info.eos)
        c.info.bos = -1;
    c.width = c.info.vocab_size <= 256 ? 1 : c.info.vocab_size <= 65536 ? 2 : 4;
    TT_TRY(tt_text_key_stat(o, &c.info, &c.key, err));
    tt_tokens *t = calloc(1, sizeof *t);
    tt_status s = TT_OK;
    if (t) {
        t->documents.fd = -1;
        s = make(&c, t, err);
    } else {
        s = TT_FAIL(err, TT_ENOMEM, "out of memory opening text");
    }
    tt_text_key_free(&c.key);
    tt_str_free(&c.note);
    free(c.folder);
    if (s == TT_OK)
        *out = t;
    else
        tt_tokens_close(t);
    return s;
}
