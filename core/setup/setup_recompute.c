/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/hidden.h"
#include "plan/memory.h"
#include "setup/setup_budget.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The section activation_checkpoint: what the recompute pass gets from it, and the memory and the time
 * of one way to recompute. */

#define KEY(name) "activation_checkpoint." name

double tt_setup_program_bytes(const tt_setup *s, const tt_plan *p)
{
    if (!tt_setup_has_device(s))
        return (double)tt_program_bytes(p->program);
    const tt_program_memory m = tt_program_memory_of(p->program);
    return (double)(m.device + m.messages);
}

/* ---- the section ---- */

/* The ops of save_ops; out NULL: only checks that they are there. */
static tt_status find_ops(const tt_setup *s, const tt_op_def **out, tt_error *err)
{
    const tt_strings *ops = &s->core.activation_checkpoint.save_ops;
    for (size_t i = 0; i < ops->n; i++) {
        const bool sums = !strcmp(ops->items[i], tt_op_redistribute.name); /* not a model's op */
        const tt_op_def *op = sums ? &tt_op_redistribute : tt_op_find(&s->ops, ops->items[i]);
        if (!op)
            return tt_job_fail(s->job, KEY("save_ops"), err,
                               "there is no op \"%s\" (docs/ops.md lists the ops)", ops->items[i]);
        if (out)
            out[i] = op;
    }
    return TT_OK;
}

/* A key that only one mode reads. */
static tt_status check_mode(const tt_setup *s, const char *key, tt_checkpoint_mode mode,
                            const char *name, tt_error *err)
{
    if (!tt_job_has(s->job, key) || s->core.activation_checkpoint.mode == mode)
        return TT_OK;
    return tt_job_fail(s->job, key, err, "has no effect: activation_checkpoint.mode is not \"%s\"",
                       name);
}

/* The n of selective_ac_option; 0: it is "op". */
static tt_status every_of(const tt_setup *s, int *every, tt_error *err)
{
    const char *text = s->core.activation_checkpoint.selective_ac_option;
    char *end;
    *every = 0;
    if (!text || !strcmp(text, "op"))
        return TT_OK;
    const long n = strtol(text, &end, 10);
    if (*end || end == text || n < 1 || n > 1000000)
        return tt_job_fail(s->job, KEY("selective_ac_option"), err,
                           "expected \"op\" or a number of layers, like \"2\"; got \"%s\"", text);
    *every = (int)n;
    return TT_OK;
}

tt_status tt_setup_recompute(tt_setup *s, tt_error *err)
{
    const tt_activation_checkpoint_config *c = &s->core.activation_checkpoint;
    int every;
    s->recompute_machine = &tt_machine_order;
    if (tt_setup_has_device(s))
        TT_TRY(tt_setup_find_machine(s, &s->recompute_machine, err));
    if (c->save_ops.n) /* a resolved job has all keys, with their defaults */
        TT_TRY(check_mode(s, KEY("save_ops"), TT_CHECKPOINT_SELECTIVE, "selective", err));
    if (c->memory_gib > 0)
        TT_TRY(check_mode(s, KEY("memory_gib"), TT_CHECKPOINT_BUDGET, "budget", err));
    TT_TRY(find_ops(s, NULL, err));
    TT_TRY(every_of(s, &every, err));
    if (every && c->save_ops.n)
        return tt_job_fail(s->job, KEY("save_ops"), err,
                           "has no effect: selective_ac_option \"%s\" recomputes whole layers",
                           c->selective_ac_option);
    if (c->mode != TT_CHECKPOINT_BUDGET)
        return TT_OK;
    if (c->memory_gib > 0 && fabs(c->memory_budget - 0.5) > 0) /* 0.5 is the default */
        return tt_job_fail(s->job, KEY("memory_budget"), err,
                           "memory_gib is given, too; set one of them");
    return tt_setup_choose_recompute(s, err);
}

/* The most micro-batches of each stage that are between forward and backward at a time. */
static const int *count_in_flight(tt_setup *s)
{
    const tt_schedule *c = s->schedule;
    int *most = tt_arena_array(s->arena, (size_t)c->n_stages + 1, sizeof *most),
        *now = tt_arena_array(s->arena, (size_t)c->n_stages + 1, sizeof *now);
    for (int r = 0; r < c->n_ranks; r++)
        for (int i = 0; i < c->n_actions[r]; i++) {
            const tt_action *x = &c->actions[r][i];
            if (x->kind == TT_ACTION_F)
                now[x->stage]++;
            else if (x->kind != TT_ACTION_W)
                now[x->stage]--;
            most[x->stage] = TT_MAXV(most[x->stage], now[x->stage]);
        }
    return most;
}

void tt_setup_recompute_cut(tt_setup *s, const int *level, const int *way, double part,
                            tt_recompute_opts *out)
{
    tt_recompute_cut *cut = tt_arena_alloc(s->arena, sizeof *cut);
    *cut =
        (tt_recompute_cut){.n_ranks = s->pipeline_ranks,
                           .stage_rank = s->schedule->stage_rank,
                           .in_flight = count_in_flight(s),
                           .level = level,
                           .part = part,
                           .way = way,
                           .most_bytes = tt_setup_most_offloaded(s),
                           .ahead = (int)s->core.activation_checkpoint.offload_prefetch_n_layers};
    *out = (tt_recompute_opts){.mode = TT_RECOMPUTE_CUT,
                               .fetches = !tt_setup_keeps_parameters(s),
                               .cut = cut,
                               .machine = s->recompute_machine};
}

void tt_setup_recompute_opts(tt_setup *s, tt_recompute_opts *out)
{
    static const tt_recompute_mode modes[] = {[TT_CHECKPOINT_NONE] = TT_RECOMPUTE_NONE,
                                              [TT_CHECKPOINT_SELECTIVE] = TT_RECOMPUTE_SELECTIVE,
                                              [TT_CHECKPOINT_FULL] = TT_RECOMPUTE_FULL};
    const tt_activation_checkpoint_config *c = &s->core.activation_checkpoint;
    if (c->mode == TT_CHECKPOINT_BUDGET) {
        tt_setup_recompute_cut(s, s->recompute_choice->level, s->recompute_choice->way, 0, out);
        return;
    }
    *out = (tt_recompute_opts){.mode = modes[c->mode],
                               .fetches = !tt_setup_keeps_parameters(s),
                               .machine = s->recompute_machine};
    if (c->mode != TT_CHECKPOINT_SELECTIVE)
        return;
    (void)every_of(s, &out->every, NULL); /* checked by tt_setup_recompute */
    if (out->every)
        out->mode = TT_RECOMPUTE_FULL;
    const tt_op_def **keep = tt_arena_array(s->arena, c->save_ops.n + 1, sizeof *keep);
    (void)find_ops(s, keep, NULL);
    out->keep = keep;
    out->n_keep = c->save_ops.n;
}

/* ---- one way to recompute ---- */

/* The time of a rank's stages for a micro-batch, with the communication that nothing hides. */
static double seconds_of(const tt_setup *s, const tt_plan *p)
{
    const tt_section *part[TT_N_PARTS];
    double sum = 0, of[TT_N_PARTS];
    const int together = s->n_stages == 1 ? TT_N_PARTS : 1;
    for (int i = 0; i < p->n_stages; i++) {
        for (int k = 0; k < TT_N_PARTS; k++)
            part[k] = tt_program_section(p->program, p->stages[i].stage,
                                         (tt_section_kind)(TT_SECTION_F + k));
        for (int k = 0; k < TT_N_PARTS; k += together)
            sum +=
                tt_program_seconds(p->program, part + k, together, s->recompute_machine, of).total;
    }
    return sum;
}

tt_status tt_setup_evaluate(tt_setup *s, const tt_recompute_opts *o, tt_arena *a,
                            tt_recompute_cost *out, tt_error *err)
{
    tt_recompute_found found = {0};
    tt_recompute_opts with = *o;
    const tt_plan *first = NULL;
    with.found = &found;
    TT_TRY(tt_setup_compile_graph(s, TT_MODE_TRAIN, &with, NULL, true, a, &out->graph, err));
    for (int r = 0; found.n_levels && r < s->pipeline_ranks; r++)
        out->n_levels[r] = found.n_levels[r];
    for (int r = 0; r < s->pipeline_ranks; r++) {
        tt_plan *p;
        TT_TRY(tt_setup_try_plan(s, out->graph, r, first, a, &p, err));
        out->bytes[r] = tt_setup_program_bytes(s, p);
        out->time[r] = seconds_of(s, p);
        out->host[r] = (double)p->program->bytes[TT_SPACE_OFFLOADED];
        first = first ? first : p;
    }
    return TT_OK;
}

tt_recompute_cost tt_recompute_cost_new(const tt_setup *s, tt_arena *a)
{
    const size_t n = (size_t)s->pipeline_ranks + 1;
    return (tt_recompute_cost){.bytes = tt_arena_array(a, n, sizeof(double)),
                               .time = tt_arena_array(a, n, sizeof(double)),
                               .host = tt_arena_array(a, n, sizeof(double)),
                               .n_levels = tt_arena_array(a, n, sizeof(int))};
}

tt_status tt_setup_try_recompute(tt_setup *s, tt_recompute_try *t, tt_arena *a, tt_error *err)
{
    tt_recompute_cost c = tt_recompute_cost_new(s, a);
    tt_recompute_opts o = {
        .mode = t->mode, .fetches = !tt_setup_keeps_parameters(s), .machine = s->recompute_machine};
    s->graph = NULL; /* the graph that is tried has parameters of its own */
    if (t->mode == TT_RECOMPUTE_CUT)
        tt_setup_recompute_cut(s, t->level, t->way, t->part, &o);
    TT_TRY(tt_setup_evaluate(s, &o, a, &c, err));
    t->graph = c.graph;
    t->bytes = t->time = 0;
    for (int r = 0; r < s->pipeline_ranks; r++) {
        t->bytes = TT_MAXV(t->bytes, c.bytes[r]);
        t->time = TT_MAXV(t->time, c.time[r]);
    }
    return TT_OK;
}
