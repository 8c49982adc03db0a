/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/passes.h"
#include "passes/qk_clip.h"
#include <string.h>
#include <ttrun/ops.h>

/* Finds the weights whose factor is a factor of a head's queries or keys, by going from attention's operands back
 * to linear layers. Each element of an operand has a mark, its number in the operand; nodes on the way move the
 * marks (tt_node_elements). An element from which several heads read (MLA's rotated part of the key) is shared.
 *
 * Keys are changed where each head has its own: then queries and keys have the root of the factor each.
 * Elsewhere, for shared elements and where several heads of queries share a head of keys, the queries alone have
 * the factor, as the paper's rotated queries do, so that no head changes another one's logits. */

#define NO_MARK (-1)

/* A mark that is shared: the number of one of its elements. */
static int32_t as_shared(int32_t mark)
{
    return mark <= -2 ? mark : -2 - mark;
}

static bool is_shared(int32_t mark)
{
    return mark <= -2;
}

static int32_t element(int32_t mark)
{
    return is_shared(mark) ? -2 - mark : mark;
}

typedef struct touched { /* a parameter that a trace ends at */
    tt_value *value;
    int32_t *marks;
    int64_t n;
    bool bias;
} touched;

typedef struct finder {
    tt_graph *g;
    tt_arena *a;
    tt_qk_clip *clip;
    tt_readers readers;
    uint8_t *made_of; /* by value: of PARAMS, INPUTS */
    /* the trace of one operand */
    const tt_node *attention;
    int operand; /* 0 queries, 1 keys */
    int64_t head_dim;
    bool *visited;             /* by node */
    int32_t **marks;           /* by value */
    TT_VEC(tt_value *) values; /* that have marks */
    TT_VEC(touched) found;     /* parameters */
    const uint8_t *power;      /* queries: by element of a head; NULL */
    bool *shared;              /* keys: by element of a head */
    int *mixed;                /* keys: by element of a head: one that it is mixed with */
    bool normalized;
    const char *why; /* why the trace has failed */
} finder;

enum { KNOWN = 1, PARAMS = 2, INPUTS = 4 };

/* What v is computed from. Nodes are in order, so operands are known. */
static void find_made_of(finder *f)
{
    for (size_t i = 0; i < f->g->nodes.n; i++) {
        const tt_node *n = f->g->nodes.items[i];
        uint8_t of = KNOWN;
        for (int j = 0; j < n->n_in; j++)
            of |= f->made_of[n->in[j]->id];
        if (n->op == &tt_op_param)
            of |= PARAMS;
        if (n->op == &tt_op_input)
            of |= INPUTS;
        for (int j = 0; j < n->n_out; j++)
            f->made_of[n->out[j]->id] |= of;
    }
}

static bool is_activation(const finder *f, const tt_value *v)
{
    return (f->made_of[v->id] & (PARAMS | INPUTS)) == (PARAMS | INPUTS);
}

static bool give_up(finder *f, const tt_node *n, const char *what)
{
    f->why =
        tt_arena_printf(f->a, "%s op %s in \"%s\"", what, n->op->name, n->scope ? n->scope : "");
    return false;
}

static int64_t head_of(const finder *f, int32_t mark)
{
    return element(mark) / f->head_dim;
}

/* Two elements of a result come from one element of an operand. */
static int32_t merged(const finder *f, int32_t a, int32_t b)
{
    if (a == NO_MARK || b == NO_MARK)
        return a == NO_MARK ? b : a;
    const bool several = is_shared(a) || is_shared(b) || head_of(f, a) != head_of(f, b);
    return several ? as_shared(a) : a;
}

static void mark_visited(finder *f, const tt_node *n)
{
    f->visited[n->id] = true;
}

static void end_at_param(finder *f, tt_value *param, const int32_t *marks, int64_t n, bool bias)
{
    const touched t = {param, tt_arena_dup(f->a, marks, (size_t)n * sizeof *marks), n, bias};
    tt_vec_push(f->a, &f->found, t);
    for (int64_t r = 0; r < n; r++)
        if (f->shared && is_shared(marks[r]))
            f->shared[element(marks[r]) % f->head_dim] = true;
}

/* The parameter that v is, perhaps in another dtype. */
static tt_value *param_behind(finder *f, tt_value *v)
{
    while (tt_node_is_cast(v->node)) {
        mark_visited(f, v->node);
        v = v->node->in[0];
    }
    return v->node->op == &tt_op_param ? v : NULL;
}

static bool end_at_linear(finder *f, const tt_node *n, const int32_t *marks)
{
    tt_value *w = param_behind(f, n->in[1]);
    if (!w || w->type.n_dims != 2)
        return give_up(f, n, "their weight is computed from others, for");
    end_at_param(f, w, marks, w->type.dims[0].size, false);
    return true;
}

/* Elements that are mixed must have one factor. */
static bool can_mix(finder *f, const tt_node *n, int64_t span, const int32_t *marks, int64_t size)
{
    for (int64_t e = 0; e < size; e++) {
        const int32_t a = marks[e - e % span], b = marks[e];
        if (a == NO_MARK && b == NO_MARK)
            continue;
        const bool one = a != NO_MARK && b != NO_MARK && head_of(f, a) == head_of(f, b) &&
                         is_shared(a) == is_shared(b);
        const int64_t i = one ? element(a) % f->head_dim : 0,
                      j = one ? element(b) % f->head_dim : 0;
        if (!one || (f->power && f->power[i] != f->power[j]))
            return give_up(f, n, "elements with different factors are mixed by");
        if (f->mixed)
            f->mixed[j] = (int)i;
    }
    return true;
}

static bool trace(finder *f, tt_value *v, const int32_t *marks, int64_t size);

/* Moves marks to operand i and goes on there. */
static bool trace_operand(finder *f, const tt_node *n, int i, const int64_t *from,
                          const int32_t *marks, int64_t size)
{
    const int64_t own = tt_operand_elements(n, i);
    int32_t *moved = tt_arena_array(f->a, (size_t)own + 1, sizeof *moved);
    bool any = false;
    for (int64_t e = 0; e < own; e++)
        moved[e] = NO_MARK;
    for (int64_t e = 0; e < size; e++) {
        if (from[e] < 0 || marks[e] == NO_MARK)
            continue;
        moved[from[e]] = merged(f, moved[from[e]], marks[e]);
        any = true;
    }
    return !any || trace(f, n->in[i], moved, own);
}

static bool trace_node(finder *f, const tt_node *n, const int32_t *marks, int64_t size)
{
    int64_t *from = tt_arena_array(f->a, (size_t)size + 1, sizeof *from);
    bool followed = false;
    if (tt_result_elements(n) != size)
        return give_up(f, n, "there is no row per token in");
    for (int i = 0; i < n->n_in; i++) {
        const tt_elements how = tt_node_elements(n, i, from);
        const bool activation = is_activation(f, n->in[i]);
        if (how.kind == TT_ELEMENTS_NORMALIZED) {
            f->normalized = true;
            return give_up(f, n, "they are normalized by");
        }
        if (how.kind == TT_ELEMENTS_UNKNOWN ||
            (how.kind == TT_ELEMENTS_MULTIPLIED && !activation)) {
            if (activation)
                return give_up(f, n, "no factor of their weights goes through");
            continue;
        }
        if (how.kind == TT_ELEMENTS_MULTIPLIED && followed)
            return give_up(f, n, "they are a product of two activations,");
        if (how.mixed && !can_mix(f, n, how.mixed, marks, size))
            return false;
        followed = true;
        if (!trace_operand(f, n, i, from, marks, size))
            return false;
    }
    return followed || give_up(f, n, "they are not made by a linear layer but by");
}

static bool trace(finder *f, tt_value *v, const int32_t *marks, int64_t size)
{
    tt_node *n = v->node;
    if (n->op == &tt_op_param && v->type.n_dims == 1) {
        end_at_param(f, v, marks, size, true);
        return true;
    }
    if (!is_activation(f, v) || n->n_out != 1)
        return give_up(f, n, "they are not made by a linear layer but by");
    int32_t *known = f->marks[v->id];
    mark_visited(f, n);
    if (!known) {
        known = f->marks[v->id] = tt_arena_dup(f->a, marks, (size_t)size * sizeof *known);
        tt_vec_push(f->a, &f->values, v);
    }
    for (int64_t e = 0; e < size; e++)
        known[e] = merged(f, known[e], marks[e]);
    return n->op == &tt_op_linear ? end_at_linear(f, n, marks) : trace_node(f, n, marks, size);
}

/* ---- does anything else read what would be multiplied? ---- */

static bool leaks(finder *f, const tt_value *v, const int32_t *marks);

/* There is a mark: a value without one is not followed. */
static bool leaks_through(finder *f, const tt_node *n, int i, const int32_t *marks)
{
    const int64_t size = tt_result_elements(n);
    int64_t *from = tt_arena_array(f->a, (size_t)size + 1, sizeof *from);
    int32_t *moved = tt_arena_array(f->a, (size_t)size + 1, sizeof *moved);
    bool any = false;
    if (tt_node_elements(n, i, from).kind != TT_ELEMENTS_MOVED)
        return true;
    for (int64_t e = 0; e < size; e++) {
        moved[e] = from[e] < 0 ? NO_MARK : marks[from[e]];
        any = any || moved[e] != NO_MARK;
    }
    return any && leaks(f, n->out[0], moved);
}

static bool leaks(finder *f, const tt_value *v, const int32_t *marks)
{
    for (int k = 0; k < f->readers.n[v->id]; k++) {
        const tt_node *n = f->g->nodes.items[f->readers.of[v->id][k]];
        for (int i = 0; i < n->n_in; i++) {
            const bool own = n == f->attention && i == f->operand;
            if (n->in[i] == v && !own && n->role != TT_NODE_EXPANDED && !f->visited[n->id] &&
                leaks_through(f, n, i, marks))
                return give_up(f, n, "what their weights compute is also read by"), true;
        }
    }
    return false;
}

static bool read_elsewhere(finder *f)
{
    for (size_t i = 0; i < f->values.n; i++)
        if (leaks(f, f->values.items[i], f->marks[f->values.items[i]->id]))
            return true;
    for (size_t i = 0; i < f->found.n; i++) {
        const int id = f->found.items[i].value->id;
        for (int k = 0; k < f->readers.n[id]; k++) {
            const tt_node *n = f->g->nodes.items[f->readers.of[id][k]];
            if (n->role != TT_NODE_EXPANDED && !f->visited[n->id])
                return give_up(f, n, "their weights are also read by"), true;
        }
    }
    return false;
}

/* ---- an attention ---- */

static void begin_trace(finder *f, const tt_node *attention, int operand)
{
    for (size_t i = 0; i < f->values.n; i++)
        f->marks[f->values.items[i]->id] = NULL;
    memset(f->visited, 0, (size_t)f->g->n_ids * sizeof *f->visited);
    f->values.n = f->found.n = 0;
    f->attention = attention;
    f->operand = operand;
    f->normalized = false;
    f->why = NULL;
}

static bool trace_attention(finder *f, const tt_node *n, int operand)
{
    tt_value *v = n->in[operand];
    const int64_t size = v->type.dims[1].size;
    int32_t *marks = tt_arena_array(f->a, (size_t)size + 1, sizeof *marks);
    begin_trace(f, n, operand);
    for (int64_t e = 0; e < size; e++)
        marks[e] = (int32_t)e;
    return trace(f, v, marks, size) && !read_elsewhere(f);
}

static tt_qk_param *param_entry(finder *f, const touched *t)
{
    const tt_param_info *p = t->value->node->param;
    for (size_t i = 0; i < f->clip->params.n; i++)
        if (f->clip->params.items[i].param == p)
            return &f->clip->params.items[i];
    tt_qk_param e = {
        .param = p, .attention = (int)f->clip->attentions.n, .n_rows = t->n, .bias = t->bias};
    e.head = tt_arena_array(f->g->arena, (size_t)t->n + 1, sizeof *e.head);
    e.power = tt_arena_array(f->g->arena, (size_t)t->n + 1, sizeof *e.power);
    tt_vec_push(f->g->arena, &f->clip->params, e);
    return &f->clip->params.items[f->clip->params.n - 1];
}

/* Remembers the rows that the trace has found. power: by element of a head. */
static void keep_rows(finder *f, const uint8_t *power)
{
    for (size_t i = 0; i < f->found.n; i++) {
        const touched *t = &f->found.items[i];
        tt_qk_param *e = NULL;
        for (int64_t r = 0; r < t->n; r++) {
            const int32_t m = t->marks[r];
            if (m == NO_MARK || !power[element(m) % f->head_dim])
                continue;
            e = e ? e : param_entry(f, t);
            e->head[r] = (int32_t)head_of(f, m);
            e->power[r] = power[element(m) % f->head_dim];
        }
    }
}

static const char *frozen_param(const finder *f)
{
    for (size_t i = 0; i < f->found.n; i++)
        if (f->found.items[i].value->node->param->frozen)
            return f->found.items[i].value->node->param->name;
    return NULL;
}

/* The powers of a head's keys, 1 or 0; all 0: the keys are left as they are. */
static void find_keys(finder *f, const tt_node *n, uint8_t *power)
{
    const size_t hd = (size_t)f->head_dim;
    f->shared = tt_arena_array(f->a, hd + 1, sizeof *f->shared);
    f->mixed = tt_arena_array(f->a, hd + 1, sizeof *f->mixed);
    for (size_t j = 0; j < hd; j++)
        f->mixed[j] = (int)j;
    bool own = n->in[0]->type.dims[1].size == n->in[1]->type.dims[1].size &&
               trace_attention(f, n, 1) && !frozen_param(f);
    for (size_t j = 0; own && j < hd; j++)
        own = f->shared[j] == f->shared[f->mixed[j]];
    for (size_t j = 0; own && j < hd; j++)
        power[j] = !f->shared[j];
    if (own)
        keep_rows(f, power);
    f->shared = NULL;
    f->mixed = NULL;
}

static tt_status find_attention(finder *f, const tt_node *n, tt_error *err)
{
    const tt_attrs_attention *at = n->attrs;
    tt_qk_attention new = {.scope = n->scope ? n->scope : "", .stage = -1};
    f->head_dim = at->head_dim;
    new.heads = n->in[0]->type.dims[1].size / f->head_dim;
    for (size_t i = 0; i < f->clip->attentions.n; i++)
        if (!strcmp(f->clip->attentions.items[i].scope, new.scope))
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "optimizer.qk_clip: \"%s\" has two attention ops, and their largest "
                           "logits cannot be told apart: open a scope (tt_scope) for each",
                           new.scope);
    uint8_t *keys = tt_arena_array(f->a, (size_t)f->head_dim + 1, sizeof *keys),
            *queries = tt_arena_array(f->a, (size_t)f->head_dim + 1, sizeof *queries);
    const size_t n_params = f->clip->params.n;
    find_keys(f, n, keys);
    for (int64_t j = 0; j < f->head_dim; j++)
        queries[j] = keys[j] ? 1 : 2;
    f->power = queries;
    const bool found = trace_attention(f, n, 0);
    f->power = NULL;
    for (size_t i = 0; found && i < f->found.n; i++)
        for (int64_t r = 0; r < f->found.items[i].n; r++)
            if (is_shared(f->found.items[i].marks[r]))
                return TT_FAIL(err, TT_EUNSUPPORTED,
                               "optimizer.qk_clip: in \"%s\" several heads have one query, so "
                               "that none can be clipped alone: set it to null",
                               new.scope);
    if (found && frozen_param(f))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "optimizer.qk_clip: %s is frozen, and no frozen parameter is changed: train "
                       "it (training.trainable), or set optimizer.qk_clip to null",
                       frozen_param(f));
    if (!found && !f->normalized)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "optimizer.qk_clip: the weights of the queries of \"%s\" cannot be clipped: "
                       "%s; set it to null",
                       new.scope, f->why);
    if (found)
        keep_rows(f, queries);
    else
        f->clip->params.n = n_params; /* the keys alone are not changed either */
    new.clipped = found;
    f->clip->n_clipped += found;
    tt_vec_push(f->g->arena, &f->clip->attentions, new);
    return TT_OK;
}

static tt_status find_all(finder *f, tt_error *err)
{
    const tt_graph *g = f->g;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->op == &tt_op_attention && n->role != TT_NODE_EXPANDED)
            TT_TRY(find_attention(f, n, err));
    }
    if (f->clip->n_clipped)
        return TT_OK;
    if (!f->clip->attentions.n)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "optimizer.qk_clip: the model has no attention: set it to null");
    return TT_FAIL(
        err, TT_EUNSUPPORTED,
        "optimizer.qk_clip: no attention layer can be clipped, because of their queries: "
        "%s, so that no factor of their weights changes a logit; set it to null",
        f->why);
}

tt_status tt_qk_clip_find(tt_graph *g, double tau, tt_error *err)
{
    tt_arena *own = tt_arena_new();
    finder f = {.g = g, .a = own, .readers = tt_find_readers(g)};
    f.clip = g->qk_clip = tt_arena_alloc(g->arena, sizeof *f.clip);
    *f.clip = (tt_qk_clip){.tau = tau};
    f.made_of = tt_arena_array(own, (size_t)g->n_values + 1, sizeof *f.made_of);
    f.marks = tt_arena_array(own, (size_t)g->n_values + 1, sizeof *f.marks);
    f.visited = tt_arena_array(own, (size_t)g->n_ids + 1, sizeof *f.visited);
    find_made_of(&f);
    const tt_status s = find_all(&f, err);
    tt_arena_free(own);
    return s;
}
