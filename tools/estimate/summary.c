/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "estimate/summary_impl.h"
#include "graph/rows.h"
#include "passes/narrow.h"
#include "rank/host_memory.h"
#include "setup/recomputed.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The summary that `ttrun plan` prints: memory, communication and time of a run, before it runs. */

/* Marks the values that a gradient's accumulator receives, backwards through the steps of a
 * reduction. */
static void mark_gradients(tt_plan_counts *c)
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

static const char *cause_of(const tt_plan_counts *c, const tt_node *n)
{
    if (n->scope && !strcmp(n->scope, TT_SCOPE_MAXIMA))
        return "maxima of scales";
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

static void traffic_add(tt_plan_counts *c, double times, const char *name, const char *cause,
                        double bytes)
{
    int at = 0;
    while (at < c->n && (strcmp(c->t[at].name, name) || strcmp(c->t[at].cause, cause)))
        at++;
    if (at == (int)TT_COUNT(c->t))
        return;
    if (at == c->n) {
        c->t[at] = (tt_traffic){.cause = cause};
        snprintf(c->t[at].name, sizeof c->t[at].name, "%s", name);
        c->n++;
    }
    c->t[at].now_calls += (int64_t)times;
    c->t[at].now += times * bytes;
}

/* What the rank sends for an instruction that runs so often in a step. */
static void count_instr(tt_plan_counts *c, const tt_program *p, const tt_instr *i, double times)
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
                tt_step_elements(p->graph, i->node) *
                    (double)tt_dtype_size(p->operands[i->out[0]].tensor.dtype));
}

static void count_program(tt_plan_counts *c, const tt_program *p)
{
    for (int s = 0; s < p->n_sections; s++)
        for (int k = p->sections[s].begin; k < p->sections[s].end; k++) {
            const tt_instr *i = &p->instrs[k];
            if (!(i->predicate & (tt_predicate)~TT_PRED_MEASURED))
                continue;
            const bool each = s < p->epilogue && tt_predicate_holds(i->predicate, true, false);
            count_instr(c, p, i, each ? (double)p->n_micro : 1);
        }
}

static void count_traffic(tt_plan_counts *c, tt_plan *const *plans, int n_plans)
{
    mark_gradients(c);
    for (int p = 0; p < n_plans; p++) {
        count_program(c, plans[p]->program);
        for (int k = 0; k < c->n; k++) {
            tt_traffic *t = &c->t[k];
            t->calls = TT_MAXV(t->calls, t->now_calls);
            t->bytes = TT_MAXV(t->bytes, t->now);
            t->now_calls = 0;
            t->now = 0;
        }
    }
}

int64_t tt_plan_slots(const tt_plan *p)
{
    return p->bytes[TT_SPACE_SLOT] + p->bytes[TT_SPACE_KEEP] + p->bytes[TT_SPACE_WGRAD];
}

/* Of the copy, what lies in the memory that is counted: 0 for a named machine, whose memory is a
 * device's, while the copy is in host memory. */
int64_t tt_plan_saving(const tt_setup *s, const tt_plan *p)
{
    return s->machine ? 0 : tt_save_bytes(s, p);
}

const tt_plan *tt_plan_fullest(tt_plan *const *plans, int n)
{
    const tt_plan *p = plans[0];
    for (int i = 1; i < n; i++)
        if (tt_program_bytes(plans[i]->program) > tt_program_bytes(p->program))
            p = plans[i];
    return p;
}

/* The memory of all ranks together; ranks with the same pipeline coordinate need the same. */
static double all_ranks(const tt_plan_counts *c, tt_plan *const *plans, int n)
{
    const tt_setup *s = c->s;
    double sum = 0, copies = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)tt_program_bytes(plans[i]->program) +
               (double)tt_estimate_copies(s, plans[i]) +
               (double)tt_plan_validation(c, plans, plans[i]);
        copies += (double)tt_plan_saving(s, plans[i]);
    }
    return sum * s->world / n + tt_saves_bytes(s, copies / n, s->world);
}

/* A named machine has memory_bytes per rank; this machine holds all ranks. */
double tt_plan_memory_there(const tt_plan_counts *c)
{
    const tt_machine *m = c->machine;
    if (!m && c->use) /* no device was opened */
        return (double)INFINITY;
    return !m ? tt_memory_here() : m->memory_bytes > 0 ? m->memory_bytes : (double)INFINITY;
}

double tt_plan_memory_needed(const tt_plan_counts *c, tt_plan *const *plans, int n)
{
    double most = 0;
    for (int i = 0; c->use && i < n; i++)
        most = TT_MAXV(most, (double)c->use[i].device);
    return c->use       ? most
           : c->machine ? (double)tt_plan_rank_bytes(c, plans, tt_plan_fullest(plans, n))
                        : all_ranks(c, plans, n);
}

static void json_time(const tt_plan_counts *c, tt_str *o)
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

static int plan_index(tt_plan *const *plans, const tt_plan *p)
{
    int i = 0;
    while (plans[i] != p)
        i++;
    return i;
}

/* The use of a plan of the list. */
const tt_device_use *tt_plan_use_of(const tt_plan_counts *c, tt_plan *const *plans,
                                    const tt_plan *p)
{
    return c->use ? &c->use[plan_index(plans, p)] : NULL;
}

int64_t tt_plan_validation(const tt_plan_counts *c, tt_plan *const *plans, const tt_plan *p)
{
    return c->validation[plan_index(plans, p)];
}

int64_t tt_plan_rank_bytes(const tt_plan_counts *c, tt_plan *const *plans, const tt_plan *p)
{
    const tt_device_use *use = tt_plan_use_of(c, plans, p);
    return use ? use->device
               : tt_program_bytes(p->program) + tt_plan_saving(c->s, p) +
                     tt_plan_validation(c, plans, p);
}

static void json_bytes(const tt_plan_counts *c, tt_plan *const *plans, const tt_plan *p, tt_str *o)
{
    const tt_device_use *use = tt_plan_use_of(c, plans, p);
    const int64_t copy = use ? use->saving : tt_plan_saving(c->s, p),
                  copies = tt_estimate_copies(c->s, p),
                  validation = tt_plan_validation(c, plans, p);
    tt_str_printf(o, "{\"state\":%lld,\"slot\":%lld,\"work\":%lld,\"saving\":%lld,\"peak\":%lld",
                  (long long)p->bytes[TT_SPACE_STATE], (long long)tt_plan_slots(p),
                  (long long)p->bytes[TT_SPACE_WORK], (long long)copy,
                  (long long)tt_plan_rank_bytes(c, plans, p));
    if (use)
        tt_str_printf(o, ",\"device\":%lld,\"pinned\":%lld,\"inputs\":%lld,\"messages\":%lld",
                      (long long)use->device, (long long)use->pinned, (long long)use->inputs,
                      (long long)use->messages);
    if (use && use->comm)
        tt_str_printf(o, ",\"comm\":%lld", (long long)use->comm);
    if (copies)
        tt_str_printf(o, ",\"copies\":%lld", (long long)copies);
    if (validation)
        tt_str_printf(o, ",\"validation\":%lld", (long long)validation);
    tt_str_addc(o, '}');
}

static void as_json(const tt_plan_counts *c, tt_plan *const *plans, int n, tt_str *o)
{
    const tt_setup *s = c->s;
    tt_str_printf(o, "{\"parameters\":%lld,\"flops_per_token\":", (long long)s->size.parameters);
    tt_str_json_number(o, s->size.flops_per_token);
    tt_str_printf(o, ",\"world\":%d,\"mesh\":{", s->world);
    for (int i = 0; i < s->mesh.n_atoms; i++)
        tt_str_printf(o, "%s\"%s\":%d", i ? "," : "", s->mesh.atom_name[i],
                      (int)s->mesh.atom_size[i]);
    tt_str_printf(o,
                  "},\"micro_batches\":%lld,\"intra_layer_micro_batch\":%lld,"
                  "\"global_batch_size\":%lld,\"bytes_per_rank\":",
                  (long long)s->micro_batches, (long long)(s->micro_batches / s->calls),
                  (long long)s->global_batch);
    json_bytes(c, plans, tt_plan_fullest(plans, n), o);
    tt_str_add(o, ",\"pipeline_ranks\":[");
    for (int i = 0; i < n; i++) {
        if (i)
            tt_str_addc(o, ',');
        json_bytes(c, plans, plans[i], o);
    }
    tt_str_add(o, "],\"memory_here\":");
    tt_str_json_number(o, tt_memory_here());
    const double have = tt_plan_memory_there(c), need = tt_plan_memory_needed(c, plans, n);
    tt_str_printf(o, ",\"fits\":%s", isinf(have) ? "null" : need <= have ? "true" : "false");
    json_time(c, o);
    tt_offloaded_json(tt_plan_fullest(plans, n)->program, c->machine ? &c->time : NULL, o);
    tt_recomputed_json(s, o);
    tt_experts_json(c, o);
    if (s->token_order)
        tt_str_printf(o, ",\"context_busiest\":%.4f", s->token_order->busiest);
    if (s->async_tp)
        tt_str_printf(o, ",\"async_tp\":{\"gathers\":%d,\"reductions\":%d,\"whole\":%d}",
                      c->g->async_tp.gathers, c->g->async_tp.reductions, c->g->async_tp.whole);
    tt_str_printf(o, ",\"bubble\":%.4f,\"communication\":[", c->bubble);
    for (int i = 0; i < c->n; i++) {
        tt_str_add(o, i ? ",{\"collective\":" : "{\"collective\":");
        tt_str_json(o, c->t[i].name);
        tt_str_add(o, ",\"cause\":");
        tt_str_json(o, c->t[i].cause);
        tt_str_printf(o, ",\"calls\":%lld,\"bytes_sent\":%.0f}", (long long)c->t[i].calls,
                      c->t[i].bytes);
    }
    tt_str_addc(o, ']');
}

static tt_status find_use(tt_plan_counts *c, tt_plan *const *plans, int n, tt_arena *a,
                          tt_error *err)
{
    tt_device_use *use = tt_arena_array(a, (size_t)n, sizeof *use);
    if (!tt_setup_has_device(c->s))
        return TT_OK;
    for (int i = 0; i < n; i++)
        TT_TRY(tt_device_use_of(c->s, plans[i], &use[i], err));
    c->use = use;
    return TT_OK;
}

/* The validation's program has its own memory for values beside the training's; it reads the training's states. */
static tt_status validation_of(const tt_setup *s, const tt_plan *p, tt_arena *a, int64_t *out,
                               tt_error *err)
{
    tt_plan *eval;
    *out = 0;
    if (!s->eval_graph || s->eval_graph == s->graph || p->graph != s->graph)
        return TT_OK;
    TT_TRY(tt_setup_plan(s, s->eval_graph, s->eval_schedule, p->pp_rank, a, &eval, err));
    *out = tt_program_bytes(eval->program);
    return TT_OK;
}

static tt_status find_validation(tt_plan_counts *c, tt_plan *const *plans, int n, tt_arena *a,
                                 tt_error *err)
{
    c->validation = tt_arena_array(a, (size_t)n, sizeof *c->validation);
    for (int i = 0; i < n && !c->use; i++)
        TT_TRY(validation_of(c->s, plans[i], a, &c->validation[i], err));
    return TT_OK;
}

/* What tt_plan_rank_bytes says of one plan. */
static tt_status rank_bytes(const tt_setup *s, tt_plan *p, tt_arena *a, int64_t *out, tt_error *err)
{
    tt_device_use use;
    if (!tt_setup_has_device(s)) {
        TT_TRY(validation_of(s, p, a, out, err));
        *out += tt_program_bytes(p->program) + tt_plan_saving(s, p);
        return TT_OK;
    }
    TT_TRY(tt_device_use_of(s, p, &use, err));
    *out = use.device;
    return TT_OK;
}

tt_status tt_plan_most_bytes(const tt_setup *s, tt_arena *a, double *out, tt_error *err)
{
    tt_plan *first = NULL;
    *out = 0;
    for (int p = 0; p < s->pipeline_ranks; p++) {
        tt_arena *own = p ? tt_arena_new() : a;
        tt_plan *plan;
        int64_t bytes = 0;
        tt_status st = tt_setup_try_plan(s, s->graph, p, first, own, &plan, err);
        if (st == TT_OK)
            st = rank_bytes(s, plan, own, &bytes, err);
        *out = TT_MAXV(*out, (double)bytes);
        if (p)
            tt_arena_free(own);
        else
            first = plan;
        TT_TRY(st);
    }
    return TT_OK;
}

tt_status tt_plan_count(const tt_setup *s, tt_plan *const *plans, int n, const tt_machine *machine,
                        tt_arena *a, tt_plan_counts **out, tt_error *err)
{
    tt_plan_counts *c = tt_arena_alloc(a, sizeof *c);
    c->s = s;
    TT_TRY(find_use(c, plans, n, a, err));
    TT_TRY(find_validation(c, plans, n, a, err));
    c->g = plans[0]->graph;
    c->gradient = tt_arena_array(a, (size_t)c->g->n_values + 1, sizeof *c->gradient);
    count_traffic(c, plans, n);
    c->bubble = plans[0]->bubble;
    c->machine = machine;
    if (machine) {
        tt_step_time_of(s, machine, &c->time);
        c->bubble = c->time.bubble;
    }
    *out = c;
    return TT_OK;
}

tt_status tt_plan_report(const tt_setup *s, tt_plan *const *plans, int n, const tt_machine *machine,
                         bool json, tt_str *out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_plan_counts *c;
    tt_status st = tt_plan_count(s, plans, n, machine, a, &c, err);
    if (st == TT_OK && json)
        as_json(c, plans, n, out);
    else if (st == TT_OK)
        tt_plan_text(c, plans, n, out);
    if (st == TT_OK)
        st = tt_plan_changes(c, plans, n, json, out, err);
    if (st == TT_OK && json)
        tt_str_add(out, "}\n");
    tt_arena_free(a);
    return st;
}
