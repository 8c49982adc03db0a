/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"

/* How a step may run. optimizer.early_step_in_backward: an update in the backward cannot depend on what is known
 * after it. debug.replay_on: what a rank can compute in another one's place. */

#define KEY "optimizer.early_step_in_backward"
#define REPLAY "debug.replay_on"

/* What the job asks for that needs all gradients before the first update; NULL: nothing. */
static const char *needs_all_gradients(const tt_setup *s)
{
    const tt_core_config *c = &s->core;
    if (s->qk_clip > 0)
        return "optimizer.qk_clip scales weights by the largest logits of all micro-batches and "
               "ranks, "
               "which are known after the backward: set optimizer.qk_clip to null";
    if (c->training.max_norm > 0)
        return "training.max_norm clips by the norm of all gradients, which is known after the "
               "backward: set training.max_norm to 0";
    if (c->training.skip_nonfinite)
        return "training.skip_nonfinite decides after the backward whether to update: leave it out";
    if (c->training.max_grad_norm_skip > 0)
        return "training.max_grad_norm_skip decides after the backward whether to update: leave it "
               "out";
    if (c->training.mixed_precision_param == TT_F16)
        return "float16 has a loss scale, which decides after the backward whether to update: set "
               "training.mixed_precision_param to bfloat16";
    if (c->training.clip_norm_order < 2 || c->training.clip_norm_order > 2)
        return "training.clip_norm_type must be 2, because others read all "
               "gradients twice";
    if (c->metrics.norms != TT_NORMS_OFF)
        return "metrics.norms measures all gradients after the backward: set it to off";
    if (c->debug.health_check_freq > 0)
        return "debug.health_check_freq measures all gradients after the backward: set it to 0";
    if (c->debug.replay_interval > 0)
        return "debug.replay_interval computes the backward again with the same parameters: set it "
               "to 0";
    return NULL;
}

static tt_status check_replay(const tt_setup *s, tt_error *err)
{
    const tt_axis *axis = tt_mesh_data_axis(&s->mesh), *ep = tt_mesh_axis(&s->mesh, "ep");
    if (s->core.debug.replay_on != TT_REPLAY_NEXT)
        return TT_OK;
    if (!s->core.debug.replay_interval)
        return tt_job_fail(s->job, REPLAY, err,
                           "debug.replay_interval is 0, so no step is computed again: set it too");
    if (!axis)
        return tt_job_fail(s->job, REPLAY, err,
                           "no other rank has the same weights and other data: take more data-"
                           "parallel ranks (--nproc), or \"same\"");
    if (ep && tt_atom_list_mask(&ep->atoms) & tt_atom_list_mask(&axis->atoms))
        return tt_job_fail(s->job, REPLAY, err,
                           "experts add up the tokens of the ranks of %s in these ranks' order, "
                           "which another rank does not have: set "
                           "parallelism.expert_parallel_degree to 1, or take \"same\"",
                           axis->name);
    return TT_OK;
}

tt_status tt_setup_check_step(tt_setup *s, tt_error *err)
{
    if (s->qk_clip > 0 && !tt_setup_kernel(s, "attention_max"))
        return tt_job_fail(s->job, "optimizer.qk_clip", err,
                           "backend %s has no kernel attention_max, which finds the largest logits",
                           s->backend.name);
    TT_TRY(check_replay(s, err));
    const char *why = s->early_step ? needs_all_gradients(s) : NULL;
    if (!s->early_step)
        return TT_OK;
    if (why)
        return tt_job_fail(s->job, KEY, err, "%s", why);
    if (s->n_stages > 1)
        return tt_job_fail(s->job, KEY, err,
                           "a pipeline sums the gradients of its micro-batches, so all must be in "
                           "memory and nothing is saved: leave early_step_in_backward out, or set "
                           "parallelism.pipeline_parallel_degree to 1");
    if (s->micro_batches > 1)
        return tt_job_fail(s->job, KEY, err,
                           "the gradients of %lld micro-batches are summed, so all must be in "
                           "memory and nothing is saved: leave training.global_batch_size out, or "
                           "raise training.local_batch_size",
                           (long long)s->micro_batches);
    if (tt_setup_offloads_states(s))
        return tt_job_fail(s->job, KEY, err,
                           "training.enable_cpu_offload passes the optimizer's states through the "
                           "device after the backward: take one of the two");
    return TT_OK;
}
