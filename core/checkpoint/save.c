/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "checkpoint/internal.h"
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* begin and write: step-N.tmp fills with shards and, a rank, one list of what it wrote
 * (rank-00001.json). The list comes last, so a rank without one did not finish. */

/* step-7.tmp, step-7.purged.tmp: of an interrupted save or purge. step-7.old-…: the former step-7
 * while a new one takes its place (commit.c); it counts again where that did not happen. */
static tt_status clear_stale(tt_arena *a, const char *folder, const char *name, tt_error *err)
{
    const char *rest = "";
    int64_t step = tt_step_of_name(name, &rest);
    const char *path = tt_path_join(a, folder, name);
    const bool former = strncmp(rest, ".old-", 5) == 0;
    if (step < 0 || (strcmp(rest, ".tmp") != 0 && strcmp(rest, ".purged.tmp") != 0 && !former))
        return TT_OK;
    const char *final = tt_arena_printf(a, "%s/step-%lld", folder, (long long)step);
    const bool comes_back = former && !tt_path_exists(final);
    if (comes_back && rename(path, final) != 0)
        return tt_fail_system(err, errno, "rename", path);
    /* Also before files go: the run may have been killed before it synced the rename that gave them this name. */
    TT_TRY(tt_fsync_path(folder, err));
    return comes_back ? TT_OK : tt_remove_tree(path, err);
}

tt_status tt_ckpt_clear(const char *folder, tt_error *err)
{
    const char **names = NULL;
    size_t n = 0;
    tt_arena *a = tt_arena_new();
    tt_status status = tt_folder_names(a, folder, NULL, &names, &n, err);
    for (size_t i = 0; i < n && status == TT_OK; i++)
        status = clear_stale(a, folder, names[i], err);
    tt_arena_free(a);
    return status;
}

tt_status tt_ckpt_begin(const char *folder, int64_t step, tt_error *err)
{
    if (step < 0)
        return TT_FAIL(err, TT_EINVAL, "%s: step %lld cannot be saved", folder, (long long)step);
    TT_TRY(tt_mkdirs(folder, err));
    TT_TRY(tt_ckpt_clear(folder, err));
    tt_arena *a = tt_arena_new();
    tt_status status = TT_OK;
    const char *tmp = tt_arena_printf(a, "%s/step-%lld.tmp", folder, (long long)step);
    if (mkdir(tmp, 0777) != 0)
        status = tt_fail_system(err, errno, "create the folder", tmp);
    tt_arena_free(a);
    return status;
}

/* Which of the rank's files a piece goes to: a file holds one box of a tensor. 0 = none. */
static size_t file_of(tt_arena *a, tt_map *seen, const tt_ckpt_piece *p)
{
    if (!p->owner || tt_box_numel(&p->box, p->n_dims) <= 0)
        return 0;
    size_t *times = tt_map_get(seen, p->name);
    if (!times) {
        times = tt_arena_alloc(a, sizeof *times);
        tt_map_set(seen, p->name, times);
    }
    return ++*times;
}

/* ---- the order in the files ---- */

typedef struct staged_piece {
    const tt_ckpt_piece *piece;
    const tt_st_dtype *dtype;
    size_t file, index;
} staged_piece;

static int by_place_in_files(const void *a, const void *b)
{
    const staged_piece *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->dtype != y->dtype) /* the order of safetensors_write.c */
        return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->piece->name, y->piece->name);
}

size_t tt_ckpt_stage(const tt_ckpt_piece *pieces, size_t n, tt_ckpt_piece *staged, void *memory)
{
    tt_arena *a = tt_arena_new();
    tt_map *seen = tt_map_new(a);
    staged_piece *order = tt_arena_array(a, n + 1, sizeof *order);
    size_t at = 0, file = 0;
    for (size_t i = 0; i < n; i++)
        order[i] = (staged_piece){&pieces[i], tt_st_dtype_of(pieces[i].dtype),
                                  file_of(a, seen, &pieces[i]), i};
    qsort(order, n, sizeof *order, by_place_in_files);
    for (size_t i = 0; i < n; i++) {
        const tt_ckpt_piece *p = order[i].piece;
        if (order[i].file != file)
            at = tt_file_aligned(at);
        file = order[i].file;
        if (memory) {
            staged[order[i].index] = *p;
            staged[order[i].index].data = (uint8_t *)memory + (file ? at : 0);
        }
        if (file)
            at += (size_t)tt_box_numel(&p->box, p->n_dims) * tt_dtype_size(p->dtype);
    }
    tt_arena_free(a);
    return at;
}

static bool is_cast(const tt_ckpt_piece *p)
{
    return !p->exact && (p->dtype == TT_F32 || p->dtype == TT_BF16 || p->dtype == TT_F16);
}

size_t tt_ckpt_cast(const tt_ckpt_piece *pieces, size_t n, tt_dtype dtype, tt_ckpt_piece *cast,
                    void *memory)
{
    for (size_t i = 0; i < n; i++) {
        cast[i] = pieces[i];
        cast[i].dtype = is_cast(&pieces[i]) ? dtype : pieces[i].dtype;
    }
    const size_t bytes = tt_ckpt_stage(cast, n, cast, memory);
    for (size_t i = 0; memory && i < n; i++) {
        const int64_t numel = tt_box_numel(&pieces[i].box, pieces[i].n_dims);
        if (pieces[i].owner && numel > 0)
            tt_convert(cast[i].data, cast[i].dtype, pieces[i].data, pieces[i].dtype, (size_t)numel);
    }
    return bytes;
}

static tt_status check_piece(const tt_ckpt_piece *p, tt_error *err)
{
    int64_t numel = 1;
    if (!p->name || !*p->name || p->n_dims < 0 || p->n_dims > TT_MAX_DIMS ||
        !tt_st_dtype_of(p->dtype))
        return TT_FAIL(err, TT_EINVAL,
                       "checkpoint: tensor '%s' has an invalid name, dtype or number of dims",
                       p->name ? p->name : "");
    for (int d = 0; d < p->n_dims; d++)
        if (p->box.begin[d] < 0 || p->box.end[d] < p->box.begin[d] ||
            p->box.end[d] > p->global[d] || !tt_mul_i64(numel, p->global[d], &numel))
            return TT_FAIL(
                err, TT_EINVAL,
                "checkpoint: tensor '%s': dim %d: [%lld,%lld) is not within its %lld elements",
                p->name, d, (long long)p->box.begin[d], (long long)p->box.end[d],
                (long long)p->global[d]);
    return TT_OK;
}

static tt_st_tensor shard_of(const tt_ckpt_piece *p)
{
    tt_st_tensor t = {.name = p->name, .dtype = p->dtype, .n_dims = p->n_dims, .data = p->data};
    t.bytes = (size_t)tt_box_numel(&p->box, p->n_dims) * tt_dtype_size(p->dtype);
    for (int d = 0; d < p->n_dims; d++) {
        t.offset[d] = p->box.begin[d];
        t.shape[d] = p->box.end[d] - p->box.begin[d];
    }
    return t;
}

static tt_status write_shards(tt_arena *a, const char *tmp, int rank, const tt_ckpt_piece *pieces,
                              size_t n, tt_manifest *m, tt_error *err)
{
    tt_map *seen = tt_map_new(a);
    size_t n_files = 0, *file = tt_arena_array(a, n, sizeof *file);
    for (size_t i = 0; i < n; i++) {
        TT_TRY(check_piece(&pieces[i], err));
        file[i] = file_of(a, seen, &pieces[i]);
        n_files = TT_MAXV(n_files, file[i]);
    }
    for (size_t k = 1; k <= n_files; k++) {
        TT_VEC(tt_st_tensor) shards = {0};
        tt_ckpt_file f = {0};
        for (size_t i = 0; i < n; i++)
            if (file[i] == k)
                tt_vec_push(a, &shards, shard_of(&pieces[i]));
        f.name =
            tt_arena_printf(a, "shard-%05d-model-%05zu-of-%05zu.safetensors", rank + 1, k, n_files);
        const char *path = tt_path_join(a, tmp, f.name);
        TT_TRY(tt_st_write(path, shards.items, shards.n, true, NULL, NULL, 0, f.hash, err));
        struct stat st;
        if (stat(path, &st) != 0)
            return tt_fail_system(err, errno, "read", path);
        f.bytes = st.st_size;
        tt_vec_push(a, &m->files, f);
    }
    return TT_OK;
}

tt_status tt_ckpt_write(const char *folder, int64_t step, int rank, const tt_ckpt_piece *pieces,
                        size_t n, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_manifest m = {0};
    tt_str text = {0};
    const char *tmp = tt_arena_printf(a, "%s/step-%lld.tmp", folder, (long long)step);
    tt_status status = write_shards(a, tmp, rank, pieces, n, &m, err);
    if (status != TT_OK)
        goto done;
    tt_map *listed = tt_map_new(a);
    for (size_t i = 0; i < n; i++) { /* replicas too: a tensor that nobody owns shows at commit */
        tt_ckpt_tensor t = {.name = pieces[i].name, .n_dims = pieces[i].n_dims};
        if (tt_map_get(listed, t.name))
            continue;
        t.dtype_name = tt_st_dtype_of(pieces[i].dtype)->name;
        memcpy(t.shape, pieces[i].global, sizeof t.shape[0] * (size_t)t.n_dims);
        tt_vec_push(a, &m.tensors, t);
        tt_map_set(listed, t.name, (void *)t.name);
    }
    tt_manifest_print(&m, &text);
    const char *list = tt_arena_printf(a, "%s/rank-%05d.json", tmp, rank + 1);
    status = tt_write_file_atomic(list, text.s, text.n, err);
done:
    tt_str_free(&text);
    tt_arena_free(a);
    return status;
}
