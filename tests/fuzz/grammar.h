/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FUZZ_GRAMMAR_H
#define TT_FUZZ_GRAMMAR_H
#include "base/base.h"

/* Inputs made from a grammar, a text such as
 *
 *     # an input is what the first rule gives
 *     message = field* ("\0" | 3: "end\n")      # alternatives; this one is drawn three times as often
 *     field   = "\x0a" varint[field | name]     # behind its length
 *     name    = "a" u8(98..100){2,7}
 *
 *     X* X+ X? X{2} X{2,7}     several, one or several, one or none, so many
 *     u8 u16 u32 u64           a number, its lowest byte first; also varint, zigzag (a varint of a signed number), decimal
 *                              and hex. Most are small, the others at the edges of types
 *     u32(3..9)                of these; "(" and "[" stand right behind the u32
 *     varint[X]                the length of X as such a number, and X
 *     pad(64)[X]               X, and zeros up to 64 bytes
 *     $k=(X)                   nothing yet; then $k is X, the same bytes each time
 *     u32(size k)              the number of its bytes
 *     u32(place k)             where in the input it last was */

#define GRAMMAR_MOST ((size_t)1 << 16) /* bytes of an input */

typedef struct grammar grammar;
typedef uint64_t (*grammar_draw)(uint64_t below);

/* a owns it. name: for errors. */
tt_status grammar_read(tt_arena *a, const char *name, const char *text, size_t n, grammar **out,
                       tt_error *err);
/* Writes an input to buf [GRAMMAR_MOST], and returns its size. Some are wide, some are nested deeply. */
size_t grammar_make(grammar *g, grammar_draw draw, uint8_t *buf);

#endif
