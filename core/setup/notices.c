/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/qk_clip.h"
#include "setup/setup_impl.h"
#include <math.h>
#include <string.h>
#include <ttrun/corpus.h>

/* What a user should know about the job before it runs. */

/* The files of one loader, if it has the option "path". */
static tt_status find_files(const tt_setup *s, const tt_part *p, const char *section, tt_error *err)
{
    tt_error why = {0};
    tt_files files = {0};
    const tt_strings *path =
        p->component ? tt_part_value(p->component, p->config, "path", TT_OPT_STRINGS) : NULL;
    if (!path)
        return TT_OK;
    const tt_status st = tt_files_find(path, tt_job_dir(s->job), "corpus/*.txt", &files, &why);
    if (st == TT_OK)
        tt_files_free(&files);
    else
        tt_setup_fail(s->job, section, why.text, err);
    return st;
}

tt_status tt_setup_find_data(const tt_setup *s, tt_error *err)
{
    if (!tt_part_is_mixture(&s->dataloader))
        TT_TRY(find_files(s, &s->dataloader, "dataloader", err));
    for (int i = 0; tt_part_is_mixture(&s->dataloader) && i < tt_mixture_size(&s->dataloader); i++)
        TT_TRY(find_files(s, tt_mixture_part(&s->dataloader, i),
                          tt_arena_printf(s->arena, "dataloader.mixture[%d]", i), err));
    for (int i = 0; s->has_validation && i < s->n_validation; i++)
        TT_TRY(find_files(s, &s->validation[i].data, s->validation[i].section, err));
    return TT_OK;
}

void tt_setup_notice_warmup(const tt_setup *s, int64_t total)
{
    const int64_t warmup = tt_setup_warmup(s, total);
    if (total > 1 && warmup >= total - warmup)
        tt_log(TT_WARN, "job",
               "the learning rate rises during %lld of the %lld steps of the run: set a lower "
               "lr_scheduler.warmup_steps, or warmup_ratio",
               (long long)warmup, (long long)total);
}

/* Of other trainers lr_min may be a rate; here, as in torchtitan, it is a share. */
static void notice_lr_min(const tt_setup *s)
{
    const double *rate = tt_optimizer_rate(s->optimizer.component, s->optimizer.config);
    const double *share = tt_part_value(s->lr_scheduler.component, s->lr_scheduler.config,
                                        "min_lr_factor", TT_OPT_FLOAT);
    if (tt_job_spelt(s->job, "lr_scheduler.lr_min") && rate && share)
        tt_log(TT_INFO, "job",
               "lr_scheduler.lr_min: %g is a share of optimizer.lr (min_lr_factor): the rate ends "
               "at %g, that is %g times %g",
               *share, *share * *rate, *share, *rate);
}

static void add_name(tt_str *o, bool does_nothing, const char *key)
{
    if (does_nothing)
        tt_str_printf(o, "%s%s", o->n ? ", " : "", key);
}

/* Keys that ask for something which another key keeps from happening. */
static void notice_idle_keys(const tt_setup *s)
{
    const tt_checkpoint_config *c = &s->core.checkpoint;
    const char *off = tt_checkpoint_off(c);
    tt_str keys = {0};
    bool board = false;
    add_name(&keys, off && c->snapshot_interval > 0, "checkpoint.snapshot_interval");
    add_name(&keys, off && c->enable_first_step_checkpoint,
             "checkpoint.enable_first_step_checkpoint");
    if (keys.n)
        tt_log(TT_WARN, "job", "%s: nothing is saved, because %s", keys.s, off);
    tt_str_free(&keys);
    for (int i = 0; i < s->n_metrics; i++)
        board = board || !strcmp(s->metrics[i].name, "tensorboard");
    if (s->core.metrics.save_for_all_ranks && !board)
        tt_log(TT_WARN, "job",
               "metrics.save_for_all_ranks does nothing: TensorBoard alone writes for all ranks, "
               "and metrics.enable_tensorboard is false or metrics.sinks leaves it out");
}

void tt_setup_notices(const tt_setup *s)
{
    size_t n;
    const char *const *lines = tt_job_notices(s->job, &n);
    const int64_t steps = s->core.training.steps;
    for (size_t i = 0; i < n; i++)
        tt_log(TT_INFO, "job", "%s", lines[i]);
    if (s->n_validation && !s->core.validation.enable)
        tt_log(TT_INFO, "job", "%s is not used: validation.enable is false",
               s->validation[0].name ? "validation.datasets" : s->validation[0].section);
    if (tt_job_has(s->job, "training.steps") && steps != INT64_MIN &&
        !isnan(s->core.training.num_train_epochs))
        tt_log(TT_INFO, "job", "training.steps is not used: training.num_train_epochs is set");
    if (!tt_setup_by_epoch(s))
        tt_setup_notice_warmup(s, steps);
    notice_lr_min(s);
    notice_idle_keys(s);
    tt_setup_notice_idle(s);
}

static void notice_qk_clip(const tt_setup *s)
{
    const tt_qk_clip *c = s->graph->qk_clip;
    const int n = c ? (int)c->attentions.n : 0;
    if (c && c->n_clipped < n)
        tt_log(TT_INFO, "train",
               "optimizer.qk_clip: %d of %d attention layers normalize their queries, and are not "
               "clipped: no "
               "factor of their weights changes a logit",
               n - c->n_clipped, n);
}

static void notice_async_tp(const tt_setup *s)
{
    if (s->graph->async_tp.whole)
        tt_log(
            TT_INFO, "train",
            "parallelism.enable_async_tensor_parallel: %d all-gathers and reduce-scatters stay in "
            "one piece, because their products run over token chunks",
            s->graph->async_tp.whole);
}

static void notice_interleaved(const tt_setup *s)
{
    if (s->core.training.intra_layer_micro_batch > 1 && !s->overlap)
        tt_log(TT_WARN, "train",
               "training.intra_layer_micro_batch hides no communication here, and takes memory: %s",
               s->world < 2 ? "there is one rank"
                            : "comm.overlap is off, or no core is left for it");
}

void tt_setup_notice_graph(const tt_setup *s)
{
    notice_interleaved(s);
    notice_qk_clip(s);
    notice_async_tp(s);
}
