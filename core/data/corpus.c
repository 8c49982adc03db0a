/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pool.h"
#include "data/cache.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Text, tokenised once: found in the cache, built there, or, where there is no cache, in memory. */

static const int64_t block_bytes = (int64_t)1 << 20; /* of text, what a thread takes at a time */
/* Less than this is tokenised at each start, within some ten milliseconds: a cache would be many
 * small files and gain nothing. */
static const int64_t cached_from = (int64_t)1 << 20;

struct tt_documents {
    tt_encoder *encoder;
    tt_text_block *block; /* being filled */
    const tt_text_key *key;
    tt_build_point from; /* what an earlier start has done: passed over */
    int64_t file, document, done_bytes;
};

typedef struct {
    const tt_corpus_opts *o;
    tt_tokenizer_info info;
    tt_text_key key;
    char *folder; /* of the cache, NULL = none */
    tt_str note;  /* why none */
    int width, threads;
} corpus;

static const char *packing_of(const tt_corpus_opts *o)
{
    return TT_HAS(o, tt_corpus_opts, packing) && o->packing ? o->packing : "none";
}

/* Is the index of documents read? */
static bool needs_index(const tt_corpus_opts *o)
{
    return o->document_mask || strcmp(packing_of(o), "none") != 0;
}

static tt_status submit(tt_documents *d, tt_error *err)
{
    d->block->at.file = d->file;
    d->block->at.document = d->document;
    d->block = NULL;
    return tt_encoder_submit(d->encoder, err);
}

tt_status tt_documents_add(tt_documents *to, const char *text, size_t n_bytes, int64_t at,
                           tt_error *err)
{
    const tt_text_key *k = to->key;
    const bool done = to->file == to->from.file && to->document < to->from.document;
    if (!done && to->block && to->block->n_text > 0 &&
        (int64_t)(to->block->n_text + n_bytes) > block_bytes) {
        TT_TRY(submit(to, err));
        tt_text_progress(k->o->env, "tokenising",
                         to->done_bytes + TT_MIN(at, k->ids[to->file].bytes), k->text_bytes);
        TT_TRY(tt_text_stopped(k->o->env, err));
    }
    to->document++;
    if (done)
        return TT_OK;
    if (!to->block)
        TT_TRY(tt_encoder_block(to->encoder, &to->block, err));
    if (n_bytes > 0)
        return tt_text_block_add(to->block, text, n_bytes, to->file, to->document, err);
    to->block->at.n_empty++;
    return TT_OK;
}

static tt_status read_files(const corpus *c, tt_documents *d, tt_error *err)
{
    const int64_t n = (int64_t)c->o->files->n;
    for (int64_t i = 0; i < n; i++) {
        d->file = i;
        d->document = 0;
        if (i >= d->from.file)
            TT_TRY(c->o->read(c->o->user, c->o->files->items[i], d, err));
        d->done_bytes += c->key.ids[i].bytes;
    }
    return d->block ? submit(d, err) : TT_OK;
}

/* From where the store stands to the end of the text. */
static tt_status build(const corpus *c, tt_store *store, tt_error *err)
{
    const tt_dataloader_env *env = c->o->env;
    const int64_t blocks = c->key.text_bytes / block_bytes; /* at least, where text is packed */
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
    if (store->at.n_documents > 0)
        tt_log(TT_INFO, "data", "an earlier start left %lld documents, %lld tokens; going on there",
               (long long)store->at.n_documents, (long long)store->at.n_tokens);
    TT_TRY(tt_encoder_new(&eo, &d.encoder, err));
    const tt_status read = read_files(c, &d, err), written = tt_encoder_finish(d.encoder, &first);
    if (read == TT_OK && written == TT_OK)
        return TT_OK;
    tt_store_commit(store, NULL); /* the next start goes on from here */
    /* a block's error is of a document before the one the reader stopped at */
    return written != TT_OK ? TT_FAIL(err, written, "%s", first.text) : read;
}

static tt_status build_in_memory(const corpus *c, tt_tokens *out, tt_error *err)
{
    tt_store store;
    tt_store_memory(c->width, &store);
    const tt_status s = build(c, &store, err);
    if (s == TT_OK)
        tt_store_release(&store, out);
    else
        tt_store_close(&store);
    return s;
}

/* *lost: the folder failed us, which is no fault of the text. */
static tt_status build_in_folder(corpus *c, tt_tokens *out, bool *lost, tt_error *err)
{
    tt_store store;
    bool published = false;
    *lost = true;
    TT_TRY(tt_store_file(c->folder, c->key.by_content, c->width, &c->key, &published, &store, err));
    if (!published) {
        tt_error why = {0};
        *lost = false;
        tt_status s = build(c, &store, err);
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
        tt_store_close(&store);
        TT_TRY(s);
    }
    *lost = true;
    return tt_store_find(c->folder, c->key.by_content, needs_index(c->o), out, err);
}

/* A finished file of this text; a damaged one is taken away. */
static bool find(const corpus *c, tt_tokens *out)
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
    *found = tt_text_key_recall(&c->key, c->folder) && find(c, out);
    if (*found)
        return TT_OK;
    TT_TRY(tt_text_key_read(&c->key, c->threads, err));
    *found = find(c, out);
    if (!*found)
        TT_TRY(build_in_folder(c, out, lost, err));
    if (out->cache)
        tt_text_key_note(&c->key, c->folder, began_ns);
    return TT_OK;
}

/* $XDG_CACHE_HOME/ttrun, else ~/.cache/ttrun; both only where absolute, as the specification has
 * it. NULL: neither. */
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

/* The folder the option means, made; NULL and a note where tokens stay in memory. */
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
        return;
    }
    free(path.s);
    tt_log(TT_WARN, "data", TT_KEPT_IN_MEMORY, why.text);
    tt_str_printf(&c->note, TT_NOTE_UNWRITTEN "%s", why.text);
}

static void say(const corpus *c, const tt_tokens *t, bool found)
{
    if (t->n_empty > 0)
        tt_log(TT_INFO, "data", "%lld of %lld documents are empty and were left out",
               (long long)t->n_empty, (long long)(t->n_documents + t->n_empty));
    tt_log(TT_INFO, "data",
           "%zu files, %lld documents, %lld bytes of text, %lld tokens, "
           "%lld samples an epoch; %s %s",
           c->o->files->n, (long long)t->n_documents, (long long)t->text_bytes,
           (long long)t->n_tokens, (long long)t->n_samples, found ? "from" : "in",
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
    TT_TRY(tt_tokens_ready(t, c->o->env, packing_of(c->o), "give", err));
    say(c, t, found);
    return TT_OK;
}

tt_status tt_corpus_open(const tt_corpus_opts *o, tt_tokens **out, tt_error *err)
{
    const tt_dataloader_env *env = o->env;
    corpus c = {.o = o, .threads = tt_cpu_count()};
    if (!env->tokenizer)
        return TT_FAIL(err, TT_EINVAL,
                       "this dataloader reads text and needs a tokenizer; set "
                       "tokenizer.name");
    c.info = (tt_tokenizer_info){.struct_size = sizeof c.info, .bos = -1, .eos = -1, .pad = -1};
    env->tokenizer->info(env->tokenizer_self, &c.info);
    if (c.info.bos == c.info.eos) /* GPT-2's <|endoftext|>: one between documents, and not two */
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
