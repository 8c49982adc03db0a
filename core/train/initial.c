/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bf16.h"
#include "train/train.h"

/* Initial values of parameters and buffers: a function of (training.seed, name, global index), so
 * they are the same on every mesh. */

typedef struct init_job {
    const tt_init *init;
    tt_rng_key key;
    tt_tensor t;
    int64_t stride[TT_MAX_DIMS];
    double cdf_lo, cdf_hi;
} init_job;

#define GRAIN 16384 /* elements that a thread takes at a time */
#define INIT_BATCH 512

/* Replaces uniform numbers by initial values. */
static void draw_values(const init_job *j, int64_t n, double *u)
{
    const tt_init *in = j->init;
    const bool uniform = in->kind == TT_INIT_UNIFORM, cut = in->kind == TT_INIT_TRUNC_NORMAL;
    const double lo = uniform ? in->lo : j->cdf_lo, width = (uniform ? in->hi : j->cdf_hi) - lo;
    for (int64_t i = 0; (uniform || cut) && i < n; i++)
        u[i] = lo + width * u[i];
    if (uniform)
        return;
    tt_normal_quantiles(n, u, u);
    for (int64_t i = 0; i < n; i++) {
        u[i] = in->a * u[i];
        if (cut)
            u[i] = u[i] < in->lo ? in->lo : u[i] > in->hi ? in->hi : u[i];
    }
}

static void put_value(const init_job *j, int64_t i, double value)
{
    if (j->t.dtype == TT_BF16)
        ((uint16_t *)j->t.data)[i] = tt_to_bf16((float)value);
    else
        ((float *)j->t.data)[i] = (float)value;
}

static void init_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const init_job *j = arg;
    double u[INIT_BATCH];
    (void)thread;
    for (int64_t i = begin; j->init->kind == TT_INIT_CONSTANT && i < end; i++)
        put_value(j, i, j->init->a);
    if (j->init->kind == TT_INIT_CONSTANT)
        return;
    for (int64_t i = begin, n; i < end; i += n) { /* indices along the last dim are consecutive */
        uint64_t index = 0;
        int64_t rest = i, row = j->t.n_dims ? j->t.shape[j->t.n_dims - 1] : 1;
        for (int d = j->t.n_dims - 1; d >= 0; d--) {
            index += (uint64_t)((rest % j->t.shape[d] + j->t.begin[d]) * j->stride[d]);
            rest /= j->t.shape[d];
        }
        n = TT_MIN(TT_MIN(row - i % row, end - i), INIT_BATCH);
        tt_rng_uniforms(j->key, index, n, u);
        draw_values(j, n, u);
        for (int64_t k = 0; k < n; k++)
            put_value(j, i + k, u[k]);
    }
}

static void init_tensor(const tt_rank *r, const tt_program_param *p, const tt_tensor *t)
{
    const uint64_t seed = (uint64_t)r->s->core.training.seed;
    init_job j = {.init = p->init, .key = tt_rng_key_make(seed, p->name, 0), .t = *t};
    int64_t stride = 1;
    for (int d = t->n_dims - 1; d >= 0; d--) {
        j.stride[d] = stride;
        stride *= t->global[d];
    }
    if (p->init->kind == TT_INIT_TRUNC_NORMAL) {
        j.cdf_lo = tt_normal_cdf(p->init->lo / p->init->a);
        j.cdf_hi = tt_normal_cdf(p->init->hi / p->init->a);
    }
    tt_parallel_for(r->pool, tt_tensor_numel(t), GRAIN, init_range, &j);
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

static tt_status init_values(const tt_rank *r, bool buffers, tt_error *err)
{
    const tt_program *p = r->plan->program;
    for (int i = 0; i < p->n_params; i++) {
        tt_tensor t, host;
        if (!p->params[i].init || p->params[i].buffer != buffers || !tt_exec_param(r->exec, i, &t))
            continue;
        host = t;
        TT_TRY(tt_exec_map(r->exec, &t, false, &host.data, err));
        if (p->params[i].values)
            copy_values(&host, p->params[i].values);
        else
            init_tensor(r, &p->params[i], &host);
        TT_TRY(tt_exec_unmap(r->exec, &t, host.data, true, err));
    }
    return TT_OK;
}

tt_status tt_rank_init_params(tt_rank *r, tt_error *err)
{
    return init_values(r, false, err);
}

tt_status tt_rank_init_buffers(tt_rank *r, tt_error *err)
{
    return init_values(r, true, err);
}
