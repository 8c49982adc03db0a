/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include <string.h>

/* tt_graph_print writes one line per node:
 *   %12 = linear %10 %11 : f32[2048 tokens, 256 heads/16] @ {dp_shard},{tp}   # model.layers.0 */

static const char *const region_names[] = {"forward", "backward", "epilogue", "update",
                                           "post_update"};

static void print_text(tt_str *out, const char *before, const char *text)
{
    tt_str_add(out, before);
    tt_str_add(out, text);
}

static void print_number(tt_str *out, const char *before, int64_t number)
{
    char text[TT_I64_TEXT];
    print_text(out, before, tt_i64_text(number, text));
}

static void print_value(const tt_graph *g, const tt_value *v, tt_str *out)
{
    char text[256];
    tt_type_print(&v->type, text, sizeof text);
    tt_str_add(out, text);
    if (!g->placed || !g->mesh->n_atoms)
        return;
    tt_placement_print(g->mesh, &v->place, v->type.n_dims, text, sizeof text);
    if (text[0])
        print_text(out, " @ ", text);
}

static void print_extra(const tt_graph *g, const tt_node *n, tt_str *out)
{
    char text[256] = "";
    if (n->param)
        print_text(out, " ", n->param->name);
    if (n->input_name)
        print_text(out, " ", n->input_name);
    if (n->state)
        print_text(out, " ", n->state->name);
    if (n->state && n->accumulate_index >= 0)
        tt_str_printf(out, "[%d]", n->accumulate_index);
    if (n->step) {
        tt_str_printf(out, " %s over", tt_step_kind_name(n->step->kind));
        for (int i = 0; i < n->step->atoms.n; i++)
            tt_str_printf(out, " %s", g->mesh->atom_name[TT_ATOM(n->step->atoms.atom[i])]);
    }
    if (n->when->per_step)
        tt_str_add(out, " per_step");
    if (n->when->measured)
        tt_str_add(out, " measured");
    if (n->op->print_attrs && n->attrs)
        n->op->print_attrs(n->attrs, text, sizeof text);
    if (text[0])
        tt_str_printf(out, " {%s}", text);
    if (n->accumulate_into) {
        print_text(out, " += ", n->accumulate_into->name);
        if (n->accumulate_index >= 0)
            tt_str_printf(out, "[%d]", n->accumulate_index);
    }
    for (int i = 0; n->assign_to && i < n->n_out; i++)
        if (n->assign_to[i])
            print_text(out, " => ", n->assign_to[i]->name);
}

static void print_node(const tt_graph *g, const tt_node *n, tt_str *out)
{
    tt_str_add(out, "  ");
    for (int i = 0; i < n->n_out; i++)
        print_number(out, i ? ", %" : "%", n->out[i]->id);
    print_text(out, n->n_out ? " = " : "", n->op->name);
    print_extra(g, n, out);
    for (int i = 0; i < n->n_in; i++)
        print_number(out, " %", n->in[i]->id);
    for (int i = 0; i < n->n_out; i++) {
        tt_str_add(out, i ? ", " : " : ");
        print_value(g, n->out[i], out);
    }
    if (n->follow)
        tt_str_add(out, " follow");
    if (n->role == TT_NODE_EXPANDED)
        tt_str_add(out, " expanded");
    if (n->when->recomputed)
        tt_str_add(out, " recomputed");
    if (n->async)
        tt_str_add(out, " async");
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->within)
            print_number(out, " in %", n->out[i]->within->id);
    if (n->when->in_chunk_loop)
        tt_str_add(out, " in_chunk_loop");
    if (n->scope && n->scope[0])
        print_text(out, "  # ", n->scope);
    tt_str_addc(out, '\n');
}

static void print_states(const tt_graph *g, tt_str *out)
{
    char text[256];
    for (size_t i = 0; i < g->states.n; i++) {
        const tt_state *s = g->states.items[i];
        tt_type_print(&s->type, text, sizeof text);
        tt_str_printf(out, "state %s : %s", s->name, text);
        if (g->mesh && g->mesh->n_atoms) {
            tt_placement_print(g->mesh, &s->place, s->type.n_dims, text, sizeof text);
            if (text[0])
                tt_str_printf(out, " @ %s", text);
        }
        for (int j = 0; s->kind == TT_STATE_PARAM && j < s->stack->n; j++)
            print_text(out, j ? ", " : " = ", s->stack->members[j]->name);
        tt_str_addc(out, '\n');
    }
}

void tt_graph_print(const tt_graph *g, tt_str *out)
{
    int region = -1, stage = -1;
    print_states(g, out);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (g->placed && ((int)n->when->region != region || n->when->stage != stage)) {
            region = (int)n->when->region;
            stage = n->when->stage;
            tt_str_printf(out, "%s", region_names[region]);
            if (g->n_stages > 1)
                tt_str_printf(out, " stage %d", stage);
            tt_str_add(out, ":\n");
        }
        print_node(g, n, out);
    }
}
