/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_EXIT_STATUS_H
#define TT_BASE_EXIT_STATUS_H
#include <ttrun/status.h>

/* The exit status: 0 success; 1 a failure while running; 2 wrong usage, job, data, weights or
 * plugin; 3 a NaN or infinity; 4 stopped by a signal. */
int tt_exit_status(tt_status s);

#endif
