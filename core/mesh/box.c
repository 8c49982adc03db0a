/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/mesh.h"
#include <string.h>

/* The only function that computes boxes. It cuts a dim ATOM BY ATOM, major first, so that a prefix
 * of the atoms gives an enclosing box. Cutting by the product of the atoms' sizes would be wrong:
 * for a dim of 14 over tp 2 and dp_shard 3, a part would cross tp's boundary at 7. */

/* The padded size of one of n parts: ceil(parent / n), in whole units. */
static int64_t box_cut(int64_t parent, int64_t n, int64_t unit)
{
    int64_t units = (parent + unit - 1) / unit;
    return (units + n - 1) / n * unit;
}

static int64_t unit_of(const tt_dim *d, uint16_t atom)
{
    return (atom & TT_IGNORE_UNIT) || d->unit < 1 ? 1 : d->unit;
}

int64_t tt_chunk(const tt_mesh *m, const tt_dim *d, const uint16_t *atoms, int n)
{
    int64_t padded = d->size;
    for (int i = 0; i < n; i++)
        padded = box_cut(padded, m->atom_size[TT_ATOM(atoms[i])], unit_of(d, atoms[i]));
    return padded;
}

void tt_dim_box(const tt_mesh *m, const tt_dim *d, const uint16_t *atoms, int n,
                const int32_t *coords, int64_t *begin, int64_t *end)
{
    int64_t lo = 0, hi = d->size, padded = d->size;
    for (int i = 0; i < n; i++) {
        unsigned atom = TT_ATOM(atoms[i]);
        padded = box_cut(padded, m->atom_size[atom], unit_of(d, atoms[i]));
        const int64_t part = (coords[atom] + (int64_t)TT_SHIFT(atoms[i])) % m->atom_size[atom];
        lo = TT_MIN(lo + part * padded, hi);
        hi = TT_MIN(lo + padded,
                    hi); /* clip to the parent, so that padding never covers the neighbour */
    }
    *begin = lo;
    *end = hi;
}

void tt_box_of(const tt_mesh *m, const tt_dim *dims, int n_dims, const tt_placement *p,
               const int32_t *coords, tt_box *out)
{
    tt_box b = {{0}, {0}};
    for (int d = 0; d < n_dims; d++)
        tt_dim_box(m, &dims[d], p->atom[d], p->n[d], coords, &b.begin[d], &b.end[d]);
    *out = b;
}

int64_t tt_box_numel(const tt_box *b, int n_dims)
{
    int64_t n = 1;
    for (int d = 0; d < n_dims; d++)
        n *= b->end[d] - b->begin[d];
    return n;
}

bool tt_box_intersect(const tt_box *a, const tt_box *b, int n_dims, tt_box *out)
{
    tt_box both = {{0}, {0}};
    bool some = true;
    for (int d = 0; d < n_dims; d++) {
        both.begin[d] = TT_MAXV(a->begin[d], b->begin[d]);
        both.end[d] = TT_MIN(a->end[d], b->end[d]);
        if (both.end[d] <= both.begin[d]) {
            both.end[d] = both.begin[d];
            some = false;
        }
    }
    *out = both;
    return some;
}

int64_t tt_max_local_numel(const tt_mesh *m, const tt_dim *dims, int n_dims, const tt_placement *p)
{
    int64_t n = 1;
    for (int d = 0; d < n_dims; d++)
        n *= tt_chunk(m, &dims[d], p->atom[d], p->n[d]);
    return n;
}

/* Inline, so that a copy of short runs does not pay for calls. */
static inline __attribute__((always_inline)) void box_walk(const tt_box *both, const tt_box *from,
                                                           const tt_box *to, int n_dims,
                                                           tt_box_run_fn fn, void *user)
{
    int64_t from_stride[TT_MAX_DIMS], to_stride[TT_MAX_DIMS], at[TT_MAX_DIMS] = {0};
    int64_t from_step = 1, to_step = 1, run = 1, runs = 1;
    int outer = n_dims; /* the loop walks the dims before it; the others form one run */
    for (int d = n_dims - 1; d >= 0; d--) {
        from_stride[d] = from_step;
        to_stride[d] = to_step;
        from_step *= from->end[d] - from->begin[d];
        to_step *= to->end[d] - to->begin[d];
    }
    for (bool whole = true; outer > 0 && whole;) {
        outer--;
        const int64_t length = both->end[outer] - both->begin[outer];
        whole = length == from->end[outer] - from->begin[outer] &&
                length == to->end[outer] - to->begin[outer];
        run *= length;
    }
    for (int d = 0; d < outer; d++)
        runs *= both->end[d] - both->begin[d];
    for (; runs > 0 && run > 0; runs--) {
        int64_t from_at = 0, to_at = 0;
        for (int d = 0; d < n_dims; d++) {
            from_at += (both->begin[d] + at[d] - from->begin[d]) * from_stride[d];
            to_at += (both->begin[d] + at[d] - to->begin[d]) * to_stride[d];
        }
        fn(user, from_at, to_at, run);
        for (int d = outer - 1; d >= 0 && ++at[d] == both->end[d] - both->begin[d]; d--)
            at[d] = 0;
    }
}

void tt_box_walk(const tt_box *both, const tt_box *from, const tt_box *to, int n_dims,
                 tt_box_run_fn fn, void *user)
{
    box_walk(both, from, to, n_dims, fn, user);
}

typedef struct box_copying {
    const char *from;
    char *to;
    size_t size;
} box_copying;

static void box_copy_run(void *user, int64_t from, int64_t to, int64_t n)
{
    const box_copying *c = user;
    memcpy(c->to + (size_t)to * c->size, c->from + (size_t)from * c->size, (size_t)n * c->size);
}

void tt_box_copy(const tt_box *both, const void *from, const tt_box *from_box, void *to,
                 const tt_box *to_box, int n_dims, size_t size)
{
    box_copying c = {from, to, size};
    box_walk(both, from_box, to_box, n_dims, box_copy_run, &c);
}

tt_box tt_box_of_tensor(const tt_tensor *t)
{
    tt_box b = {{0}, {0}};
    for (int d = 0; d < t->n_dims; d++) {
        b.begin[d] = t->begin[d];
        b.end[d] = t->begin[d] + t->shape[d];
    }
    return b;
}
