/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/expert_replicas.h"
#include "passes/passes.h"

/* autodiff: reverse mode on the meaning of values (R1, R6, R16). It never sees a collective: a
 * redistribute is the identity, and its derivative redistributes the summed cotangent to the
 * placement that belongs to its input's placement. */

typedef TT_VEC(tt_value *) value_list;

typedef struct differ {
    tt_builder *b;
    const tt_autodiff_opts *o;
    tt_graph *g;
    value_list *cots;            /* by value id */
    const tt_param_info **needs; /* by value id: a trainable parameter it depends on, or NULL */
    int n_forward;               /* values of the forward */
    value_list *params;          /* by position in g->params: cotangents of the fetches */
} differ;

#define LEAST_ELEMENTS 4096

/* How the cotangent of a value is stored (R1). Where the value is sharded, the cotangent is
 * sharded the same way. Where the value is partial, the cotangent is replicated. Where the value
 * is replicated, the cotangent is partial if dy is. */
static tt_placement cotangent_storage(const tt_placement *a, const tt_placement *dy, int n_dims)
{
    tt_placement p = *a;
    p.partial = (uint16_t)(dy->partial & ~a->partial & ~tt_placement_shard_atoms(a, n_dims));
    p.partial_max = 0;
    return p;
}

static tt_value *to_storage(differ *d, const tt_placement *a, tt_value *v)
{
    const tt_placement want = cotangent_storage(a, &v->place, v->type.n_dims);
    return tt_redistribute(d->b, v, &want);
}

/* Sums first (in follow mode, so that the result is partial wherever a part is), then
 * redistributes once. */
static tt_value *sum_cotangents(differ *d, const tt_placement *a, const value_list *parts)
{
    const bool was = tt_builder_follow(d->b, true);
    tt_value *sum = NULL;
    for (size_t i = 0; i < parts->n; i++) {
        tt_value *p = parts->items[i];
        if (!tt_placement_same_shards(&p->place, a))
            p = to_storage(d, a, p);
        sum = sum ? tt_add(d->b, sum, p) : p;
    }
    tt_builder_follow(d->b, was);
    return sum;
}

static void push(differ *d, const tt_value *v, tt_value *cot)
{
    if (v->id < 0 || v->id >= d->n_forward || !d->needs[v->id])
        return;
    tt_vec_push(d->g->arena, &d->cots[v->id], cot);
}

static bool is_float(const tt_value *v)
{
    return tt_dtype_is_float(v->type.dtype);
}

/* Of the nodes from number `from` to before `to`. */
static void mark_needs(differ *d, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        const tt_node *n = d->g->nodes.items[i];
        if (n->op->flags & TT_OP_NO_GRADIENT)
            continue;
        const tt_param_info *p = n->op == &tt_op_fetch && !n->param->frozen ? n->param : NULL;
        for (int j = 0; n->op != &tt_op_fetch && !p && j < n->n_in; j++)
            if (n->in[j]->id >= 0)
                p = d->needs[n->in[j]->id];
        for (int j = 0; p && j < n->n_out; j++)
            if (is_float(n->out[j]))
                d->needs[n->out[j]->id] = p;
    }
}

static tt_status differentiate(differ *d, tt_node *n, tt_error *err);

/* The nodes from number `from` to before `to`, which are of this region, backwards. */
static tt_status differentiate_all(differ *d, size_t from, size_t to, tt_region region,
                                   tt_error *err)
{
    for (size_t i = to; i-- > from;) {
        tt_node *n = d->g->nodes.items[i];
        if (n->when->region != region || n->op == &tt_op_input || n->op == &tt_op_param ||
            n->op == &tt_op_state || n->role == TT_NODE_INNER)
            continue;
        TT_TRY(differentiate(d, n, err));
    }
    return TT_OK;
}

/* v under a name of its own: no placement of v that other nodes made is one of it, so that all ways
 * from it to the decomposition's results are nodes of the decomposition. */
static tt_value *own_name(differ *d, tt_value *v)
{
    const bool was = tt_builder_follow(d->b, true);
    v = tt_reshape(d->b, v, v->type.dims, v->type.n_dims);
    tt_builder_follow(d->b, was);
    return v;
}

/* The derivative of an op that has a kernel and no vjp is that of its decomposition, which the backward
 * writes out on the operands that the kernel had. What the derivative does not read is never run. */
static tt_status differentiate_parts(differ *d, tt_node *n, tt_value *const *dout,
                                     const unsigned char *want, tt_value **din, tt_error *err)
{
    tt_value *in[TT_MAX_INS], *out[TT_MAX_OUTS] = {NULL};
    for (int i = 0; i < n->n_in; i++)
        in[i] = want[i] ? own_name(d, n->in[i]) : n->in[i];
    const size_t begin = d->g->nodes.n;
    tt_op_written_out(d->b, n, in, out);
    TT_TRY(tt_builder_finish(d->b, err));
    const size_t end = d->g->nodes.n;
    differ parts = {.b = d->b, .o = d->o, .g = d->g, .n_forward = d->g->n_values};
    parts.cots = tt_arena_array(d->g->arena, (size_t)d->g->n_values + 1, sizeof *parts.cots);
    parts.needs = tt_arena_array(d->g->arena, (size_t)d->g->n_values + 1, sizeof *parts.needs);
    for (int i = 0; i < n->n_in; i++)
        if (want[i])
            parts.needs[in[i]->id] = d->needs[n->in[i]->id];
    mark_needs(&parts, begin, end);
    for (int i = 0; i < n->n_out; i++)
        if (dout[i])
            push(&parts, out[i], dout[i]);
    TT_TRY(differentiate_all(&parts, begin, end, TT_BACKWARD, err));
    tt_builder_at(d->b, TT_BACKWARD, n->when->stage, n->block, n->scope);
    for (int i = 0; i < n->n_in; i++)
        if (want[i] && parts.cots[in[i]->id].n)
            din[i] = sum_cotangents(&parts, &in[i]->place, &parts.cots[in[i]->id]);
    return tt_builder_finish(d->b, err);
}

static tt_status call_vjp(differ *d, tt_node *n, tt_value **dout, tt_error *err)
{
    unsigned char want[TT_MAX_INS];
    tt_value *din[TT_MAX_INS] = {0};
    const tt_param_info *p = NULL;
    const size_t first = d->g->nodes.n;
    for (int i = 0; i < n->n_in; i++) {
        want[i] = n->in[i]->id >= 0 && d->needs[n->in[i]->id];
        if (want[i] && !p)
            p = d->needs[n->in[i]->id];
    }
    if (!p)
        return TT_OK;
    const bool expanded = n->role == TT_NODE_EXPANDED;
    if (n->custom_vjp) {
        n->custom_vjp(d->b, n->in, n->n_in, n->out[0], dout[0], din, n->custom_user);
    } else if (n->op->vjp) {
        tt_vjp c = {.struct_size = sizeof c,
                    .n_in = n->n_in,
                    .n_out = n->n_out,
                    .in = n->in,
                    .out = n->out,
                    .dout = dout,
                    .want = want,
                    .din = din,
                    .attrs = n->attrs};
        n->op->vjp(d->b, &c);
    } else if (n->op->decompose && !expanded) {
        TT_TRY(differentiate_parts(d, n, dout, want, din, err));
    } else {
        return TT_FAIL(err, TT_EINVAL,
                       "op %s in \"%s\" has no derivative, but parameter %s is trained through "
                       "it: give the op a vjp%s, freeze the parameter, or, if the parameter has "
                       "another way to the loss, put tt_stop_gradient around the op's input",
                       n->op->name, n->scope ? n->scope : "", p->name,
                       expanded ? "" : " or a decompose, whose derivative it then has");
    }
    TT_TRY(tt_builder_finish(d->b, err));
    for (size_t i = first; i < d->g->nodes.n; i++)
        if (!d->g->nodes.items[i]->derivative_of)
            d->g->nodes.items[i]->derivative_of = n;
    for (int i = 0; i < n->n_in; i++)
        if (din[i] && want[i])
            push(d, n->in[i], din[i]);
    return TT_OK;
}

/* The placement of a parameter's accumulator. Over atoms that do not shard the stored parameter
 * the sum stays partial: the epilogue reduces it once per step (C11). */
static tt_placement accumulator_storage(const differ *d, const tt_param_info *p,
                                        const tt_value *cot)
{
    return cotangent_storage(d->o->sink ? &p->compute : &p->stored, &cot->place, cot->type.n_dims);
}

/* With one micro-batch per step and communication that runs concurrently with computation,
 * gradients are summed over replicas at once: as many bytes are sent, and the backward hides
 * them. Small gradients wait, because one call in the epilogue reduces a whole stack of them. */
static tt_value *reduce_replicas(const differ *d, const tt_param_info *p, tt_value *v)
{
    const tt_axis *r = tt_mesh_axis(d->g->mesh, "dp_replicate");
    tt_placement want = v->place;
    if (!d->o->at_once || !r || tt_type_numel(&p->type) < LEAST_ELEMENTS)
        return v;
    for (int i = 0; i < r->atoms.n; i++)
        want.partial &= (uint16_t) ~(1u << TT_ATOM(r->atoms.atom[i]));
    return tt_redistribute(d->b, v, &want);
}

/* Can these cotangents be added to their parameter's accumulator one by one, so that none has to
 * stay in memory until the others exist? Not where they are reduced: they are summed first and
 * reduced once (C11). Not where a pipeline's forward makes one and its backward the other: the
 * schedule would then decide in which order they are added, and so the bits (P5). */
static bool added_apart(const differ *d, const tt_param_info *p, const value_list *cots)
{
    for (size_t k = 0; k < cots->n; k++) {
        const tt_value *c = cots->items[k], *first = cots->items[0];
        const tt_placement want = accumulator_storage(d, p, c);
        if (!tt_placement_equal(&want, &c->place) ||
            !tt_placement_equal(&c->place, &first->place) || c->type.dtype != first->type.dtype ||
            (d->g->n_stages > 1 &&
             c->node->when->in_chunk_loop != first->node->when->in_chunk_loop))
            return false;
    }
    return true;
}

static void cotangents_of_fetch(differ *d, const tt_node *fetch)
{
    const tt_value *v = fetch->out[0];
    const value_list *cots = &d->cots[v->id];
    value_list *all = &d->params[fetch->param->number];
    const bool apart = added_apart(d, fetch->param, cots);
    for (size_t i = 0; apart && i < cots->n; i++)
        tt_vec_push(d->g->arena, all, cots->items[i]);
    if (!apart)
        tt_vec_push(d->g->arena, all, sum_cotangents(d, &v->place, cots));
}

static tt_status differentiate(differ *d, tt_node *n, tt_error *err)
{
    tt_value *dout[TT_MAX_OUTS] = {0};
    bool any = false;
    tt_builder_at(d->b, TT_BACKWARD, n->when->stage, n->block, n->scope);
    tt_builder_chunk_loop(d->b, n->when->in_chunk_loop);
    if (n->op == &tt_op_fetch && n->out[0]->id < d->n_forward) {
        cotangents_of_fetch(d, n);
        return TT_OK;
    }
    for (int i = 0; i < n->n_out; i++) {
        const tt_value *v = n->out[i];
        if (v->id >= d->n_forward || !d->cots[v->id].n)
            continue;
        dout[i] = sum_cotangents(d, &v->place, &d->cots[v->id]);
        any = true;
    }
    if (!any)
        return TT_OK;
    if (n->op == &tt_op_replica_weight) {
        tt_replica_gradient_keep(d->b, n, to_storage(d, &n->out[0]->place, dout[0]));
        return TT_OK;
    }
    if (n->op == &tt_op_transfer) {
        push(d, n->in[0], tt_transfer(d->b, dout[0], n->in[0]->node->when->stage));
        return TT_OK;
    }
    if (n->op == &tt_op_redistribute) {
        push(d, n->in[0], to_storage(d, &n->in[0]->place, dout[0]));
        return TT_OK;
    }
    for (int i = 0; i < n->n_out; i++)
        if (dout[i])
            dout[i] = to_storage(d, &n->out[i]->place, dout[i]);
    tt_builder_follow(d->b, n->follow);
    tt_builder_finest(d->b, n->finest);
    tt_status s = call_vjp(d, n, dout, err);
    tt_builder_follow(d->b, false);
    tt_builder_finest(d->b, false);
    return s;
}

static void seed(differ *d)
{
    tt_graph *g = d->g;
    const tt_placement whole = {0};
    const tt_type scalar = {.dtype = TT_F32};
    tt_state *inv = tt_state_new(g, TT_STATE_SCALAR, TT_SCALAR_INV_TOKENS, &scalar, &whole);
    tt_state *micro = NULL;
    tt_value *v = g->loss;
    tt_loss_scale_make(g, &d->o->loss_scale);
    tt_builder_at(d->b, TT_BACKWARD, v->node->when->stage, v->node->block, "loss");
    tt_builder_chunk_loop(d->b, v->node->when->in_chunk_loop);
    push(d, v, tt_broadcast_like(d->b, tt_loss_scaled(d->b, tt_state_read(d->b, inv)), v));
    tt_builder_chunk_loop(d->b, false);
    for (size_t i = 0; i < g->losses.n; i++) {
        v = g->losses.items[i].value;
        tt_builder_at(d->b, TT_BACKWARD, v->node->when->stage, v->node->block, "loss");
        tt_builder_chunk_loop(d->b, v->node->when->in_chunk_loop);
        tt_value *w = tt_const(d->b, g->losses.items[i].weight, TT_F32);
        if (v->type.n_dims) {
            w = tt_mul(d->b, w, tt_state_read(d->b, inv));
        } else { /* the mean over micro-batches, so that accumulation does not change it */
            if (!micro)
                micro = tt_state_new(g, TT_STATE_SCALAR, TT_SCALAR_INV_MICRO, &scalar, &whole);
            w = tt_mul(d->b, w, tt_state_read(d->b, micro));
        }
        push(d, v, tt_broadcast_like(d->b, tt_loss_scaled(d->b, w), v));
        tt_builder_chunk_loop(d->b, false);
    }
}

/* ---- stacks ---- */

typedef struct stack_key {
    const tt_param_info *p;
    tt_placement grad;
    const value_list *grads; /* what is accumulated, lowest stage first */
    bool early;              /* none is: the backward updates the parameter */
} stack_key;

static bool tied_over_stages(const tt_param_info *p)
{
    return __builtin_popcountll(p->stages) > 1;
}

static bool same_stack(const stack_key *a, const stack_key *b)
{
    const tt_param_info *p = a->p, *q = b->p;
    if (p->type.n_dims != q->type.n_dims || p->type.dtype != q->type.dtype ||
        p->group != q->group || p->stages != q->stages || p->frozen != q->frozen)
        return false;
    for (int i = 0; i < p->type.n_dims; i++)
        if (p->type.dims[i].size != q->type.dims[i].size ||
            p->type.dims[i].unit != q->type.dims[i].unit)
            return false;
    return tt_placement_equal(&p->stored, &q->stored) && tt_placement_equal(&a->grad, &b->grad);
}

/* Makes one accumulator per stage that uses a tied parameter. If the stages shared one, the bits
 * would depend on the schedule (P6). */
static void make_stage_grads(tt_graph *g, tt_stack *s, const tt_type *t, const value_list *grads)
{
    s->grads = tt_arena_array(g->arena, grads->n, sizeof *s->grads);
    for (size_t i = 0; i < grads->n; i++) {
        const tt_value *v = grads->items[i];
        if (i && v->node->when->stage == grads->items[i - 1]->node->when->stage)
            continue;
        tt_state *a = s->grad;
        if (i) {
            const tt_placement place = tt_stack_placement(&v->place);
            a = tt_state_new(
                g, TT_STATE_ACCUMULATOR,
                tt_arena_printf(g->arena, "stack.%d.grad.stage.%d", s->id, v->node->when->stage), t,
                &place);
            a->stack = s;
        }
        a->stages = UINT64_C(1) << v->node->when->stage;
        s->grads[s->n_grads++] = a;
    }
}

/* alone: each parameter is a stack of its own. */
static void make_stacks(tt_graph *g, const stack_key *keys, bool alone)
{
    const size_t n = g->params.n;
    for (size_t i = 0; i < n; i++) {
        if (g->params.items[i]->stack)
            continue;
        tt_stack *s = tt_arena_alloc(g->arena, sizeof *s);
        s->id = (int)g->stacks.n;
        s->group = g->params.items[i]->group;
        s->members = tt_arena_array(g->arena, n - i, sizeof *s->members);
        for (size_t j = i; j < n; j++) {
            tt_param_info *p = g->params.items[j];
            if (p->stack || (alone && j > i) || !same_stack(&keys[i], &keys[j]) ||
                (j > i && tied_over_stages(p)))
                continue;
            p->stack = s;
            p->index = s->n;
            s->members[s->n++] = p;
        }
        const tt_param_info *first = s->members[0];
        const tt_type t = tt_stack_type(&first->type, s->n);
        tt_placement place = tt_stack_placement(&first->stored);
        s->param = tt_state_new(g, TT_STATE_PARAM, tt_arena_printf(g->arena, "stack.%d", s->id), &t,
                                &place);
        s->param->stack = s;
        s->param->stages = first->stages;
        if (!first->frozen && !keys[i].early) {
            tt_type grad = t;
            grad.dtype = tt_dtype_accumulate(t.dtype);
            place = tt_stack_placement(&keys[i].grad);
            s->grad =
                tt_state_new(g, TT_STATE_ACCUMULATOR,
                             tt_arena_printf(g->arena, "stack.%d.grad", s->id), &grad, &place);
            s->grad->stack = s;
            s->grad->stages = first->stages;
            if (tied_over_stages(first))
                make_stage_grads(g, s, &grad, keys[i].grads);
        }
        tt_vec_push(g->arena, &g->stacks, s);
    }
}

/* Is the gradient a sum over the token chunks, which needs an accumulator? So does one of several parts
 * (a tied parameter): it takes one array instead of one for each part. */
static bool sums_chunks(const value_list *cots)
{
    for (size_t k = 0; k < cots->n; k++)
        if (cots->items[k]->node->when->in_chunk_loop)
            return true;
    return false;
}

static tt_value *cast_in_place(differ *d, tt_value *v, tt_dtype to)
{
    const tt_attrs_cast a = {.to = to};
    if (v->type.dtype == to || v->type.dtype == TT_F64)
        return v;
    tt_builder_at(d->b, TT_BACKWARD, v->node->when->stage, v->node->block, v->node->scope);
    const bool was = tt_builder_follow(d->b, true);
    tt_op(d->b, "cast", &v, 1, &a, &v, 1);
    tt_builder_follow(d->b, was);
    return v;
}

/* A cotangent in the dtype in which it is summed and reduced (R6). If the job reduces in bf16,
 * it is rounded before it is summed. The op is "cast", not "cast_down", because it must let a
 * partial value pass. */
static tt_value *in_reduce_dtype(differ *d, tt_value *v)
{
    return cast_in_place(d, v, d->o->sink ? TT_F32 : d->g->precision.reduce);
}

/* Accumulators are f32 whatever the reduce dtype is. */
static tt_value *accumulated(differ *d, tt_value *v)
{
    return cast_in_place(d, v, TT_F32);
}

/* Sums and reduces the cotangents of all fetches of a parameter. With sinking, nothing is
 * reduced here: update.c does that once per step. */
static void reduce_cotangents(differ *d, const tt_param_info *p, const value_list *cots,
                              value_list *out)
{
    const bool apart = added_apart(d, p, cots);
    for (size_t k = 0; k < cots->n; k++)
        cots->items[k] = in_reduce_dtype(d, cots->items[k]);
    for (size_t k = 0; apart && cots->n > 1 && k < cots->n; k++)
        tt_vec_push(d->g->arena, out, accumulated(d, cots->items[k]));
    if (!apart || cots->n == 1) {
        const tt_node *at = cots->items[cots->n - 1]->node;
        tt_builder_at(d->b, TT_BACKWARD, at->when->stage, at->block, p->name);
        tt_value *sum = sum_cotangents(d, &p->compute, cots);
        const tt_placement want = accumulator_storage(d, p, sum);
        sum = reduce_replicas(d, p, tt_redistribute(d->b, sum, &want));
        tt_vec_push(d->g->arena, out, accumulated(d, sum));
    }
}

/* Reduces every parameter's cotangent over the atoms that shard its storage and adds it to the
 * accumulator, which is partial over the others (C11). */
static tt_status accumulate(differ *d, tt_error *err)
{
    tt_graph *g = d->g;
    stack_key *keys = tt_arena_array(g->arena, g->params.n + 1, sizeof *keys);
    value_list *grads = tt_arena_array(g->arena, g->params.n + 1, sizeof *grads);
    for (size_t i = 0; i < g->params.n; i++) {
        tt_param_info *p = g->params.items[i];
        keys[i].p = p;
        if (!d->params[i].n) {
            if (!p->frozen)
                return TT_FAIL(err, TT_EINVAL,
                               "parameter %s does not influence the loss: remove it, or freeze it",
                               p->name);
            continue;
        }
        for (int stage = 0; stage < g->n_stages; stage++) {
            value_list here = {0};
            for (size_t k = 0; k < d->params[i].n; k++)
                if (d->params[i].items[k]->node->when->stage == stage)
                    tt_vec_push(g->arena, &here, d->params[i].items[k]);
            if (!here.n)
                continue;
            reduce_cotangents(d, p, &here, &grads[i]);
        }
        keys[i].grad = grads[i].items[0]->place;
        keys[i].grads = &grads[i];
        keys[i].early = d->o->early && grads[i].n == 1 && !sums_chunks(&d->params[i]);
    }
    make_stacks(g, keys, d->o->early);
    for (size_t i = 0; i < g->params.n; i++) {
        if (keys[i].early)
            g->params.items[i]->stack->early_grad = grads[i].items[0];
        for (size_t k = 0; !keys[i].early && k < grads[i].n; k++) {
            const tt_param_info *p = g->params.items[i];
            const tt_node *at = grads[i].items[k]->node;
            tt_builder_at(d->b, TT_BACKWARD, at->when->stage, at->block, p->name);
            tt_accumulate(d->b, tt_stack_grad(p->stack, at->when->stage), p->index,
                          grads[i].items[k]);
        }
    }
    return tt_builder_finish(d->b, err);
}

tt_status tt_pass_autodiff(tt_builder *b, const tt_autodiff_opts *o, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    differ d = {.b = b, .o = o, .g = g, .n_forward = g->n_values};
    const size_t n_nodes = g->nodes.n;
    d.cots = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *d.cots);
    d.needs = tt_arena_array(g->arena, (size_t)g->n_values + 1, sizeof *d.needs);
    d.params = tt_arena_array(g->arena, g->params.n + 1, sizeof *d.params);
    mark_needs(&d, 0, n_nodes);
    seed(&d);
    TT_TRY(differentiate_all(&d, 0, n_nodes, TT_FORWARD, err));
    tt_builder_chunk_loop(b, false);
    TT_TRY(tt_builder_finish(b, err));
    TT_TRY(accumulate(&d, err));
    return tt_graph_verify(g, "autodiff", err);
}
