/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <string.h>

/* How often loops over token chunks run. That depends on the number of a rank's rows, so ranks
 * with different numbers of rows exchange different numbers of messages in them. */

static int64_t iterations_of(const tt_program *p, const tt_value *v, const int32_t *coords)
{
    int64_t begin, end;
    tt_dim_box(p->mesh, &v->type.dims[0], v->place.atom[0], v->place.n[0], coords, &begin, &end);
    return TT_MAXV((end - begin + p->chunk_rows - 1) / p->chunk_rows, 1);
}

/* The value over whose rows the loop runs; NULL: no instruction in it communicates, or it runs
 * once. */
static const tt_value *rows_of(const tt_program *p, const tt_instr *loop)
{
    bool says = false;
    for (const tt_instr *i = loop; i < p->instrs + loop->end; i++)
        says = says || tt_instr_communicates(i);
    return says && loop->n_in ? p->operands[loop->in[0]].of : NULL;
}

int64_t tt_loop_iterations(const tt_program *p, const tt_instr *loop, const int32_t *coords)
{
    const tt_value *v = rows_of(p, loop);
    return v ? iterations_of(p, v, coords) : 1;
}

/* The atoms over which ranks differ in the number of iterations. */
static uint16_t atoms_of(const tt_program *p, const tt_value *v)
{
    const tt_mesh *m = p->mesh;
    tt_atom_list l = {.n = v->place.n[0]};
    uint16_t atoms = 0;
    memcpy(l.atom, v->place.atom[0], sizeof l.atom);
    for (int r = tt_mesh_degree(m, &l) - 1; r >= 0; r--) {
        int32_t c[TT_MAX_ATOMS] = {0};
        for (int k = l.n - 1, left = r; k >= 0; left /= m->atom_size[TT_ATOM(l.atom[k--])])
            c[TT_ATOM(l.atom[k])] = left % m->atom_size[TT_ATOM(l.atom[k])];
        const int64_t iterations = iterations_of(p, v, c);
        for (int k = 0; k < l.n; k++) {
            const int32_t was = c[TT_ATOM(l.atom[k])];
            c[TT_ATOM(l.atom[k])] = 0;
            if (iterations_of(p, v, c) != iterations)
                atoms |= (uint16_t)(1u << TT_ATOM(l.atom[k]));
            c[TT_ATOM(l.atom[k])] = was;
        }
    }
    return atoms;
}

uint16_t tt_loop_atoms(const tt_program *p)
{
    uint16_t atoms = 0;
    for (int i = 0; i < p->n; i++) {
        const tt_value *v = p->instrs[i].kind == TT_INSTR_LOOP ? rows_of(p, &p->instrs[i]) : NULL;
        if (v)
            atoms |= atoms_of(p, v);
    }
    return atoms;
}
