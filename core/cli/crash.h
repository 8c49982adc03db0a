/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_CRASH_H
#define TT_CLI_CRASH_H
#include <stdbool.h>

/* A crash is told in one line and ends the process with status 1: in which plugin it was, or which
 * mapped file was cut off or cannot be read. A signal that another process sends stays as it is. */
void tt_crash_install(void);
/* Called in the handler: is it this process that tells? The others end without a word. */
void tt_crash_asks(bool (*tells)(const char *why));

#endif
