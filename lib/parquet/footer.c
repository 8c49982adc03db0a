/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/impl.h"
#include <string.h>

/* FileMetaData of apache/parquet-format, src/main/thrift/parquet.thrift; the numbers of fields are that file's. */

enum { MOST_NODES = 100000, DEEPEST_SCHEMA = 64 };

typedef struct element { /* SchemaElement */
    const char *name;
    int64_t type, width, repetition, children, converted, scale;
    tt_pq_meaning logical;
    bool has_type;
} element;

typedef struct reading {
    tt_pq_thrift t;
    tt_arena *a;
    tt_pq_footer *out;
    element *elements;
    size_t n_elements, next;
    int64_t file_bytes;
} reading;

static void fault(reading *r, const char *why)
{
    if (!r->t.fault)
        r->t.fault = why;
    r->t.at = r->t.end;
}

/* INTEGER {bitWidth, isSigned}, DECIMAL {scale, precision}: the one that says something here. */
static int64_t logical_member(tt_pq_thrift *t, int number)
{
    int64_t v = 0;
    const int16_t outer = tt_pq_begin(t);
    for (tt_pq_wire w; (w = tt_pq_field(t)) != TT_PQ_STOP;)
        if (t->field == number)
            v = tt_pq_int(t, w);
        else
            tt_pq_skip(t, w);
    tt_pq_end(t, outer);
    return v;
}

static void logical_type(tt_pq_thrift *t, element *e)
{
    const int16_t outer = tt_pq_begin(t);
    for (tt_pq_wire w; (w = tt_pq_field(t)) != TT_PQ_STOP;) {
        const bool is_struct = w == TT_PQ_STRUCT;
        if (t->field == 5 && is_struct) {
            e->scale = logical_member(t, 1);
            e->logical = TT_PQ_DECIMAL;
            continue;
        }
        if (t->field == 10 && is_struct) {
            e->logical = logical_member(t, 2) ? TT_PQ_PLAIN_VALUE : TT_PQ_UNSIGNED;
            continue;
        }
        e->logical = t->field == 2    ? TT_PQ_MAP_OF
                     : t->field == 3  ? TT_PQ_LIST_OF
                     : t->field == 14 ? TT_PQ_UUID
                     : t->field == 15 ? TT_PQ_FLOAT16
                                      : TT_PQ_PLAIN_VALUE;
        tt_pq_skip(t, w);
    }
    tt_pq_end(t, outer);
}

/* A column's name becomes a key of JSON. */
static const char *read_name(reading *r, tt_pq_wire w)
{
    size_t n = 0;
    const char *name = w == TT_PQ_BINARY ? tt_pq_binary(&r->t, &n) : NULL;
    if (!name || r->t.fault || memchr(name, 0, n) || tt_utf8_valid(name, n) != n) {
        fault(r, "a column has no name, or one that is not UTF-8");
        return "";
    }
    return tt_arena_strn(r->a, name, n);
}

static void read_element(reading *r, element *e)
{
    tt_pq_thrift *t = &r->t;
    const int16_t outer = tt_pq_begin(t);
    *e = (element){.name = "", .converted = -1};
    for (tt_pq_wire w; (w = tt_pq_field(t)) != TT_PQ_STOP;) {
        switch (t->field) {
        case 1:
            e->type = tt_pq_int(t, w);
            e->has_type = true;
            break;
        case 2:
            e->width = tt_pq_int(t, w);
            break;
        case 3:
            e->repetition = tt_pq_int(t, w);
            break;
        case 4:
            e->name = read_name(r, w);
            break;
        case 5:
            e->children = tt_pq_int(t, w);
            break;
        case 6:
            e->converted = tt_pq_int(t, w);
            break;
        case 7:
            e->scale = tt_pq_int(t, w);
            break;
        case 10:
            if (w == TT_PQ_STRUCT) {
                logical_type(t, e);
                break;
            } /* fall through */
        default:
            tt_pq_skip(t, w);
        }
    }
    tt_pq_end(t, outer);
}

/* What a node means: by its logical type, and in older files by its converted type. */
static tt_pq_meaning meaning_of(const element *e)
{
    if (e->logical != TT_PQ_PLAIN_VALUE)
        return e->logical;
    switch (e->converted) {
    case 1:
    case 2:
        return TT_PQ_MAP_OF;
    case 3:
        return TT_PQ_LIST_OF;
    case 5:
        return TT_PQ_DECIMAL;
    case 11:
    case 12:
    case 13:
    case 14:
        return TT_PQ_UNSIGNED;
    case 21:
        return TT_PQ_INTERVAL;
    default:
        return TT_PQ_PLAIN_VALUE;
    }
}

static const int widths[] = {[TT_PQ_INT32] = 4, [TT_PQ_INT64] = 8,       [TT_PQ_INT96] = 12,
                             [TT_PQ_FLOAT] = 4, [TT_PQ_DOUBLE_TYPE] = 8, [TT_PQ_FIXED] = 0};

static void fill_leaf(reading *r, tt_pq_node *node, const element *e)
{
    node->leaf = r->out->n_leaves++;
    node->type = (tt_pq_type)e->type;
    if (!e->has_type || e->type < TT_PQ_BOOLEAN || e->type > TT_PQ_FIXED)
        fault(r, "a column has an unknown type");
    else if (e->type == TT_PQ_FIXED && (e->width < 1 || e->width > 1 << 20))
        fault(r, "a column has values of no valid width");
    else
        node->width = e->type == TT_PQ_FIXED ? (int)e->width : widths[e->type];
}

/* The elements are the tree in depth-first order. */
static void make_node(reading *r, tt_pq_node *node, const tt_pq_node *parent, int depth)
{
    if (r->t.fault || r->next == r->n_elements || depth > DEEPEST_SCHEMA) {
        fault(r, "its schema is damaged");
        return;
    }
    const element *e = &r->elements[r->next++];
    node->name = e->name;
    node->leaf = -1;
    node->parent = parent;
    node->meaning = meaning_of(e);
    node->scale = (int)e->scale;
    if (!parent) /* the root's own repetition means nothing */
        node->repetition = TT_PQ_REQUIRED;
    else if (e->repetition < TT_PQ_REQUIRED || e->repetition > TT_PQ_REPEATED)
        fault(r, "a column has an unknown repetition");
    else
        node->repetition = (tt_pq_repetition)e->repetition;
    node->def = (parent ? parent->def : 0) + (node->repetition != TT_PQ_REQUIRED);
    node->rep = (parent ? parent->rep : 0) + (node->repetition == TT_PQ_REPEATED);
    if (e->children <= 0 && parent) {
        fill_leaf(r, node, e);
        return;
    }
    if (e->children < 0 || (uint64_t)e->children > r->n_elements - r->next) {
        fault(r, "its schema is damaged");
        return;
    }
    node->n = (size_t)e->children;
    node->children = tt_arena_array(r->a, node->n, sizeof *node->children);
    for (size_t i = 0; i < node->n && !r->t.fault; i++)
        make_node(r, &node->children[i], node, depth + 1);
}

static void read_schema(reading *r)
{
    tt_pq_wire of;
    r->n_elements = tt_pq_list(&r->t, &of);
    if (r->elements || r->n_elements > MOST_NODES || (r->n_elements && of != TT_PQ_STRUCT)) {
        fault(r, "its schema is damaged");
        return;
    }
    r->elements = tt_arena_array(r->a, r->n_elements + 1, sizeof *r->elements);
    for (size_t i = 0; i < r->n_elements && !r->t.fault; i++)
        read_element(r, &r->elements[i]);
    make_node(r, &r->out->root, NULL, 0);
    if (!r->t.fault && r->next != r->n_elements)
        fault(r, "its schema is damaged");
}

/* ColumnMetaData */
static void read_chunk_data(reading *r, tt_pq_chunk *c)
{
    tt_pq_thrift *t = &r->t;
    const int16_t outer = tt_pq_begin(t);
    int64_t dictionary = 0;
    for (tt_pq_wire w; (w = tt_pq_field(t)) != TT_PQ_STOP;)
        switch (t->field) {
        case 4:
            c->codec = (int)tt_pq_int(t, w);
            break;
        case 5:
            c->values = tt_pq_int(t, w);
            break;
        case 7:
            c->bytes = tt_pq_int(t, w);
            break;
        case 9:
            c->offset = tt_pq_int(t, w);
            break;
        case 11:
            dictionary = tt_pq_int(t, w);
            break;
        default:
            tt_pq_skip(t, w);
        }
    tt_pq_end(t, outer);
    if (dictionary > 0 && dictionary < c->offset)
        c->offset = dictionary;
    if (c->offset < 0 || c->bytes < 0 || c->values < 0 || c->offset > r->file_bytes ||
        c->bytes > r->file_bytes - c->offset)
        fault(r, "a column's pages lie outside of the file");
}

static void read_chunk(reading *r, tt_pq_chunk *c)
{
    tt_pq_thrift *t = &r->t;
    const int16_t outer = tt_pq_begin(t);
    for (tt_pq_wire w; (w = tt_pq_field(t)) != TT_PQ_STOP;)
        if (t->field == 1)
            fault(r, "its columns lie in other files, which are not read");
        else if (t->field == 8)
            fault(r, "it is encrypted");
        else if (t->field == 3 && w == TT_PQ_STRUCT)
            read_chunk_data(r, c);
        else
            tt_pq_skip(t, w);
    tt_pq_end(t, outer);
}

static void read_group(reading *r, tt_pq_group *g)
{
    tt_pq_thrift *t = &r->t;
    const int16_t outer = tt_pq_begin(t);
    tt_pq_wire of;
    for (tt_pq_wire w; (w = tt_pq_field(t)) != TT_PQ_STOP;) {
        if (t->field == 3) {
            g->rows = tt_pq_int(t, w);
        } else if (t->field == 1 && w == TT_PQ_LIST) {
            const size_t n = tt_pq_list(t, &of);
            if (n != (size_t)r->out->n_leaves || g->chunks || of != TT_PQ_STRUCT) {
                fault(r, "a row group has not the columns of the schema");
                break;
            }
            g->chunks = tt_arena_array(r->a, n, sizeof *g->chunks);
            for (size_t i = 0; i < n && !t->fault; i++)
                read_chunk(r, &g->chunks[i]);
        } else {
            tt_pq_skip(t, w);
        }
    }
    tt_pq_end(t, outer);
    if (!t->fault && (g->rows < 0 || !tt_add_i64(r->out->rows, g->rows, &r->out->rows) ||
                      (!g->chunks && r->out->n_leaves)))
        fault(r, "a row group is damaged");
}

static void read_groups(reading *r)
{
    tt_pq_wire of;
    const size_t n = tt_pq_list(&r->t, &of);
    if (!r->elements || r->out->groups || (n && of != TT_PQ_STRUCT)) {
        fault(r, "its list of row groups is damaged");
        return;
    }
    r->out->groups = tt_arena_array(r->a, n + 1, sizeof *r->out->groups);
    r->out->n_groups = n;
    for (size_t i = 0; i < n && !r->t.fault; i++)
        read_group(r, &r->out->groups[i]);
}

bool tt_pq_read_footer(const uint8_t *bytes, size_t n, int64_t file_bytes, tt_arena *a,
                       tt_pq_footer *out, const char **why)
{
    reading r = {
        .t = {.at = bytes, .end = bytes + n},
          .a = a, .out = out, .file_bytes = file_bytes
    };
    int64_t rows = -1;
    tt_pq_begin(&r.t);
    for (tt_pq_wire w; (w = tt_pq_field(&r.t)) != TT_PQ_STOP;)
        if (r.t.field == 2 && w == TT_PQ_LIST)
            read_schema(&r);
        else if (r.t.field == 3)
            rows = tt_pq_int(&r.t, w);
        else if (r.t.field == 4 && w == TT_PQ_LIST)
            read_groups(&r);
        else if (r.t.field == 8)
            fault(&r, "it is encrypted");
        else
            tt_pq_skip(&r.t, w);
    if (!r.t.fault && !r.elements)
        fault(&r, "its footer has no schema");
    if (!r.t.fault && rows != out->rows)
        fault(&r, "its row groups have not as many rows as its footer says");
    *why = r.t.fault;
    return !r.t.fault;
}
