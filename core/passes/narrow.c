/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/narrow.h"
#include "graph/copies.h"
#include "graph/rewrite.h"
#include <string.h>

/* narrow: an all-gather carries the numbers to which its readers round the value, not the value. What
 * tt_quantize() has marked (tt_quantize_opts.before_gather) and the elementwise ops and maxima that lead
 * to it are computed on the shard, and the result is gathered, if that is less than what the gather
 * carried and no other op reads the gathered value. Elementwise ops give the same bits on a shard, and a
 * maximum does not depend on the order, so no bit changes (R6).
 *
 * Scales and other small values are made once in the forward, outside of the blocks, so that no backward
 * and no recomputation reduces them again. What is large follows its readers: if a parameter is gathered
 * again for the backward (reshard after forward), its shard is rounded again there; if not, the
 * backward reads what the forward has gathered. */

#define SMALL 64 /* a value is small if it has at most 1/64 of the elements that were gathered */

enum { IN_FORWARD, IN_BACKWARD, ONCE, N_PLACES }; /* where a copy is: with its reader, or outside */

typedef struct narrower {
    tt_builder *b;
    tt_graph *g;
    const tt_narrow_opts *o;
    int n_nodes, n_values;
    tt_node **gather; /* by node id: the gather on whose result alone its own depends; NULL: none */
    bool *known;      /* by node id: `gather` and `fixed` are found */
    bool *fixed;      /* by node id: it depends on constants and buffers alone */
    bool *member;     /* by node id: it leads from a gather to a marked node */
    bool *kept;       /* by 2 · id of a gather + (1: of its backward): it stays */
    int *number;      /* by value id: equal for values of equal ops on equal operands; 0: not yet */
    int n_numbers;
    tt_map *numbers;       /* text of a node → its number */
    tt_value **moved;      /* by N_PLACES · number + place: the value on the shard */
    tt_value **result;     /* the same: gathered, as its readers read it */
    tt_map *sums;          /* text of a gather and a part → the bytes that replace it */
    bool *placed;          /* by node id: it is in `list` */
    const tt_node *reader; /* for which copies are made now */
    TT_VEC(tt_node *) list;
} narrower;

/* ---- which nodes lead from a gather to a marked node ---- */

/* Does each rank get more of the value, and nothing else? */
static bool is_gather(const tt_node *n)
{
    if (n->op != &tt_op_fetch && n->op != &tt_op_redistribute)
        return false;
    const tt_placement *from = &n->in[0]->place, *to = &n->out[0]->place;
    bool more = false;
    if (from->partial || to->partial || n->when->in_chunk_loop)
        return false;
    for (int d = 0; d < n->out[0]->type.n_dims; d++) {
        if (to->n[d] > from->n[d] ||
            memcmp(from->atom[d], to->atom[d], to->n[d] * sizeof to->atom[d][0]) != 0)
            return false;
        more = more || to->n[d] < from->n[d];
    }
    return more;
}

/* A reduction of pending maxima: the builder makes another one where a copy needs it. */
static bool reduces_max(const tt_node *n)
{
    return n->op == &tt_op_redistribute && n->in[0]->place.partial_max && !n->out[0]->place.partial;
}

static bool can_copy(const tt_node *n)
{
    const uint32_t never = TT_OP_BY_PLACE | TT_OP_UPDATES | TT_OP_MIXES_TOKENS;
    return n->role != TT_NODE_EXPANDED && n->n_out == 1 && !n->when->in_chunk_loop &&
           n->when->region <= TT_BACKWARD && !(n->op->flags & never);
}

static bool can_move(const tt_node *n)
{
    if (!can_copy(n))
        return false;
    return n->op->flags & TT_OP_POINTWISE || n->op->reduce_max || reduces_max(n);
}

static tt_node *find_gather(narrower *w, tt_node *n)
{
    if (w->known[n->id])
        return w->gather[n->id];
    w->known[n->id] = true;
    if (is_gather(n))
        return w->gather[n->id] = n;
    w->fixed[n->id] =
        n->op == &tt_op_const || (n->op == &tt_op_state && n->state->kind == TT_STATE_BUFFER);
    tt_node *one = NULL;
    bool two = false;
    int n_fixed = 0, n_gathered = 0;
    for (int j = 0; j < n->n_in; j++) {
        tt_node *r = find_gather(w, n->in[j]->node);
        two = two || (r && one && r != one);
        one = r ? r : one;
        n_gathered += r != NULL;
        n_fixed += w->fixed[n->in[j]->node->id];
    }
    if (n->n_in && n_fixed == n->n_in && n->rule)
        w->fixed[n->id] = can_copy(n);
    if (two || !can_move(n) || (one && one->param && n_gathered + n_fixed < n->n_in))
        return NULL; /* of two gathers, or different in each micro-batch */
    return w->gather[n->id] = one;
}

static void mark_members(narrower *w, tt_node *n)
{
    if (w->member[n->id] || !w->gather[n->id] || w->gather[n->id] == n)
        return;
    w->member[n->id] = true;
    for (int j = 0; j < n->n_in; j++)
        mark_members(w, n->in[j]->node);
}

/* ---- numbers of values ---- */

static int narrow_number(narrower *w, const tt_value *v)
{
    if (w->number[v->id])
        return w->number[v->id];
    const tt_node *n = v->node;
    tt_str t = {0};
    const bool copied = w->member[n->id] || w->fixed[n->id];
    if (copied && reduces_max(n))
        return w->number[v->id] = narrow_number(w, n->in[0]);
    if (copied && n->n_in) {
        const size_t size = n->attrs ? n->op->attrs_size : 0;
        tt_str_printf(&t, "%s %llx", n->op->name,
                      (unsigned long long)(size ? tt_hash64(n->attrs, size, 0) : 0));
        for (int j = 0; j < n->n_in; j++)
            tt_str_printf(&t, " %d", narrow_number(w, n->in[j]));
    } else if (n->op == &tt_op_const) {
        const tt_attrs_const *a = n->attrs;
        tt_str_printf(&t, "const %a %d", a->value, (int)v->type.dtype);
    } else if (copied) {
        tt_str_printf(&t, "state %d", n->state->id);
    } else {
        tt_str_printf(&t, "value %d", v->id);
    }
    int *k = tt_map_get(w->numbers, tt_str_get(&t));
    if (!k) {
        k = tt_arena_alloc(w->g->arena, sizeof *k);
        *k = ++w->n_numbers;
        tt_map_set(w->numbers, tt_str_get(&t), k);
    }
    tt_str_free(&t);
    return w->number[v->id] = *k;
}

/* ---- what is worth moving ---- */

/* Is the value gathered again for the backward? */
static bool gathered_again(const narrower *w, const tt_node *gather)
{
    return w->o->fetches && gather->op == &tt_op_fetch && gather->block >= 0;
}

/* The half of a gather's readers to which this one belongs. */
static int half_of(const narrower *w, const tt_node *gather, const tt_node *reader)
{
    return gathered_again(w, gather) && reader->when->region != TT_FORWARD;
}

static int64_t narrow_bytes(const tt_value *v)
{
    return tt_type_numel(&v->type) * (int64_t)tt_dtype_size(v->type.dtype);
}

/* n reads v, which a member of a gather makes: v will be gathered instead. */
static void add_bytes(narrower *w, const tt_node *n, const tt_value *v)
{
    const tt_node *r = w->gather[v->node->id];
    const int h = half_of(w, r, n);
    const char *once = tt_arena_printf(w->g->arena, "%d.%d.%d", r->id, h, narrow_number(w, v));
    const char *sum = tt_arena_printf(w->g->arena, "%d.%d", r->id, h);
    if (tt_map_get(w->sums, once))
        return;
    tt_map_set(w->sums, once, w);
    int64_t *at = tt_map_get(w->sums, sum);
    if (!at) {
        at = tt_arena_alloc(w->g->arena, sizeof *at);
        tt_map_set(w->sums, sum, at);
    }
    *at += narrow_bytes(v);
    if (*at >= narrow_bytes(r->out[0]))
        w->kept[2 * r->id + h] = true;
}

static void narrow_decide(narrower *w)
{
    for (int i = 0; i < w->n_nodes; i++) {
        const tt_node *n = w->g->nodes.items[i];
        for (int j = 0; n->role != TT_NODE_EXPANDED && !w->member[n->id] && j < n->n_in; j++) {
            const tt_node *from = n->in[j]->node;
            tt_node *r = w->gather[from->id];
            if (w->member[from->id])
                add_bytes(w, n, n->in[j]);
            else if (r == from) /* it reads the gathered value itself */
                w->kept[2 * r->id + half_of(w, r, n)] = true;
        }
    }
    for (size_t i = 0; i < w->g->buffer_updates.n; i++) {
        tt_value *stat = w->g->buffer_updates.items[i].stat;
        for (int c = 0; c < tt_value_n_copies(stat); c++) {
            const tt_value *v = tt_value_copy(stat, c);
            if (w->member[v->node->id])
                add_bytes(w, v->node, v);
        }
    }
}

/* Is node n, a member, replaced by copies on the shard? */
static bool narrow_moves(const narrower *w, const tt_node *n)
{
    const tt_node *r = w->gather[n->id];
    return w->member[n->id] && !w->kept[2 * r->id + half_of(w, r, n)];
}

/* ---- making the copies ---- */

static void narrow_put(narrower *w, tt_node *n)
{
    if (w->placed[n->id])
        return;
    w->placed[n->id] = true;
    for (int j = 0; j < n->n_in; j++)
        narrow_put(w, n->in[j]->node);
    tt_vec_push(w->g->arena, &w->list, n);
}

static void narrow_grow(narrower *w, int *cap)
{
    if (w->g->n_ids < *cap)
        return;
    const int n = 2 * w->g->n_ids + 2;
    bool *placed = tt_arena_array(w->g->arena, (size_t)n, sizeof *placed);
    if (*cap)
        memcpy(placed, w->placed, (size_t)*cap * sizeof *placed);
    w->placed = placed;
    *cap = n;
}

static bool is_small(const tt_value *v, const tt_node *gather)
{
    return tt_type_numel(&v->type) * SMALL <= tt_type_numel(&gather->out[0]->type);
}

static int copy_place(const narrower *w, const tt_value *v, const tt_node *gather, int place)
{
    if (place == ONCE || (gather->param && is_small(v, gather)))
        return ONCE;
    return half_of(w, gather, w->reader) ? IN_BACKWARD : IN_FORWARD;
}

static void narrow_build_at(narrower *w, const tt_node *gather, int place)
{
    const tt_node *at = place == IN_BACKWARD ? w->reader : gather;
    tt_builder_at(w->b, place == IN_BACKWARD ? TT_BACKWARD : gather->when->region,
                  gather->when->stage, place == ONCE ? -1 : at->block, at->scope);
    tt_builder_follow(w->b, true);
    tt_builder_finest(w->b, true);
}

/* What was built since `from` is of the gather's parameter; in the backward it is done again. */
static void narrow_label(narrower *w, size_t from, const tt_node *gather)
{
    for (size_t i = from; i < w->g->nodes.n; i++) {
        tt_node *n = w->g->nodes.items[i];
        tt_when when = *n->when;
        n->param = gather->param;
        when.recomputed = gather->param && when.region == TT_BACKWARD;
        n->when = tt_when_intern(w->g, when);
    }
}

static tt_value *same_op(narrower *w, const tt_node *n, tt_value **in)
{
    tt_value *out = NULL;
    if (n->op == &tt_op_state)
        return tt_state_read(w->b, n->state);
    tt_op(w->b, n->op->name, in, n->n_in, n->attrs, &out, 1);
    return out;
}

/* The value v, which depends on the gather, computed from the gather's operand. */
static tt_value *on_shard(narrower *w, const tt_value *v, const tt_node *gather, int place)
{
    tt_value *in[TT_MAX_INS];
    tt_node *n = v->node;
    if (n == gather && (place != ONCE || !tt_node_is_cast(n->in[0]->node)))
        return n->in[0];
    place = copy_place(w, v, gather, place);
    tt_value **at = &w->moved[N_PLACES * narrow_number(w, v) + place];
    if (*at)
        return *at;
    if (n == gather) /* the cast of a parameter, apart from that of its block */
        n = n->in[0]->node;
    for (int j = 0; j < n->n_in; j++) {
        const tt_node *from = n->in[j]->node;
        const bool inside = from == gather || w->member[from->id] || w->fixed[from->id];
        in[j] = inside ? on_shard(w, n->in[j], gather, place) : n->in[j];
    }
    if (reduces_max(n))
        return in[0];
    const size_t first = w->g->nodes.n;
    narrow_build_at(w, gather, place);
    *at = same_op(w, n, in);
    narrow_label(w, first, gather);
    return *at;
}

/* v as a node that is no member reads it. */
static tt_value *gathered(narrower *w, const tt_value *v)
{
    const tt_node *gather = w->gather[v->node->id];
    const int place = copy_place(w, v, gather, IN_FORWARD);
    tt_value **at = &w->result[N_PLACES * narrow_number(w, v) + place];
    if (*at)
        return *at;
    tt_placement summed = {0};
    tt_value *y = on_shard(w, v, gather, place);
    const size_t first = w->g->nodes.n;
    narrow_build_at(w, gather, place);
    summed = y->place;
    summed.partial = v->place.partial;
    summed.partial_max = v->place.partial_max;
    if (!tt_builder_error(w->b))
        y = tt_redistribute(w->b, y, &summed);
    *at = gather->param ? tt_fetch_value(w->b, gather->param, y, &v->place)
                        : tt_redistribute(w->b, y, &v->place);
    narrow_label(w, first, gather);
    return *at;
}

static tt_value *statistic_now(const void *narrowing, tt_value *v)
{
    narrower *w = *(narrower *const *)narrowing;
    if (v->id >= w->n_values || !narrow_moves(w, v->node))
        return v;
    w->reader = v->node;
    return gathered(w, v);
}

/* Statistics of states, which no node reads yet. */
static void rebuild_statistics(narrower *w)
{
    for (size_t i = 0; i < w->g->buffer_updates.n; i++) {
        tt_value **stat = &w->g->buffer_updates.items[i].stat, *was = *stat;
        *stat = statistic_now(&w, was);
        tt_value_copy_from(w->g, *stat, was, statistic_now, &w);
    }
}

static void rebuild(narrower *w)
{
    int cap = 0;
    for (int i = 0; i < w->n_nodes && !tt_builder_error(w->b); i++) {
        tt_node *n = w->g->nodes.items[i];
        const size_t first = w->g->nodes.n;
        narrow_grow(w, &cap);
        if (narrow_moves(w, n))
            continue;
        w->reader = n;
        for (int j = 0; n->role != TT_NODE_EXPANDED && j < n->n_in; j++)
            if (narrow_moves(w, n->in[j]->node))
                n->in[j] = gathered(w, n->in[j]);
        narrow_grow(w, &cap);
        for (size_t k = first; k < w->g->nodes.n; k++)
            narrow_put(w, w->g->nodes.items[k]);
        narrow_put(w, n);
    }
    const size_t first = w->g->nodes.n;
    rebuild_statistics(w);
    narrow_grow(w, &cap);
    for (size_t k = first; k < w->g->nodes.n; k++)
        narrow_put(w, w->g->nodes.items[k]);
}

static bool find_members(narrower *w)
{
    bool any = false;
    for (int i = 0; i < w->n_nodes; i++) {
        tt_node *n = w->g->nodes.items[i];
        find_gather(w, n); /* operands come first, so this is no deep recursion */
        if (!n->before_gather || !w->gather[n->id] || w->gather[n->id] == n)
            continue;
        mark_members(w, n);
        any = true;
    }
    return any;
}

tt_status tt_pass_narrow(tt_builder *b, const tt_narrow_opts *o, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    narrower w = {.b = b, .g = g, .o = o, .n_nodes = (int)g->nodes.n, .n_values = g->n_values};
    const size_t ids = (size_t)g->n_ids + 1, values = (size_t)g->n_values + 1;
    bool marked = false;
    for (size_t i = 0; !marked && i < g->nodes.n; i++)
        marked = g->nodes.items[i]->before_gather;
    if (!marked)
        return TT_OK;
    w.gather = tt_arena_array(g->arena, ids, sizeof(tt_node *));
    w.known = tt_arena_array(g->arena, ids, sizeof *w.known);
    w.fixed = tt_arena_array(g->arena, ids, sizeof *w.fixed);
    w.member = tt_arena_array(g->arena, ids, sizeof *w.member);
    w.kept = tt_arena_array(g->arena, 2 * ids, sizeof *w.kept);
    w.number = tt_arena_array(g->arena, values, sizeof *w.number);
    w.numbers = tt_map_new(g->arena);
    w.sums = tt_map_new(g->arena);
    w.moved = tt_arena_array(g->arena, N_PLACES * values, sizeof(tt_value *));
    w.result = tt_arena_array(g->arena, N_PLACES * values, sizeof(tt_value *));
    if (!find_members(&w))
        return TT_OK;
    narrow_decide(&w);
    rebuild(&w);
    tt_builder_follow(b, false);
    tt_builder_finest(b, false);
    TT_TRY(tt_builder_finish(b, err));
    g->nodes.items = w.list.items;
    g->nodes.n = w.list.n;
    g->nodes.cap = w.list.cap;
    return tt_graph_verify(g, "narrow", err);
}
