/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/mesh.h"
#include <string.h>

bool tt_placement_same_shards(const tt_placement *a, const tt_placement *b)
{
    return memcmp(a->n, b->n, sizeof a->n) == 0 && memcmp(a->atom, b->atom, sizeof a->atom) == 0;
}

bool tt_placement_equal(const tt_placement *a, const tt_placement *b)
{
    return tt_placement_same_shards(a, b) && a->partial == b->partial &&
           a->partial_max == b->partial_max;
}

uint16_t tt_atom_list_mask(const tt_atom_list *l)
{
    return tt_atoms_mask(l->atom, l->n);
}

uint16_t tt_atoms_mask(const uint16_t *atoms, int n)
{
    unsigned mask = 0;
    for (int i = 0; i < n; i++)
        mask |= 1u << TT_ATOM(atoms[i]);
    return (uint16_t)mask;
}

uint16_t tt_placement_shard_atoms(const tt_placement *p, int n_dims)
{
    unsigned mask = 0;
    for (int d = 0; d < n_dims; d++)
        mask |= tt_atoms_mask(p->atom[d], p->n[d]);
    return (uint16_t)mask;
}

/* Appends s to text[size] at *at, truncated so that it fits with its NUL. */
static void placement_put(char *text, size_t size, size_t *at, const char *s)
{
    for (; *s != '\0' && *at + 1 < size; s++)
        text[(*at)++] = *s;
    if (size > 0)
        text[*at] = '\0';
}

void tt_shift_atoms(const tt_mesh *m, int steps, int first, uint16_t *list, int n)
{
    for (int i = n - 1; i >= first; i--) {
        const int size = m->atom_size[TT_ATOM(list[i])];
        list[i] = TT_SHIFTED(list[i], steps % size);
        steps /= size;
    }
}

void tt_placement_print(const tt_mesh *m, const tt_placement *p, int n_dims, char *text,
                        size_t size)
{
    size_t at = 0;
    placement_put(text, size, &at, "");
    for (int d = 0; d < n_dims; d++) {
        placement_put(text, size, &at, d > 0 ? ",{" : "{");
        for (int k = 0; k < p->n[d]; k++) {
            if (k > 0)
                placement_put(text, size, &at, ",");
            placement_put(text, size, &at, m->atom_name[TT_ATOM(p->atom[d][k])]);
            if (p->atom[d][k] & TT_IGNORE_UNIT)
                placement_put(text, size, &at, "~");
            if (TT_SHIFT(p->atom[d][k]) != 0) {
                char shift[16];
                snprintf(shift, sizeof shift, "+%u", TT_SHIFT(p->atom[d][k]));
                placement_put(text, size, &at, shift);
            }
        }
        placement_put(text, size, &at, "}");
    }
    if (p->partial == 0)
        return;
    tt_atom_list partial = tt_mesh_atoms_by_name(m, p->partial);
    placement_put(text, size, &at, p->partial_max ? " Pmax(" : " P(");
    for (int k = 0; k < partial.n; k++) {
        if (k > 0)
            placement_put(text, size, &at, ",");
        placement_put(text, size, &at, m->atom_name[partial.atom[k]]);
    }
    placement_put(text, size, &at, ")");
}

tt_status tt_placement_check(const tt_mesh *m, const tt_placement *p, int n_dims, tt_error *err)
{
    unsigned used = p->partial;
    char text[256];
    if (used >> m->n_atoms != 0)
        return TT_FAIL(err, TT_EINVAL,
                       "placement: partial over atom set 0x%x, the mesh has %d atoms", used,
                       m->n_atoms);
    for (int d = 0; d < n_dims; d++)
        for (int k = 0; k < p->n[d]; k++)
            if (TT_ATOM(p->atom[d][k]) >= (unsigned)m->n_atoms)
                return TT_FAIL(err, TT_EINVAL,
                               "placement: dim %d is cut by atom %u, the mesh has %d atoms", d,
                               TT_ATOM(p->atom[d][k]), m->n_atoms);
    for (int d = 0; d < n_dims; d++) {
        for (int k = 0; k < p->n[d]; k++) {
            unsigned atom = TT_ATOM(p->atom[d][k]);
            if (TT_SHIFT(p->atom[d][k]) >= (unsigned)m->atom_size[atom])
                return TT_FAIL(err, TT_EINVAL, "placement: atom %s of %d ranks is shifted by %u",
                               m->atom_name[atom], (int)m->atom_size[atom],
                               TT_SHIFT(p->atom[d][k]));
            if (used >> atom & 1) {
                tt_placement_print(m, p, n_dims, text, sizeof text);
                return TT_FAIL(err, TT_EINVAL, "placement %s: atom %s is used twice", text,
                               m->atom_name[atom]);
            }
            used |= 1u << atom;
        }
    }
    return TT_OK;
}
