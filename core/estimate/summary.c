/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "estimate/device_memory.h"
#include "estimate/estimate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The summary that `ttrun plan` prints: memory, communication and time of a run, before it runs. */

/* Communication of one kind, axis and cause, per step, on the busiest pipeline rank. */
typedef struct traffic {
    char name[64]; /* "all_gather over dp_shard" */
    const char *cause;
    int64_t calls, now_calls;
    double bytes, now; /* now: of the pipeline rank that is being counted */
} traffic;

typedef struct counter {
    const tt_setup *s;
    const tt_machine *machine; /* NULL: this machine */
    tt_step_time time;         /* on that machine */
    const tt_graph *g;
    bool *gradient;           /* by value id: the value ends up in a gradient's accumulator */
    const tt_device_use *use; /* by pipeline rank; NULL: the backend uses host memory */
    traffic t[96];
    int n;
} counter;

/* Marks the values that a gradient's accumulator receives, backwards through the steps of a
 * reduction. */
static void mark_gradients(counter *c)
{
    const tt_graph *g = c->g;
    for (size_t i = g->nodes.n; i-- > 0;) {
        const tt_node *n = g->nodes.items[i];
        const bool adds = n->op == &tt_op_accumulate && n->state->stack;
        const bool passes = n->op == &tt_op_collective || tt_node_is_cast(n);
        if (adds || (passes && c->gradient[n->out[0]->id]))
            c->gradient[n->in[0]->id] = true;
    }
}

static const char *cause_of(const counter *c, const tt_node *n)
{
    if (n->param && n->op != &tt_op_transfer)
        return n->when->recomputed ? "parameters, again for the backward" : "parameters";
    if (n->when->region == TT_POST_UPDATE)
        return "buffers";
    if (n->when->region == TT_UPDATE)
        return "optimizer";
    if (n->when->region == TT_EPILOGUE)
        return !strcmp(n->scope, "norm")      ? "gradient norm"
               : !strcmp(n->scope, "metrics") ? "metrics"
                                              : "gradients, once per step";
    if (n->n_out && c->gradient[n->out[0]->id])
        return "gradients";
    if (n->when->recomputed)
        return "activations, again for the backward";
    return n->when->region == TT_FORWARD ? "activations" : "gradients of activations";
}

static void traffic_add(counter *c, double times, const char *name, const char *cause, double bytes)
{
    int at = 0;
    while (at < c->n && (strcmp(c->t[at].name, name) || strcmp(c->t[at].cause, cause)))
        at++;
    if (at == (int)TT_COUNT(c->t))
        return;
    if (at == c->n) {
        c->t[at] = (traffic){.cause = cause};
        snprintf(c->t[at].name, sizeof c->t[at].name, "%s", name);
        c->n++;
    }
    c->t[at].now_calls += (int64_t)times;
    c->t[at].now += times * bytes;
}

/* What the rank sends for an instruction that runs so often in a step. */
static void count_instr(counter *c, const tt_program *p, const tt_instr *i, double times)
{
    char name[64], axes[48];
    if (i->kind == TT_INSTR_SEND)
        traffic_add(c, times, "send over pp", cause_of(c, i->node),
                    (double)p->operands[i->in[0]].bytes);
    if (i->kind != TT_INSTR_COLLECTIVE)
        return;
    tt_mesh_print_axes(p->mesh, &i->step->atoms, axes, sizeof axes);
    snprintf(name, sizeof name, "%s over %s", tt_step_kind_name(i->step->kind), axes);
    traffic_add(c, times, name, cause_of(c, i->node),
                i->step->cost * (double)tt_dtype_size(p->operands[i->out[0]].tensor.dtype));
}

static void count_program(counter *c, const tt_program *p)
{
    for (int s = 0; s < p->n_sections; s++)
        for (int k = p->sections[s].begin; k < p->sections[s].end; k++) {
            const tt_instr *i = &p->instrs[k];
            const bool each = s < p->epilogue && tt_predicate_holds(i->predicate, true, false);
            count_instr(c, p, i, each ? (double)p->n_micro : 1);
        }
}

static void count_traffic(counter *c, tt_plan *const *plans, int n_plans)
{
    mark_gradients(c);
    for (int p = 0; p < n_plans; p++) {
        count_program(c, plans[p]->program);
        for (int k = 0; k < c->n; k++) {
            traffic *t = &c->t[k];
            t->calls = TT_MAXV(t->calls, t->now_calls);
            t->bytes = TT_MAXV(t->bytes, t->now);
            t->now_calls = 0;
            t->now = 0;
        }
    }
}

static int64_t slots(const tt_plan *p)
{
    return p->bytes[TT_SPACE_SLOT] + p->bytes[TT_SPACE_KEEP] + p->bytes[TT_SPACE_WGRAD];
}

static int64_t total(const tt_plan *p)
{
    return tt_program_bytes(p->program);
}

/* Bytes of the copy from which an asynchronous save writes (saver.c): this rank's part of
 * parameters and optimizer. */
static int64_t copy_of(const tt_setup *s, const tt_plan *p)
{
    const tt_checkpoint_config *c = &s->core.checkpoint;
    if (!p->update.n || !c->enable || c->async_mode == TT_ASYNC_DISABLED)
        return 0;
    return p->state_bytes_by_kind[TT_STATE_PARAM] + p->state_bytes_by_kind[TT_STATE_OPTIMIZER] +
           p->bytes[TT_SPACE_PINNED];
}

/* Of the copy, what lies in the memory that is counted: 0 for a named machine, whose memory is a
 * device's, while the copy is in host memory. */
static int64_t saving(const tt_setup *s, const tt_plan *p)
{
    return s->machine ? 0 : copy_of(s, p);
}

/* The copies of n ranks that would each copy `bytes`. Only one of several replicas saves, so all
 * ranks together copy no more than all parameters and optimizer states. */
static double saving_of(const tt_setup *s, double bytes, int n)
{
    double all = 0;
    for (size_t i = 0; i < s->graph->states.n; i++) {
        const tt_state *t = s->graph->states.items[i];
        if (t->kind == TT_STATE_PARAM || t->kind == TT_STATE_OPTIMIZER)
            all += (double)(tt_type_numel(&t->type) * (int64_t)tt_dtype_size(t->type.dtype));
    }
    return TT_MIN(bytes * n, all);
}

tt_status tt_memory_check(const tt_setup *s, const tt_plan *p, tt_error *err)
{
    const double copies = saving_of(s, (double)saving(s, p), s->ranks_here),
                 need = (double)total(p) * s->ranks_here + copies, have = tt_memory_here(),
                 gib = 1.0 / (1 << 30);
    if (need <= have)
        return TT_OK;
    const double parameters = (double)p->state_bytes_by_kind[TT_STATE_PARAM];
    if (!p->update.n) /* nothing is trained: generate, eval */
        return TT_FAIL(
            err, TT_EINVAL,
            "the model takes %.1f GiB of memory, %.1f of these for its parameters, and there are "
            "%.1f here; take %sa smaller model, or a machine with more memory",
            gib * need, gib * parameters, gib * have,
            parameters < have ? "fewer or shorter texts at once, " : "");
    return tt_job_fail(
        s->job, tt_job_has(s->job, "training") ? "training" : "", err,
        "takes %.1f GiB on %d rank%s, and there are %.1f here; lower local_batch_size or seq_len, "
        "set activation_checkpoint.mode%s, or take a smaller model (ttrun plan shows what takes "
        "it)",
        gib * need, s->ranks_here, s->ranks_here == 1 ? "" : "s", gib * have,
        copies > 0 ? " or checkpoint.async_mode \"disabled\"" : "");
}

static const tt_plan *fullest(tt_plan *const *plans, int n)
{
    const tt_plan *p = plans[0];
    for (int i = 1; i < n; i++)
        if (total(plans[i]) > total(p))
            p = plans[i];
    return p;
}

/* The memory of all ranks together; ranks with the same pipeline coordinate need the same. */
static double all_ranks(const tt_setup *s, tt_plan *const *plans, int n)
{
    double sum = 0, copies = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)total(plans[i]);
        copies += (double)saving(s, plans[i]);
    }
    return sum * s->world / n + saving_of(s, copies / n, s->world);
}

/* A named machine has memory_bytes per rank; this machine holds all ranks. */
static double memory_there(const counter *c)
{
    const tt_machine *m = c->machine;
    if (!m && c->use) /* no device was opened */
        return (double)INFINITY;
    return !m ? tt_memory_here() : m->memory_bytes > 0 ? m->memory_bytes : (double)INFINITY;
}

static double memory_needed(const counter *c, tt_plan *const *plans, int n)
{
    double most = 0;
    for (int i = 0; c->use && i < n; i++)
        most = TT_MAXV(most, (double)c->use[i].device);
    return c->use       ? most
           : c->machine ? (double)total(fullest(plans, n))
                        : all_ranks(c->s, plans, n);
}

static void json_time(const counter *c, tt_str *o)
{
    const tt_step_time *t = &c->time;
    if (!c->machine) {
        tt_str_add(o, ",\"hardware\":null,\"step_time_s\":null,\"mfu\":null");
        return;
    }
    tt_str_add(o, ",\"hardware\":");
    tt_str_json(o, c->machine->name);
    tt_str_printf(o,
                  ",\"step_time_s\":%.6g,\"comm_s\":%.6g,\"comm_exposed_s\":%.6g,"
                  "\"tokens_per_second\":%.6g,\"mfu\":",
                  t->step, t->comm, t->exposed, t->tokens_per_second);
    if (t->peak > 0)
        tt_str_printf(o, "%.4f", t->mfu);
    else
        tt_str_add(o, "null");
    tt_str_add(o, ",\"machine\":");
    tt_machine_json(c->machine, o);
}

/* use: NULL on the host. */
static void json_bytes(const tt_setup *s, const tt_plan *p, const tt_device_use *use, tt_str *o)
{
    const int64_t copy = use ? use->saving : saving(s, p);
    tt_str_printf(o, "{\"state\":%lld,\"slot\":%lld,\"work\":%lld,\"saving\":%lld,\"peak\":%lld",
                  (long long)p->bytes[TT_SPACE_STATE], (long long)slots(p),
                  (long long)p->bytes[TT_SPACE_WORK], (long long)copy,
                  (long long)(use ? use->device : total(p) + copy));
    if (use)
        tt_str_printf(o, ",\"device\":%lld,\"pinned\":%lld,\"inputs\":%lld,\"messages\":%lld",
                      (long long)use->device, (long long)use->pinned, (long long)use->inputs,
                      (long long)use->messages);
    if (use && use->comm)
        tt_str_printf(o, ",\"comm\":%lld", (long long)use->comm);
    tt_str_addc(o, '}');
}

/* The use of a plan of the list. */
static const tt_device_use *use_of(const counter *c, tt_plan *const *plans, const tt_plan *p)
{
    int i = 0;
    while (plans[i] != p)
        i++;
    return c->use ? &c->use[i] : NULL;
}

static void as_json(const counter *c, tt_plan *const *plans, int n, double bubble, tt_str *o)
{
    const tt_setup *s = c->s;
    tt_str_printf(o, "{\"parameters\":%lld,\"flops_per_token\":", (long long)s->size.parameters);
    tt_str_json_number(o, s->size.flops_per_token);
    tt_str_printf(o, ",\"world\":%d,\"mesh\":{", s->world);
    for (int i = 0; i < s->mesh.n_atoms; i++)
        tt_str_printf(o, "%s\"%s\":%d", i ? "," : "", s->mesh.atom_name[i],
                      (int)s->mesh.atom_size[i]);
    tt_str_printf(o, "},\"micro_batches\":%lld,\"global_batch_size\":%lld,\"bytes_per_rank\":",
                  (long long)s->micro_batches, (long long)s->global_batch);
    json_bytes(s, fullest(plans, n), use_of(c, plans, fullest(plans, n)), o);
    tt_str_add(o, ",\"pipeline_ranks\":[");
    for (int i = 0; i < n; i++) {
        if (i)
            tt_str_addc(o, ',');
        json_bytes(s, plans[i], use_of(c, plans, plans[i]), o);
    }
    tt_str_add(o, "],\"memory_here\":");
    tt_str_json_number(o, tt_memory_here());
    const double have = memory_there(c), need = memory_needed(c, plans, n);
    tt_str_printf(o, ",\"fits\":%s", isinf(have) ? "null" : need <= have ? "true" : "false");
    json_time(c, o);
    tt_offloaded_json(fullest(plans, n)->program, c->machine ? &c->time : NULL, o);
    if (s->token_order)
        tt_str_printf(o, ",\"context_busiest\":%.4f", s->token_order->busiest);
    if (s->async_tp)
        tt_str_printf(o, ",\"async_tp\":{\"gathers\":%d,\"reductions\":%d,\"whole\":%d}",
                      c->g->async_tp.gathers, c->g->async_tp.reductions, c->g->async_tp.whole);
    tt_str_printf(o, ",\"bubble\":%.4f,\"communication\":[", bubble);
    for (int i = 0; i < c->n; i++) {
        tt_str_add(o, i ? ",{\"collective\":" : "{\"collective\":");
        tt_str_json(o, c->t[i].name);
        tt_str_add(o, ",\"cause\":");
        tt_str_json(o, c->t[i].cause);
        tt_str_printf(o, ",\"calls\":%lld,\"bytes_sent\":%.0f}", (long long)c->t[i].calls,
                      c->t[i].bytes);
    }
    tt_str_add(o, "]}\n");
}

static const double gib = 1.0 / (1 << 30);

/* How many micro-batches the lowest stage of the rank holds at a time. */
static int slots_of_first_stage(const tt_program *p)
{
    for (int i = 0; i < p->n_slots; i++)
        if (p->slots[i].stage == p->sections[0].stage && p->slots[i].space == TT_SPACE_SLOT)
            return p->slots[i].n;
    return 0;
}

static void pinned_text(const tt_device_use *u, tt_str *o)
{
    if (u->comm)
        tt_str_printf(o, ", collectives %.3f", gib * (double)u->comm);
    tt_str_printf(o,
                  ", inputs %.3f, messages %.3f\npinned      %.3f GiB of host memory per rank: "
                  "inputs %.3f, staging "
                  "%.3f, scalars %.3f",
                  gib * (double)u->inputs, gib * (double)u->messages, gib * (double)u->pinned,
                  gib * (double)u->inputs, gib * (double)u->staging, gib * (double)u->scalars);
    if (u->offloaded)
        tt_str_printf(o, ", optimizer %.3f", gib * (double)u->offloaded);
    if (u->activations)
        tt_str_printf(o, ", activations %.3f", gib * (double)u->activations);
    if (u->saving)
        tt_str_printf(o, ", the copy that a save writes from %.3f", gib * (double)u->saving);
}

static void memory_text(const counter *c, tt_plan *const *plans, int n, tt_str *o)
{
    const tt_plan *p = fullest(plans, n);
    const tt_device_use *use = use_of(c, plans, p);
    const int64_t copy = use ? 0 : saving(c->s, p);
    tt_str_printf(o,
                  "memory      %.3f GiB%s on the fullest rank: state %.3f (parameters %.3f, "
                  "optimizer %.3f, gradients %.3f, gathered %.3f), "
                  "slots %.3f, work %.3f",
                  gib * (double)(use ? use->device : total(p) + copy), use ? " of the device" : "",
                  gib * (double)p->bytes[TT_SPACE_STATE],
                  gib * (double)p->state_bytes_by_kind[TT_STATE_PARAM],
                  gib * (double)p->state_bytes_by_kind[TT_STATE_OPTIMIZER],
                  gib * (double)p->state_bytes_by_kind[TT_STATE_ACCUMULATOR],
                  gib * (double)p->state_bytes_by_kind[TT_STATE_GATHERED], gib * (double)slots(p),
                  gib * (double)p->bytes[TT_SPACE_WORK]);
    if (copy)
        tt_str_printf(o, ", the copy that a save writes from %.3f", gib * (double)copy);
    if (use)
        pinned_text(use, o);
    tt_str_addc(o, '\n');
    if (c->g->stored)
        tt_str_printf(
            o,
            "stored      activations for the backward in %s: %.3f GiB instead of %.3f per "
            "micro-batch%s\n",
            tt_dtype_name(c->g->store_dtype),
            gib * (double)c->g->stored * (double)tt_dtype_size(c->g->store_dtype),
            gib * (double)c->g->stored * (double)tt_dtype_size(TT_F32),
            n > 1 ? ", all stages" : "");
    tt_offloaded_text(p->program, c->machine ? &c->time : NULL, o);
    for (int i = 0; n > 1 && i < n; i++)
        tt_str_printf(o,
                      "            pipeline rank %-3d %10.3f GiB: state %.3f, slots %.3f (%d "
                      "micro-batches), work %.3f\n",
                      i, gib * (double)total(plans[i]),
                      gib * (double)plans[i]->bytes[TT_SPACE_STATE], gib * (double)slots(plans[i]),
                      slots_of_first_stage(plans[i]->program),
                      gib * (double)plans[i]->bytes[TT_SPACE_WORK]);
    const double have = memory_there(c), need = memory_needed(c, plans, n);
    if (isinf(have))
        return;
    const int world = c->s->world;
    const char *fits = need <= have ? "yes" : "NO";
    if (c->machine)
        tt_str_printf(o, "fits        %s: %.3f GiB per rank; %s has %.3f GiB per rank\n", fits,
                      gib * need, c->machine->name, gib * have);
    else
        tt_str_printf(o,
                      "fits        %s: %.3f GiB per rank; this machine (%.3f GiB) holds %d of the "
                      "%d ranks%s\n",
                      fits, gib * need / world, gib * have,
                      need <= have ? world : (int)(have / (need / world)), world,
                      need <= have ? "" : ". --hardware NAME plans for another machine");
}

static void time_text(const counter *c, tt_str *o)
{
    const tt_step_time *t = &c->time;
    if (!c->machine)
        return;
    tt_str_printf(o,
                  "time        %.4g s per step on %s, of which %.4g s are exposed communication "
                  "(%.4g s with the hidden part); %.4g tokens/s, %.4g per rank",
                  t->step, c->machine->name, t->exposed, t->comm, t->tokens_per_second,
                  t->tokens_per_second / c->s->world);
    if (t->peak > 0)
        tt_str_printf(o, ", MFU %.1f %%", 100 * t->mfu);
    tt_str_addc(o, '\n');
    tt_machine_text(c->machine, t->peak, o);
}

/* The line about asynchronous tensor parallelism. */
static void async_tp_text(const counter *c, tt_str *o)
{
    const tt_axis *tp = tt_mesh_axis(&c->s->mesh, "tp");
    if (!c->s->async_tp || !tp)
        return;
    tt_str_printf(
        o,
        "async tp    %d all-gathers and %d reduce-scatters per micro-batch run in %d pieces "
        "each, concurrently with their products",
        c->g->async_tp.gathers, c->g->async_tp.reductions, tt_mesh_degree(&c->s->mesh, &tp->atoms));
    if (c->g->async_tp.whole)
        tt_str_printf(o, "; %d run in one piece, because their products run over token chunks",
                      c->g->async_tp.whole);
    tt_str_addc(o, '\n');
}

static void pipeline_text(const counter *c, double bubble, tt_str *o)
{
    const tt_setup *s = c->s;
    int blocks[TT_MAX_STAGES] = {0}, last = -1;
    for (size_t i = 0; i < c->g->nodes.n; i++) {
        const tt_node *n = c->g->nodes.items[i];
        if (n->when->region != TT_FORWARD || n->block <= last)
            continue;
        last = n->block;
        blocks[n->when->stage]++;
    }
    tt_str_printf(o, "pipeline    %s, %d stages of", s->schedule->name, s->n_stages);
    for (int i = 0; i < s->n_stages; i++)
        tt_str_printf(o, " %d", blocks[i]);
    tt_str_printf(o, " layers, bubble %.1f %%\n", 100 * bubble);
    if (!s->schedule->ascends)
        tt_str_add(o, "            micro-batches are not accumulated in ascending order: the bits "
                      "differ from those of other schedules\n");
}

static void as_text(const counter *c, tt_plan *const *plans, int n, double bubble, tt_str *o)
{
    const tt_setup *s = c->s;
    tt_str_printf(o, "model       %s %s, %lld parameters, %.4g FLOP per token\n", s->model.name,
                  s->core.flavor, (long long)s->size.parameters, s->size.flops_per_token);
    tt_str_printf(o, "ranks       %d", s->world);
    for (int i = 0; i < s->mesh.n_atoms; i++)
        tt_str_printf(o, "%s %s %d", i ? " ×" : ":", s->mesh.atom_name[i],
                      (int)s->mesh.atom_size[i]);
    tt_str_printf(
        o, "\nstep        %lld samples of %lld tokens, %lld micro-batches of %lld per data rank\n",
        (long long)s->global_batch, (long long)s->core.training.seq_len,
        (long long)s->micro_batches, (long long)s->local);
    memory_text(c, plans, n, o);
    time_text(c, o);
    async_tp_text(c, o);
    if (s->n_stages > 1)
        pipeline_text(c, bubble, o);
    if (s->token_order)
        tt_str_printf(o,
                      "context     the busiest rank's queries see %.3f × the mean number of keys "
                      "(%s; %.3f in the order of the data)\n",
                      s->token_order->busiest, s->token_order->from ? "headtail" : "none",
                      s->token_order->busiest_plain);
    for (int i = 0; i < c->n; i++)
        tt_str_printf(o, "%s%-32s %7lld per step, %10.1f MiB sent: %s\n",
                      i ? "            " : "network     ", c->t[i].name, (long long)c->t[i].calls,
                      c->t[i].bytes / (1 << 20), c->t[i].cause);
    if (!c->n)
        tt_str_add(o, "network     none\n");
}

static tt_status find_use(counter *c, tt_plan *const *plans, int n, tt_arena *a, tt_error *err)
{
    tt_device_use *use = tt_arena_array(a, (size_t)n, sizeof *use);
    if (!tt_memory_is_apart(c->s))
        return TT_OK;
    for (int i = 0; i < n; i++)
        TT_TRY(tt_device_use_of(c->s, plans[i], copy_of(c->s, plans[i]), &use[i], err));
    c->use = use;
    return TT_OK;
}

tt_status tt_plan_report(const tt_setup *s, tt_plan *const *plans, int n, const tt_machine *machine,
                         bool json, tt_str *out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    counter *c = tt_arena_alloc(a, sizeof *c);
    c->s = s;
    const tt_status st = find_use(c, plans, n, a, err);
    if (st != TT_OK) {
        tt_arena_free(a);
        return st;
    }
    c->g = plans[0]->graph;
    c->gradient = tt_arena_array(a, (size_t)c->g->n_values + 1, sizeof *c->gradient);
    count_traffic(c, plans, n);
    double bubble = plans[0]->bubble;
    c->machine = machine;
    if (machine) {
        tt_step_time_of(s, machine, &c->time);
        bubble = c->time.bubble;
    }
    if (json)
        as_json(c, plans, n, bubble, out);
    else
        as_text(c, plans, n, bubble, out);
    tt_arena_free(a);
    return TT_OK;
}
