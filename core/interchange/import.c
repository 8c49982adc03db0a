/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/import.h"
#include "interchange/interchange_impl.h"
#include <stdlib.h>
#include <string.h>

/* Converts the weights of other programs into a step folder, one file at a time, so that memory
 * holds one file of weights. */

typedef struct import {
    const tt_setup *s;
    const char *folder;
    tt_import_from from;
    tt_arena *arena;
    tt_ckpt_reader *reader; /* reads files with Meta's names; NULL for Hugging Face */
    const tt_model_meta *meta;
    const tt_hf_param *params;
    size_t n;
} import;

static tt_status name_of(const import *im, const char *param, const char **name, int *pairs,
                         tt_error *err)
{
    const tt_tensor_name *row = NULL;
    *name = tt_name_there(im->arena, im->meta->names, im->meta->n_names, im->meta->name_size, param,
                          &row);
    if (!*name)
        return TT_FAIL(err, TT_EUNSUPPORTED, "model %s: Meta's files have no name for '%s'",
                       im->s->model.name, param);
    *pairs = row->pairs;
    return TT_OK;
}

/* Returns a map from Meta's names to whole shapes, for folders whose files each hold a part of
 * every tensor. */
static tt_status shapes_of(const import *im, tt_map **out, tt_error *err)
{
    tt_map *shapes = tt_map_new(im->arena);
    for (size_t i = 0; i < im->n; i++) {
        tt_ckpt_tensor *t = tt_arena_alloc(im->arena, sizeof *t);
        int pairs = 0;
        TT_TRY(name_of(im, im->params[i].name, &t->name, &pairs, err));
        t->n_dims = im->params[i].n_dims;
        memcpy(t->shape, im->params[i].dims, sizeof t->shape);
        tt_map_set(shapes, t->name, t);
    }
    *out = shapes;
    return TT_OK;
}

/* torch.distributed.checkpoint's own format is a pickle that contains pickles. */
static tt_status refuse_distcp(const import *im, tt_error *err)
{
    if (!tt_path_exists(tt_path_join(im->arena, im->folder, ".metadata")))
        return TT_OK;
    return TT_FAIL(err, TT_EUNSUPPORTED,
                   "%s: .metadata and *.distcp are Python pickles, which ttrun does not run: save "
                   "with torch.distributed.checkpoint.HuggingFaceStorageWriter, or in Hugging "
                   "Face's form (torchtitan's checkpoint.last_save_in_hf)",
                   im->folder);
}

static tt_status open_source(import *im, tt_error *err)
{
    tt_map *shapes = NULL;
    if (im->from == TT_IMPORT_HF)
        return TT_OK;                                       /* tt_hf_load opens it */
    im->meta = tt_setup_model_meta(im->s->model.component); /* not NULL: tt_import_job checked it */
    if (im->from == TT_IMPORT_TITAN) {
        TT_TRY(refuse_distcp(im, err));
        return tt_ckpt_open(im->folder, &im->reader, err);
    }
    TT_TRY(shapes_of(im, &shapes, err));
    return tt_ckpt_open_split(im->folder, shapes, &im->reader, err);
}

/* Permutes the rows of each head from pairs to halves; a row has `row` bytes. */
static void to_halves(uint8_t *to, const uint8_t *from, int64_t rows, int64_t head_dim, size_t row)
{
    const int64_t half = head_dim / 2;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = r % head_dim;
        const int64_t source = r - at + (at < half ? 2 * at : 2 * (at - half) + 1);
        memcpy(to + (size_t)r * row, from + (size_t)source * row, row);
    }
}

static tt_status load_meta(const import *im, const tt_ckpt_piece *p, tt_error *err)
{
    tt_ckpt_piece there = *p;
    int pairs = 0;
    int64_t head_dim = 0;
    TT_TRY(name_of(im, p->name, &there.name, &pairs, err));
    if (!pairs)
        return tt_ckpt_load(im->reader, &there, 1, err);
    TT_TRY(tt_head_dim_of(im->s, p->name, &head_dim, err));
    const size_t bytes = (size_t)tt_box_numel(&p->box, p->n_dims) * tt_dtype_size(p->dtype);
    there.data = malloc(bytes + 1);
    if (!there.data)
        return TT_FAIL(err, TT_ENOMEM, "no memory for %zu bytes of '%s'", bytes, p->name);
    const tt_status s = tt_ckpt_load(im->reader, &there, 1, err);
    if (s == TT_OK)
        to_halves(p->data, there.data, p->global[0], head_dim, bytes / (size_t)p->global[0]);
    free(there.data);
    return s;
}

static tt_status import_bytes(const tt_hf_param *p, int64_t *out, tt_error *err)
{
    int64_t n = sizeof(float);
    for (int d = 0; d < p->n_dims; d++)
        if (!tt_mul_i64(n, p->dims[d], &n))
            return TT_FAIL(err, TT_EINVAL, "parameter '%s': its size overflows", p->name);
    *out = n;
    return TT_OK;
}

/* Writes parameters [begin, end) as the file of one rank. */
static tt_status write_part(const import *im, const char *out, int rank, size_t begin, size_t end,
                            tt_error *err)
{
    const tt_model_hf *hf = tt_setup_model_hf(im->s->model.component);
    const char *prefix = hf && TT_HAS(hf, tt_model_hf, prefix) ? hf->prefix : NULL;
    tt_ckpt_piece *p = tt_arena_array(im->arena, end - begin + 1, sizeof *p);
    tt_status s = TT_OK;
    for (size_t i = begin; i < end && s == TT_OK; i++) {
        const tt_hf_param *param = &im->params[i];
        int64_t bytes = 0;
        s = import_bytes(param, &bytes, err);
        p[i - begin] = (tt_ckpt_piece){
            .name = param->name, .dtype = TT_F32, .n_dims = param->n_dims, .owner = true};
        memcpy(p[i - begin].global, param->dims, sizeof param->dims);
        memcpy(p[i - begin].box.end, param->dims, sizeof(int64_t) * (size_t)param->n_dims);
        p[i - begin].data = s == TT_OK ? malloc((size_t)bytes + 1) : NULL;
        if (s == TT_OK && !p[i - begin].data)
            s = TT_FAIL(err, TT_ENOMEM, "no memory for %lld bytes of parameter '%s'",
                        (long long)bytes, param->name);
    }
    if (s == TT_OK && im->from == TT_IMPORT_HF)
        s = tt_hf_load(im->folder, im->params, im->n, prefix, p, end - begin, rank == 0, err);
    for (size_t i = begin; i < end && s == TT_OK && im->from != TT_IMPORT_HF; i++)
        s = load_meta(im, &p[i - begin], err);
    if (s == TT_OK)
        s = tt_ckpt_write(out, 0, rank, p, end - begin, err);
    for (size_t i = 0; i < end - begin; i++)
        free(p[i].data);
    return s;
}

static tt_status write_parts(const import *im, const char *out, int *n_parts, tt_error *err)
{
    size_t begin = 0;
    *n_parts = 0;
    while (begin < im->n) {
        int64_t all = 0, bytes = 0;
        size_t end = begin;
        for (; end < im->n; end++, all += bytes) {
            TT_TRY(import_bytes(&im->params[end], &bytes, err));
            if (end > begin && all > TT_HF_SHARD_BYTES - bytes)
                break;
        }
        TT_TRY(write_part(im, out, (*n_parts)++, begin, end, err));
        begin = end;
    }
    return TT_OK;
}

tt_status tt_setup_import(const tt_setup *s, tt_import_from from, const char *folder,
                          tt_trainer_state *state, const char *out, tt_error *err)
{
import im = {.s = s, .folder = folder, .from = from, .arena = tt_arena_new() };
    im.params = tt_setup_hf_params(s, im.arena, &im.n);
    tt_status st = open_source(&im, err);
    if (st == TT_OK)
        st = tt_ckpt_begin(out, 0, err);
    if (st == TT_OK)
        st = write_parts(&im, out, &state->world, err);
    if (st == TT_OK)
        st = tt_ckpt_commit(out, 0, state, 0, err);
    if (st != TT_OK) /* tt_ckpt_begin made this folder */
        (void)tt_remove_tree(tt_path_join(im.arena, out, "step-0.tmp"), NULL);
    tt_ckpt_close(im.reader);
    tt_arena_free(im.arena);
    return st;
}
