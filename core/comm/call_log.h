/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CALL_LOG_H
#define TT_CALL_LOG_H
#include "comm/dist.h"

/* The call log: a ring of the last collectives and messages of each rank of a machine. Rank processes keep their
 * rings in the memory of the session, so that those of a rank that has died, or hangs, can still be written to files.
 *
 * A communicator whose calls are logged passes them on to the one that it was opened over. */

typedef struct tt_call_log tt_call_log; /* the rings of this machine's ranks */
typedef struct tt_called tt_called;     /* one rank's end */

typedef struct tt_call_log_opts {
    int64_t entries;             /* calls that a ring holds; 0: nothing is logged */
    const char *folder, *prefix; /* of the files: folder/prefixRANK.json; they outlive the log */
    int ranks;                   /* of this machine */
} tt_call_log_opts;

/* Of rank-threads: one log, which outlives their ends. With a session each process calls it, with the same
 * options; session NULL: threads. *out is NULL if nothing is logged. [setup] */
tt_status tt_call_log_new(const tt_call_log_opts *o, tt_session *session, tt_call_log **out,
                          tt_error *err);
void tt_call_log_free(tt_call_log *log);

/* From now on d's calls are logged; d->called is this rank's end. log NULL: does nothing. [setup] */
tt_status tt_call_log_join(tt_call_log *log, tt_dist *d, tt_error *err);
/* d is again what it was; the groups that were made in between are freed. */
void tt_call_log_leave(tt_dist *d);
/* What later calls belong to. called NULL: does nothing. */
void tt_called_step(tt_called *c, int64_t step);
/* What this thread makes its next calls for: a scope, "model.layers.0.mlp", or without one an op. The texts
 * stay. [any-thread] */
void tt_called_name(const char *scope, const char *op);

/* Writes the files of this machine's ranks, unless that is done, and adds to err which rank is behind, and where
 * the files are. Cannot fail: if a file cannot be written, err says so. [any-thread] */
void tt_call_log_dump(tt_call_log *log, tt_error *err);

#endif
