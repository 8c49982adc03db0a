/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <string.h>

/* Lifetimes on a timeline, then offsets: larger first, each at the lowest place free for its whole
 * life. */

const tt_value *tt_plan_alias(const tt_value *v)
{
    for (;;) {
        const tt_node *n = v->node;
        if (!(n->op->flags & TT_OP_VIEW) || n->n_in < 1 || n->accumulate_into)
            return v;
        v = n->in[0];
    }
}

void tt_plan_tensor(const tt_graph *g, const tt_value *v, const int32_t *coords, tt_tensor *out)
{
    memset(out, 0, sizeof *out);
    out->dtype = v->type.dtype;
    out->n_dims = v->type.n_dims;
    for (int d = 0; d < v->type.n_dims; d++) {
        const tt_dim *dim = &v->type.dims[d];
        int64_t b = 0, e = 0;
        out->global[d] = dim->size;
        if (coords) {
            tt_dim_box(g->mesh, dim, v->place.atom[d], v->place.n[d], coords, &b, &e);
            out->begin[d] = b;
            out->shape[d] = e - b;
        } else {
            out->shape[d] = tt_chunk(g->mesh, dim, v->place.atom[d], v->place.n[d]);
        }
    }
}

int64_t tt_plan_bytes(const tt_graph *g, const tt_type *t, const tt_placement *p)
{
    const int64_t n = tt_max_local_numel(g->mesh, t->dims, t->n_dims, p);
    return tt_plan_round(n * (int64_t)tt_dtype_size(t->dtype));
}

bool tt_plan_per_token(const tt_graph *g, const tt_value *v)
{
    const tt_dim *d = v->type.dims;
    return v->type.n_dims >= 1 && d->size == g->tokens && d->lines == g->lines &&
           (!d->label || !strcmp(d->label, TT_LABEL_TOKENS)); /* no table of as many rows */
}

int64_t tt_plan_value_bytes(const tt_graph *g, const tt_value *v)
{
    const int64_t whole = tt_plan_bytes(g, &v->type, &v->place);
    if (!v->chunked)
        return whole;
    const int64_t rows = tt_chunk(g->mesh, &v->type.dims[0], v->place.atom[0], v->place.n[0]);
    if (rows <= g->chunk_rows)
        return whole;
    const int64_t n =
        tt_max_local_numel(g->mesh, v->type.dims, v->type.n_dims, &v->place) / rows * g->chunk_rows;
    return tt_plan_round(n * (int64_t)tt_dtype_size(v->type.dtype));
}

/* ---- states ---- */

static void place_states(planner *p)
{
    const tt_graph *g = p->plan->graph;
    uint64_t mine = 0;
    int64_t at = 0;
    for (int s = 0; s < p->plan->n_stages; s++)
        mine |= UINT64_C(1) << p->plan->stages[s].stage;
    p->plan->state = tt_arena_array(p->a, g->states.n + 1, sizeof *p->plan->state);
    for (size_t i = 0; i < g->states.n; i++) {
        const tt_state *s = g->states.items[i];
        const bool here = (s->stages & mine) || (!s->stages && s->kind == TT_STATE_SCALAR);
        p->plan->state[i] = here ? at : -1;
        if (!here)
            continue;
        const int64_t bytes = tt_plan_bytes(g, &s->type, &s->place);
        p->plan->state_bytes_by_kind[s->kind] += bytes;
        at += bytes;
    }
    p->plan->bytes[TT_SPACE_STATE] = at;
}

/* ---- lifetimes ---- */

static tt_live *live_of(planner *p, const tt_value *v)
{
    v = tt_plan_alias(v);
    return &p->live[v->id];
}

/* Does v need memory of its own? States and parameters have theirs; what is added or assigned in
 * place is theirs. */
static bool owns_memory(const tt_value *v)
{
    const tt_node *n = v->node;
    if (n->op == &tt_op_param || n->op == &tt_op_state)
        return false;
    if (n->accumulate_into && v->out == 0)
        return false;
    if (n->assign_to && n->assign_to[v->out])
        return false;
    return true;
}

static void touch(planner *p, const tt_value *v, int at, bool backward)
{
    tt_live *l = live_of(p, v);
    const tt_value *root = tt_plan_alias(v);
    if (!owns_memory(root))
        return;
    if (!l->known) {
        *l = (tt_live){.known = true,
                       .first = at,
                       .last = at,
                       .value = root,
                       .in_forward = !backward,
                       .bytes = tt_plan_value_bytes(p->plan->graph, root)};
    }
    l->first = TT_MIN(l->first, at);
    l->last = TT_MAXV(l->last, at);
    l->in_forward = l->in_forward || !backward;
    l->in_backward = l->in_backward || backward;
}

/* The largest operand a kernel sees: of loop nodes, a chunk. */
static void chunk_tensor(const tt_graph *g, const tt_node *n, const tt_value *v, tt_tensor *out)
{
    tt_plan_tensor(g, v, NULL, out);
    if (n->map && tt_plan_per_token(g, v))
        out->shape[0] = TT_MIN(out->shape[0], g->chunk_rows);
}

const char *tt_accumulate_kernel(const tt_state *s)
{
    return s->accumulate_max ? "maximum" : "add";
}

static size_t scratch_of(planner *p, const tt_node *n)
{
    tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
    if (n->op == &tt_op_collective)
        return (size_t)(tt_plan_bytes(p->plan->graph, &n->in[0]->type, &n->in[0]->place) +
                        tt_plan_bytes(p->plan->graph, &n->out[0]->type, &n->out[0]->place));
    if (n->op == &tt_op_stage_sum)
        return 64 * 16;
    if (!p->o->scratch)
        return 0;
    for (int i = 0; i < n->n_in; i++)
        chunk_tensor(p->plan->graph, n, n->in[i], &in[i]);
    for (int i = 0; i < n->n_out; i++)
        chunk_tensor(p->plan->graph, n, n->out[i], &out[i]);
    if (n->op == &tt_op_accumulate) { /* runs as acc = acc + x */
        in[1] = out[0] = in[0];
        const tt_kernel_call acc = {.struct_size = sizeof acc,
                                    .in = in,
                                    .n_in = 2,
                                    .out = out,
                                    .n_out = 1,
                                    .op = tt_accumulate_kernel(n->state)};
        return p->o->scratch(p->o->user, &acc);
    }
    const tt_kernel_call c = {.struct_size = sizeof c,
                              .op = n->op->name,
                              .in = in,
                              .n_in = n->n_in,
                              .out = out,
                              .n_out = n->n_out,
                              .attrs = n->attrs};
    return p->o->scratch(p->o->user, &c);
}

/* One list of nodes at times from `at`; returns the time after it. Inputs are filled before the
 * list runs. */
static int walk(planner *p, tt_node *const *nodes, int n, int at, bool backward)
{
    int loop_first = 0,
        loop_last = 0; /* times of the token-chunk loop: what crosses it lives all through it */
    for (int i = 0; i < n; i++) {
        if (!nodes[i]->map)
            continue;
        if (!loop_first)
            loop_first = at + 1 + i;
        loop_last = at + 1 + i;
    }
    for (int i = 0; i < n; i++) {
        const tt_node *e = nodes[i];
        const int t = at + 1 + i;
        for (int j = 0; j < e->n_in; j++) /* what another rank holds takes no memory here */
            if ((e->op != &tt_op_stage_sum && e->op != &tt_op_transfer) ||
                tt_plan_here(p->plan, e->in[j]->node->stage))
                touch(p, e->in[j], e->map && !e->in[j]->chunked ? loop_last : t, backward);
        for (int j = 0; j < e->n_out; j++) {
            touch(p, e->out[j], e->op == &tt_op_input ? at : t, backward);
            if (!e->map || e->out[j]->chunked)
                continue;
            touch(p, e->out[j], loop_first, backward);
            touch(p, e->out[j], loop_last, backward);
        }
        const size_t s = scratch_of(p, e);
        p->plan->scratch_bytes[e->id] = (int64_t)s;
        if (!s)
            continue;
        tt_live l = {.known = true,
                     .first = t,
                     .last = t,
                     .scratch_of = e,
                     .bytes = tt_plan_round((int64_t)s),
                     .in_forward = !backward,
                     .in_backward = backward};
        tt_vec_push(p->a, &p->scratches, l);
    }
    return at + n + 2;
}

/* What another stage reads is sent at the end of the list. */
static void keep_sent(planner *p, const tt_stage_plan *s, tt_region region, int at)
{
    const tt_graph *g = p->plan->graph;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *t = g->nodes.items[i];
        if (t->op == &tt_op_transfer && t->region == region && t->in[0]->node->stage == s->stage)
            touch(p, t->in[0], at, region == TT_BACKWARD);
    }
}

static void color(planner *p, tt_stage_plan *s, bool slots)
{
    tt_live **work =
        tt_arena_array(p->a, (size_t)p->plan->graph->n_values + p->scratches.n + 1, sizeof *work);
    tt_live **slot = tt_arena_array(p->a, (size_t)p->plan->graph->n_values + 1, sizeof *slot);
    size_t n_work = 0, n_slot = 0;
    for (int v = 0; v < p->plan->graph->n_values; v++) {
        tt_live *l = &p->live[v];
        if (!l->known || l->placed)
            continue;
        if (slots && l->in_forward && l->in_backward)
            slot[n_slot++] = l;
        else
            work[n_work++] = l;
    }
    for (size_t i = 0; i < p->scratches.n; i++)
        work[n_work++] = &p->scratches.items[i];
    const int64_t peak = tt_plan_color(p->a, work, n_work);
    s->slot_bytes += tt_plan_color(p->a, slot, n_slot); /* none in the step regions */
    for (size_t i = 0; i < n_work + n_slot; i++) {
        tt_live *l = i < n_work ? work[i] : slot[i - n_work];
        l->placed = true;
        if (l->scratch_of)
            p->plan->scratch[l->scratch_of->id] = l->offset;
        else
            p->plan->value[l->value->id] =
                (tt_loc){i < n_work ? TT_SPACE_WORK : TT_SPACE_SLOT, l->offset, NULL, -1};
    }
    p->scratches.n = 0;
    p->plan->bytes[TT_SPACE_WORK] = TT_MAXV(p->plan->bytes[TT_SPACE_WORK], peak);
}

static void plan_stage(planner *p, tt_stage_plan *s)
{
    s->n_slots = tt_schedule_in_flight(p->o->schedule, s->stage);
    s->in_slots = s->n_slots > 1 || p->plan->n_stages > 1;
    int t = walk(p, s->forward, s->n_forward, 0, false);
    keep_sent(p, s, TT_FORWARD, t - 1);
    t = walk(p, s->backward, s->n_backward, t, true);
    keep_sent(p, s, TT_BACKWARD, t - 1);
    color(p, s, s->in_slots);
    /* epilogue and update run when no micro-batch is in flight: a timeline of their own over the
     * same bytes */
    t = walk(p, s->epilogue, s->n_epilogue, 0, false);
    walk(p, s->update, s->n_update, t, false);
    color(p, s, false);
}

static void finish_locations(planner *p)
{
    const tt_graph *g = p->plan->graph;
    for (size_t i = 0; i < g->nodes.n; i++)
        for (int j = 0; j < g->nodes.items[i]->n_out; j++) {
            const tt_value *v = g->nodes.items[i]->out[j], *r = tt_plan_alias(v);
            const tt_node *n = r->node;
            tt_loc *l = &p->plan->value[v->id];
            if (n->op == &tt_op_param)
                *l = (tt_loc){TT_SPACE_STATE, 0, n->param->stack->param, n->param->index};
            else if (n->op == &tt_op_state)
                *l = (tt_loc){TT_SPACE_STATE, 0, n->state, -1};
            else if (n->accumulate_into && r->out == 0)
                *l = (tt_loc){TT_SPACE_STATE, 0, n->accumulate_into, n->accumulate_index};
            else if (n->assign_to && n->assign_to[r->out])
                *l = (tt_loc){TT_SPACE_STATE, 0, n->assign_to[r->out], -1};
            else
                *l = p->plan->value[r->id];
        }
}

static void collect(planner *p, tt_stage_plan *s)
{
    const tt_graph *g = p->plan->graph;
    tt_node ***lists[] = {&s->forward, &s->backward, &s->epilogue, &s->update};
    int *counts[] = {&s->n_forward, &s->n_backward, &s->n_epilogue, &s->n_update};
    for (int r = 0; r < 4; r++) {
        *lists[r] = tt_arena_array(p->a, g->nodes.n + 1, sizeof **lists[r]);
        for (size_t i = 0; i < g->nodes.n; i++)
            if (g->nodes.items[i]->stage == s->stage && (int)g->nodes.items[i]->region == r)
                (*lists[r])[(*counts[r])++] = g->nodes.items[i];
    }
}

bool tt_plan_here(const tt_plan *p, int stage)
{
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].stage == stage)
            return true;
    return false;
}

tt_status tt_plan_make(const tt_graph *g, const tt_plan_opts *o, tt_arena *a, tt_plan **out,
                       tt_error *err)
{
    planner p = {.o = o, .a = a};
    tt_plan *plan = p.plan = tt_arena_alloc(a, sizeof *plan);
    plan->graph = g;
    plan->schedule = o->schedule;
    plan->value = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *plan->value);
    plan->scratch = tt_arena_array(a, (size_t)g->n_ids + 1, sizeof *plan->scratch);
    plan->scratch_bytes = tt_arena_array(a, (size_t)g->n_ids + 1, sizeof *plan->scratch_bytes);
    memset(plan->scratch, 0xff, ((size_t)g->n_ids + 1) * sizeof *plan->scratch);
    p.live = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *p.live);
    plan->stages = tt_arena_array(a, (size_t)g->n_stages, sizeof *plan->stages);
    for (int s = 0; s < g->n_stages; s++)
        if (o->schedule->stage_rank[s] == o->pp_rank)
            plan->stages[plan->n_stages++].stage = s;
    place_states(&p);
    for (int i = 0; i < plan->n_stages; i++) {
        collect(&p, &plan->stages[i]);
        plan_stage(&p, &plan->stages[i]);
        plan->stages[i].slot_base = plan->bytes[TT_SPACE_SLOT];
        if (plan->stages[i].in_slots)
            plan->bytes[TT_SPACE_SLOT] += plan->stages[i].slot_bytes * plan->stages[i].n_slots;
    }
    finish_locations(&p);
    tt_str text = {0};
    tt_graph_print(g, &text);
    plan->hash = tt_hash64(tt_str_get(&text), text.n, (uint64_t)o->schedule->n_micro);
    tt_str_free(&text);
    TT_TRY(tt_plan_verify(plan, err));
    *out = plan;
    return TT_OK;
}
