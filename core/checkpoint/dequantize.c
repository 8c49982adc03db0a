/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <math.h>
#include <string.h>
#include <ttrun/narrow.h>

/* Quantized tensors of Hugging Face folders, whose scales are tensors of their own:
 *   float8    W of F8_E4M3 or F8_E5M2 and W_scale_inv (DeepSeek, Qwen) or W_scale (compressed-tensors):
 *             one scale per tensor, per row, or per block of weight_block_size (config.json; 128 x 128);
 *             a value is the product in f32, as transformers and torch define it
 *   NVFP4     W_packed U8 [R, C / 2], the even column in the low 4 bits; W_scale F8_E4M3 [R, C / 16] and
 *             W_global_scale of one number (compressed-tensors): a value is q * (scale / global scale), in f32
 *   MXFP4     X_blocks U8 [E, R, G, 16] and X_scales U8 [E, R, G] (gpt_oss): X [E, 32 G, R]; 32 numbers of
 *             4 bits, the low nibble first, share the factor 2^(scale - 127)
 * Source: transformers' integrations/finegrained_fp8.py and mxfp4.py, compressed-tensors'
 * quantization/lifecycle/forward_helpers.py. */

enum { FP8_BLOCK = 128, MX_GROUP = 32, NV_GROUP = 16, RUN = 512 };

typedef enum quantized_form { FORM_FLOAT8, FORM_MXFP4, FORM_NVFP4 } quantized_form;

struct tt_quantized {
    quantized_form form;
    const tt_st_tensor *data, *scale;
    int64_t block[2];   /* of float8: elements of dims 0 and 1 that share a scale */
    int64_t columns;    /* of float8: scales in a row of blocks */
    float global_scale; /* of NVFP4: what the scales are divided by */
};

static tt_entry *sibling(const tt_ckpt_reader *r, const char *name, size_t n, const char *suffix)
{
    return tt_map_get(r->entries, tt_arena_printf(r->arena, "%.*s%s", (int)n, name, suffix));
}

static bool is_whole(const tt_entry *e)
{
    return e && e->shards.n == 1 &&
           !memcmp(e->shards.items[0].tensor->shape, e->global,
                   sizeof(int64_t) * (size_t)e->n_dims);
}

/* weight_block_size of config.json's quantization_config. */
static void block_size(const tt_ckpt_reader *r, int64_t block[2])
{
    const char *path = tt_path_join(r->arena, r->path, "config.json");
    const tt_json *root = NULL, *q;
    block[0] = block[1] = FP8_BLOCK;
    if (tt_path_exists(path))
        (void)tt_json_read(r->arena, path, (size_t)4 << 20, &root, NULL);
    q = tt_json_get(tt_json_get(root, "quantization_config"), "weight_block_size");
    for (size_t i = 0; q && q->type == TT_JSON_ARRAY && q->n == 2 && i < 2; i++)
        if (q->items[i]->type == TT_JSON_INT && q->items[i]->integer > 0)
            block[i] = q->items[i]->integer;
}

/* Which elements share a scale, by the shapes of both tensors; false: no form that is known. */
static bool place_scales(const tt_entry *w, const tt_entry *s, const int64_t block[2],
                         struct tt_quantized *q)
{
    int64_t numel = 1;
    const int64_t rows = w->n_dims ? w->global[0] : 1, cols = w->n_dims > 1 ? w->global[1] : 1;
    for (int d = 0; d < s->n_dims; d++)
        numel *= s->global[d]; /* bounded: the tensor is in a file */
    q->columns = 1;
    q->block[0] = TT_MAXV(rows, (int64_t)1);
    q->block[1] = TT_MAXV(cols, (int64_t)1);
    if (w->n_dims > 2)
        return false;
    if (numel == 1)
        return true;
    if (numel == rows && s->global[0] == rows) { /* [rows] or [rows, 1] */
        q->block[0] = 1;
        return true;
    }
    q->block[0] = block[0];
    q->block[1] = block[1];
    q->columns = s->n_dims == 2 ? s->global[1] : 0;
    return w->n_dims == 2 && s->n_dims == 2 && s->global[0] == (rows - 1) / block[0] + 1 &&
           s->global[1] == (cols - 1) / block[1] + 1;
}

static void find_float8(const tt_ckpt_reader *r, tt_entry *e, const int64_t block[2])
{
    struct tt_quantized q = {0};
    const size_t n = strlen(e->name);
    tt_entry *s = sibling(r, e->name, n, "_scale_inv");
    s = s ? s : sibling(r, e->name, n, "_scale");
    if (!is_whole(e) || !is_whole(s) || !tt_can_convert(TT_F32, tt_entry_dtype(s)) ||
        !place_scales(e, s, block, &q))
        return; /* check_piece says what is missing */
    q.data = e->shards.items[0].tensor;
    q.scale = s->shards.items[0].tensor;
    e->quantized = tt_arena_dup(r->arena, &q, sizeof q);
    s->is_scale = true;
}

static float scale_at(const tt_st_tensor *s, int64_t i)
{
    float x = 0;
    tt_convert(&x, TT_F32, (const uint8_t *)s->data + (size_t)i * tt_dtype_size(s->dtype), s->dtype,
               1);
    return x;
}

/* Makes the tensor X of X_blocks and X_scales. */
static void find_mxfp4(tt_ckpt_reader *r, tt_entry *blocks)
{
    static const char end[] = "_blocks";
    const size_t n = strlen(blocks->name), k = sizeof end - 1;
    if (n <= k || strcmp(blocks->name + n - k, end) != 0 || !is_whole(blocks) ||
        blocks->n_dims != 4 || tt_entry_dtype(blocks) != TT_U8 || blocks->global[3] != MX_GROUP / 2)
        return;
    tt_entry *s = sibling(r, blocks->name, n - k, "_scales");
    if (!is_whole(s) || s->n_dims != 3 || tt_entry_dtype(s) != TT_U8 ||
        memcmp(s->global, blocks->global, 3 * sizeof *s->global) != 0 ||
        sibling(r, blocks->name, n - k, ""))
        return;
    const struct tt_quantized q = {.form = FORM_MXFP4,
                                   .data = blocks->shards.items[0].tensor,
                                   .scale = s->shards.items[0].tensor};
    tt_entry *e = tt_arena_alloc(r->arena, sizeof *e);
    e->name = tt_arena_strn(r->arena, blocks->name, n - k);
    e->n_dims = 3;
    e->global[0] = blocks->global[0];
    e->global[1] = blocks->global[2] * MX_GROUP;
    e->global[2] = blocks->global[1];
    e->quantized = tt_arena_dup(r->arena, &q, sizeof q);
    tt_map_set(r->entries, e->name, e);
    blocks->is_scale = s->is_scale = true;
}

/* Makes the tensor W of W_packed, W_scale and W_global_scale. */
static void find_nvfp4(const tt_ckpt_reader *r, tt_entry *packed)
{
    static const char end[] = "_packed";
    const size_t n = strlen(packed->name), k = sizeof end - 1;
    if (n <= k || strcmp(packed->name + n - k, end) != 0 || !is_whole(packed) ||
        packed->n_dims != 2)
        return;
    tt_entry *s = sibling(r, packed->name, n - k, "_scale");
    tt_entry *g = sibling(r, packed->name, n - k, "_global_scale");
    const int64_t rows = packed->global[0], half = packed->global[1];
    if (!is_whole(s) || s->n_dims != 2 || tt_entry_dtype(s) != TT_F8E4M3 || s->global[0] != rows ||
        half % (NV_GROUP / 2) || s->global[1] != half / (NV_GROUP / 2) || !is_whole(g) ||
        !tt_can_convert(TT_F32, tt_entry_dtype(g)) || g->n_dims > 1 ||
        (g->n_dims && g->global[0] != 1) || sibling(r, packed->name, n - k, ""))
        return;
    const struct tt_quantized q = {.form = FORM_NVFP4,
                                   .data = packed->shards.items[0].tensor,
                                   .scale = s->shards.items[0].tensor,
                                   .global_scale = scale_at(g->shards.items[0].tensor, 0)};
    tt_entry *e = tt_arena_alloc(r->arena, sizeof *e);
    e->name = tt_arena_strn(r->arena, packed->name, n - k);
    e->n_dims = 2;
    e->global[0] = rows;
    e->global[1] = 2 * half;
    e->quantized = tt_arena_dup(r->arena, &q, sizeof q);
    tt_map_set(r->entries, e->name, e);
    packed->is_scale = s->is_scale = g->is_scale = true;
}

void tt_ckpt_find_quantized(tt_ckpt_reader *r)
{
    int64_t block[2] = {0, 0};
    const size_t n = tt_map_size(r->entries);
    for (size_t i = 0; i < n; i++) {
        tt_entry *e = tt_map_value(r->entries, i);
        const tt_dtype t = tt_entry_dtype(e);
        if (t == TT_F8E4M3 || t == TT_F8E5M2) {
            if (!block[0])
                block_size(r, block);
            find_float8(r, e, block);
        } else if (t == TT_U8) {
            find_mxfp4(r, e);
            find_nvfp4(r, e);
        }
    }
}

/* ---- values ---- */

/* n values of float8 from column c of row r. */
static void float8_run(const struct tt_quantized *q, int64_t cols, int64_t r, int64_t c, int64_t n,
                       float *out)
{
    const uint8_t *from = (const uint8_t *)q->data->data + (size_t)(r * cols + c);
    const int64_t row = r / q->block[0] * q->columns;
    for (int64_t i = 0; i < n;) {
        const int64_t b = (c + i) / q->block[1], end = TT_MIN(n, (b + 1) * q->block[1] - c);
        const float scale = scale_at(q->scale, row + b);
        for (; i < end; i++)
            out[i] = tt_from_float8(from[i], q->data->dtype == TT_F8E5M2) * scale;
    }
}

static const float e2m1[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                               -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* n values of NVFP4 from column c of row r. */
static void nvfp4_run(const struct tt_quantized *q, int64_t cols, int64_t r, int64_t c, int64_t n,
                      float *out)
{
    const uint8_t *packed = (const uint8_t *)q->data->data + r * (cols / 2);
    const uint8_t *scales = (const uint8_t *)q->scale->data + r * (cols / NV_GROUP);
    for (int64_t i = c; i < c + n; i++) {
        const float scale = tt_from_float8(scales[i / NV_GROUP], 0) / q->global_scale;
        out[i - c] = e2m1[i % 2 ? packed[i / 2] >> 4 : packed[i / 2] & 15] * scale;
    }
}

/* n values of [E, 32 G, R] from (e, k, r) on, along R: each of another row of blocks. */
static void mxfp4_run(const struct tt_quantized *q, const int64_t *at, int64_t n, float *out)
{
    const int64_t rows = q->data->shape[1], groups = q->data->shape[2];
    const uint8_t *blocks = q->data->data, *scales = q->scale->data;
    for (int64_t i = 0; i < n; i++) {
        const int64_t group = (at[0] * rows + at[2] + i) * groups + at[1] / MX_GROUP;
        const int64_t k = at[1] % MX_GROUP;
        const uint8_t pair = blocks[group * (MX_GROUP / 2) + k / 2];
        out[i] = ldexpf(e2m1[k % 2 ? pair >> 4 : pair & 15], (int)scales[group] - 127);
    }
}

/* The box of a piece, row by row. */
tt_status tt_ckpt_dequantize(tt_ckpt_reader *r, const tt_entry *e, const tt_ckpt_piece *p,
                             tt_error *err)
{
    if (e->coded)
        return tt_ckpt_decode(r, e, p, err);
    const struct tt_quantized *q = e->quantized;
    const int last = e->n_dims - 1;
    int64_t at[TT_MAX_DIMS] = {0};
    float run[RUN];
    uint8_t *to = p->data;
    const int64_t numel = tt_box_numel(&p->box, p->n_dims);
    memcpy(at, p->box.begin, sizeof at);
    for (int64_t done = 0; done < numel;) {
        const int64_t n = last < 0 ? 1 : TT_MIN((int64_t)RUN, p->box.end[last] - at[last]);
        if (q->form == FORM_MXFP4)
            mxfp4_run(q, at, n, run);
        else if (q->form == FORM_NVFP4)
            nvfp4_run(q, e->global[1], at[0], at[1], n, run);
        else if (last == 1)
            float8_run(q, e->global[1], at[0], at[1], n, run);
        else /* a vector: elements are rows of one column */
            for (int64_t i = 0; i < n; i++)
                float8_run(q, 1, at[0] + i, 0, 1, &run[i]);
        tt_convert(to, p->dtype, run, TT_F32, (size_t)n);
        to += (size_t)n * tt_dtype_size(p->dtype);
        done += n;
        if (last < 0)
            break;
        at[last] += n;
        for (int d = last; d > 0 && at[d] == p->box.end[d]; d--) {
            at[d] = p->box.begin[d];
            at[d - 1]++;
        }
    }
    return TT_OK;
}
