/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <string.h>
#include <ttrun/backend.h>

/* rope_fusion: fuses RoPE into the matrix product that makes q or k. The kernel rotates a tile
 * while it is in the cache. Each value is rounded and rotated as before, so no bit changes
 * (R11). */

/* The op that computes the product p and rotates it; NULL: there is none. The product must stand
 * alone or have an epilogue of one output, and only the rotation may read it. */
static const tt_op_def *rope_form(const tt_graph *g, const tt_fuse_opts *o, const tt_node *p)
{
    const tt_op_def *alone = tt_op_epilogue_form(g->ops, p->op),
                    *form = tt_op_rope_form(g->ops, alone ? alone : p->op);
    if (!form || p->n_out != 1 || p->accumulate_into || p->assign_to || p->n_in >= TT_MAX_INS ||
        (!alone && ((const tt_fused_product *)p->attrs)->into != 0))
        return NULL;
    return !o->has_kernel || o->has_kernel(o->user, form->name) ? form : NULL;
}

/* The product p with the rotation, not yet in the graph. */
static tt_node *with_rope(tt_arena *arena, const tt_node *p, const tt_node *rope,
                          const tt_op_def *form)
{
    static const int16_t product[] = {0};
    tt_node *n = tt_arena_dup(arena, p, sizeof *n);
    tt_fused_rope *a = tt_arena_alloc(arena, sizeof *a);
    if (p->attrs)
        a->product = *(const tt_fused_product *)p->attrs;
    else
        a->product.program = (tt_fused){.n_in = 1, .n_out = 1, .out = product};
    a->rope = *(const tt_attrs_rope *)rope->attrs;
    n->op = form;
    n->attrs = a;
    n->rule = NULL;
    n->in = tt_arena_array(arena, (size_t)p->n_in + 1, sizeof *n->in);
    memcpy(n->in, p->in, (size_t)p->n_in * sizeof *n->in);
    n->in[n->n_in++] = rope->in[1];
    n->out = rope->out;
    return n;
}

/* The position of the product that node i rotates; -1: there is none. */
static int product_of(const tt_graph *g, const tt_fuse_opts *o, const tt_readers *r, int i)
{
    const tt_node *rope = g->nodes.items[i];
    if (!rope || !(rope->op->flags & TT_OP_ROTARY) || rope->accumulate_into || rope->assign_to)
        return -1;
    const int at = r->index[rope->in[0]->id];
    const tt_node *p = g->nodes.items[at];
    if (r->n[p->out[0]->id] != 1 || !tt_fuse_same_iteration(p, rope))
        return -1;
    const tt_op_def *form = rope_form(g, o, p);
    return form && tt_pass_supports(o->supports, o->user, with_rope(g->arena, p, rope, form), false)
               ? at
               : -1;
}

/* Moves positions that are an input of the batch before the first product that they rotate. */
static tt_readers bring_positions(tt_graph *g, const tt_fuse_opts *o)
{
    tt_readers r = tt_find_readers(g);
    tt_node **items = g->nodes.items;
    for (int i = 0; i < (int)g->nodes.n; i++) {
        const int at = product_of(g, o, &r, i), from = at < 0 ? -1 : r.index[items[i]->in[1]->id];
        tt_node *pos = from < 0 ? NULL : items[from];
        if (from <= at || pos->op != &tt_op_input)
            continue;
        memmove(items + at + 1, items + at, (size_t)(from - at) * sizeof *items);
        items[at] = pos;
        r = tt_find_readers(g);
    }
    return r;
}

tt_status tt_pass_rope_fusion(tt_graph *g, const tt_fuse_opts *o, tt_error *err)
{
    if (!o->pointwise)
        return TT_OK;
    const tt_readers readers = bring_positions(g, o);
    tt_node **items = g->nodes.items;
    size_t n = 0;
    for (int i = 0; i < (int)g->nodes.n; i++) {
        const int at = product_of(g, o, &readers, i);
        if (at < 0 || readers.index[items[i]->in[1]->id] > at)
            continue;
        items[at] = with_rope(g->arena, items[at], items[i], rope_form(g, o, items[at]));
        items[at]->out[0]->node = items[at];
        readers.index[items[i]->out[0]->id] = at;
        items[i] = NULL;
    }
    for (size_t i = 0; i < g->nodes.n; i++)
        if (items[i])
            items[n++] = items[i];
    g->nodes.n = n;
    return tt_graph_verify(g, "rope_fusion", err);
}
