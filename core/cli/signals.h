/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_SIGNALS_H
#define TT_CLI_SIGNALS_H
#include <stdbool.h>

/* Signals are the process's, so the program installs them and the loop only asks. */
void tt_signals_install(void);
int tt_signals_stop(void);  /* 0, or the signal that asks to stop */
bool tt_signals_save(void); /* SIGUSR1 since the last call */

#endif
