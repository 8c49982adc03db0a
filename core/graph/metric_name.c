/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/metric_name.h"
#include <string.h>
#include <ttrun/option.h>

const char *tt_metric_own(const char *name)
{
    static const char *const own[] = {"step",
                                      "epoch",
                                      "loss",
                                      "loss_max",
                                      "grad_norm",
                                      "lr",
                                      "tokens",
                                      "tps",
                                      "n_tokens_seen",
                                      "tps_global",
                                      "tflops",
                                      "mfu",
                                      "time_s",
                                      "mem_gib",
                                      "time",
                                      "wall",
                                      "losses",
                                      "skipped",
                                      "validation",
                                      "total_epochs",
                                      "n_samples_seen",
                                      "samples_per_s",
                                      "n_steps_skipped",
                                      "total_steps",
                                      "loss_mean",
                                      "grad_norm_mean",
                                      "tokens_counted",
                                      "tps_counted",
                                      "mem_gib_most",
                                      "eta_s",
                                      "lr_groups",
                                      "experts",
                                      "qk_clip_heads",
                                      "loss_scale",
                                      "weight_norm",
                                      "weight_norms",
                                      "weight_rms",
                                      "grad_norms",
                                      "update_ratios",
                                      "attention_max_logits"};
    const size_t n = strcspn(name, "/");
    for (size_t i = 0; i < TT_COUNT(own); i++)
        if (*name == *own[i] && !strncmp(name, own[i], n) && !own[i][n])
            return own[i];
    return NULL;
}

bool tt_metric_of_model(const char *name)
{
    return !strncmp(name, "losses/", 7) || !tt_metric_own(name);
}
