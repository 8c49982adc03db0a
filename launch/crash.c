/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/crash.h"
#include "base/pool.h"
#include "base/thread.h"
#include "launch/line.h"
#include "plugin/registry.h"
#include <execinfo.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Handlers of crashes. POSIX does not allow all functions that they call (backtrace, dladdr,
 * snprintf) in a handler. But the process is lost anyway, and alarm() ends it if it hangs. */

#define FRAMES 48

static bool (*_Atomic asks)(const char *why);

/* Without what a damaged plugin may have damaged: the tables by which frames and names are found. */
static void describe_plainly(int sig, const siginfo_t *info, char *text, size_t size)
{
    const char *path = sig == SIGBUS ? tt_mapped_path(info->si_addr) : NULL;
    const char *loading = tt_plugin_being_loaded();
    if (path)
        snprintf(text, size, "%s: was cut off, or cannot be read any more, while it was in use",
                 path);
    else if (loading)
        snprintf(text, size,
                 "%s: crashed while it was loaded (%s): it is damaged, or a constructor of its own "
                 "crashed; copy or build it again",
                 loading, tt_signal_name(sig));
    else if (sig == SIGBUS)
        snprintf(text, size, "a file was cut off, or cannot be read any more, while it was in use");
    else
        snprintf(text, size,
                 "crashed (%s): a bug in ttrun, or a plugin that is damaged or wrong (`ttrun "
                 "plugins list` names them); please report it",
                 tt_signal_name(sig));
}

/* Which plugin crashed; false: none. A worker of the pool runs pieces of a loop of its caller. */
static bool describe_plugin(int sig, char *text, size_t size)
{
    void *frames[FRAMES + 1];
    int n = backtrace(frames, FRAMES);
    tt_plugin_crash what;
    const void *caller = tt_pool_caller();
    if (caller)
        frames[n++] = (void *)(uintptr_t)caller;
    if (!tt_plugin_of_frames(frames, n, sig == SIGABRT, &what))
        return false;
    tt_plugin_crash_text(&what, tt_signal_name(sig), text, size);
    return true;
}

/* Returns false if there is nothing to add: abort() was called, but not by a plugin. */
static bool describe_fault(int sig, const siginfo_t *info, char *text, size_t size)
{
    const bool known =
        tt_plugin_being_loaded() || (sig == SIGBUS && tt_mapped_path(info->si_addr) != NULL);
    if (!known && describe_plugin(sig, text, size)) {
        const size_t n = strlen(text);
        snprintf(text + n, size - n, "; `ttrun plugins check` may say why");
        return true;
    }
    describe_plainly(sig, info, text, size);
    return known || sig != SIGABRT;
}

static void signal_with(int sig, void (*fn)(int, siginfo_t *, void *))
{
    struct sigaction a = {.sa_sigaction = fn, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&a.sa_mask);
    sigaction(sig, &a, NULL);
}

/* Whether this process called abort(): a failed assertion, an exception that nobody catches, memory
 * that the allocator finds damaged. */
static bool is_abort(int sig, const siginfo_t *info)
{
    return sig == SIGABRT && info->si_code == SI_TKILL && info->si_pid == getpid();
}

/* Gives the signal its usual effect: it ends the process when the handler returns. */
static void end_by(int sig)
{
    signal(sig, SIG_DFL);
    raise(sig);
}

/* The first thread that crashes reports it; others wait until the process ends. If the report crashes,
 * too (backtrace() aborts if a plugin's tables of frames are bad), what is known without looking at frames is reported. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
    static atomic_int times, first;
    static _Atomic pid_t teller;
    char why[PATH_MAX + 200], line[PATH_MAX + 240];
    const pid_t me = gettid();
    pid_t nobody = 0;
    (void)context;
    if (info->si_code <= 0 && atomic_load(&teller) != me && !is_abort(sig, info)) {
        end_by(sig); /* a process sent it */
        return;
    }
    if (!atomic_compare_exchange_strong(&teller, &nobody, me) && nobody != me)
        for (;;)
            pause();
    const int before = atomic_fetch_add(&times, 1);
    if (before > 1)
        _exit(1);
    if (before)
        sig = atomic_load(&first);
    atomic_store(&first, sig);
    signal(SIGALRM, SIG_DFL);
    alarm(10);
    if (before)
        describe_plainly(sig, info, why, sizeof why);
    else if (!describe_fault(sig, info, why, sizeof why)) {
        end_by(sig);
        return;
    }
    bool (*fn)(const char *) = before ? NULL : atomic_load(&asks);
    if ((!fn || fn(why)) && !tt_line_say_failure(TT_EIO, why)) {
        const int n = snprintf(line, sizeof line, "ttrun: %s\n", why);
        tt_line_say(TT_LINE_SPOKE);
        const ssize_t written = write(2, line, (size_t)n);
        (void)written;
    }
    _exit(1);
}

void tt_crash_asks(bool (*prints)(const char *why))
{
    atomic_store(&asks, prints);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* sanitizers install their own handlers */
#else
enum { SANITIZED = 0 };
#endif

void tt_crash_install(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    static char stack[65536]; /* for the handlers of the main thread, whose own stack may be full */
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    void *frame[1];
    if (SANITIZED)
        return;
    backtrace(frame, 1); /* loads the library that it needs now, not in the handler */
    sigaltstack(&other, NULL);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        signal_with(faults[i], on_fault);
}
