/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PICKLE_H
#define TT_PICKLE_H
#include "base/base.h"

/* Reads Python pickles of known programs without running anything: a stack machine of the opcodes that these
 * programs write, and a table of the globals that their pickles name. It builds values; a call of a global
 * becomes a value too, which the reader of the file interprets. Every other opcode and global is refused by
 * name and offset. Time and memory are proportional to the pickle's size, so a value may be part of several
 * others, or of itself: who walks values must not recurse without a limit.
 * Source: CPython's Lib/pickletools.py. */

typedef enum tt_pickle_kind {
    TT_PICKLE_NONE,
    TT_PICKLE_BOOL,       /* integer */
    TT_PICKLE_INT,        /* integer; larger ones than 64 bits are refused */
    TT_PICKLE_FLOAT,      /* real */
    TT_PICKLE_TEXT,       /* text, n bytes: UTF-8, with a 0 after them */
    TT_PICKLE_BYTES,      /* text, n bytes */
    TT_PICKLE_TUPLE,      /* items */
    TT_PICKLE_LIST,       /* items */
    TT_PICKLE_DICT,       /* items: key, value, key, value, …, as they were set */
    TT_PICKLE_GLOBAL,     /* global */
    TT_PICKLE_CALL,       /* global called with items[0], a tuple of arguments */
    TT_PICKLE_PERSISTENT, /* items[0]: the persistent id */
    TT_N_PICKLE_KINDS
} tt_pickle_kind;

/* A row of a table of globals that a pickle may name. */
typedef struct tt_pickle_global {
    const char *module, *name;
    int id;       /* the reader's */
    bool is_dict; /* called without arguments it gives an empty dict: collections.OrderedDict */
} tt_pickle_global;

typedef struct tt_pickle_value tt_pickle_value;
struct tt_pickle_value {
    tt_pickle_kind kind;
    size_t at; /* offset of the opcode that made it */
    int64_t integer;
    double real;
    const char *text;
    size_t n; /* bytes of text, or number of items */
    tt_pickle_value **items;
    size_t capacity; /* of items */
    const tt_pickle_global *global;
    tt_pickle_value *state; /* what BUILD gave; NULL: nothing */
};

/* Reads the pickle bytes[0, n). path: for errors. globals: ended by a row of NULLs. Values live in the
 * arena; texts are copied. */
tt_status tt_pickle_read(const char *path, const uint8_t *bytes, size_t n,
                         const tt_pickle_global *globals, tt_arena *a, const tt_pickle_value **out,
                         tt_error *err);
const char *tt_pickle_kind_name(const tt_pickle_value *v); /* "a tuple", in Python's words */
/* Replaces control characters by '?': a file's names go into messages. */
void tt_plain_text(char *text);

#endif
