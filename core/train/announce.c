/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"
#include "setup/foreign.h"
#include "setup/recomputed.h"
#include "train/loop.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a run says before its first step; with -v also what was chosen. */

static void say_part(const char *kind, const tt_part *p)
{
    if (p->component)
        tt_log(TT_DEBUG, "setup", "%s %s: %s", kind, p->name, p->file ? p->file : "built in");
}

static void say_parts(const tt_setup *s)
{
    say_part("model", &s->model);
    say_part("loss", &s->loss);
    say_part("optimizer", &s->optimizer);
    say_part("lr_scheduler", &s->lr_scheduler);
    if (s->has_tokenizer)
        say_part("tokenizer", &s->tokenizer);
    say_part("dataloader", &s->dataloader);
    say_part("backend", &s->backend);
    say_part("comm", &s->comm);
    say_part("comm of the device", &s->data_comm);
    for (int i = 0; i < s->n_converters; i++)
        say_part("converter", &s->converters[i]);
    for (int i = 0; i < s->n_metrics; i++)
        say_part("metrics", &s->metrics[i]);
    for (int i = 0; i < s->n_hooks; i++)
        say_part("hook", &s->hooks[i]);
}

static void say_memory(const tt_plan *p)
{
    const double mib = 1.0 / (1 << 20);
    const int64_t *kinds = p->state_bytes_by_kind;
    tt_log(TT_DEBUG, "plan",
           "MiB per rank: state %.1f (parameters %.1f, optimizer %.1f, gradients %.1f, gathered "
           "%.1f), slots %.1f, work %.1f, pinned %.1f",
           mib * (double)p->bytes[TT_SPACE_STATE], mib * (double)kinds[TT_STATE_PARAM],
           mib * (double)kinds[TT_STATE_OPTIMIZER], mib * (double)kinds[TT_STATE_ACCUMULATOR],
           mib * (double)kinds[TT_STATE_GATHERED],
           mib * (double)(p->bytes[TT_SPACE_SLOT] + p->bytes[TT_SPACE_KEEP] +
                          p->bytes[TT_SPACE_WGRAD]),
           mib * (double)p->bytes[TT_SPACE_WORK], mib * (double)p->bytes[TT_SPACE_PINNED]);
}

/* Names with how often each occurs in the program, in the order in which they first occur. */
typedef struct counts {
    const char *names[128];
    int times[128], n;
} counts;

static void count(counts *c, const char *name)
{
    int i = 0;
    while (i < c->n && strcmp(c->names[i], name))
        i++;
    if (i == (int)TT_COUNT(c->names))
        return;
    if (i == c->n)
        c->names[c->n++] = name;
    c->times[i]++;
}

static void say_counts(const counts *c, const char *what)
{
    tt_str o = {0};
    for (int i = 0; i < c->n; i++)
        tt_str_printf(&o, "%s%d %s", i ? ", " : "", c->times[i], c->names[i]);
    tt_log(TT_DEBUG, "plan", "%s of the program: %s", what, c->n ? tt_str_get(&o) : "none");
    tt_str_free(&o);
}

static void say_program(const tt_setup *s, const tt_program *p)
{
    counts kernels = {.n = 0}, comms = {.n = 0};
    for (int i = 0; i < p->n; i++) {
        const tt_instr *k = &p->instrs[i];
        if (k->kind == TT_INSTR_COLLECTIVE)
            count(&comms, tt_step_kind_name(k->step->kind));
        else if (k->kind == TT_INSTR_SEND)
            count(&comms, "send");
        else if (k->kind == TT_INSTR_KERNEL)
            count(&kernels, k->fused ? "fused pointwise" : k->op);
    }
    tt_log(TT_DEBUG, "plan", "schedule %s: %d stage%s on %d pipeline rank%s, %lld micro-batch%s",
           s->schedule->name, s->n_stages, s->n_stages == 1 ? "" : "s", s->pipeline_ranks,
           s->pipeline_ranks == 1 ? "" : "s", (long long)s->micro_batches,
           s->micro_batches == 1 ? "" : "es");
    tt_log(TT_DEBUG, "plan", "%d instructions; communication %s computation", p->n,
           s->overlap ? "runs concurrently with" : "does not overlap");
    say_counts(&kernels, "kernels");
    say_counts(&comms, "collectives");
}

static const char *at_a_time(const tt_setup *s)
{
    const int64_t k = s->micro_batches / s->calls;
    return k > 1 ? tt_arena_printf(s->arena, ", %lld at a time in each layer", (long long)k) : "";
}

/* The rates of the model's options for dropout: a config of Hugging Face may have set them. */
static void announce_dropout(const tt_setup *s)
{
    const tt_component *c = s->model.component;
    tt_str list = {0};
    for (size_t i = 0; i < c->n_options; i++) {
        const char *name = tt_component_option(c, i)->name;
        const double *p =
            tt_is_dropout(name) ? tt_part_value(c, s->model.config, name, TT_OPT_FLOAT) : NULL;
        if (p && *p > 0)
            tt_str_printf(&list, "%s%s %g", list.n ? ", " : "", name, *p);
    }
    if (list.n)
        tt_log(TT_INFO, "train", "dropout: %s; a rate of 0 in model.args is none",
               tt_str_get(&list));
    tt_str_free(&list);
}

/* What the backward computes again: one sentence, and the layers, those that are alike in one line; of the
 * modes full and selective the layers only with -v. */
static void announce_recomputed(const tt_setup *s)
{
    const tt_log_level level = s->recompute_choice ? TT_INFO : TT_DEBUG;
    tt_str text = {0}, table = {0};
    tt_recomputed_text(s, &text);
    tt_recomputed_table(s, 0, &table);
    if (text.n)
        tt_log(TT_INFO, "recompute", "%s", tt_str_get(&text));
    char *save = NULL;
    for (char *row = table.n ? strtok_r(table.s, "\n", &save) : NULL; row;
         row = strtok_r(NULL, "\n", &save))
        tt_log(level, "recompute", "%s", row);
    tt_str_free(&text);
    tt_str_free(&table);
}

static void name_backend(const tt_loop *l, char *text, size_t size)
{
    const tt_backend_vt *vt = l->s->backend.component->vtable;
    text[0] = 0;
    if (vt->describe)
        vt->describe(l->rank.backend, text, size);
}

void tt_loop_backend(const tt_loop *l, tt_str *out)
{
    char text[256];
    name_backend(l, text, sizeof text);
    tt_str_add(out, text);
}

void tt_loop_changes(const tt_loop *l, tt_str *out)
{
    const bool lr = tt_loop_has_own_lr(l), converters = tt_loop_has_own_converters(l);
    if (!lr && !converters)
        return;
    tt_str_printf(out, "{\"step\":%lld", (long long)l->step);
    if (lr) {
        tt_str_add(out, ",\"lr\":");
        tt_str_json_number(out, l->lr_base);
    }
    if (converters)
        tt_str_printf(out, ",\"converters\":%s", l->swap.list);
    tt_str_addc(out, '}');
}

tt_status tt_loop_describe(tt_loop *l, tt_error *err)
{
    tt_str backend = {0}, changes = {0};
    tt_swap_settle(l); /* it may be writing the file */
    tt_loop_backend(l, &backend);
    tt_loop_changes(l, &changes);
    const tt_status st = tt_run_folder_describe(l->folder, l->s, tt_str_get(&backend),
                                                changes.n ? changes.s : NULL, err);
    tt_str_free(&backend);
    tt_str_free(&changes);
    return st;
}

/* How many steps, and of what. */
static void say_length(const tt_loop *l)
{
    const tt_setup *s = l->s;
    const int64_t warmup =
        tt_setup_warmup(s, s->rate.total_steps > 0 ? s->rate.total_steps : l->steps);
    char warm[64] = "";
    if (warmup > 0)
        snprintf(warm, sizeof warm, ", %lld of them warm-up", (long long)TT_MIN(warmup, l->steps));
    tt_log(TT_INFO, "train",
           "%lld step%s%s; local batch %lld × %d data rank%s, global batch %lld, sequence length "
           "%lld",
           (long long)l->steps, l->steps == 1 ? "" : "s", warm, (long long)s->local, s->data_world,
           s->data_world == 1 ? "" : "s", (long long)s->global_batch,
           (long long)s->core.training.seq_len);
}

/* How much of this machine's memory a rank's plan is; "" on a device. */
static const char *share_of_memory(const tt_loop *l, char *text, size_t size)
{
    const double here = tt_memory_here();
    text[0] = 0;
    if (tt_device_is_host(&l->rank.device) && here > 0 && isfinite(here))
        snprintf(text, size, " (%.2f %% of this machine's memory)",
                 100 * (double)tt_program_bytes(l->rank.plan->program) / here);
    return text;
}

tt_status tt_loop_announce(tt_loop *l, tt_error *err)
{
    const tt_setup *s = l->s;
    char text[256], share[64], memory[24];
    if (!l->main)
        return TT_OK;
    if (s->core.description)
        tt_log(TT_INFO, "train", "starting: %s", s->core.description);
    name_backend(l, text, sizeof text);
    tt_setup_notices(s);
    char count[40], some[40];
    tt_grouped(some, sizeof some, (double)s->size.trained, 0);
    const bool all = s->size.trained == s->size.parameters;
    const char *trained = all ? "" : tt_arena_printf(s->arena, ", %s of them trained", some);
    tt_grouped(count, sizeof count, (double)s->size.parameters, 0);
    tt_log(TT_INFO, "train", "model %s %s: %s parameters%s, %.4g FLOP per token", s->model.name,
           s->core.flavor, count, trained, s->size.flops_per_token);
    announce_dropout(s);
    say_length(l);
    tt_log(TT_INFO, "train",
           "%d rank%s × %lld thread%s, backend %s (%s); %lld sample%s of %lld tokens per step "
           "in %lld micro-batch%s%s; plan: %s per rank%s",
           s->world, s->world == 1 ? "" : "s", (long long)s->threads, s->threads == 1 ? "" : "s",
           s->backend.name, text, (long long)s->global_batch, s->global_batch == 1 ? "" : "s",
           (long long)s->core.training.seq_len, (long long)s->micro_batches,
           s->micro_batches == 1 ? "" : "es", at_a_time(s),
           tt_memory_text(memory, (double)tt_program_bytes(l->rank.plan->program) / (1 << 30)),
           share_of_memory(l, share, sizeof share));
    announce_recomputed(s);
    if (l->o->verbose > 0) {
        say_parts(s);
        say_memory(l->rank.plan);
        say_program(s, l->rank.plan->program);
    }
    if (s->foreign)
        TT_TRY(s->foreign->keep(s, l->folder->path, l->step > 0, err));
    tt_run_folder_begin(l->folder, s, l->step);
    return tt_loop_describe(l, err);
}

void tt_loop_say_phase(const tt_loop *l, const char *what, int64_t *since_ns)
{
    const int64_t now = tt_now_ns();
    if (l->main)
        tt_log(TT_DEBUG, "time", "%s: %.3f s", what, 1e-9 * (double)(now - *since_ns));
    *since_ns = now;
}
