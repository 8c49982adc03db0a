/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_REPORT_FOLDERS_H
#define TT_REPORT_FOLDERS_H
#include "config/config.h"

/* The folders of runs: which ones lie below a path, and what their files say. For `ttrun top`, `runs`, `gc`
 * and `report`, so that these agree on what a run is. A run's folder has a run.json, a metrics.jsonl or
 * a .lock (it has begun and written nothing yet); the runs before it lie in its before-N. */

typedef enum tt_run_state {
    TT_RUN_RUNNING,
    TT_RUN_DONE,
    TT_RUN_STOPPED,
    TT_RUN_FAILED, /* its last start says so, after whichever step */
} tt_run_state;
extern const char *const tt_run_states[4]; /* "running", … */

typedef struct tt_found_run {
    const char *path, *name; /* name: what follows the path that was asked for; for a run named
                                itself its last part */
    const char *older_of;    /* path of the run that it was set aside by; NULL: it was not */
    int64_t older;           /* N of before-N */
} tt_found_run;
typedef TT_VEC(tt_found_run) tt_found_runs;

/* Adds the runs that a path means: a run's folder, a folder of such folders (six levels), or a glob of
 * either; in path order. older: each run is followed by its older ones, newest first. Symbolic links
 * below the path are not followed, and folders that runs keep in theirs are left out.
 *   Errors: TT_ENOTFOUND if there is no such folder; a folder without runs is none. */
tt_status tt_run_folders_find(const char *path, bool older, tt_arena *a, tt_found_runs *out,
                              tt_error *err);
/* "before-12" → 12; -1: another name. */
int64_t tt_run_older_number(const char *name);

typedef struct tt_run_facts {
    const char *spec;        /* "" if run.json does not say */
    const char *checkpoints; /* checkpoint.folder as the job has it */
    int64_t steps;           /* of the job; -1: unknown */
    bool failed;             /* the last start has ended with a failure */
    bool no_end; /* the last start has not written how it ended: it runs, or was killed */
    const struct tt_json *root; /* all of run.json, or NULL */
} tt_run_facts;
/* Reads run.json; false: there is none that can be read, and *out has the defaults. */
bool tt_run_facts_read(const char *run, tt_arena *a, tt_run_facts *out);
/* The newest step-N below a folder by its name (incomplete ones have another); -1: none. */
int64_t tt_run_newest_checkpoint(const char *folder);
/* Whether a process of this machine trains there, by /proc/locks. It takes no lock itself, so it cannot
 * keep a run from starting. */
bool tt_run_is_locked(const char *run);
/* live: looked at before run.json is read, so that the end of a start that has ended is in it.
 * step: the last one of metrics or checkpoints; saved: the newest checkpoint. A run that was killed after its
 * last step is done only if that step is saved. */
tt_run_state tt_run_state_of(bool live, const tt_run_facts *f, double step, int64_t saved);

#endif
