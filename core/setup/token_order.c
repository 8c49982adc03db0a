/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"

/* Head-tail balance of context parallelism. A later token sees more keys, so ranks have unequal
 * work if a sequence is cut into consecutive parts. Here every part takes half its tokens from the
 * head of what is left of the sequence and half from the tail: with 2n equal chunks rank i has
 * chunks i and 2n-1-i. Other sizes work too, because the mean position in such a part is the middle
 * of the sequence. The graph need not know: positions, segments and labels move with their tokens,
 * masks are made from positions, and everything else is per token (R4). Where that does not hold
 * (core/graph/token_order.c), tokens keep their order. */

static const tt_value *queries(const tt_graph *g)
{
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if ((n->op->flags & TT_OP_MIXES_TOKENS) && !(n->op->flags & TT_OP_ORDERED) &&
            n->role != TT_NODE_EXPANDED)
            return n->in[0];
    }
    return NULL;
}

/* Sets starts[i] if a rank's queries begin at token i of the first data rank; the other data ranks
 * are cut in the same way. Returns whether some sequence is cut. */
static bool find_pieces(const tt_setup *s, const tt_value *q, int64_t n, bool *starts)
{
    bool inside = false;
    for (int r = 0; r < s->world; r++) {
        int32_t coords[TT_MAX_ATOMS];
        int64_t begin, end;
        tt_mesh_coords(&s->mesh, r, coords);
        tt_dim_box(&s->mesh, &q->type.dims[0], q->place.atom[0], q->place.n[0], coords, &begin,
                   &end);
        if (begin >= n)
            continue;
        starts[begin] = true;
        inside = inside || begin % s->core.training.seq_len != 0;
    }
    return inside;
}

static int64_t piece_end(const bool *starts, int64_t at, int64_t n)
{
    for (at++; at < n && !starts[at]; at++)
        ;
    return at;
}

static void deal_line(const bool *starts, int64_t line, int64_t n, int32_t *from)
{
    int64_t head = line, tail = line + n;
    for (int64_t at = line, end; at < line + n; at = end) {
        end = piece_end(starts, at, line + n);
        const int64_t heads = (end - at + 1) / 2;
        for (int64_t i = at; i < end; i++)
            from[i] = (int32_t)(i < at + heads ? head + i - at : tail - (end - i));
        head += heads;
        tail -= end - at - heads;
    }
}

/* The number of keys that the busiest rank's tokens may see, divided by the mean. from NULL: tokens
 * in their order. */
static double busiest(const bool *starts, const int32_t *from, int64_t n, int64_t line)
{
    double most = 0, all = 0;
    int64_t pieces = 0;
    for (int64_t at = 0, end; at < n; at = end, pieces++) {
        double sees = 0;
        end = piece_end(starts, at, n);
        for (int64_t i = at; i < end; i++)
            sees += (double)((from ? from[i] : i) % line + 1);
        most = TT_MAXV(most, sees);
        all += sees;
    }
    return most * (double)pieces / all;
}

void tt_setup_token_order(tt_setup *s)
{
    const int64_t line = s->core.training.seq_len, n = s->local * line;
    const tt_value *q = queries(s->graph);
    bool *starts = tt_arena_array(s->arena, (size_t)n, sizeof *starts);
    if (!q || !find_pieces(s, q, n, starts))
        return;
    tt_token_order *o = tt_arena_alloc(s->arena, sizeof *o);
    int32_t *from = tt_arena_array(s->arena, (size_t)n, sizeof *from);
    s->token_order = o;
    o->busiest = o->busiest_plain = busiest(starts, NULL, n, line);
    if (s->core.parallelism.context_parallel_load_balancer != TT_BALANCE_HEADTAIL)
        return;
    const char *why = s->graph->ordered;
    if (!why && s->eval_graph)
        why = s->eval_graph->ordered;
    if (why) {
        tt_log(TT_INFO, "train", "tokens keep their order, because %s depends on it", why);
        return;
    }
    for (int64_t at = 0; at < n; at += line)
        deal_line(starts, at, line, from);
    o->busiest = busiest(starts, from, n, line);
    o->from = from;
}
