/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_GRAPH_STATE_H
#define TT_GRAPH_STATE_H
#include "mesh/mesh.h"
#include <ttrun/builder.h>

/* The state of a graph: parameters, what optimizers keep, accumulators of gradients, scalars, buffers
 * (R7). Nodes read and write it by its tt_state. */

typedef enum tt_state_kind {
    TT_STATE_PARAM,
    TT_STATE_OPTIMIZER,
    TT_STATE_ACCUMULATOR, /* gradients, summed over micro-batches */
    TT_STATE_METRIC,      /* the host reads it after the step */
    TT_STATE_SCALAR,      /* the host writes it before the step: lr, step, inv_tokens, … */
    TT_STATE_MEMORY,      /* decoding: what ops keep of earlier tokens, such as keys and values */
    TT_STATE_GATHERED,    /* a parameter in its compute placement: the hoist pass has it written
                             once per step, before the first read */
    TT_STATE_BUFFER       /* a model's buffer: its forward reads it, and it may be written after
                             the update */
} tt_state_kind;

/* A state has a name and keeps its value from step to step. Parameters with the same shape, placement,
 * group and stages form one stack [n, …] (R13): member i has the elements [i*numel, (i+1)*numel). */
typedef struct tt_state {
    int id;
    tt_state_kind kind;
    const char *name; /* "stack.3", "stack.3.exp_avg", "lr" */
    tt_type type;     /* of a stack: dims[0] counts the members */
    tt_placement place;
    uint64_t stages; /* bit s: the ranks of stage s have it */
    bool accumulate_max;
    bool for_host;      /* METRIC with dims: the host reads it with the scalars */
    bool offloaded;     /* OPTIMIZER: in host memory, read by a load */
    int first;          /* OPTIMIZER: the stack's member that it begins with */
    const char *suffix; /* OPTIMIZER: "exp_avg" */
    struct tt_state
        *scale;    /* OPTIMIZER: of the blocks of one in float8 or codes; NULL: of no other state */
    bool positive; /* OPTIMIZER: never negative, which its codes know */
    tt_value *as_read; /* such a state in f32, as the optimizer has it */
    bool copies;       /* OPTIMIZER: it starts as the parameter */
    bool evaluated;    /* OPTIMIZER: validation, generation and exports read it as the parameter */
    tt_init init;      /* BUFFER */
    const float *values;    /* BUFFER: initial values, row-major; NULL: use init */
    bool transient;         /* BUFFER: no checkpoint has it */
    bool exported;          /* BUFFER: Hugging Face's files have it, as a parameter */
    bool of_trainer;        /* BUFFER: of the update, not the model's: the loss scale */
    bool of_converter;      /* BUFFER: a converter's, not the model's */
    struct tt_stack *stack; /* of PARAM, OPTIMIZER, ACCUMULATOR */
    /* MEMORY: 1 + the dim that is longer for longer sequences, in which each token has its own part; 0: there is
     * none, so that all earlier tokens are one value, which cannot go back to fewer. */
    int grows;
    const struct tt_param_info *gathered; /* GATHERED: the parameter that it holds; NULL: maxima */
} tt_state;

typedef struct tt_param_info {
    const char *name;
    int number; /* in tt_graph.params */
    tt_type type;
    tt_init init;
    const char *tags;
    bool frozen;
    const tt_storage *storage;
    size_t n_storage;
    int converter; /* whose linear() declared it: 1 + its place in the job's list; 0: the model */
    /* A low-rank adapter of this weight: exports add adapter_scale · adapter_b · adapter_a to it. NULL: it
     * has none. adapter_of: this parameter is a factor of that weight's adapter. */
    struct tt_param_info *adapter_a, *adapter_b, *adapter_of;
    struct tt_param_info
        *magnitude; /* DoRA's, whose adapter_of is this; NULL: the adapter has none */
    tt_adapter_opts adapter;
    double adapter_scale;
    /* The weight is stored as codes: `type` is theirs, `whole` that of the weight. Else TT_CODES_NONE, and
     * whole is type. absmax: the parameter with the scales, whose absmax_of is this one. */
    tt_codes codes;
    tt_type whole;
    struct tt_param_info *absmax, *absmax_of;
    int declared; /* above 1: the model declared it again after a use, so several uses share it */
    uint64_t stages;
    tt_placement compute, stored;
    int group;              /* index in param_groups; -1 = the default group */
    struct tt_stack *stack; /* after tt_graph_make_stacks */
    int index;              /* of the member in the stack */
} tt_param_info;

typedef struct tt_stack {
    int id, n, group;
    tt_param_info **members;
    tt_state *param, *grad; /* grad is NULL for frozen parameters, and where early_grad is not */
    struct tt_value
        *early_grad; /* the gradient of the one member, which no accumulator keeps because
                                    the backward updates it; NULL: there is none */
    /* A tied parameter that several stages use has one accumulator per stage, in ascending order
     * (P6); grads[0] is grad. n_grads is 0 if one stage uses the parameter. */
    tt_state **grads;
    int n_grads;
    /* While an update is described: what new values of its parameters, and of their copies, are multiplied by.
     * NULL: nothing. */
    struct tt_value *factor;
} tt_stack;
/* The gradient's accumulator on this stage. */
tt_state *tt_stack_grad(const tt_stack *s, int stage);

#endif
