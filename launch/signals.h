/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_SIGNALS_H
#define TT_LAUNCH_SIGNALS_H
#include <stdbool.h>
#include <stdint.h>

/* Signals belong to the process, so the program installs the handlers and the loop only asks.
 *
 * SIGTERM, SIGINT and SIGHUP ask to stop. A second one of these ends the process at once, unless it
 * arrives within TT_STOP_TWICE_NS of the first: one stop often reaches a process twice, from its
 * process group and from its parent. SIGUSR2, which mpirun passes on, asks to stop however often it
 * is sent. A SIGHUP that is ignored at the start (nohup) stays ignored. SIGUSR1 asks for a save. */

void tt_signals_install(void);
int tt_signals_stop(void);  /* the signal that asks to stop, or 0 */
bool tt_signals_save(void); /* whether SIGUSR1 was received since the last call */
/* SIGINT asks no more to stop, but to end what is under way: a program that somebody talks to. */
void tt_signals_interrupts(void);
bool tt_signals_interrupted(void); /* since tt_signals_go_on() */
void tt_signals_go_on(void);
/* Sets another source of signals, which tt_signals_stop() asks for a signal number or 0. */
void tt_signals_from(int (*ask)(void));
/* Sets what the handler of a second signal calls before the process exits with status 4; NULL: it
 * prints a message. */
void tt_signals_on_second(void (*fn)(int sig));
/* Signals from the parent never count as a second one. */
void tt_signals_trust_parent(void);
void tt_signals_closing(void); /* the run is over: no second signal ends the process any more */
/* Prints that a second signal ended the run. Safe in signal handlers. */
void tt_signals_say_second(int sig);

#endif
