/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <stdlib.h>
#include <string.h>

/* decode: turns the described graph into one for a few new tokens per call (R18). This works
 * because tokens are one dim, positions are inputs, and only ops with a flag combine tokens
 * (R4): every other op is right for any set of tokens. */

typedef struct picked {
    const tt_value *all;
    tt_value *some;
} picked;

struct tt_decode {
    const tt_graph *described;
    int64_t slots, picked, length;
    bool *live;      /* by id of a node: the logits depend on it */
    bool *dependent; /* by value id: it depends on the tokens of a call */
    bool *late; /* by value id: no op that mixes tokens depends on it, so picked tokens suffice */
    int n_memory;
    tt_value *pick; /* i32 [picked]: the rows of the tokens whose logits the caller wants */
    TT_VEC(picked) gathered;
};

/* Finds the values that depend on the tokens of a call. */
static bool *find_dependent(const tt_graph *g, tt_arena *a)
{
    bool *dependent = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *dependent);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        bool any = n->op == &tt_op_input;
        for (int j = 0; j < n->n_in; j++)
            any = any || dependent[n->in[j]->id];
        for (int j = 0; n->role != TT_NODE_EXPANDED && j < n->n_out; j++)
            dependent[n->out[j]->id] = any;
    }
    return dependent;
}

/* Goes backwards: finds what the logits need, and which of it is needed for every token. */
static void find_live(tt_decode *d, const tt_value *logits, tt_arena *a)
{
    const tt_graph *g = d->described;
    bool *wanted = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *wanted);
    bool *early = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *early);
    wanted[logits->id] = true;
    for (size_t i = g->nodes.n; i-- > 0;) {
        const tt_node *n = g->nodes.items[i];
        bool any = false, all = (n->op->flags & TT_OP_MIXES_TOKENS) != 0;
        for (int j = 0; n->role != TT_NODE_EXPANDED && j < n->n_out; j++) {
            any = any || wanted[n->out[j]->id];
            all = all || early[n->out[j]->id];
        }
        for (int j = 0; j < n->n_in; j++) /* to look up costs as little as to pick rows */
            all = all || n->in[j]->node->op == &tt_op_input;
        d->live[n->id] = any;
        for (int j = 0; any && j < n->n_in; j++) {
            wanted[n->in[j]->id] = true;
            early[n->in[j]->id] = early[n->in[j]->id] || all;
        }
        for (int j = 0; any && !all && j < n->n_out; j++)
            d->late[n->out[j]->id] = d->dependent[n->out[j]->id];
    }
}

/* Is it the dim of the rows of an expert layer? Each row is of one token: the op that makes the
 * rows promises it (TT_OP_PLACES_OPERANDS), and the model's function treats each alone (tt_experts()). */
static bool is_rows(const tt_decode *d, const tt_dim *rows)
{
    return rows->size % d->described->tokens == 0 && rows->label &&
           !strcmp(rows->label, TT_LABEL_ROWS);
}

/* Has v one row per token? Unlike tt_value_per_token, this refuses a dim without a label. A dim of
 * sequences that a model split off has other lines, so it is refused whatever its label is. */
static bool has_token_rows(const tt_decode *d, const tt_value *v)
{
    const tt_dim *t = v->type.dims;
    return v->type.n_dims > 0 && t->size == d->described->tokens &&
           t->lines == d->described->sequences && t->label && !strcmp(t->label, TT_LABEL_TOKENS);
}

static bool incremental_form(const tt_op_def *op)
{
    return TT_HAS(op, tt_op_def, incremental) && op->incremental && op->memory &&
           op->n_memory >= 0 && op->n_memory <= TT_MAX_MEMORY;
}

static void query_of(const tt_node *n, const tt_type **types, tt_shape_query *q)
{
    for (int i = 0; i < n->n_in; i++)
        types[i] = &n->in[i]->type;
    *q = (tt_shape_query){sizeof *q, n->n_in, types, n->attrs, n->op->name};
}

static tt_status check_node(const tt_decode *d, const tt_node *n, tt_error *err)
{
    const tt_type *types[TT_MAX_INS];
    tt_type memory[TT_MAX_MEMORY];
    tt_shape_query q;
    tt_error why = {0};
    if (n->op->flags & TT_OP_MIXES_TOKENS) {
        query_of(n, types, &q);
        if (!incremental_form(n->op))
            return TT_FAIL(err, TT_EUNSUPPORTED, "op %s (in \"%s\") has no incremental form",
                           n->op->name, n->scope);
        if (TT_PLUGIN_CALL(n->op->memory(&q, d->slots, d->length, memory, &why), &why, "op",
                           n->op->name) != TT_OK)
            return TT_FAIL(err, TT_EUNSUPPORTED, "op %s (in \"%s\"): %s", n->op->name, n->scope,
                           why.text);
        return TT_OK;
    }
    if (n->op->flags & TT_OP_PLACES_OPERANDS)
        return TT_OK;
    for (int j = 0; j < n->n_out; j++)
        if (d->dependent[n->out[j]->id] && !has_token_rows(d, n->out[j]) &&
            !(n->out[j]->type.n_dims && is_rows(d, n->out[j]->type.dims)))
            return TT_FAIL(err, TT_EUNSUPPORTED, "op %s (in \"%s\") gives no row for each token",
                           n->op->name, n->scope);
    return TT_OK;
}

tt_status tt_pass_decode_find(const tt_graph *described, int64_t slots, int64_t n_picked,
                              int64_t length, tt_arena *a, tt_decode **out, tt_error *err)
{
    const tt_graph *g = described;
    tt_decode *d = tt_arena_alloc(a, sizeof *d);
    *d = (tt_decode){.described = g, .slots = slots, .picked = n_picked, .length = length};
    d->live = tt_arena_array(a, (size_t)g->n_ids + 1, sizeof *d->live);
    d->late = tt_arena_array(a, (size_t)g->n_values + 1, sizeof *d->late);
    d->dependent = find_dependent(g, a);
    find_live(d, tt_map_get(g->outputs, "logits"), a);
    for (size_t i = 0; i < g->nodes.n; i++)
        if (d->live[g->nodes.items[i]->id])
            TT_TRY(check_node(d, g->nodes.items[i], err));
    *out = d;
    return TT_OK;
}

static double memory_bytes(const tt_node *n, int64_t length)
{
    const tt_type *types[TT_MAX_INS];
    tt_type memory[TT_MAX_MEMORY];
    tt_shape_query q;
    tt_error ignored = {0};
    double sum = 0;
    query_of(n, types, &q);
    if (n->op->memory(&q, 1, length, memory, &ignored) != TT_OK)
        return 0;
    for (int i = 0; i < n->op->n_memory; i++)
        sum += (double)tt_type_numel(&memory[i]) * (double)tt_dtype_size(memory[i].dtype);
    return sum;
}

double tt_decode_token_bytes(const tt_decode *d)
{
    const tt_graph *g = d->described;
    double sum = 0;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (d->live[n->id] && (n->op->flags & TT_OP_MIXES_TOKENS))
            sum += memory_bytes(n, 2 * TT_CACHE_BLOCK) - memory_bytes(n, TT_CACHE_BLOCK);
    }
    return sum / TT_CACHE_BLOCK;
}

/* ---- emitting ---- */

static tt_value *pick_input(tt_decode *d, tt_builder *b)
{
    const tt_placement whole = {0};
    tt_type t = {.dtype = TT_I32, .n_dims = 1, .dims = {TT_DIM(d->picked, TT_LABEL_PICKED)}};
    if (!d->pick) {
        tt_node *n = tt_node_new(b, &tt_op_input, NULL, 0, &t, &whole, 1);
        n->block = -1;
        n->input_name = TT_INPUT_PICK;
        d->pick = n->out[0];
    }
    return d->pick;
}

static tt_value *picked_rows(tt_decode *d, tt_builder *b, const tt_value *described, tt_value *v)
{
    for (size_t i = 0; i < d->gathered.n; i++)
        if (d->gathered.items[i].all == described)
            return d->gathered.items[i].some;
    const picked p = {described, tt_gather(b, v, pick_input(d, b))};
    tt_vec_push(tt_builder_graph(b)->arena, &d->gathered, p);
    return p.some;
}

/* The attributes, with the dim of picked tokens in place of the token dim, and likewise of rows. */
static const void *picked_attrs(const tt_decode *d, tt_builder *b, const tt_node *n)
{
    if (!(n->op->flags & TT_OP_NAMES_DIMS))
        return n->attrs;
    tt_attrs_dims *a = tt_arena_dup(tt_builder_graph(b)->arena, n->attrs, sizeof *a);
    const int64_t tokens = d->described->tokens;
    tt_dim *first = &a->dims[0];
    if (a->n_dims > 0 && is_rows(d, first))
        *first = TT_DIM(first->size / tokens * d->picked, TT_LABEL_PICKED_ROWS);
    else if (a->n_dims > 0 && first->size == tokens && first->label &&
             !strcmp(first->label, TT_LABEL_TOKENS))
        *first = TT_DIM(d->picked, TT_LABEL_PICKED);
    return a;
}

/* tt_state.grows of each memory. */
static void find_growth(const tt_decode *d, const tt_node *n, const tt_type *memory, int *grows)
{
    const tt_type *types[TT_MAX_INS];
    tt_type longer[TT_MAX_MEMORY];
    tt_shape_query q;
    tt_error ignored = {0};
    query_of(n, types, &q);
    const bool known = TT_PLUGIN_CALL(n->op->memory(&q, d->slots, 2 * d->length, longer, &ignored),
                                      &ignored, "op", n->op->name) == TT_OK;
    for (int i = 0; i < n->op->n_memory; i++) {
        grows[i] = 0;
        for (int k = 0; known && !grows[i] && k < memory[i].n_dims; k++)
            if (memory[i].dims[k].size != longer[i].dims[k].size)
                grows[i] = 1 + k;
    }
}

static void emit_incremental(tt_decode *d, tt_builder *b, const tt_node *n, tt_value **in,
                             tt_value **out)
{
    tt_graph *g = tt_builder_graph(b);
    const tt_placement whole = {0};
    const tt_type *types[TT_MAX_INS];
    tt_type memory[TT_MAX_MEMORY];
    tt_state *state[TT_MAX_MEMORY];
    tt_value *held[TT_MAX_MEMORY], *updated[TT_MAX_MEMORY] = {NULL};
    tt_shape_query q;
    tt_error why = {0};
    int grows[TT_MAX_MEMORY];
    query_of(n, types, &q);
    if (TT_PLUGIN_CALL(n->op->memory(&q, d->slots, d->length, memory, &why), &why, "op",
                       n->op->name) != TT_OK) {
        tt_builder_fail(b, TT_EINTERNAL, "%s", why.text); /* check_node had no error */
        return;
    }
    find_growth(d, n, memory, grows);
    for (int i = 0; i < n->op->n_memory; i++) {
        const char *name = tt_arena_printf(g->arena, "memory.%d", d->n_memory++);
        state[i] = tt_state_new(g, TT_STATE_MEMORY, name, &memory[i], &whole);
        state[i]->grows = grows[i];
        held[i] = tt_state_read(b, state[i]);
    }
    n->op->incremental(b, &q, in, held, out, updated);
    for (int i = 0; i < n->op->n_memory; i++)
        if (updated[i])
            tt_state_assign(b, state[i], updated[i]);
}

bool tt_pass_decode_replace(void *decode, tt_builder *b, const tt_node *n, tt_value **in,
                            tt_value **out)
{
    tt_decode *d = decode;
    for (int j = 0; j < n->n_out; j++)
        out[j] = NULL;
    if (!d->live[n->id] || tt_builder_error(b))
        return true;
    for (int i = 0; i < n->n_in; i++)
        if (!in[i]) {
            tt_builder_fail(b, TT_EUNSUPPORTED,
                            "op %s reads the result of op %s, which has no incremental form",
                            n->op->name, n->in[i]->node->op->name);
            return true;
        }
    if (n->op->flags & TT_OP_MIXES_TOKENS) {
        emit_incremental(d, b, n, in, out);
        return true;
    }
    if (!d->late[n->out[0]->id])
        return false;
    for (int i = 0; i < n->n_in; i++) {
        if (d->late[n->in[i]->id])
            continue;
        if (has_token_rows(d, n->in[i]))
            in[i] = picked_rows(d, b, n->in[i], in[i]);
        else if (d->dependent[n->in[i]->id])
            tt_builder_fail(b, TT_EUNSUPPORTED,
                            "op %s (in \"%s\") reads a value that has no row for each token",
                            n->op->name, n->scope);
    }
    tt_op(b, n->op->name, in, n->n_in, picked_attrs(d, b, n), out, n->n_out);
    return true;
}

tt_status tt_pass_decode_logits(tt_decode *d, tt_builder *b, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    tt_value *v = tt_map_get(g->outputs, "logits");
    const tt_placement whole = {0};
    tt_builder_at(b, TT_FORWARD, v->node->when->stage, -1, "logits");
    if (d) {
        const tt_value *described = tt_map_get(d->described->outputs, "logits");
        if (!d->late[described->id])
            v = picked_rows(d, b, described, v);
        g->slots = d->slots;
        g->picked = d->picked;
        g->length = d->length;
        g->kept_bytes = tt_decode_token_bytes(d);
    }
    if (v->type.dtype != TT_F32)
        v = tt_cast(b, v, TT_F32);
    tt_state *s = tt_state_new(g, TT_STATE_METRIC, TT_METRIC_LOGITS, &v->type, &whole);
    s->stages = UINT64_C(1) << v->node->when->stage;
    tt_state_assign(b, s, v);
    return tt_builder_finish(b, err);
}

int64_t tt_decode_border(const tt_graph *g)
{
    const size_t n = strlen(TT_INPUT_LONGER);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *m = g->nodes.items[i];
        if (m->op == &tt_op_input && !strncmp(m->input_name, TT_INPUT_LONGER, n))
            return strtoll(m->input_name + n, NULL, 10);
    }
    return 0;
}

int64_t tt_decode_positions(const tt_graph *described)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < described->nodes.n; i++) {
        const tt_node *n = described->nodes.items[i];
        const int table = tt_op_lookup_table(n->op);
        for (int j = 0; table >= 0 && table < n->n_in && j < n->n_in; j++)
            if (j != table && n->in[j]->node->op == &tt_op_input &&
                !strcmp(n->in[j]->node->input_name, "pos"))
                least = TT_MIN(least, n->in[table]->type.dims[0].size);
    }
    return least;
}
