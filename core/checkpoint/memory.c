/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <stdlib.h>
#include <string.h>

/* A reader of pieces that are in memory: it has the same entries as that of a folder, and loads by the same code. */

static bool is_there(const tt_entry *e, const tt_box *box)
{
    const size_t bytes = sizeof box->begin[0] * (size_t)e->n_dims;
    for (size_t i = 0; i < e->shards.n; i++) {
        const tt_box *b = &e->shards.items[i].box;
        if (!memcmp(b->begin, box->begin, bytes) && !memcmp(b->end, box->end, bytes))
            return true;
    }
    return false;
}

static tt_status entry_of(tt_ckpt_reader *r, const tt_ckpt_piece *p, tt_entry **out, tt_error *err)
{
    tt_entry *e = *out = tt_map_get(r->entries, p->name);
    if (!e) {
        e = *out = tt_arena_alloc(r->arena, sizeof *e);
        e->name = tt_arena_str(r->arena, p->name);
        e->n_dims = p->n_dims;
        memcpy(e->global, p->global, sizeof e->global);
        tt_map_set(r->entries, e->name, e);
    }
    if (e->n_dims != p->n_dims ||
        memcmp(e->global, p->global, sizeof e->global[0] * (size_t)e->n_dims))
        return TT_FAIL(err, TT_EFORMAT, "%s: tensor '%s' has two shapes", r->path, p->name);
    return TT_OK;
}

static tt_status add_piece(tt_ckpt_reader *r, const tt_ckpt_piece *p, tt_error *err)
{
    tt_entry *e;
    const tt_st_dtype *dtype = tt_st_dtype_of(p->dtype);
    if (!dtype)
        return TT_FAIL(err, TT_EFORMAT, "%s: tensor '%s' has no valid dtype", r->path, p->name);
    TT_TRY(entry_of(r, p, &e, err));
    const int64_t n = tt_box_numel(&p->box, p->n_dims);
    if (n <= 0 || is_there(e, &p->box)) /* a replica has the same values */
        return TT_OK;
    tt_st_tensor *t = tt_arena_alloc(r->arena, sizeof *t);
    *t = (tt_st_tensor){.name = e->name,
                        .dtype = p->dtype,
                        .dtype_name = dtype->name,
                        .n_dims = p->n_dims,
                        .data = p->data,
                        .bytes = (size_t)n * tt_dtype_size(p->dtype)};
    for (int d = 0; d < p->n_dims; d++) {
        t->shape[d] = p->box.end[d] - p->box.begin[d];
        t->offset[d] = p->box.begin[d];
    }
    tt_vec_push(r->arena, &e->shards, ((tt_shard){p->box, t, r->files}));
    return TT_OK;
}

static tt_status check_whole(tt_ckpt_reader *r, tt_error *err)
{
    for (size_t i = 0; i < tt_map_size(r->entries); i++) {
        tt_entry *e = tt_map_value(r->entries, i);
        tt_entry_sort(e);
        TT_TRY(tt_entry_check_whole(r, e, err));
    }
    return TT_OK;
}

tt_status tt_ckpt_open_pieces(const char *name, const tt_ckpt_piece *pieces, size_t n,
                              tt_ckpt_reader **out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_ckpt_reader *r = tt_arena_alloc(a, sizeof *r);
    r->arena = a;
    r->path = tt_arena_str(a, name);
    r->entries = tt_map_new(a);
    r->shapes_in = r->path;
    r->n_files = 1;
    r->files = tt_arena_array(a, 1, sizeof *r->files);
    r->files[0].path = r->path;
    tt_status s = TT_OK;
    for (size_t i = 0; s == TT_OK && i < n; i++)
        s = pieces[i].owner ? add_piece(r, &pieces[i], err) : TT_OK;
    for (size_t i = 0; s == TT_OK && i < n; i++)
        s = pieces[i].owner ? TT_OK : add_piece(r, &pieces[i], err);
    if (s == TT_OK)
        s = check_whole(r, err);
    if (s == TT_OK)
        tt_ckpt_find_coded(r);
    if (s == TT_OK)
        *out = r;
    else
        tt_ckpt_close(r);
    return s;
}
