/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_THREAD_H
#define TT_BASE_THREAD_H
#include <pthread.h>

/* As pthread_create, with all signals blocked in the new thread: they are the main thread's
 * business. 0, or an error number. [any-thread] */
int tt_thread_start(pthread_t *out, void *(*run)(void *), void *arg);
/* "SIGTERM" and its like; of others "a signal". [any-thread, in signal handlers as well] */
const char *tt_signal_name(int sig);

#endif
