/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_RUNS_H
#define TT_CLI_RUNS_H
#include "report/folders.h"

/* Runs with their sizes and last losses, for `ttrun runs` and `ttrun gc`. */

typedef struct tt_run_entry {
    const char *path;
    const char *spec;     /* "" if run.json does not say */
    int64_t step, steps;  /* the last step of metrics or checkpoints; the job's. -1: unknown */
    double loss;          /* NaN: none was logged */
    int64_t written;      /* seconds since 1970 of the newest file */
    int64_t bytes;        /* of its files, without those of older runs */
    tt_run_state state;   /* of an older run: not RUNNING */
    const char *older_of; /* path of the run it was set aside by; NULL: it was not */
    const char *also;     /* older: checkpoints outside of its folder (FOLDER.before-N), or NULL */
} tt_run_entry;

typedef struct tt_runs {
    tt_run_entry *items;
    size_t n;
} tt_runs;

/* Lists the runs of a path (tt_run_folders_find), each followed by its older ones, newest first. */
tt_status tt_runs_find(const char *path, tt_arena *a, tt_runs *out, tt_error *err);
/* Where runs are looked for if the command line names no folder: ./outputs if it is there, else the
 * current folder. */
const char *tt_runs_default(void);
/* Locks the folder as a run does, or fails with TT_EBUSY, at once. Close the descriptors. */
tt_status tt_run_hold(const char *run, int fds[2], tt_error *err);
/* The bytes of all files below a path; newest: the largest modification time, or NULL. */
int64_t tt_tree_bytes(const char *path, int64_t *newest);
/* "1.2 GB", "340 B" */
const char *tt_bytes_text(tt_arena *a, int64_t bytes);

#endif
