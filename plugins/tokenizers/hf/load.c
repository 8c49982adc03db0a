/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "load.h"
#include "normalize.h"
#include "subword.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Loads the files: tokenizer.json, tokenizer.model, tiktoken's, vocab.json and merges.txt, and what
 * lies beside them. */

#define LARGEST_FILE ((long long)1 << 30)

void hf_digest_bytes(hf_digest *d, const void *s, size_t n)
{
    const uint8_t *p = s;
    for (size_t i = 0; i < n; i++) {
        d->a = (d->a ^ p[i]) * 0x100000001b3u; /* FNV-1a, and a second hash that rotates */
        d->b = ((d->b << 7 | d->b >> 57) + p[i]) * 0x9e3779b97f4a7c15u;
    }
}

void hf_digest_string(hf_digest *d, const char *s, size_t n)
{
    hf_digest_number(d, (int64_t)n);
    hf_digest_bytes(d, s, n);
}

void hf_digest_text(hf_digest *d, const char *s)
{
    hf_digest_string(d, s, strlen(s));
}

void hf_digest_number(hf_digest *d, int64_t v)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)v >> (8 * i));
    hf_digest_bytes(d, bytes, sizeof bytes);
}

static uint64_t digest_finish(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

hf_shown hf_show(const char *text, size_t n)
{
    hf_shown shown = {""};
    size_t k = n < 40 ? n : 40;
    while (k < n && k > 0 && ((unsigned char)text[k] & 0xc0) == 0x80)
        k--; /* never cuts a character in two */
    for (size_t i = 0; i < k; i++)
        shown.text[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    if (k < n)
        memcpy(shown.text + k, "…", strlen("…") + 1);
    return shown;
}

const char *hf_text_of(const json_t *v)
{
    const char *s = json_string_value(v);
    return s && strlen(s) == json_string_length(v) ? s : NULL;
}

const char *hf_type(const json_t *part)
{
    const char *s = hf_text_of(json_object_get(part, "type"));
    return s ? s : "";
}

tt_status hf_bool(const hf_file *f, const json_t *object, const char *path, const char *key,
                  bool fallback, bool *out)
{
    const json_t *v = json_object_get(object, key);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return HF_FAIL(f, "%s: %s.%s: expected true or false", f->name, path, key);
    *out = json_is_boolean(v) ? json_is_true(v) : fallback;
    return TT_OK;
}

tt_status hf_read_file(const char *path, bool must, char **text, size_t *n, tt_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    FILE *f = fd >= 0 ? fdopen(fd, "rb") : NULL;
    struct stat st;
    if (!f && errno == ENOENT && !must) {
        *text = NULL;
        *n = 0;
        return TT_OK;
    }
    if (!f)
        return TT_FAIL(err, errno == ENOENT ? TT_ENOTFOUND : TT_EIO, "%s: %s", path,
                       strerror(errno));
    char *buf = NULL;
    tt_status s = TT_OK;
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode))
        s = TT_FAIL(err, TT_EINVAL, "%s: not a file", path);
    else if (st.st_size > LARGEST_FILE)
        s = TT_FAIL(err, TT_EFORMAT, "%s: %lld bytes are too many for a tokenizer (at most %lld)",
                    path, (long long)st.st_size, LARGEST_FILE);
    else if (!(buf = malloc((size_t)st.st_size + 1)))
        s = TT_FAIL(err, TT_ENOMEM, "%s: out of memory for %lld bytes", path,
                    (long long)st.st_size);
    const size_t got = s == TT_OK ? fread(buf, 1, (size_t)st.st_size, f) : 0;
    if (s == TT_OK && got != (size_t)st.st_size)
        s = TT_FAIL(err, TT_EIO, "%s: read %zu of %lld bytes", path, got, (long long)st.st_size);
    fclose(f);
    if (s != TT_OK) {
        free(buf);
        return s;
    }
    buf[got] = '\0';
    *text = buf;
    *n = got;
    return TT_OK;
}

static bool needs_traits(const hf_tokenizer *t)
{
    bool any = t->n_norms > 0;
    for (size_t i = 0; i < t->n_splits; i++)
        any = any || t->splits[i].traits;
    return any;
}

tt_status hf_load_root(hf_tokenizer *t, const hf_file *f, const json_t *root, hf_digest *d)
{
    TT_TRY(hf_load_normalizer(t, f, root));
    TT_TRY(hf_load_splits(t, f, root, d));
    TT_TRY(hf_unicode_new(t->nfc || t->n_norms, &t->flags, f->err));
    if (needs_traits(t))
        TT_TRY(hf_traits_new(t->flags, &t->traits, f->err));
    TT_TRY(hf_load_model(t, f, root, d));
    if (t->subword)
        TT_TRY(hf_load_decoder(t, f, root));
    hf_load_begin(t, root);
    return TT_OK;
}

static tt_status load_tokenizer(hf_tokenizer *t, const char *text, size_t n, hf_digest *d,
                                tt_error *err)
{
    const hf_file f = {.name = t->path, .err = err};
    json_t *root;
    TT_TRY(hf_read_json(t->path, text, n, &root, err));
    const tt_status s = hf_load_root(t, &f, root, d);
    json_decref(root);
    return s;
}

static void seal(hf_tokenizer *t, hf_digest *d)
{
    hf_digest_number(d, t->bos);
    hf_digest_number(d, t->eos);
    hf_digest_number(d, t->allow_special);
    snprintf(t->fingerprint, sizeof t->fingerprint, "%016llx%016llx",
             (unsigned long long)digest_finish(d->a),
             (unsigned long long)digest_finish(d->b ^ d->a));
}

static void load_begin(hf_tokenizer *t, hf_digest *d)
{
    *d = (hf_digest){0xcbf29ce484222325u, 0x243f6a8885a308d3u};
    hf_digest_text(d, "ttrun hf 1");
    t->bos = t->eos = t->pad = -1;
    t->begin = HF_BEGIN_BOS;
    t->end = -1;
}

tt_status hf_load_text(hf_tokenizer *t, const char *text, size_t n, const char *config,
                       size_t n_config, tt_error *err)
{
    hf_digest d;
    hf_configs c = {{NULL}, {NULL}};
    load_begin(t, &d);
    if (!t->path && !(t->path = strdup("tokenizer.json")))
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a path");
    if (config)
        TT_TRY(hf_read_json(hf_config_names[0], config, n_config, &c.roots[0], err));
    tt_status s = hf_is_sentencepiece(text, n) ? hf_load_sentencepiece(t, text, n, &c, &d, err)
                                               : load_tokenizer(t, text, n, &d, err);
    if (s == TT_OK)
        s = hf_load_configs(t, &c, err);
    if (s == TT_OK)
        hf_choose_begin(t, &c, false);
    if (s == TT_OK)
        seal(t, &d);
    hf_configs_release(&c);
    return s;
}

char *hf_path_beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) + 1 : 0, size = n + strlen(name) + 1;
    char *out = malloc(size);
    if (out)
        snprintf(out, size, "%.*s%s", (int)n, path, name);
    return out;
}

/* FILE or FOLDER → the tokenizer's file, which the caller frees. */
static tt_status find_file(const char *path, char **out, tt_error *err)
{
    static const char *const names[] = {TT_TOKENIZER_FILES};
    char list[160] = "";
    struct stat st;
    *out = NULL;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        *out = strdup(path);
        return *out ? TT_OK : TT_FAIL(err, TT_ENOMEM, "out of memory for a path");
    }
    for (size_t i = 0, n = 0; i < TT_COUNT(names); i++) {
        const size_t size = strlen(path) + strlen(names[i]) + 2;
        char *file = malloc(size);
        if (!file)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for a path");
        snprintf(file, size, "%s/%s", path, names[i]);
        if (access(file, F_OK) == 0) {
            *out = file;
            return TT_OK;
        }
        free(file);
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", names[i]);
    }
    return TT_FAIL(err, TT_ENOTFOUND, "%s: no tokenizer is in this folder (looked for: %s)", path,
                   list);
}

/* The job's own choice of bos, eos and pad takes precedence over the file's. */
static tt_status override(const hf_tokenizer *t, const char *key, const char *text, int32_t *id,
                          tt_error *err)
{
    const int32_t found = text ? hf_find_token(t, text, strlen(text)) : *id;
    if (text && found < 0)
        return TT_FAIL(err, TT_EINVAL, "tokenizer.%s: \"%s\" is not a token of %s", key,
                       hf_show(text, strlen(text)).text, t->path);
    *id = found;
    return TT_OK;
}

static bool has_name(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, name) == 0;
}

static tt_status load_any(hf_tokenizer *t, const hf_options *o, hf_configs *c, const char *text,
                          size_t n, hf_digest *d, tt_error *err)
{
    const size_t blanks = strspn(text, " \t\r\n"); /* the text ends in a NUL */
    if (hf_is_tiktoken(t->path, text, n))
        return hf_load_tiktoken(t, o, c, text, n, d, err);
    if (o->pattern || o->special_tokens)
        return TT_FAIL(err, TT_EINVAL,
                       "tokenizer.%s: %s has its own; this key is for tiktoken files",
                       o->pattern ? "pattern" : "special_tokens", t->path);
    if (hf_is_sentencepiece(text, n))
        return hf_load_sentencepiece(t, text, n, c, d, err);
    if (text[blanks] != '{' && text[blanks] != '[')
        return TT_FAIL(err, TT_EFORMAT,
                       "%s: not a tokenizer (looked for JSON, a model of sentencepiece, or "
                       "lines of a token in base64 and its rank)",
                       t->path);
    return has_name(t->path, "vocab.json") ? hf_load_pair(t, text, n, c, d, err)
                                           : load_tokenizer(t, text, n, d, err);
}

/* Reads what lies beside the tokenizer. */
static tt_status read_configs(const char *path, hf_configs *c, tt_error *err)
{
    for (int i = 0; i < HF_N_CONFIGS; i++) {
        char *text = NULL;
        size_t n = 0;
        c->names[i] = hf_path_beside(path, hf_config_names[i]);
        if (!c->names[i])
            return TT_FAIL(err, TT_ENOMEM, "out of memory for a path");
        TT_TRY(hf_read_file(c->names[i], false, &text, &n, err));
        const tt_status s = text ? hf_read_json(c->names[i], text, n, &c->roots[i], err) : TT_OK;
        free(text);
        TT_TRY(s);
    }
    return TT_OK;
}

static tt_status load_files(hf_tokenizer *t, const hf_options *o, hf_configs *c, tt_error *err)
{
    hf_digest d;
    char *text = NULL;
    size_t n = 0;
    load_begin(t, &d);
    TT_TRY(hf_read_file(t->path, true, &text, &n, err));
    const tt_status s = load_any(t, o, c, text, n, &d, err);
    free(text);
    TT_TRY(s);
    TT_TRY(hf_load_configs(t, c, err));
    TT_TRY(override(t, "bos_token", o->bos_token, &t->bos, err));
    TT_TRY(override(t, "eos_token", o->eos_token, &t->eos, err));
    TT_TRY(override(t, "pad_token", o->pad_token, &t->pad, err));
    hf_choose_begin(t, c, o->bos_token != NULL);
    seal(t, &d);
    return TT_OK;
}

tt_status hf_load(hf_tokenizer *t, const hf_options *o, tt_error *err)
{
    hf_configs c = {{NULL}, {NULL}};
    if (!o->path || !*o->path)
        return TT_FAIL(err, TT_EINVAL,
                       "tokenizer.path: the hf tokenizer needs a tokenizer.json, "
                       "tokenizer.model, vocab.json or tiktoken file, or the folder that has it");
    TT_TRY(find_file(o->path, &t->path, err));
    t->allow_special = o->allow_special;
    tt_status s = read_configs(t->path, &c, err);
    if (s == TT_OK)
        s = load_files(t, o, &c, err);
    hf_configs_release(&c);
    return s;
}

void hf_release(hf_tokenizer *t)
{
    for (size_t i = 0; i < t->n_added; i++) {
        free(t->added[i].content.s);
        free(t->added[i].sought.s);
    }
    for (size_t i = 0; i < t->n_splits; i++)
        hf_regex_free(t->splits[i].regex);
    hf_norms_release(t);
    hf_subword_release(t->subword);
    hf_pieces_free(t->pieces);
    free(t->texts);
    free(t->text_bytes.s);
    free(t->traits);
    free(t->added);
    free(t->raw.nodes);
    free(t->normalized.nodes);
    free(t->flags);
    free(t->path);
    hf_vocab_release(&t->vocab);
}
