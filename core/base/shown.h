/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SHOWN_H
#define TT_SHOWN_H
#include "base/base.h"

/* Text from elsewhere on a terminal, which would obey control characters. */

/* The bytes of the control character that the n bytes at p begin with: 1, or 2 of a C1 in UTF-8; 0: they begin with
 * none. A tab and a new line are control characters. */
size_t tt_control_bytes(const char *p, size_t n);
/* Adds \x1b for each of n bytes. */
void tt_str_escaped(tt_str *s, const char *p, size_t n);
/* Adds text whose control characters, all but tabs, are escaped so. */
void tt_str_shown(tt_str *s, const char *text, size_t n);

#endif
