/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include "graph/ops/internal.h"
#include "graph/rows.h"
#include <math.h>
#include <string.h>

/* An expert layer (docs/design/experts.md): expert_route says where each slot's row is, expert_rows makes
 * the rows, expert_slots brings what was made of them back. With one part of the tokens they are
 * expert_sort, gather and scatter_add; with several the dispatch ops, and with experts that are cut an
 * all-to-all each way, which is a redistribute. */

/* ---- parts ---- */

/* How a mesh cuts rows. parts: the atoms of the rows, first those of the groups, then those of the experts. */
typedef struct cut {
    tt_atom_list parts, groups, experts;
    int64_t n_parts, n_groups, members; /* the products of their sizes */
} cut;

static bool has_atom(const tt_atom_list *l, uint16_t atom)
{
    return tt_atom_list_mask(l) >> TT_ATOM(atom) & 1u;
}

static cut make_cut(const tt_mesh *m, const tt_atom_list *tokens, const tt_atom_list *experts)
{
    cut c = {.experts = *experts};
    for (int i = 0; i < tokens->n; i++)
        if (!has_atom(experts, tokens->atom[i]))
            c.groups.atom[c.groups.n++] = tokens->atom[i];
    c.parts = c.groups;
    for (int i = 0; i < experts->n; i++)
        c.parts.atom[c.parts.n++] = experts->atom[i];
    c.n_groups = tt_mesh_degree(m, &c.groups);
    c.members = tt_mesh_degree(m, &c.experts);
    c.n_parts = c.n_groups * c.members;
    return c;
}

/* The cut that the labels give to a layer of these tokens and experts. replicas: of the same rows, but each rank
 * has all experts, so that no row is sent. */
static bool cut_by_labels(tt_builder *b, const tt_dim *tokens, int64_t n_experts, bool replicas,
                          cut *out)
{
    const tt_graph *g = tt_builder_graph(b);
    const tt_dim e = TT_DIM(n_experts, "experts"), mlp[2] = {*tokens, TT_DIM(1, "ffn")};
    tt_atom_list experts, rows[2];
    tt_error why = {0};
    if (tt_canon(g->mesh, g->labels, &e, 1, &experts, &why) != TT_OK ||
        tt_canon(g->mesh, g->labels, mlp, experts.n ? 1 : 2, rows, &why) != TT_OK) {
        tt_builder_fail(b, why.code, "%s", why.text);
        return false;
    }
    *out = make_cut(g->mesh, &rows[0], &experts);
    if (replicas) {
        const tt_atom_list none = {0}, parts = out->parts;
        *out = make_cut(g->mesh, &parts, &none);
    }
    return true;
}

static tt_atom_list atoms_of(const tt_value *v, int d)
{
    tt_atom_list l = {.n = v->place.n[d]};
    for (int i = 0; i < l.n; i++)
        l.atom[i] = v->place.atom[d][i];
    return l;
}

/* The cut that expert_route's results have. */
static cut cut_of(tt_builder *b, const tt_value *route, const tt_value *counts)
{
    const tt_atom_list parts = atoms_of(route, 0), experts = atoms_of(counts, 2);
    return make_cut(tt_builder_graph(b)->mesh, &parts, &experts);
}

/* The placement of v with its first dims cut so, the others whole. What is pending stays so. */
static tt_placement cut_place(const tt_value *v, const tt_atom_list *first,
                              const tt_atom_list *second, const tt_atom_list *third)
{
    const tt_atom_list *l[3] = {first, second, third};
    tt_placement to = {.partial = v->place.partial, .partial_max = v->place.partial_max};
    for (int d = 0; d < 3; d++)
        for (int i = 0; l[d] && i < l[d]->n; i++) {
            to.atom[d][to.n[d]++] = l[d]->atom[i];
            to.partial &= (uint16_t) ~(1u << TT_ATOM(l[d]->atom[i]));
        }
    if (!to.partial)
        to.partial_max = 0;
    return to;
}

static tt_value *cut_dims(tt_builder *b, tt_value *v, const tt_atom_list *first,
                          const tt_atom_list *second, const tt_atom_list *third)
{
    const tt_placement to = cut_place(v, first, second, third);
    return tt_redistribute(b, v, &to);
}

/* An all-to-all of the rows that `counts` tells of: from the parts that have the tokens to those that have
 * the experts, or `back`. */
static tt_value *move_rows(tt_builder *b, tt_value *v, const cut *c, tt_value *counts, bool back)
{
    tt_value *of_part = cut_dims(b, counts, &c->groups, &c->experts, NULL),
             *of_experts = cut_dims(b, counts, &c->groups, NULL, &c->experts);
    const tt_placement to =
        back ? cut_place(v, &c->parts, NULL, NULL) : cut_place(v, &c->groups, &c->experts, NULL);
    return tt_redistribute_rows(b, v, &to, back ? of_experts : of_part,
                                back ? of_part : of_experts);
}

/* ---- expert_route ---- */

static tt_status infer_route(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    return tt_op_expert_sort.infer(q, out, err);
}

int tt_expert_passes(double room, int64_t members)
{
    if (!(room > 0) || (double)members <= room)
        return 1;
    return 1 + (int)TT_MIN(ceil(((double)members - room) / room), TT_MAX_EXPERT_PASSES - 1.0);
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* A pass has those of the slots of a bin, in their order, from `begin` on for which it has places. */
typedef struct pass_places {
    int64_t begin,
        share; /* share: of places per expert, so that one letter cuts places and experts alike */
} pass_places;

/* Of `slots` slots of a part, all of which may go to one of P members with `local` experts each. */
static pass_places places_of_pass(double room, int64_t slots, int64_t members, int64_t local,
                                  int pass, int n_passes)
{
    if (n_passes == 1)
        return (pass_places){0, TT_MAXV(divide_up(slots, local), 1)};
    const double first = ceil(room * (double)slots / (double)members);
    const int64_t share = TT_MAXV(divide_up((int64_t)TT_MIN(first, (double)slots), local), 1);
    const int64_t rest = TT_MAXV(slots - share * local, 0),
                  later = TT_MAXV(divide_up(divide_up(rest, n_passes - 1), local), 1);
    return pass == 0 ? (pass_places){0, share}
                     : (pass_places){(share + (pass - 1) * later) * local, later};
}

bool tt_routes_to_replicas(const tt_attrs_dims *route)
{
    return route->dims[0].label && !strcmp(route->dims[0].label, TT_LABEL_REPLICAS);
}

/* Places of a part for its slots. share: of one expert. */
static tt_dim places_dim(const cut *c, const tt_dim *e, int64_t slots, int64_t share, int pass,
                         bool replicas)
{
    if (replicas)
        return TT_DIM(slots, TT_LABEL_REPLICA_ROWS);
    return c->members > 1 ? TT_DIM_UNIT(share * e->size, pass ? TT_LABEL_LATER_ROWS : NULL, share)
                          : TT_DIM(slots, NULL);
}

/* Attributes: E and, for one of several passes, which and how many. Of replicas their number, then E. */
static void expand_route(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                         tt_value **outs)
{
    const tt_attrs_dims *given = q->attrs;
    const tt_dim e = given->dims[0], *t = q->in[0]->dims;
    const bool replicas = tt_routes_to_replicas(given), one = replicas || given->n_dims == 1;
    const int pass = one ? 0 : (int)given->dims[1].size,
              n_passes = one ? 1 : (int)given->dims[2].size;
    cut c;
    if (!cut_by_labels(b, &t[0], given->dims[replicas].size, replicas, &c) || c.n_parts == 1) {
        tt_op(b, "expert_sort", in, 1, q->attrs, outs, 2);
        return;
    }
    const int64_t slots =
        tt_chunk(tt_builder_graph(b)->mesh, &t[0], c.parts.atom, c.parts.n) * t[1].size;
    const pass_places p =
        places_of_pass(b->opts.expert_room, slots, c.members, e.size / c.members, pass, n_passes);
    const tt_attrs_dims a = {
        .n_dims = 5,
        .dims = {TT_DIM(c.n_groups, NULL), TT_DIM(c.members, NULL),
                 places_dim(&c, &e, slots, p.share, pass, replicas), e, TT_DIM(p.begin, NULL)}
    };
    tt_value *assign = cut_dims(b, in[0], &c.parts, NULL, NULL);
    tt_op(b, "dispatch_sort", &assign, 1, &a, outs, 2);
    outs[1] = cut_dims(b, outs[1], &c.groups, NULL, &c.experts);
}

/* ---- expert_rows and expert_slots: x or rows, assign, route, counts ---- */

/* The label of the rows of a route on a mesh, for estimates. */
static const char *label_of(const tt_type *route)
{
    return route->dims[1].label ? route->dims[1].label : TT_LABEL_ROWS;
}

static tt_status infer_rows(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 4, 4, err));
    TT_TRY(tt_want_min_rank(q, 0, "x", 2, err));
    TT_TRY(tt_want_float(q, 0, "x", err));
    TT_TRY(tt_want_rank(q, 1, "the assignment", 2, err));
    TT_TRY(tt_want_equal(q, 0, 0, 1, 0, err));
    const tt_type *x = q->in[0], *route = q->in[2];
    int64_t rows = 1;
    for (int d = 0; d < route->n_dims; d++)
        rows *= route->dims[d].size;
    const tt_dim d[2] = {route->n_dims == 1 ? route->dims[0] : TT_DIM(rows, label_of(route)),
                         x->dims[x->n_dims - 1]};
    out[0] = tt_type_make(x->dtype, d, 2);
    return TT_OK;
}

static tt_status infer_slots(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 4, 4, err));
    TT_TRY(tt_want_rank(q, 0, "the rows", 2, err));
    TT_TRY(tt_want_float(q, 0, "the rows", err));
    TT_TRY(tt_want_rank(q, 1, "the assignment", 2, err));
    const tt_dim d[3] = {q->in[1]->dims[0], q->in[1]->dims[1], q->in[0]->dims[1]};
    out[0] = tt_type_make(q->in[0]->dtype, d, 3);
    return TT_OK;
}

static tt_value *by_slot(tt_builder *b, tt_value *route, const tt_dim *k)
{
    return tt_floor_div(b, route, tt_const(b, (double)k->size, TT_I32));
}

static tt_attrs_dims dims_attrs(int n, tt_dim a, tt_dim b)
{
    return (tt_attrs_dims){
        .n_dims = n, .dims = {a, b}
    };
}

static void rows_of_one(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                        tt_value **outs)
{
    const tt_type *x = q->in[0];
    const tt_dim *t = q->in[1]->dims;
    if (x->n_dims == 2) {
        outs[0] = tt_gather(b, in[0], by_slot(b, in[2], &t[1]));
        return;
    }
    const tt_dim slots[2] = {tt_slots_dim(&t[0], t[1].size), x->dims[2]};
    outs[0] = tt_gather(b, tt_reshape(b, in[0], slots, 2), in[2]);
}

/* Replicas have as many rows as there are slots for them, all other rows of one member are slots. */
static bool counts_rows(const tt_type *route)
{
    return !strcmp(label_of(route), TT_LABEL_REPLICA_ROWS);
}

static void expand_rows(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                        tt_value **outs)
{
    tt_value *route = in[2], *counts = in[3];
    if (q->in[2]->n_dims == 1) {
        rows_of_one(b, q, in, outs);
        return;
    }
    const cut c = cut_of(b, route, counts);
    const tt_dim *places = q->in[2]->dims;
    const tt_dim rows = TT_DIM(places[0].size * places[1].size, label_of(q->in[2]));
    tt_value *x = cut_dims(b, in[0], &c.parts, NULL, NULL);
    tt_value *at = q->in[0]->n_dims == 2 ? by_slot(b, route, &q->in[1]->dims[1]) : route;
    const tt_attrs_dims flat = dims_attrs(1, rows, rows),
                        bins = dims_attrs(2, places[0], places[1]);
    if (c.members == 1) {
        tt_value *from[3] = {x, at, counts};
        outs[0] = tt_emit(b, "dispatch_gather", from, counts_rows(q->in[2]) ? 3 : 2, &flat);
        return;
    }
    tt_value *sent = tt_emit2(b, "dispatch_gather", x, at, &bins);
    tt_value *received = move_rows(b, sent, &c, counts, false);
    outs[0] = tt_emit2(b, "dispatch_pack", received, counts, &flat);
}

static void expand_slots(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                         tt_value **outs)
{
    tt_value *route = in[2], *counts = in[3];
    const tt_dim *t = q->in[1]->dims, *places = q->in[2]->dims;
    if (q->in[2]->n_dims == 1) {
        const tt_dim slots = tt_slots_dim(&t[0], t[1].size);
        const tt_dim split[3] = {t[0], t[1], q->in[0]->dims[1]};
        outs[0] = tt_reshape(b, tt_scatter_add(b, in[0], route, slots), split, 3);
        return;
    }
    const cut c = cut_of(b, route, counts);
    const tt_attrs_dims slots = dims_attrs(2, t[0], t[1]),
                        bins = dims_attrs(2, places[0], places[1]);
    tt_value *rows = cut_dims(b, in[0], &c.parts, NULL, NULL);
    if (c.members > 1) {
        rows = tt_emit2(b, "dispatch_unpack", rows, counts, &bins);
        rows = move_rows(b, rows, &c, counts, true);
    }
    tt_value *from[3] = {rows, route, counts};
    outs[0] = tt_emit(b, "dispatch_scatter", from, counts_rows(q->in[2]) ? 3 : 2, &slots);
}

/* The cotangent of the other op: assign, route and counts are the same. */
static tt_value *transposed(tt_builder *b, const char *op, tt_vjp *c)
{
    tt_value *in[4] = {c->dout[0], c->in[1], c->in[2], c->in[3]};
    return tt_emit(b, op, in, 4, NULL);
}

static void vjp_rows(tt_builder *b, tt_vjp *c)
{
    if (!c->want[0])
        return;
    tt_value *d = transposed(b, "expert_slots", c);
    if (tt_value_type(c->in[0])->n_dims == 2)
        d = tt_cast(b, tt_sum(b, tt_cast_up(b, d), 1, 0), tt_value_type(c->in[0])->dtype);
    c->din[0] = d;
}

static void vjp_slots(tt_builder *b, tt_vjp *c)
{
    if (c->want[0])
        c->din[0] = transposed(b, "expert_rows", c);
}

/* ---- expert_of_rows ---- */

static tt_status infer_of_rows(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 4, 4, err));
    TT_TRY(tt_want_min_rank(q, 0, "the rows", 1, err));
    out[0] = tt_type_make(TT_I32, q->in[0]->dims, 1);
    return TT_OK;
}

static void expand_of_rows(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                           tt_value **outs)
{
    const tt_dim *t = q->in[1]->dims;
    if (q->in[2]->n_dims == 1) {
        const tt_dim slots = tt_slots_dim(&t[0], t[1].size);
        outs[0] = tt_gather(b, tt_reshape(b, in[1], &slots, 1), in[2]);
        return;
    }
    const tt_attrs_dims rows = dims_attrs(1, q->in[0]->dims[0], t[0]);
    outs[0] = tt_emit1(b, "dispatch_expert", in[3], &rows);
}

/* ---- expert_placed ---- */

static tt_status infer_placed(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_dim one = TT_DIM(1, NULL);
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    TT_TRY(tt_want_i32(q, 0, "the route", err));
    out[0] = tt_type_make(TT_F64, &one, 1);
    return TT_OK;
}

/* Counts the places that have a slot: as 0 they are slots of expert 0, and empty places (-1) are of none. */
static void expand_placed(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                          tt_value **outs)
{
    const tt_dim *d = q->in[0]->dims, rows[2] = {d[0], TT_DIM(1, NULL)};
    const tt_attrs_dims one = dims_attrs(1, TT_DIM(1, NULL), TT_DIM(1, NULL));
    tt_value *route = q->in[0]->n_dims == 1 ? tt_reshape(b, in[0], rows, 2) : in[0];
    outs[0] = tt_emit1(b, "expert_count", tt_minimum(b, route, tt_const(b, 0, TT_I32)), &one);
}

/* ---- definitions ---- */

static tt_cost cost_route(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 2, 0.0);
}

const tt_op_def tt_op_expert_route = {
    .struct_size = sizeof(tt_op_def),
    .name = "expert_route",
    .operands = "assign i[T,k] → route i[T*k], counts i[E]",
    .attributes = "tt_attrs_dims (E), or (E, pass, passes), or (replicas, E)",
    .doc = "where the row of each slot is: for one part of the "
           "tokens expert_sort's order and counts; on a "
           "mesh dispatch_sort's places i[B,M] and counts i[G,P,E]",
    .rule = "t k -> r, e",
    .flags = TT_OP_NO_GRADIENT | TT_OP_PLACES_OPERANDS,
    .attrs_size = sizeof(tt_attrs_dims),
    .n_out = 2,
    .infer = infer_route,
    .expand_letters = "",
    .expand = expand_route,
    .cost = cost_route};
const tt_op_def tt_op_expert_rows = {
    .struct_size = sizeof(tt_op_def),
    .name = "expert_rows",
    .operands = "x f[T,D] or f[T,k,D], assign i[T,k], route, counts → [R,D]",
    .doc =
        "the row of each slot where expert_route says: its token's, or (of [T,k,D]) its own; rows "
        "without a slot are 0",
    .rule = "t *, t k, r, e -> r d",
    .flags = TT_OP_PLACES_OPERANDS,
    .n_out = 1,
    .infer = infer_rows,
    .vjp = vjp_rows,
    .expand_letters = "",
    .expand = expand_rows,
    .cost = tt_cost_move};
const tt_op_def tt_op_expert_slots = {
    .struct_size = sizeof(tt_op_def),
    .name = "expert_slots",
    .operands = "x f[R,D], assign i[T,k], route, counts → [T,k,D]",
    .doc = "the transpose of expert_rows: the row of each slot; 0 where the slot has none",
    .rule = "r d, t k, r, e -> t k d",
    .flags = TT_OP_PLACES_OPERANDS,
    .n_out = 1,
    .infer = infer_slots,
    .vjp = vjp_slots,
    .expand_letters = "",
    .expand = expand_slots,
    .cost = tt_cost_move};
const tt_op_def tt_op_expert_of_rows = {
    .struct_size = sizeof(tt_op_def),
    .name = "expert_of_rows",
    .operands = "rows f[R,D], assign i[T,k], route, counts → i[R]",
    .doc = "the expert of each row; outside of the experts where there is none",
    .rule = "r d, t k, r, e -> r",
    .flags = TT_OP_NO_GRADIENT | TT_OP_PLACES_OPERANDS,
    .n_out = 1,
    .infer = infer_of_rows,
    .expand_letters = "",
    .expand = expand_of_rows,
    .cost = tt_cost_move};

const tt_op_def tt_op_expert_placed = {.struct_size = sizeof(tt_op_def),
                                       .name = "expert_placed",
                                       .operands = "route i[R] → f64[1]",
                                       .doc =
                                           "the number of slots for which expert_route has a row",
                                       .rule = "r -> !n",
                                       .flags = TT_OP_NO_GRADIENT | TT_OP_PLACES_OPERANDS,
                                       .n_out = 1,
                                       .infer = infer_placed,
                                       .expand_letters = "",
                                       .expand = expand_placed,
                                       .cost = tt_cost_move};

/* What the rows become is placed as its operands are (follow mode), as inside of an expansion. */
tt_value *tt_experts(tt_builder *b, tt_value *x, tt_value *assign, tt_value *weights,
                     int64_t n_experts, tt_expert_fn fn, const void *user)
{
    const tt_attrs_dims e = dims_attrs(1, TT_DIM(n_experts, "experts"), TT_DIM(1, NULL));
    const tt_dim one = TT_DIM(1, NULL);
    tt_value *to[2] = {NULL, NULL};
    if (tt_builder_lacks(b, x, "tt_experts: the value") ||
        tt_builder_lacks(b, assign, "tt_experts: the tensor of experts") ||
        tt_builder_lacks(b, weights, "tt_experts: the tensor of weights") ||
        tt_builder_lacks(b, fn ? b : NULL, "tt_experts: the function"))
        return tt_placeholder(b);
    tt_builder_log_experts(b, assign, n_experts);
    const bool follow = tt_builder_follow(b, true);
    tt_op(b, "expert_route", &assign, 1, &e, to, 2);
    tt_value *in[4] = {x, assign, to[0], to[1]};
    tt_expert_rows rows = {.counts = to[1]};
    rows.x = in[0] = tt_emit(b, "expert_rows", in, 4, NULL);
    rows.expert = tt_emit(b, "expert_of_rows", in, 4, NULL);
    tt_value *back[4] = {fn(b, &rows, user), assign, to[0], to[1]};
    if (tt_builder_lacks(b, back[0], "tt_experts: what its function returned"))
        back[0] = rows.x;
    tt_value *y = tt_cast(b, tt_emit(b, "expert_slots", back, 4, NULL), TT_F32);
    const tt_dim *t = tt_value_type(assign)->dims, factor[] = {t[0], t[1], one};
    weights = tt_reshape(b, tt_cast(b, weights, TT_F32), factor, 3);
    y = tt_sum(b, tt_mul(b, y, weights), 1, 0);
    tt_builder_follow(b, follow);
    return tt_cast(b, y, tt_value_type(x)->dtype);
}
