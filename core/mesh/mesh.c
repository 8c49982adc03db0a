/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/mesh.h"
#include <string.h>

/* Atoms, axes, degrees, ranks and groups. Ranks are numbered row-major over the atoms: the first
 * atom's coordinate changes slowest. */

/* One of torchtitan's degrees as the sizes of its atoms, major first; a degree of 1 has no atom. */
typedef struct degree_part {
    const char *name;
    int n;
    int32_t size[4];
    int first; /* index of its first atom in the mesh */
    int in_ep; /* the number of its last atoms that belong to the axis ep */
} degree_part;

enum { PART_PP, PART_REPLICATE, PART_SHARD, PART_CP, PART_TP, N_PARTS };

static int32_t gcd32(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return (int32_t)a;
}

static tt_status check_degrees(const tt_mesh_degrees *d, int32_t world, int32_t *dp_shard,
                               tt_error *err)
{
    const int32_t given[] = {d->pp, d->dp_replicate, d->dp_shard, d->cp, d->tp, d->ep};
    const char *name[] = {"pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"};
    int64_t rest = 1, all;
    if (world < 1)
        return TT_FAIL(err, TT_EINVAL, "parallelism: the world has %d ranks, it needs one",
                       (int)world);
    for (int i = 0; i < 6; i++) {
        if (given[i] < 1 && !(i == 2 && given[i] == -1))
            return TT_FAIL(err, TT_EINVAL, "parallelism: %s is %d, it must be 1 or more%s", name[i],
                           (int)given[i], i == 2 ? " (or -1: what is left)" : "");
        if (i != 2 && i != 5 && !tt_mul_i64(rest, given[i], &rest))
            rest = INT32_MAX;
        if (rest > INT32_MAX)
            rest = INT32_MAX; /* already an error; this keeps the product from overflowing */
    }
    if (d->dp_shard == -1) {
        if (world % rest != 0)
            return TT_FAIL(
                err, TT_EINVAL,
                "parallelism: pp %d × dp_replicate %d × cp %d × tp %d = %lld ranks do not divide "
                "the world of %d, so dp_shard -1 has no value",
                (int)d->pp, (int)d->dp_replicate, (int)d->cp, (int)d->tp, (long long)rest,
                (int)world);
        *dp_shard = (int32_t)(world / rest);
        return TT_OK;
    }
    all = rest * d->dp_shard;
    if (all != world)
        return TT_FAIL(err, TT_EINVAL,
                       "parallelism: pp %d × dp_replicate %d × dp_shard %d × cp %d × tp %d = %lld "
                       "ranks, the world has %d",
                       (int)d->pp, (int)d->dp_replicate, (int)d->dp_shard, (int)d->cp, (int)d->tp,
                       (long long)all, (int)world);
    *dp_shard = d->dp_shard;
    return TT_OK;
}

/* Marks the minor atoms of (dp_shard, cp, tp) whose product is ep; splits an atom if ep needs only
 * a part of it. */
static bool split_for_ep(degree_part *parts, int32_t ep)
{
    for (int i = PART_TP; i >= PART_SHARD && ep > 1; i--) {
        degree_part *p = &parts[i];
        for (int k = p->n - 1; k >= 0 && ep > 1; k--) {
            int32_t size = p->size[k];
            if (ep % size == 0) {
                ep /= size;
            } else if (size % ep == 0) {
                memmove(&p->size[k + 2], &p->size[k + 1],
                        (size_t)(p->n - k - 1) * sizeof p->size[0]);
                p->size[k] = size / ep;
                p->size[k + 1] = ep;
                p->n++;
                ep = 1;
            } else {
                return false;
            }
            p->in_ep++;
        }
    }
    return ep == 1;
}

/* Splits a degree's atom in two, the first of size gcd(size, n), unless one has size 1. n 0: no
 * split. */
static void split_for(degree_part *p, int64_t n)
{
    const int32_t degree = p->n ? p->size[0] : 1, shared = n > 0 ? gcd32(n, degree) : degree;
    if (shared == 1 || shared == degree)
        return;
    p->size[0] = shared;
    p->size[1] = degree / shared;
    p->n = 2;
}

static void add_atoms(degree_part *p, tt_arena *a, tt_mesh *m)
{
    p->first = m->n_atoms;
    for (int k = 0; k < p->n; k++) {
        m->atom_name[m->n_atoms] = p->n == 1 ? p->name : tt_arena_printf(a, "%s%d", p->name, k);
        m->atom_size[m->n_atoms++] = p->size[k];
    }
}

static void append_range(tt_atom_list *l, int first, int n)
{
    for (int i = 0; i < n; i++)
        l->atom[l->n++] = (uint16_t)(first + i);
}

static void add_axis(tt_mesh *m, const char *name, const tt_atom_list *atoms)
{
    if (atoms->n == 0)
        return;
    m->axes[m->n_axes].name = name;
    m->axes[m->n_axes++].atoms = *atoms;
}

static void add_axes(const degree_part *parts, tt_mesh *m)
{
    tt_atom_list dp = {0}, ep = {0}, efsdp = {0};
    for (int i = 0; i < N_PARTS; i++) {
        const degree_part *p = &parts[i];
        tt_atom_list own = {0};
        append_range(&own, p->first, p->n);
        add_axis(m, p->name, &own);
        if (i == PART_REPLICATE || i == PART_SHARD)
            append_range(&dp, p->first, p->n);
        if (i == PART_SHARD || i == PART_CP)
            append_range(&efsdp, p->first, p->n - p->in_ep);
        append_range(&ep, p->first + p->n - p->in_ep, p->in_ep);
    }
    add_axis(m, "ep", &ep);
    add_axis(m, "efsdp", &efsdp);
    add_axis(m, "dp", &dp);
}

tt_status tt_mesh_make(tt_mesh_degrees *d, int32_t world, int64_t kv_heads, tt_arena *a,
                       tt_mesh *out, tt_error *err)
{
    degree_part parts[N_PARTS] = {[PART_PP] = {.name = "pp"},
                                  [PART_REPLICATE] = {.name = "dp_replicate"},
                                  [PART_SHARD] = {.name = "dp_shard"},
                                  [PART_CP] = {.name = "cp"},
                                  [PART_TP] = {.name = "tp"}};
    int32_t dp_shard = 0;
    TT_TRY(check_degrees(d, world, &dp_shard, err));
    const int32_t degree[N_PARTS] = {d->pp, d->dp_replicate, dp_shard, d->cp, d->tp};
    for (int i = 0; i < N_PARTS; i++) {
        if (degree[i] == 1)
            continue;
        parts[i].size[0] = degree[i];
        parts[i].n = 1;
    }
    split_for(&parts[PART_TP], kv_heads); /* atom 1 cuts the kv heads, atom 2 replicates them */
    if (d->ep == 1)
        split_for(&parts[PART_CP], d->sequences);
    if (!split_for_ep(parts, d->ep))
        return TT_FAIL(err, TT_EINVAL,
                       "parallelism: ep %d must be the product of the innermost ranks of dp_shard "
                       "%d × cp %d × tp %d; "
                       "choose a divisor of tp, tp × a divisor of cp, or cp × tp × a divisor of "
                       "dp_shard",
                       (int)d->ep, (int)dp_shard, (int)d->cp, (int)d->tp);
    tt_mesh m;
    memset(&m, 0, sizeof m);
    m.world = world;
    for (int i = 0; i < N_PARTS; i++)
        add_atoms(&parts[i], a, &m);
    add_axes(parts, &m);
    d->dp_shard = dp_shard;
    *out = m;
    return TT_OK;
}

static tt_status add_given_axis(const tt_axis *given, const int *index_of, int n, tt_arena *a,
                                tt_mesh *m, tt_error *err)
{
    tt_atom_list kept = {0};
    if (m->n_axes == (int)(sizeof m->axes / sizeof m->axes[0]))
        return TT_FAIL(err, TT_EINVAL, "mesh: too many axes at \"%s\", at most 16", given->name);
    for (int i = 0; i < given->atoms.n; i++) {
        if (given->atoms.atom[i] >= n)
            return TT_FAIL(err, TT_EINVAL, "mesh: axis \"%s\" names atom %d of %d", given->name,
                           given->atoms.atom[i], n);
        int at = index_of[given->atoms.atom[i]];
        if (at >= 0)
            kept.atom[kept.n++] = (uint16_t)at;
    }
    add_axis(m, tt_arena_str(a, given->name), &kept);
    return TT_OK;
}

tt_status tt_mesh_make_atoms(const char *const *names, const int32_t *sizes, int n,
                             const tt_axis *axes_by_input_index, int n_axes, tt_arena *a,
                             tt_mesh *out, tt_error *err)
{
    int index_of[TT_MAX_ATOMS];
    int64_t world = 1;
    tt_mesh m;
    memset(&m, 0, sizeof m);
    if (n < 0 || n > TT_MAX_ATOMS)
        return TT_FAIL(err, TT_EINVAL, "mesh: %d atoms, at most %d", n, TT_MAX_ATOMS);
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 1)
            return TT_FAIL(err, TT_EINVAL, "mesh: atom \"%s\" has size %d", names[i],
                           (int)sizes[i]);
        world *= sizes[i];
        if (world > INT32_MAX)
            return TT_FAIL(err, TT_EINVAL, "mesh: more than %d ranks", INT32_MAX);
        index_of[i] = sizes[i] > 1 ? m.n_atoms : -1;
        if (sizes[i] == 1)
            continue;
        m.atom_name[m.n_atoms] = tt_arena_str(a, names[i]);
        m.atom_size[m.n_atoms++] = sizes[i];
    }
    m.world = (int32_t)world;
    for (int i = 0; i < n_axes; i++)
        TT_TRY(add_given_axis(&axes_by_input_index[i], index_of, n, a, &m, err));
    for (int i = 0; i < n;
         i++) { /* every atom is also an axis of its name, unless a given axis has that name */
        tt_axis own = {
            .name = names[i], .atoms = {.n = 1, .atom = {(uint16_t)i}}
        };
        bool given = false;
        for (int k = 0; k < n_axes; k++)
            given |= strcmp(axes_by_input_index[k].name, names[i]) == 0;
        if (!given && sizes[i] > 1)
            TT_TRY(add_given_axis(&own, index_of, n, a, &m, err));
    }
    *out = m;
    return TT_OK;
}

const tt_axis *tt_mesh_axis(const tt_mesh *m, const char *name)
{
    for (int i = 0; i < m->n_axes; i++)
        if (strcmp(m->axes[i].name, name) == 0)
            return &m->axes[i];
    return NULL;
}

/* The number of atoms from list[at] on that form this whole axis, whose atoms are named after it
 * (unlike efsdp, which combines several axes); 0 = they do not. */
static int atoms_of_axis(const tt_mesh *m, const tt_axis *axis, const tt_atom_list *l, int at)
{
    const size_t n = strlen(axis->name);
    if (!axis->atoms.n || axis->atoms.n > l->n - at)
        return 0;
    for (int i = 0; i < axis->atoms.n; i++) {
        const char *name = m->atom_name[TT_ATOM(axis->atoms.atom[i])];
        if (TT_ATOM(l->atom[at + i]) != TT_ATOM(axis->atoms.atom[i]) ||
            strncmp(name, axis->name, n) != 0 || strspn(name + n, "0123456789") != strlen(name + n))
            return 0;
    }
    return axis->atoms.n;
}

void tt_mesh_print_axes(const tt_mesh *m, const tt_atom_list *atoms, char *text, size_t size)
{
    size_t len = 0;
    text[0] = '\0';
    for (int at = 0, taken; at < atoms->n && len < size; at += taken) {
        const char *name = m->atom_name[TT_ATOM(atoms->atom[at])];
        taken = 1;
        for (int i = 0; i < m->n_axes; i++) {
            const int n = atoms_of_axis(m, &m->axes[i], atoms, at);
            if (n > taken) {
                taken = n;
                name = m->axes[i].name;
            }
        }
        len += (size_t)snprintf(text + len, size - len, "%s%s", at ? " " : "", name);
    }
}

const tt_axis *tt_mesh_data_axis(const tt_mesh *m)
{
    const tt_axis *replicas = tt_mesh_axis(m, "dp_replicate");
    return replicas ? replicas : tt_mesh_axis(m, "dp_shard");
}

int tt_mesh_degree(const tt_mesh *m, const tt_atom_list *atoms)
{
    int n = 1;
    for (int i = 0; i < atoms->n; i++)
        n *= m->atom_size[TT_ATOM(atoms->atom[i])];
    return n;
}

int tt_mesh_degree_mask(const tt_mesh *m, uint16_t atoms)
{
    int n = 1;
    for (int i = 0; i < m->n_atoms; i++)
        if (atoms >> i & 1)
            n *= m->atom_size[i];
    return n;
}

void tt_mesh_coords(const tt_mesh *m, int rank, int32_t coords[TT_MAX_ATOMS])
{
    for (int i = TT_MAX_ATOMS - 1; i >= m->n_atoms; i--)
        coords[i] = 0;
    for (int i = m->n_atoms - 1; i >= 0; i--) {
        coords[i] = rank % m->atom_size[i];
        rank /= m->atom_size[i];
    }
}

int tt_mesh_rank(const tt_mesh *m, const int32_t coords[TT_MAX_ATOMS])
{
    int rank = 0;
    for (int i = 0; i < m->n_atoms; i++)
        rank = rank * m->atom_size[i] + coords[i];
    return rank;
}

int tt_mesh_group(const tt_mesh *m, int rank, const tt_atom_list *atoms, int *ranks)
{
    int32_t coords[TT_MAX_ATOMS];
    int n = tt_mesh_degree(m, atoms);
    tt_mesh_coords(m, rank, coords);
    for (int i = 0; i < n; i++) {
        int left = i;
        for (int k = atoms->n - 1; k >= 0; k--) {
            unsigned atom = TT_ATOM(atoms->atom[k]);
            coords[atom] = left % m->atom_size[atom];
            left /= m->atom_size[atom];
        }
        ranks[i] = tt_mesh_rank(m, coords);
    }
    return n;
}

tt_atom_list tt_mesh_atoms_by_name(const tt_mesh *m, uint16_t atoms)
{
    tt_atom_list l = {0};
    for (int i = 0; i < m->n_atoms; i++) {
        if (!(atoms >> i & 1))
            continue;
        int at = l.n++;
        for (; at > 0 && strcmp(m->atom_name[l.atom[at - 1]], m->atom_name[i]) > 0; at--)
            l.atom[at] = l.atom[at - 1];
        l.atom[at] = (uint16_t)i;
    }
    return l;
}
