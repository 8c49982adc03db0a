/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/state.h"
#include "rank/codes.h"
#include "rank/magnitudes.h"
#include <ttrun/narrow.h>

/* Initial values of parameters and buffers: a function of (training.seed, name, global index), so
 * they are the same on every mesh. */

typedef struct init_job {
    const tt_attrs_initial *a;
    const tt_tensor *t;
    int64_t stride[TT_MAX_DIMS];
} init_job;

#define GRAIN 16384 /* elements that a thread takes at a time */
#define INIT_BATCH 512

/* Replaces uniform numbers by initial values. */
static void draw_values(const tt_attrs_initial *a, int64_t n, double *u)
{
    const bool uniform = a->kind == TT_INIT_UNIFORM, cut = a->kind == TT_INIT_TRUNC_NORMAL;
    for (int64_t i = 0; (uniform || cut) && i < n; i++)
        u[i] = a->from + a->width * u[i];
    if (uniform)
        return;
    tt_normal_quantiles(n, u, u);
    for (int64_t i = 0; i < n; i++) {
        u[i] = a->a * u[i];
        if (cut)
            u[i] = u[i] < a->lo ? a->lo : u[i] > a->hi ? a->hi : u[i];
    }
}

static void put_value(const init_job *j, int64_t i, double value)
{
    if (j->t->dtype == TT_BF16)
        ((uint16_t *)j->t->data)[i] = tt_to_bf16((float)value);
    else
        ((float *)j->t->data)[i] = (float)value;
}

static void init_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const init_job *j = arg;
    const tt_tensor *t = j->t;
    double u[INIT_BATCH];
    (void)thread;
    for (int64_t i = begin; j->a->kind == TT_INIT_CONSTANT && i < end; i++)
        put_value(j, i, j->a->a);
    if (j->a->kind == TT_INIT_CONSTANT)
        return;
    for (int64_t i = begin, n; i < end; i += n) { /* indices along the last dim are consecutive */
        uint64_t index = 0;
        int64_t rest = i, row = t->n_dims ? t->shape[t->n_dims - 1] : 1;
        for (int d = t->n_dims - 1; d >= 0; d--) {
            index += (uint64_t)((rest % t->shape[d] + t->begin[d]) * j->stride[d]);
            rest /= t->shape[d];
        }
        n = TT_MIN(TT_MIN(row - i % row, end - i), INIT_BATCH);
        tt_rng_uniforms((tt_rng_key){j->a->key}, index, n, u);
        draw_values(j->a, n, u);
        for (int64_t k = 0; k < n; k++)
            put_value(j, i + k, u[k]);
    }
}

void tt_initial_values(tt_pool *pool, const tt_attrs_initial *a, const tt_tensor *t)
{
    init_job j = {.a = a, .t = t};
    int64_t stride = 1;
    for (int d = t->n_dims - 1; d >= 0; d--) {
        j.stride[d] = stride;
        stride *= t->global[d];
    }
    tt_parallel_for(pool, tt_tensor_numel(t), GRAIN, init_range, &j);
}

tt_attrs_initial tt_initial_attrs(uint64_t seed, const char *name, const tt_init *init)
{
    tt_attrs_initial a = {.kind = (int32_t)init->kind,
                          .key = tt_rng_key_make(seed, name, 0).k,
                          .a = init->a,
                          .lo = init->lo,
                          .hi = init->hi};
    double to = init->hi;
    a.from = init->lo;
    if (init->kind == TT_INIT_TRUNC_NORMAL) {
        a.from = tt_normal_cdf(init->lo / init->a);
        to = tt_normal_cdf(init->hi / init->a);
    }
    a.width = to - a.from;
    return a;
}

void tt_rank_initial_rows(const tt_rank *r, const tt_param_info *w, const tt_ckpt_piece *rows)
{
    const tt_attrs_initial a =
        tt_initial_attrs((uint64_t)r->s->core.training.seed, w->name, &w->init);
    tt_tensor t = {.data = rows->data, .dtype = TT_F32, .n_dims = 2};
    for (int d = 0; d < 2; d++) {
        t.global[d] = rows->global[d];
        t.begin[d] = rows->box.begin[d];
        t.shape[d] = rows->box.end[d] - rows->box.begin[d];
    }
    tt_initial_values(r->pool, &a, &t);
}

/* This rank's box of an array that holds the whole tensor. */
static void copy_values(const tt_tensor *t, const float *values)
{
    const tt_box own = tt_box_of_tensor(t);
    tt_box whole = {{0}, {0}};
    for (int d = 0; d < t->n_dims; d++)
        whole.end[d] = t->global[d];
    tt_box_copy(&own, values, &whole, t->data, &own, t->n_dims, sizeof *values);
}

/* On the device if it can, else on the host. */
tt_status tt_rank_init_param(const tt_rank *r, int i, const tt_tensor *t, tt_error *err)
{
    const tt_program_param *p = &r->plan->program->params[i];
    if (p->info && (p->info->codes || p->info->absmax_of))
        return TT_OK; /* tt_rank_init_codes does them */
    const tt_attrs_initial a =
        tt_initial_attrs((uint64_t)r->s->core.training.seed, p->name, p->init);
    tt_tensor host = *t;
    bool done = false;
    if (!p->values)
        TT_TRY(tt_exec_initial(r->exec, i, &a, &done, err));
    if (done)
        return TT_OK;
    TT_TRY(tt_exec_map(r->exec, t, false, &host.data, err));
    if (p->values)
        copy_values(&host, p->values);
    else
        tt_initial_values(r->pool, &a, &host);
    return tt_exec_unmap(r->exec, t, host.data, true, err);
}

static tt_status init_values(const tt_rank *r, bool buffers, tt_error *err)
{
    const tt_program *p = r->plan->program;
    for (int i = 0; i < p->n_params; i++) {
        tt_tensor t;
        if (p->params[i].init && p->params[i].buffer == buffers && tt_exec_param(r->exec, i, &t))
            TT_TRY(tt_rank_init_param(r, i, &t, err));
    }
    return TT_OK;
}

tt_status tt_rank_init_params(tt_rank *r, tt_error *err)
{
    TT_TRY(init_values(r, false, err));
    TT_TRY(tt_rank_init_codes(r, err));
    TT_TRY(tt_rank_init_magnitudes(r, err));
    return tt_rank_start_copies(r, NULL, err);
}

tt_status tt_rank_init_buffers(tt_rank *r, tt_error *err)
{
    return init_values(r, true, err);
}
