/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"
#include <string.h>

/* Keys of the job that do nothing, because another key, which the job leaves as it is, keeps them from it: a line for each of
 * those. Whoever has set that other key knows. */

#define P "parallelism."
static const char *const of_pipeline[] = {P "pipeline_parallel_schedule",
                                          P "pipeline_parallel_schedule_csv",
                                          P "pipeline_parallel_layers_per_stage",
                                          P "pipeline_parallel_split_points",
                                          P "module_fqns_per_model_part",
                                          P "pipeline_parallel_microbatches",
                                          NULL};
static const char *const of_context[] = {P "context_parallel_load_balancer",
                                         P "context_parallel_rotate_method", NULL};
static const char *const of_tensor[] = {P "enable_sequence_parallel",
                                        P "enable_async_tensor_parallel", NULL};
static const char *const of_experts[] = {P "expert_buffer_factor", P "expert_replicas",
                                         P "expert_replicas_gb", P "expert_replicas_skew", NULL};
static const char *const of_validation[] = {"validation.freq",
                                            "validation.steps",
                                            "validation.at_start",
                                            "validation.local_batch_size",
                                            "validation.seq_len",
                                            "validation.early_stopping_patience",
                                            "validation.early_stopping_threshold",
                                            NULL};
static const char *const of_patience[] = {"validation.early_stopping_threshold", NULL};
static const char *const of_traces[] = {"profiling.freq",
                                        "profiling.active",
                                        "profiling.skip_first",
                                        "profiling.repeat",
                                        "profiling.ranks",
                                        "profiling.save_traces_folder",
                                        NULL};
static const char *const of_snapshots[] = {"profiling.memory_snapshot_freq",
                                           "profiling.memory_snapshot_max_entries",
                                           "profiling.save_memory_snapshot_folder", NULL};
static const char *const of_norms[] = {"metrics.norms_freq", NULL};
static const char *const of_health[] = {"debug.health_check_policy", NULL};
static const char *const of_replay[] = {"debug.replay_on", NULL};
static const char *const of_float16[] = {"training.loss_scale", "training.loss_scale_window", NULL};
static const char *const of_recomputing[] = {"activation_checkpoint.selective_ac_option",
                                             "activation_checkpoint.memory_gib",
                                             "activation_checkpoint.memory_budget", NULL};
static const char *const of_offload[] = {"activation_checkpoint.offload_budget_gb",
                                         "activation_checkpoint.offload_prefetch_n_layers", NULL};
static const char *const of_hf[] = {"checkpoint.hf_keep", NULL};
static const char *const of_loading[] = {"checkpoint.initial_load_model_only",
                                         "checkpoint.initial_load_strict",
                                         "checkpoint.initial_load_rename", NULL};

typedef struct idle {
    bool off;                 /* the other key keeps these from doing anything */
    const char *because, *is; /* the other key, and its value */
    const char *const *keys;  /* NULL behind the last */
} idle;

static void notice(const tt_setup *s, const idle *x)
{
    tt_str keys = {0};
    int n = 0;
    if (!x->off || tt_job_has(s->job, x->because))
        return;
    for (const char *const *key = x->keys; *key; key++)
        if (tt_job_has(s->job, *key))
            tt_str_printf(&keys, "%s%s", n++ ? ", " : "", *key);
    if (n)
        tt_log(TT_INFO, "job", "%s %s not used: %s is %s", keys.s, n > 1 ? "are" : "is", x->because,
               x->is);
    tt_str_free(&keys);
}

void tt_setup_notice_idle(const tt_setup *s)
{
    const tt_core_config *c = &s->core;
    const tt_parallelism_config *p = &c->parallelism;
    const tt_validation_config *v = &c->validation;
    const tt_checkpoint_config *k = &c->checkpoint;
    const tt_activation_checkpoint_config *a = &c->activation_checkpoint;
    const bool loads = k->initial_load_path || k->initial_load_command || k->initial_load_in_hf;
    /* clang-format off */
    const idle all[] = {
        {p->pipeline_parallel_degree == 1, P "pipeline_parallel_degree", "1", of_pipeline},
        {p->context_parallel_degree == 1, P "context_parallel_degree", "1", of_context},
        {p->tensor_parallel_degree == 1, P "tensor_parallel_degree", "1", of_tensor},
        {p->expert_parallel_degree == 1, P "expert_parallel_degree", "1", of_experts},
        {!v->enable, "validation.enable", "false", of_validation},
        {v->enable && !v->early_stopping_patience, "validation.early_stopping_patience", "0", of_patience},
        {!c->profiling.enable, "profiling.enable", "false", of_traces},
        {!c->profiling.enable_memory_snapshot, "profiling.enable_memory_snapshot", "false", of_snapshots},
        {!c->metrics.norms && !c->metrics.attention_max_logits, "metrics.norms", "off", of_norms},
        {!c->debug.health_check_freq, "debug.health_check_freq", "0", of_health},
        {!c->debug.replay_interval, "debug.replay_interval", "0", of_replay},
        {c->training.mixed_precision_param != TT_F16, "training.mixed_precision_param", "not float16", of_float16},
        {a->mode == TT_CHECKPOINT_NONE, "activation_checkpoint.mode", "none", of_recomputing},
        {a->offload == TT_ACTIVATIONS_STAY, "activation_checkpoint.offload", "none", of_offload},
        {!loads, "checkpoint.initial_load_path", "null", of_loading},
        {k->hf_interval < 1 && !k->last_save_in_hf, "checkpoint.hf_interval", "0", of_hf},
    };
    /* clang-format on */
    for (size_t i = 0; i < TT_COUNT(all); i++)
        notice(s, &all[i]);
}
