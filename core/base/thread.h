/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_THREAD_H
#define TT_BASE_THREAD_H
#include <pthread.h>
#include <ttrun/status.h>

/* Like pthread_create, but blocks all signals but faults in the new thread, because the main thread
 * handles them. Returns 0 or an error number. [any-thread] */
int tt_thread_start(pthread_t *out, void *(*run)(void *), void *arg);
/* Makes this thread write and read numbers as in the "C" locale, whatever setlocale() a plugin or a
 * library calls. tt_thread_start does it in the new thread. */
void tt_locale_fix(void);
/* The file that tt_map_file mapped at this address; NULL: none is known. [in signal handlers] */
const char *tt_mapped_path(const void *address);
/* "SIGTERM" and the like; "a signal" for one it does not know. [any-thread, signal handlers too] */
const char *tt_signal_name(int sig);
/* Fails with TT_ESIGNAL: "stopped by SIGTERM before step 1". [any-thread] */
tt_status tt_fail_stopped(int sig, tt_error *err);

#endif
