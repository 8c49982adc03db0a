/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/exec_impl.h"
#include <math.h>
#include <string.h>
#include <sys/mman.h>

/* Life of a program, initial values, and where its tensors lie. */

/* One mapping a space, huge pages where the kernel has them; a canary page behind it when debugging. */
static tt_status map_space(tt_exec *x, tt_space space, int64_t bytes, tt_error *err)
{
    const size_t n = (size_t)bytes + TT_CANARY_BYTES;
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return TT_FAIL(err, TT_ENOMEM, "cannot map %.2f GiB for the plan", (double)bytes / (1 << 30));
#ifdef MADV_HUGEPAGE
    if (n >= (size_t)4 << 20) (void)madvise(p, n, MADV_HUGEPAGE);
#endif
    x->space[space] = p;
    x->mapped[space] = n;
    if (x->o.poison) tt_exec_poison(p, n);
    if (x->o.poison && space == TT_SPACE_STATE) memset(p, 0, (size_t)bytes);
    return TT_OK;
}

/* Poison: a value's bytes are overwritten right after its last reader in its list, unless the other list reads it too. */
static void find_deaths(tt_exec *x)
{
    for (int s = 0; s < x->n_code; s++)
        for (int l = 0; l < 4; l++) {
            tt_instr_list *list = &x->code[s].lists[l];
            for (int i = 0; i < list->n; i++) {
                tt_instr *e = &list->items[i];
                e->dead = tt_arena_array(x->arena, (size_t)e->n_in + 1, sizeof *e->dead);
                for (int j = 0; e->node && j < e->n_in && j < e->node->n_in; j++) {
                    const tt_value *root = tt_plan_alias(e->node->in[j]);
                    bool later = x->o.plan->value[root->id].space != TT_SPACE_WORK;
                    for (size_t k = 0; !later && k < x->o.plan->graph->nodes.n; k++) {
                        const tt_node *n = x->o.plan->graph->nodes.items[k];
                        for (int q = 0; n->region != (tt_region)l && q < n->n_in; q++)
                            later = later || tt_plan_alias(n->in[q]) == root;
                    }
                    for (int k = i + 1; !later && k < list->n; k++)
                        for (int q = 0; q < list->items[k].node->n_in; q++)
                            later = later || tt_plan_alias(list->items[k].node->in[q]) == root;
                    for (int q = 0; !later && q < j; q++)
                        later = tt_plan_alias(e->node->in[q]) == root;
                    if (!later) e->dead[e->n_dead++] = &e->in[j];
                }
            }
        }
}

tt_status tt_exec_new(const tt_exec_opts *o, tt_exec **out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_exec *x = tt_arena_alloc(a, sizeof *x);
    x->o = *o;
    x->arena = a;
    tt_mesh_coords(o->mesh, o->dist->rank, x->coords);
    tt_status s = TT_OK;
    for (int sp = TT_SPACE_STATE; s == TT_OK && sp < TT_N_SPACES; sp++)
        s = map_space(x, (tt_space)sp, o->plan->bytes[sp], err);
    if (s == TT_OK) s = tt_exec_bind(x, err);
    if (s != TT_OK) {
        tt_exec_free(x);
        return s;
    }
    if (o->poison) find_deaths(x);
    *out = x;
    return TT_OK;
}

void tt_exec_free(tt_exec *x)
{
    if (!x) return;
    for (size_t i = 0; i < x->groups.n; i++)
        if (x->groups.items[i].comm) x->o.dist->vt->group_free(x->groups.items[i].comm);
    for (int sp = 0; sp < TT_N_SPACES; sp++)
        if (x->space[sp]) munmap(x->space[sp], x->mapped[sp]);
    tt_arena_free(x->arena);
}

/* ---- initial values ---- */

typedef struct init_job {
    const tt_param_info *p;
    tt_rng_key key;
    float *data;
    int64_t shape[TT_MAX_DIMS], begin[TT_MAX_DIMS], stride[TT_MAX_DIMS];
    int n_dims;
    double cdf_lo, cdf_hi;
} init_job;

static double initial(const init_job *j, uint64_t index)
{
    const tt_init *in = &j->p->init;
    double u;
    switch (in->kind) {
    case TT_INIT_CONSTANT:
        return in->a;
    case TT_INIT_UNIFORM:
        return in->lo + (in->hi - in->lo) * tt_rng_uniform(j->key, index);
    case TT_INIT_NORMAL:
        return in->a * tt_normal_quantile(tt_rng_uniform(j->key, index));
    case TT_INIT_TRUNC_NORMAL:
        u = j->cdf_lo + (j->cdf_hi - j->cdf_lo) * tt_rng_uniform(j->key, index);
        u = in->a * tt_normal_quantile(u);
        return u < in->lo ? in->lo : u > in->hi ? in->hi : u;
    }
    return 0;
}

static void init_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const init_job *j = arg;
    (void)thread;
    if (j->p->init.kind == TT_INIT_CONSTANT) {
        for (int64_t i = begin; i < end; i++)
            j->data[i] = (float)j->p->init.a;
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        uint64_t index = 0;
        int64_t rest = i;
        for (int d = j->n_dims - 1; d >= 0; d--) {
            index += (uint64_t)((rest % j->shape[d] + j->begin[d]) * j->stride[d]);
            rest /= j->shape[d];
        }
        j->data[i] = (float)initial(j, index);
    }
}

static void init_param(tt_exec *x, const tt_param_info *p)
{
    init_job j = {.p = p, .key = tt_rng_key_make(x->o.seed, p->name, 0), .n_dims = p->type.n_dims};
    tt_box b;
    j.data = tt_exec_state_data(x, p->stack->param, p->index);
    if (!j.data) return;
    tt_box_of(x->o.mesh, p->type.dims, p->type.n_dims, &p->stored, x->coords, &b);
    int64_t stride = 1;
    for (int d = p->type.n_dims - 1; d >= 0; d--) {
        j.shape[d] = b.end[d] - b.begin[d];
        j.begin[d] = b.begin[d];
        j.stride[d] = stride;
        stride *= p->type.dims[d].size;
    }
    if (p->init.kind == TT_INIT_TRUNC_NORMAL) {
        j.cdf_lo = tt_normal_cdf(p->init.lo / p->init.a);
        j.cdf_hi = tt_normal_cdf(p->init.hi / p->init.a);
    }
    tt_parallel_for(x->o.pool, tt_box_numel(&b, p->type.n_dims), 16384, init_range, &j);
}

void tt_exec_init_params(tt_exec *x)
{
    for (size_t i = 0; i < x->o.plan->graph->params.n; i++)
        init_param(x, x->o.plan->graph->params.items[i]);
}

/* ---- scalars, metrics, tensors ---- */

static const tt_state *state_named(const tt_exec *x, const char *name)
{
    const tt_graph *g = x->o.plan->graph;
    for (size_t i = 0; i < g->states.n; i++)
        if (!strcmp(g->states.items[i]->name, name)) return g->states.items[i];
    return NULL;
}

void tt_exec_set_scalar(tt_exec *x, const char *name, double value)
{
    const tt_state *s = state_named(x, name);
    void *p = s ? tt_exec_state_data(x, s, -1) : NULL;
    if (!p) return;
    if (s->type.dtype == TT_F64)
        *(double *)p = value;
    else
        *(float *)p = (float)value;
}

double tt_exec_metric(const tt_exec *x, const char *name)
{
    const tt_state *s = state_named(x, name);
    const void *p = s ? tt_exec_state_data(x, s, -1) : NULL;
    if (!p) return (double)NAN;
    return s->type.dtype == TT_F64 ? *(const double *)p : (double)*(const float *)p;
}

/* The rank whose coordinates over the atoms not in the placement are zero writes it. */
static bool owns(const tt_exec *x, const tt_placement *p, int n_dims)
{
    const uint16_t mine = tt_placement_shard_atoms(p, n_dims);
    const tt_axis *pp = tt_mesh_axis(x->o.mesh, "pp");
    for (int a = 0; a < x->o.mesh->n_atoms; a++) {
        const bool stage = pp && TT_ATOM(pp->atoms.atom[0]) == (unsigned)a;
        if (!stage && !(mine >> a & 1u) && x->coords[a]) return false;
    }
    return true;
}

static void add_tensor(const tt_exec *x, const tt_param_info *p, const tt_state *s, const char *suffix,
                       tt_exec_tensor *out)
{
    const tt_value v = {.type = p->type, .place = p->stored};
    *out = (tt_exec_tensor){.name = p->name, .suffix = suffix, .param = p,
                            .owner = owns(x, &p->stored, p->type.n_dims)};
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
        if (x->o.plan->state[p->stack->param->id] < 0) continue;
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

bool tt_exec_gradient(const tt_exec *x, const tt_param_info *p, tt_tensor *out)
{
    if (!p->stack || !p->stack->grad || x->o.plan->state[p->stack->grad->id] < 0) return false;
    tt_value v = {.type = p->type, .place = p->stored};
    tt_plan_tensor(x->o.plan->graph, &v, x->coords, out);
    out->data = tt_exec_state_data(x, p->stack->grad, p->index);
    return true;
}

tt_status tt_exec_output(const tt_exec *x, const tt_value *v, tt_tensor *out, tt_error *err)
{
    int64_t slot;
    tt_plan_tensor(x->o.plan->graph, v, x->coords, out);
    out->data = tt_exec_address(x, v, &slot);
    if (!out->data) return TT_FAIL(err, TT_ENOTFOUND, "value %%%d is not on this rank", v->id);
    return TT_OK;
}

tt_status tt_exec_state_tensor(const tt_exec *x, const char *state, tt_tensor *out, tt_error *err)
{
    const tt_state *s = state_named(x, state);
    if (!s) return TT_FAIL(err, TT_ENOTFOUND, "no state \"%s\" in this program", state);
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

/* Work bytes up to the last one that is not what poison wrote at the start. */
int64_t tt_exec_high_water(const tt_exec *x)
{
    int64_t top = 0;
    for (int s = 0; s < x->n_code; s++)
        for (int l = 0; l < 4; l++)
            for (int i = 0; i < x->code[s].lists[l].n; i++) {
                const tt_instr *e = &x->code[s].lists[l].items[i];
                const uint8_t *w = x->space[TT_SPACE_WORK];
                if (e->scratch)
                    top = TT_MAXV(top, (const uint8_t *)e->scratch - w +
                                           ((int64_t)e->scratch_bytes + 63) / 64 * 64);
                for (int j = 0; j < e->n_out; j++) {
                    const uint8_t *d = e->out[j].tensor.data;
                    if (d < w || d >= w + x->mapped[TT_SPACE_WORK]) continue;
                    const int64_t bytes = tt_tensor_numel(&e->out[j].tensor) *
                                          (int64_t)tt_dtype_size(e->out[j].tensor.dtype);
                    top = TT_MAXV(top, d - w + (bytes + 63) / 64 * 64);
                }
            }
    return top;
}
