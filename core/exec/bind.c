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

/* A buffer of another program: found by name. */
static void *parent_buffer(const tt_exec *x, const tt_state *s)
{
    const tt_graph *g = x->o.parent->o.plan->graph;
    for (size_t i = 0; i < g->states.n; i++)
        if (g->states.items[i]->kind == TT_STATE_BUFFER &&
            !strcmp(g->states.items[i]->name, s->name))
            return tt_exec_state_data(x->o.parent, g->states.items[i], -1);
    return NULL;
}

static void find_address(const tt_exec *x, const tt_value *v, tt_operand *o)
{
    const tt_plan *p = x->o.plan;
    const tt_value *root = tt_plan_alias(v);
    const tt_loc *l = &p->value[v->id];
    o->tensor.data = NULL;
    if (root->node->op == &tt_op_param && x->o.parent) {
        o->tensor.data = parent_param(x, root->node->param);
    } else if (root->node->op == &tt_op_state && root->node->state->kind == TT_STATE_BUFFER &&
               x->o.parent) {
        o->tensor.data = parent_buffer(x, root->node->state);
    } else if (l->space == TT_SPACE_STATE) {
        o->tensor.data = tt_exec_state_data(x, l->state, l->member);
    } else if (l->space == TT_SPACE_WORK) {
        o->tensor.data = x->space[TT_SPACE_WORK] + l->offset;
    } else if (tt_space_holds(l->space)) {
        const int hold = (int)l->space - TT_SPACE_SLOT;
        const tt_stage_plan *s = tt_plan_stage(p, root->node->stage);
        if (!s)
            return;
        o->tensor.data = x->space[l->space] + s->slot_base[hold] + l->offset;
        o->slot = s->slot[hold];
        o->slot_bytes = s->slot_bytes[hold];
    }
    if (o->tensor.data)
        o->tensor.data = (char *)o->tensor.data + tt_plan_skip(p->graph, v, x->coords);
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
    find_address(x, v, o);
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
    i->kernel = tt_find_kernel(x->o.kernels, x->o.backend_self, op);
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
    *i = (tt_instr){.kind = kind, .node = n, .waits = l->waits, .n_waits = l->n_waits};
    l->waits = NULL; /* what the list waited for when it ended here */
    l->n_waits = 0;
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

/* One end of a transfer, or both where the stages are on this rank. */
static void bind_transfer(tt_exec *x, tt_instr_list *l, const tt_node *n)
{
    const tt_plan *p = x->o.plan;
    const int from = n->in[0]->node->stage, to = n->stage;
    const bool gives = tt_plan_stage(p, from), takes = tt_plan_stage(p, to);
    tt_instr *i = append(x, l,
                         gives && takes ? TT_INSTR_ASSIGN
                         : gives        ? TT_INSTR_SEND
                                        : TT_INSTR_RECV,
                         n);
    bind_operands(x, i, n);
    i->n_in = gives;
    i->n_out = takes;
    i->peer = p->schedule->stage_rank[gives ? to : from];
}

/* The same sum is wanted on each stage; all ranks of the pipeline meet for it once. */
static void bind_stage_sum(tt_exec *x, tt_instr_list *l, const tt_node *n)
{
    tt_instr *i = append(x, l, TT_INSTR_STAGE_SUM, n);
    bind_operands(x, i, n);
    for (int k = 0; !i->twin && k < l->n - 1; k++) {
        const tt_instr *o = &l->items[k];
        i->twin = o->kind == TT_INSTR_STAGE_SUM && !o->twin && o->node->n_in == n->n_in &&
                  !memcmp(o->node->in, n->in, sizeof *n->in * (size_t)n->n_in);
        i->sum = o->sum;
    }
    if (!i->twin)
        i->sum = tt_arena_alloc(x->arena, sizeof *i->sum);
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
    if (n->op == &tt_op_transfer) {
        if (n->region > TT_BACKWARD) /* else received before its part, sent behind another */
            bind_transfer(x, l, n);
        return TT_OK;
    }
    if (n->op == &tt_op_input) {
        i = append(x, l, TT_INSTR_INPUT, n);
        bind_operands(x, i, n);
        i->input = n->input_name;
        return TT_OK;
    }
    if (n->op == &tt_op_stage_sum) {
        bind_stage_sum(x, l, n);
        return TT_OK;
    }
    if (n->op == &tt_op_collective) {
        if (tt_exec_lies_there(n))
            return TT_OK;
        i = append(x, l, TT_INSTR_COLLECTIVE, n);
        bind_operands(x, i, n);
        TT_TRY(tt_exec_bind_collective(x, i, err));
        return tt_exec_bind_flight(x, i, err);
    }
    i = append(x, l, TT_INSTR_KERNEL, n);
    bind_operands(x, i, n);
    i->adds = n->accumulate_into != NULL;
    i->again = n->again;
    return find_kernel(x, i, n->op->name, err);
}

/* What crosses stages, in node order on both ends: sent, or handed over, when the part that makes
 * it is done; received where the program says. */
static void bind_messages(tt_exec *x, tt_stage_code *c)
{
    const tt_graph *g = x->o.plan->graph;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *t = g->nodes.items[i];
        if (t->op != &tt_op_transfer || t->region > TT_BACKWARD)
            continue;
        if (t->in[0]->node->stage == c->stage)
            bind_transfer(x, &c->part[tt_node_part(t)], t);
        else if (t->stage == c->stage && !tt_plan_stage(x->o.plan, t->in[0]->node->stage))
            bind_transfer(x, &c->recv[t->region == TT_BACKWARD], t);
    }
}

/* The waits before this item of the list, for the instruction that is bound next. */
static void bind_waits(tt_exec *x, tt_instr_list *l, const tt_nodes *nodes, int before, int *next)
{
    if (*next == nodes->n_waits || nodes->waits[*next].before != before)
        return;
    tt_flight **all =
        tt_arena_array(x->arena, (size_t)(nodes->n_waits - *next + l->n_waits), sizeof *all);
    int n = 0;
    for (; n < l->n_waits; n++)
        all[n] = l->waits[n];
    for (; *next < nodes->n_waits && nodes->waits[*next].before == before; ++*next) {
        tt_flight *f = x->flights[nodes->waits[*next].node->id];
        if (f)
            all[n++] = f;
    }
    l->waits = all;
    l->n_waits = n;
}

/* Inputs are filled first: the plan counts on it. */
static tt_status bind_list(tt_exec *x, tt_instr_list *l, const tt_nodes *nodes, tt_error *err)
{
    int next = 0;
    for (int i = 0; i < nodes->n; i++)
        if (nodes->items[i]->op == &tt_op_input)
            TT_TRY(bind_node(x, l, nodes->items[i], err));
    for (int i = 0; i < nodes->n; i++) {
        bind_waits(x, l, nodes, i, &next);
        if (nodes->items[i]->op != &tt_op_input)
            TT_TRY(bind_node(x, l, nodes->items[i], err));
    }
    bind_waits(x, l, nodes, nodes->n, &next);
    return TT_OK;
}

static tt_status bind_stage(tt_exec *x, const tt_stage_plan *s, tt_stage_code *c, tt_error *err)
{
    c->stage = s->stage;
    memcpy(c->first, s->first, sizeof c->first);
    for (int k = 0; k < TT_N_PARTS; k++)
        TT_TRY(bind_list(x, &c->part[k], &s->part[k], err));
    bind_messages(x, c);
    for (int k = 0; k < TT_N_PARTS; k++)
        x->lists[x->n_lists++] = &c->part[k];
    x->lists[x->n_lists++] = &c->recv[0];
    x->lists[x->n_lists++] = &c->recv[1];
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
    x->lists =
        tt_arena_array(x->arena, (size_t)p->n_stages * (TT_N_PARTS + 2) + 2, sizeof *x->lists);
    for (int s = 0; s < p->n_stages; s++)
        TT_TRY(bind_stage(x, &p->stages[s], &x->code[s], err));
    TT_TRY(bind_list(x, &x->epilogue, &p->epilogue, err));
    TT_TRY(bind_list(x, &x->update, &p->update, err));
    x->lists[x->n_lists++] = &x->epilogue;
    x->lists[x->n_lists++] = &x->update;
    x->args = tt_arena_array(x->arena, (size_t)most_operands(x), sizeof *x->args);
    return TT_OK;
}
