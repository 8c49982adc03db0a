/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include "interchange/formats/torch_file.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Opening a folder of shards. Which files count: those trainer.json names; else, where
 * model.safetensors.index.json is and no file is a rank's shard, those of its weight_map; else
 * every *.safetensors directly in the folder. A folder with .metadata is torch.distributed.checkpoint's
 * own (open_dcp.c). */

#define INDEX "model.safetensors.index.json"

static bool is_bin_name(const char *name)
{
    return tt_ends_with(name, ".bin") && !strchr(name, '/');
}

/* The files that an index names, each a `suffix` file of the folder. */
static tt_status names_of_index(tt_arena *a, const char *folder, const char *index,
                                bool (*is_name)(const char *name), const char *suffix,
                                const char ***names, size_t *n, tt_error *err)
{
    const tt_json *root, *weights;
    const char *path = tt_path_join(a, folder, index);
    TT_VEC(const char *) found = {0};
    TT_TRY(tt_json_read(a, path, TT_STATE_MAX_BYTES, &root, err));
    weights = tt_json_get(root, "weight_map");
    if (!weights || weights->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_EFORMAT, "%s: no object \"weight_map\"", path);
    tt_map *seen = tt_map_new(a);
    for (size_t i = 0; i < weights->n; i++) {
        const tt_json *v = weights->items[i];
        if (v->type != TT_JSON_STRING || !is_name(v->string))
            return TT_FAIL(err, TT_EFORMAT,
                           "%s:%d:%d: '%s' is not in the name of a %s file in this folder", path,
                           v->line, v->column, weights->keys[i], suffix);
        if (tt_map_get(seen, v->string))
            continue;
        tt_map_set(seen, v->string, (void *)v->string);
        tt_vec_push(a, &found, v->string);
    }
    *names = found.items;
    *n = found.n;
    return TT_OK;
}

static tt_status names_of_manifest(tt_ckpt_reader *r, const char ***names, size_t *n, tt_error *err)
{
    TT_TRY(tt_ckpt_state_from_file(r->arena, r->path, NULL, &r->manifest, err));
    r->has_manifest = true;
    const char **found = tt_arena_array(r->arena, r->manifest.files.n, sizeof *found);
    for (size_t i = 0; i < r->manifest.files.n; i++)
        found[i] = r->manifest.files.items[i].name;
    *names = found;
    *n = r->manifest.files.n;
    return TT_OK;
}

static tt_status names_to_open(tt_ckpt_reader *r, const char ***names, size_t *n, tt_error *err)
{
    tt_arena *a = r->arena;
    bool shards = false;
    if (tt_path_exists(tt_path_join(a, r->path, TT_STATE_FILE)))
        return names_of_manifest(r, names, n, err);
    TT_TRY(tt_folder_names(a, r->path, tt_is_safetensors_name, names, n, err));
    for (size_t i = 0; i < *n; i++)
        shards = shards || strncmp((*names)[i], "shard-", 6) == 0;
    if (!shards && tt_path_exists(tt_path_join(a, r->path, INDEX)))
        return names_of_index(a, r->path, INDEX, tt_is_safetensors_name, ".safetensors", names, n,
                              err);
    if (*n == 0)
        return TT_FAIL(err, TT_ENOTFOUND,
                       "%s: no " TT_STATE_FILE " and no .safetensors file: not a checkpoint",
                       r->path);
    return TT_OK;
}

/* A Hugging Face folder: the files of its index, else its one file; others there are not looked at.
 * PyTorch's files count only where there are none of safetensors. */
static tt_status names_of_hf(tt_ckpt_reader *r, const char ***names, size_t *n, tt_error *err)
{
    static const struct {
        const char *index, *one, *suffix;
        bool (*is_name)(const char *name);
    } forms[] = {
        {INDEX,                          "model.safetensors", ".safetensors", tt_is_safetensors_name},
        {"pytorch_model.bin.index.json", "pytorch_model.bin", ".bin",         is_bin_name           }
    };
    tt_arena *a = r->arena;
    for (size_t i = 0; i < TT_COUNT(forms); i++) {
        if (tt_path_exists(tt_path_join(a, r->path, forms[i].index)))
            return names_of_index(a, r->path, forms[i].index, forms[i].is_name, forms[i].suffix,
                                  names, n, err);
        if (!tt_path_exists(tt_path_join(a, r->path, forms[i].one)))
            continue;
        *names = tt_arena_dup(a, &forms[i].one, sizeof forms[i].one);
        *n = 1;
        return TT_OK;
    }
    return TT_FAIL(err, TT_ENOTFOUND,
                   "%s: no model.safetensors, no pytorch_model.bin and no index of them: not a "
                   "Hugging Face folder",
                   r->path);
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

typedef enum folder_kind { OURS, HF, SPLIT } folder_kind;

static bool is_consolidated(const char *name)
{
    return !strncmp(name, "consolidated", 12) && tt_is_safetensors_name(name);
}

static tt_status names_of_split(tt_ckpt_reader *r, const char ***names, size_t *n, tt_error *err)
{
    TT_TRY(tt_folder_names(r->arena, r->path, is_consolidated, names, n, err));
    if (*n > 0)
        return TT_OK;
    return TT_FAIL(err, TT_ENOTFOUND,
                   "%s: no consolidated*.safetensors in it; Meta's consolidated.*.pth are Python "
                   "pickles, which ttrun does not run: save them as safetensors once, with Python",
                   r->path);
}

/* Of a matrix cut over the files in their order, each has an equal part along one dim, of a vector
 * all of it: its place by the whole shape. */
static tt_status place_part(tt_st_file *f, size_t file, size_t n_files, tt_st_tensor *t,
                            const tt_map *shapes, bool *skip, tt_error *err)
{
    const tt_ckpt_tensor *whole = tt_map_get(shapes, t->name);
    *skip = whole == NULL && file > 0; /* not of the model: told of once */
    if (!whole || n_files == 1)
        return TT_OK;
    int cut = -1;
    bool fits = t->n_dims == whole->n_dims;
    for (int d = 0; d < t->n_dims && fits; d++) {
        if (t->shape[d] == whole->shape[d])
            continue;
        fits = cut < 0 && t->shape[d] <= whole->shape[d] / (int64_t)n_files &&
               t->shape[d] * (int64_t)n_files == whole->shape[d];
        cut = d;
    }
    if (!fits || (cut < 0 && t->n_dims > 1))
        return TT_FAIL(err, TT_EINVAL,
                       "%s: tensor '%s' is not one of %zu equal parts of the model's along one dim",
                       f->path, t->name, n_files);
    if (cut >= 0)
        t->offset[cut] = (int64_t)file * t->shape[cut];
    else
        *skip = file > 0; /* every file has it */
    return TT_OK;
}

static tt_status open_files(tt_ckpt_reader *r, folder_kind kind, const tt_map *shapes,
                            tt_error *err)
{
    const char **names = NULL;
    size_t n = 0;
    bool skip = false;
    TT_TRY((kind == HF      ? names_of_hf
            : kind == SPLIT ? names_of_split
                            : names_to_open)(r, &names, &n, err));
    r->files = tt_arena_array(r->arena, n, sizeof *r->files);
    for (size_t i = 0; i < n; i++) {
        tt_st_file *f = &r->files[r->n_files];
        TT_TRY((is_bin_name(names[i]) ? tt_torch_open : tt_st_open)(
            tt_path_join(r->arena, r->path, names[i]), r->arena, f, err));
        r->n_files++;
        for (size_t k = 0; k < f->n_tensors; k++) {
            if (kind == SPLIT)
                TT_TRY(place_part(f, i, n, &f->tensors[k], shapes, &skip, err));
            if (!skip)
                TT_TRY(tt_ckpt_add_shard(r, f, &f->tensors[k], err));
        }
    }
    return TT_OK;
}

/* A folder that says itself to be ours is read as ours, whatever else lies there. */
static bool is_dcp(const tt_ckpt_reader *r, folder_kind kind)
{
    return kind == OURS && tt_ckpt_is_dcp(r->path) &&
           !tt_path_exists(tt_path_join(r->arena, r->path, TT_STATE_FILE));
}

static tt_status open_folder(const char *folder, folder_kind kind, const tt_map *shapes,
                             tt_ckpt_reader **out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_ckpt_reader *r = tt_arena_alloc(a, sizeof *r);
    r->arena = a;
    r->path = tt_arena_str(a, folder);
    r->entries = tt_map_new(a);
    r->shapes_in = TT_STATE_FILE;
    tt_status status =
        is_dcp(r, kind) ? tt_ckpt_open_items(r, err) : open_files(r, kind, shapes, err);
    if (status == TT_OK)
        status = settle_shapes(r, err);
    if (status == TT_OK && !r->has_manifest && kind != SPLIT)
        tt_ckpt_find_quantized(r);
    if (status == TT_OK && kind != SPLIT)
        tt_ckpt_find_coded(r);
    if (status == TT_OK)
        *out = r;
    else
        tt_ckpt_close(r);
    return status;
}

tt_status tt_ckpt_open(const char *step_folder, tt_ckpt_reader **out, tt_error *err)
{
    return open_folder(step_folder, OURS, NULL, out, err);
}

tt_status tt_ckpt_open_hf(const char *folder, tt_ckpt_reader **out, tt_error *err)
{
    return open_folder(folder, HF, NULL, out, err);
}

tt_status tt_ckpt_open_split(const char *folder, const tt_map *shapes, tt_ckpt_reader **out,
                             tt_error *err)
{
    return open_folder(folder, SPLIT, shapes, out, err);
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
