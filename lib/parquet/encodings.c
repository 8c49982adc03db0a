/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/impl.h"
#include <stdlib.h>
#include <string.h>

/* The encodings of apache/parquet-format, Encodings.md. */

enum {
    PLAIN = 0,
    PLAIN_DICTIONARY = 2,
    RLE = 3,
    DELTA_BINARY_PACKED = 5,
    DELTA_LENGTH_BYTE_ARRAY = 6,
    DELTA_BYTE_ARRAY = 7,
    RLE_DICTIONARY = 8,
    BYTE_STREAM_SPLIT = 9
};

static uint64_t little(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* The width bits (0 to 64) that begin at a bit of p, the lowest first. */
static uint64_t bits_at(const uint8_t *p, uint64_t bit, int width)
{
    uint64_t v = 0;
    for (int have = 0; have < width;) {
        const int from = (int)(bit & 7), take = TT_MIN(8 - from, width - have);
        v |= (uint64_t)(p[bit >> 3] >> from & ((1 << take) - 1)) << have;
        have += take;
        bit += (uint64_t)take;
    }
    return v;
}

/* ---- runs ---- */

static bool begin_run(tt_pq_runs *r)
{
    bool good = true;
    const uint64_t head = tt_pq_varint(&r->at, r->end, &good);
    const int bytes = (r->width + 7) / 8;
    const uint64_t have = (uint64_t)(r->end - r->at);
    r->packed = head & 1;
    r->left = head >> 1;
    if (!good || r->left > UINT32_MAX)
        return false;
    if (!r->packed) {
        if (have < (uint64_t)bytes)
            return false;
        r->value = (uint32_t)little(r->at, bytes);
        r->at += bytes;
        return r->width == 32 || r->value >> r->width == 0;
    }
    /* groups of 8 values; some writers leave out the end of the last group */
    uint64_t size = r->left * (uint64_t)r->width;
    r->left *= 8;
    if (size > have) {
        size = have;
        r->left = 8 * have / (uint64_t)r->width;
    }
    r->values = r->at;
    r->at += size;
    r->bit = 0;
    return true;
}

bool tt_pq_runs_next(tt_pq_runs *r, uint32_t *out)
{
    while (r->left == 0)
        if (r->at == r->end || !begin_run(r))
            return false;
    r->left--;
    *out = r->value;
    if (r->packed) {
        *out = (uint32_t)bits_at(r->values, r->bit, r->width);
        r->bit += (uint64_t)r->width;
    }
    return true;
}

/* ---- deltas ---- */

static uint64_t zigzag(uint64_t v)
{
    return v >> 1 ^ (0 - (v & 1));
}

bool tt_pq_deltas_open(tt_pq_deltas *d, const uint8_t *at, const uint8_t *end)
{
    bool good = true;
    *d = (tt_pq_deltas){.at = at, .end = end};
    const uint64_t block = tt_pq_varint(&d->at, end, &good);
    d->minis = tt_pq_varint(&d->at, end, &good);
    d->total = tt_pq_varint(&d->at, end, &good);
    d->value = zigzag(tt_pq_varint(&d->at, end, &good));
    if (!good || d->minis == 0 || block > 1 << 20 || block % d->minis != 0)
        return false;
    d->per_mini = block / d->minis;
    d->mini = d->minis; /* the first delta begins a block */
    return d->per_mini > 0 && d->per_mini % 8 == 0;
}

static bool begin_block(tt_pq_deltas *d)
{
    bool good = true;
    d->least = zigzag(tt_pq_varint(&d->at, d->end, &good));
    if (!good || (uint64_t)(d->end - d->at) < d->minis)
        return false;
    d->widths = d->at;
    d->at += d->minis;
    d->mini = 0;
    return true;
}

/* Begins the miniblock d->mini, a new block where the last one has ended. */
static bool begin_mini(tt_pq_deltas *d)
{
    if (d->mini == d->minis && !begin_block(d))
        return false;
    const uint64_t width = d->widths[d->mini], size = d->per_mini / 8 * width;
    if (width > 64 || size > (uint64_t)(d->end - d->at))
        return false;
    d->data = d->at;
    d->at += size;
    d->in_mini = 0;
    return true;
}

bool tt_pq_deltas_next(tt_pq_deltas *d, uint64_t *out)
{
    if (d->given == d->total)
        return false;
    if (d->given++ > 0) {
        if (d->in_mini == 0 && !begin_mini(d))
            return false;
        const int width = d->widths[d->mini];
        d->value += d->least + bits_at(d->data, d->in_mini * (uint64_t)width, width);
        if (++d->in_mini == d->per_mini) {
            d->in_mini = 0;
            d->mini++;
        }
    }
    *out = d->value;
    return true;
}

const uint8_t *tt_pq_deltas_end(tt_pq_deltas *d)
{
    for (uint64_t left = d->total > 1 ? d->total - 1 : 0; left > 0;
         left -= TT_MIN(left, d->per_mini)) {
        if (!begin_mini(d))
            return NULL;
        d->mini++;
    }
    return d->at;
}

/* ---- values ---- */

static bool fixed_width(const tt_pq_values *v)
{
    return v->width > 0;
}

static const char *open_lengths(tt_pq_values *v)
{
    tt_pq_deltas walk;
    if (!tt_pq_deltas_open(&v->deltas, v->at, v->end))
        return "its lengths are damaged";
    walk = v->deltas;
    v->at = tt_pq_deltas_end(&walk);
    return v->at ? NULL : "its lengths are damaged";
}

static const char *open_prefixes(tt_pq_values *v)
{
    tt_pq_deltas walk;
    if (!tt_pq_deltas_open(&v->prefixes, v->at, v->end))
        return "its prefixes are damaged";
    walk = v->prefixes;
    v->at = tt_pq_deltas_end(&walk);
    v->whole_n = 0;
    return v->at ? open_lengths(v) : "its prefixes are damaged";
}

static const char *open_indices(tt_pq_values *v)
{
    if (!v->dictionary)
        return "it refers to a dictionary that is missing";
    if (v->at == v->end) { /* of a page of nulls alone */
        v->runs = (tt_pq_runs){0};
        return NULL;
    }
    v->runs = (tt_pq_runs){.at = v->at + 1, .end = v->end, .width = *v->at};
    return *v->at <= 32 ? NULL : "its dictionary's indices are wider than 32 bits";
}

static const char *open_booleans(tt_pq_values *v)
{
    if (v->end - v->at < 4 || little(v->at, 4) > (uint64_t)(v->end - v->at) - 4)
        return "its booleans are cut off";
    v->runs = (tt_pq_runs){.at = v->at + 4, .end = v->at + 4 + little(v->at, 4), .width = 1};
    return NULL;
}

const char *tt_pq_values_open(tt_pq_values *v, int encoding, const uint8_t *at, const uint8_t *end)
{
    const bool integer = v->type == TT_PQ_INT32 || v->type == TT_PQ_INT64,
               bytes = v->type == TT_PQ_BYTES;
    static const char other[] = "its encoding does not fit its type";
    v->encoding = encoding;
    v->at = at;
    v->end = end;
    v->given = 0;
    switch (encoding) {
    case PLAIN:
        return NULL;
    case PLAIN_DICTIONARY:
        v->encoding = RLE_DICTIONARY;
        return open_indices(v);
    case RLE_DICTIONARY:
        return open_indices(v);
    case RLE:
        return v->type == TT_PQ_BOOLEAN ? open_booleans(v) : other;
    case DELTA_BINARY_PACKED:
        if (!integer)
            return other;
        return tt_pq_deltas_open(&v->deltas, at, end) ? NULL : "its deltas are damaged";
    case DELTA_LENGTH_BYTE_ARRAY:
        return bytes ? open_lengths(v) : other;
    case DELTA_BYTE_ARRAY:
        return bytes || v->type == TT_PQ_FIXED ? open_prefixes(v) : other;
    case BYTE_STREAM_SPLIT:
        v->total = fixed_width(v) ? (uint64_t)(end - at) / (uint64_t)v->width : 0;
        return fixed_width(v) ? NULL : other;
    default:
        return "it has an encoding that is not read";
    }
}

/* Bytes of the page as a value. */
static bool give(tt_pq_values *v, const uint8_t *p, size_t n, tt_pq_value *out)
{
    *out = (tt_pq_value){.p = p, .n = n};
    if (v->type != TT_PQ_BYTES && v->type != TT_PQ_FIXED) {
        const uint64_t bits = little(p, (int)n);
        out->bits = v->type == TT_PQ_INT32 ? (uint64_t)(int64_t)(int32_t)(uint32_t)bits : bits;
    }
    return true;
}

static bool next_plain(tt_pq_values *v, tt_pq_value *out)
{
    size_t n = (size_t)v->width;
    if (v->type == TT_PQ_BOOLEAN) {
        if (v->given / 8 >= (uint64_t)(v->end - v->at))
            return false;
        *out = (tt_pq_value){.bits = v->at[v->given / 8] >> (v->given % 8) & 1};
        v->given++;
        return true;
    }
    if (v->type == TT_PQ_BYTES) {
        if (v->end - v->at < 4)
            return false;
        n = (size_t)little(v->at, 4);
        v->at += 4;
    }
    if (n > (size_t)(v->end - v->at))
        return false;
    v->at += n;
    return give(v, v->at - n, n, out);
}

static bool value_room(tt_pq_values *v, size_t n)
{
    if (v->whole && n <= v->whole_cap)
        return true;
    uint8_t *grown = realloc(v->whole, n + n / 2 + 64);
    if (!grown)
        return false;
    v->whole = grown;
    v->whole_cap = n + n / 2 + 64;
    return true;
}

static bool next_lengths(tt_pq_values *v, tt_pq_value *out)
{
    uint64_t n;
    if (!tt_pq_deltas_next(&v->deltas, &n) || n > (uint64_t)(v->end - v->at))
        return false;
    v->at += n;
    return give(v, v->at - n, (size_t)n, out);
}

static bool next_prefixes(tt_pq_values *v, tt_pq_value *out)
{
    uint64_t prefix, n;
    if (!tt_pq_deltas_next(&v->prefixes, &prefix) || !tt_pq_deltas_next(&v->deltas, &n) ||
        prefix > v->whole_n || n > (uint64_t)(v->end - v->at) ||
        !value_room(v, (size_t)(prefix + n)))
        return false;
    memcpy(v->whole + prefix, v->at, (size_t)n);
    v->at += n;
    v->whole_n = (size_t)(prefix + n);
    return (!fixed_width(v) || v->whole_n == (size_t)v->width) &&
           give(v, v->whole, v->whole_n, out);
}

/* Byte k of value i is byte i of stream k. */
static bool next_split(tt_pq_values *v, tt_pq_value *out)
{
    const size_t width = (size_t)v->width;
    if (v->given == v->total || !value_room(v, width))
        return false;
    for (size_t k = 0; k < width; k++)
        v->whole[k] = v->at[k * v->total + v->given];
    v->given++;
    return give(v, v->whole, width, out);
}

bool tt_pq_values_next(tt_pq_values *v, tt_pq_value *out)
{
    uint32_t i;
    uint64_t bits;
    switch (v->encoding) {
    case PLAIN:
        return next_plain(v, out);
    case RLE:
        if (!tt_pq_runs_next(&v->runs, &i))
            return false;
        *out = (tt_pq_value){.bits = i};
        return true;
    case RLE_DICTIONARY:
        if (!tt_pq_runs_next(&v->runs, &i) || i >= v->n_dictionary)
            return false;
        *out = v->dictionary[i];
        return true;
    case DELTA_BINARY_PACKED:
        if (!tt_pq_deltas_next(&v->deltas, &bits))
            return false;
        *out = (tt_pq_value){
            .bits = v->type == TT_PQ_INT32 ? (uint64_t)(int64_t)(int32_t)(uint32_t)bits : bits};
        return true;
    case DELTA_LENGTH_BYTE_ARRAY:
        return next_lengths(v, out);
    case DELTA_BYTE_ARRAY:
        return next_prefixes(v, out);
    default:
        return next_split(v, out);
    }
}
