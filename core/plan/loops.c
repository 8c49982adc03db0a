/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <string.h>

/* Loops over token chunks, as core/exec runs them: as often as this rank's rows ask for, so ranks
 * with other rows say more or less to others in them. */

bool tt_plan_communicates(const tt_node *n)
{
    return n->op == &tt_op_stage_sum || (n->step && !tt_step_is_local(n->step->kind));
}

/* The node's operand that runs over the loop's rows; NULL = none. */
static const tt_value *rows_of(const tt_graph *g, const tt_node *n)
{
    for (int i = 0; n->map && tt_plan_runs(n) && i < n->n_in; i++)
        if (tt_plan_per_token(g, n->in[i]))
            return n->in[i];
    return NULL;
}

static int64_t turns_of(const tt_graph *g, const tt_value *v, const int32_t *coords)
{
    int64_t begin, end;
    tt_dim_box(g->mesh, &v->type.dims[0], v->place.atom[0], v->place.n[0], coords, &begin, &end);
    return TT_MAXV((end - begin + g->chunk_rows - 1) / g->chunk_rows, 1);
}

int tt_loop_end(const tt_nodes *l, int i)
{
    int end = i;
    if (l->items[i]->map && tt_plan_runs(l->items[i]))
        while (end < l->n && (l->items[end]->map || !tt_plan_runs(l->items[end]) ||
                              l->items[end]->op == &tt_op_input))
            end++;
    return end;
}

int64_t tt_loop_turns(const tt_graph *g, const tt_nodes *l, int begin, int end,
                      const int32_t *coords)
{
    const tt_value *rows = NULL;
    bool says = false;
    for (int i = begin; i < end; i++) {
        says = says || tt_plan_communicates(l->items[i]);
        rows = rows ? rows : rows_of(g, l->items[i]);
    }
    return !says ? 0 : rows ? turns_of(g, rows, coords) : 1;
}

uint16_t tt_loop_atoms(const tt_graph *g)
{
    bool says = false;
    uint16_t atoms = 0;
    for (size_t i = 0; i < g->nodes.n; i++)
        says = says || (g->nodes.items[i]->map && tt_plan_communicates(g->nodes.items[i]));
    for (size_t i = 0; says && i < g->nodes.n; i++) {
        const tt_value *v = rows_of(g, g->nodes.items[i]);
        if (!v)
            continue;
        tt_atom_list l = {.n = v->place.n[0]};
        memcpy(l.atom, v->place.atom[0], sizeof l.atom);
        for (int r = tt_mesh_degree(g->mesh, &l) - 1; r >= 0; r--) {
            int32_t c[TT_MAX_ATOMS] = {0};
            for (int k = l.n - 1, left = r; k >= 0;
                 left /= g->mesh->atom_size[TT_ATOM(l.atom[k--])])
                c[TT_ATOM(l.atom[k])] = left % g->mesh->atom_size[TT_ATOM(l.atom[k])];
            const int64_t turns = turns_of(g, v, c);
            for (int k = 0; k < l.n; k++) {
                const int32_t was = c[TT_ATOM(l.atom[k])];
                c[TT_ATOM(l.atom[k])] = 0;
                if (turns_of(g, v, c) != turns)
                    atoms |= (uint16_t)(1u << TT_ATOM(l.atom[k]));
                c[TT_ATOM(l.atom[k])] = was;
            }
        }
    }
    return atoms;
}
