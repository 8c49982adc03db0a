/* SPDX-License-Identifier: Apache-2.0 */
#include "rank/magnitudes.h"
#include "base/pool.h"
#include "graph/state.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <ttrun/narrow.h>

/* Each rank reads the whole rows whose norms it keeps, whatever part of the weight it has itself. Norms are
 * summed in double, along the row. */

typedef struct measuring {
    const tt_magnitude *m;
    const tt_ckpt_piece *rows; /* f32 [n, in] */
    atomic_int failed;
} measuring;

/* The row as the layer will read it: of a weight that is stored as codes, what these stand for. */
static bool decode_row(const tt_param_info *w, float *row, int64_t cols)
{
    uint8_t *codes = malloc((size_t)tt_codes_bytes(w->codes, cols) + 1);
    float *absmax = malloc((size_t)tt_codes_blocks(w->codes, cols) * sizeof *absmax + 1);
    const bool ok = codes && absmax;
    if (ok) {
        tt_codes_encode(w->codes, row, cols, codes, absmax);
        for (int64_t j = 0; j < cols; j++)
            row[j] = tt_codes_value(w->codes, codes, absmax, j);
    }
    free(codes);
    free(absmax);
    return ok;
}

static void measure_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    measuring *c = arg;
    const tt_tensor *m = &c->m->m;
    const int64_t cols = c->m->w->whole.dims[1].size;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *row = (float *)c->rows->data + i * cols;
        const int64_t at = c->rows->box.begin[0] + i - m->begin[0];
        double sum = 0;
        if (c->m->w->codes && !decode_row(c->m->w, row, cols))
            atomic_store(&c->failed, 1);
        for (int64_t j = 0; j < cols; j++)
            sum += (double)row[j] * (double)row[j];
        if (m->dtype == TT_BF16)
            ((uint16_t *)c->m->to)[at] = tt_to_bf16((float)sqrt(sum));
        else
            ((float *)c->m->to)[at] = (float)sqrt(sum);
    }
}

static tt_status take_rows(void *user, const tt_ckpt_piece *rows, tt_error *err)
{
    const tt_magnitude *m = user;
    const int64_t n = rows->box.end[0] - rows->box.begin[0], cols = m->w->whole.dims[1].size;
    measuring c = {.m = m, .rows = rows};
    tt_parallel_for(m->r->pool, n, TT_MAXV(16384 / TT_MAXV(cols, (int64_t)1), (int64_t)1),
                    measure_rows, &c);
    if (atomic_load(&c.failed))
        return TT_FAIL(err, TT_ENOMEM, "no memory for the codes of '%s'", m->w->name);
    return TT_OK;
}

static size_t find_magnitudes(const tt_rank *r, tt_arena *a, tt_magnitude **out)
{
    tt_exec_tensor *t;
    const size_t k = tt_exec_tensors(r->exec, a, &t);
    size_t n = 0;
    *out = tt_arena_array(a, k + 1, sizeof **out);
    for (size_t i = 0; i < k; i++) {
        const tt_param_info *w = t[i].param && !t[i].suffix ? t[i].param->adapter_of : NULL;
        if (w && w->magnitude == t[i].param)
            (*out)[n++] = (tt_magnitude){r, w, t[i].tensor, NULL};
    }
    return n;
}

/* The rows of the weight whose norms this rank keeps. */
static tt_ckpt_piece magnitude_rows(tt_magnitude *m)
{
    tt_ckpt_piece p = {.name = m->w->name, .dtype = TT_F32, .n_dims = 2};
    for (int d = 0; d < 2; d++)
        p.global[d] = p.box.end[d] = m->w->whole.dims[d].size;
    p.box.begin[0] = m->m.begin[0];
    p.box.end[0] = m->m.begin[0] + m->m.shape[0];
    p.take = take_rows;
    p.taker = m;
    return p;
}

static tt_status open_magnitude(tt_magnitude *m, tt_error *err)
{
    return tt_exec_map(m->r->exec, &m->m, !m->r->s->core.checkpoint.initial_load_strict, &m->to,
                       err);
}

static tt_status initial_rows(void *user, const tt_ckpt_piece *rows, tt_error *err)
{
    const tt_magnitude *m = user;
    (void)err;
    tt_rank_initial_rows(m->r, m->w, rows);
    return TT_OK;
}

tt_status tt_rank_init_magnitudes(const tt_rank *r, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_magnitude *m;
    tt_magnitudes one = {.n = 1};
    const size_t n = find_magnitudes(r, a, &m);
    tt_status s = TT_OK;
    for (size_t i = 0; s == TT_OK && i < n; i++) {
        const tt_ckpt_piece p = magnitude_rows(&m[i]);
        one.items = &m[i];
        s = open_magnitude(&m[i], err);
        if (s == TT_OK)
            s = tt_ckpt_by_rows(&p, initial_rows, &m[i], err);
        s = tt_rank_measured(&one, s, err);
    }
    tt_arena_free(a);
    return s;
}

/* ---- magnitudes that are added while the job runs ---- */

/* Where the sums of a weight's rows begin, plus 1, by its name; 0: it gets no magnitude. The same on all ranks. */
static tt_map *sums_of(const tt_graph *now, const tt_graph *before, tt_arena *a, int64_t *n)
{
    tt_map *had = tt_map_new(a), *at = tt_map_new(a);
    for (size_t i = 0; i < before->params.n; i++)
        tt_map_set(had, before->params.items[i]->name, had);
    *n = 0;
    for (size_t i = 0; i < now->params.n; i++) {
        const tt_param_info *w = now->params.items[i];
        if (!w->magnitude || tt_map_get(had, w->magnitude->name))
            continue;
        tt_map_set(at, w->name, (void *)(intptr_t)(*n + 1));
        *n += w->whole.dims[0].size;
    }
    return at;
}

static tt_status add_squares(const tt_rank *r, const tt_tensor *t, double *sums, tt_error *err)
{
    void *host;
    TT_TRY(tt_exec_map(r->exec, t, true, &host, err));
    for (int64_t i = 0; i < t->shape[0]; i++)
        for (int64_t j = 0; j < t->shape[1]; j++) {
            const int64_t at = i * t->shape[1] + j;
            const double v = t->dtype == TT_BF16 ? (double)tt_from_bf16(((uint16_t *)host)[at])
                                                 : (double)((float *)host)[at];
            sums[t->begin[0] + i] += v * v;
        }
    return tt_exec_unmap(r->exec, t, host, false, err);
}

static tt_status take_sums(const tt_rank *r, const tt_tensor *m, const double *sums, tt_error *err)
{
    void *host;
    TT_TRY(tt_exec_map(r->exec, m, false, &host, err));
    for (int64_t i = 0; i < m->shape[0]; i++) {
        const float v = (float)sqrt(sums[m->begin[0] + i]);
        if (m->dtype == TT_BF16)
            ((uint16_t *)host)[i] = tt_to_bf16(v);
        else
            ((float *)host)[i] = v;
    }
    return tt_exec_unmap(r->exec, m, host, true, err);
}

tt_status tt_rank_add_magnitudes(const tt_rank *next, const tt_rank *old, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_exec_tensor *t;
    int64_t n = 0;
    tt_status s = TT_OK;
    const tt_map *at = sums_of(next->s->graph, old->s->graph, a, &n);
    const size_t k = n ? tt_exec_tensors(next->exec, a, &t) : 0;
    double *sums = tt_arena_array(a, (size_t)n + 1, sizeof *sums);
    tt_dist d = old->dist;
    for (size_t i = 0; s == TT_OK && i < k; i++) {
        const int64_t begin = (intptr_t)tt_map_get(at, t[i].name) - 1;
        if (begin >= 0 && t[i].param && !t[i].suffix && t[i].owner)
            s = add_squares(next, &t[i].tensor, sums + begin, err);
    }
    if (n)
        s = tt_agree_or_go_on(&d, s, err);
    if (n && s == TT_OK)
        s = tt_dist_reduce(&d, sums, n, TT_F64, TT_SUM, err);
    for (size_t i = 0; s == TT_OK && i < k; i++) {
        const tt_param_info *w = t[i].param && !t[i].suffix ? t[i].param->adapter_of : NULL;
        const int64_t begin = w ? (intptr_t)tt_map_get(at, w->name) - 1 : -1;
        if (begin >= 0 && w->magnitude == t[i].param)
            s = take_sums(next, &t[i].tensor, sums + begin, err);
    }
    tt_arena_free(a);
    return s;
}

tt_status tt_rank_measure(const tt_rank *r, tt_arena *a, const tt_ckpt_reader *reader,
                          tt_ckpt_piece **pieces, size_t *n, tt_magnitudes *out, tt_error *err)
{
    tt_magnitude *all;
    const size_t k = find_magnitudes(r, a, &all);
    tt_map *measured = tt_map_new(a); /* names of pieces that are not loaded as they are */
    size_t kept = 0;
    out->items = all;
    for (size_t i = 0; i < k; i++) {
        if (reader && tt_ckpt_has(reader, all[i].w->magnitude->name))
            continue;
        tt_map_set(measured, all[i].w->magnitude->name, all);
        all[out->n++] = all[i];
    }
    tt_ckpt_piece *p = tt_arena_array(a, *n + out->n + 1, sizeof *p);
    for (size_t i = 0; i < *n; i++)
        if (!tt_map_get(measured, (*pieces)[i].name))
            p[kept++] = (*pieces)[i];
    for (size_t i = 0; i < out->n; i++) {
        TT_TRY(open_magnitude(&all[i], err));
        p[kept++] = magnitude_rows(&all[i]);
    }
    *pieces = p;
    *n = kept;
    return TT_OK;
}

tt_status tt_rank_measured(const tt_magnitudes *c, tt_status loaded, tt_error *err)
{
    for (size_t i = 0; i < c->n; i++) {
        tt_error why = {0};
        const tt_magnitude *m = &c->items[i];
        const tt_status s =
            m->to ? tt_exec_unmap(m->r->exec, &m->m, m->to, loaded == TT_OK, &why) : TT_OK;
        if (s != TT_OK && loaded == TT_OK) {
            *err = why;
            loaded = s;
        }
    }
    return loaded;
}
