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
    tt_batch batch;       /* the batch of all ranks */
    bool rounds;          /* some value of the graph has a dtype of less than 32 bits */
    int asked, converted; /* for a converter: the linears and products that it was asked about, and
                             those that it replaced */
} tt_rig;

typedef struct tt_rig_opts {
    const tt_check_job *job;
    const tt_component *part; /* the component under test */
    int tp, fsdp;             /* ranks; 0 = 1 */
    double lr;                /* learning rate of the optimizer; 0 = 1e-3, or a checked optimizer's
                                 default */
    bool fixed_choice;        /* experts in turn: the router's own choice jumps as weights change */
    bool backend_alone;       /* kernels of plugins do not run */
} tt_rig_opts;

/* TT_EUNSUPPORTED if the plugins that complete the job are not found, or the model's smallest
 * flavor is too large. */
tt_status tt_rig_new(const tt_rig_opts *o, tt_rig **out, tt_error *err);
void tt_rig_free(tt_rig *rig);

/* Calls fn on every rank, with parameters at their initial values. Returns the failure of the rank
 * that failed itself. */
typedef tt_status (*tt_rig_fn)(const tt_rig *rig, tt_rank *rank, void *user, tt_error *err);
tt_status tt_rig_run(const tt_rig *rig, tt_rig_fn fn, void *user, tt_error *err);

/* Runs the forward and the backward of the batch; returns the sum of the token losses. [collective]
 */
tt_status tt_rig_loss(const tt_rig *rig, tt_rank *rank, int64_t step, double *loss_sum,
                      tt_error *err);
/* Runs one training step with learning rate `lr`; returns the mean loss before the update.
 * [collective] */
tt_status tt_rig_step(const tt_rig *rig, tt_rank *rank, int64_t step, double lr, double *loss,
                      tt_error *err);

/* A whole tensor, assembled from the boxes of the ranks. */
typedef struct tt_whole {
    const char *name;
    const tt_param_info *param;
    float *data; /* [n] */
    int64_t n;
} tt_whole;
/* Allocates zeros for every parameter, in the graph's order, in the rig's arena. */
tt_whole *tt_rig_whole(const tt_rig *rig);
/* Copies this rank's boxes of the parameters (suffix NULL) or of an optimizer state into `out`. Of
 * several ranks that hold the same box, only the first copies it. */
tt_status tt_rig_gather(const tt_rig *rig, const tt_rank *rank, const char *suffix, tt_whole *out,
                        tt_error *err);

/* Component i of the plugin's array, whose elements may be larger than ours. */
static inline const tt_component *tt_rig_component(const tt_plugin *p, size_t i)
{
    return (const tt_component *)(const void *)((const char *)p->components +
                                                i * p->component_size);
}

/* tt_check_flavors fails if a flavor is wrong; tt_check_note_params notes what is suspicious in the
 * model's parameters. */
tt_status tt_check_flavors(const tt_check_job *job, const tt_component *c, tt_error *err);
void tt_check_note_params(const tt_rig *rig, tt_str *note);
/* Fails if the model has fewer logits than its vocab_size() says; notes if it has more. */
tt_status tt_check_vocabulary(const tt_rig *rig, tt_str *note, tt_error *err);
/* tt_check_states fails if an optimizer never assigns one of its states; tt_check_op_rule if an
 * op's rule does not parse. */
tt_status tt_check_states(const tt_rig *rig, tt_error *err);
tt_status tt_check_op_rule(const tt_component *c, tt_error *err);

/* The stages of a component; each adds to `note`. TT_EUNSUPPORTED: the stage has nothing to check.
 */
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
