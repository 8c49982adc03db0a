/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_EXEC_PIPELINES_H
#define TT_TESTS_EXEC_PIPELINES_H
#include "exec/steps.h"
#include <math.h>

/* Jobs with a pipeline, and a check that they train alike: losses and, through the optimizer,
 * the gradients of every parameter are equal to the bit. Clipping is off: the norm is summed
 * stage by stage, so it depends on where stages begin. */

#define PLAIN "training.max_norm 0 training.local_batch_size 8 "
#define PP2 "parallelism.pipeline_parallel_degree 2 "
#define PP3 "parallelism.pipeline_parallel_degree 3 parallelism.pipeline_parallel_microbatches 8 "
#define SCHEDULE " parallelism.pipeline_parallel_schedule "

static const char *const schedules[] = {
    "1F1B",      "GPipe",         "Interleaved1F1B", "InterleavedZeroBubble",
    "LoopedBFS", "ZBVZeroBubble", "DualPipeV",
};

static inline void same_training(const steps *a, const steps *b, const char *what)
{
    for (int i = 0; i < a->n_steps; i++)
        if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]))
            fail_msg("%s: step %d: loss %.9g and %.9g", what, i + 1, a->loss[i], b->loss[i]);
    if (a->param_bits != b->param_bits)
        fail_msg("%s: other parameters after %d steps", what, a->n_steps);
}

#define FOUR_OF_2 "training.local_batch_size 2 training.global_batch_size "

/* Compares with the run without a pipeline that has the same micro-batches. */
static inline void all_train_alike(const char *mesh, const char *plain, const char *more)
{
    char text[600];
    steps one;
    snprintf(text, sizeof text, PLAIN "%s %s", plain, more);
    steps_run(text, 2, &one);
    assert_true(isfinite(one.loss[1]) && one.loss[1] > 0);
    for (size_t k = 0; k < TT_COUNT(schedules); k++) {
        steps s;
        snprintf(text, sizeof text, PLAIN "%s %s debug.poison true" SCHEDULE "%s", mesh, more,
                 schedules[k]);
        steps_run(text, 2, &s);
        same_training(&one, &s, text);
    }
}

#endif
