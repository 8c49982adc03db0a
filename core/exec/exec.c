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
    const tt_graph *g = x->o.plan->graph;
    for (size_t i = 0; i < g->states.n; i++) {
        const tt_state *s = g->states.items[i];
        void *p = s->kind == TT_STATE_OPTIMIZER ? tt_exec_state_data(x, s, -1) : NULL;
        const tt_value v = {.type = s->type, .place = s->place};
        tt_tensor t;
        if (!p)
            continue;
        tt_plan_tensor(g, &v, x->coords, &t);
        tt_parallel_for(x->o.pool, tt_tensor_numel(&t) * (int64_t)tt_dtype_size(t.dtype),
                        TOUCH_PIECE, touch, p);
    }
}

static void init_buffers(tt_exec *x);

tt_status tt_exec_new(const tt_exec_opts *o, tt_exec **out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_exec *x = tt_arena_alloc(a, sizeof *x);
    x->o = *o;
    x->arena = a;
    x->flights = tt_arena_array(a, (size_t)o->plan->graph->n_ids + 1, sizeof *x->flights);
    tt_mesh_coords(o->mesh, o->dist->rank, x->coords);
    tt_status s = TT_OK;
    for (int sp = TT_SPACE_STATE; s == TT_OK && sp < TT_N_SPACES; sp++)
        s = map_space(x, (tt_space)sp, o->plan->bytes[sp], err);
    if (s == TT_OK)
        s = tt_exec_bind(x, err);
    if (s != TT_OK) {
        tt_exec_free(x);
        return s;
    }
    if (o->poison)
        tt_exec_find_deaths(x);
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
    void *data;
    tt_dtype dtype;
    int64_t shape[TT_MAX_DIMS], begin[TT_MAX_DIMS], stride[TT_MAX_DIMS];
    int n_dims;
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
    if (j->dtype == TT_BF16)
        ((uint16_t *)j->data)[i] = tt_to_bf16((float)value);
    else
        ((float *)j->data)[i] = (float)value;
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
        int64_t rest = i, row = j->n_dims ? j->shape[j->n_dims - 1] : 1;
        for (int d = j->n_dims - 1; d >= 0; d--) {
            index += (uint64_t)((rest % j->shape[d] + j->begin[d]) * j->stride[d]);
            rest /= j->shape[d];
        }
        n = TT_MIN(TT_MIN(row - i % row, end - i), INIT_BATCH);
        tt_rng_uniforms(j->key, index, n, u);
        draw(j, n, u);
        for (int64_t k = 0; k < n; k++)
            put(j, i + k, u[k]);
    }
}

/* A box of a tensor that is stored so. */
static void init_tensor(tt_exec *x, const char *name, const tt_init *init, const tt_type *t,
                        const tt_placement *place, void *data)
{
    init_job j = {.init = init,
                  .key = tt_rng_key_make(x->o.seed, name, 0),
                  .n_dims = t->n_dims,
                  .dtype = t->dtype,
                  .data = data};
    tt_box b;
    if (!data)
        return;
    tt_box_of(x->o.mesh, t->dims, t->n_dims, place, x->coords, &b);
    int64_t stride = 1;
    for (int d = t->n_dims - 1; d >= 0; d--) {
        j.shape[d] = b.end[d] - b.begin[d];
        j.begin[d] = b.begin[d];
        j.stride[d] = stride;
        stride *= t->dims[d].size;
    }
    if (init->kind == TT_INIT_TRUNC_NORMAL) {
        j.cdf_lo = tt_normal_cdf(init->lo / init->a);
        j.cdf_hi = tt_normal_cdf(init->hi / init->a);
    }
    tt_parallel_for(x->o.pool, tt_box_numel(&b, t->n_dims), 16384, init_range, &j);
}

/* This rank's box of an array. */
static void copy_values(tt_exec *x, const tt_state *s, float *to)
{
    tt_box b;
    int64_t stride[TT_MAX_DIMS], step = 1;
    tt_box_of(x->o.mesh, s->type.dims, s->type.n_dims, &s->place, x->coords, &b);
    for (int d = s->type.n_dims - 1; d >= 0; d--) {
        stride[d] = step;
        step *= s->type.dims[d].size;
    }
    const int64_t n = tt_box_numel(&b, s->type.n_dims);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i;
        for (int d = s->type.n_dims - 1; d >= 0; d--) {
            const int64_t size = b.end[d] - b.begin[d];
            at += (rest % size + b.begin[d]) * stride[d];
            rest /= size;
        }
        to[i] = s->values[at];
    }
}

/* A program's own buffers; a child's are its parent's. */
static void init_buffers(tt_exec *x)
{
    const tt_graph *g = x->o.plan->graph;
    for (size_t i = 0; i < g->states.n && !x->o.parent; i++) {
        const tt_state *s = g->states.items[i];
        void *data = s->kind == TT_STATE_BUFFER ? tt_exec_state_data(x, s, -1) : NULL;
        if (data && s->values)
            copy_values(x, s, data);
        else if (data)
            init_tensor(x, s->name, &s->init, &s->type, &s->place, data);
    }
}

void tt_exec_init_params(tt_exec *x)
{
    const tt_graph *g = x->o.plan->graph;
    for (size_t i = 0; i < g->params.n; i++) {
        const tt_param_info *p = g->params.items[i];
        init_tensor(x, p->name, &p->init, &p->type, &p->stored,
                    tt_exec_state_data(x, p->stack->param, p->index));
    }
}

/* ---- scalars, metrics, tensors ---- */

static const tt_state *state_named(const tt_exec *x, const char *name)
{
    const tt_graph *g = x->o.plan->graph;
    for (size_t i = 0; i < g->states.n; i++)
        if (!strcmp(g->states.items[i]->name, name))
            return g->states.items[i];
    return NULL;
}

void tt_exec_set_rows(tt_exec *x, int64_t tokens, int64_t picked)
{
    TT_ASSERT(tokens <= x->o.plan->graph->tokens && picked <= x->o.plan->graph->slots);
    x->rows[TT_EXTENT_TOKENS] = tokens;
    x->rows[TT_EXTENT_PICKED] = picked;
}

void tt_exec_set_scalar(tt_exec *x, const char *name, double value)
{
    const tt_state *s = state_named(x, name);
    void *p = s ? tt_exec_state_data(x, s, -1) : NULL;
    if (!p)
        return;
    if (s->type.dtype == TT_F64)
        *(double *)p = value;
    else
        *(float *)p = (float)value;
}

double tt_exec_metric(const tt_exec *x, const char *name)
{
    const tt_state *s = state_named(x, name);
    const void *p = s ? tt_exec_state_data(x, s, -1) : NULL;
    if (!p)
        return (double)NAN;
    return s->type.dtype == TT_F64 ? *(const double *)p : (double)*(const float *)p;
}

/* The rank whose coordinates over the atoms not in the placement are zero writes it. */
static bool owns(const tt_exec *x, const tt_placement *p, int n_dims)
{
    const uint16_t mine = tt_placement_shard_atoms(p, n_dims);
    const tt_axis *pp = tt_mesh_axis(x->o.mesh, "pp");
    for (int a = 0; a < x->o.mesh->n_atoms; a++) {
        const bool stage = pp && TT_ATOM(pp->atoms.atom[0]) == (unsigned)a;
        if (!stage && !(mine >> a & 1u) && x->coords[a])
            return false;
    }
    return true;
}

/* The lowest stage of a tied parameter's set counts and saves it. */
static bool has_lowest_stage(const tt_exec *x, const tt_param_info *p)
{
    return !p->stages || tt_plan_stage(x->o.plan, __builtin_ctzll(p->stages));
}

static void add_tensor(const tt_exec *x, const tt_param_info *p, const tt_state *s,
                       const char *suffix, tt_exec_tensor *out)
{
    tt_value v = {.type = p->type, .place = p->stored};
    v.type.dtype = s->type.dtype;
    *out = (tt_exec_tensor){.name = p->name,
                            .suffix = suffix,
                            .param = p,
                            .owner = owns(x, &p->stored, p->type.n_dims) && has_lowest_stage(x, p)};
    tt_plan_tensor(x->o.plan->graph, &v, x->coords, &out->tensor);
    out->tensor.data = tt_exec_state_data(x, s, p->index);
}

tt_status tt_exec_tensors(const tt_exec *x, tt_arena *a, tt_exec_tensor **out, size_t *n_out,
                          tt_error *err)
{
    const tt_graph *g = x->o.plan->graph;
    (void)err;
    size_t n = 0;
    tt_exec_tensor *t = tt_arena_array(a, g->params.n * (g->states.n + 1) + 1, sizeof *t);
    for (size_t i = 0; i < g->params.n; i++) {
        const tt_param_info *p = g->params.items[i];
        if (x->o.plan->state[p->stack->param->id] < 0)
            continue;
        add_tensor(x, p, p->stack->param, NULL, &t[n++]);
        for (size_t j = 0; j < g->states.n; j++)
            if (g->states.items[j]->kind == TT_STATE_OPTIMIZER &&
                g->states.items[j]->stack == p->stack)
                add_tensor(x, p, g->states.items[j], g->states.items[j]->suffix, &t[n++]);
    }
    *out = t;
    *n_out = n;
    return TT_OK;
}

size_t tt_exec_buffers(const tt_exec *x, tt_arena *a, tt_exec_tensor **out)
{
    const tt_graph *g = x->o.plan->graph;
    size_t n = 0;
    tt_exec_tensor *t = tt_arena_array(a, g->states.n + 1, sizeof *t);
    for (size_t i = 0; i < g->states.n; i++) {
        const tt_state *s = g->states.items[i];
        if (s->kind != TT_STATE_BUFFER || s->transient || x->o.plan->state[s->id] < 0)
            continue;
        const bool lowest = tt_plan_stage(x->o.plan, __builtin_ctzll(s->stages)) != NULL;
        const tt_value v = {.type = s->type, .place = s->place};
        t[n] = (tt_exec_tensor){.name = s->name,
                                .owner = owns(x, &s->place, s->type.n_dims) && lowest};
        tt_plan_tensor(g, &v, x->coords, &t[n].tensor);
        t[n++].tensor.data = tt_exec_state_data(x, s, -1);
    }
    *out = t;
    return n;
}

bool tt_exec_gradient(const tt_exec *x, const tt_param_info *p, tt_tensor *out)
{
    if (!p->stack || !p->stack->grad || x->o.plan->state[p->stack->grad->id] < 0)
        return false;
    tt_value v = {.type = p->type, .place = p->stored};
    v.type.dtype = p->stack->grad->type.dtype;
    tt_plan_tensor(x->o.plan->graph, &v, x->coords, out);
    out->data = tt_exec_state_data(x, p->stack->grad, p->index);
    return true;
}

tt_status tt_exec_state_tensor(const tt_exec *x, const char *state, tt_tensor *out, tt_error *err)
{
    const tt_state *s = state_named(x, state);
    if (!s)
        return TT_FAIL(err, TT_ENOTFOUND, "no state \"%s\" in this program", state);
    const tt_value v = {.type = s->type, .place = s->place};
    tt_plan_tensor(x->o.plan->graph, &v, x->coords, out);
    out->data = tt_exec_state_data(x, s, -1);
    return TT_OK;
}

int64_t tt_exec_bytes(const tt_exec *x)
{
    int64_t n = 0;
    for (int sp = 0; sp < TT_N_SPACES; sp++)
        n += x->o.plan->bytes[sp];
    return n;
}

int64_t tt_exec_high_water(const tt_exec *x)
{
    return x->high_water;
}
