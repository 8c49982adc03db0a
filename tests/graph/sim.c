/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"
#include "heap.h"
#include <math.h>

#include "graph/sim_tensors.c"

/* ---- leaves and state ---- */

static void feed_tensor(sim *s, const char *name, const tt_type *type, tt_tensor *out)
{
    double *v = tt_arena_array(s->arena, (size_t)tt_type_numel(type) + 1, sizeof *v);
    (s->o.feed ? s->o.feed : sim_feed)(s->g, name, type, s->micro, v);
    *out = sim_tensor(s, type, NULL, true);
    for (int64_t i = 0; i < tt_tensor_numel(out); i++)
        sim_set(out, i, v[i]);
}

static void run_leaf(sim *s, const tt_node *n, const char *name)
{
    const tt_value *v = n->out[0];
    feed_tensor(s, name, &v->type, &s->global[v->id]);
    for (int r = 0; r < s->mesh->world; r++) {
        *local_of(s, v, r) = sim_local(s, &v->type, &v->place, r);
        copy_part(&s->global[v->id], local_of(s, v, r));
    }
}

/* Member `index` of a stack's tensor, or all of it. */
static tt_tensor member_of(const tt_tensor *t, int index, const tt_type *type)
{
    tt_tensor m = *t;
    if (index < 0 || t->n_dims == type->n_dims)
        return m;
    m.n_dims--;
    memmove(m.shape, t->shape + 1, sizeof m.shape - sizeof m.shape[0]);
    memmove(m.begin, t->begin + 1, sizeof m.begin - sizeof m.begin[0]);
    memmove(m.global, t->global + 1, sizeof m.global - sizeof m.global[0]);
    m.data = (char *)t->data + (size_t)index * sim_bytes(&m);
    return m;
}

static void run_state(sim *s, const tt_node *n, const tt_state *st, int index)
{
    const tt_value *v = n->out[0];
    s->global[v->id] = member_of(&s->state_global[st->id], index, &v->type);
    for (int r = 0; r < s->mesh->world; r++)
        *local_of(s, v, r) = member_of(state_local(s, st, r), index, &v->type);
}

static void add_into(const tt_tensor *to, const tt_tensor *from, bool add, bool max)
{
    for (int64_t i = 0; i < tt_tensor_numel(to); i++) {
        const double v = sim_get(from, i), have = sim_get(to, i);
        sim_set(to, i, !add ? v : max ? (v > have ? v : have) : have + v);
    }
}

static bool same_box(const tt_tensor *a, const tt_tensor *b)
{
    if (a->n_dims != b->n_dims)
        return false;
    for (int d = 0; d < a->n_dims; d++)
        if (a->shape[d] != b->shape[d] || (a->shape[d] && a->begin[d] != b->begin[d]))
            return false;
    return true;
}

static void write_state(sim *s, const tt_node *n, const tt_state *st, int index, const tt_value *v,
                        bool add)
{
    tt_tensor t = member_of(&s->state_global[st->id], index, &v->type);
    add_into(&t, &s->global[v->id], add, st->accumulate_max);
    tt_placement place = st->place;
    if (st->type.n_dims > v->type.n_dims) {
        memmove(place.n, place.n + 1, sizeof place.n - 1);
        memmove(place.atom, place.atom + 1, sizeof place.atom - sizeof place.atom[0]);
    }
    if (place.partial != v->place.partial)
        sim_fail(s, n, "state %s is pending over other atoms", st->name);
    for (int r = 0; r < s->mesh->world; r++) {
        t = member_of(state_local(s, st, r), index, &v->type);
        if (!same_box(&t, local_of(s, v, r))) {
            sim_fail(s, n, "state %s is stored otherwise than what is written to it", st->name);
            return;
        }
        add_into(&t, local_of(s, v, r), add, st->accumulate_max);
    }
}

/* One name per member, so that names do not depend on how parameters are stacked. */
static void init_state(sim *s, const tt_state *st)
{
    tt_tensor *g = &s->state_global[st->id];
    *g = sim_tensor(s, &st->type, NULL, true);
    const bool members = st->kind == TT_STATE_PARAM || st->kind == TT_STATE_OPTIMIZER;
    for (int i = 0; members && i < st->stack->n; i++) {
        const tt_param_info *p = st->stack->members[i];
        tt_tensor value, to = member_of(g, i, &p->type);
        feed_tensor(s,
                    st->suffix ? tt_arena_printf(s->arena, "%s.%s", p->name, st->suffix) : p->name,
                    &p->type, &value);
        add_into(&to, &value, false, false);
    }
    for (int64_t i = 0; st->values && i < tt_tensor_numel(g); i++)
        sim_set(g, i, (double)st->values[i]);
    if (st->kind == TT_STATE_SCALAR)
        feed_tensor(s, st->name, &st->type, g);
    for (int64_t i = 0; st->kind == TT_STATE_ACCUMULATOR && i < tt_tensor_numel(g); i++)
        sim_set(g, i, st->accumulate_max ? -INFINITY : 0);
    for (int r = 0; r < s->mesh->world; r++) {
        *state_local(s, st, r) = sim_local(s, &st->type, &st->place, r);
        copy_part(g, state_local(s, st, r));
    }
}

/* ---- kernels ---- */

/* In wide mode the values inside a fused kernel are f64 too. */
static void widen(sim *s, tt_fused *f)
{
    tt_fused_instr *instr = tt_arena_dup(s->arena, f->instr, sizeof *instr * (size_t)f->n_instr);
    for (int i = 0; i < f->n_instr; i++)
        instr[i].dtype = sim_dtype(s, instr[i].dtype);
    f->instr = instr;
}

static const void *sim_attrs(sim *s, const tt_node *n)
{
    const bool product =
        !strcmp(n->op->name, "linear_fused") || !strcmp(n->op->name, "linear_dx_fused");
    if (!s->o.narrow && !strcmp(n->op->name, "linear_fused_rope")) {
        tt_fused_rope *p = tt_arena_dup(s->arena, n->attrs, sizeof *p);
        widen(s, &p->product.program);
        return p;
    }
    if (s->o.narrow || (strcmp(n->op->name, "fused") && !product))
        return n->attrs;
    if (product) {
        tt_fused_product *p = tt_arena_dup(s->arena, n->attrs, sizeof *p);
        widen(s, &p->program);
        return p;
    }
    tt_fused *f = tt_arena_dup(s->arena, n->attrs, sizeof *f);
    widen(s, f);
    return f;
}

static void call_kernel(sim *s, const tt_node *n, const tt_tensor *in, tt_tensor *out)
{
    const tt_kernel *k = sim_kernel(n->op->name);
    if (!k) {
        sim_fail(s, n, "the reference backend has no kernel");
        return;
    }
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = n->op->name,
                        .in = in,
                        .n_in = n->n_in,
                        .out = out,
                        .n_out = n->n_out,
                        .attrs = sim_attrs(s, n),
                        .seed = &(const uint64_t){42},
                        .step = &(const double){1}};
    c.scratch_bytes = k->scratch_bytes ? k->scratch_bytes(&c, 1) : 0;
    c.scratch = tt_arena_alloc(s->arena, c.scratch_bytes + 64);
    tt_error err;
    if (k->run(NULL, &c, &err) != TT_OK)
        sim_fail(s, n, "%s", err.text);
}

/* Segments that differ for rows of v on different ranks of `atoms`, too. */
static tt_tensor ranked_segments(sim *s, const tt_tensor *seg, const tt_value *v,
                                 const tt_placement *atoms)
{
    tt_tensor out = *seg;
    out.data = tt_arena_alloc(s->arena, sim_bytes(seg) + 64);
    for (int r = 0; r < s->mesh->world; r++) {
        const tt_box b = sim_box(s, &v->type, &v->place, r);
        int32_t c[TT_MAX_ATOMS] = {0};
        int code = 0;
        tt_mesh_coords(s->mesh, r, c);
        for (int i = 0; i < atoms->n[0]; i++)
            code = code * 16 + c[TT_ATOM(atoms->atom[0][i])];
        for (int64_t t = b.begin[0]; t < b.end[0]; t++)
            sim_set(&out, t, sim_get(seg, t) * 4096 + code);
    }
    return out;
}

/* A step of a ring, computed on one rank: a query sees the keys that its rank has in that step. */
static void mark_pieces(sim *s, const tt_node *n, tt_tensor *in)
{
    const bool fwd = !strcmp(n->op->name, "attention");
    if (!fwd && strcmp(n->op->name, "attention_bwd"))
        return;
    const int q = fwd ? 4 : 7, k = fwd ? 6 : 9;
    if (!((const tt_attrs_attention *)n->attrs)->ring)
        return;
    in[q] = ranked_segments(s, &in[q], n->in[0], &n->in[0]->place);
    in[k] = ranked_segments(s, &in[k], n->in[1], &n->in[0]->place);
}

static void run_kernel(sim *s, const tt_node *n)
{
    tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
    for (int i = 0; i < n->n_in; i++)
        in[i] = s->global[n->in[i]->id];
    for (int i = 0; i < n->n_out; i++)
        s->global[n->out[i]->id] = out[i] = sim_tensor(s, &n->out[i]->type, NULL, true);
    mark_pieces(s, n, in);
    call_kernel(s, n, in, out);
    for (int r = 0; r < s->mesh->world; r++) {
        for (int i = 0; i < n->n_in; i++)
            in[i] = *local_of(s, n->in[i], r);
        for (int i = 0; i < n->n_out; i++)
            *local_of(s, n->out[i], r) = out[i] =
                sim_local(s, &n->out[i]->type, &n->out[i]->place, r);
        call_kernel(s, n, in, out);
    }
}

static void run_stage_sum(sim *s, const tt_node *n)
{
    const tt_value *v = n->out[0];
    for (int r = -1; r < s->mesh->world; r++) {
        tt_tensor *t = r < 0 ? &s->global[v->id] : local_of(s, v, r);
        *t = r < 0 ? sim_tensor(s, &v->type, NULL, true) : sim_local(s, &v->type, &v->place, r);
        sim_set(t, 0, 0);
        for (int i = 0; i < n->n_in; i++)
            sim_set(t, 0,
                    sim_get(t, 0) +
                        sim_get(r < 0 ? &s->global[n->in[i]->id] : local_of(s, n->in[i], r), 0));
    }
}

/* ---- the step ---- */

static void run_node(sim *s, const tt_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (!s->global[n->in[i]->id].data) {
            sim_fail(s, n, "input %d was never computed", i);
            return;
        }
    if (n->op == &tt_op_param) {
        if (n->param->stack)
            run_state(s, n, n->param->stack->param, n->param->index);
        else
            run_leaf(s, n, n->param->name);
    } else if (n->op == &tt_op_input)
        run_leaf(s, n, n->input_name);
    else if (n->op == &tt_op_state)
        run_state(s, n, n->state, n->accumulate_index);
    else if (n->op == &tt_op_accumulate || n->op == &tt_op_assign)
        write_state(s, n, n->state, n->accumulate_index, n->in[0], n->op == &tt_op_accumulate);
    else if (n->op == &tt_op_fetch || n->op == &tt_op_redistribute || n->op == &tt_op_transfer ||
             n->op == &tt_op_collective)
        run_identity(s, n);
    else if (n->op == &tt_op_stage_sum)
        run_stage_sum(s, n);
    else
        run_kernel(s, n);
    s->n_nodes++;
    for (int i = 0; i < n->n_out && !s->failure[0]; i++)
        check_value(s, n, n->out[i]);
    if (n->accumulate_into)
        write_state(s, n, n->accumulate_into, n->accumulate_index, n->out[0], true);
    for (int i = 0; n->assign_to && i < n->n_out; i++)
        if (n->assign_to[i])
            write_state(s, n, n->assign_to[i], -1, n->out[i], false);
}

static void run_regions(sim *s, bool micro)
{
    for (size_t i = 0; i < s->g->nodes.n && !s->failure[0]; i++) {
        const tt_node *n = s->g->nodes.items[i];
        if ((n->when->region <= TT_BACKWARD) == micro && n->role != TT_NODE_EXPANDED &&
            !n->when
                 ->replicated_stages) /* the stages of a tied parameter are all here: it is updated once */
            run_node(s, n);
    }
}

sim *sim_run(const tt_graph *g, const sim_opts *o)
{
    static const tt_mesh one = {.world = 1};
    tt_arena *a = tt_arena_new();
    sim *s = tt_arena_alloc(a, sizeof *s);
    s->g = g;
    s->arena = a;
    if (o)
        s->o = *o;
    s->mesh = g->placed ? g->mesh : &one;
    const size_t world = (size_t)s->mesh->world;
    s->global = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *s->global);
    s->local = tt_arena_array(a, ((size_t)g->n_values + 1) * world, sizeof *s->local);
    s->state_global = tt_arena_array(a, g->states.n + 1, sizeof *s->state_global);
    s->state_local = tt_arena_array(a, (g->states.n + 1) * world, sizeof *s->state_local);
    for (size_t i = 0; i < g->states.n; i++)
        init_state(s, g->states.items[i]);
    for (s->micro = 0; s->micro < (s->o.micro_batches > 1 ? s->o.micro_batches : 1); s->micro++)
        run_regions(s, true);
    s->micro = 0;
    run_regions(s, false);
    return s;
}

void sim_free(sim *s)
{
    tt_arena_free(s->arena);
}

void sim_require(const sim *s)
{
    if (s->failure[0])
        fail_msg("%s", s->failure);
}

/* ---- reading ---- */

static double *as_doubles(const sim *s, const tt_tensor *t, int64_t *n)
{
    const int64_t count = tt_tensor_numel(t);
    double *out = tt_arena_array(s->arena, (size_t)count + 1, sizeof *out);
    for (int64_t i = 0; i < count; i++)
        out[i] = sim_get(t, i);
    if (n)
        *n = count;
    return out;
}

static double *state_member(const sim *s, const tt_state *st, int index, const tt_type *type,
                            int64_t *n)
{
    const char *why = NULL;
    tt_tensor whole =
        assemble((sim *)(uintptr_t)s, &st->type, &st->place, state_local(s, st, 0), &why);
    if (why)
        fail_msg("state %s: %s", st->name, why);
    whole = member_of(&whole, index, type);
    return as_doubles(s, &whole, n);
}

double *sim_param(const sim *s, const char *name, const char *what, int64_t *n)
{
    double *sum = NULL; /* a tied parameter has an accumulator for each stage */
    for (size_t i = 0; i < s->g->states.n; i++) {
        const tt_state *st = s->g->states.items[i];
        if (!st->stack)
            continue;
        const bool match = !what ? st->kind == TT_STATE_PARAM
                           : !strcmp(what, "grad")
                               ? st->kind == TT_STATE_ACCUMULATOR
                               : st->kind == TT_STATE_OPTIMIZER && !strcmp(st->suffix, what);
        for (int j = 0; match && j < st->stack->n; j++) {
            if (strcmp(st->stack->members[j]->name, name))
                continue;
            int64_t count;
            double *v = state_member(s, st, j, &st->stack->members[j]->type, &count);
            for (int64_t k = 0; sum && k < count; k++)
                v[k] += sum[k];
            sum = v;
            if (n)
                *n = count;
        }
    }
    if (sum)
        return sum;
    fail_msg("no %s of parameter %s", what ? what : "value", name);
    return NULL;
}

double *sim_state(const sim *s, const char *name, int64_t *n)
{
    for (size_t i = 0; i < s->g->states.n; i++)
        if (!strcmp(s->g->states.items[i]->name, name))
            return state_member(s, s->g->states.items[i], -1, &s->g->states.items[i]->type, n);
    fail_msg("no state %s", name);
    return NULL;
}

double *sim_value(const sim *s, const tt_value *v, int64_t *n)
{
    const char *why = NULL;
    const tt_tensor t = assemble((sim *)(uintptr_t)s, &v->type, &v->place, local_of(s, v, 0), &why);
    if (why)
        fail_msg("value %d: %s", v->id, why);
    return as_doubles(s, &t, n);
}

double *sim_global(const sim *s, const tt_value *v, int64_t *n)
{
    return as_doubles(s, &s->global[v->id], n);
}

/* ---- the default feed ---- */

int64_t sim_vocab = 19;

static double uniform(const char *name, int micro, int64_t i)
{
    return tt_rng_uniform(tt_rng_key_make(7, name, (uint64_t)micro), (uint64_t)i);
}

static double feed_token(const tt_graph *g, const char *name, int micro, int64_t i)
{
    const int64_t len = g->tokens / (g->sequences > 0 ? g->sequences : 1), line = i / len,
                  inner = i % len;
    const int64_t cut = len / 2 - 1 > 1 ? len / 2 - 1 : 1; /* two segments a line */
    if (!strcmp(name, "seg"))
        return (double)(line * 2 + (inner >= cut));
    if (!strcmp(name, "pos"))
        return (double)(inner >= cut ? inner - cut : inner);
    if (!strcmp(name, "token_index"))
        return (double)(micro * g->tokens + i);
    const double id = floor(uniform(name, micro, i) * (double)sim_vocab);
    if (!strcmp(name, "ids"))
        return i < 2 ? (double)(sim_vocab - 1) : id;
    return i == 1   ? -100
           : i == 2 ? (double)(sim_vocab - 1)
                    : id; /* the last row lies beside the padding */
}

static bool is_input(const char *name)
{
    return !strcmp(name, "ids") || !strcmp(name, "pos") || !strcmp(name, "seg") ||
           !strcmp(name, "labels") || !strcmp(name, "token_index");
}

void sim_feed(const tt_graph *g, const char *name, const tt_type *t, int micro, double *out)
{
    const int64_t n = tt_type_numel(t);
    for (int64_t i = 0; i < n; i++) {
        if (is_input(name))
            out[i] = feed_token(g, name, micro, i);
        else if (!strcmp(name, "inv_micro"))
            out[i] = 1;
        else if (!strcmp(name, "inv_tokens"))
            out[i] = 1.0 / (double)g->tokens;
        else if (!strcmp(name, "lr"))
            out[i] = 0.01;
        else if (!strcmp(name, "step"))
            out[i] = 3;
        else if (strstr(name, ".exp_avg_sq"))
            out[i] = 1e-4 * (0.1 + uniform(name, 0, i));
        else
            out[i] = tt_normal_quantile(uniform(name, 0, i)) * 0.5 + (t->n_dims == 1 ? 1 : 0);
    }
}
