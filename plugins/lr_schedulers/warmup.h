/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WARMUP_H
#define WARMUP_H
#include <math.h>
#include <stdbool.h>
#include <ttrun/lr_scheduler.h>

/* The linear warm-up that all schedules have. Step i, from 0, of W warm-up steps has the factor (i+1)/W, as in
 * torchtitan, or with warmup_from_zero i/W, as in transformers. The members of a config: WARMUP_MEMBERS. */

#define WARMUP_MEMBERS                                                                             \
    int64_t warmup_steps;                                                                          \
    double warmup_ratio;                                                                           \
    bool warmup_from_zero

#define WARMUP_OPTIONS(config, steps)                                                              \
    TT_OPTION(config, warmup_steps, TT_OPT_INT, steps, 0, 1e15,                                    \
              "steps of linear warm-up, cut to the steps of the run; a job that loads weights "    \
              "(checkpoint.initial_load_path) and sets no warm-up has warmup_ratio 0.03 in place " \
              "of a default above 0"),                                                             \
        TT_OPTION_MORE(config, warmup_ratio, TT_OPT_FLOAT, "null", 0, 1, NULL, TT_OPT_NULLABLE,    \
                       NULL,                                                                       \
                       "warm-up as a part of the steps of the run, rounded up, in place of "       \
                       "warmup_steps"),                                                            \
        TT_OPTION(config, warmup_from_zero, TT_OPT_BOOL, "false", 0, 0,                            \
                  "the first step has rate 0 (transformers), not the first part of the warm-up "   \
                  "(torchtitan)")

/* Steps of warm-up out of `total`. */
static inline int64_t warmup_length(int64_t steps, double ratio, int64_t total)
{
    if (!isnan(ratio))
        steps = (int64_t)ceil(ratio * (double)total);
    return steps < total ? steps : total;
}

/* For a step below `length`. */
static inline double warmup_factor(bool from_zero, int64_t step, int64_t length)
{
    return (double)(step + !from_zero) / (double)length;
}

#endif
