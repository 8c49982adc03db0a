/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include <string.h>

/* Binding: plan → instructions with addresses, kernels and groups of this rank. */

void *tt_exec_state_data(const tt_exec *x, const tt_state *s, int member)
{
    const int64_t at = x->o.plan->state[s->id];
    if (at < 0)
        return NULL;
    int64_t skip = 0;
    if (member > 0) { /* members are as large as this rank's box, not the largest */
        tt_box b;
        tt_box_of(x->o.mesh, s->type.dims, s->type.n_dims, &s->place, x->coords, &b);
        b.begin[0] = 0;
        b.end[0] = member;
        skip = tt_box_numel(&b, s->type.n_dims) * (int64_t)tt_dtype_size(s->type.dtype);
    }
    return x->space[TT_SPACE_STATE] + at + skip;
}

/* A parameter of another program: found by name. */
static void *parent_param(const tt_exec *x, const tt_param_info *p)
{
    const tt_graph *g = x->o.parent->o.plan->graph;
    for (size_t i = 0; i < g->params.n; i++)
        if (!strcmp(g->params.items[i]->name, p->name))
            return tt_exec_state_data(x->o.parent, g->params.items[i]->stack->param,
                                      g->params.items[i]->index);
    return NULL;
}

void *tt_exec_address(const tt_exec *x, const tt_value *v, int64_t *slot_bytes)
{
    const tt_plan *p = x->o.plan;
    const tt_value *root = tt_plan_alias(v);
    const tt_loc *l = &p->value[v->id];
    *slot_bytes = 0;
    if (root->node->op == &tt_op_param && x->o.parent)
        return parent_param(x, root->node->param);
    switch (l->space) {
    case TT_SPACE_STATE:
        return tt_exec_state_data(x, l->state, l->member);
    case TT_SPACE_WORK:
        return x->space[TT_SPACE_WORK] + l->offset;
    case TT_SPACE_SLOT:
        for (int i = 0; i < p->n_stages; i++)
            if (p->stages[i].stage == root->node->stage) {
                *slot_bytes = p->stages[i].slot_bytes;
                return x->space[TT_SPACE_SLOT] + p->stages[i].slot_base + l->offset;
            }
        return NULL;
    default:
        return NULL;
    }
}

static tt_extent extent_of(const tt_graph *g, const tt_value *v)
{
    const char *label = g->slots && v->type.n_dims > 0 ? v->type.dims[0].label : NULL;
    if (!label || v->node->op == &tt_op_param || v->node->op == &tt_op_state)
        return TT_EXTENT_NONE;
    return !strcmp(label, TT_LABEL_TOKENS)   ? TT_EXTENT_TOKENS
           : !strcmp(label, TT_LABEL_PICKED) ? TT_EXTENT_PICKED
                                             : TT_EXTENT_NONE;
}

static void bind_operand(const tt_exec *x, const tt_value *v, tt_operand *o)
{
    tt_plan_tensor(x->o.plan->graph, v, x->coords, &o->tensor);
    o->extent = extent_of(x->o.plan->graph, v);
    o->tensor.data = tt_exec_address(x, v, &o->slot_bytes);
}

static void bind_state(const tt_exec *x, const tt_state *s, int member, const tt_type *like,
                       const tt_placement *place, tt_operand *o)
{
    const tt_value v = {.type = *like, .place = *place};
    tt_plan_tensor(x->o.plan->graph, &v, x->coords, &o->tensor);
    o->tensor.data = tt_exec_state_data(x, s, member);
}

static tt_status find_kernel(tt_exec *x, tt_instr *i, const char *op, tt_error *err)
{
    i->kernel = x->o.backend->kernel(x->o.backend_self, op);
    if (!i->kernel)
        return TT_FAIL(err, TT_EUNSUPPORTED, "the backend has no kernel for op %s (in \"%s\")", op,
                       i->node->scope);
    return TT_OK;
}

/* Operands of loop nodes: which run over the chunk's rows, and from where. */
static void bind_chunks(const tt_exec *x, tt_instr *i, const tt_node *n)
{
    const tt_graph *g = x->o.plan->graph;
    bool token_in = false, token_out = false;
    for (int j = 0; n->map && j < n->n_in + n->n_out; j++) {
        const bool in = j < n->n_in;
        const tt_value *v = in ? n->in[j] : n->out[j - n->n_in];
        tt_operand *o = in ? &i->in[j] : &i->out[j - n->n_in];
        if (!tt_plan_per_token(g, v))
            continue;
        *(in ? &token_in : &token_out) = true;
        o->rows = true;
        int64_t row = (int64_t)tt_dtype_size(v->type.dtype);
        for (int d = 1; d < o->tensor.n_dims; d++)
            row *= o->tensor.shape[d];
        o->row_bytes = tt_plan_alias(v)->chunked ? 0 : row;
    }
    i->sums = token_in && !token_out;
}

static tt_instr *append(tt_exec *x, tt_instr_list *l, tt_instr_kind kind, const tt_node *n)
{
    if (l->n == l->cap) {
        const int cap = l->cap ? 2 * l->cap : 64;
        tt_instr *more = tt_arena_array(x->arena, (size_t)cap, sizeof *more);
        if (l->n)
            memcpy(more, l->items, (size_t)l->n * sizeof *more);
        l->items = more;
        l->cap = cap;
    }
    tt_instr *i = &l->items[l->n++];
    *i = (tt_instr){.kind = kind, .node = n};
    return i;
}

static void bind_operands(tt_exec *x, tt_instr *i, const tt_node *n)
{
    i->n_in = n->n_in;
    i->n_out = n->n_out;
    i->in = tt_arena_array(x->arena, (size_t)n->n_in + 2, sizeof *i->in);
    i->out = tt_arena_array(x->arena, (size_t)n->n_out + 1, sizeof *i->out);
    for (int j = 0; j < n->n_in; j++)
        bind_operand(x, n->in[j], &i->in[j]);
    for (int j = 0; j < n->n_out; j++)
        bind_operand(x, n->out[j], &i->out[j]);
    if (x->o.plan->scratch[n->id] >= 0) {
        i->scratch = x->space[TT_SPACE_WORK] + x->o.plan->scratch[n->id];
        i->scratch_bytes = (size_t)x->o.plan->scratch_bytes[n->id];
    }
    bind_chunks(x, i, n);
}

static tt_status bind_write(tt_exec *x, tt_instr_list *l, const tt_node *n, tt_error *err)
{
    const bool acc = n->op == &tt_op_accumulate;
    tt_instr *i = append(x, l, acc ? TT_INSTR_ACCUMULATE : TT_INSTR_ASSIGN, n);
    bind_operands(x, i, n);
    i->n_out = 1;
    i->again = n->again;
    bind_state(x, n->state, n->accumulate_index, &n->in[0]->type, &n->in[0]->place, &i->out[0]);
    return acc ? find_kernel(x, i, tt_accumulate_kernel(n->state), err) : TT_OK;
}

static tt_status bind_transfer(tt_exec *x, tt_instr_list *l, const tt_node *n, tt_error *err)
{
    (void)err;
    tt_instr *i = append(x, l, TT_INSTR_RECV, n);
    bind_operands(x, i, n);
    i->n_in = 0;
    i->peer = x->o.plan->schedule->stage_rank[n->in[0]->node->stage];
    return TT_OK;
}

static tt_status bind_node(tt_exec *x, tt_instr_list *l, const tt_node *n, tt_error *err)
{
    tt_instr *i;
    if (n->op == &tt_op_param || n->op == &tt_op_state)
        return TT_OK;
    if (n->n_out == 1 && (n->op->flags & TT_OP_VIEW) && n->n_in >= 1 && !n->accumulate_into)
        return TT_OK; /* its input's memory */
    if (n->op == &tt_op_accumulate || n->op == &tt_op_assign)
        return bind_write(x, l, n, err);
    if (n->op == &tt_op_transfer)
        return bind_transfer(x, l, n, err);
    if (n->op == &tt_op_input) {
        i = append(x, l, TT_INSTR_INPUT, n);
        bind_operands(x, i, n);
        i->input = n->input_name;
        return TT_OK;
    }
    if (n->op == &tt_op_stage_sum) {
        i = append(x, l, TT_INSTR_STAGE_SUM, n);
        bind_operands(x, i, n);
        return TT_OK;
    }
    if (n->op == &tt_op_collective) {
        i = append(x, l, TT_INSTR_COLLECTIVE, n);
        bind_operands(x, i, n);
        return tt_exec_bind_collective(x, i, err);
    }
    i = append(x, l, TT_INSTR_KERNEL, n);
    bind_operands(x, i, n);
    i->adds = n->accumulate_into != NULL;
    i->again = n->again;
    return find_kernel(x, i, n->op->name, err);
}

/* What other stages read is sent when the list is done, in node order on both ends. */
static void bind_sends(tt_exec *x, tt_instr_list *l, int stage, tt_region region)
{
    const tt_graph *g = x->o.plan->graph;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *t = g->nodes.items[i];
        if (t->op != &tt_op_transfer || t->region != region || t->in[0]->node->stage != stage)
            continue;
        tt_instr *s = append(x, l, TT_INSTR_SEND, t);
        s->n_in = 1;
        s->in = tt_arena_array(x->arena, 1, sizeof *s->in);
        bind_operand(x, t->in[0], &s->in[0]);
        s->peer = x->o.plan->schedule->stage_rank[t->stage];
    }
}

/* Inputs are filled first: the plan counts on it. */
static tt_status bind_list(tt_exec *x, tt_instr_list *l, tt_node *const *nodes, int n,
                           tt_error *err)
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n; i++)
            if ((nodes[i]->op == &tt_op_input) == (pass == 0))
                TT_TRY(bind_node(x, l, nodes[i], err));
    return TT_OK;
}

static int most_operands(const tt_exec *x)
{
    int most = 1;
    for (size_t i = 0; i < x->o.plan->graph->nodes.n; i++) {
        const tt_node *n = x->o.plan->graph->nodes.items[i];
        most = TT_MAXV(most, n->n_in + n->n_out + 2);
    }
    return most;
}

tt_status tt_exec_bind(tt_exec *x, tt_error *err)
{
    const tt_plan *p = x->o.plan;
    const tt_axis *pp = tt_mesh_axis(x->o.mesh, "pp");
    if (pp) {
        TT_TRY(tt_exec_group(x, &pp->atoms, &x->pipeline, err));
        x->pp = x->coords[TT_ATOM(pp->atoms.atom[0])];
    }
    x->n_code = p->n_stages;
    x->code = tt_arena_array(x->arena, (size_t)p->n_stages + 1, sizeof *x->code);
    for (int s = 0; s < p->n_stages; s++) {
        const tt_stage_plan *sp = &p->stages[s];
        tt_stage_code *c = &x->code[s];
        c->stage = sp->stage;
        TT_TRY(bind_list(x, &c->lists[TT_FORWARD], sp->forward, sp->n_forward, err));
        bind_sends(x, &c->lists[TT_FORWARD], sp->stage, TT_FORWARD);
        TT_TRY(bind_list(x, &c->lists[TT_BACKWARD], sp->backward, sp->n_backward, err));
        bind_sends(x, &c->lists[TT_BACKWARD], sp->stage, TT_BACKWARD);
        TT_TRY(bind_list(x, &c->lists[TT_EPILOGUE], sp->epilogue, sp->n_epilogue, err));
        TT_TRY(bind_list(x, &c->lists[TT_UPDATE], sp->update, sp->n_update, err));
    }
    x->args = tt_arena_array(x->arena, (size_t)most_operands(x), sizeof *x->args);
    return TT_OK;
}
