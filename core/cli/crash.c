/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/crash.h"
#include "base/thread.h"
#include "cli/line.h"
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

/* Returns the plugin of the innermost frame that is in one. */
static const char *crashed_plugin(const char **function)
{
    void *frames[FRAMES];
    const int n = backtrace(frames, FRAMES);
    for (int i = 0; i < n; i++) {
        const char *plugin = tt_plugin_at(frames[i], function);
        if (plugin)
            return plugin;
    }
    return NULL;
}

static void describe_fault(int sig, const siginfo_t *info, char *text, size_t size)
{
    const char *function = NULL, *plugin;
    const char *path = sig == SIGBUS ? tt_mapped_path(info->si_addr) : NULL;
    if (path)
        snprintf(text, size, "%s: was cut off, or cannot be read any more, while it was in use",
                 path);
    else if ((plugin = crashed_plugin(&function)) != NULL)
        snprintf(text, size, "the plugin %s crashed (%s%s%s); `ttrun plugins check` may say why",
                 plugin, tt_signal_name(sig), function ? " in " : "", function ? function : "");
    else if (sig == SIGBUS)
        snprintf(text, size, "a file was cut off, or cannot be read any more, while it was in use");
    else
        snprintf(text, size, "crashed (%s); this is a bug in ttrun, please report it",
                 tt_signal_name(sig));
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    static atomic_flag again = ATOMIC_FLAG_INIT;
    char why[PATH_MAX + 200], line[PATH_MAX + 240];
    (void)context;
    signal(sig, SIG_DFL);
    if (info->si_code <= 0 || atomic_flag_test_and_set(&again)) {
        raise(sig); /* a process sent the signal, or this handler crashed: the signal ends the
                       process when the handler returns */
        return;
    }
    signal(SIGALRM, SIG_DFL);
    alarm(10);
    describe_fault(sig, info, why, sizeof why);
    bool (*fn)(const char *) = atomic_load(&asks);
    if (!fn || fn(why)) {
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
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    static char stack[65536]; /* for the handlers of the main thread, whose own stack may be full */
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    void *frame[1];
    if (SANITIZED)
        return;
    backtrace(frame, 1); /* loads the library that it needs now, not in the handler */
    sigaltstack(&other, NULL);
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigaction(faults[i], &a, NULL);
}
