/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/reader.h"
#include "interchange/formats/hf.h"
#include "interchange/formats/hf_rest.h"
#include <stdlib.h>
#include <string.h>

/* Evaluates storage maps, and reads a Hugging Face folder by them. */

/* A file tensor that is one row of a parameter. */
static tt_status add_item(tt_arena *a, tt_map *tensors, const char *name, const tt_hf_part *part)
{
    tt_hf_tensor *t = tt_arena_alloc(a, sizeof *t);
    t->name = tt_arena_str(a, name);
    t->n_dims = part->param->n_dims - 1;
    for (int d = 0; d < t->n_dims; d++)
        t->shape[d] = part->param->dims[d + 1];
    tt_vec_push(a, &t->parts, *part);
    tt_map_set(tensors, name, t);
    return TT_OK;
}

static tt_status add_part(tt_arena *a, tt_map *tensors, const tt_hf_param *p, const tt_storage *s,
                          tt_error *err)
{
    const tt_storage whole = {0};
    const tt_storage *st = s ? s : &whole;
    const char *name = st->name ? st->name : p->name;
    const int64_t rows = p->n_dims ? p->dims[0] : 1;
    const bool item = st->transpose == TT_STORAGE_ITEM;
    tt_hf_part part = {
        p, st->begin, st->size, st->file_begin, st->transpose && !item && p->n_dims == 2, item};
    if (part.begin == 0 && part.size == 0)
        part.size = rows;
    if (part.begin < 0 || part.size < 0 || part.begin > rows - part.size || part.file_begin < 0 ||
        p->n_dims > TT_MAX_DIMS || (st->transpose && !item && p->n_dims > 2) ||
        (item && (part.size != 1 || part.file_begin || p->n_dims < 1)))
        return TT_FAIL(err, TT_EINVAL,
                       "parameter '%s': its storage map for '%s' does not fit its shape", p->name,
                       name);
    const int along = part.transpose ? 1 : 0;
    tt_hf_tensor *t = tt_map_get(tensors, name);
    if (item)
        return t ? TT_FAIL(err, TT_EINVAL, "file tensor '%s': two parameters hold it", name)
                 : add_item(a, tensors, name, &part);
    if (t && t->parts.items[0].item)
        return TT_FAIL(err, TT_EINVAL, "file tensor '%s': two parameters hold it", name);
    if (!t) {
        t = tt_arena_alloc(a, sizeof *t);
        t->name = tt_arena_str(a, name);
        t->n_dims = p->n_dims;
        for (int d = 0; d < p->n_dims; d++)
            t->shape[part.transpose ? 1 - d : d] = d ? p->dims[d] : 0;
        tt_map_set(tensors, name, t);
    }
    bool fits = t->n_dims == p->n_dims;
    for (int d = 1; d < p->n_dims && fits; d++)
        fits = t->shape[part.transpose ? 1 - d : d] == p->dims[d];
    if (!fits || (t->parts.n && t->parts.items[0].transpose != part.transpose))
        return TT_FAIL(err, TT_EINVAL,
                       "parameter '%s': its storage map for '%s' contradicts that of '%s'", p->name,
                       name, t->parts.n ? t->parts.items[0].param->name : p->name);
    if (p->n_dims)
        t->shape[along] = TT_MAXV(t->shape[along], part.file_begin + part.size);
    tt_vec_push(a, &t->parts, part);
    return TT_OK;
}

tt_status tt_hf_layout(tt_arena *a, const tt_hf_param *params, size_t n, tt_map **out,
                       tt_error *err)
{
    tt_map *tensors = tt_map_new(a);
    for (size_t i = 0; i < n; i++) {
        if (!params[i].n_storage)
            TT_TRY(add_part(a, tensors, &params[i], NULL, err));
        for (size_t k = 0; k < params[i].n_storage; k++)
            TT_TRY(add_part(a, tensors, &params[i], &params[i].storage[k], err));
    }
    for (size_t i = 0; i < tt_map_size(tensors); i++) {
        const tt_hf_tensor *t = tt_map_value(tensors, i);
        int64_t rows = 0;
        for (size_t k = 0; k < t->parts.n; k++)
            rows += t->parts.items[k].size;
        if (t->n_dims && !t->parts.items[0].item &&
            rows != t->shape[t->parts.items[0].transpose ? 1 : 0])
            return TT_FAIL(
                err, TT_EINVAL,
                "file tensor '%s': the storage maps of '%s' and others leave gaps or overlap",
                t->name, t->parts.items[0].param->name);
    }
    *out = tensors;
    return TT_OK;
}

/* ---- load ---- */

/* dst [rows, cols] = transpose of src [cols, rows]; elements have 1, 2, 4 or 8 bytes. */
static void hf_load_transpose(uint8_t *dst, const uint8_t *src, int64_t rows, int64_t cols,
                              size_t size)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            memcpy(dst + (size_t)(r * cols + c) * size, src + (size_t)(c * rows + r) * size, size);
}

/* A folder being read. */
typedef struct source {
    tt_ckpt_reader *reader;
    const tt_map *by_param, *tensors;
    const char *prefix; /* the folder's names may lack it; NULL = none */
    const tt_map
        *left_out; /* file tensors, by the folder's names, that keep their initial values */
} source;

/* Returns the name without the prefix, or NULL if the name does not begin with it. */
static const char *without(const char *prefix, const char *name)
{
    const size_t n = prefix ? strlen(prefix) : 0;
    return n && strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

/* Returns the name of a tensor that is the text model's part of a larger one: "model.x" is
 * "model.language_model.x" in files of transformers 5, "language_model.model.x" in older ones. NULL:
 * the folder has neither. */
static const char *name_in_larger(const source *from, const char *name)
{
    tt_arena *a = from->reader->arena;
    const char *rest = without("model.", name);
    const char *there = rest ? tt_arena_printf(a, "model.language_model.%s", rest) : NULL;
    if (there && tt_ckpt_has(from->reader, there))
        return there;
    there = tt_arena_printf(a, "language_model.%s", name);
    return tt_ckpt_has(from->reader, there) ? there : NULL;
}

/* Returns the folder's name for a file tensor: with or without the prefix. */
static const char *name_there(const source *from, const char *name)
{
    const char *rest = without(from->prefix, name);
    if (tt_ckpt_has(from->reader, name))
        return name;
    if (rest && tt_ckpt_has(from->reader, rest))
        return rest;
    const char *larger = name_in_larger(from, name);
    return larger ? larger : name;
}

/* Compares the file tensors of all parameters with those of the folder. */
static tt_status match(source *from, tt_arena *a, const tt_ckpt_matching *how, tt_error *err)
{
    const size_t n = tt_map_size(from->tensors);
    tt_ckpt_tensor *wanted = tt_arena_array(a, n + 1, sizeof *wanted);
    tt_map *left_out = NULL;
    for (size_t i = 0; i < n; i++) {
        const tt_hf_tensor *t = tt_map_value(from->tensors, i);
        const tt_hf_part *part = &t->parts.items[0];
        wanted[i] = (tt_ckpt_tensor){.name = name_there(from, t->name),
                                     .n_dims = t->n_dims,
                                     .vocab = t->parts.n == 1 && part->param->vocab &&
                                              !part->transpose && !part->item};
        memcpy(wanted[i].shape, t->shape, sizeof wanted[i].shape);
    }
    const tt_status s = tt_ckpt_match(from->reader, wanted, n, how, a, &left_out, err);
    from->left_out = left_out;
    for (size_t i = 0; s != TT_OK && i < n; i++) {
        const tt_hf_tensor *t = tt_map_value(from->tensors, i);
        if (tt_map_get(left_out, wanted[i].name))
            return tt_error_context(err, "parameter '%s'", t->parts.items[0].param->name);
    }
    return s;
}

/* A parameter with a file tensor that is left out keeps its initial values whole. */
static bool is_left_out(const source *from, const tt_hf_param *p)
{
    const char *own = p->name;
    bool out = !p->n_storage && tt_map_get(from->left_out, name_there(from, own));
    for (size_t i = 0; !out && i < p->n_storage; i++) {
        const char *name = p->storage[i].name ? p->storage[i].name : own;
        out = tt_map_get(from->left_out, name_there(from, name)) != NULL;
    }
    return out;
}

/* Loads the part of a piece that one file tensor holds. */
static tt_status load_part(const source *from, const tt_hf_tensor *t, const tt_hf_part *part,
                           const tt_ckpt_piece *p, tt_error *err)
{
    tt_ckpt_reader *r = from->reader;
    tt_ckpt_piece f = {
        .name = name_there(from, t->name), .dtype = p->dtype, .n_dims = p->n_dims, .box = p->box};
    const size_t size = tt_dtype_size(p->dtype);
    int64_t row = 1;
    memcpy(f.global, t->shape, sizeof f.global);
    f.data = p->data;
    if (p->n_dims == 0)
        return tt_ckpt_load(r, &f, 1, err);
    const int64_t first = TT_MAXV(p->box.begin[0], part->begin);
    const int64_t end = TT_MIN(p->box.end[0], part->begin + part->size);
    if (first >= end)
        return TT_OK;
    for (int d = 1; d < p->n_dims; d++)
        row *= p->box.end[d] - p->box.begin[d];
    uint8_t *to = (uint8_t *)p->data + (size_t)((first - p->box.begin[0]) * row) * size;
    const int along = part->transpose ? 1 : 0;
    if (part->item) {
        f.n_dims = t->n_dims;
        for (int d = 0; d < t->n_dims; d++) {
            f.box.begin[d] = p->box.begin[d + 1];
            f.box.end[d] = p->box.end[d + 1];
        }
        f.data = to;
        return tt_ckpt_load(r, &f, 1, err);
    }
    if (part->transpose) {
        f.box.begin[0] = p->box.begin[1];
        f.box.end[0] = p->box.end[1];
    }
    f.box.begin[along] = first - part->begin + part->file_begin;
    f.box.end[along] = end - part->begin + part->file_begin;
    f.data = to;
    if (!part->transpose)
        return tt_ckpt_load(r, &f, 1, err);
    uint8_t *turned = malloc((size_t)((end - first) * row) * size + 1);
    if (!turned)
        return TT_FAIL(err, TT_ENOMEM, "no memory to transpose tensor '%s'", t->name);
    f.data = turned;
    tt_status s = tt_ckpt_load(r, &f, 1, err);
    if (s == TT_OK)
        hf_load_transpose(to, turned, end - first, row, size);
    free(turned);
    return s;
}

static tt_status load_piece(void *user, const tt_ckpt_piece *p, tt_error *err)
{
    const source *from = user;
    if (p->take)
        return tt_ckpt_by_rows(p, load_piece, user, err);
    const tt_hf_param *param = tt_map_get(from->by_param, p->name);
    if (!param)
        return TT_FAIL(err, TT_EINVAL, "the model has no parameter '%s'", p->name);
    if (is_left_out(from, param))
        return TT_OK;
    for (size_t i = 0; i < TT_MAXV(param->n_storage, (size_t)1); i++) {
        const char *name =
            param->n_storage && param->storage[i].name ? param->storage[i].name : param->name;
        const tt_hf_tensor *t = tt_map_get(from->tensors, name);
        for (size_t k = 0; k < t->parts.n; k++) {
            if (t->parts.items[k].param != param)
                continue;
            if (load_part(from, t, &t->parts.items[k], p, err) != TT_OK)
                return tt_error_context(err, "parameter '%s'", p->name);
        }
    }
    return TT_OK;
}

/* Looks at what the folder has besides the model's tensors. */
static tt_status check_rest(const source *from, const tt_ckpt_matching *how, tt_error *err)
{
    tt_map *used = tt_map_new(from->reader->arena);
    tt_hf_rest x = {.reader = from->reader, .used = used};
    const char *embeds = NULL;
    bool head = false;
    for (size_t i = 0; i < tt_map_size(from->tensors); i++) {
        const char *name = tt_map_key(from->tensors, i), *there = name_there(from, name);
        tt_map_set(used, there, used);
        x.text_part = x.text_part || strstr(there, "language_model.");
        head = head || !strcmp(name, "lm_head.weight");
        if (strstr(name, "embed_tokens.weight") || strstr(name, "wte.weight"))
            embeds = there;
    }
    x.embeds = !head && embeds && tt_ckpt_has(from->reader, embeds) ? embeds : NULL;
    return tt_hf_check_rest(&x, how, err);
}

tt_status tt_hf_load(const char *folder, const tt_hf_param *params, size_t n_params,
                     const char *prefix, const tt_ckpt_piece *pieces, size_t n,
                     const tt_ckpt_matching *how, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_map *tensors = NULL, *by_param = tt_map_new(a);
    source from = {.by_param = by_param, .prefix = prefix};
    tt_status s = tt_hf_layout(a, params, n_params, &tensors, err);
    from.tensors = tensors;
    for (size_t i = 0; i < n_params; i++)
        tt_map_set(by_param, params[i].name, (void *)&params[i]);
    if (s == TT_OK)
        s = tt_hf_open(folder, &from.reader, err);
    if (s == TT_OK)
        s = tt_ckpt_rename(from.reader, how->rename, err);
    if (s == TT_OK)
        s = match(&from, a, how, err);
    for (size_t i = 0; i < n && s == TT_OK; i++)
        s = load_piece(&from, &pieces[i], err);
    if (s == TT_OK && (how->report || how->whole))
        s = check_rest(&from, how, err);
    tt_ckpt_close(from.reader);
    tt_arena_free(a);
    return s;
}
