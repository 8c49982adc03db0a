/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "checkpoint/convert.h"
#include "interchange/formats/hf_low.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Writes the weights of a step folder in Hugging Face's format, one file at a time. */

typedef struct saver {
    tt_arena *arena;
    tt_ckpt_reader *from;
    const char *folder;
    const tt_hf_tensor **tensors; /* sorted by name */
    int *file;                    /* [n] number of the file, from 0 */
    size_t n, n_made;             /* with the scales of low ones */
    int n_files;
    int64_t total;
    tt_dtype dtype;  /* of the file */
    tt_map *largest; /* by parameter: its largest |x|, once it is known */
} saver;

static int hf_save_by_name(const void *a, const void *b)
{
    const tt_hf_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static tt_status hf_tensor_bytes(const tt_hf_tensor *t, tt_dtype dtype, int64_t *out, tt_error *err)
{
    int64_t bytes = (int64_t)tt_dtype_size(dtype);
    for (int d = 0; d < t->n_dims; d++)
        if (!tt_mul_i64(bytes, t->shape[d], &bytes))
            return TT_FAIL(err, TT_EINVAL, "file tensor '%s': its size overflows", t->name);
    *out = bytes;
    return TT_OK;
}

/* In the files, with its scales. */
static tt_status bytes_in_file(const saver *v, const tt_hf_tensor *t, int64_t *out, tt_error *err)
{
    tt_st_tensor low[TT_HF_LOW_TENSORS];
    TT_TRY(hf_tensor_bytes(t, v->dtype, out, err));
    const size_t n = tt_hf_low_tensors(v->arena, t, low);
    for (size_t i = 0; i < n; i++)
        *out = (int64_t)low[i].bytes + (i ? *out : 0);
    return TT_OK;
}

static tt_status deal(saver *v, const tt_map *tensors, int64_t shard_bytes, tt_error *err)
{
    int64_t in_file = 0, bytes = 0;
    v->n = tt_map_size(tensors);
    v->tensors = tt_arena_array(v->arena, v->n + 1, sizeof *v->tensors);
    v->file = tt_arena_array(v->arena, v->n + 1, sizeof *v->file);
    for (size_t i = 0; i < v->n; i++)
        v->tensors[i] = tt_map_value(tensors, i);
    qsort(v->tensors, v->n, sizeof *v->tensors, hf_save_by_name);
    for (size_t i = 0; i < v->n; i++) {
        TT_TRY(bytes_in_file(v, v->tensors[i], &bytes, err));
        if (in_file && in_file > shard_bytes - bytes) {
            v->n_files++;
            in_file = 0;
        }
        v->file[i] = v->n_files;
        in_file += bytes;
        v->total += bytes;
    }
    v->n_files++;
    return TT_OK;
}

static const char *file_name(const saver *v, int file)
{
    if (v->n_files == 1)
        return "model.safetensors";
    return tt_arena_printf(v->arena, "model-%05d-of-%05d.safetensors", file + 1, v->n_files);
}

/* Adds scale · b · a to rows [begin, end) of a weight [rows,cols], summed in double over the rank. */
static tt_status add_adapter(const saver *v, const tt_hf_param *p, int64_t begin, int64_t end,
                             float *rows, tt_error *err)
{
    const int64_t cols = p->dims[1], rank = p->rank, n = end - begin;
    float *a = malloc((size_t)(rank * (cols + n)) * sizeof *a + 1), *b = a ? a + rank * cols : NULL;
    double *sum = malloc((size_t)cols * sizeof *sum + 1);
    tt_ckpt_piece of_a = {
        .name = p->adapter_a,
        .dtype = TT_F32,
        .n_dims = 2,
        .data = a,
        .global = {rank, cols        },
        .box = {{0},  {rank, cols}}
    };
    tt_ckpt_piece of_b = {
        .name = p->adapter_b,
        .dtype = TT_F32,
        .n_dims = 2,
        .data = b,
        .global = {p->dims[0], rank       },
        .box = {{begin},    {end, rank}}
    };
    tt_status s = a && sum ? TT_OK : TT_FAIL(err, TT_ENOMEM, "no memory to merge '%s'", p->name);
    if (s == TT_OK)
        s = tt_ckpt_load(v->from, &of_a, 1, err);
    if (s == TT_OK)
        s = tt_ckpt_load(v->from, &of_b, 1, err);
    for (int64_t i = 0; s == TT_OK && i < n; i++) {
        memset(sum, 0, (size_t)cols * sizeof *sum);
        for (int64_t k = 0; k < rank; k++)
            for (int64_t j = 0; j < cols; j++)
                sum[j] += (double)b[i * rank + k] * (double)a[k * cols + j];
        for (int64_t j = 0; j < cols; j++)
            rows[i * cols + j] = (float)((double)rows[i * cols + j] + p->scale * sum[j]);
    }
    free(sum);
    free(a);
    return s;
}

/* Makes rows [begin, end) of a weight as long as its magnitudes say. A row of zeros stays one. */
static tt_status set_lengths(const saver *v, const tt_hf_param *p, int64_t begin, int64_t end,
                             float *rows, tt_error *err)
{
    const int64_t cols = p->dims[1];
    float *m = malloc((size_t)(end - begin) * sizeof *m + 1);
    tt_ckpt_piece of_m = {
        .name = p->magnitude,
        .dtype = TT_F32,
        .n_dims = 1,
        .data = m,
        .global = {p->dims[0]},
        .box = { {begin},     {end}}
    };
    tt_status s = m ? tt_ckpt_load(v->from, &of_m, 1, err)
                    : TT_FAIL(err, TT_ENOMEM, "no memory to merge '%s'", p->name);
    for (int64_t i = 0; s == TT_OK && i < end - begin; i++) {
        float *row = rows + i * cols;
        double sum = 0;
        for (int64_t j = 0; j < cols; j++)
            sum += (double)row[j] * (double)row[j];
        for (int64_t j = 0; sum > 0 && j < cols; j++)
            row[j] = (float)((double)row[j] * ((double)m[i] / sqrt(sum)));
    }
    free(m);
    return s;
}

static tt_status read_merged(const saver *v, const tt_hf_part *part, tt_ckpt_piece *piece,
                             tt_error *err)
{
    TT_TRY(tt_ckpt_load(v->from, piece, 1, err));
    if (!part->param->adapter_a)
        return TT_OK;
    const int64_t end = part->begin + part->size;
    TT_TRY(add_adapter(v, part->param, part->begin, end, piece->data, err));
    return part->param->magnitude ? set_lengths(v, part->param, part->begin, end, piece->data, err)
                                  : TT_OK;
}

/* Loads the rows that one parameter contributes to a file tensor. */
static tt_status read_part(const saver *v, const tt_hf_tensor *t, const tt_hf_part *part,
                           float *data, tt_error *err)
{
    const tt_hf_param *p = part->param;
    tt_ckpt_piece piece = {.name = p->name, .dtype = TT_F32, .n_dims = p->n_dims, .data = data};
    int64_t row = 1;
    for (int d = 0; d < p->n_dims; d++) {
        piece.global[d] = piece.box.end[d] = p->dims[d];
        row *= d ? p->dims[d] : 1;
    }
    if (p->n_dims) {
        piece.box.begin[0] = part->begin;
        piece.box.end[0] = part->begin + part->size;
    }
    if (!part->transpose) {
        piece.data = data + part->file_begin * row;
        return read_merged(v, part, &piece, err);
    }
    float *rows = malloc((size_t)(part->size * row) * sizeof *rows + 1);
    if (!rows)
        return TT_FAIL(err, TT_ENOMEM, "no memory for parameter '%s'", p->name);
    piece.data = rows;
    tt_status s = read_merged(v, part, &piece, err);
    for (int64_t r = 0; r < part->size && s == TT_OK; r++)
        for (int64_t c = 0; c < row; c++)
            data[c * t->shape[1] + part->file_begin + r] = rows[r * row + c];
    free(rows);
    return s;
}

/* Converts in place: an element is never longer than it was, and is read before it is written. */
static float *narrow(const saver *v, float *data, size_t n)
{
    if (v->dtype != TT_F32)
        tt_convert(data, v->dtype, data, TT_F32, n);
    float *less = v->dtype != TT_F32 ? realloc(data, n * tt_dtype_size(v->dtype) + 1) : data;
    return less ? less : data;
}

static float largest_of(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most;
}

/* The largest |x| of a parameter that is stored in several tensors: its rows are read one after the other. */
static tt_status largest_of_param(const saver *v, const tt_hf_param *p, float *out, tt_error *err)
{
    int64_t row = 1;
    const float *known = tt_map_get(v->largest, p->name);
    for (int d = 1; d < p->n_dims; d++)
        row *= p->dims[d];
    float *data = known ? NULL : malloc((size_t)row * sizeof *data + 1), most = 0;
    if (!known && !data)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a row of parameter '%s'", p->name);
    tt_status s = TT_OK;
    for (int64_t i = 0; !known && s == TT_OK && i < p->dims[0]; i++) {
        const tt_hf_part one = {.param = p, .begin = i, .size = 1};
        s = read_part(v, NULL, &one, data, err);
        most = s == TT_OK ? fmaxf(most, largest_of(data, row)) : most;
    }
    free(data);
    if (!known && s == TT_OK)
        tt_map_set(v->largest, p->name, tt_arena_dup(v->arena, &most, sizeof most));
    *out = known ? *known : most;
    return s;
}

/* Makes the tensors of the files from data, and frees it. Each of out has its own memory or NULL. */
static tt_status put_low(const saver *v, const tt_hf_tensor *t, float *data,
                         tt_st_tensor out[TT_HF_LOW_TENSORS], tt_error *err)
{
    const tt_hf_part *part = &t->parts.items[0];
    float amax = 0;
    tt_status s = TT_OK;
    if (part->param->low == TT_HF_NVFP4 && (part->item || part->size < part->param->dims[0]))
        s = largest_of_param(v, part->param, &amax, err);
    else if (part->param->low == TT_HF_NVFP4)
        amax = largest_of(data, t->shape[0] * t->shape[1]);
    if (s == TT_OK)
        s = tt_hf_low_encode(t, data, amax, out, err);
    free(data);
    return s;
}

static tt_status write_file(saver *v, int file, tt_error *err)
{
    static const char *const dtype_names[] = {
        [TT_F32] = "F32", [TT_BF16] = "BF16", [TT_F16] = "F16"};
    static const char *const keys[] = {"format"}, *const values[] = {"pt"};
    tt_st_tensor *out = tt_arena_array(v->arena, TT_HF_LOW_TENSORS * v->n + 1, sizeof *out);
    size_t n = 0;
    tt_status s = TT_OK;
    for (size_t i = 0; i < v->n && s == TT_OK; i++) {
        const tt_hf_tensor *t = v->tensors[i];
        int64_t bytes = 0; /* while it is put together, in f32 */
        if (v->file[i] != file)
            continue;
        s = hf_tensor_bytes(t, TT_F32, &bytes, err);
        float *data = s == TT_OK ? malloc((size_t)bytes + 1) : NULL;
        if (s == TT_OK && !data)
            s = TT_FAIL(err, TT_ENOMEM, "no memory for %lld bytes of tensor '%s'", (long long)bytes,
                        t->name);
        for (size_t k = 0; k < t->parts.n && s == TT_OK; k++)
            s = read_part(v, t, &t->parts.items[k], data, err);
        const size_t low = s == TT_OK ? tt_hf_low_tensors(v->arena, t, &out[n]) : 0;
        if (low) {
            s = put_low(v, t, data, &out[n], err);
            n += low;
            continue;
        }
        out[n] = (tt_st_tensor){.name = t->name,
                                .dtype = v->dtype,
                                .dtype_name = dtype_names[v->dtype],
                                .n_dims = t->n_dims,
                                .data = s == TT_OK ? narrow(v, data, (size_t)bytes / 4) : data,
                                .bytes = (size_t)bytes / 4 * tt_dtype_size(v->dtype)};
        memcpy(out[n++].shape, t->shape, sizeof t->shape);
    }
    if (s == TT_OK)
        s = tt_st_write(tt_path_join(v->arena, v->folder, file_name(v, file)), out, n, false, keys,
                        values, 1, NULL, err);
    for (size_t i = 0; i < n; i++)
        free((void *)out[i].data);
    v->n_made += n;
    return s;
}

static void put_place(const saver *v, const char *name, int file, const char *separator, tt_str *s)
{
    tt_str_add(s, separator);
    tt_str_json(s, name);
    tt_str_add(s, ": ");
    tt_str_json(s, file_name(v, file));
}

static tt_status write_index(const saver *v, tt_error *err)
{
    tt_str s = {0};
    tt_str_printf(&s, "{\n  \"metadata\": {\n    \"total_size\": %lld\n  },\n  \"weight_map\": {",
                  (long long)v->total);
    for (size_t i = 0; i < v->n; i++) {
        tt_st_tensor low[TT_HF_LOW_TENSORS] = {{.name = v->tensors[i]->name}};
        const size_t n = TT_MAXV(tt_hf_low_tensors(v->arena, v->tensors[i], low), (size_t)1);
        for (size_t k = 0; k < n; k++)
            put_place(v, low[k].name, v->file[i], i || k ? ",\n    " : "\n    ", &s);
    }
    tt_str_add(&s, "\n  }\n}\n");
    const tt_status st = tt_write_file_atomic(
        tt_path_join(v->arena, v->folder, "model.safetensors.index.json"), s.s, s.n, err);
    tt_str_free(&s);
    return st;
}

tt_status tt_hf_save(tt_ckpt_reader *from, const tt_hf_param *params, size_t n_params,
                     tt_dtype dtype, int64_t shard_bytes, const char *folder, size_t *made,
                     tt_error *err)
{
    saver v = {.arena = tt_arena_new(), .from = from, .folder = folder, .dtype = dtype};
    tt_map *tensors = NULL;
    v.largest = tt_map_new(v.arena);
    tt_status s = tt_hf_layout(v.arena, params, n_params, &tensors, err);
    if (s == TT_OK)
        s = deal(&v, tensors, shard_bytes, err);
    for (int f = 0; f < v.n_files && s == TT_OK; f++)
        s = write_file(&v, f, err);
    if (s == TT_OK && v.n_files > 1)
        s = write_index(&v, err);
    if (made)
        *made = v.n_made;
    tt_arena_free(v.arena);
    return s;
}
