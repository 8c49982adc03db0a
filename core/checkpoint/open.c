/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <stdlib.h>
#include <string.h>

/* Opening a folder of shards. Which files count: those trainer.json names; else, where it is a folder of another
 * format, what that says; else, where model.safetensors.index.json is and no file is a rank's shard, those of its
 * weight_map; else every *.safetensors directly in the folder. */

#define INDEX "model.safetensors.index.json"

static const tt_ckpt_format *formats;
static size_t n_formats;

void tt_ckpt_set_formats(const tt_ckpt_format *all, size_t n)
{
    formats = all;
    n_formats = n;
}

static bool is_file_name(const char *name, const char *suffix)
{
    return strlen(name) > strlen(suffix) && tt_ends_with(name, suffix) && !strchr(name, '/');
}

tt_status tt_ckpt_names_of_index(tt_ckpt_reader *r, const char *index, const char *suffix,
                                 const char ***names, size_t *n, tt_error *err)
{
    const tt_json *root, *weights;
    const char *path = tt_path_join(r->arena, r->path, index);
    TT_VEC(const char *) found = {0};
    TT_TRY(tt_json_read(r->arena, path, TT_STATE_MAX_BYTES, &root, err));
    weights = tt_json_get(root, "weight_map");
    if (!weights || weights->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_EFORMAT, "%s: no object \"weight_map\"", path);
    tt_map *seen = tt_map_new(r->arena);
    for (size_t i = 0; i < weights->n; i++) {
        const tt_json *v = weights->items[i];
        if (v->type != TT_JSON_STRING || !is_file_name(v->string, suffix))
            return TT_FAIL(err, TT_EFORMAT,
                           "%s:%d:%d: '%s' is not in the name of a %s file in this folder", path,
                           v->line, v->column, weights->keys[i], suffix);
        if (tt_map_get(seen, v->string))
            continue;
        tt_map_set(seen, v->string, (void *)v->string);
        tt_vec_push(r->arena, &found, v->string);
    }
    *names = found.items;
    *n = found.n;
    return TT_OK;
}

tt_status tt_ckpt_open_files(tt_ckpt_reader *r, const char *const *names, size_t n,
                             tt_ckpt_file_fn open, tt_error *err)
{
    r->files = tt_arena_array(r->arena, n, sizeof *r->files);
    for (size_t i = 0; i < n; i++) {
        TT_TRY(open(tt_path_join(r->arena, r->path, names[i]), r->arena, &r->files[i], err));
        r->n_files++;
    }
    return TT_OK;
}

tt_status tt_ckpt_add_shard(tt_ckpt_reader *r, const tt_st_file *f, const tt_st_tensor *t,
                            tt_error *err)
{
    tt_entry *e = tt_map_get(r->entries, t->name);
    tt_shard s = {.tensor = t, .file = f};
    if (t->n_dims > TT_MAX_DIMS)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%s: tensor '%s' has %d dims; at most %d are supported", f->path, t->name,
                       t->n_dims, TT_MAX_DIMS);
    if (!e) {
        e = tt_arena_alloc(r->arena, sizeof *e);
        e->name = t->name;
        e->n_dims = t->n_dims;
        tt_map_set(r->entries, t->name, e);
    }
    if (e->n_dims != t->n_dims)
        return TT_FAIL(err, TT_EFORMAT, "%s: tensor '%s' has %d dims, %d in another file", f->path,
                       t->name, t->n_dims, e->n_dims);
    for (int d = 0; d < t->n_dims; d++) {
        s.box.begin[d] = t->offset[d];
        s.box.end[d] = t->offset[d] + t->shape[d]; /* checked by the parser */
        e->global[d] = TT_MAXV(e->global[d], s.box.end[d]);
    }
    if (t->bytes > 0)
        tt_vec_push(r->arena, &e->shards, s);
    return TT_OK;
}

tt_status tt_ckpt_add_files(tt_ckpt_reader *r, const char *const *names, size_t n,
                            tt_ckpt_file_fn open, tt_error *err)
{
    TT_TRY(tt_ckpt_open_files(r, names, n, open, err));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < r->files[i].n_tensors; k++)
            TT_TRY(tt_ckpt_add_shard(r, &r->files[i], &r->files[i].tensors[k], err));
    return TT_OK;
}

static int by_begin(const void *a, const void *b)
{
    const tt_shard *x = a, *y = b;
    return x->box.begin[0] < y->box.begin[0] ? -1 : x->box.begin[0] > y->box.begin[0];
}

void tt_entry_sort(tt_entry *e)
{
    if (e->shards.n > 1)
        qsort(e->shards.items, e->shards.n, sizeof *e->shards.items, by_begin);
}

/* trainer.json and .metadata know the global shapes; without it they are what the shards reach. */
static tt_status settle_shapes(tt_ckpt_reader *r, tt_error *err)
{
    for (size_t i = 0; i < r->manifest.tensors.n; i++) {
        const tt_ckpt_tensor *t = &r->manifest.tensors.items[i];
        tt_entry *e = tt_map_get(r->entries, t->name);
        if (!e) {
            e = tt_arena_alloc(r->arena, sizeof *e);
            e->name = t->name;
            e->n_dims = t->n_dims;
            tt_map_set(r->entries, t->name, e);
        }
        bool fits = e->n_dims == t->n_dims;
        for (int d = 0; d < t->n_dims && fits; d++)
            fits = e->global[d] <= t->shape[d];
        if (!fits)
            return TT_FAIL(err, TT_EFORMAT, "%s: tensor '%s' lies outside its shape in %s", r->path,
                           t->name, r->shapes_in);
        memcpy(e->global, t->shape, sizeof e->global);
    }
    for (size_t i = 0; i < tt_map_size(r->entries); i++)
        tt_entry_sort(tt_map_value(r->entries, i));
    return TT_OK;
}

tt_status tt_ckpt_open_with(const char *folder, tt_ckpt_fill_fn fill, const void *user,
                            tt_ckpt_reader **out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_ckpt_reader *r = tt_arena_alloc(a, sizeof *r);
    r->arena = a;
    r->path = tt_arena_str(a, folder);
    r->entries = tt_map_new(a);
    r->shapes_in = TT_STATE_FILE;
    tt_status status = fill(r, user, err);
    if (status == TT_OK)
        status = settle_shapes(r, err);
    if (status != TT_OK) {
        tt_ckpt_close(r);
        return status;
    }
    if (!r->has_manifest)
        tt_ckpt_find_quantized(r);
    tt_ckpt_find_coded(r);
    *out = r;
    return TT_OK;
}

/* ---- step folders and safetensors ---- */

static tt_status fill_by_state(tt_ckpt_reader *r, tt_error *err)
{
    TT_TRY(tt_ckpt_state_from_file(r->arena, r->path, NULL, &r->manifest, err));
    r->has_manifest = true;
    const char **names = tt_arena_array(r->arena, r->manifest.files.n, sizeof *names);
    for (size_t i = 0; i < r->manifest.files.n; i++)
        names[i] = r->manifest.files.items[i].name;
    return tt_ckpt_add_files(r, names, r->manifest.files.n, tt_st_open, err);
}

static tt_status fill_by_names(tt_ckpt_reader *r, tt_error *err)
{
    const char **names = NULL;
    size_t n = 0;
    bool shards = false;
    TT_TRY(tt_folder_names(r->arena, r->path, tt_is_safetensors_name, &names, &n, err));
    for (size_t i = 0; i < n; i++)
        shards = shards || strncmp(names[i], "shard-", 6) == 0;
    if (!shards && tt_folder_has(r->path, INDEX))
        TT_TRY(tt_ckpt_names_of_index(r, INDEX, ".safetensors", &names, &n, err));
    else if (n == 0)
        return TT_FAIL(err, TT_ENOTFOUND,
                       "%s: no " TT_STATE_FILE " and no .safetensors file: not a checkpoint",
                       r->path);
    return tt_ckpt_add_files(r, names, n, tt_st_open, err);
}

/* A folder that says itself to be ours is read as ours, whatever else lies there. */
static tt_status fill_step(tt_ckpt_reader *r, const void *unused, tt_error *err)
{
    if (tt_folder_has(r->path, TT_STATE_FILE))
        return fill_by_state(r, err);
    for (size_t i = 0; i < n_formats; i++)
        if (tt_folder_has(r->path, formats[i].marker))
            return formats[i].fill(r, unused, err);
    return fill_by_names(r, err);
}

tt_status tt_ckpt_open(const char *step_folder, tt_ckpt_reader **out, tt_error *err)
{
    return tt_ckpt_open_with(step_folder, fill_step, NULL, out, err);
}

void tt_ckpt_close(tt_ckpt_reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n_files; i++)
        tt_st_close(&r->files[i]);
    for (size_t i = 0; r->checks && i < r->n_files; i++)
        tt_hasher_free(r->checks[i].hasher);
    tt_arena_free(r->arena);
}
