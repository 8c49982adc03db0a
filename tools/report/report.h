/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_REPORT_H
#define TT_REPORT_H
#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "plan/plan.h"

/* tools/report: the folder of a run as one HTML page, with inline SVG and without network access.
 * The same folder gives the same bytes. It works however the run ended; the page lists what could
 * not be read. */

#define TT_REPORT_RUNS 8 /* of one page: the number of colours */

typedef enum tt_column {
    TT_COL_STEP,
    TT_COL_LOSS, /* in a record of a validation: the validation's loss */
    TT_COL_NORM,
    TT_COL_LR,
    TT_COL_TOKENS,
    TT_COL_TPS, /* tokens per second of all ranks */
    TT_COL_MFU,
    TT_COL_MEMORY, /* GiB */
    TT_COL_TIME,
    TT_COL_DATA, /* seconds per step, like the following ones */
    TT_COL_COMPUTE,
    TT_COL_OPTIMIZER,
    TT_COL_COMM,
    TT_N_COLS
} tt_column;

typedef struct tt_metric_rows {
    double (*rows)[TT_N_COLS]; /* NaN: not recorded, or not finite */
    size_t n;
} tt_metric_rows;

/* What the model and the loss log (logged.c), by name. */
typedef struct tt_logged_point {
    double step, value;
} tt_logged_point;
typedef struct tt_logged {
    const char *name; /* "rewards/margin" */
    TT_VEC(tt_logged_point) points;
    double newest; /* of the line that is being read */
    bool has_newest;
} tt_logged;
typedef struct tt_logged_list {
    tt_logged *items;
    size_t n, cap, next; /* next: where the following name is looked for first */
    tt_arena *arena;
} tt_logged_list;

typedef struct tt_memory_point { /* live bytes while one instruction runs */
    double activations, workspace;
    const char *phase;
} tt_memory_point;

typedef struct tt_memory_line {
    tt_memory_point *points;
    size_t n;
    double params, optimizer, gradients, other; /* in use all the time */
    double planned;                             /* bytes that the plan allocates: the peak, and gaps
                                                   between values */
} tt_memory_line;

typedef struct tt_measured_memory { /* of one step (train/memory_snapshot.c) */
    int64_t step;
    double *ms, *mib; /* [n] resident memory of the process of rank 0 */
    size_t n;
    double planned_mib; /* of the process */
} tt_measured_memory;

typedef struct tt_op_row {
    const char *op;
    double calls, seconds, flops, bytes, bound_s;
} tt_op_row;

/* Of models with experts (experts.c). */
typedef struct tt_expert_report {
    const char **layers;
    size_t n_layers, n;                       /* n: logged steps */
    double *steps, *mean_most, *mean_entropy; /* [n] */
    double *most;        /* [n, layers]: the busiest expert's tokens over the mean */
    const tt_json *last; /* experts.json, or NULL */
} tt_expert_report;

typedef struct tt_run_report {
    const char *folder, *name;
    const tt_json *facts; /* run.json, or NULL */
    tt_metric_rows train, validation;
    tt_expert_report experts;
    tt_logged_list logged;
    int64_t bad_lines; /* of metrics.jsonl */
    tt_op_row *ops;
    size_t n_ops;
    const tt_json *ops_head; /* of profile/ops.jsonl, or NULL */
    int64_t *steps;          /* checkpoints */
    size_t n_steps;
    const tt_memory_line *memory; /* NULL: memory_note says why */
    const char *memory_note;
    tt_measured_memory measured[2]; /* the first and the newest step that was measured */
    int n_measured;
    const char *pipeline;       /* the drawing of its schedule as SVG; NULL: it has no pipeline */
    const char *pareto;         /* time against memory of recomputing, as SVG; NULL: nothing is
                                   computed again, or the job cannot be planned */
    TT_VEC(const char *) notes; /* what could not be read */
} tt_run_report;

/* load.c: fails only if the folder is not that of a run. Memory: the arena's. */
tt_status tt_report_load(const char *folder, tt_arena *a, tt_run_report *out, tt_error *err);
/* metrics.c */
void tt_report_metrics(const char *text, size_t n, tt_arena *a, tt_run_report *out);
/* Reads one line into row[TT_N_COLS]; returns 1, 0 (nothing but blanks) or -1 (not a record). */
int tt_report_line(const char *p, size_t n, double *row, bool *validation);
/* logged.c: takes a number of a line, then the line itself, unless it is no record of a step. */
void tt_report_logged_add(tt_logged_list *all, const char *group, size_t n_group, const char *key,
                          size_t n, double value);
void tt_report_logged_end(tt_logged_list *all, double step, bool taken);
const tt_logged *tt_report_logged_find(const tt_logged_list *all, const char *name); /* or NULL */
/* memory.c: a step's memory on one pipeline rank. */
tt_memory_line *tt_report_memory(const tt_plan *p, tt_arena *a);
/* starts.c: the list "starts" of run.json, as a table of the page, or as lines of text. */
void tt_report_print_starts(const tt_json *facts, bool live, tt_str *o);
void tt_report_starts_text(const tt_json *facts, bool live, tt_str *o);
/* measured.c: reads the files of a folder; prints the chart of what was read. */
void tt_report_read_measured(const char *folder, tt_arena *a, tt_run_report *r);
void tt_report_print_measured(const tt_run_report *r, tt_str *o);
/* curves.c: of the training loop's numbers, and of what the model and the loss log. */
void tt_report_curves(const tt_run_report *runs, size_t n, tt_str *out);
/* page.c: curves of several runs are drawn in the same charts. */
void tt_report_page(const tt_run_report *runs, size_t n, tt_str *out);

double tt_report_last(const tt_metric_rows *m, tt_column c); /* NaN: none is recorded */
double tt_report_most(const tt_metric_rows *m, tt_column c);
double tt_report_median(const tt_metric_rows *m, tt_column c);
double tt_report_number(const tt_json *o, const char *key); /* NaN: not a finite number */
const char *tt_report_text(const tt_json *o, const char *key);
void tt_report_cell(tt_str *o, double v, int decimals); /* of a table; NaN: a dash */
/* A drawing that is a file of its own, too, where it needs the name of its namespace. */
void tt_report_drawing(const char *svg, tt_str *o);
/* recomputed.c: which activations the backward computes again, by layers. */
void tt_report_recomputed(const tt_run_report *r, tt_str *o);
/* experts.c */
void tt_report_experts_read(const char *text, size_t n, tt_arena *a, tt_expert_report *out);
void tt_report_experts(const tt_run_report *r, tt_str *out);
/* compare.c: the numbers of several runs, and the keys of their jobs that differ. */
void tt_report_runs_table(const tt_run_report *runs, size_t n, tt_str *out);
void tt_report_differences(const tt_run_report *runs, size_t n, tt_str *out);

/* ---- chart.c ---- */
typedef struct tt_curve {
    const char *name;
    const double *x, *y; /* NaN: a gap */
    size_t n, stride;    /* in doubles */
    int color;           /* 0 … 7 */
    bool points;         /* a mark at each point, too */
    bool dashed;
    /* for the page's script: which curves are hidden together, the run's last step, and its tokens
     * and hours per step; NULL: the script only shows values */
    const char *key;
    double steps, tokens, hours;
} tt_curve;
typedef struct tt_chart {
    const char *title, *note, *x_name, *unit; /* note, unit may be NULL */
    const tt_curve *curves;
    size_t n;
    bool from_zero, stacked; /* stacked: areas; all curves have the first one's x */
    bool wide;
    double level; /* a dashed line at this height; 0 = none */
    const char *level_name;
    const char *const *bands; /* [n], for a stacked chart: the name of the band that begins at each
                                 x, or NULL */
} tt_chart;
void tt_chart_print(const tt_chart *c, tt_str *out);
void tt_html(tt_str *out, const char *text);            /* escapes HTML, and bytes that are not
                                                           UTF-8 */
void tt_html_number(tt_str *out, double v, int digits); /* "12.3k"; NaN: a dash */
extern const char *const tt_report_style[2];            /* style.c */
#define TT_REPORT_SCRIPTS 4
extern const char *const tt_report_script[TT_REPORT_SCRIPTS]; /* script.c */

#endif
