/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SERVE_JSON_TEXT_H
#define TT_SERVE_JSON_TEXT_H
#include "base/base.h"

/* A JSON object (RFC 8259) byte by byte: which byte may come next. An automaton with a stack of the containers that are open, 64
 * at most. Strings are UTF-8, their escapes name no surrogates. Between two other bytes there are at most TT_JSON_MOST_BLANKS. */

#define TT_JSON_MOST_BLANKS                                                                        \
    2 /* ": ", and a line's end with a blank: more would let a text be blanks alone */

typedef struct tt_json_text {
    uint64_t objects; /* bit d: container d is an object, else an array */
    uint8_t depth;
    uint8_t mode;      /* what is expected, json_text.c */
    uint8_t left;      /* of what goes on: hexadecimal digits, bytes of a character, of a word */
    uint8_t low, high; /* bounds of the next byte of a character, or the word */
    uint8_t key;       /* 1: the string is a key */
    uint8_t blanks;    /* at the end, in a row */
    uint8_t unused;    /* so that equal states have equal bytes */
} tt_json_text;        /* all zeros: nothing of the text is there */

/* False: the byte may not come, and *t is of no use any more. */
bool tt_json_text_next(tt_json_text *t, unsigned char byte);
bool tt_json_text_is_whole(const tt_json_text *t); /* no byte may come any more */

#endif
