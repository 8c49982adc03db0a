/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/bf16.h"
#include "exec/exec_impl.h"
#include <math.h>
#include <string.h>
#include <sys/mman.h>

/* Life of a program, initial values, and where its tensors lie. */

/* One mapping a space, huge pages where the kernel has them; a canary page behind it when
 * debugging. */
static tt_status map_space(tt_exec *x, tt_space space, int64_t bytes, tt_error *err)
{
    const size_t n = (size_t)bytes + TT_CANARY_BYTES;
    void *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return TT_FAIL(err, TT_ENOMEM, "cannot map %.2f GiB for the plan",
                       (double)bytes / (1 << 30));
#ifdef MADV_HUGEPAGE
    if (n >= (size_t)4 << 20)
        (void)madvise(p, n, MADV_HUGEPAGE);
#endif
    x->space[space] = p;
    x->mapped[space] = n;
    if (x->o.poison)
        tt_exec_poison(p, n);
    if (x->o.poison && space == TT_SPACE_STATE)
        memset(p, 0, (size_t)bytes);
    return TT_OK;
}

#define TOUCH_PIECE ((int64_t)2 << 20) /* a huge page */
#define TOUCH_STEP 4096                /* a page where there are no huge ones */

static void touch(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i += TOUCH_STEP)
        ((volatile char *)arg)[i] = 0;
}

/* An optimizer reads its states before it writes them: each page would be mapped once for reading
 * and, with every core stopped for it, again for writing. They are zeros before and after. */
static void touch_moments(tt_exec *x)
{
    for (int i = 0; i < x->p->n_states; i++) {
        const tt_program_state *s = &x->p->states[i];
        if (s->moments && s->offset >= 0)
            tt_parallel_for(x->o.pool,
                            tt_tensor_numel(&s->tensor) * (int64_t)tt_dtype_size(s->tensor.dtype),
                            TOUCH_PIECE, touch, x->space[TT_SPACE_STATE] + s->offset);
    }
}

/* A state by its number; NULL: on other ranks, or none. */
static void *data_at(const tt_exec *x, int state)
{
    return state >= 0 && x->p->states[state].offset >= 0
               ? x->space[TT_SPACE_STATE] + x->p->states[state].offset
               : NULL;
}

static void init_buffers(tt_exec *x);

tt_status tt_exec_new(const tt_exec_opts *o, tt_exec **out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_exec *x = tt_arena_alloc(a, sizeof *x);
    x->o = *o;
    x->p = o->program;
    x->arena = a;
    tt_status s = TT_OK;
    for (int sp = TT_SPACE_STATE; s == TT_OK && sp < TT_N_SPACES; sp++)
        s = map_space(x, (tt_space)sp, x->p->bytes[sp], err);
    if (s == TT_OK)
        s = tt_exec_bind(x, err);
    if (s != TT_OK) {
        tt_exec_free(x);
        return s;
    }
    x->seed_at = data_at(x, x->p->seed);
    x->step_at = data_at(x, x->p->step);
    if (x->seed_at)
        *x->seed_at = o->seed;
    touch_moments(x);
    init_buffers(x);
    *out = x;
    return TT_OK;
}

void tt_exec_free(tt_exec *x)
{
    if (!x)
        return;
    tt_exec_free_queues(x);
    for (size_t i = 0; i < x->groups.n; i++)
        if (x->groups.items[i].comm)
            x->o.dist->vt->group_free(x->groups.items[i].comm);
    tt_exec_trace_free(x->recording);
    tt_exec_item_times_free(x->item_times);
    for (int sp = 0; sp < TT_N_SPACES; sp++)
        if (x->space[sp])
            munmap(x->space[sp], x->mapped[sp]);
    tt_arena_free(x->arena);
}

/* ---- initial values ---- */

typedef struct init_job {
    const tt_init *init;
    tt_rng_key key;
    tt_tensor t;
    int64_t stride[TT_MAX_DIMS];
    double cdf_lo, cdf_hi;
} init_job;

#define INIT_BATCH 512

/* u: uniform numbers in, initial values out. */
static void draw(const init_job *j, int64_t n, double *u)
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

static void put(const init_job *j, int64_t i, double value)
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
        put(j, i, j->init->a);
    if (j->init->kind == TT_INIT_CONSTANT)
        return;
    for (int64_t i = begin, n; i < end; i += n) { /* a run of the last dim has indices in a row */
        uint64_t index = 0;
        int64_t rest = i, row = j->t.n_dims ? j->t.shape[j->t.n_dims - 1] : 1;
        for (int d = j->t.n_dims - 1; d >= 0; d--) {
            index += (uint64_t)((rest % j->t.shape[d] + j->t.begin[d]) * j->stride[d]);
            rest /= j->t.shape[d];
        }
        n = TT_MIN(TT_MIN(row - i % row, end - i), INIT_BATCH);
        tt_rng_uniforms(j->key, index, n, u);
        draw(j, n, u);
        for (int64_t k = 0; k < n; k++)
            put(j, i + k, u[k]);
    }
}

static void init_param(tt_exec *x, const tt_program_param *p)
{
    init_job j = {.init = p->init, .key = tt_rng_key_make(x->o.seed, p->name, 0), .t = p->tensor};
    int64_t stride = 1;
    j.t.data = x->space[TT_SPACE_STATE] + p->offset;
    for (int d = p->tensor.n_dims - 1; d >= 0; d--) {
        j.stride[d] = stride;
        stride *= p->tensor.global[d];
    }
    if (p->init->kind == TT_INIT_TRUNC_NORMAL) {
        j.cdf_lo = tt_normal_cdf(p->init->lo / p->init->a);
        j.cdf_hi = tt_normal_cdf(p->init->hi / p->init->a);
    }
    tt_parallel_for(x->o.pool, tt_tensor_numel(&p->tensor), 16384, init_range, &j);
}

/* This rank's box of an array that holds the whole tensor. */
static void copy_values(const tt_tensor *t, const float *values, float *to)
{
    const int64_t n = tt_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i, stride = 1;
        for (int d = t->n_dims - 1; d >= 0; d--) {
            at += (rest % t->shape[d] + t->begin[d]) * stride;
            rest /= t->shape[d];
            stride *= t->global[d];
        }
        to[i] = values[at];
    }
}

/* A program's own buffers; a child program uses its parent's. */
static void init_buffers(tt_exec *x)
{
    for (int i = 0; i < x->p->n_params && !x->o.parent; i++) {
        const tt_program_param *p = &x->p->params[i];
        if (!p->buffer || p->offset < 0)
            continue;
        if (p->values)
            copy_values(&p->tensor, p->values, (float *)(x->space[TT_SPACE_STATE] + p->offset));
        else
            init_param(x, p);
    }
}

void tt_exec_init_params(tt_exec *x)
{
    for (int i = 0; i < x->p->n_params; i++)
        if (x->p->params[i].init && !x->p->params[i].buffer && x->p->params[i].offset >= 0)
            init_param(x, &x->p->params[i]);
}

/* ---- scalars, metrics, tensors ---- */

static const tt_program_state *state_named(const tt_exec *x, const char *name)
{
    for (int i = 0; i < x->p->n_states; i++)
        if (!strcmp(x->p->states[i].name, name))
            return &x->p->states[i];
    return NULL;
}

static void *data_of(const tt_exec *x, const tt_program_state *s)
{
    return s && s->offset >= 0 ? x->space[TT_SPACE_STATE] + s->offset : NULL;
}

void tt_exec_set_rows(tt_exec *x, int64_t tokens, int64_t picked)
{
    TT_ASSERT(tokens <= x->p->most_rows[TT_EXTENT_TOKENS] &&
              picked <= x->p->most_rows[TT_EXTENT_PICKED]);
    x->rows[TT_EXTENT_TOKENS] = tokens;
    x->rows[TT_EXTENT_PICKED] = picked;
}

void tt_exec_set_scalar(tt_exec *x, const char *name, double value)
{
    const tt_program_state *s = state_named(x, name);
    void *p = data_of(x, s);
    if (!p)
        return;
    if (s->tensor.dtype == TT_F64)
        *(double *)p = value;
    else
        *(float *)p = (float)value;
}

double tt_exec_metric(const tt_exec *x, const char *name)
{
    const tt_program_state *s = state_named(x, name);
    const void *p = data_of(x, s);
    if (!p)
        return (double)NAN;
    return s->tensor.dtype == TT_F64 ? *(const double *)p : (double)*(const float *)p;
}

static tt_exec_tensor exec_tensor(const tt_exec *x, const tt_program_param *p)
{
    tt_exec_tensor t = {p->name, p->suffix, p->info, p->tensor, p->owner};
    t.tensor.data = x->space[TT_SPACE_STATE] + p->offset;
    return t;
}

tt_status tt_exec_tensors(const tt_exec *x, tt_arena *a, tt_exec_tensor **out, size_t *n_out,
                          tt_error *err)
{
    size_t n = 0;
    tt_exec_tensor *t = tt_arena_array(a, (size_t)x->p->n_params + 1, sizeof *t);
    (void)err;
    for (int i = 0; i < x->p->n_params; i++)
        if (x->p->params[i].offset >= 0 && !x->p->params[i].buffer)
            t[n++] = exec_tensor(x, &x->p->params[i]);
    *out = t;
    *n_out = n;
    return TT_OK;
}

size_t tt_exec_buffers(const tt_exec *x, tt_arena *a, tt_exec_tensor **out)
{
    size_t n = 0;
    tt_exec_tensor *t = tt_arena_array(a, (size_t)x->p->n_params + 1, sizeof *t);
    for (int i = 0; i < x->p->n_params; i++) {
        const tt_program_param *p = &x->p->params[i];
        if (p->buffer && !p->transient && p->offset >= 0)
            t[n++] = exec_tensor(x, p);
    }
    *out = t;
    return n;
}

bool tt_exec_gradient(const tt_exec *x, const struct tt_param_info *info, tt_tensor *out)
{
    for (int i = 0; i < x->p->n_params; i++) {
        const tt_program_param *p = &x->p->params[i];
        if (p->info != info || p->suffix || p->gradient < 0)
            continue;
        *out = p->tensor;
        out->dtype = p->gradient_dtype;
        out->data = x->space[TT_SPACE_STATE] + p->gradient;
        return true;
    }
    return false;
}

tt_status tt_exec_state_tensor(const tt_exec *x, const char *state, tt_tensor *out, tt_error *err)
{
    const tt_program_state *s = state_named(x, state);
    if (!s)
        return TT_FAIL(err, TT_ENOTFOUND, "no state \"%s\" in this program", state);
    *out = s->tensor;
    out->data = data_of(x, s);
    return TT_OK;
}

int64_t tt_exec_bytes(const tt_exec *x)
{
    int64_t n = 0;
    for (int sp = 0; sp < TT_N_SPACES; sp++)
        n += x->p->bytes[sp];
    return n;
}

int64_t tt_exec_high_water(const tt_exec *x)
{
    return x->high_water;
}
