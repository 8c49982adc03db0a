/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_THREAD_H
#define TT_BASE_THREAD_H
#include <pthread.h>

/* As pthread_create, with all signals blocked in the new thread: they are the main thread's
 * business. 0, or an error number. [any-thread] */
int tt_thread_start(pthread_t *out, void *(*run)(void *), void *arg);
/* Numbers are written and read as in the "C" locale by this thread, whatever setlocale() a plugin
 * or a library calls. tt_thread_start does it in the new thread. */
void tt_locale_fix(void);
/* The file that tt_map_file mapped at this address, NULL: none is known. [in signal handlers] */
const char *tt_mapped_path(const void *address);
/* "SIGTERM" and its like; of others "a signal". [any-thread, in signal handlers as well] */
const char *tt_signal_name(int sig);

#endif
