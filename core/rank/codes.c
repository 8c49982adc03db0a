/* SPDX-License-Identifier: Apache-2.0 */
#include "rank/codes.h"
#include "base/pool.h"
#include "graph/state.h"
#include <stdlib.h>
#include <string.h>

/* Parameters that are stored as codes get their values as floats, some rows at a time: initial values,
 * weights of Hugging Face, checkpoints of other runs. A row is rounded whole, because int8 has one scale
 * for it, and this rank keeps its part. */

typedef struct rounding {
    const tt_coding *c;
    const tt_ckpt_piece *rows; /* f32 [n, in] */
    uint8_t *codes;            /* of these rows */
    float *absmax;
} rounding;

static size_t find_codings(const tt_rank *r, tt_arena *a, tt_coding **out)
{
    tt_exec_tensor *t;
    const size_t k = tt_exec_tensors(r->exec, a, &t);
    tt_map *absmax = tt_map_new(a);
    *out = tt_arena_array(a, k + 1, sizeof **out);
    size_t n = 0;
    for (size_t i = 0; i < k; i++)
        if (!t[i].suffix && t[i].param && t[i].param->absmax_of)
            tt_map_set(absmax, t[i].param->absmax_of->name, &t[i].tensor);
    for (size_t i = 0; i < k; i++) {
        const tt_param_info *w = t[i].param;
        const tt_tensor *scales =
            w && !t[i].suffix && w->codes ? tt_map_get(absmax, w->name) : NULL;
        if (scales)
            (*out)[n++] = (tt_coding){r, w, t[i].tensor, *scales, NULL, NULL};
    }
    return n;
}

static tt_status open_coding(tt_coding *c, tt_error *err)
{
    void *absmax = NULL;
    const bool may_stay = !c->r->s->core.checkpoint.initial_load_strict;
    TT_TRY(tt_exec_map(c->r->exec, &c->codes, may_stay, &c->to, err));
    const tt_status s = tt_exec_map(c->r->exec, &c->absmax, may_stay, &absmax, err);
    c->scales = absmax;
    return s;
}

/* `good`: the values are written to the device. */
static tt_status close_coding(const tt_coding *c, bool good, tt_error *err)
{
    tt_error ignored = {0};
    tt_status s = TT_OK;
    if (c->to)
        s = tt_exec_unmap(c->r->exec, &c->codes, c->to, good, err);
    if (c->scales) {
        const bool ok = s == TT_OK;
        const tt_status u =
            tt_exec_unmap(c->r->exec, &c->absmax, c->scales, good && ok, ok ? err : &ignored);
        s = ok ? u : s;
    }
    return s;
}

static void round_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rounding *w = arg;
    const tt_param_info *p = w->c->w;
    const int64_t cols = p->whole.dims[1].size, bytes = tt_codes_bytes(p->codes, cols),
                  blocks = tt_codes_blocks(p->codes, cols);
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        tt_codes_encode(p->codes, (const float *)w->rows->data + i * cols, cols,
                        w->codes + i * bytes, w->absmax + i * blocks);
}

/* This rank's columns of a row. */
static void put_row(const rounding *w, int64_t i)
{
    const tt_coding *c = w->c;
    const int64_t cols = c->w->whole.dims[1].size, bytes = tt_codes_bytes(c->w->codes, cols),
                  blocks = tt_codes_blocks(c->w->codes, cols),
                  unit = c->w->codes == TT_CODES_NF4 ? TT_NF4_BYTES : 1,
                  row = w->rows->box.begin[0] + i - c->codes.begin[0];
    const int64_t n = c->codes.shape[1], k = c->absmax.shape[1];
    memcpy((uint8_t *)c->to + row * n * unit, w->codes + i * bytes + c->codes.begin[1] * unit,
           (size_t)(n * unit));
    memcpy(c->scales + row * k, w->absmax + i * blocks + c->absmax.begin[1],
           (size_t)k * sizeof(float));
}

static tt_status take_rows(void *user, const tt_ckpt_piece *rows, tt_error *err)
{
    const tt_coding *c = user;
    const int64_t n = rows->box.end[0] - rows->box.begin[0], cols = c->w->whole.dims[1].size;
    rounding w = {.c = c, .rows = rows};
    w.codes = malloc((size_t)(n * tt_codes_bytes(c->w->codes, cols)) + 1);
    w.absmax = malloc((size_t)(n * tt_codes_blocks(c->w->codes, cols)) * sizeof(float) + 1);
    const bool ok = w.codes && w.absmax;
    if (ok)
        tt_parallel_for(c->r->pool, n, TT_MAXV(16384 / cols, (int64_t)1), round_rows, &w);
    for (int64_t i = 0; ok && i < n; i++)
        put_row(&w, i);
    free(w.codes);
    free(w.absmax);
    return ok ? TT_OK : TT_FAIL(err, TT_ENOMEM, "no memory for the codes of '%s'", c->w->name);
}

/* The weight's rows that this rank has parts of, as floats. */
static tt_ckpt_piece rows_of(tt_coding *c)
{
    tt_ckpt_piece p = {.name = c->w->name, .dtype = TT_F32, .n_dims = 2};
    for (int d = 0; d < 2; d++)
        p.global[d] = p.box.end[d] = c->w->whole.dims[d].size;
    const bool any = c->codes.shape[1] > 0 || c->absmax.shape[1] > 0;
    p.box.begin[0] = c->codes.begin[0];
    p.box.end[0] = c->codes.begin[0] + (any ? c->codes.shape[0] : 0);
    p.take = take_rows;
    p.taker = c;
    return p;
}

/* ---- initial values ---- */

static tt_status initial_rows(void *user, const tt_ckpt_piece *rows, tt_error *err)
{
    const tt_coding *c = user;
    (void)err;
    tt_rank_initial_rows(c->r, c->w, rows);
    return TT_OK;
}

tt_status tt_rank_init_codes(const tt_rank *r, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_coding *c;
    const size_t n = find_codings(r, a, &c);
    tt_status s = TT_OK;
    for (size_t i = 0; s == TT_OK && i < n; i++) {
        tt_error why = {0};
        const tt_ckpt_piece p = rows_of(&c[i]);
        s = open_coding(&c[i], err);
        if (s == TT_OK)
            s = tt_ckpt_by_rows(&p, initial_rows, &c[i], err);
        if (close_coding(&c[i], s == TT_OK, &why) != TT_OK && s == TT_OK) {
            *err = why;
            s = why.code;
        }
    }
    tt_arena_free(a);
    return s;
}

/* ---- loading ---- */

const char *tt_codes_tensor(tt_arena *a, const tt_param_info *w)
{
    return tt_arena_printf(a, "%s.%s", w->name, tt_codes_name(w->codes));
}

tt_status tt_rank_take_floats(const tt_rank *r, tt_arena *a, const tt_ckpt_reader *reader,
                              bool may_lack, tt_ckpt_piece **pieces, size_t *n, tt_codings *out,
                              tt_error *err)
{
    tt_coding *all;
    const size_t k = find_codings(r, a, &all);
    size_t kept = 0;
    tt_map *floats = tt_map_new(a); /* names of pieces that are not loaded as they are */
    out->items = all;
    for (size_t i = 0; i < k; i++) {
        const char *codes = tt_codes_tensor(a, all[i].w);
        if (reader && tt_ckpt_has(reader, codes) && tt_ckpt_has(reader, all[i].w->absmax->name))
            continue;
        tt_map_set(floats, codes, all);
        tt_map_set(floats, all[i].w->absmax->name, all);
        if (!may_lack || tt_ckpt_has(reader, all[i].w->name))
            all[out->n++] = all[i];
    }
    tt_ckpt_piece *p = tt_arena_array(a, *n + out->n + 1, sizeof *p);
    for (size_t i = 0; i < *n; i++)
        if (!tt_map_get(floats, (*pieces)[i].name))
            p[kept++] = (*pieces)[i];
    for (size_t i = 0; i < out->n; i++) {
        TT_TRY(open_coding(&all[i], err));
        p[kept++] = rows_of(&all[i]);
    }
    *pieces = p;
    *n = kept;
    return TT_OK;
}

tt_status tt_rank_taken(const tt_codings *c, tt_status loaded, tt_error *err)
{
    for (size_t i = 0; i < c->n; i++) {
        tt_error why = {0};
        const tt_status s = close_coding(&c->items[i], loaded == TT_OK, &why);
        if (s != TT_OK && loaded == TT_OK) {
            *err = why;
            loaded = s;
        }
    }
    return loaded;
}
