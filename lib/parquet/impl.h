/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PARQUET_IMPL_H
#define TT_PARQUET_IMPL_H
#include "base/base.h"
#include <ttrun/parquet.h>

/* A file ends with its footer, a Thrift structure: the schema as a tree, and of each row group where the pages of each
 * column lie. A leaf of the schema is a column: entries with a repetition level (of which list it begins a new element), a
 * definition level (how much of its path is there), and a value where that level is the highest. A row is put together by
 * walking the schema and taking entries from its leaves (Melnik et al., Dremel, VLDB 2010). */

/* ---- thrift.c: the compact protocol (github.com/apache/thrift, doc/specs/thrift-compact-protocol.md) ---- */
typedef struct tt_pq_thrift {
    const uint8_t *at, *end;
    const char *
        fault; /* the first one; NULL: none. After it every number is 0 and every structure ends. */
    int depth;
    int16_t field; /* the number of the last field of the structure that is read */
} tt_pq_thrift;
typedef enum tt_pq_wire { /* types of values */
                          TT_PQ_STOP = 0,
                          TT_PQ_TRUE = 1,
                          TT_PQ_FALSE = 2,
                          TT_PQ_I8 = 3,
                          TT_PQ_I16 = 4,
                          TT_PQ_I32 = 5,
                          TT_PQ_I64 = 6,
                          TT_PQ_DOUBLE = 7,
                          TT_PQ_BINARY = 8,
                          TT_PQ_LIST = 9,
                          TT_PQ_SET = 10,
                          TT_PQ_MAP = 11,
                          TT_PQ_STRUCT = 12
} tt_pq_wire;
/* The next field of a structure, whose number is t->field; STOP at its end. */
tt_pq_wire tt_pq_field(tt_pq_thrift *t);
/* Around the fields of a structure: begin returns the field number to give back to end. */
int16_t tt_pq_begin(tt_pq_thrift *t);
void tt_pq_end(tt_pq_thrift *t, int16_t outer);
int64_t tt_pq_int(tt_pq_thrift *t, tt_pq_wire wire); /* an integer of any width, or a boolean */
const char *tt_pq_binary(tt_pq_thrift *t, size_t *n);
size_t tt_pq_list(tt_pq_thrift *t, tt_pq_wire *of); /* how many elements follow */
void tt_pq_skip(tt_pq_thrift *t, tt_pq_wire wire);
uint64_t tt_pq_varint(const uint8_t **at, const uint8_t *end, bool *good);

/* ---- footer.c ---- */
typedef enum tt_pq_type {
    TT_PQ_BOOLEAN,
    TT_PQ_INT32,
    TT_PQ_INT64,
    TT_PQ_INT96,
    TT_PQ_FLOAT,
    TT_PQ_DOUBLE_TYPE,
    TT_PQ_BYTES,
    TT_PQ_FIXED
} tt_pq_type;
typedef enum tt_pq_repetition { TT_PQ_REQUIRED, TT_PQ_OPTIONAL, TT_PQ_REPEATED } tt_pq_repetition;
typedef enum tt_pq_meaning { /* of a node */
                             TT_PQ_PLAIN_VALUE,
                             TT_PQ_UNSIGNED,
                             TT_PQ_DECIMAL,
                             TT_PQ_FLOAT16,
                             TT_PQ_UUID,
                             TT_PQ_INTERVAL,
                             TT_PQ_LIST_OF,
                             TT_PQ_MAP_OF
} tt_pq_meaning;

typedef struct tt_pq_column tt_pq_column;
typedef struct tt_pq_node { /* of the schema */
    const char *name;
    tt_pq_type type; /* of a leaf */
    tt_pq_repetition repetition;
    tt_pq_meaning meaning;
    int width; /* bytes of FIXED */
    int scale; /* of DECIMAL */
    int def;   /* definition level from which the node is there */
    int rep;   /* repetition level of the nearest repeated node, itself included */
    int leaf;  /* its number among the leaves; -1: a group */
    size_t n;
    struct tt_pq_node *children;
    const struct tt_pq_node *parent; /* NULL: the root */
    tt_pq_column *column;            /* of a leaf that is read */
    bool chosen;                     /* of a child of the root */
} tt_pq_node;

typedef struct tt_pq_chunk { /* a column of a row group */
    int64_t offset, bytes, values;
    int codec;
} tt_pq_chunk;
typedef struct tt_pq_group { /* a row group */
    int64_t rows;
    tt_pq_chunk *chunks; /* [leaves] */
} tt_pq_group;
typedef struct tt_pq_footer {
    tt_pq_node root;
    int n_leaves;
    tt_pq_group *groups;
    size_t n_groups;
    int64_t rows;
} tt_pq_footer;
/* a owns what it allocates. *fault: what is wrong, in a. */
bool tt_pq_read_footer(const uint8_t *bytes, size_t n, int64_t file_bytes, tt_arena *a,
                       tt_pq_footer *out, const char **fault);

/* ---- codec.c ---- */
/* Decompresses n bytes into exactly out_n. NULL: done; else what is wrong. */
const char *tt_pq_unpack(int codec, const uint8_t *in, size_t n, uint8_t *out, size_t out_n);
/* The most bytes that n bytes can stand for. */
uint64_t tt_pq_unpacked_most(int codec, uint64_t n);
const char *tt_pq_codec_refused(int codec); /* NULL: it is read; else its name */

/* ---- encodings.c: readers of one value after the other. false: the data has no more, or is damaged ---- */
typedef struct tt_pq_runs { /* RLE / bit-packing hybrid */
    const uint8_t *at, *end;
    int width;     /* bits of a value, 0 to 32 */
    uint64_t left; /* of the run */
    bool packed;
    uint32_t value;        /* of a run of equal ones */
    const uint8_t *values; /* of a packed run */
    uint64_t bit;          /* of the next value */
} tt_pq_runs;
bool tt_pq_runs_next(tt_pq_runs *r, uint32_t *out);

typedef struct tt_pq_deltas { /* DELTA_BINARY_PACKED */
    const uint8_t *at, *end;
    uint64_t per_mini, total, given, value, least;
    uint64_t minis, mini; /* of a block; which one is read */
    uint64_t in_mini;     /* values that it has given */
    const uint8_t *widths, *data;
} tt_pq_deltas;
bool tt_pq_deltas_open(tt_pq_deltas *d, const uint8_t *at, const uint8_t *end);
bool tt_pq_deltas_next(tt_pq_deltas *d, uint64_t *out);
/* Where the bytes behind all values begin; NULL: damaged. d is a fresh one, and is used up. */
const uint8_t *tt_pq_deltas_end(tt_pq_deltas *d);

typedef struct tt_pq_value {
    uint64_t bits;    /* integers, sign-extended; floats as their bits */
    const uint8_t *p; /* bytes, until the next value of the column */
    size_t n;
} tt_pq_value;
typedef struct tt_pq_values { /* the values of a page */
    int encoding;
    tt_pq_type type;
    int width; /* bytes of a value; 0: each has a length */
    const uint8_t *at, *end;
    uint64_t given, total; /* of BYTE_STREAM_SPLIT, and bits of PLAIN booleans */
    tt_pq_runs runs;       /* of the dictionary, or of booleans */
    tt_pq_deltas deltas, prefixes;
    uint8_t *whole; /* DELTA_BYTE_ARRAY: the last value; BYTE_STREAM_SPLIT: a value */
    size_t whole_n, whole_cap;
    const tt_pq_value *dictionary;
    size_t n_dictionary;
} tt_pq_values;
/* v->type, width, dictionary, whole and whole_cap stay. NULL: done; else what is wrong. */
const char *tt_pq_values_open(tt_pq_values *v, int encoding, const uint8_t *at, const uint8_t *end);
bool tt_pq_values_next(tt_pq_values *v, tt_pq_value *out);

/* ---- column.c ---- */
struct tt_pq_column {
    const tt_pq_node *node;
    const char *file;
    int fd;
    tt_pq_chunk chunk;
    int64_t at;   /* the next page in the file */
    int64_t left; /* entries of the chunk that no page before has had */
    uint8_t *packed, *page, *dictionary;
    size_t packed_cap, page_cap, dictionary_cap;
    tt_pq_value *entries; /* of the dictionary */
    tt_pq_values values;
    tt_pq_runs reps, defs;
    int64_t in_page; /* entries of the page that are left, the one that is looked at included */
    bool looked;     /* rep and def are those of the next entry */
    uint32_t rep, def;
};
void tt_pq_column_begin(tt_pq_column *c, const tt_pq_chunk *chunk);
void tt_pq_column_free(tt_pq_column *c);
/* Sets c->rep and c->def to those of the next entry. *more false: the chunk has no more. */
tt_status tt_pq_look(tt_pq_column *c, bool *more, tt_error *err);
/* Takes the entry that was looked at; its value where def is the highest level. */
tt_status tt_pq_take(tt_pq_column *c, tt_pq_value *out, tt_error *err);
tt_status tt_pq_bad(const tt_pq_column *c, tt_error *err, const char *format, ...) TT_PRINTF(3, 4);
tt_status tt_pq_read_at(int fd, const char *file, void *out, size_t n, int64_t at, tt_error *err);

/* ---- rows.c ---- */
extern size_t tt_pq_longest_row; /* bytes; the fuzz target lowers it */

#endif
