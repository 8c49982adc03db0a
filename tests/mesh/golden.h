/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_MESH_GOLDEN_H
#define TT_TESTS_MESH_GOLDEN_H
#include "mesh/mesh.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Reading tests/golden/placement*.json, which placement_vectors.py dumps from the specification. */

#define GOLDEN_MAX_RANKS 64
#define GOLDEN_MESHES 32

typedef struct golden {
    json_t *root;
    tt_arena *arena;
    tt_mesh mesh[GOLDEN_MESHES];
} golden;

static inline const json_t *get(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (v == NULL)
        fail_msg("no \"%s\" in the vectors", key);
    return v;
}

static inline int get_int(const json_t *o, const char *key)
{
    return (int)json_integer_value(get(o, key));
}

static inline const char *text_at(const json_t *list, size_t i)
{
    return json_string_value(json_array_get(list, i));
}

static inline int atom_index(const tt_mesh *m, const char *name, size_t n)
{
    for (int i = 0; i < m->n_atoms; i++)
        if (strlen(m->atom_name[i]) == n && strncmp(m->atom_name[i], name, n) == 0)
            return i;
    fail_msg("no atom %s in the mesh", name);
    return -1;
}

/* "cp~" is atom cp, ignoring the unit. */
static inline uint16_t read_atom(const tt_mesh *m, const char *name)
{
    size_t n = strcspn(name, "~");
    return (uint16_t)((unsigned)atom_index(m, name, n) | (name[n] == '~' ? TT_IGNORE_UNIT : 0u));
}

static inline tt_atom_list read_atoms(const tt_mesh *m, const json_t *list)
{
    tt_atom_list l = {0};
    for (size_t i = 0; i < json_array_size(list); i++)
        l.atom[l.n++] = read_atom(m, text_at(list, i));
    return l;
}

static inline int read_dims(const json_t *list, tt_dim *dims)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *d = json_array_get(list, i);
        const char *label = text_at(d, 1);
        dims[i] = tt_dim_make(json_integer_value(json_array_get(d, 0)), label[0] ? label : NULL,
                              json_integer_value(json_array_get(d, 2)),
                              json_integer_value(json_array_get(d, 3)));
    }
    return (int)json_array_size(list);
}

static inline tt_placement read_placement(const tt_mesh *m, const json_t *p)
{
    const json_t *lists = json_array_get(p, 0), *partial = json_array_get(p, 1);
    tt_placement out;
    memset(&out, 0, sizeof out);
    for (size_t d = 0; d < json_array_size(lists); d++) {
        tt_atom_list l = read_atoms(m, json_array_get(lists, d));
        out.n[d] = l.n;
        memcpy(out.atom[d], l.atom, sizeof l.atom);
    }
    for (size_t i = 0; i < json_array_size(partial); i++)
        out.partial = (uint16_t)(out.partial | 1u << read_atom(m, text_at(partial, i)));
    out.partial_max = strcmp(text_at(p, 2), "max") == 0;
    return out;
}

static inline void assert_placement(const tt_mesh *m, const tt_placement *got,
                                    const tt_placement *want, int n_dims, size_t vector)
{
    char a[256], b[256];
    if (tt_placement_equal(got, want))
        return;
    tt_placement_print(m, got, n_dims, a, sizeof a);
    tt_placement_print(m, want, n_dims, b, sizeof b);
    fail_msg("vector %zu: placement %s, the specification says %s", vector, a, b);
}

static inline void read_mesh(const json_t *v, tt_arena *arena, tt_mesh *out)
{
    const char *names[TT_MAX_ATOMS];
    int32_t sizes[TT_MAX_ATOMS];
    tt_axis axes[16];
    int n = 0, n_axes = 0;
    const char *name;
    json_t *atoms;
    memset(axes, 0, sizeof axes);
    for (size_t i = 0; i < json_array_size(get(v, "atoms")); i++) {
        const json_t *a = json_array_get(get(v, "atoms"), i);
        names[n] = text_at(a, 0);
        sizes[n++] = (int32_t)json_integer_value(json_array_get(a, 1));
    }
    json_object_foreach((json_t *)(uintptr_t)get(v, "axes"), name, atoms)
    {
        tt_axis *x = &axes[n_axes++];
        x->name = name;
        for (size_t i = 0; i < json_array_size(atoms); i++)
            for (int k = 0; k < n; k++)
                if (strcmp(names[k], text_at(atoms, i)) == 0)
                    x->atoms.atom[x->atoms.n++] = (uint16_t)k;
    }
    tt_error err;
    if (tt_mesh_make_atoms(names, sizes, n, axes, n_axes, arena, out, &err) != TT_OK)
        fail_msg("mesh: %s", err.text);
}

/* name is relative to the repository's root: $SRC where the runner sets it, else the working
 * folder. */
static inline json_t *golden_read(const char *name)
{
    json_error_t e;
    char path[1024];
    const char *src = getenv("SRC");
    snprintf(path, sizeof path, "%s/%s", src != NULL ? src : ".", name);
    json_t *root = json_load_file(path, 0, &e);
    if (root == NULL)
        fail_msg("%s:%d: %s", path, e.line, e.text);
    return root;
}

static inline golden *golden_open(void)
{
    golden *g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->root = golden_read("tests/golden/placement.json");
    g->arena = tt_arena_new();
    const json_t *meshes = get(g->root, "meshes");
    assert_true(json_array_size(meshes) > 0 && json_array_size(meshes) <= GOLDEN_MESHES);
    for (size_t i = 0; i < json_array_size(meshes); i++)
        read_mesh(json_array_get(meshes, i), g->arena, &g->mesh[i]);
    return g;
}

static inline void golden_close(golden *g)
{
    json_decref(g->root);
    tt_arena_free(g->arena);
    free(g);
}

#endif
