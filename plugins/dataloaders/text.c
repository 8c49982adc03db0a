/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ttrun/dataloader.h>
#include <ttrun/log.h>
#include <unistd.h>

/* text: files and globs, each file a document with the tokenizer's bos and eos around it, joined to
 * one stream of tokens in path order. Sample i is tokens [i*seq_len, i*seq_len + seq_len]: inputs
 * all but the last, labels all but the first. The stream is held in memory in the smallest width
 * the vocabulary needs. */

typedef struct {
    tt_strings path;
    bool shuffle; /* shuffle and seed are read by the core, which owns the order */
    int64_t seed;
    bool document_mask;
} config;

static const tt_option options[] = {
    TT_OPTION(config, path, TT_OPT_STRINGS, "[]", 0, 0,
              "text files and globs (** crosses folders), relative to the job file"),
    TT_OPTION(config, shuffle, TT_OPT_BOOL, "true", 0, 0,
              "draw a new order of the samples each epoch"),
    TT_OPTION_MORE(config, seed, TT_OPT_INT, "null", 0, 9007199254740992.0, NULL, TT_OPT_NULLABLE,
                   NULL, "of the order; null: training.seed"),
    TT_OPTION(config, document_mask, TT_OPT_BOOL, "false", 0, 0,
              "keep attention and positions within a document"),
};

typedef struct {
    char **items;
    size_t n, cap;
} names;

typedef struct {
    void *tokens; /* [n_tokens] of `width` bytes: 1, 2 or 4 */
    size_t width, n_tokens, cap;
    int64_t *starts; /* [n_starts] first token of each document, ascending; kept for document_mask
                        only */
    size_t n_starts, cap_starts;
    bool document_mask;
    int64_t seq_len, n_samples;
} corpus;

/* ---- file names ---- */

static void names_free(names *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->items[i]);
    free(v->items);
    *v = (names){0};
}

/* Takes `name` over, also on failure. */
static tt_status names_add(names *v, char *name, tt_error *err)
{
    if (name && v->n == v->cap) {
        const size_t cap = v->cap ? 2 * v->cap : 64;
        char **items = realloc(v->items, cap * sizeof *items);
        if (items) {
            v->items = items;
            v->cap = cap;
        }
    }
    if (!name || v->n == v->cap) {
        free(name);
        return TT_FAIL(err, TT_ENOMEM, "out of memory after %zu file names", v->n);
    }
    v->items[v->n++] = name;
    return TT_OK;
}

static char *format(const char *fmt, ...) TT_PRINTF(1, 2);
static char *format(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    const int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : s;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sort bytewise whatever the locale, and drop doubles (two ** in one pattern meet a file twice). */
static void names_sort(names *v)
{
    size_t kept = 0;
    if (v->n > 1)
        qsort(v->items, v->n, sizeof *v->items, by_bytes);
    for (size_t i = 0; i < v->n; i++) {
        if (kept > 0 && strcmp(v->items[kept - 1], v->items[i]) == 0)
            free(v->items[i]);
        else
            v->items[kept++] = v->items[i];
    }
    v->n = kept;
}

static bool is_glob(const char *s)
{
    return strpbrk(s, "*?[") != NULL;
}

static tt_status walk(const char *dir, const char *pattern, int depth, names *out, tt_error *err);

/* One entry of a folder against the first component of the pattern. */
static tt_status match_entry(const char *dir, const struct dirent *entry, const char *first,
                             const char *pattern, const char *rest, int depth, names *out,
                             tt_error *err)
{
    const bool cross = strcmp(first, "**") == 0;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
        fnmatch(cross ? "*" : first, entry->d_name, FNM_PERIOD) != 0)
        return TT_OK;
    char *path =
        format("%s%s%s", dir, dir[0] && dir[strlen(dir) - 1] != '/' ? "/" : "", entry->d_name);
    struct stat own, st;
    if (!path)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for file names");
    tt_status status = TT_OK;
    if (lstat(path, &own) != 0 || stat(path, &st) != 0) {
        free(path); /* gone meanwhile, or a link to nowhere */
    } else if (S_ISDIR(st.st_mode)) {
        if (cross && !S_ISLNK(own.st_mode)) /* a link to a folder could lead back up */
            status = walk(path, pattern, depth + 1, out, err);
        else if (!cross && rest)
            status = walk(path, rest, depth + 1, out, err);
        free(path);
    } else if (!rest) {
        return names_add(out, path, err);
    } else {
        free(path);
    }
    return status;
}

/* Files under dir ("" = here) that match the pattern, unsorted; a folder that cannot be read is an
 * error. */
static tt_status walk(const char *dir, const char *pattern, int depth, names *out, tt_error *err)
{
    const char *slash = strchr(pattern, '/');
    const char *rest = slash ? slash + strspn(slash, "/") : NULL;
    if (depth > 256)
        return TT_FAIL(err, TT_EINVAL, "%s: more than 256 folders deep", dir);
    char *first = strndup(pattern, slash ? (size_t)(slash - pattern) : strlen(pattern));
    if (!first)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for file names");
    tt_status status = TT_OK;
    if (strcmp(first, "**") == 0 && rest) /* ** also stands for no folder at all */
        status = walk(dir, rest, depth + 1, out, err);
    DIR *d = status == TT_OK ? opendir(dir[0] ? dir : ".") : NULL;
    if (status == TT_OK && !d && errno != ENOENT && errno != ENOTDIR)
        status = TT_FAIL(err, TT_EIO, "%s: cannot read the folder: %s", dir[0] ? dir : ".",
                         strerror(errno));
    for (struct dirent *e; status == TT_OK && d && (e = readdir(d));)
        status = match_entry(dir, e, first, pattern, rest, depth, out, err);
    if (d)
        closedir(d);
    free(first);
    return status;
}

/* The files of one entry of `path`: itself where it exists, else what it matches. */
static tt_status expand(const char *job_dir, const char *entry, names *out, tt_error *err)
{
    const bool absolute = entry[0] == '/' || !job_dir || !job_dir[0];
    char *full = absolute ? strdup(entry) : format("%s/%s", job_dir, entry);
    struct stat st;
    if (!full)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for file names");
    tt_status status = TT_OK;
    if (stat(full, &st) == 0) {
        if (!S_ISDIR(st.st_mode))
            return names_add(out, full, err);
        status = TT_FAIL(
            err, TT_EINVAL,
            "dataloader.path: %s is a folder; name its files, such as \"%s/*.txt\" or, with its "
            "subfolders, \"%s/**\"",
            full, entry, entry);
    } else if (!is_glob(entry)) {
        status = TT_FAIL(err, TT_ENOTFOUND, "dataloader.path: %s: %s", full, strerror(errno));
    } else {
        /* What stands before the first component with a wildcard is a plain folder. */
        char *cut = full + (absolute ? 0 : strlen(job_dir) + 1);
        cut += strcspn(cut, "*?[");
        while (cut > full && cut[-1] != '/')
            cut--;
        char *dir = strndup(full, (size_t)(cut - full));
        names found = {0};
        status = dir ? walk(dir, cut, 0, &found, err) : TT_FAIL(err, TT_ENOMEM, "out of memory");
        if (status == TT_OK && found.n == 0)
            status = TT_FAIL(err, TT_ENOTFOUND, "dataloader.path: no file matches %s", full);
        names_sort(&found);
        for (size_t i = 0; i < found.n; i++) {
            if (status == TT_OK)
                status = names_add(out, found.items[i], err);
            else
                free(found.items[i]);
        }
        free(found.items);
        free(dir);
    }
    free(full);
    return status;
}

/* ---- tokens ---- */

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

/* A file's bytes by mmap; *p NULL where it is empty. */
static tt_status map_text(const char *path, const char **p, size_t *n, tt_error *err)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hang us */
    if (fd < 0 || fstat(fd, &st) != 0) {
        const int code = errno;
        if (fd >= 0)
            close(fd);
        return TT_FAIL(err, TT_EIO, "dataloader.path: cannot read %s: %s", path, strerror(code));
    }
    tt_status status = TT_OK;
    void *text = NULL;
    if (!S_ISREG(st.st_mode)) {
        status = TT_FAIL(err, TT_EINVAL, "dataloader.path: %s is no ordinary file", path);
    } else if (st.st_size > 0) {
        text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (text == MAP_FAILED)
            status =
                TT_FAIL(err, TT_EIO, "dataloader.path: cannot map %s: %s", path, strerror(errno));
        else
            madvise(text, (size_t)st.st_size, MADV_SEQUENTIAL);
    }
    close(fd);
    if (status == TT_OK) {
        *p = text;
        *n = (size_t)st.st_size;
    }
    return status;
}

static tt_status read_files(corpus *c, const tt_dataloader_env *env, const names *files,
                            size_t *n_empty, size_t *n_bytes, tt_error *err)
{
    tt_tokenizer_info info = {.struct_size = sizeof info, .bos = -1, .eos = -1, .pad = -1};
    env->tokenizer->info(env->tokenizer_self, &info);
    const int64_t ids = info.vocab_size;
    c->width = ids <= 256 ? 1 : ids <= 65536 ? 2 : 4;
    tt_ids list = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; status == TT_OK && i < files->n; i++) {
        const char *text = NULL;
        size_t n = 0;
        status = map_text(files->items[i], &text, &n, err);
        if (status != TT_OK)
            break;
        list.n = 0;
        *n_bytes += n;
        *n_empty += n == 0;
        if (n > 0) {
            status = env->tokenizer->encode(env->tokenizer_self, text, n, &list, err);
            munmap((void *)(uintptr_t)text, n);
            if (status == TT_OK)
                status = add_document(c, &info, &list, err);
            if (status != TT_OK)
                tt_error_context(err, "dataloader.path: %s", files->items[i]);
        }
        if (env->progress)
            env->progress(env->progress_user, "reading text", (double)(i + 1) / (double)files->n);
    }
    tt_ids_free(&list);
    return status;
}

/* ---- the component ---- */

static void close_text(void *self)
{
    corpus *c = self;
    if (!c)
        return;
    free(c->tokens);
    free(c->starts);
    free(c);
}

static tt_status load(const config *g, const tt_dataloader_env *env, corpus *c, names *files,
                      tt_error *err)
{
    size_t n_empty = 0, n_bytes = 0;
    if (!env->tokenizer)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader text reads text and needs a tokenizer; set tokenizer.name");
    if (g->path.n == 0)
        return TT_FAIL(
            err, TT_EINVAL,
            "dataloader.path: empty; name text files or globs, such as [\"corpus/*.txt\"]");
    for (size_t i = 0; i < g->path.n; i++)
        TT_TRY(expand(env->job_dir, g->path.items[i], files, err));
    TT_TRY(read_files(c, env, files, &n_empty, &n_bytes, err));
    if (n_empty == files->n)
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s%s is empty", files->items[0],
                       files->n > 1 ? " (as every other file)" : "");
    c->seq_len = env->seq_len;
    c->document_mask = g->document_mask;
    c->n_samples = c->n_tokens > 0 ? (int64_t)(c->n_tokens - 1) / env->seq_len : 0;
    if (c->n_samples < 1)
        return TT_FAIL(
            err, TT_EINVAL,
            "dataloader.path: %zu files give %zu tokens, and one sample of training.seq_len %lld "
            "takes %lld; add text or lower training.seq_len",
            files->n, c->n_tokens, (long long)env->seq_len, (long long)env->seq_len + 1);
    if (n_empty > 0)
        tt_log(TT_INFO, "data", "%zu of %zu files are empty and were left out", n_empty, files->n);
    tt_log(TT_INFO, "data", "%zu files, %zu bytes, %zu tokens, %lld samples an epoch", files->n,
           n_bytes, c->n_tokens, (long long)c->n_samples);
    return TT_OK;
}

static tt_status open_text(const void *cfg, const tt_dataloader_env *env, void **self,
                           tt_error *err)
{
    const config *g = cfg;
    names files = {0};
    corpus *c = calloc(1, sizeof *c);
    if (!c)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening the text loader");
    c->document_mask = g->document_mask;
    const tt_status status = load(g, env, c, &files, err);
    names_free(&files);
    if (status != TT_OK) {
        close_text(c);
        return status;
    }
    void *tight = realloc(c->tokens, c->n_tokens * c->width);
    if (tight)
        c->tokens = tight;
    *self = c;
    return TT_OK;
}

static int64_t n_samples(void *self)
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

static tt_status read_text(void *self, int64_t i, tt_sample *out, tt_error *err)
{
    const corpus *c = self;
    if (i < 0 || i >= c->n_samples || out->seq_len != c->seq_len)
        return TT_FAIL(err, TT_EINTERNAL,
                       "text loader: sample %lld of %lld, %lld tokens, was asked for", (long long)i,
                       (long long)c->n_samples, (long long)out->seq_len);
    const size_t begin = (size_t)(i * c->seq_len);
    for (int64_t t = 0; t < c->seq_len; t++) {
        out->ids[t] = get(c, begin + (size_t)t);
        out->labels[t] = get(c, begin + (size_t)t + 1);
    }
    if (c->document_mask)
        mark_documents(c, begin, out);
    return TT_OK;
}

static const tt_dataloader_vt vt = {sizeof vt, open_text, close_text, n_samples, read_text, 1};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "text", "files and globs of plain text, a document each",
                 config, options, &vt),
};

TT_PLUGIN("text", "1.0", components);
