/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/signals.h"
#include "base/base.h"
#include "base/thread.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <ttrun/option.h>
#include <unistd.h>

/* Signals belong to the process, so these variables are the only global state. They are lock-free
 * atomics, because any thread may receive a signal. */
static atomic_int stop_signal, save_asked, closing, interrupted;
static atomic_int trusted = -1;  /* a pid, see tt_signals_trust_parent() */
static _Atomic int64_t first_ns; /* when the first stop signal was received; 0: none yet */
static int (*_Atomic source)(void);
static void (*_Atomic on_second)(int sig);

void tt_signals_say_second(int sig)
{
    static const char head[] = "ttrun: stopped at once by a second ",
                      tail[] = "; steps after the last checkpoint are not saved\n";
    char text[160];
    const char *name = tt_signal_name(sig);
    const size_t n = strlen(name);
    memcpy(text, head, sizeof head - 1);
    memcpy(text + sizeof head - 1, name, n);
    memcpy(text + sizeof head - 1 + n, tail, sizeof tail - 1);
    const ssize_t written = write(2, text, sizeof head - 1 + n + sizeof tail - 1);
    (void)written;
}

static void on_stop(int sig, siginfo_t *info, void *context)
{
    int none = 0;
    int64_t first = 0;
    const int before = errno;
    const int64_t now = tt_now_ns();
    (void)context;
    atomic_compare_exchange_strong(&stop_signal, &none, sig);
    const bool counts = sig != SIGUSR2 && info->si_pid != atomic_load(&trusted);
    if (counts && !atomic_compare_exchange_strong(&first_ns, &first, now) &&
        now - first >= tt_patience(TT_STOP_TWICE_NS) && !atomic_load(&closing)) {
        void (*fn)(int) = atomic_load(&on_second);
        (fn ? fn : tt_signals_say_second)(sig);
        _exit(4); /* checkpoints are complete or absent */
    }
    errno = before;
}

static void on_save(int sig)
{
    (void)sig;
    atomic_store(&save_asked, 1);
}

void tt_signals_install(void)
{
    static const int stops[] = {SIGTERM, SIGINT, SIGUSR2, SIGHUP};
    struct sigaction a = {.sa_sigaction = on_stop, .sa_flags = SA_RESTART | SA_SIGINFO}, was;
    sigset_t open;
    sigemptyset(&a.sa_mask);
    sigemptyset(&open);
    atomic_store(&stop_signal, 0);
    atomic_store(&save_asked, 0);
    atomic_store(&first_ns, 0);
    (void)tt_patience(0); /* its first call reads the environment, which a handler may not */
    for (size_t i = 0; i < TT_COUNT(stops); i++) {
        sigaddset(&open, stops[i]);
        if (stops[i] != SIGHUP || (!sigaction(SIGHUP, NULL, &was) && was.sa_handler != SIG_IGN))
            sigaction(stops[i], &a, NULL);
    }
    a = (struct sigaction){.sa_handler = on_save, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &a, NULL);
    sigaddset(&open, SIGUSR1);
    signal(SIGPIPE, SIG_IGN);
    /* the launcher starts ranks with these blocked, so before this line none is lost or fatal */
    sigprocmask(SIG_UNBLOCK, &open, NULL);
}

static void on_interrupt(int sig)
{
    (void)sig;
    atomic_store(&interrupted, 1);
}

void tt_signals_interrupts(void)
{
    const struct sigaction a = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    tt_signals_go_on();
    sigaction(SIGINT, &a, NULL);
}

bool tt_signals_interrupted(void)
{
    return atomic_load(&interrupted) != 0;
}

void tt_signals_go_on(void)
{
    atomic_store(&interrupted, 0);
}

int tt_signals_stop(void)
{
    int (*ask)(void) = atomic_load(&source);
    int sig, none = 0;
    while (!atomic_load(&stop_signal) && ask && (sig = ask()) != 0) {
        if (sig == SIGUSR1)
            atomic_store(&save_asked, 1);
        else
            atomic_compare_exchange_strong(&stop_signal, &none, sig);
    }
    return atomic_load(&stop_signal);
}

bool tt_signals_save(void)
{
    return atomic_exchange(&save_asked, 0) != 0;
}

void tt_signals_from(int (*ask)(void))
{
    atomic_store(&source, ask);
}

void tt_signals_on_second(void (*fn)(int sig))
{
    atomic_store(&on_second, fn);
}

void tt_signals_trust_parent(void)
{
    atomic_store(&trusted, (int)getppid());
}

void tt_signals_closing(void)
{
    atomic_store(&closing, 1);
}
