/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_LOG_H
#define TTRUN_LOG_H
#include <ttrun/status.h>

/* The log: each call writes one line to stderr, `[r3 +12.4s I data] text`: the rank, seconds since
 * the start, the level and the area. stdout is for results only. */

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tt_log_level { TT_ERROR, TT_WARN, TT_INFO, TT_DEBUG } tt_log_level;

/* Formats and writes the line if the job shows this level and this rank. [any-thread] */
TT_EXPORT void tt_log(tt_log_level level, const char *area, const char *fmt, ...) TT_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
