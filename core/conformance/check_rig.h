/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CHECK_RIG_H
#define TT_CHECK_RIG_H
#include "conformance/plugin_check.h"
#include "train/train.h"

/* The test job of `ttrun plugins check`: it has at most a few thousand tokens, uses the component
 * under test, and runs on one fixed batch, with one rank or two rank-threads. */

#define TT_RIG_LINES 2
#define TT_RIG_SEQ 16
#define TT_RIG_TOKENS (TT_RIG_LINES * TT_RIG_SEQ)

typedef struct tt_rig {
    tt_arena *arena;
    tt_setup s;
    tt_batch batch; /* the global one */
    bool rounds;    /* some value is narrower than 32 bits */
    int linears,
        converted; /* of a converter under test: linears it was asked about, and replaced */
} tt_rig;

typedef struct tt_rig_opts {
    const tt_check_job *job;
    const tt_component *part; /* under test */
    int tp, fsdp;             /* ranks; 0 = 1 */
    double lr;                /* of the optimizer; 0: its default */
    bool backend_alone;       /* kernels of plugins do not run */
} tt_rig_opts;

/* TT_EUNSUPPORTED where the plugins that complete the job are not found, or the model's smallest
 * size is too large. */
tt_status tt_rig_new(const tt_rig_opts *o, tt_rig **out, tt_error *err);
void tt_rig_free(tt_rig *rig);

/* fn on every rank, with parameters at their initial values; the first failure is the answer. */
typedef tt_status (*tt_rig_fn)(const tt_rig *rig, tt_rank *rank, void *user, tt_error *err);
tt_status tt_rig_run(const tt_rig *rig, tt_rig_fn fn, void *user, tt_error *err);

/* Forward and backward of the batch; the sum of the token losses. [collective] */
tt_status tt_rig_loss(const tt_rig *rig, tt_rank *rank, int64_t step, double *loss_sum,
                      tt_error *err);
/* A step of training, the learning rate `lr`; the mean loss before it. [collective] */
tt_status tt_rig_step(const tt_rig *rig, tt_rank *rank, int64_t step, double lr, double *loss,
                      tt_error *err);

/* A whole tensor, put together from the boxes of the ranks. */
typedef struct tt_whole {
    const char *name;
    const tt_param_info *param;
    float *data; /* [n] */
    int64_t n;
} tt_whole;
/* Storage for every parameter, in the graph's order; zeros. Arena: the rig's. */
tt_whole *tt_rig_whole(const tt_rig *rig);
/* This rank's boxes of the parameters (suffix NULL) or of a state of theirs, where it is their
 * first holder. */
tt_status tt_rig_gather(const tt_rig *rig, const tt_rank *rank, const char *suffix, tt_whole *out,
                        tt_error *err);

/* The component at i, by the array's own stride. */
static inline const tt_component *tt_rig_component(const tt_plugin *p, size_t i)
{
    return (const tt_component *)(const void *)((const char *)p->components +
                                                i * p->component_size);
}

/* What is suspicious in a model's parameters, or wrong in its flavors. */
tt_status tt_check_flavors(const tt_check_job *job, const tt_component *c, tt_error *err);
void tt_check_note_params(const tt_rig *rig, tt_str *note);
/* Optimizer: every state is assigned. Op: its rule parses. */
tt_status tt_check_states(const tt_rig *rig, tt_error *err);
tt_status tt_check_op_rule(const tt_component *c, tt_error *err);

/* The stages of a component; each adds to note. TT_EUNSUPPORTED: nothing to check here. */
tt_status tt_check_describes(const tt_check_job *job, const tt_component *c, tt_str *note,
                             tt_error *err);
/* Compares the plugin's kernels with the backend without them. */
tt_status tt_check_kernels(const tt_check_job *job, const tt_component *c, tt_str *note,
                           tt_error *err);
tt_status tt_check_gradients(const tt_check_job *job, const tt_component *c, tt_str *note,
                             tt_error *err);
tt_status tt_check_tp(const tt_check_job *job, const tt_component *c, tt_str *note, tt_error *err);
tt_status tt_check_trains(const tt_check_job *job, const tt_component *c, tt_str *note,
                          tt_error *err);

#endif
