/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_SIGNALS_H
#define TT_CLI_SIGNALS_H
#include <stdbool.h>
#include <stdint.h>

/* Signals are the process's, so the program installs them and the loop only asks.
 *
 * SIGTERM, SIGINT and SIGHUP ask to stop; a second one of these ends the process at once, unless it
 * comes within TT_SIGNALS_GRACE_NS of the first: one stop often reaches a process twice, from its
 * group and from its parent. SIGUSR2, which a user's mpirun hands on, asks to stop however often it
 * comes. A SIGHUP that is ignored at the start (nohup) stays ignored. SIGUSR1 asks for a save. */
#define TT_SIGNALS_GRACE_NS INT64_C(500000000)

void tt_signals_install(void);
int tt_signals_stop(void);  /* 0, or the signal that asks to stop */
bool tt_signals_save(void); /* SIGUSR1 since the last call */
/* Another source of signals than the kernel, asked by tt_signals_stop: a number or 0. */
void tt_signals_from(int (*ask)(void));
/* What a second signal does before the process ends with 4, in the handler; NULL: say so. */
void tt_signals_on_second(void (*fn)(int sig));
/* Signals of the parent never count as the second. */
void tt_signals_trust_parent(void);
void tt_signals_closing(void); /* the run is over: no second signal ends the process any more */
/* Print that a second signal ended the run. Safe in handlers. */
void tt_signals_say_second(int sig);

#endif
