/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_CRASH_H
#define TT_LAUNCH_CRASH_H
#include <stdbool.h>

/* From here on a crash prints one line and ends the process with status 1. The line names the plugin
 * that crashed, or the mapped file that was cut off or cannot be read. A signal that another process
 * sends keeps its effect. */
void tt_crash_install(void);
/* Sets a function that the handler calls: it returns whether this process prints the line. If not,
 * the process ends silently. */
void tt_crash_asks(bool (*prints)(const char *why));

#endif
