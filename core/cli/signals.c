/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/signals.h"
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

/* Signals are of the process, so these three words are the only state outside a run. Lock-free
 * atomics: any thread may be the one a signal comes to. */
static atomic_int stop_signal, save_asked, times;

static void on_stop(int sig)
{
    atomic_store(&stop_signal, sig);
    if (atomic_fetch_add(&times, 1) >= 1)
        _exit(4); /* twice: at once; checkpoints are complete or absent */
}

static void on_save(int sig)
{
    (void)sig;
    atomic_store(&save_asked, 1);
}

void tt_signals_install(void)
{
    struct sigaction a = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    atomic_store(&stop_signal, 0);
    atomic_store(&save_asked, 0);
    atomic_store(&times, 0);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGUSR2, &a, NULL); /* what mpirun hands on, where it answers SIGTERM by killing */
    a.sa_handler = on_save;
    sigaction(SIGUSR1, &a, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int tt_signals_stop(void)
{
    return atomic_load(&stop_signal);
}

bool tt_signals_save(void)
{
    return atomic_exchange(&save_asked, 0) != 0;
}
