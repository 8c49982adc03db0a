/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <string.h>

/* Answers about a value that need no plan: the value in whose memory it lies, its tensor on a
 * rank, its bytes, and whether its node runs. */

bool tt_plan_is_view(const tt_node *n)
{
    return (n->op->flags & TT_OP_VIEW) && n->n_in >= 1 && !n->accumulate_into;
}

const tt_value *tt_plan_alias(const tt_value *v)
{
    for (;;) {
        if (v->within)
            v = v->within;
        else if (tt_plan_is_view(v->node))
            v = v->node->in[0];
        else
            return v;
    }
}

bool tt_plan_is_slice(const tt_node *n)
{
    return n->step && n->step->kind == TT_STEP_SLICE && n->out[0]->within == n->in[0];
}

const tt_value *tt_plan_source(const tt_value *v)
{
    while (tt_plan_is_view(v->node) || tt_plan_is_slice(v->node))
        v = v->node->in[0];
    return v;
}

int64_t tt_plan_skip(const tt_graph *g, const tt_value *v, const int32_t *coords)
{
    static const int32_t origin[TT_MAX_ATOMS];
    int64_t bytes = 0;
    if (!coords)
        coords = origin;
    for (;;) {
        const tt_value *w = v->within;
        if (!w && !tt_plan_is_view(v->node))
            return bytes;
        if (w) {
            tt_box mine, its;
            int64_t row = (int64_t)tt_dtype_size(w->type.dtype);
            tt_box_of(g->mesh, v->type.dims, v->type.n_dims, &v->place, coords, &mine);
            tt_box_of(g->mesh, w->type.dims, w->type.n_dims, &w->place, coords, &its);
            for (int d = 1; d < w->type.n_dims; d++)
                row *= its.end[d] - its.begin[d];
            bytes += (mine.begin[0] - its.begin[0]) * row;
        }
        v = w ? w : v->node->in[0];
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
    return tt_plan_round(g, n * (int64_t)tt_dtype_size(t->dtype));
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
    return tt_plan_round(g, n * (int64_t)tt_dtype_size(v->type.dtype));
}

bool tt_plan_communicates(const tt_node *n)
{
    return n->op == &tt_op_stage_sum || (n->step && !tt_step_is_local(n->step->kind));
}

bool tt_plan_runs(const tt_node *n)
{
    return n->op != &tt_op_param && n->op != &tt_op_state && !tt_plan_is_view(n) &&
           !tt_plan_is_slice(n);
}
