/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/interchange_impl.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Writes a step folder as a GGUF file. The model plugin gives the names and keys (TT_MODEL_GGUF);
 * tensors are read row by row from the checkpoint. */

#define MAX_KEYS_JSON 16384
#define MAX_FACTORS 4096

typedef struct source {         /* where the values of one GGUF tensor come from */
    const tt_hf_tensor *tensor; /* NULL: the values are in `values` */
    const float *values;
    int64_t head_dim; /* permute the rows of each head from halves to pairs; 0 = do not */
    float plus;       /* added to each value */
    /* A part of the tensor, which is read one matrix at a time (tt_gguf_part): rows of item i of dim 0, or the rows
     * from `begin` on of each head of `unit` rows */
    bool part, transpose;
    int64_t step, first, unit, begin;
} source;

typedef struct writer {
    const tt_setup *s;
    const tt_model_gguf *model;
    tt_ckpt_reader *from;
    tt_gguf out;
    tt_gguf_type type;
    int64_t blocks;   /* the key block_count; 0: there is none */
    tt_map *left_out; /* the parameters of blocks after them */
    const source *held;
    int64_t held_item; /* the matrix of `held` that is in memory */
    float *matrix;
} writer;

static const tt_model_gguf *model_gguf(const tt_component *c)
{
    const tt_model_gguf *g = c->extension ? c->extension(TT_MODEL_GGUF) : NULL;
    return g && TT_HAS(g, tt_model_gguf, keys_json) ? g : NULL;
}

static bool gets_one(const tt_model_gguf *g, const char *name)
{
    const char *end = TT_HAS(g, tt_model_gguf, plus_one) ? g->plus_one : NULL;
    return end && *end && tt_ends_with(name, end);
}

/* ---- the tensors' names and shapes ---- */

static tt_status check_part(const writer *w, const tt_gguf_part *row, const tt_gguf_tensor *t,
                            tt_error *err)
{
    const source *src = t->user;
    bool ok = t->n_dims >= 2 && !src->tensor->parts.items[0].transpose;
    if (row->of_head)
        ok = ok && t->n_dims == 3 && src->begin >= 0 && t->shape[1] > 0 &&
             src->begin + t->shape[1] <= src->unit;
    if (row->step > 1)
        ok = ok && row->first >= 0 && row->first < row->step && t->shape[t->n_dims - 1] > 0;
    return ok ? TT_OK
              : TT_FAIL(err, TT_EINVAL,
                        "model %s: GGUF tensor '%s' is no part of '%s' by the model's table",
                        w->s->model.name, t->name, src->tensor->name);
}

/* Makes the whole tensor `t` the part of it that the row says. */
static tt_status take_part(const writer *w, const tt_gguf_part *row, tt_gguf_tensor *t,
                           tt_error *err)
{
    source *src = t->user;
    if (!row->of_head && row->step <= 1 && !row->transpose)
        return TT_OK;
    src->part = true;
    src->transpose = row->transpose != 0;
    src->step = TT_MAXV(row->step, 1);
    src->first = row->first;
    if (row->of_head) {
        int64_t size = 0;
        TT_TRY(tt_head_dim_of(w->s, src->tensor->parts.items[0].param->name, &src->unit, err));
        row->of_head(w->s->model.config, &src->begin, &size);
        t->shape[2] = t->shape[1];
        t->shape[0] /= src->unit;
        t->shape[1] = size;
        t->n_dims++;
    }
    t->shape[t->n_dims - 1] /= src->step;
    TT_TRY(check_part(w, row, t, err));
    if (src->transpose) {
        const int64_t rows = t->shape[t->n_dims - 2];
        t->shape[t->n_dims - 2] = t->shape[t->n_dims - 1];
        t->shape[t->n_dims - 1] = rows;
    }
    return TT_OK;
}

static tt_status add_tensor(writer *w, const tt_hf_tensor *t, const char *name,
                            const tt_gguf_part *row, tt_error *err)
{
    const tt_hf_part *first = &t->parts.items[0];
    source *src = tt_arena_alloc(w->out.arena, sizeof *src);
    src->tensor = t;
    src->plus = gets_one(w->model, t->name) ? 1.0f : 0.0f;
    if (row->name.pairs)
        TT_TRY(tt_head_dim_of(w->s, first->param->name, &src->head_dim, err));
    tt_gguf_tensor out = {.name = name, .n_dims = t->n_dims, .type = TT_GGUF_F32, .user = src};
    for (int d = 0; d < t->n_dims; d++)
        out.shape[d] = t->shape[first->transpose ? 1 - d : d];
    TT_TRY(take_part(w, row, &out, err));
    if (t->n_dims > 1 && !row->name.in_f32)
        out.type = w->type;
    const int64_t cols = out.shape[out.n_dims - 1];
    if (out.type == TT_GGUF_Q8_0 && cols % TT_Q8_0_BLOCK) {
        tt_log(TT_INFO, "checkpoint",
               "%s is written as f16: its rows of %lld elements are not a multiple of %d", name,
               (long long)cols, TT_Q8_0_BLOCK);
        out.type = TT_GGUF_F16;
    }
    return tt_gguf_add(&w->out, &out, err);
}

/* Is the tensor of a block that llama.cpp does not count? */
static bool is_left_out(const writer *w, const char *name)
{
    static const char head[] = "model.layers.";
    return w->blocks > 0 && !strncmp(name, head, strlen(head)) &&
           strtoll(name + strlen(head), NULL, 10) >= w->blocks;
}

/* Adds the tensors that are made of `t`. */
static tt_status add_tensors(writer *w, const tt_hf_tensor *t, tt_error *err)
{
    const tt_model_gguf *m = w->model;
    const bool has = TT_HAS(m, tt_model_gguf, part_size) && m->parts;
    const tt_name_table tables[] = {
        {.names = m->names,              .n = m->n_names, .stride = m->name_size},
        {.names = has ? m->parts : NULL,
         .n = has ? m->n_parts : 0,
         .stride = has ? m->part_size : 0                                       }
    };
    size_t n = 0;
    tt_gguf_part row = {0};
    if (is_left_out(w, t->name)) {
        for (size_t k = 0; k < t->parts.n; k++)
            tt_map_set(w->left_out, t->parts.items[k].param->name, w->left_out);
        return TT_OK;
    }
    for (size_t i = 0; i < TT_COUNT(tables); i++) {
        size_t at = 0;
        for (const char *name; (name = tt_name_next(w->out.arena, &tables[i], t->name, &at, &row,
                                                    i ? sizeof row : sizeof row.name));
             n++)
            TT_TRY(add_tensor(w, t, name, &row, err));
        row = (tt_gguf_part){0};
    }
    return n ? TT_OK
             : TT_FAIL(err, TT_EUNSUPPORTED, "model %s: GGUF has no name for tensor '%s'",
                       w->s->model.name, t->name);
}

/* Experts whose tensors are items of a parameter are one tensor, with the parameter's name. */
static void join_items(tt_hf_param *params, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (params[i].n_storage && params[i].storage[0].transpose == TT_STORAGE_ITEM)
            params[i].n_storage = 0;
}

/* ---- the tensors' data ---- */

/* Reads rows [begin, end) of a file tensor that is not transposed from the parameters that it is
 * made of; the tensor may be item `item` of those in dim 0, and row its columns. */
static tt_status read_rows(const writer *w, const tt_hf_tensor *t, int64_t item, int64_t begin,
                           int64_t end, int64_t row, float *out, tt_error *err)
{
    const int at = t->n_dims > 2; /* the dim of the rows */
    for (size_t k = 0; k < t->parts.n; k++) {
        const tt_hf_part *part = &t->parts.items[k];
        const tt_hf_param *p = part->param;
        const int64_t before = at ? 0 : part->file_begin, size = at ? t->shape[1] : part->size;
        const int64_t first = TT_MAXV(begin, before), last = TT_MIN(end, before + size);
        if (first >= last)
            continue;
        tt_ckpt_piece piece = {.name = p->name, .dtype = TT_F32, .n_dims = p->n_dims};
        for (int d = 0; d < p->n_dims; d++)
            piece.global[d] = piece.box.end[d] = p->dims[d];
        piece.box.begin[0] = item;
        piece.box.end[0] = item + 1;
        piece.box.begin[at] = first - before + (at ? 0 : part->begin);
        piece.box.end[at] = last - before + (at ? 0 : part->begin);
        piece.data = out + (first - begin) * row;
        TT_TRY(tt_ckpt_load(w->from, &piece, 1, err));
    }
    return TT_OK;
}

/* Reads the matrix that part `item` of dim 0 is made of, if it is not in memory. */
static tt_status hold_matrix(writer *w, const source *src, const tt_gguf_tensor *t, int64_t item,
                             tt_error *err)
{
    const int64_t there = t->shape[t->n_dims - 1], other = t->shape[t->n_dims - 2];
    const int64_t rows = src->transpose ? there : other,
                  cols = (src->transpose ? other : there) * src->step;
    if (w->held == src && w->held_item == item)
        return TT_OK;
    if (w->held != src) {
        free(w->matrix);
        w->matrix = malloc((size_t)(rows * cols) * sizeof *w->matrix);
    }
    w->held = NULL;
    if (!w->matrix)
        return TT_FAIL(err, TT_ENOMEM, "no memory for %lld x %lld elements of '%s'",
                       (long long)rows, (long long)cols, src->tensor->name);
    const int64_t begin = src->unit ? item * src->unit + src->begin : 0;
    TT_TRY(
        read_rows(w, src->tensor, src->unit ? 0 : item, begin, begin + rows, cols, w->matrix, err));
    w->held = src;
    w->held_item = item;
    return TT_OK;
}

static tt_status read_part(writer *w, const tt_gguf_tensor *t, int64_t begin, int64_t n, float *out,
                           tt_error *err)
{
    const source *src = t->user;
    const int64_t cols = t->shape[t->n_dims - 1], rows = t->shape[t->n_dims - 2];
    const int64_t down = src->transpose ? src->step : cols * src->step,
                  right = src->transpose ? rows * src->step : src->step;
    for (int64_t r = begin / cols; r < (begin + n) / cols; r++, out += cols) {
        TT_TRY(hold_matrix(w, src, t, r / rows, err));
        const float *from = w->matrix + src->first + r % rows * down;
        for (int64_t c = 0; c < cols; c++)
            out[c] = from[c * right];
    }
    return TT_OK;
}

static tt_status read_whole(writer *w, const tt_gguf_tensor *t, int64_t begin, int64_t n,
                            float *out, tt_error *err)
{
    const source *src = t->user;
    const int64_t row = t->n_dims > 1 ? t->shape[t->n_dims - 1] : 1;
    const int64_t rows = t->n_dims > 2 ? t->shape[t->n_dims - 2] : INT64_MAX;
    for (int64_t r = begin / row, end = (begin + n) / row; r < end;) {
        const int64_t item = r / rows, at = r % rows, some = TT_MIN(end - r, rows - at);
        TT_TRY(read_rows(w, src->tensor, item, at, at + some, row, out, err));
        r += some;
        out += some * row;
    }
    return TT_OK;
}

static tt_status gguf_read(writer *w, const tt_gguf_tensor *t, int64_t begin, int64_t n, float *out,
                           tt_error *err)
{
    const source *src = t->user;
    const int64_t row = t->n_dims > 1 ? t->shape[1] : 1;
    if (!src->tensor) {
        memcpy(out, src->values + begin, (size_t)n * sizeof *out);
        return TT_OK;
    }
    if (src->part)
        return read_part(w, t, begin, n, out, err);
    if (!src->head_dim)
        return read_whole(w, t, begin, n, out, err);
    for (int64_t r = begin / row; r < (begin + n) / row; r++, out += row) {
        const int64_t half = src->head_dim / 2, at = r % src->head_dim;
        const int64_t from = r - at + at % 2 * half + at / 2;
        TT_TRY(read_rows(w, src->tensor, 0, from, from + 1, row, out, err));
    }
    return TT_OK;
}

static tt_status gguf_fill(void *user, const tt_gguf_tensor *t, int64_t begin, int64_t n,
                           float *out, tt_error *err)
{
    const source *src = t->user;
    TT_TRY(gguf_read(user, t, begin, n, out, err));
    for (int64_t i = 0; src->plus != 0.0f && i < n; i++)
        out[i] += src->plus;
    return TT_OK;
}

/* ---- the keys ---- */

/* The blocks that llama.cpp counts, and how many tokens a text may have: as config.json of an export says it. */
static tt_status add_context(writer *w, const tt_json *keys, const char *run, tt_error *err)
{
    tt_gguf *g = &w->out;
    const tt_json *blocks = tt_json_get(keys, "block_count");
    int64_t n = 0;
    w->blocks = blocks && blocks->type == TT_JSON_INT ? blocks->integer : 0;
    if (tt_json_get(keys, "context_length"))
        return TT_OK;
    TT_TRY(tt_hf_written_positions(w->s, run, g->arena, &n, err));
    tt_gguf_u32(g, tt_arena_printf(g->arena, "%s.context_length", w->model->architecture),
                (uint32_t)TT_MIN(n, (int64_t)UINT32_MAX));
    return TT_OK;
}

static tt_status add_model_keys(writer *w, const char *run, tt_error *err)
{
    tt_gguf *g = &w->out;
    char *json = tt_arena_alloc(g->arena, MAX_KEYS_JSON);
    const tt_json *keys = NULL;
    TT_TRY(TT_PLUGIN_CALL(w->model->keys_json(w->s->model.config, json, MAX_KEYS_JSON, err), err,
                          "model", w->s->model.name));
    TT_TRY(tt_json_parse(g->arena, w->s->model.name, json, strlen(json), &keys, err));
    for (size_t i = 0; i < keys->n; i++) {
        const tt_json *v = keys->items[i];
        const char *key = tt_arena_printf(g->arena, "%s.%s", w->model->architecture, keys->keys[i]);
        if (v->type == TT_JSON_INT && v->integer >= 0 && v->integer <= (int64_t)UINT32_MAX)
            tt_gguf_u32(g, key, (uint32_t)v->integer);
        else if (v->type == TT_JSON_REAL)
            tt_gguf_f32(g, key, (float)v->real);
        else if (v->type == TT_JSON_STRING)
            tt_gguf_string(g, key, v->string);
        else if (v->type == TT_JSON_BOOL)
            tt_gguf_bool(g, key, v->boolean);
        else
            return TT_FAIL(err, TT_EINVAL, "model %s: the value of GGUF key %s is not valid",
                           w->s->model.name, key);
    }
    return add_context(w, keys, run, err);
}

static tt_status add_vector(writer *w, const char *name, const float *values, int64_t n,
                            tt_error *err)
{
    source *src = tt_arena_alloc(w->out.arena, sizeof *src);
    src->values = values;
    const tt_gguf_tensor t = {
        .name = name, .n_dims = 1, .shape = {n}, .type = TT_GGUF_F32, .user = src};
    return tt_gguf_add(&w->out, &t, err);
}

/* The tensors that are no parameters. */
static tt_status add_vectors(writer *w, tt_error *err)
{
    const tt_model_gguf *m = w->model;
    const void *config = w->s->model.config;
    float *values = tt_arena_array(w->out.arena, MAX_FACTORS, sizeof *values);
    int64_t n = TT_HAS(m, tt_model_gguf, rope_factors) && m->rope_factors
                    ? m->rope_factors(config, values, MAX_FACTORS)
                    : 0;
    if (n > 0)
        TT_TRY(add_vector(w, "rope_freqs.weight", values, n, err));
    for (size_t i = 0; TT_HAS(m, tt_model_gguf, vector) && m->vector; i++) {
        const char *name = NULL;
        values = tt_arena_array(w->out.arena, MAX_FACTORS, sizeof *values);
        n = m->vector(config, i, &name, values, MAX_FACTORS);
        if (n <= 0 || !name)
            break;
        TT_TRY(add_vector(w, name, values, n, err));
    }
    return TT_OK;
}

/* llama.cpp numbers file types differently from tensor types. */
static uint32_t file_type(tt_gguf_type type)
{
    return type == TT_GGUF_F16 ? 1 : type == TT_GGUF_Q8_0 ? 7 : type == TT_GGUF_BF16 ? 32 : 0;
}

/* The template of the run, that for tools by its name, and the token that ends a turn, if it is not the one that ends a
 * text. */
static tt_status add_chat(writer *w, const tt_hf_export *o, tt_error *err)
{
    static const char *const named[] = {"tool_use"};
    tt_gguf *g = &w->out;
    tt_export_chat c;
    TT_TRY(tt_export_chat_of(w->s, o, g->arena, &c, err));
    if (c.plain.text)
        tt_gguf_string(g, "tokenizer.chat_template", c.plain.text);
    if (c.tools.text) {
        tt_gguf_strings(g, "tokenizer.chat_templates", named, TT_COUNT(named));
        tt_gguf_string(g, "tokenizer.chat_template.tool_use", c.tools.text);
    }
    if (c.n_ends && c.ends[0] != o->tokenizer->eos)
        tt_gguf_u32(g, "tokenizer.ggml.eot_token_id", (uint32_t)c.ends[0]);
    return TT_OK;
}

static tt_status gguf_collect(writer *w, const tt_hf_export *o, tt_map **tensors, tt_error *err)
{
    tt_gguf *g = &w->out;
    const tt_model_vt *vt = w->s->model.component->vtable;
    size_t n = 0;
    tt_hf_param *params = tt_setup_hf_params(w->s, g->arena, &n);
    join_items(params, n);
    TT_TRY(tt_hf_layout(g->arena, params, n, tensors, err));
    tt_gguf_string(g, "general.architecture", w->model->architecture);
    tt_gguf_string(g, "general.type", "model");
    TT_TRY(add_model_keys(w, o->run, err));
    tt_gguf_u32(g, "general.file_type", file_type(w->type));
    if (w->type == TT_GGUF_Q8_0)
        tt_gguf_u32(g, "general.quantization_version", 2);
    const tt_gguf_tokenizer t = {.path = tt_export_tokenizer(w->s, o, g->arena),
                                 .vt = o->tokenizer ? w->s->tokenizer.component->vtable : NULL,
                                 .self = o->tokenizer_self,
                                 .info = o->tokenizer};
    const char *name = NULL, *own = w->s->model.name;
    TT_TRY(tt_gguf_vocab(g, &t, vt->vocab_size(w->s->model.config), &name, err));
    tt_gguf_string(g, "general.name", name ? name : strstr(own, "phi3") ? "phi" : own);
    TT_TRY(add_chat(w, o, err));
    TT_TRY(add_vectors(w, err));
    for (size_t i = 0; i < tt_map_size(*tensors); i++)
        TT_TRY(add_tensors(w, tt_map_value(*tensors, i), err));
    if (tt_map_size(w->left_out))
        tt_log(
            TT_INFO, "checkpoint",
            "the blocks of multi-token prediction are left out, as llama.cpp has %s without them",
            w->model->architecture);
    return TT_OK;
}

static tt_status write_file(writer *w, const tt_hf_export *o, tt_tensor_counts *counts,
                            tt_error *err)
{
    TT_TRY(tt_gguf_write(&w->out, o->folder, gguf_fill, w, err));
    if (counts)
        counts->made = w->out.tensors.n;
    const tt_status st = tt_export_check(w->s, w->from, o->step_folder, w->left_out, counts, err);
    if (st != TT_OK)
        (void)unlink(o->folder);
    return st;
}

tt_status tt_setup_write_gguf(const tt_setup *s, const tt_hf_export *o, tt_gguf_type type,
                              tt_tensor_counts *counts, tt_error *err)
{
    writer w = {.s = s, .model = model_gguf(s->model.component), .type = type};
    tt_map *tensors = NULL;
    if (!w.model)
        return TT_FAIL(err, TT_EUNSUPPORTED, "model %s does not define its GGUF form",
                       s->model.name);
    w.out.arena = tt_arena_new();
    w.left_out = tt_map_new(w.out.arena);
    tt_status st = gguf_collect(&w, o, &tensors, err);
    if (st == TT_OK)
        st = tt_ckpt_open_weights(o->step_folder, &w.from, err);
    if (st == TT_OK)
        st = write_file(&w, o, counts, err);
    tt_ckpt_close(w.from);
    free(w.matrix);
    tt_gguf_free(&w.out);
    tt_arena_free(w.out.arena);
    return st;
}
