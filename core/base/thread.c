/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "thread.h"
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>

static locale_t c_locale;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

void tt_locale_fix(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locale);
    if (c_locale)
        uselocale(c_locale);
}

typedef struct thread_start {
    void *(*run)(void *);
    void *arg;
} thread_start;

static void *thread_main(void *p)
{
    const thread_start start = *(thread_start *)p;
    free(p);
    tt_locale_fix();
    return start.run(start.arg);
}

int tt_thread_start(pthread_t *out, void *(*run)(void *), void *arg)
{
    /* A fault that is blocked would end the process without a word. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_start *start = malloc(sizeof *start);
    int rc = ENOMEM;
    if (start) {
        *start = (thread_start){run, arg};
        rc = pthread_create(out, NULL, thread_main, start);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        free(start);
    return rc;
}

const char *tt_signal_name(int sig)
{
    switch (sig) {
    case SIGTERM:
        return "SIGTERM";
    case SIGINT:
        return "SIGINT";
    case SIGHUP:
        return "SIGHUP";
    case SIGUSR1:
        return "SIGUSR1";
    case SIGUSR2:
        return "SIGUSR2";
    case SIGKILL:
        return "SIGKILL";
    case SIGSEGV:
        return "SIGSEGV";
    case SIGABRT:
        return "SIGABRT";
    case SIGTRAP:
        return "SIGTRAP";
    case SIGBUS:
        return "SIGBUS";
    case SIGFPE:
        return "SIGFPE";
    case SIGILL:
        return "SIGILL";
    case SIGPIPE:
        return "SIGPIPE";
    default:
        return "a signal";
    }
}

tt_status tt_fail_stopped(int sig, tt_error *err)
{
    return TT_FAIL(err, TT_ESIGNAL, "stopped by %s before step 1", tt_signal_name(sig));
}
