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

static void describe_fault(int sig, const siginfo_t *info, char *text, size_t size)
{
    const char *function = NULL, *plugin;
    const bool known =
        tt_plugin_being_loaded() || (sig == SIGBUS && tt_mapped_path(info->si_addr) != NULL);
    describe_plainly(sig, info, text, size);
    if (!known && (plugin = crashed_plugin(&function)) != NULL)
        snprintf(text, size, "the plugin %s crashed (%s%s%s); `ttrun plugins check` may say why",
                 plugin, tt_signal_name(sig), function ? " in " : "", function ? function : "");
}

static void signal_with(int sig, void (*fn)(int, siginfo_t *, void *))
{
    struct sigaction a = {.sa_sigaction = fn, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&a.sa_mask);
    sigaction(sig, &a, NULL);
}

/* The first thread that crashes reports it; others wait until the process ends. If the report crashes,
 * too, what is known without looking at frames is reported. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
    static atomic_int times, first;
    static _Atomic pid_t teller;
    char why[PATH_MAX + 200], line[PATH_MAX + 240];
    const pid_t me = gettid();
    pid_t nobody = 0;
    (void)context;
    if (info->si_code <= 0 && atomic_load(&teller) != me) { /* a process sent the signal */
        signal(sig, SIG_DFL);
        raise(sig); /* it ends the process when the handler returns */
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
    signal_with(SIGABRT, on_fault); /* backtrace() aborts if a plugin's tables of frames are bad */
    signal(SIGALRM, SIG_DFL);
    alarm(10);
    if (before)
        describe_plainly(sig, info, why, sizeof why);
    else
        describe_fault(sig, info, why, sizeof why);
    bool (*fn)(const char *) = before ? NULL : atomic_load(&asks);
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
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
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
