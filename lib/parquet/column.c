/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "parquet/impl.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* The pages of a column in a row group: a dictionary perhaps, then data. One page is in memory. */

enum { DATA_PAGE = 0, INDEX_PAGE = 1, DICTIONARY_PAGE = 2, DATA_PAGE_V2 = 3 };
enum { LEVELS_RLE = 3, HEADER_AT_FIRST = 1 << 10, HEADER_AT_MOST = 1 << 24 };

typedef struct header { /* PageHeader */
    int64_t type, unpacked, packed, crc, values, encoding, def_encoding, rep_encoding, def_bytes,
        rep_bytes, compressed;
    bool has_crc;
} header;

/* "messages.list.element.role"; of a long one the end. */
static const char *print_path(const tt_pq_node *node, char *out, size_t cap)
{
    size_t at = cap - 1;
    out[at] = 0;
    for (; node->parent; node = node->parent) {
        const size_t n = TT_MIN(strlen(node->name), at);
        at -= n;
        memcpy(out + at, node->name + strlen(node->name) - n, n);
        if (node->parent->parent && at > 0)
            out[--at] = '.';
    }
    return out + at;
}

tt_status tt_pq_bad(const tt_pq_column *c, tt_error *err, const char *format, ...)
{
    char text[300], path[200];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return tt_fail(err, TT_EINVAL, "%s: column %s: %s", c->file,
                   print_path(c->node, path, sizeof path), text);
}

tt_status tt_pq_read_at(int fd, const char *file, void *out, size_t n, int64_t at, tt_error *err)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(at + (int64_t)done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tt_fail(err, TT_EIO, "cannot read %s: %s", file, strerror(errno));
        if (got == 0)
            return tt_fail(err, TT_EINVAL, "%s has become shorter", file);
        done += (size_t)got;
    }
    return TT_OK;
}

static bool buffer_room(uint8_t **p, size_t *cap, size_t n)
{
    if (n <= *cap)
        return true;
    uint8_t *grown = realloc(*p, n);
    if (!grown)
        return false;
    *p = grown;
    *cap = n;
    return true;
}

/* ---- headers ---- */

/* DataPageHeader, DataPageHeaderV2 and DictionaryPageHeader: what their fields are is in `where`, by number from 1. */
static void read_page_of(tt_pq_thrift *t, int64_t *const *where, int n)
{
    const int16_t outer = tt_pq_begin(t);
    for (tt_pq_wire w; (w = tt_pq_field(t)) != TT_PQ_STOP;)
        if (t->field >= 1 && t->field <= n && where[t->field - 1])
            *where[t->field - 1] = tt_pq_int(t, w);
        else
            tt_pq_skip(t, w);
    tt_pq_end(t, outer);
}

static void read_header(tt_pq_thrift *t, header *h)
{
    int64_t *const data[] = {&h->values, &h->encoding, &h->def_encoding, &h->rep_encoding};
    int64_t *const second[] = {&h->values,    NULL,          NULL,          &h->encoding,
                               &h->def_bytes, &h->rep_bytes, &h->compressed};
    *h = (header){.compressed = 1};
    tt_pq_begin(t);
    for (tt_pq_wire w; (w = tt_pq_field(t)) != TT_PQ_STOP;) {
        const bool is_struct = w == TT_PQ_STRUCT;
        if (t->field == 1)
            h->type = tt_pq_int(t, w);
        else if (t->field == 2)
            h->unpacked = tt_pq_int(t, w);
        else if (t->field == 3)
            h->packed = tt_pq_int(t, w);
        else if (t->field == 4) {
            h->crc = tt_pq_int(t, w);
            h->has_crc = true;
        } else if ((t->field == 5 || t->field == 7) && is_struct)
            read_page_of(t, data, t->field == 5 ? 4 : 2);
        else if (t->field == 8 && is_struct)
            read_page_of(t, second, 7);
        else
            tt_pq_skip(t, w);
    }
}

/* Reads the header of the page at c->at and its packed bytes, and goes past it. */
static tt_status next_page(tt_pq_column *c, header *h, tt_error *err)
{
    const int64_t end = c->chunk.offset + c->chunk.bytes;
    size_t want = HEADER_AT_FIRST;
    tt_pq_thrift t;
    for (;; want *= 8) { /* a header may hold statistics of any size */
        const size_t n = (size_t)TT_MIN((int64_t)want, end - c->at);
        if (n == 0)
            return tt_pq_bad(c, err, "its pages end before its values do");
        if (!buffer_room(&c->packed, &c->packed_cap, n))
            return tt_pq_bad(c, err, "there is no memory for a page header of %zu bytes", n);
        TT_TRY(tt_pq_read_at(c->fd, c->file, c->packed, n, c->at, err));
        t = (tt_pq_thrift){.at = c->packed, .end = c->packed + n};
        read_header(&t, h);
        if (!t.fault)
            break;
        if (n < want || want >= HEADER_AT_MOST)
            return tt_pq_bad(c, err, "the page header at byte %lld is damaged: %s",
                             (long long)c->at, t.fault);
    }
    c->at += t.at - c->packed;
    if (h->packed < 0 || h->packed > end - c->at || h->unpacked < 0 || h->unpacked > INT32_MAX)
        return tt_pq_bad(c, err, "the page before byte %lld has no valid size", (long long)c->at);
    if (!buffer_room(&c->packed, &c->packed_cap, (size_t)h->packed))
        return tt_pq_bad(c, err, "there is no memory for a page of %lld bytes",
                         (long long)h->packed);
    TT_TRY(tt_pq_read_at(c->fd, c->file, c->packed, (size_t)h->packed, c->at, err));
    if (h->has_crc && (uint32_t)crc32(0, c->packed, (uInt)h->packed) != (uint32_t)(uint64_t)h->crc)
        return tt_pq_bad(c, err, "the page at byte %lld has another checksum than its header says",
                         (long long)c->at);
    c->at += h->packed;
    return TT_OK;
}

/* Unpacks the page but for its first `kept` bytes, which are not compressed, into *to. */
static tt_status unpack_page(tt_pq_column *c, const header *h, int64_t kept, uint8_t **to,
                             size_t *cap, tt_error *err)
{
    const int codec = h->compressed ? c->chunk.codec : 0;
    if (kept > h->packed || kept > h->unpacked)
        return tt_pq_bad(c, err, "a page is shorter than its levels");
    if ((uint64_t)(h->unpacked - kept) > tt_pq_unpacked_most(codec, (uint64_t)(h->packed - kept)))
        return tt_pq_bad(c, err, "the page before byte %lld has not the size that its header says",
                         (long long)c->at);
    if (!buffer_room(to, cap, (size_t)h->unpacked + 1))
        return tt_pq_bad(c, err, "there is no memory for a page of %lld bytes",
                         (long long)h->unpacked);
    memcpy(*to, c->packed, (size_t)kept);
    const size_t n = (size_t)(h->packed - kept), out_n = (size_t)(h->unpacked - kept);
    const char *fault =
        n == 0 && out_n == 0 ? NULL : tt_pq_unpack(codec, c->packed + kept, n, *to + kept, out_n);
    return fault ? tt_pq_bad(c, err, "the page before byte %lld: %s", (long long)c->at, fault)
                 : TT_OK;
}

/* ---- pages ---- */

static tt_status read_dictionary(tt_pq_column *c, const header *h, tt_error *err)
{
    tt_pq_values v = {.type = c->node->type, .width = c->node->width};
    if (c->values.dictionary)
        return tt_pq_bad(c, err, "a row group has two dictionaries");
    TT_TRY(unpack_page(c, h, 0, &c->dictionary, &c->dictionary_cap, err));
    const int64_t least = v.width ? v.width : v.type == TT_PQ_BYTES ? 4 : 1;
    if (h->values < 0 || h->values > h->unpacked / least || v.type == TT_PQ_BOOLEAN)
        return tt_pq_bad(c, err, "its dictionary is damaged");
    free(c->entries);
    c->entries = calloc((size_t)h->values + 1, sizeof *c->entries);
    if (!c->entries)
        return tt_pq_bad(c, err, "there is no memory for a dictionary of %lld values",
                         (long long)h->values);
    tt_pq_values_open(&v, 0, c->dictionary, c->dictionary + h->unpacked); /* PLAIN */
    for (int64_t i = 0; i < h->values; i++)
        if (!tt_pq_values_next(&v, &c->entries[i]))
            return tt_pq_bad(c, err, "its dictionary is damaged");
    c->values.dictionary = c->entries;
    c->values.n_dictionary = (size_t)h->values;
    return TT_OK;
}

static int bits_for(int level)
{
    int n = 0;
    while (level >> n)
        n++;
    return n;
}

/* The levels of version 1: a length of 4 bytes before them; none if the highest is 0. */
static bool first_levels(tt_pq_runs *r, int highest, int64_t encoding, const uint8_t **at,
                         const uint8_t *end)
{
    *r = (tt_pq_runs){0};
    if (!highest)
        return true;
    if (encoding != LEVELS_RLE || end - *at < 4)
        return false;
    const uint32_t n = (uint32_t)((*at)[0] | (*at)[1] << 8 | (*at)[2] << 16) | (uint32_t)(*at)[3]
                                                                                   << 24;
    if (n > (uint64_t)(end - *at) - 4)
        return false;
    *r = (tt_pq_runs){.at = *at + 4, .end = *at + 4 + n, .width = bits_for(highest)};
    *at += 4 + n;
    return true;
}

static tt_status read_data(tt_pq_column *c, const header *h, tt_error *err)
{
    const tt_pq_node *node = c->node;
    const bool second = h->type == DATA_PAGE_V2;
    const int64_t rep_bytes = second ? h->rep_bytes : 0, def_bytes = second ? h->def_bytes : 0;
    if (h->values < 0 || h->values > c->left)
        return tt_pq_bad(c, err, "a page has more values than its row group");
    if (rep_bytes < 0 || def_bytes < 0 || rep_bytes > h->packed || def_bytes > h->packed)
        return tt_pq_bad(c, err, "a page is shorter than its levels");
    TT_TRY(unpack_page(c, h, rep_bytes + def_bytes, &c->page, &c->page_cap, err));
    const uint8_t *at = c->page, *end = c->page + h->unpacked;
    if (second) {
        c->reps = (tt_pq_runs){.at = at, .end = at + rep_bytes, .width = bits_for(node->rep)};
        at += rep_bytes;
        c->defs = (tt_pq_runs){.at = at, .end = at + def_bytes, .width = bits_for(node->def)};
        at += def_bytes;
    } else if (!first_levels(&c->reps, node->rep, h->rep_encoding, &at, end) ||
               !first_levels(&c->defs, node->def, h->def_encoding, &at, end)) {
        return tt_pq_bad(c, err, "the levels of a page are damaged, or not in the encoding RLE");
    }
    const char *fault = tt_pq_values_open(&c->values, (int)h->encoding, at, end);
    if (fault)
        return tt_pq_bad(c, err, "the page before byte %lld: %s", (long long)c->at, fault);
    c->in_page = h->values;
    c->left -= h->values;
    return TT_OK;
}

void tt_pq_column_begin(tt_pq_column *c, const tt_pq_chunk *chunk)
{
    c->chunk = *chunk;
    c->at = chunk->offset;
    c->left = chunk->values;
    c->in_page = 0;
    c->looked = false;
    c->values.type = c->node->type;
    c->values.width = c->node->width;
    c->values.dictionary = NULL;
    c->values.n_dictionary = 0;
}

void tt_pq_column_free(tt_pq_column *c)
{
    free(c->packed);
    free(c->page);
    free(c->dictionary);
    free(c->entries);
    free(c->values.whole);
}

tt_status tt_pq_look(tt_pq_column *c, bool *more, tt_error *err)
{
    *more = true;
    if (c->looked)
        return TT_OK;
    while (c->in_page == 0) {
        header h;
        if (c->left == 0) {
            *more = false;
            return TT_OK;
        }
        TT_TRY(next_page(c, &h, err));
        if (h.type == DICTIONARY_PAGE)
            TT_TRY(read_dictionary(c, &h, err));
        else if (h.type == DATA_PAGE || h.type == DATA_PAGE_V2)
            TT_TRY(read_data(c, &h, err));
    }
    c->rep = c->def = 0;
    if ((c->node->rep && !tt_pq_runs_next(&c->reps, &c->rep)) ||
        (c->node->def && !tt_pq_runs_next(&c->defs, &c->def)) || c->rep > (uint32_t)c->node->rep ||
        c->def > (uint32_t)c->node->def)
        return tt_pq_bad(c, err, "the levels of a page are damaged");
    c->looked = true;
    return TT_OK;
}

tt_status tt_pq_take(tt_pq_column *c, tt_pq_value *out, tt_error *err)
{
    c->looked = false;
    c->in_page--;
    if (c->def == (uint32_t)c->node->def && !tt_pq_values_next(&c->values, out))
        return tt_pq_bad(c, err, "the values of the page before byte %lld end early or are damaged",
                         (long long)c->at);
    return TT_OK;
}
