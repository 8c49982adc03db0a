/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_WRAPPED_H
#define TT_BASE_WRAPPED_H
#include "base/base.h"

/* Adds the words of a text that begins at column `indent`, in lines of at most 80 columns, which are indented but for the
 * first. */
void tt_wrapped_text(tt_str *o, int indent, const char *text);

#endif
