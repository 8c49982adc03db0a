/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_OPTIMIZER_H
#define TTRUN_OPTIMIZER_H
#include <ttrun/builder.h>
#include <ttrun/plugin.h>

/* An optimizer: describe_update() writes one update of a stack of parameters of equal shape and
 * hyper-parameters (R13) in graph ops; the core shards, fuses and runs it. The config is the
 * group's: the job's options with the group's overrides laid over. It must have the keys lr (or
 * the one that `rate` names) and weight_decay among its options. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_update {
    size_t struct_size;
    tt_value *param; /* f32 [n, …]: n parameters of one shape; the first dim is labelled "stack" */
    tt_value *grad;  /* f32, same dims, clipped */
    tt_value *lr;   /* f64 scalar: this step's rate, schedule and the group's lr_factor folded in */
    tt_value *step; /* f64 scalar: 1 for the first step */
    /* The parameters of the stack, in order; tags as tt_param got them, "" = none. Labels are those
     * of param's dims. */
    int64_t n_params;
    const char *const *names, *const *tags;
} tt_update;

/* The state tensor <param>.<name> of this stack, dims of the parameter, zero at first: checkpointed
 * as optimizer.state.<param>.<name>. */
TT_EXPORT tt_value *tt_optimizer_state(tt_builder *b, const tt_update *u, const char *name);
/* Write a new value to a parameter or state value of the stack. Once each. */
TT_EXPORT void tt_assign(tt_builder *b, tt_value *target, tt_value *value);

typedef struct tt_optimizer_vt {
    size_t struct_size;
    void (*describe_update)(const void *config, tt_builder *b, const tt_update *u); /* [setup] */
    const char *rate; /* the option that is the learning rate, a FLOAT; NULL = "lr" */
} tt_optimizer_vt;

#ifdef __cplusplus
}
#endif
#endif
