/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_NUMBER_H
#define TT_BASE_NUMBER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the n characters of text as a whole number from least to most: decimal digits, after a '-' if it is
 * negative. false, and *out is as it was: they are anything else ("", "12x", " 12", "+12", "0x10", "1e3"), or beyond
 * least or most, however large. */
bool tt_read_whole(const char *text, size_t n, int64_t least, int64_t most, int64_t *out);
/* Reads N or MIN:MAX, from 1 to limit: *most is N or MAX, *least MIN, or 0 for a single N. false: the text is anything
 * else, and both are as they were. */
bool tt_read_range(const char *text, int limit, int *most, int *least);
/* "1.25 GiB", below one "41 MiB"; NaN: "-". Returns buf. */
const char *tt_memory_text(char buf[24], double gib);

#endif
