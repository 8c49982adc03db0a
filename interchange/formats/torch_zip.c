/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/pickle.h"
#include "interchange/formats/torch_file.h"
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>

/* A zip file is read from its end: the end record says where the directory is, which lists the entries. Sizes
 * and places above 2^32 are in zip64's records. Source: PKWARE's APPNOTE.TXT, 4.3. */

enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    MOST_COMMENT = 65535
};
#define END_MAGIC UINT32_C(0x06054b50)
#define LOCATOR_MAGIC UINT32_C(0x07064b50)
#define END64_MAGIC UINT32_C(0x06064b50)
#define ENTRY_MAGIC UINT32_C(0x02014b50)
#define LOCAL_MAGIC UINT32_C(0x04034b50)

typedef struct reading {
    const char *path;
    const uint8_t *bytes;
    size_t n;
    tt_error *err;
} reading;

typedef struct directory {
    uint64_t n_entries, bytes, at;
} directory;

/* What the directory says of an entry. */
typedef struct record {
    uint64_t packed, bytes, at; /* at: of its local header */
    unsigned flags, method;
} record;

static uint64_t number(const uint8_t *p, int width)
{
    uint64_t x = 0;
    for (int i = width - 1; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

static tt_status zip_bad(const reading *r, const char *fmt, ...) TT_PRINTF(2, 3);
static tt_status zip_bad(const reading *r, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tt_plain_text(text);
    return tt_fail(r->err, TT_EFORMAT, "%s: %s", r->path, text);
}

/* Is [at, at + bytes) in the file? */
static bool is_inside(const reading *r, uint64_t at, uint64_t bytes)
{
    return at <= r->n && bytes <= r->n - at;
}

/* The place of the end record: the last one whose comment ends the file. */
static bool find_end(const reading *r, size_t *at)
{
    for (size_t comment = 0; comment <= MOST_COMMENT && comment + END_BYTES <= r->n; comment++) {
        const uint8_t *p = r->bytes + (r->n - END_BYTES - comment);
        if (number(p, 4) == END_MAGIC && number(p + 20, 2) == comment) {
            *at = r->n - END_BYTES - comment;
            return true;
        }
    }
    return false;
}

static tt_status read_end(const reading *r, directory *d)
{
    size_t end = 0;
    if (!find_end(r, &end))
        return zip_bad(r,
                       "no end of a zip file: cut short (copy it again), or no file of torch.save");
    const uint8_t *p = r->bytes + end;
    if (number(p + 4, 2) || number(p + 6, 2) || number(p + 8, 2) != number(p + 10, 2))
        return zip_bad(r, "a zip file in several parts is not read");
    *d = (directory){number(p + 10, 2), number(p + 12, 4), number(p + 16, 4)};
    if (end >= LOCATOR_BYTES && number(p - LOCATOR_BYTES, 4) == LOCATOR_MAGIC) {
        const uint64_t at = number(p - LOCATOR_BYTES + 8, 8);
        if (!is_inside(r, at, END64_BYTES) || number(r->bytes + at, 4) != END64_MAGIC)
            return zip_bad(r, "its zip64 end record is not where it should be");
        p = r->bytes + at;
        *d = (directory){number(p + 32, 8), number(p + 40, 8), number(p + 48, 8)};
        end = (size_t)at;
    }
    if (!is_inside(r, d->at, d->bytes) || d->at + d->bytes > end)
        return zip_bad(r, "its directory [%llu, +%llu) is not in the file's %zu bytes: cut short?",
                       (unsigned long long)d->at, (unsigned long long)d->bytes, r->n);
    if (d->n_entries > d->bytes / ENTRY_BYTES)
        return zip_bad(r, "its directory of %llu bytes has no room for %llu entries",
                       (unsigned long long)d->bytes, (unsigned long long)d->n_entries);
    return TT_OK;
}

/* Replaces what is 2^32 - 1 in the record by the numbers of its zip64 field. */
static tt_status zip_widen(const reading *r, const uint8_t *extra, size_t n, record *e)
{
    uint64_t *const wide[] = {&e->bytes, &e->packed, &e->at};
    for (size_t size; n >= 4; extra += 4 + size, n -= 4 + size) {
        size = (size_t)number(extra + 2, 2);
        if (size > n - 4)
            return zip_bad(r, "an extra field of its directory is too long");
        const uint8_t *p = extra + 4;
        size_t left = size;
        for (size_t i = 0; number(extra, 2) == 1 && i < TT_COUNT(wide); i++) {
            if (*wide[i] != UINT32_MAX || left < 8)
                continue;
            *wide[i] = number(p, 8);
            p += 8;
            left -= 8;
        }
    }
    return TT_OK;
}

/* Checks an entry and finds its bytes, by its local header. n: bytes of its name, at p. */
static tt_status find_data(const reading *r, const directory *d, const record *e, const uint8_t *p,
                           size_t n, tt_zip_entry *out)
{
    const char *name = out->name;
    if (strlen(name) != n || tt_utf8_valid(name, n) != n)
        return zip_bad(r, "the name of an entry is not UTF-8, or has a 0");
    if (e->flags & 1u)
        return zip_bad(r, "entry %.200s is encrypted", name);
    if (e->method != 0 || e->packed != e->bytes)
        return zip_bad(r, "entry %.200s is compressed, which torch.save does not do", name);
    if (e->at > d->at || d->at - e->at < LOCAL_BYTES)
        return zip_bad(r, "entry %.200s begins at byte %llu, after the entries' end at %llu", name,
                       (unsigned long long)e->at, (unsigned long long)d->at);
    const uint8_t *local = r->bytes + e->at;
    const uint64_t n_name = number(local + 26, 2), n_extra = number(local + 28, 2);
    if (number(local, 4) != LOCAL_MAGIC || n_name != n ||
        d->at - e->at < LOCAL_BYTES + n_name + n_extra || memcmp(local + LOCAL_BYTES, p, n) != 0)
        return zip_bad(r, "entry %.200s is not at byte %llu, where the directory says it is", name,
                       (unsigned long long)e->at);
    out->begin = (size_t)(e->at);
    const size_t data = out->begin + LOCAL_BYTES + (size_t)(n_name + n_extra);
    if (e->bytes > d->at - data)
        return zip_bad(r, "entry %.200s has %llu bytes, but the file only %llu for it: cut short?",
                       name, (unsigned long long)e->bytes, (unsigned long long)(d->at - data));
    out->data = r->bytes + data;
    out->bytes = (size_t)e->bytes;
    out->end = data + out->bytes;
    return TT_OK;
}

/* The entry of the directory at *at, which moves on. */
static tt_status read_entry(const reading *r, const directory *d, uint64_t *at, tt_arena *a,
                            tt_zip_entry *out)
{
    const uint64_t left = d->at + d->bytes - *at;
    const uint8_t *p = r->bytes + *at;
    if (left < ENTRY_BYTES || number(p, 4) != ENTRY_MAGIC)
        return zip_bad(r, "its directory has no entry at byte %llu", (unsigned long long)*at);
    const size_t n_name = (size_t)number(p + 28, 2), n_extra = (size_t)number(p + 30, 2),
                 n = ENTRY_BYTES + n_name + n_extra + (size_t)number(p + 32, 2);
    if (n > left)
        return zip_bad(r, "its directory is cut short at byte %llu", (unsigned long long)*at);
    record e = {number(p + 20, 4), number(p + 24, 4), number(p + 42, 4), (unsigned)number(p + 8, 2),
                (unsigned)number(p + 10, 2)};
    TT_TRY(zip_widen(r, p + ENTRY_BYTES + n_name, n_extra, &e));
    out->name = tt_arena_strn(a, (const char *)p + ENTRY_BYTES, n_name);
    *at += n;
    return find_data(r, d, &e, p + ENTRY_BYTES, n_name, out);
}

static int by_begin(const void *a, const void *b)
{
    const tt_zip_entry *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Bytes that two entries share are an attack's, or a damaged file's. */
static tt_status check_disjoint(const reading *r, const tt_zip_entry *entries, size_t n)
{
    tt_arena *a = tt_arena_new();
    tt_map *names = tt_map_new(a);
    tt_status s = TT_OK;
    for (size_t i = 0; s == TT_OK && i < n; i++) {
        if (i && entries[i].begin < entries[i - 1].end)
            s = zip_bad(r, "entries %.150s and %.150s overlap", entries[i - 1].name,
                        entries[i].name);
        else if (tt_map_get(names, entries[i].name))
            s = zip_bad(r, "two entries are named %.200s", entries[i].name);
        tt_map_set(names, entries[i].name, (void *)(uintptr_t)&entries[i]);
    }
    tt_arena_free(a);
    return s;
}

tt_status tt_zip_parse(const char *path, const uint8_t *bytes, size_t n, tt_arena *a,
                       tt_zip_entry **out, size_t *n_out, tt_error *err)
{
    const reading r = {path, bytes, n, err};
    directory d = {0};
    TT_TRY(read_end(&r, &d));
    uint64_t at = d.at;
    tt_zip_entry *entries = tt_arena_array(a, (size_t)d.n_entries + 1, sizeof *entries);
    for (uint64_t i = 0; i < d.n_entries; i++)
        TT_TRY(read_entry(&r, &d, &at, a, &entries[i]));
    if (d.n_entries)
        qsort(entries, (size_t)d.n_entries, sizeof *entries, by_begin);
    TT_TRY(check_disjoint(&r, entries, (size_t)d.n_entries));
    *out = entries;
    *n_out = (size_t)d.n_entries;
    return TT_OK;
}
