/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/meta.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include <string.h>

static bool is_consolidated(const char *name)
{
    return !strncmp(name, "consolidated", 12) && tt_is_safetensors_name(name);
}

/* Of a matrix cut over the files in their order, each has an equal part along one dim, of a vector
 * all of it: its place by the whole shape. */
static tt_status place_part(const tt_st_file *f, size_t file, size_t n_files, tt_st_tensor *t,
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

static tt_status meta_fill(tt_ckpt_reader *r, const void *shapes, tt_error *err)
{
    const char **names = NULL;
    size_t n = 0;
    bool skip = false;
    TT_TRY(tt_folder_names(r->arena, r->path, is_consolidated, &names, &n, err));
    if (n == 0)
        return TT_FAIL(
            err, TT_ENOTFOUND,
            "%s: no consolidated*.safetensors in it; Meta's consolidated.*.pth are Python "
            "pickles, which ttrun does not run: save them as safetensors once, with Python",
            r->path);
    TT_TRY(tt_ckpt_open_files(r, names, n, tt_st_open, err));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < r->files[i].n_tensors; k++) {
            tt_st_tensor *t = &r->files[i].tensors[k];
            TT_TRY(place_part(&r->files[i], i, n, t, shapes, &skip, err));
            if (!skip)
                TT_TRY(tt_ckpt_add_shard(r, &r->files[i], t, err));
        }
    return TT_OK;
}

tt_status tt_meta_open(const char *folder, const tt_map *shapes, tt_ckpt_reader **out,
                       tt_error *err)
{
    return tt_ckpt_open_with(folder, meta_fill, shapes, out, err);
}
