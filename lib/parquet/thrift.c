/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/impl.h"
#include <string.h>

enum { DEEPEST = 32 }; /* nesting of what is skipped; Parquet's own structures nest 6 deep */

static void fail(tt_pq_thrift *t, const char *why)
{
    if (!t->fault)
        t->fault = why;
    t->at = t->end;
}

uint64_t tt_pq_varint(const uint8_t **at, const uint8_t *end, bool *good)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (*at == end)
            break;
        const uint8_t b = *(*at)++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    *good = false;
    return 0;
}

static uint64_t varint(tt_pq_thrift *t)
{
    bool good = true;
    const uint64_t v = tt_pq_varint(&t->at, t->end, &good);
    if (!good)
        fail(t, "it ends within a number");
    return v;
}

static int64_t zigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static uint8_t byte_of(tt_pq_thrift *t)
{
    if (t->at == t->end) {
        fail(t, "it ends within a structure");
        return 0;
    }
    return *t->at++;
}

int16_t tt_pq_begin(tt_pq_thrift *t)
{
    const int16_t outer = t->field;
    t->field = 0;
    if (++t->depth > DEEPEST)
        fail(t, "its structures are nested too deep");
    return outer;
}

void tt_pq_end(tt_pq_thrift *t, int16_t outer)
{
    t->field = outer;
    t->depth--;
}

tt_pq_wire tt_pq_field(tt_pq_thrift *t)
{
    if (t->fault)
        return TT_PQ_STOP;
    const uint8_t head = byte_of(t);
    const int delta = head >> 4;
    if (!(head & 15))
        return TT_PQ_STOP;
    const int64_t number = delta ? t->field + delta : zigzag(varint(t));
    if (number < 0 || number > INT16_MAX || (head & 15) > TT_PQ_STRUCT) {
        fail(t, "a field has no valid number or type");
        return TT_PQ_STOP;
    }
    t->field = (int16_t)number;
    return t->fault ? TT_PQ_STOP : (tt_pq_wire)(head & 15);
}

int64_t tt_pq_int(tt_pq_thrift *t, tt_pq_wire wire)
{
    switch (wire) {
    case TT_PQ_TRUE:
        return 1;
    case TT_PQ_FALSE:
        return 0;
    case TT_PQ_I8:
        return (int8_t)byte_of(t);
    case TT_PQ_I16:
    case TT_PQ_I32:
    case TT_PQ_I64:
        return zigzag(varint(t));
    default:
        fail(t, "a field that should be a number is none");
        return 0;
    }
}

const char *tt_pq_binary(tt_pq_thrift *t, size_t *n)
{
    const uint64_t size = varint(t);
    const char *at = (const char *)t->at;
    *n = 0;
    if (size > (uint64_t)(t->end - t->at)) {
        fail(t, "it ends within a text");
        return "";
    }
    t->at += size;
    *n = (size_t)size;
    return at;
}

size_t tt_pq_list(tt_pq_thrift *t, tt_pq_wire *of)
{
    const uint8_t head = byte_of(t);
    const uint64_t n = head >> 4 == 15 ? varint(t) : head >> 4;
    *of = (tt_pq_wire)(head & 15);
    if (n > (uint64_t)(t->end - t->at)) /* each element takes a byte at least */
        fail(t, "it ends within a list");
    return t->fault ? 0 : (size_t)n;
}

static void skip_fields(tt_pq_thrift *t)
{
    const int16_t outer = tt_pq_begin(t);
    for (tt_pq_wire w; (w = tt_pq_field(t)) != TT_PQ_STOP;)
        tt_pq_skip(t, w);
    tt_pq_end(t, outer);
}

/* Within lists and maps a boolean takes a byte. */
static void skip_element(tt_pq_thrift *t, tt_pq_wire wire)
{
    if (wire == TT_PQ_TRUE || wire == TT_PQ_FALSE)
        byte_of(t);
    else
        tt_pq_skip(t, wire);
}

static void skip_map(tt_pq_thrift *t)
{
    const uint64_t n = varint(t);
    const uint8_t types = n ? byte_of(t) : 0;
    if (n > (uint64_t)(t->end - t->at))
        fail(t, "it ends within a map");
    for (uint64_t i = 0; i < n && !t->fault; i++) {
        skip_element(t, (tt_pq_wire)(types >> 4));
        skip_element(t, (tt_pq_wire)(types & 15));
    }
}

void tt_pq_skip(tt_pq_thrift *t, tt_pq_wire wire)
{
    size_t n;
    tt_pq_wire of;
    if (++t->depth > DEEPEST)
        fail(t, "its structures are nested too deep");
    switch (wire) {
    case TT_PQ_DOUBLE:
        if (t->end - t->at < 8)
            fail(t, "it ends within a number");
        else
            t->at += 8;
        break;
    case TT_PQ_BINARY:
        tt_pq_binary(t, &n);
        break;
    case TT_PQ_LIST:
    case TT_PQ_SET:
        n = tt_pq_list(t, &of);
        for (size_t i = 0; i < n && !t->fault; i++)
            skip_element(t, of);
        break;
    case TT_PQ_MAP:
        skip_map(t);
        break;
    case TT_PQ_STRUCT:
        skip_fields(t);
        break;
    default:
        tt_pq_int(t, wire);
    }
    t->depth--;
}
