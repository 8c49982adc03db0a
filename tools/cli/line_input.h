/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_LINE_INPUT_H
#define TT_CLI_LINE_INPUT_H
#include "base/base.h"

/* Lines that somebody types, or that a pipe has. On a terminal there is a prompt, and libedit edits the lines and keeps
 * those before, where it is installed. */
typedef struct tt_line_input tt_line_input;

typedef enum tt_line_end {
    TT_LINE,             /* there is one */
    TT_LINE_END,         /* of the input, or a signal asks to stop */
    TT_LINE_INTERRUPTED, /* on a terminal, by Ctrl-C (tt_signals_interrupts): what was typed is gone */
} tt_line_end;

tt_line_input *tt_line_input_new(bool terminal);
/* *line is without its end, and holds until the next call. */
tt_line_end tt_line_input_next(tt_line_input *in, const char **line);
void tt_line_input_free(tt_line_input *in); /* NULL is allowed */

#endif
