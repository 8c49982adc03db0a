/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PATTERN_H
#define TT_PATTERN_H
#include "base/base.h"

/* Regular expressions of a job: POSIX extended ones, plus features of PCRE. A hostile expression is
 * an error: length, nesting, size and the work of a match are bounded. */

typedef struct tt_pattern tt_pattern;

/* Compiles a pattern, which lives as long as the arena. The error gives the reason and does not
 * quote the pattern. */
tt_status tt_pattern_new(tt_arena *a, const char *text, tt_pattern **out, tt_error *err);
/* The same for a pattern in the syntax of PCRE, which is that of Python's re. */
tt_status tt_pattern_new_pcre(tt_arena *a, const char *text, tt_pattern **out, tt_error *err);
/* Whether the pattern matches any part of the name. */
tt_status tt_pattern_match(const tt_pattern *p, const char *name, bool *out, tt_error *err);
/* Puts `to` in the place of the first part of the name that the pattern matches; $1 in it is what the first
 * group matched, $$ a dollar. *out: in the arena, `name` itself if nothing matches. */
tt_status tt_pattern_replace(const tt_pattern *p, tt_arena *a, const char *name, const char *to,
                             bool *matched, const char **out, tt_error *err);

#endif
