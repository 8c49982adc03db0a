/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SUMMARY_IMPL_H
#define TT_SUMMARY_IMPL_H
#include "estimate/estimate.h"
#include "rank/device_memory.h"

/* What summary.c counts, for its JSON and for the text of text.c. */

/* Communication of one kind, axis and cause, per step, on the busiest pipeline rank. */
typedef struct tt_traffic {
    char name[64]; /* "all_gather over dp_shard" */
    const char *cause;
    int64_t calls, now_calls;
    double bytes, now; /* now: of the pipeline rank that is being counted */
} tt_traffic;

typedef struct tt_plan_counts {
    const tt_setup *s;
    const tt_machine *machine; /* NULL: this machine */
    tt_step_time time;         /* on that machine */
    const tt_graph *g;
    bool *gradient;           /* by value id: the value ends up in a gradient's accumulator */
    const tt_device_use *use; /* by pipeline rank; NULL: the backend uses host memory */
    /* by pipeline rank: bytes of the validation's program, where no use has them; 0: none */
    int64_t *validation;
    double bubble; /* idle share of the pipeline */
    tt_traffic t[96];
    int n;
} tt_plan_counts;

/* summary.c */
/* Counts the n plans of s; *out lies in a. machine: as of tt_plan_report. */
tt_status tt_plan_count(const tt_setup *s, tt_plan *const *plans, int n, const tt_machine *machine,
                        tt_arena *a, tt_plan_counts **out, tt_error *err);
int64_t tt_plan_rank_bytes(const tt_plan_counts *c, tt_plan *const *plans,
                           const tt_plan *p); /* memory of a rank, with the copy of a save */
int64_t tt_plan_slots(const tt_plan *p);      /* bytes between forward and backward */
int64_t tt_plan_saving(const tt_setup *s, const tt_plan *p); /* bytes that a save copies */
const tt_plan *tt_plan_fullest(tt_plan *const *plans, int n);
int64_t tt_plan_validation(const tt_plan_counts *c, tt_plan *const *plans, const tt_plan *p);
const tt_device_use *tt_plan_use_of(const tt_plan_counts *c, tt_plan *const *plans,
                                    const tt_plan *p);
double tt_plan_memory_there(const tt_plan_counts *c); /* INFINITY: not known */
double tt_plan_memory_needed(const tt_plan_counts *c, tt_plan *const *plans, int n);
/* copies.c: bytes of host memory for the copies of a rank's states (checkpoint.peer_copy_interval; train/peer.h), if a supervisor
 * starts the run; 0: the job keeps none. */
int64_t tt_estimate_copies(const tt_setup *s, const tt_plan *p);
/* experts.c: nothing is added where no experts are cut over ranks. */
void tt_experts_text(const tt_plan_counts *c, tt_str *o);
void tt_experts_json(const tt_plan_counts *c, tt_str *o);
/* text.c: the summary for people, in lines of at most 80 columns. */
void tt_plan_text(const tt_plan_counts *c, tt_plan *const *plans, int n, tt_str *o);
/* changes.c: adds a row, or an object, for each program of a job whose converters change by schedule. It
 * adds nothing for another job. */
tt_status tt_plan_changes(const tt_plan_counts *first, tt_plan *const *plans, int n, bool json,
                          tt_str *o, tt_error *err);

#endif
