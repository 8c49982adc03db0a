/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_WRITER_H
#define TT_WRITER_H
#include <ttrun/metrics.h>

/* Metrics are written by a thread of their own, so that a step does not wait for a file system. */

#define TT_MAX_METRICS 96 /* of a record: the loop's own, and TT_MAX_LOGGED of the graph */

typedef struct tt_sink {
    const tt_metrics_vt *vt;
    void *self;
    const char *name; /* in errors */
} tt_sink;

typedef struct tt_writer tt_writer;

/* The sinks stay the caller's, who leaves them alone until the writer is freed. */
tt_status tt_writer_new(const tt_sink *sinks, int n, tt_writer **out, tt_error *err);
/* A copy of r (its names stay where they are), to every sink in order; what met an earlier record
 * is returned. Allocates nothing; waits only where many records are unwritten. */
tt_status tt_writer_log(tt_writer *w, const tt_metrics_record *r, tt_error *err);
/* Until all are written. */
tt_status tt_writer_finish(tt_writer *w, tt_error *err);
void tt_writer_free(tt_writer *w); /* finishes; NULL: nothing */

#endif
