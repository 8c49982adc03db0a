/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"
#include "passes/qk_clip.h"
#include "train/loop.h"

/* The numbers of a logged step: of the step itself, means and rates since the last line, and of the whole run. */

void tt_loop_numbers_add(tt_loop *l, double loss_sum)
{
    tt_log_sums *m = &l->since;
    if (isfinite(loss_sum)) {
        m->loss += loss_sum;
        m->weight += l->flight.weight;
    }
    m->norm += isfinite(l->norm) ? l->norm : 0;
    m->norms += isfinite(l->norm) ? 1 : 0;
    l->step_counted = l->flight.counted;
}

void tt_loop_numbers_begin(tt_loop *l)
{
    l->since = (tt_log_sums){.skipped = l->since.skipped};
    l->tokens_since = l->samples_since = 0;
}

double tt_loop_device_bytes(const tt_loop *l)
{
    const tt_device *d = &l->rank.device;
    uint64_t left = 0, all = 0;
    tt_error ignored;
    if (tt_device_is_host(d) || tt_device_memory(d, &left, &all, &ignored) != TT_OK)
        return (double)NAN;
    return (double)(all - left);
}

double tt_loop_memory_gib(const tt_loop *l)
{
    return (tt_device_is_host(&l->rank.device) ? tt_memory_most() : l->device_most) / (1 << 30);
}

static void metric_add(tt_loop *l, size_t *n, const char *name, double v)
{
    l->metrics[(*n)++] = (tt_metric){name, v};
}

/* Seconds since the last logged step, without checkpoints and validations. */
static double time_so_far(const tt_loop *l)
{
    return tt_seconds_since(l->t.begin_ns) - l->t.checkpoint - l->t.validation;
}

/* Tokens per second and rank since then. */
double tt_loop_tps(const tt_loop *l)
{
    return (double)l->tokens_since / TT_MAXV(time_so_far(l), 1e-9) / l->s->world;
}

double tt_loop_seconds_left(const tt_loop *l)
{
    const int64_t done = l->known_step - l->began_step;
    const double per_step = done > 0 ? tt_seconds_since(l->began_ns) / (double)done : (double)NAN;
    return per_step * (double)(l->steps - l->known_step);
}

double tt_loop_train_seconds(const tt_loop *l)
{
    return l->trained_before + (l->began_ns ? tt_seconds_since(l->began_ns) : 0);
}

/* Means since the last logged step. */
static void add_means(tt_loop *l, size_t *n)
{
    const tt_log_sums *m = &l->since;
    metric_add(l, n, "loss_mean", m->weight > 0 ? m->loss / m->weight : (double)NAN);
    metric_add(l, n, "grad_norm_mean", m->norms ? m->norm / (double)m->norms : (double)NAN);
    metric_add(l, n, "tokens_counted", (double)l->step_counted);
}

/* The rate of each parameter group that has another one than the job's. */
static void add_rates(tt_loop *l, size_t *n)
{
    static const char *const names[] = {"lr_groups/0", "lr_groups/1", "lr_groups/2", "lr_groups/3",
                                        "lr_groups/4", "lr_groups/5", "lr_groups/6", "lr_groups/7"};
    for (int i = 1; i < l->s->n_groups && i <= (int)TT_COUNT(names); i++) {
        const double factor = l->s->groups[i].lr_factor;
        if (factor < 1 || factor > 1)
            metric_add(l, n, names[i - 1], l->lr * factor);
    }
}

/* How long rank 0 has waited for communication, by the axes of the mesh that it goes over. */
static void add_comm(tt_loop *l, size_t *n, double steps)
{
    int n_axes;
    const tt_exec_axes *axes = tt_exec_comm_axes(l->rank.exec, &n_axes);
    for (int i = 0; i < n_axes; i++)
        metric_add(l, n, axes[i].name, l->t.comm_axes[i] / steps);
}

size_t tt_loop_numbers(tt_loop *l)
{
    const tt_setup *s = l->s;
    const double steps = (double)TT_MAXV(l->known_step - l->logged_step, 1);
    const double dt = time_so_far(l);
    const double tps = (double)l->tokens_since / dt, per_rank = tps / s->world;
    const double tflops = per_rank * s->size.flops_per_token * 1e-12;
    size_t n = 0;
    metric_add(l, &n, "step", (double)l->known_step);
    metric_add(l, &n, "epoch", (double)l->epoch);
    if (l->by_epoch)
        metric_add(l, &n, "total_epochs", l->epochs);
    metric_add(l, &n, "loss", l->loss);
    metric_add(l, &n, "loss_max", l->loss_max);
    metric_add(l, &n, "grad_norm", l->norm);
    metric_add(l, &n, "lr", l->lr);
    add_rates(l, &n);
    add_means(l, &n);
    if (l->since.any_skipped)
        metric_add(l, &n, "skipped", 1);
    if (s->graph->skipped)
        metric_add(l, &n, "n_steps_skipped", (double)l->since.skipped);
    if (s->graph->qk_clip)
        metric_add(l, &n, TT_METRIC_QK_CLIP, tt_exec_metric(l->rank.exec, TT_METRIC_QK_CLIP));
    if (s->graph->loss_scale)
        metric_add(l, &n, TT_METRIC_LOSS_SCALE, l->loss_scale);
    if (l->loss_name[0])
        metric_add(l, &n, l->loss_name, l->loss);
    for (size_t i = 0; i < s->graph->metrics.n; i++) {
        const tt_metric_entry *m = &s->graph->metrics.items[i];
        const double divisor = m->of_tokens ? l->flight.weight : (double)s->micro_batches;
        metric_add(l, &n, m->name, tt_exec_metric(l->rank.exec, m->state) / divisor);
    }
    n += tt_loop_experts(l, l->metrics + n);
    metric_add(l, &n, "tokens", (double)l->step_tokens);
    metric_add(l, &n, "n_tokens_seen", (double)l->tokens_seen);
    metric_add(l, &n, "tps", per_rank);
    metric_add(l, &n, "tps_global", tps);
    metric_add(l, &n, "n_samples_seen", (double)l->samples_seen);
    metric_add(l, &n, "samples_per_s", (double)l->samples_since / dt);
    metric_add(l, &n, "tflops", tflops);
    metric_add(l, &n, "mfu", l->peak_flops > 0 ? tflops * 1e12 / l->peak_flops : (double)NAN);
    l->device_most = fmax(l->device_most, tt_loop_device_bytes(l));
    metric_add(l, &n, "mem_gib", fmax(l->most_memory, tt_loop_memory_gib(l)));
    metric_add(l, &n, "time_s", dt / steps);
    metric_add(l, &n, "time/data", l->t.data / steps);
    metric_add(l, &n, "time/forward_backward", l->t.forward_backward / steps);
    metric_add(l, &n, "time/optimizer", l->t.optimizer / steps);
    metric_add(l, &n, "time/comm_exposed", l->t.comm / steps);
    add_comm(l, &n, steps);
    metric_add(l, &n, "time/checkpoint", l->t.checkpoint / steps);
    metric_add(l, &n, "time/left", tt_loop_seconds_left(l));
    metric_add(l, &n, "time/train", tt_loop_train_seconds(l));
    if (tt_loop_shows_measures(l, l->known_step) && tt_measures_step(l->measures) == l->known_step)
        n += tt_measures_metrics(l->measures, l->metrics + n);
    return n;
}

void tt_loop_say_end(const tt_loop *l)
{
    const int64_t done = l->known_step - l->began_step;
    char tps[40], memory[24];
    const double seconds = tt_seconds_since(l->began_ns);
    const double tokens = (double)(l->tokens_seen - l->began_tokens);
    tt_grouped(tps, sizeof tps, tokens / TT_MAXV(seconds, 1e-9) / l->s->world, 0);
    if (l->main && done > 0)
        tt_log(TT_INFO, "train",
               "finished: %lld step%s, %.0f tokens in %.1f s: %s tokens per second per rank, "
               "validations and checkpoints included; most memory of a rank: %s",
               (long long)done, done == 1 ? "" : "s", tokens, seconds, tps,
               tt_memory_text(memory, fmax(l->most_memory, tt_loop_memory_gib(l))));
}
