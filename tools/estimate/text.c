/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wrapped.h"
#include "estimate/summary_impl.h"
#include "setup/recomputed.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The text that `ttrun plan` prints, in lines of at most 80 columns. */

#define INDENT 12 /* each line begins with its subject, or with as many blanks */

static const double gib = 1.0 / (1 << 30);

/* label: the subject; "" = the text continues the subject above. Empties the text. */
static void paragraph(tt_str *o, const char *label, tt_str *text)
{
    tt_str_printf(o, "%-*s", INDENT, label);
    tt_wrapped_text(o, INDENT, tt_str_get(text));
    tt_str_clear(text);
}

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* What one call of the program runs. */
static const char *per_call(const tt_setup *s)
{
    return s->calls < s->micro_batches ? "group of micro-batches" : "micro-batch";
}

/* ---- memory ---- */

/* How many micro-batches the lowest stage of the rank holds at a time. */
static int in_flight(const tt_program *p)
{
    for (int i = 0; i < p->n_slots; i++)
        if (p->slots[i].stage == p->sections[0].stage && p->slots[i].space == TT_SPACE_SLOT)
            return p->slots[i].n;
    return 0;
}

static void row(tt_str *o, const char *name, int64_t bytes, const char *what)
{
    tt_str_printf(o, "%*s%-12s%9.3f%s%s\n", INDENT, "", name, gib * (double)bytes,
                  what[0] ? "  " : "", what);
}

static void state_row(const tt_plan *p, tt_str *o)
{
    const int64_t *kinds = p->state_bytes_by_kind;
    char what[160];
    size_t n = (size_t)snprintf(what, sizeof what, "parameters %.3f, optimizer %.3f",
                                gib * (double)kinds[TT_STATE_PARAM],
                                gib * (double)kinds[TT_STATE_OPTIMIZER]);
    row(o, "state", p->bytes[TT_SPACE_STATE], what);
    n = (size_t)snprintf(what, sizeof what, "gradients %.3f",
                         gib * (double)kinds[TT_STATE_ACCUMULATOR]);
    if (kinds[TT_STATE_GATHERED])
        snprintf(what + n, sizeof what - n, ", gathered parameters %.3f",
                 gib * (double)kinds[TT_STATE_GATHERED]);
    tt_str_printf(o, "%*s%s\n", INDENT + 23, "", what);
}

static void pinned_text(const tt_device_use *u, tt_str *o)
{
    tt_str_printf(o, "pinned      %.3f GiB of host memory per rank\n", gib * (double)u->pinned);
    row(o, "inputs", u->inputs, "");
    row(o, "staging", u->staging, "checkpoints and copies pass through it");
    if (u->scalars)
        row(o, "scalars", u->scalars, "");
    if (u->offloaded)
        row(o, "optimizer", u->offloaded, "states that are offloaded");
    if (u->activations)
        row(o, "activations", u->activations, "that wait for the backward");
    if (u->saving)
        row(o, "saving", u->saving, "the copy that a save writes from");
}

static void memory_text(const tt_plan_counts *c, tt_plan *const *plans, int n, tt_str *o)
{
    const tt_plan *p = tt_plan_fullest(plans, n);
    const tt_device_use *use = tt_plan_use_of(c, plans, p);
    const int64_t copy = use ? 0 : tt_plan_saving(c->s, p);
    const int flight = in_flight(p->program) * (int)c->s->core.training.intra_layer_micro_batch;
    char what[80];
    tt_str_printf(o, "memory      %.3f GiB of the %s per rank%s\n",
                  gib * (double)tt_plan_rank_bytes(c, plans, p), use ? "device" : "host",
                  n > 1 ? ", on the fullest" : "");
    state_row(p, o);
    snprintf(what, sizeof what, "kept by %d micro-batch%s in flight", flight,
             flight == 1 ? "" : "es");
    row(o, "slots", tt_plan_slots(p), flight ? what : "");
    row(o, "work", p->bytes[TT_SPACE_WORK], "values that live within a part of a step");
    if (p->program->kept)
        row(o, "replay", p->program->kept,
            use ? "copies in host memory, to update again" : "copies to update again");
    if (use) {
        if (use->comm)
            row(o, "collectives", use->comm, "");
        row(o, "inputs", use->inputs, "");
        row(o, "messages", use->messages, "");
        pinned_text(use, o);
    } else if (copy) {
        row(o, "saving", copy, "the copy that a save writes from");
    }
    if (tt_plan_validation(c, plans, p))
        row(o, "validation", tt_plan_validation(c, plans, p), "values of its own program");
}

/* Copies of the states that a supervisor keeps (checkpoint.peer_copy_interval). */
static void copies_text(const tt_plan_counts *c, tt_plan *const *plans, int n, tt_str *o)
{
    int64_t most = 0;
    const int world = c->s->world;
    const int64_t node = c->machine ? c->machine->ranks_per_node : world;
    const int here = (int)TT_MIN(node > 0 ? node : world, world);
    tt_str text = {0};
    for (int i = 0; i < n; i++)
        most = TT_MAXV(most, tt_estimate_copies(c->s, plans[i]));
    if (!most)
        return;
    tt_str_printf(&text,
                  "%.3f GiB of host memory per rank, which the supervisor (--max-restarts) holds; "
                  "%.3f GiB per machine of %d rank%s",
                  gib * (double)most, gib * (double)most * here, here, plural(here));
    if (here < world)
        tt_str_printf(&text, ", and as much for the copies of another machine: %.3f GiB",
                      2 * gib * (double)most * here);
    paragraph(o, "copies", &text);
    tt_str_free(&text);
}

static void stored_text(const tt_plan_counts *c, int n, tt_str *o)
{
    tt_str text = {0};
    if (!c->g->stored)
        return;
    tt_str_printf(&text,
                  "activations for the backward in %s: %.3f GiB instead of %.3f per "
                  "%s%s",
                  tt_dtype_name(c->g->store_dtype),
                  gib * (double)c->g->stored * (double)tt_dtype_size(c->g->store_dtype),
                  gib * (double)c->g->stored * (double)tt_dtype_size(TT_F32), per_call(c->s),
                  n > 1 ? ", all stages" : "");
    paragraph(o, "stored", &text);
    tt_str_free(&text);
}

static void offloaded_text(const tt_plan_counts *c, tt_plan *const *plans, int n, tt_str *o)
{
    tt_str text = {0};
    tt_offloaded_text(tt_plan_fullest(plans, n)->program, c->machine ? &c->time : NULL, &text);
    if (text.n)
        paragraph(o, "offloaded", &text);
    tt_str_free(&text);
}

static void recomputed_text(const tt_plan_counts *c, tt_str *o)
{
    tt_str text = {0};
    tt_recomputed_text(c->s, &text);
    if (text.n)
        paragraph(o, "recompute", &text);
    tt_recomputed_table(c->s, INDENT, o);
    tt_str_free(&text);
}

static void fits_text(const tt_plan_counts *c, tt_plan *const *plans, int n, tt_str *o)
{
    const double have = tt_plan_memory_there(c), need = tt_plan_memory_needed(c, plans, n);
    const int world = c->s->world;
    const char *fits = need <= have ? "yes" : "NO";
    tt_str text = {0};
    if (isinf(have))
        return;
    if (c->machine) {
        tt_str_printf(&text, "%s: %.3f GiB per rank; %s has %.3f GiB per rank", fits, gib * need,
                      c->machine->name, gib * have);
    } else {
        const int holds = need <= have ? world : (int)(have / (need / world));
        tt_str_printf(&text, "%s: %.3f GiB per rank; this machine ", fits, gib * need / world);
        if (world == 1)
            tt_str_printf(&text, "has %.3f GiB", gib * have);
        else
            tt_str_printf(&text, "(%.3f GiB) holds %d of the %d ranks", gib * have, holds, world);
        if (need > have) {
            tt_str_add(&text, ". For another machine: --hardware ");
            tt_machine_names(&text);
            tt_str_add(&text, " or FILE.json");
        }
    }
    paragraph(o, "fits", &text);
    tt_str_free(&text);
}

/* ---- time ---- */

static void time_text(const tt_plan_counts *c, tt_str *o)
{
    const tt_step_time *t = &c->time;
    tt_str text = {0};
    if (!c->machine)
        return;
    tt_str_printf(&text,
                  "%.4g s per step on %s, of which %.4g s are exposed communication (%.4g s with "
                  "the hidden part); %.4g tokens/s, %.4g per rank",
                  t->step, c->machine->name, t->exposed, t->comm, t->tokens_per_second,
                  t->tokens_per_second / c->s->world);
    if (t->peak > 0)
        tt_str_printf(&text, ", MFU %.1f %%", 100 * t->mfu);
    paragraph(o, "time", &text);
    tt_machine_text(c->machine, t->peak, &text);
    paragraph(o, "machine", &text);
    tt_str_free(&text);
}

/* The line about asynchronous tensor parallelism. */
static void async_tp_text(const tt_plan_counts *c, tt_str *o)
{
    const tt_axis *tp = tt_mesh_axis(&c->s->mesh, "tp");
    tt_str text = {0};
    if (!c->s->async_tp || !tp)
        return;
    tt_str_printf(&text,
                  "%d all-gathers and %d reduce-scatters per %s run in %d pieces each, "
                  "concurrently with their products",
                  c->g->async_tp.gathers, c->g->async_tp.reductions, per_call(c->s),
                  tt_mesh_degree(&c->s->mesh, &tp->atoms));
    if (c->g->async_tp.whole)
        tt_str_printf(&text, "; %d run in one piece, because their products run over token chunks",
                      c->g->async_tp.whole);
    paragraph(o, "async tp", &text);
    tt_str_free(&text);
}

static void pipeline_text(const tt_plan_counts *c, tt_plan *const *plans, int n, tt_str *o)
{
    const tt_setup *s = c->s;
    int blocks[TT_MAX_STAGES] = {0}, last = -1;
    tt_str text = {0};
    for (size_t i = 0; i < c->g->nodes.n; i++) {
        const tt_node *node = c->g->nodes.items[i];
        if (node->when->region != TT_FORWARD || node->block <= last)
            continue;
        last = node->block;
        blocks[node->when->stage]++;
    }
    tt_str_printf(&text, "%s, %d stages of", s->schedule->name, s->n_stages);
    for (int i = 0; i < s->n_stages; i++)
        tt_str_printf(&text, " %d", blocks[i]);
    tt_str_printf(&text, " layers, bubble %.1f %%", 100 * c->bubble);
    paragraph(o, "pipeline", &text);
    if (!s->schedule->ascends) {
        tt_str_add(&text, "micro-batches are not accumulated in ascending order: the bits differ "
                          "from those of other schedules");
        paragraph(o, "", &text);
    }
    tt_str_free(&text);
    if (n > 1)
        tt_str_printf(o, "%*s pp rank       GiB     state     slots      work  in flight\n", INDENT,
                      "");
    for (int i = 0; n > 1 && i < n; i++)
        tt_str_printf(o, "%*s%8d%10.3f%10.3f%10.3f%10.3f%11d\n", INDENT, "", i,
                      gib * (double)tt_program_bytes(plans[i]->program),
                      gib * (double)plans[i]->bytes[TT_SPACE_STATE],
                      gib * (double)tt_plan_slots(plans[i]),
                      gib * (double)plans[i]->bytes[TT_SPACE_WORK], in_flight(plans[i]->program));
}

/* ---- communication ---- */

static int most_first(const void *x, const void *y)
{
    const tt_traffic *a = *(const tt_traffic *const *)x, *b = *(const tt_traffic *const *)y;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return a < b ? -1 : 1;
}

static void network_text(const tt_plan_counts *c, tt_str *o)
{
    static const char again[] = ", again";
    const tt_traffic *sorted[TT_COUNT(c->t)];
    for (int i = 0; i < c->n; i++)
        sorted[i] = &c->t[i];
    qsort(sorted, (size_t)c->n, sizeof *sorted, most_first);
    if (c->n)
        tt_str_printf(o, "%-12s%s  %s%7s\n", "network", "the busiest rank sends", "  MiB", "calls");
    else
        tt_str_add(o, "network     none\n");
    for (int i = 0; i < c->n; i++) {
        const char *cause = sorted[i]->cause, *cut = strstr(cause, again);
        char text[64]; /* "parameters, for the backward" leaves room for long names of axes */
        snprintf(text, sizeof text, "%.*s%s%s", cut ? (int)(cut - cause) : 64, cause,
                 cut ? "," : "", cut ? cut + sizeof again - 1 : "");
        tt_str_printf(o, "  %-29s%10.1f%7lld  ", text, sorted[i]->bytes / (1 << 20),
                      (long long)sorted[i]->calls);
        tt_wrapped_text(o, 50, sorted[i]->name);
    }
}

static void job_text(const tt_plan_counts *c, tt_str *o)
{
    const tt_setup *s = c->s;
    tt_str text = {0};
    char n[40];
    tt_grouped(n, sizeof n, (double)s->size.parameters, 0);
    tt_str_printf(&text, "%s %s: %s parameters, %.4g FLOP per token", s->model.name, s->core.flavor,
                  n, s->size.flops_per_token);
    paragraph(o, "model", &text);
    tt_str_printf(&text, "%d", s->world);
    for (int i = 0; i < s->mesh.n_atoms; i++)
        tt_str_printf(&text, "%s %s %d", i ? " ×" : ":", s->mesh.atom_name[i],
                      (int)s->mesh.atom_size[i]);
    const tt_axis *ep = tt_mesh_axis(&s->mesh, "ep");
    for (int i = 0; ep && i < ep->atoms.n; i++)
        tt_str_printf(&text, "%s%s", i ? " × " : ", ep = ", s->mesh.atom_name[ep->atoms.atom[i]]);
    paragraph(o, "ranks", &text);
    tt_str_printf(&text, "%lld sample%s of %lld tokens; %lld micro-batch%s of %lld per data rank",
                  (long long)s->global_batch, plural(s->global_batch),
                  (long long)s->core.training.seq_len, (long long)s->micro_batches,
                  s->micro_batches == 1 ? "" : "es", (long long)s->local);
    if (s->calls < s->micro_batches)
        tt_str_printf(&text, ", %lld at a time in each layer",
                      (long long)(s->micro_batches / s->calls));
    paragraph(o, "step", &text);
    tt_str_free(&text);
}

void tt_plan_text(const tt_plan_counts *c, tt_plan *const *plans, int n, tt_str *o)
{
    const tt_setup *s = c->s;
    job_text(c, o);
    memory_text(c, plans, n, o);
    copies_text(c, plans, n, o);
    stored_text(c, n, o);
    recomputed_text(c, o);
    offloaded_text(c, plans, n, o);
    fits_text(c, plans, n, o);
    time_text(c, o);
    async_tp_text(c, o);
    tt_experts_text(c, o);
    if (s->n_stages > 1)
        pipeline_text(c, plans, n, o);
    if (s->token_order) {
        tt_str text = {0};
        tt_str_printf(&text,
                      "the busiest rank's queries see %.3f × the mean number of keys (%s; %.3f in "
                      "the order of the data)",
                      s->token_order->busiest, s->token_order->from ? "headtail" : "none",
                      s->token_order->busiest_plain);
        paragraph(o, "context", &text);
        tt_str_free(&text);
    }
    network_text(c, o);
}
