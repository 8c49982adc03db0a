/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_SAY_H
#define TT_LAUNCH_SAY_H
#include "base/base.h"

/* Prints the line of an error and clears its text, so that it is printed once. Does nothing if the
 * text is empty. The ranks of a supervisor tell it that text instead. */
void tt_say_error(tt_status s, tt_error *err);
/* From which level on this process logs, and as which rank. verbose: -v adds 1, -q subtracts 1. */
void tt_say_from(int verbose, int rank, int world);

#endif
