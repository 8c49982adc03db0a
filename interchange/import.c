/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/import.h"
#include "interchange/formats/meta.h"
#include "interchange/import_impl.h"
#include <stdlib.h>
#include <string.h>

/* Converts the weights of other programs into a step folder, one file at a time, so that memory
 * holds one file of weights. */

/* The name of a parameter in the folder, with the prefix: of several that the table has, the first that is there. */
static tt_status name_of(const import *im, const char *param, const char **name, tt_layout *layout,
                         tt_error *err)
{
    tt_titan_name row = {0}, first = {0};
    size_t at = 0;
    const char *found = NULL, *there;
    *layout = (tt_layout){0};
    *name = tt_arena_printf(im->arena, "%s%s", im->prefix, param);
    if (!im->names)
        return TT_OK;
    *name = NULL;
    while (!found && (there = tt_name_there(im->arena, im->names, param, false, &at, &row))) {
        there = tt_arena_printf(im->arena, "%s%s", im->prefix, there);
        first = *name ? first : row;
        *name = *name ? *name : there;
        found = !im->reader || tt_ckpt_has(im->reader, there) ? there : NULL;
    }
    if (!*name)
        return TT_FAIL(err, TT_EUNSUPPORTED, "model %s: %s no name for '%s'", im->s->model.name,
                       im->is_meta_release ? "Meta's files have" : "torchtitan has", param);
    *name = found ? found : *name; /* without: the load names what is not there */
    return tt_layout_of(im->s, found ? &row : &first, param, layout, err);
}

/* Returns a map from Meta's names to whole shapes, for folders whose files each hold a part of
 * every tensor. */
static tt_status shapes_of(const import *im, tt_map **out, tt_error *err)
{
    tt_map *shapes = tt_map_new(im->arena);
    for (size_t i = 0; i < im->n; i++) {
        tt_ckpt_tensor *t = tt_arena_alloc(im->arena, sizeof *t);
        tt_layout layout;
        TT_TRY(name_of(im, im->params[i].name, &t->name, &layout, err));
        t->n_dims = im->params[i].n_dims;
        memcpy(t->shape, im->params[i].dims, sizeof t->shape);
        tt_map_set(shapes, t->name, t);
    }
    *out = shapes;
    return TT_OK;
}

static tt_status open_source(import *im, tt_error *err)
{
    tt_map *shapes = NULL;
    if (im->from == TT_IMPORT_HF) { /* tt_hf_load opens it */
        tt_map *there = NULL;
        TT_TRY(tt_hf_layout(im->arena, im->params, im->n, &there, err));
        im->n_taken = tt_map_size(there);
        return TT_OK;
    }
    if (im->from == TT_IMPORT_TITAN || im->from == TT_IMPORT_DCP)
        return tt_import_open_dcp(im, err);
    tt_name_table *names = tt_arena_alloc(im->arena, sizeof *names);
    tt_meta_names(im->s, names); /* tt_import_job checked that there are some */
    im->names = names;
    TT_TRY(shapes_of(im, &shapes, err));
    return tt_meta_open(im->folder, shapes, &im->reader, err);
}

/* Adds the adapters (LoRA) of the job's converters that the folder has; without them it has the weights that
 * the adapters begin from. */
static void add_adapters(import *im)
{
    const tt_graph *g = im->s->graph;
    tt_hf_param *all = tt_arena_array(im->arena, im->n + g->params.n + 1, sizeof *all);
    memcpy(all, im->params, sizeof *all * im->n);
    for (size_t i = 0; i < g->params.n; i++) {
        const tt_param_info *info = g->params.items[i];
        const char *there = tt_arena_printf(im->arena, "%s%s", im->prefix, info->name);
        if (!info->adapter_of || !tt_ckpt_has(im->reader, there))
            continue;
        tt_hf_param *p = &all[im->n++];
        *p = (tt_hf_param){.name = info->name, .n_dims = info->whole.n_dims};
        for (int d = 0; d < info->whole.n_dims; d++)
            p->dims[d] = info->whole.dims[d].size;
    }
    im->params = all;
}

/* Names of tensors that the job says, that are computed from it, or that tt_import_progress() reads. */
static bool is_known_without_model(const char *name)
{
    static const char *const sections[] = {"param_groups.", "train_state.", "lr_scheduler.",
                                           "dataloader."};
    for (size_t i = 0; i < TT_COUNT(sections); i++) {
        const char *at = strstr(name, sections[i]);
        if (at && (at == name || at[-1] == '.'))
            return true;
    }
    return !strcmp(name, "rope.freqs") || !strcmp(name, "step") || tt_ends_with(name, ".step");
}

static bool is_known_or_state(const char *name)
{
    return is_known_without_model(name) || strstr(name, "state.");
}

/* What the folder has and the import does not take is an error, unless checkpoint.initial_load_strict is false. A tensor that
 * the folder lacks says more, and the load names it. */
static tt_status check_left(import *im, tt_error *err)
{
    tt_map *used = tt_map_new(im->arena);
    const char *names = "";
    bool lacks = false;
    for (size_t i = 0; i < im->tensors.n; i++) {
        tt_map_set(used, im->tensors.items[i].there, used);
        lacks = lacks || !tt_ckpt_has(im->reader, im->tensors.items[i].there);
    }
    TT_TRY(tt_import_take_zeros(im, used, err));
    const size_t n = tt_ckpt_others(im->reader, used, is_known_or_state, im->arena, &names);
    if (n && !lacks && im->s->core.checkpoint.initial_load_strict)
        return TT_FAIL(err, TT_EINVAL,
                       "%s: %zu tensor%s not of this model: %s; checkpoint.initial_load_strict "
                       "false leaves %s out",
                       im->folder, n, n > 1 ? "s are" : " is", names, n > 1 ? "them" : "it");
    im->n_left = tt_ckpt_others(im->reader, used, is_known_without_model, im->arena, &names);
    if (im->n_left && !lacks)
        tt_log(TT_INFO, "checkpoint", "%s: %zu tensor%s not of this model ignored: %s", im->folder,
               im->n_left, im->n_left > 1 ? "s" : "", names);
    return TT_OK;
}

/* What is written: the parameters, and the optimizer states that the folder has. */
static tt_status list_tensors(import *im, tt_error *err)
{
    for (size_t i = 0; i < im->n; i++) {
        const tt_hf_param *p = &im->params[i];
        tt_import_tensor t = {.name = p->name, .n_dims = p->n_dims};
        TT_TRY(name_of(im, p->name, &t.there, &t.layout, err));
        memcpy(t.dims, p->dims, sizeof t.dims);
        tt_vec_push(im->arena, &im->tensors, t);
    }
    if (im->reader && !im->is_meta_release)
        TT_TRY(tt_import_list_states(im, err));
    return im->reader ? check_left(im, err) : TT_OK;
}

static tt_status load_one(const import *im, const tt_import_tensor *t, const tt_ckpt_piece *p,
                          tt_error *err)
{
    tt_ckpt_piece there = *p;
    there.name = t->there;
    if (!tt_layout_differs(&t->layout))
        return tt_ckpt_load(im->reader, &there, 1, err);
    const size_t size = tt_dtype_size(p->dtype);
    const size_t bytes = (size_t)tt_box_numel(&p->box, p->n_dims) * size;
    there.data = malloc(bytes + 1);
    if (!there.data)
        return TT_FAIL(err, TT_ENOMEM, "no memory for %zu bytes of '%s'", bytes, p->name);
    tt_layout_shape(&t->layout, p->n_dims, p->global, there.global);
    tt_layout_shape(&t->layout, p->n_dims, p->box.end, there.box.end); /* it is the whole tensor */
    const tt_status s = tt_ckpt_load(im->reader, &there, 1, err);
    if (s == TT_OK)
        tt_layout_load(&t->layout, p->data, there.data, p->n_dims, p->global, size);
    free(there.data);
    return s;
}

static tt_status import_bytes(const tt_import_tensor *t, int64_t *out, tt_error *err)
{
    int64_t n = sizeof(float);
    for (int d = 0; d < t->n_dims; d++)
        if (!tt_mul_i64(n, t->dims[d], &n))
            return TT_FAIL(err, TT_EINVAL, "tensor '%s': its size overflows", t->name);
    *out = n;
    return TT_OK;
}

/* Writes tensors [begin, end) as the file of one rank. */
static tt_status write_part(import *im, const char *out, int64_t step, int rank, size_t begin,
                            size_t end, tt_error *err)
{
    const tt_model_hf *hf = tt_setup_model_hf(im->s->model.component);
    const char *prefix = hf && TT_HAS(hf, tt_model_hf, prefix) ? hf->prefix : NULL;
    const tt_ckpt_matching all = {.report = rank == 0,
                                  .whole = rank == 0 && im->s->core.checkpoint.initial_load_strict,
                                  .n_left = &im->n_left};
    tt_ckpt_piece *p = tt_arena_array(im->arena, end - begin + 1, sizeof *p);
    tt_status s = TT_OK;
    for (size_t i = begin; i < end && s == TT_OK; i++) {
        const tt_import_tensor *t = &im->tensors.items[i];
        int64_t bytes = 0;
        s = import_bytes(t, &bytes, err);
        p[i - begin] =
            (tt_ckpt_piece){.name = t->name, .dtype = TT_F32, .n_dims = t->n_dims, .owner = true};
        memcpy(p[i - begin].global, t->dims, sizeof t->dims);
        memcpy(p[i - begin].box.end, t->dims, sizeof(int64_t) * (size_t)t->n_dims);
        p[i - begin].data = s == TT_OK ? malloc((size_t)bytes + 1) : NULL;
        if (s == TT_OK && !p[i - begin].data)
            s = TT_FAIL(err, TT_ENOMEM, "no memory for %lld bytes of tensor '%s'", (long long)bytes,
                        t->name);
    }
    if (s == TT_OK && im->from == TT_IMPORT_HF)
        s = tt_hf_load(im->folder, im->params, im->n, prefix, p, end - begin, &all, err);
    for (size_t i = begin; i < end && s == TT_OK && im->from != TT_IMPORT_HF; i++)
        s = load_one(im, &im->tensors.items[i], &p[i - begin], err);
    if (s == TT_OK)
        s = tt_ckpt_write(out, step, rank, p, end - begin, err);
    for (size_t i = 0; i < end - begin; i++)
        free(p[i].data);
    return s;
}

static tt_status write_parts(import *im, const char *out, int64_t step, int *n_parts, tt_error *err)
{
    size_t begin = 0;
    *n_parts = 0;
    while (begin < im->tensors.n) {
        int64_t all = 0, bytes = 0;
        size_t end = begin;
        for (; end < im->tensors.n; end++, all += bytes) {
            TT_TRY(import_bytes(&im->tensors.items[end], &bytes, err));
            if (end > begin && all > TT_HF_SHARD_BYTES - bytes)
                break;
        }
        TT_TRY(write_part(im, out, step, (*n_parts)++, begin, end, err));
        begin = end;
    }
    return TT_OK;
}

tt_status tt_setup_import(const tt_setup *s, tt_import_from from, const char *folder,
                          tt_trainer_state *state, const char *out, tt_tensor_counts *counts,
                          tt_error *err)
{
import im = {.s = s, .folder = folder, .from = from, .arena = tt_arena_new(), .prefix = "" };
    im.is_meta_release = from == TT_IMPORT_META;
    im.params = tt_setup_hf_params(s, im.arena, &im.n);
    tt_status st = open_source(&im, err);
    if (st == TT_OK && im.reader && !im.is_meta_release && !im.names)
        add_adapters(&im);
    if (st == TT_OK)
        st = list_tensors(&im, err);
    if (st == TT_OK && im.reader && !im.is_meta_release)
        st = tt_import_progress(&im, state, err);
    const char *final = tt_arena_printf(im.arena, "%s/step-%lld", out, (long long)state->step);
    if (st == TT_OK && tt_path_exists(final))
        st = TT_FAIL(err, TT_EEXIST, "%s exists already; remove it, or name another folder", final);
    if (st == TT_OK)
        st = tt_ckpt_begin(out, state->step, err);
    if (st == TT_OK)
        st = write_parts(&im, out, state->step, &state->world, err);
    if (st == TT_OK)
        st = tt_ckpt_commit(out, state->step, state, err);
    if (st != TT_OK && st != TT_EEXIST) /* tt_ckpt_begin made this folder */
        (void)tt_remove_tree(tt_arena_printf(im.arena, "%s.tmp", final), NULL);
    if (counts)
        *counts = (tt_tensor_counts){.made = im.tensors.n,
                                     .taken = im.n_taken ? im.n_taken : im.tensors.n,
                                     .left = im.n_left};
    tt_ckpt_close(im.reader);
    tt_arena_free(im.arena);
    return st;
}
