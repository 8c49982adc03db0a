/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"
#include "train/loop.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Reports the numbers of a step to the console, to metrics plugins and to hooks. Only rank 0 does,
 * except for hooks (hooks.c) and sinks that ask for all ranks. */

static bool on_all_ranks(const tt_metrics_vt *vt, const void *config)
{
    return TT_HAS(vt, tt_metrics_vt, all_ranks) && vt->all_ranks && vt->all_ranks(config);
}

tt_status tt_loop_open_sinks(tt_loop *l, tt_error *err)
{
    const tt_setup *s = l->s;
    tt_loop_experts_open(l);
    const tt_metrics_env me = {sizeof me,         s->core.dump_folder, l->step,
                               l->validation_due, l->rank.dist.rank,   s->world};
    for (size_t i = 0; i < s->graph->metrics.n; i++)
        if (strncmp(s->graph->metrics.items[i].name, "losses/", 7) == 0)
            snprintf(l->loss_name, sizeof l->loss_name, "losses/%.70s", s->loss.name);
    for (int i = 0; i < s->n_metrics; i++) {
        tt_sink k = {.vt = s->metrics[i].component->vtable, .name = s->metrics[i].name};
        if (!l->main && !on_all_ranks(k.vt, s->metrics[i].config))
            continue;
        TT_TRY(TT_PLUGIN_CALL(k.vt->open(s->metrics[i].config, &me, &k.self, err), err, "metrics",
                              k.name));
        l->sinks[l->n_sinks++] = k;
    }
    if (l->main && !s->has_console)
        tt_log(TT_INFO, "train",
               "metrics.sinks: the console has freq 0, so a step has no line here");
    if (l->n_sinks)
        TT_TRY(tt_writer_new(l->sinks, l->n_sinks, s->core.metrics.on_error == TT_ON_ERROR_CONTINUE,
                             l->n_metrics, &l->writer, err));
    return TT_OK;
}

void tt_loop_close_sinks(tt_loop *l)
{
    tt_writer_free(l->writer);
    l->writer = NULL;
    for (int i = 0; i < l->n_sinks; i++)
        l->sinks[i].vt->close(l->sinks[i].self);
    l->n_sinks = 0;
    tt_str_free(&l->line);
    tt_measures_free(l->measures); /* the sinks had its names */
    l->measures = NULL;
    tt_str_free(&l->early.lines);
}

tt_status tt_loop_written(tt_loop *l, tt_error *err)
{
    return l->writer ? tt_writer_finish(l->writer, err) : TT_OK;
}

static tt_status send(tt_loop *l, const tt_metrics_record *r, tt_error *err)
{
    return l->writer ? tt_writer_log(l->writer, r, err) : TT_OK;
}

/* The sink "console" may want fewer lines than are logged. */
static bool has_line(const tt_loop *l, const tt_metrics_record *r)
{
    const int64_t freq = l->s->console.freq;
    return l->s->has_console && (tt_log_get_level() >= TT_INFO || l->s->core.log_files) &&
           (r->validation || freq == INT64_MIN || tt_loop_due(l, r->step, freq));
}

static void print_line(tt_loop *l, const tt_metrics_record *r)
{
    if (!has_line(l, r))
        return;
    const int columns = tt_terminal_columns();
    tt_str_clear(&l->line);
    if (r->validation)
        tt_console_validation(r, &l->line);
    else if (columns)
        tt_console_step_fit(r, columns, l->s->world > 1, &l->line);
    else
        tt_console_step(r, &l->line);
    if (!r->validation && !columns && l->since.any_skipped)
        tt_str_add(&l->line, l->skipped_in_row ? "  skipped" : "  skipped: an earlier step");
    if (columns)
        tt_log_bare(TT_INFO, tt_str_get(&l->line));
    else
        tt_log(TT_INFO, "train", "%s", tt_str_get(&l->line));
}

/* The machine's peak is measured once, after the first step, so that it does not delay the start by
 * some milliseconds. */
static void know_peak(tt_loop *l)
{
    const tt_backend_vt *vt = l->s->backend.component->vtable;
    const int64_t t0 = tt_now_ns();
    if (l->peak_flops > 0 || !vt->peak_flops)
        return;
    l->peak_flops = vt->peak_flops(l->rank.backend, l->s->graph->precision.compute);
    l->t.begin_ns += tt_now_ns() - t0; /* does not count as part of the step */
    if (l->peak_flops > 0)
        tt_log(TT_INFO, "train", "mfu is a part of %.4g FLOP/s per rank, the peak of backend %s",
               l->peak_flops, l->s->backend.name);
}

/* What `ttrun ctl` tells about the step. */
static void show(const tt_loop *l)
{
    const tt_ctl_numbers n = {
        .step = l->known_step,
        .steps = l->steps,
        .epoch = l->epoch,
        .tokens_seen = l->tokens_seen,
        .loss = l->loss,
        .loss_max = l->loss_max,
        .norm = l->norm,
        .lr = l->lr,
        .lr_base = l->lr_base,
        .tps = tt_loop_tps(l),
        .tps_global = tt_loop_tps(l) * l->s->world,
        .seconds_left = tt_loop_seconds_left(l),
    };
    tt_ctl_show(l->ctl, &n);
}

static bool log_due(const tt_loop *l)
{
    return tt_loop_logs(l, l->known_step) || !l->logged_step;
}

/* Says once that other processes, or too many ranks, use the cores: the plan counts on cores of its own. */
static void tell_busy_cores(tt_loop *l)
{
    double ran = 0, waited = 0;
    const double seconds = tt_seconds_since(l->began_ns);
    const bool early = l->began_ran > 0 && seconds < TT_CORE_WAIT_SECONDS;
    if (isnan(l->began_ran) || early || !tt_core_times(&ran, &waited))
        return;
    if (l->began_ran <= 0) {
        l->began_ran = ran;
        l->began_waited = waited;
    }
    const double share = tt_core_wait_share(seconds, ran - l->began_ran, waited - l->began_waited);
    if (share <= 0)
        return;
    tt_log(TT_INFO, "train",
           "for %.0f %% of the time that rank 0 could have computed it had no core: the cores that "
           "it may use (%d) are busy with other work, so the run is slower than its plan",
           100 * share, tt_cpu_count());
    l->began_ran = (double)NAN;
}

tt_status tt_loop_log(tt_loop *l, tt_error *err)
{
    const bool logged = log_due(l);
    if (l->main && l->has_progress)
        tt_progress_update(&l->progress, l->known_step, l->loss, tt_loop_tps(l));
    if (l->ctl)
        show(l);
    if (!logged && !l->n_hooks)
        return TT_OK;
    if (l->main && logged)
        know_peak(l);
    const size_t n = tt_loop_numbers(l);
    const tt_metrics_record r = {.struct_size = sizeof r,
                                 .step = l->known_step,
                                 .wall_time = tt_wall_seconds(),
                                 .metrics = l->metrics,
                                 .n_metrics = n};
    TT_TRY(tt_loop_hooks_after(l, &r, err));
    if (!logged)
        return TT_OK;
    tt_status s = TT_OK;
    if (l->main) {
        tt_losses_add(&l->losses, (tt_step_loss){l->known_step, l->loss, l->loss_max});
        print_line(l, &r);
        if (l->has_progress && !l->progress.tty)
            l->progress.drawn_ns = tt_now_ns(); /* the logged line shows the same */
        tell_busy_cores(l);
    }
    s = send(l, &r, err);
    if (s == TT_OK)
        s = tt_loop_experts_write(l, false, err);
    l->t = (tt_times){.begin_ns = tt_now_ns()};
    tt_loop_numbers_begin(l);
    l->logged_step = l->known_step;
    return s;
}

/* "validation/wiki/loss"; the setup's arena holds it, since a record's names outlive the call. */
static const char *name_of_set(const tt_setup *s, int set, const char *number)
{
    return tt_arena_printf(s->arena, "validation/%s/%s", s->validation[set].name, number);
}

static size_t add_sets(tt_loop *l, const tt_validated *sets, tt_metric *m)
{
    size_t n = 0;
    for (int i = 0; i < l->s->n_validation && l->s->validation[i].name; i++) {
        if (!l->set_names[i][0]) {
            l->set_names[i][0] = name_of_set(l->s, i, "loss");
            l->set_names[i][1] = name_of_set(l->s, i, "tokens");
        }
        m[n++] = (tt_metric){l->set_names[i][0], tt_validated_loss(&sets[i])};
        m[n++] = (tt_metric){l->set_names[i][1], (double)sets[i].tokens};
    }
    return n;
}

tt_status tt_loop_log_validation(tt_loop *l, const tt_validated *all, const tt_validated *sets,
                                 tt_error *err)
{
    tt_metric m[4 + 2 * TT_MAX_PARTS] = {
        {"step",              (double)l->step       },
        {"validation/loss",   tt_validated_loss(all)},
        {"validation/tokens", (double)all->tokens   }
    };
    size_t n = 3 + add_sets(l, sets, m + 3);
    m[n] = (tt_metric){"mem_gib", tt_loop_memory_gib(l)}; /* on the console alone */
    tt_metrics_record r = {.struct_size = sizeof r,
                           .step = l->step,
                           .wall_time = tt_wall_seconds(),
                           .metrics = m,
                           .n_metrics = n + 1,
                           .validation = 1};
    print_line(l, &r);
    r.n_metrics = n;
    TT_TRY(send(l, &r, err));
    return tt_loop_hooks_validated(l, &r, err);
}
