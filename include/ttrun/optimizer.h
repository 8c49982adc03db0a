/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_OPTIMIZER_H
#define TTRUN_OPTIMIZER_H
#include <ttrun/builder.h>
#include <ttrun/plugin.h>

/* An optimizer: describe_update() writes one update of a stack of parameters, which have equal
 * shapes and hyper-parameters (R13), as graph ops; the core shards, fuses and runs them. config is
 * the parameter group's: the job's options with the group's overrides. The options must include lr
 * (or the one that `rate` names) and weight_decay. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_update {
    size_t struct_size;
    tt_value *param; /* f32 [n, …]: n parameters of one shape; dim 0 has the label "stack" */
    tt_value *grad;  /* f32, same dims, clipped */
    tt_value *lr;    /* f64 scalar: this step's rate times the scheduler's and the group's factor */
    tt_value *step;  /* f64 scalar: 1 in the first step */
    /* The stack's parameters in order; tags as given to tt_param, "" = none. param's dims have their
     * labels. */
    int64_t n_params;
    const char *const *names, *const *tags;
} tt_update;

/* The stack's state tensor <param>.<name>, f32 with the parameter's dims, initially zero. A
 * checkpoint has it as optimizer.state.<param>.<name>. [setup] */
TT_EXPORT tt_value *tt_optimizer_state(tt_builder *b, const tt_update *u, const char *name);
/* How a state of the parameter's dims is stored. Zero: as optimizer.state_dtype says, of either sign. */
typedef struct tt_state_opts {
    size_t struct_size;
    int positive; /* it is never negative: a mean of squares. dynamic8 then has twice the codes for it */
    int dynamic8; /* as optimizer.state_dtype dynamic8, unless the job says float8_e4m3fn */
    int whole;    /* of matrices: stored as tt_whole_matrices() places them, in device memory */
    int64_t rows, cols; /* whole: other sizes of the last two dims than the parameter's, which
                           makes it f32 whatever optimizer.state_dtype says; 0: its own */
} tt_state_opts;
/* tt_optimizer_state(), stored as o says. [setup] */
TT_EXPORT tt_value *tt_optimizer_state_as(tt_builder *b, const tt_update *u, const char *name,
                                          const tt_state_opts *o);
/* The same, but f32 whatever optimizer.state_dtype says, and it starts as the parameter does: at a new run's
 * begin, and where a checkpoint has no such state. [setup] */
TT_EXPORT tt_value *tt_optimizer_copy(tt_builder *b, const tt_update *u, const char *name);
/* copy, of tt_optimizer_copy(), is what validation, `ttrun eval`, `generate` and exports take for the stack's
 * parameters: weights that are averaged over steps. At most one of a stack. [setup] */
TT_EXPORT void tt_optimizer_evaluate(tt_builder *b, const tt_update *u, tt_value *copy);
/* A number for each of the stack's parameters, f32 [n, 1, …], initially zero; it joins values of the
 * parameter's dims by broadcasting. A checkpoint has it as optimizer.state.<param>.<name>. [setup] */
TT_EXPORT tt_value *tt_optimizer_number(tt_builder *b, const tt_update *u, const char *name);
/* x with the dims of the stack, in an update: the same, its last two dims whole on each rank. Where the
 * mesh cuts them, the stack's members are shared out among those ranks instead, by one exchange; a value
 * computed from it goes back by another where it meets the parameter. [setup] */
TT_EXPORT tt_value *tt_whole_matrices(tt_builder *b, tt_value *x);
/* Writes a new value to the stack's parameter or one of its states, at most once each. [setup] */
TT_EXPORT void tt_assign(tt_builder *b, tt_value *target, tt_value *value);

typedef struct tt_optimizer_vt {
    size_t struct_size;
    /* Errors stick in b. [setup] */
    void (*describe_update)(const void *config, tt_builder *b, const tt_update *u);
    const char *rate; /* (optional) the FLOAT option that is the learning rate; NULL = "lr" */
} tt_optimizer_vt;

#ifdef __cplusplus
}
#endif
#endif
