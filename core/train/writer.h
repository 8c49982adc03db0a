/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_WRITER_H
#define TT_WRITER_H
#include <stdbool.h>
#include <ttrun/metrics.h>

/* A separate thread writes the metrics, so that a step does not wait for the file system. */

#define TT_MAX_METRICS                                                                             \
    128 /* per record: the loop's own, and TT_MAX_LOGGED of the graph; besides those of experts and of measured steps */

typedef struct tt_sink {
    const tt_metrics_vt *vt;
    void *self;
    const char *name; /* for errors */
} tt_sink;

typedef struct tt_writer tt_writer;

/* The caller keeps the sinks and does not use them until the writer is freed. goes_on: of a sink that fails a line
 * says so, and with each new record it is offered those that it does not have, of which 32 are kept; else its error is
 * that of the calls below, and no sink gets more records. most: metrics of a record. */
tt_status tt_writer_new(const tt_sink *sinks, int n, bool goes_on, size_t most, tt_writer **out,
                        tt_error *err);
/* Queues a copy of r (its names are not copied) for every sink. Returns the error of an earlier
 * record, if one failed and the writer does not go on. Allocates nothing; waits only if RECORDS records are unwritten. */
tt_status tt_writer_log(tt_writer *w, const tt_metrics_record *r, tt_error *err);
/* Waits until all records are written, or were offered to a sink that fails. */
tt_status tt_writer_finish(tt_writer *w, tt_error *err);
/* After tt_writer_finish: the records that a failing sink does not have are lost, because their names are freed. */
void tt_writer_forget(tt_writer *w);
void tt_writer_free(tt_writer *w); /* writes the rest first; NULL is allowed */

#endif
