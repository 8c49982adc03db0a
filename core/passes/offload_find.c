/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/offload_impl.h"
#include <stdlib.h>

/* Finds the values that a stage keeps from a forward to its backward and that can be in host memory
 * meanwhile. A value whose first reader in the backward is in the block with which the backward begins
 * cannot: nothing would hide its copies. */

/* Does it compute in its block? What reads parameters alone may stand in another block (overlap). */
static bool works(const tt_node *n)
{
    return n->block >= 0 && !n->param && !n->when->in_chunk_loop && n->role != TT_NODE_EXPANDED &&
           n->op != &tt_op_input && n->op != &tt_op_accumulate && n->op != &tt_op_transfer &&
           tt_plan_runs(n);
}

static int part_of(const tt_node *n)
{
    return n->when->region > TT_BACKWARD ? OFFLOAD_LISTS : (int)tt_node_part(n);
}

static void make_lists(tt_offload_stage *s)
{
    const tt_graph *g = s->g;
    for (int k = 0; k < OFFLOAD_LISTS; k++) {
        tt_offload_list *l = &s->list[k];
        l->at = tt_arena_array(s->a, g->nodes.n + 1, sizeof *l->at);
        l->block = tt_arena_array(s->a, (size_t)g->n_blocks + 1, sizeof *l->block);
        l->begin = tt_arena_array(s->a, (size_t)g->n_blocks + 1, sizeof *l->begin);
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->when->stage != s->stage || part_of(n) == OFFLOAD_LISTS)
            continue;
        tt_offload_list *l = &s->list[part_of(n)];
        bool known = !works(n) || l->n_blocks == g->n_blocks;
        for (int b = 0; !known && b < l->n_blocks; b++)
            known = l->block[b] == n->block;
        if (!known) {
            l->block[l->n_blocks] = n->block;
            l->begin[l->n_blocks++] = l->n;
        }
        l->at[l->n++] = (int)i;
    }
}

/* The place of a block in the order of a list; -1: it has none. */
static int order_of(const tt_offload_list *l, int block)
{
    for (int b = 0; b < l->n_blocks; b++)
        if (l->block[b] == block)
            return b;
    return -1;
}

/* ---- values ---- */

typedef struct uses { /* by value id, of values with memory of their own */
    tt_offload_value *of;
    bool *refused;
} uses;

static bool can_offload(const tt_offload_stage *s, const tt_value *v)
{
    const tt_node *n = v->node;
    return n->when->stage == s->stage && n->when->region == TT_FORWARD && !n->param &&
           !n->when->in_chunk_loop && !n->when->per_step && n->role != TT_NODE_EXPANDED &&
           n->op != &tt_op_input && n->op != &tt_op_state && n->op != &tt_op_transfer &&
           n->op != &tt_op_offload && !v->chunked && !(n->accumulate_into && v->out == 0) &&
           !(n->assign_to && n->assign_to[v->out]) && tt_plan_alias(v) == v;
}

/* Notes that the i-th node of a list reads v or a view of it. */
static void note_reader(const tt_offload_stage *s, uses *u, int part, int i, const tt_value *in)
{
    const tt_offload_list *l = &s->list[part];
    const tt_node *n = s->g->nodes.items[l->at[i]];
    const tt_value *v = tt_plan_alias(in);
    tt_offload_value *c = &u->of[v->id];
    if (!c->value || n->role == TT_NODE_EXPANDED)
        return;
    if (part == OFFLOAD_F) {
        c->copied = tt_plan_runs(n) ? i : c->copied;
        return;
    }
    u->refused[v->id] |= n->when->in_chunk_loop;
    c->named[part] = TT_MIN(c->named[part], i);
    if (tt_plan_runs(n))
        c->read[part] = TT_MIN(c->read[part], i);
}

static void find_uses(tt_offload_stage *s, uses *u)
{
    const tt_graph *g = s->g;
    for (int part = 0; part < OFFLOAD_LISTS; part++)
        for (int i = 0; i < s->list[part].n; i++) {
            const tt_node *n = g->nodes.items[s->list[part].at[i]];
            for (int j = 0; j < n->n_in; j++)
                note_reader(s, u, part, i, n->in[j]);
            for (int j = 0; j < n->n_out; j++) {
                tt_value *v = n->out[j];
                if (v->within)
                    u->refused[tt_plan_alias(v)->id] = true;
                if (part == OFFLOAD_F && can_offload(s, v))
                    u->of[v->id] = (tt_offload_value){
                        .value = v,
                        .bytes = tt_plan_value_bytes(g, v),
                        .copied = i,
                        .named = {0, s->list[OFFLOAD_I].n, s->list[OFFLOAD_W].n},
                        .read = {0, s->list[OFFLOAD_I].n, s->list[OFFLOAD_W].n}
                    };
            }
        }
    for (size_t i = 0; i < g->nodes.n; i++) { /* the step and other stages keep what they read */
        const tt_node *n = g->nodes.items[i];
        const bool here = part_of(n) < OFFLOAD_LISTS && n->when->stage == s->stage;
        for (int j = 0; !here && n->op != &tt_op_transfer && j < n->n_in; j++)
            u->refused[tt_plan_alias(n->in[j])->id] = true;
    }
}

/* When the value is copied back for a part of the backward: `ahead` blocks before it is read. */
static bool find_fetch(const tt_offload_stage *s, tt_offload_value *c, int part)
{
    const tt_offload_list *l = &s->list[part];
    c->fetched[part] = l->n;
    if (c->named[part] == l->n)
        return true;
    if (c->read[part] == l->n)
        return false;
    const int b = order_of(l, s->g->nodes.items[l->at[c->read[part]]]->block);
    if (b < 1)
        return false;
    c->fetched[part] = TT_MIN(l->begin[TT_MAXV(b - s->o->ahead, 0)], c->named[part]);
    return true;
}

/* When its copy begins, and when it is over. */
static bool find_copy(const tt_offload_stage *s, tt_offload_value *c)
{
    const tt_offload_list *l = &s->list[OFFLOAD_F];
    c->block = s->g->nodes.items[l->at[c->copied]]->block;
    const int b = order_of(l, c->block);
    c->freed = b >= 0 && b + 2 < l->n_blocks ? l->begin[b + 2] : l->n;
    return b >= 0 && b + 1 < l->n_blocks;
}

static int by_copy(const void *a, const void *b)
{
    const tt_offload_value *x = a, *y = b;
    return x->copied != y->copied ? (x->copied > y->copied) - (x->copied < y->copied)
                                  : (x->value->id > y->value->id) - (x->value->id < y->value->id);
}

void tt_offload_find(tt_offload_stage *s)
{
    const size_t n = (size_t)s->g->n_values + 1;
    uses u = {.of = tt_arena_array(s->a, n, sizeof *u.of),
              .refused = tt_arena_array(s->a, n, sizeof *u.refused)};
    make_lists(s);
    find_uses(s, &u);
    s->values = tt_arena_array(s->a, n, sizeof *s->values);
    for (int v = 0; v < s->g->n_values; v++) {
        tt_offload_value *c = &u.of[v];
        const bool kept = c->value && (c->named[OFFLOAD_I] < s->list[OFFLOAD_I].n ||
                                       c->named[OFFLOAD_W] < s->list[OFFLOAD_W].n);
        if (kept && !u.refused[v] && find_copy(s, c) && find_fetch(s, c, OFFLOAD_I) &&
            find_fetch(s, c, OFFLOAD_W))
            s->values[s->n++] = *c;
    }
    qsort(s->values, (size_t)s->n, sizeof *s->values, by_copy);
}
