/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_ESTIMATE_H
#define TT_ESTIMATE_H
#include "setup/setup.h"

/* tools/estimate: the memory, communication and time of a run, without running it. `ttrun plan`
 * prints it. */

/* ---- summary.c: the estimate as text or JSON ---- */
/* The memory of the fullest pipeline rank, as `ttrun plan` counts it: on a device with the values that cross, with the
 * copy of a save, with the validation's program. The plans are made and checked, but not kept. */
tt_status tt_plan_most_bytes(const tt_setup *s, tt_arena *a, double *out, tt_error *err);
/* machine NULL: no times are estimated, and all ranks share this machine's memory. */
tt_status tt_plan_report(const tt_setup *s, tt_plan *const *plans, int n, const tt_machine *machine,
                         bool json, tt_str *out, tt_error *err);

/* ---- offloaded.c: activations in host memory ---- */
struct tt_step_time;
/* Of a rank's program; time: of the step, NULL: not known. Nothing is added if nothing is offloaded. */
void tt_offloaded_text(const tt_program *p, const struct tt_step_time *time, tt_str *o);
void tt_offloaded_json(const tt_program *p, const struct tt_step_time *time, tt_str *o);

/* ---- pareto.c ---- */
/* Draws time against memory of the ways to recompute that mode budget chooses from, of the modes none,
 * selective and full, and of what mode budget chose. */
tt_status tt_pareto_svg(const tt_setup *s, tt_str *out, tt_error *err);

/* ---- machine.c, step_time.c: the time of a step on a described machine ---- */
tt_status tt_machine_load(const char *name, tt_arena *a, const tt_machine **out,
                          tt_error *err); /* name: a known machine, or FILE.json */
/* What the estimate assumes: a sentence, with the peak in FLOP/s; and all of it, as a FILE.json. */
void tt_machine_text(const tt_machine *m, double peak, tt_str *o);
void tt_machine_json(const tt_machine *m, tt_str *o);
typedef struct tt_step_time {
    double step; /* seconds */
    double comm,
        exposed; /* communication of the rank that waits longest: all, and the exposed part */
    double copies, copies_exposed; /* … of copies between the device and host memory */
    double bubble;                 /* idle share of the pipeline */
    double peak;                   /* FLOP/s of a device, in the dtype with the most FLOPs */
    double mfu, tokens_per_second;
} tt_step_time;
void tt_step_time_of(const tt_setup *s, const tt_machine *m, tt_step_time *out);

#endif
