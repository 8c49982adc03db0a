/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_WATCH_H
#define TT_WATCH_H
#include "report/folders.h"
#include "report/report.h"

/* Runs that are looked at while they train: `ttrun top`. */

#define TT_WATCH_POINTS 2048 /* of a loss curve; if there are more, two become their mean */

typedef struct tt_watch {
    const char *folder, *name; /* name: the end of the path by which the run was found */
    tt_arena *arena;
    /* what was read of metrics.jsonl */
    int64_t at;    /* bytes */
    uint64_t file; /* its inode */
    char tail[32]; /* its last bytes before `at`, which a resumed run may have replaced */
    size_t n_tail;
    int64_t bad_lines;
    double row[TT_N_COLS];                         /* of the newest training line; NaN: none */
    double validation;                             /* the newest loss; NaN: none */
    double step_s;                                 /* mean of the last steps; NaN: not known */
    double x[TT_WATCH_POINTS], y[TT_WATCH_POINTS]; /* steps and losses */
    int n;
    int64_t every, pending; /* lines per point, and of them in `sum` so far */
    double sum;
    double written; /* wall time of the newest line; NaN: none */
    /* of the folder */
    int64_t steps;                             /* of the job; 0: not known */
    int64_t saved;                             /* newest checkpoint; -1: none */
    const char *metrics, *facts, *checkpoints; /* paths */
    uint64_t facts_file;                       /* the inode of run.json that was read */
    int64_t facts_ns;                          /* when that was written */
    bool failed;                               /* it says that the last start failed */
    bool no_end;                               /* it does not say how the last start ended */
    tt_run_state state;
} tt_watch;

/* Adds the runs that a path means (tt_run_folders_find) and that are not in the list. */
typedef TT_VEC(tt_watch *) tt_watches;
tt_status tt_watch_find(const char *path, tt_arena *a, tt_watches *list, tt_error *err);
/* Reads what is new. A file that has become shorter or another is read from its beginning. */
void tt_watch_look(tt_watch *w);
/* Running runs first, then those whose last line is newest. */
void tt_watch_sort(tt_watches *list);

/* ---- top.c: as text ---- */
typedef struct tt_top_opts {
    int columns, rows; /* of the terminal; rows 0: one line per run, however many */
    bool utf8;
    double now; /* wall time */
} tt_top_opts;
/* A table of one line per run; columns that do not fit are left out. If there is one run and room,
 * its loss curve is drawn below. */
void tt_top_print(const tt_watches *list, const tt_top_opts *o, tt_str *out);
void tt_top_json(const tt_watches *list, double now, tt_str *out);

#endif
