/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/train.h"
#include <signal.h>
#include <unistd.h>

/* Signals are of the process, so these three words are the only state outside a run. */
static volatile sig_atomic_t stop_signal, save_asked, times;

static void on_stop(int sig)
{
    stop_signal = sig;
    if (++times >= 2) _exit(4); /* twice: at once; checkpoints are complete or absent */
}

static void on_save(int sig)
{
    (void)sig;
    save_asked = 1;
}

void tt_signals_install(void)
{
    struct sigaction a = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    stop_signal = save_asked = times = 0;
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    a.sa_handler = on_save;
    sigaction(SIGUSR1, &a, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int tt_signals_stop(void)
{
    return (int)stop_signal;
}

bool tt_signals_save(void)
{
    const bool asked = save_asked != 0;
    save_asked = 0;
    return asked;
}
