/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_THREAD_H
#define TT_BASE_THREAD_H
#include <pthread.h>

/* Like pthread_create, but blocks all signals in the new thread, because the main thread handles
 * them. Returns 0 or an error number. [any-thread] */
int tt_thread_start(pthread_t *out, void *(*run)(void *), void *arg);
/* "SIGTERM" and the like; "a signal" for one it does not know. [any-thread, signal handlers too] */
const char *tt_signal_name(int sig);

#endif
