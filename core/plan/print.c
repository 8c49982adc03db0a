/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"

/* Prints a program as text, for debug.dump_program and the golden files. */

static void print_tensor(const tt_tensor *t, tt_str *out)
{
    tt_str_printf(out, " %s[", tt_dtype_name(t->dtype));
    for (int d = 0; d < t->n_dims; d++)
        if (t->begin[d])
            tt_str_printf(out, "%s%lld+%lld", d ? "," : "", (long long)t->begin[d],
                          (long long)t->shape[d]);
        else
            tt_str_printf(out, "%s%lld", d ? "," : "", (long long)t->shape[d]);
    tt_str_addc(out, ']');
}

/* "%12 f32[4,8] work+64" */
static void print_operand(const tt_program *p, int operand, tt_str *out)
{
    const tt_operand *o = &p->operands[operand];
    if (o->value >= 0)
        tt_str_printf(out, "%%%d", o->value);
    else
        tt_str_add(out, "state");
    print_tensor(&o->tensor, out);
    if (!o->here) {
        tt_str_add(out, " elsewhere");
        return;
    }
    tt_str_printf(out, " %s", tt_space_name((tt_space)o->space));
    if (o->slot >= 0)
        tt_str_printf(out, ".%d", p->slots[o->slot].stage);
    tt_str_printf(out, "+%lld", (long long)o->offset);
    if (o->writer != operand)
        tt_str_printf(out, " of %%%d", p->operands[o->writer].value);
    if (o->extent)
        tt_str_add(out, o->extent == TT_EXTENT_TOKENS ? " tokens" : " picked");
    if (o->extent && o->extent_rows > 1)
        tt_str_printf(out, "*%lld", (long long)o->extent_rows);
    if (o->rows)
        tt_str_add(out, o->chunk_only ? " chunk" : " rows");
}

static void print_predicate(tt_predicate p, const char *what, tt_str *out)
{
    enum { EACH = 15 }; /* of the situations of a step */
    static const char *const names[EACH + 1] = {[TT_PRED_FIRST_MICRO & EACH] = "first micro-batch",
                                                [TT_PRED_LATER_MICRO & EACH] =
                                                    "later micro-batches",
                                                [TT_PRED_FIRST_CHUNK & EACH] = "first chunk",
                                                [TT_PRED_LATER_CHUNK & EACH] = "later chunks",
                                                [TT_PRED_ALWAYS & EACH] = "always",
                                                [14] = "later micro-batches or chunks"};
    const char *name = names[p >> 4];
    if (name)
        tt_str_printf(out, ", %s %s", what, name);
    else
        tt_str_printf(out, ", %s in %d", what, p >> 4);
    if (!(p & EACH))
        tt_str_add(out, " of measured steps");
}

static void print_operands(const tt_program *p, const tt_instr *i, tt_str *out)
{
    for (int j = 0; j < i->n_out; j++) {
        tt_str_add(out, j ? "; " : " ");
        print_operand(p, i->out[j], out);
    }
    if (i->n_out && i->n_in)
        tt_str_add(out, " <-");
    for (int j = 0; j < i->n_in; j++) {
        tt_str_add(out, j ? "; " : " ");
        print_operand(p, i->in[j], out);
    }
    if (i->counts >= 0)
        tt_str_printf(out, ", rows by %%%d", p->operands[i->counts].value);
}

static void print_instr(const tt_program *p, int at, int depth, tt_str *out)
{
    const tt_instr *i = &p->instrs[at];
    tt_str_printf(out, "%5d %*s%s", at, 2 * depth, "", tt_instr_kind_name((tt_instr_kind)i->kind));
    if (i->queue)
        tt_str_printf(out, " on %d", i->queue);
    if (i->kernel)
        tt_str_printf(out, " %s", i->kernel);
    if (i->step) {
        char axes[128];
        tt_mesh_print_axes(p->mesh, &i->step->atoms, axes, sizeof axes);
        tt_str_printf(out, " %s%s%s", tt_step_kind_name(i->step->kind), *axes ? " over " : "",
                      axes);
    }
    if (i->input)
        tt_str_printf(out, " %s", i->input);
    if (i->event)
        tt_str_printf(out, " event %d", i->event);
    if (i->kind == TT_INSTR_SEND || i->kind == TT_INSTR_RECV)
        tt_str_printf(out, " %s %d", i->kind == TT_INSTR_SEND ? "to" : "from", i->peer);
    print_operands(p, i, out);
    if (i->scratch >= 0)
        tt_str_printf(out, ", scratch work+%lld %lld", (long long)i->scratch,
                      (long long)i->scratch_bytes);
    if (i->in_place >= 0)
        tt_str_printf(out, ", in place of %d", i->in_place);
    if (i->predicate != TT_PRED_ALWAYS)
        print_predicate(i->predicate, "runs", out);
    if (i->adds)
        print_predicate(i->adds, "adds", out);
    for (int k = 0; k < i->n_last_used; k++)
        tt_str_printf(out, "%s%%%d", k ? " " : ", ends ", p->operands[i->last_used[k]].value);
    if (*i->scope)
        tt_str_printf(out, "  \"%s\"", i->scope);
    tt_str_addc(out, '\n');
}

static void print_head(const tt_program *p, tt_str *out)
{
    tt_str_printf(out, "program of pipeline rank %d, coordinates", p->pp_rank);
    for (int a = 0; a < p->mesh->n_atoms; a++)
        tt_str_printf(out, " %s %d", p->mesh->atom_name[a], (int)p->coords[a]);
    tt_str_printf(out, "; %d micro-batches\n", p->n_micro);
    for (int s = TT_SPACE_PINNED; s < TT_N_SPACES; s++)
        if (s >= TT_SPACE_STATE || p->bytes[s])
            tt_str_printf(out, "space %s: %lld bytes\n", tt_space_name((tt_space)s),
                          (long long)p->bytes[s]);
    for (int q = 0; q < p->n_queues; q++) {
        const tt_program_queue *k = &p->queues[q];
        char axes[128] = "";
        tt_mesh_print_axes(p->mesh, &k->atoms, axes, sizeof axes);
        if (k->copies)
            tt_str_printf(out, "queue %d: to %s memory, %d copies\n", q + 1,
                          k->copies == 1 ? "device" : "host", k->n_collectives);
        else
            tt_str_printf(out, "queue %d: over %s, %d collectives\n", q + 1, axes,
                          k->n_collectives);
    }
    for (int i = 0; i < p->n_slots; i++) {
        const tt_slot_rule *s = &p->slots[i];
        tt_str_printf(out, "slots %s.%d: %d of %lld bytes from %lld; by micro-batch",
                      tt_space_name((tt_space)s->space), s->stage, s->n, (long long)s->bytes,
                      (long long)s->base);
        for (int m = 0; m < p->n_micro; m++)
            tt_str_printf(out, " %d", s->slot[m]);
        tt_str_addc(out, '\n');
    }
    for (int i = 0; i < p->n_states; i++) {
        if (p->states[i].offset < 0)
            continue;
        tt_str_printf(out, "state %s:", p->states[i].name);
        print_tensor(&p->states[i].tensor, out);
        tt_str_printf(out, " at %lld\n", (long long)p->states[i].offset);
    }
}

void tt_program_print(const tt_program *p, tt_str *out)
{
    static const char *const kinds[] = {"F", "I", "W", "receive F", "receive I"};
    print_head(p, out);
    for (int s = 0; s < p->n_sections; s++) {
        const tt_section *x = &p->sections[s];
        int depth = 0;
        if (x->begin == x->end)
            continue;
        tt_str_printf(out, "\nsection %d: ", s);
        if (x->kind <= TT_SECTION_RECV_B)
            tt_str_printf(out, "stage %d, %s", x->stage, kinds[x->kind]);
        else
            tt_str_add(out, tt_section_phase(x->kind));
        if (x->only_if >= 0)
            tt_str_printf(out, ", only if %s is not 0", p->states[x->only_if].name);
        tt_str_addc(out, '\n');
        for (int i = x->begin; i < x->end; i++) {
            depth -= p->instrs[i].kind == TT_INSTR_END_LOOP;
            print_instr(p, i, depth, out);
            depth += p->instrs[i].kind == TT_INSTR_LOOP;
        }
    }
    tt_str_add(out, "\nschedule");
    for (int c = 0; c < p->n_calls; c++) {
        const tt_call *x = &p->calls[c];
        tt_str_printf(out, "%s%d:%d%s", c % 12 ? " " : "\n  ", x->section, x->micro,
                      x->first ? "*" : "");
        for (int h = 0; h < TT_N_HOLDS; h++)
            if (x->ends >> h & 1)
                tt_str_printf(out, "-%s", tt_space_name((tt_space)(TT_SPACE_SLOT + h)));
    }
    tt_str_addc(out, '\n');
}
