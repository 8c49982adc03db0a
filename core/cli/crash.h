/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_CRASH_H
#define TT_CLI_CRASH_H
#include <stdbool.h>

/* From here on a crash prints one line and ends the process with status 1. The line names the plugin
 * that crashed, or the mapped file that was cut off or cannot be read. A signal that another process
 * sends keeps its effect. */
void tt_crash_install(void);
/* tells is called in the handler: does this process print the line? If not, it ends silently. */
void tt_crash_asks(bool (*tells)(const char *why));

#endif
