/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"
#include <dlfcn.h>
#include <math.h>
#include <ttrun/narrow.h>

/* sim.c includes this file: it loads plugins, makes shards and assembles them, and runs collectives. */

/* ---- plugins ---- */

static const tt_component *sim_component(const char *kind_and_name, int kind)
{
    char path[1024];
    const char *folder = getenv("PLUGINS");
    snprintf(path, sizeof path, "%s/%s.so", folder ? folder : "build/release/plugins",
             kind_and_name);
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!h)
        fail_msg("%s: build the plugins first (make all)", dlerror());
    const tt_plugin *p = dlsym(h, "tt_plugin_entry");
    if (!p)
        fail_msg("%s is no plugin", path);
    for (size_t i = 0; i < p->n_components; i++)
        if ((int)p->components[i].kind == kind)
            return &p->components[i];
    fail_msg("%s has no component of kind %d", path, kind);
    return NULL;
}

const void *sim_plugin(const char *kind_and_name, int kind)
{
    return sim_component(kind_and_name, kind)->vtable;
}

void sim_optimizer_defaults(const char *kind_and_name, void *config, size_t size)
{
    const tt_component *c = sim_component(kind_and_name, TT_KIND_OPTIMIZER);
    assert_true(c->config_size <= size);
    memset(config, 0, size);
    for (size_t i = 0; i < c->n_options; i++) {
        const tt_option *o = &c->options[i];
        if (o->type == TT_OPT_FLOAT)
            *(double *)(void *)((char *)config + o->offset) = strtod(o->default_json, NULL);
    }
}

const tt_backend_vt *sim_backend(void)
{
    static const tt_backend_vt *vt;
    if (!vt)
        vt = sim_plugin("backends/reference", TT_KIND_BACKEND);
    return vt;
}

const tt_kernel *sim_own_kernel;

static const tt_kernel *sim_kernel(const char *op)
{
    return sim_own_kernel && !strcmp(sim_own_kernel->op, op) ? sim_own_kernel
                                                             : sim_backend()->kernel(NULL, op);
}

bool sim_has_kernel(void *user, const char *op)
{
    (void)user;
    return sim_kernel(op) != NULL;
}

tt_op_table sim_ops(void)
{
    tt_op_table t = {0};
    t.core = tt_core_ops(&t.n_core);
    return t;
}

/* ---- elements ---- */

static double sim_get(const tt_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case TT_F32:
        return (double)((const float *)t->data)[i];
    case TT_F64:
        return ((const double *)t->data)[i];
    case TT_I32:
        return ((const int32_t *)t->data)[i];
    case TT_I64:
        return (double)((const int64_t *)t->data)[i];
    case TT_BOOL:
        return ((const uint8_t *)t->data)[i];
    case TT_F8E4M3:
    case TT_F8E5M2:
        return (double)tt_from_float8(((const uint8_t *)t->data)[i], t->dtype == TT_F8E5M2);
    default:
        fail_msg("the sim holds no %s", tt_dtype_name(t->dtype));
        return 0;
    }
}

static void sim_set(const tt_tensor *t, int64_t i, double v)
{
    switch (t->dtype) {
    case TT_F32:
        ((float *)t->data)[i] = (float)v;
        break;
    case TT_F64:
        ((double *)t->data)[i] = v;
        break;
    case TT_I32:
        ((int32_t *)t->data)[i] = (int32_t)v;
        break;
    case TT_I64:
        ((int64_t *)t->data)[i] = (int64_t)v;
        break;
    case TT_BOOL:
        ((uint8_t *)t->data)[i] = v != 0;
        break;
    case TT_F8E4M3:
    case TT_F8E5M2:
        ((uint8_t *)t->data)[i] = tt_to_float8((float)v, t->dtype == TT_F8E5M2);
        break;
    default:
        fail_msg("the sim holds no %s", tt_dtype_name(t->dtype));
    }
}

static tt_dtype sim_dtype(const sim *s, tt_dtype t)
{
    return t == TT_F32 && !s->o.narrow ? TT_F64 : t;
}

/* ---- tensors ---- */

static size_t sim_bytes(const tt_tensor *t)
{
    return (size_t)tt_tensor_numel(t) * tt_dtype_size(t->dtype);
}

/* The tensor of a type's part in a box (NULL = all of it). Poisoned, so that what no kernel writes
 * is seen. */
static tt_tensor sim_tensor(sim *s, const tt_type *type, const tt_box *box, bool allocate)
{
    tt_tensor t = {.dtype = sim_dtype(s, type->dtype), .n_dims = type->n_dims};
    for (int d = 0; d < type->n_dims; d++) {
        t.global[d] = type->dims[d].size;
        t.begin[d] = box ? box->begin[d] : 0;
        t.shape[d] = box ? box->end[d] - box->begin[d] : type->dims[d].size;
    }
    if (!allocate)
        return t;
    t.data = tt_arena_alloc(s->arena, sim_bytes(&t) + 64);
    memset(t.data, 0xff, sim_bytes(&t));
    return t;
}

static tt_box sim_box(const sim *s, const tt_type *type, const tt_placement *p, int rank)
{
    tt_box b = {{0}, {0}};
    int32_t coords[TT_MAX_ATOMS] = {0};
    tt_mesh_coords(s->mesh, rank, coords);
    tt_box_of(s->mesh, type->dims, type->n_dims, p, coords, &b);
    return b;
}

static tt_tensor sim_local(sim *s, const tt_type *type, const tt_placement *p, int rank)
{
    const tt_box b = sim_box(s, type, p, rank);
    return sim_tensor(s, type, &b, true);
}

static tt_tensor *local_of(const sim *s, const tt_value *v, int rank)
{
    return &s->local[(size_t)v->id * (size_t)s->mesh->world + (size_t)rank];
}

static tt_tensor *state_local(const sim *s, const tt_state *st, int rank)
{
    return &s->state_local[(size_t)st->id * (size_t)s->mesh->world + (size_t)rank];
}

/* Calls fn for every element of a box (inside [0, dims)) with its index in an array over `dims`. */
typedef struct walk {
    int n;
    int64_t at[TT_MAX_DIMS];
    const tt_box *box;
    bool done;
} walk;

static walk walk_start(const tt_box *box, int n)
{
    walk w = {.n = n, .box = box};
    for (int d = 0; d < n; d++) {
        w.at[d] = box->begin[d];
        if (box->end[d] <= box->begin[d])
            w.done = true;
    }
    return w;
}

static void walk_next(walk *w)
{
    for (int d = w->n - 1; d >= 0; d--) {
        if (++w->at[d] < w->box->end[d])
            return;
        w->at[d] = w->box->begin[d];
    }
    w->done = true;
}

/* Index of global element `at` in a tensor that holds a part. */
static int64_t index_in(const tt_tensor *t, const int64_t *at)
{
    int64_t i = 0;
    for (int d = 0; d < t->n_dims; d++)
        i = i * t->shape[d] + at[d] - t->begin[d];
    return i;
}

static tt_box box_of_tensor(const tt_tensor *t)
{
    tt_box b = {{0}, {0}};
    for (int d = 0; d < t->n_dims; d++) {
        b.begin[d] = t->begin[d];
        b.end[d] = t->begin[d] + t->shape[d];
    }
    return b;
}

/* The part of `from` that lies in `to`. */
static void copy_part(const tt_tensor *from, const tt_tensor *to)
{
    const tt_box b = box_of_tensor(to);
    for (walk w = walk_start(&b, to->n_dims); !w.done; walk_next(&w))
        sim_set(to, index_in(to, w.at), sim_get(from, index_in(from, w.at)));
}

/* ---- assembling ---- */

static void sim_fail(sim *s, const tt_node *n, const char *fmt, ...) TT_PRINTF(3, 4);
static void sim_fail(sim *s, const tt_node *n, const char *fmt, ...)
{
    char what[300], place[200] = "";
    if (s->failure[0])
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (n && n->n_out && s->g->placed)
        tt_placement_print(s->mesh, &n->out[0]->place, n->out[0]->type.n_dims, place, sizeof place);
    snprintf(s->failure, sizeof s->failure, "node %d %s (%s) {%s}: %s", n ? n->id : -1,
             n ? n->op->name : "", n && n->scope ? n->scope : "", place, what);
}

/* Assembles the global tensor from shards. Sets `why` if replicas differ, or if shards overlap or leave
 * gaps. */
static tt_tensor assemble(sim *s, const tt_type *type, const tt_placement *p,
                          const tt_tensor *shards, const char **why)
{
    tt_tensor out = sim_tensor(s, type, NULL, true);
    const int64_t n = tt_tensor_numel(&out);
    int *hits = tt_arena_array(s->arena, (size_t)n + 1, sizeof *hits);
    const uint16_t fixed = (uint16_t)(p->partial | tt_placement_shard_atoms(p, type->n_dims));
    for (int64_t i = 0; i < n; i++)
        sim_set(&out, i, p->partial_max ? -INFINITY : 0);
    for (int r = 0; r < s->mesh->world; r++) {
        int32_t c[TT_MAX_ATOMS] = {0};
        tt_mesh_coords(s->mesh, r, c);
        for (int a = 0; a < s->mesh->n_atoms; a++)
            if (!(fixed >> a & 1u))
                c[a] = 0;
        const int first = tt_mesh_rank(s->mesh, c);
        const tt_tensor *t = &shards[r];
        const tt_box b = box_of_tensor(t), want = sim_box(s, type, p, r);
        if (memcmp(b.begin, want.begin, sizeof b.begin[0] * (size_t)type->n_dims) ||
            memcmp(b.end, want.end, sizeof b.end[0] * (size_t)type->n_dims))
            *why = "a shard is not its box";
        if (first != r) {
            if (sim_bytes(t) != sim_bytes(&shards[first]) ||
                memcmp(t->data, shards[first].data, sim_bytes(t)))
                *why = "replicas differ";
            continue;
        }
        for (walk w = walk_start(&b, type->n_dims); !w.done; walk_next(&w)) {
            const int64_t i = index_in(&out, w.at);
            const double v = sim_get(t, index_in(t, w.at)), have = sim_get(&out, i);
            sim_set(&out, i, p->partial_max ? (v > have ? v : have) : have + v);
            hits[i]++;
        }
    }
    const int times = tt_mesh_degree_mask(s->mesh, p->partial);
    for (int64_t i = 0; i < n; i++)
        if (hits[i] != times)
            *why = "the shards do not tile the value";
    return out;
}

/* Largest difference relative to the largest element; infinite where finiteness differs. */
static double difference(const tt_tensor *a, const tt_tensor *b)
{
    double worst = 0, scale = a->dtype == TT_F32 || a->dtype == TT_F64 ? 1e-3 : 1e-30;
    for (int64_t i = 0; i < tt_tensor_numel(a); i++) {
        const double x = sim_get(a, i), y = sim_get(b, i);
        if (isfinite(x) && fabs(x) > scale)
            scale = fabs(x);
        if (memcmp(&x, &y, sizeof x) == 0)
            continue;
        const double d = fabs(x - y);
        worst = !(d <= worst) ? d : worst;
        if (isnan(d))
            return INFINITY;
    }
    return worst / scale;
}

/* The piece of each rank must be its part of the whole. Shares of a sum are tested where they are added. */
static void check_piece(sim *s, const tt_node *n, const tt_value *v)
{
    for (int r = 0; !v->place.partial && r < s->mesh->world; r++) {
        const tt_tensor *t = local_of(s, v, r), *whole = &s->global[v->id];
        const tt_box b = box_of_tensor(t), want = sim_box(s, &v->type, &v->place, r);
        tt_tensor part = sim_tensor(s, &v->type, &want, true);
        if (memcmp(b.begin, want.begin, sizeof b.begin[0] * (size_t)t->n_dims) ||
            memcmp(b.end, want.end, sizeof b.end[0] * (size_t)t->n_dims)) {
            sim_fail(s, n, "a piece is not its box");
            return;
        }
        copy_part(whole, &part);
        const double d = difference(&part, t);
        if (!(d <= (s->o.tolerance > 0 ? s->o.tolerance : 1e-9)))
            sim_fail(s, n, "a piece differs from the global value by %.3g", d);
    }
}

static void check_value(sim *s, const tt_node *n, const tt_value *v)
{
    const char *why = NULL;
    if (s->o.unchecked || s->failure[0])
        return;
    if (n->own_rows) {
        check_piece(s, n, v);
        return;
    }
    const tt_tensor whole = assemble(s, &v->type, &v->place, local_of(s, v, 0), &why);
    const double d = difference(&s->global[v->id], &whole);
    const double tol = s->o.tolerance > 0 ? s->o.tolerance : s->o.narrow ? 2e-5 : 1e-9;
    if (d > s->worst)
        s->worst = d;
    if (why)
        sim_fail(s, n, "output %d: %s", v->out, why);
    if (!(d <= tol))
        sim_fail(s, n, "output %d: the shards differ from the global value by %.3g", v->out, d);
}

/* ---- collectives ---- */

static bool sim_reads(const sim *s, const tt_lower_step *st, int rank, bool drop, int *members,
                      int *n)
{
    *n = 1;
    members[0] = rank;
    if (!drop && st->kind != TT_STEP_SLICE && st->kind != TT_STEP_MASK)
        *n = tt_mesh_group(s->mesh, rank, &st->atoms, members);
    int32_t c[TT_MAX_ATOMS] = {0};
    tt_mesh_coords(s->mesh, rank, c);
    for (int i = 0; i < st->atoms.n; i++)
        if (c[TT_ATOM(st->atoms.atom[i])] != 0)
            return false;
    return true; /* at coordinate 0 of the step's atoms */
}

static void run_step(sim *s, const tt_node *node, const tt_type *type, const tt_lower_step *st,
                     const tt_tensor *in, tt_tensor *out, bool drop)
{
    const bool max = st->src.partial ? st->src.partial_max : st->dst.partial_max;
    int *members = tt_arena_array(s->arena, (size_t)s->mesh->world, sizeof *members), n;
    for (int r = 0; r < s->mesh->world; r++) {
        out[r] = sim_local(s, type, &st->dst, r);
        const bool origin = sim_reads(s, st, r, drop, members, &n);
        const tt_box want = box_of_tensor(&out[r]);
        for (walk w = walk_start(&want, type->n_dims); !w.done; walk_next(&w)) {
            double acc = 0;
            int hits = 0;
            for (int k = 0; k < n; k++) {
                const tt_tensor *t = &in[members[k]];
                bool inside = true;
                for (int d = 0; d < type->n_dims; d++)
                    inside =
                        inside && w.at[d] >= t->begin[d] && w.at[d] < t->begin[d] + t->shape[d];
                if (!inside)
                    continue;
                const double v = sim_get(t, index_in(t, w.at));
                acc = !hits ? v : max ? (v > acc ? v : acc) : acc + v;
                if (s->o.narrow && type->dtype == TT_F32)
                    acc = (double)(float)acc;
                hits++;
            }
            const bool copies = st->kind == TT_STEP_ALL_GATHER || st->kind == TT_STEP_ALL_TO_ALL ||
                                st->kind == TT_STEP_SHIFT;
            if (!drop && hits != (copies || n == 1 ? 1 : n)) {
                sim_fail(s, node, "%s: %d of %d members hold an element",
                         tt_step_kind_name(st->kind), hits, n);
                return;
            }
            if (st->kind == TT_STEP_MASK && !origin && !drop)
                acc = max ? -INFINITY : 0;
            sim_set(&out[r], index_in(&out[r], w.at), acc);
        }
    }
}

/* Joins and sums. */
static void run_pieces(sim *s, const tt_node *n)
{
    const tt_value *to = n->out[0];
    const bool sum = n->step->kind == TT_STEP_SUM;
    const int n_in = s->o.drop == n->id + 1 ? 1 : n->n_in;
    s->global[to->id] = s->global[n->in[0]->id];
    for (int r = 0; r < s->mesh->world; r++) {
        tt_tensor out = sim_local(s, &to->type, &to->place, r);
        for (int i = 0; i < n_in; i++) {
            const tt_tensor *t = local_of(s, n->in[i], r);
            const tt_box b = box_of_tensor(t);
            for (walk w = walk_start(&b, t->n_dims); !w.done; walk_next(&w)) {
                const int64_t at = index_in(&out, w.at);
                const double v = sim_get(t, index_in(t, w.at));
                sim_set(&out, at, sum && i ? sim_get(&out, at) + v : v);
            }
        }
        *local_of(s, to, r) = out;
    }
}

static void run_identity(sim *s, const tt_node *n)
{
    if (n->step && n->step->kind >= TT_STEP_JOIN) {
        run_pieces(s, n);
        return;
    }
    const tt_value *from = n->in[0], *to = n->out[0];
    tt_lower_step steps[TT_MAX_STEPS];
    const size_t world = (size_t)s->mesh->world;
    int k = 0;
    s->global[to->id] = s->global[from->id];
    tt_tensor *now = local_of(s, from, 0);
    if (n->step)
        steps[k++] = *n->step;
    else if (n->op != &tt_op_transfer && s->g->placed)
        k = tt_lower(s->mesh, to->type.dims, to->type.n_dims, &from->place, &to->place, steps);
    for (int i = 0; i < k; i++) {
        tt_tensor *next = tt_arena_array(s->arena, world, sizeof *next);
        run_step(s, n, &to->type, &steps[i], now, next, s->o.drop == n->id + 1);
        now = next;
    }
    memcpy(local_of(s, to, 0), now, world * sizeof *now);
}
