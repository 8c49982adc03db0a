/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include <string.h>

/* tt_op builds every op, of describe() and of derivatives: it checks the call, brings the operands to
 * the current stage and into the placement that the op needs, and appends a node. tt_to_stage is in
 * this file because it and tt_op call each other: an operand that is cheap is computed again on the
 * stage that needs it. */

/* ---- operands of another stage ---- */

#define CLONE_DEPTH 16 /* at most so many steps are computed again instead of sent */

/* Is v computed from inputs and constants alone, in at most `depth` steps? */
static bool from_inputs(const tt_value *v, int depth)
{
    const tt_node *n = v->node;
    if (n->op == &tt_op_input || (!n->n_in && !v->type.n_dims && n->op != &tt_op_state))
        return true;
    if (depth == 0 || !n->n_in || n->role != TT_NODE_PLAIN || n->when->region != TT_FORWARD ||
        n->op == &tt_op_fetch || n->op == &tt_op_transfer)
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (!from_inputs(tt_value_root(n->in[i]), depth - 1))
            return false;
    return true;
}

/* The same op on the same inputs, on this stage: so masks and rotary angles are not sent (R10). */
static tt_value *clone_here(tt_builder *b, tt_value *v)
{
    tt_value *in[TT_MAX_INS], *out[TT_MAX_OUTS] = {NULL};
    for (size_t i = 0; i < b->clones.n; i++)
        if (b->clones.items[i].of == v &&
            b->clones.items[i].value->node->when->stage == b->when->stage &&
            b->clones.items[i].value->node->when->region == b->when->region)
            return b->clones.items[i].value;
    const tt_node *n = v->node;
    for (int i = 0; i < n->n_in; i++)
        in[i] = tt_to_stage(b, n->in[i]);
    tt_op(b, n->op->name, in, n->n_in, n->attrs, out, n->n_out);
    const tt_clone c = {v, out[v->out]};
    tt_vec_push(b->arena, &b->clones, c);
    return c.value;
}

tt_value *tt_to_stage(tt_builder *b, tt_value *v)
{
    if (b->failed || v->node->when->stage == b->when->stage)
        return v;
    tt_value *root = tt_value_root(v);
    if (root->node->op == &tt_op_input)
        return tt_input(b, root->node->input_name);
    if (root->node->op == &tt_op_state)
        return tt_state_read(b, root->node->state);
    if (root->node->n_in == 0 && root->type.n_dims == 0) { /* a constant is built again */
        tt_value *out = NULL;
        tt_op(b, root->node->op->name, NULL, 0, root->node->attrs, &out, 1);
        return out;
    }
    if (from_inputs(root, CLONE_DEPTH))
        return clone_here(b, root);
    return tt_transfer(b, v, b->when->stage);
}

/* ---- ops ---- */

static void fill_placeholders(tt_builder *b, tt_value **outs, int n)
{
    for (int i = 0; outs && i < n; i++)
        outs[i] = tt_placeholder(b);
}

static void op_fail(tt_builder *b, tt_error *e, tt_value **outs, int n)
{
    tt_builder_fail(b, e->code, "%s", e->text);
    fill_placeholders(b, outs, n);
}

static void record_letters(tt_builder *b, tt_node *n, const tt_placing *p)
{
    n->rule = p->rule;
    n->letters = tt_arena_dup(b->arena, p->letters,
                              sizeof(tt_atom_list) * (size_t)TT_MAXV(p->rule->n_letters, 1));
    n->keep = tt_arena_dup(b->arena, p->keep, sizeof p->keep);
}

/* Expands an op (R5): INNER nodes, placed in follow mode, and an EXPANDED node that has the
 * derivative. Inside another expansion there is no EXPANDED node, because the outer one has it. */
static void emit_expansion(tt_builder *b, const tt_op_def *def, const tt_shape_query *q,
                           tt_value **args, const void *attrs, tt_value **outs)
{
    bool follow = tt_builder_follow(b, true), inner = b->inner;
    b->inner = true;
    def->expand(b, q, args, outs);
    b->inner = inner;
    tt_builder_follow(b, follow);
    if (!b->failed && !inner)
        tt_expanded_node(b, def, args, q->n_in, attrs, outs);
}

/* `local`: the op has no kernel, and runs as its local decomposition. */
static void emit_placed(tt_builder *b, const tt_op_def *def, const tt_shape_query *q,
                        const tt_type *types, tt_value *const *in, const void *attrs, bool local,
                        tt_value **outs)
{
    tt_error e = {0};
    tt_placing p;
    memset(&p, 0, sizeof p);
    tt_value *here[TT_MAX_INS], *args[TT_MAX_INS];
    for (int i = 0; i < q->n_in; i++)
        here[i] = tt_to_stage(b, in[i]);
    if (b->local)
        b->local->placed_op = def->name;
    if (!b->failed && (def->flags & TT_OP_PLACES_OPERANDS)) {
        emit_expansion(b, def, q, here, attrs, outs);
        return;
    }
    if (b->failed || tt_place(b, def, q, types, here, args, &p, &e) != TT_OK || b->failed) {
        op_fail(b, &e, outs, def->n_out);
        return;
    }
    if (p.expand) {
        emit_expansion(b, def, q, args, attrs, outs);
        return;
    }
    if (local) {
        tt_emit_local(b, def, q, types, args, &p, attrs, outs);
        return;
    }
    tt_node *n = tt_node_new(b, def, args, q->n_in, types, p.out, def->n_out);
    n->attrs = attrs;
    record_letters(b, n, &p);
    for (int i = 0; i < def->n_out; i++)
        outs[i] = n->out[i];
}

void tt_whole_tensor(const tt_type *t, tt_tensor *out)
{
    memset(out, 0, sizeof *out);
    out->dtype = t->dtype;
    out->n_dims = t->n_dims;
    for (int d = 0; d < t->n_dims; d++)
        out->shape[d] = out->global[d] = t->dims[d].size;
}

/* Must the op be decomposed because the backend has no kernel for it, or none for these dtypes? */
static bool backend_lacks(const tt_builder *b, const tt_op_def *def, const tt_shape_query *q,
                          const tt_type *out)
{
    tt_tensor in[TT_MAX_INS], outs[TT_MAX_OUTS];
    if (!b->opts.has_kernel || !def->decompose)
        return false;
    if (!b->opts.has_kernel(b->opts.has_kernel_user, def->name))
        return true;
    if (!b->opts.supports)
        return false;
    for (int i = 0; i < q->n_in; i++)
        tt_whole_tensor(q->in[i], &in[i]);
    for (int i = 0; i < def->n_out; i++)
        tt_whole_tensor(&out[i], &outs[i]);
    const tt_kernel_call c = {.struct_size = sizeof c,
                              .op = def->name,
                              .in = in,
                              .n_in = q->n_in,
                              .out = outs,
                              .n_out = def->n_out,
                              .attrs = q->attrs};
    return !b->opts.supports(b->opts.has_kernel_user, &c);
}

/* Does an op without a kernel stay a node of the described graph, to be decomposed when its rule has
 * placed it? A graph that generates text (R18) has such nodes only for ops that mix tokens: each may
 * have an incremental form, and what the others do with tokens is read from their decompositions. */
static bool waits_for_placement(const tt_builder *b, const tt_op_def *def)
{
    return (def->flags & TT_OP_LOCAL) &&
           (b->opts.use != TT_BUILD_GENERATE || (def->flags & TT_OP_MIXES_TOKENS));
}

/* Does the op itself say that it needs tokens in their order? Counting tokens does, and so do random numbers
 * that depend on the token's place; those with token_index move with the tokens. token_order.c finds the
 * ops of describe() that do not say it. */
static bool says_ordered(const tt_op_def *def, int n_in, const tt_type *out)
{
    const char *label = def->n_out && out[0].n_dims ? out[0].dims[0].label : NULL;
    return (def->flags & TT_OP_ORDERED) ||
           ((def->flags & TT_OP_BY_PLACE) && !n_in && label && !strcmp(label, TT_LABEL_TOKENS));
}

static bool fits_call(tt_builder *b, const tt_op_def *def, tt_value *const *ins, int n_in,
                      const void *attrs, tt_value **outs, int n_out)
{
    if (n_out != def->n_out || n_in < 0 || n_in > TT_MAX_INS) {
        tt_builder_fail(b, TT_EINVAL,
                        "op %s: it has %d outputs and takes at most %d inputs; the call has %d "
                        "outputs and %d inputs",
                        def->name, def->n_out, TT_MAX_INS, n_out, n_in);
        return false;
    }
    const char *list = n_in > 0 && !ins                ? "operands"
                       : n_out > 0 && !outs            ? "outputs"
                       : def->attrs_size > 0 && !attrs ? "attributes"
                                                       : NULL;
    if (list) {
        tt_builder_fail(b, TT_EINVAL, "op %s: the pointer to its %s is NULL", def->name, list);
        return false;
    }
    for (int i = 0; i < n_in; i++)
        if (!ins[i]) {
            tt_builder_fail(b, TT_EINVAL, "op %s: operand %d is NULL, not a value", def->name, i);
            return false;
        }
    return true;
}

/* Its other ops must give what its infer says. */
static void decompose(tt_builder *b, const tt_op_def *def, const tt_shape_query *q,
                      const tt_type *types, tt_value *const *ins, tt_value **outs)
{
    tt_value *given[TT_MAX_OUTS] = {NULL};
    def->decompose(b, q, ins, given);
    for (int i = 0; i < def->n_out; i++)
        outs[i] = tt_decomposed(b, def, i, &types[i], given[i]);
}

void tt_op(tt_builder *b, const char *op, tt_value *const *ins, int n_in, const void *attrs,
           tt_value **outs, int n_out)
{
    tt_error e = {0};
    const bool named = !tt_builder_lacks(b, op, "tt_op: the name");
    const tt_op_def *def = b->failed || !named ? NULL : tt_op_find(b->g->ops, op);
    if (!def) {
        if (!b->failed)
            tt_builder_fail(b, TT_ENOTFOUND, "no op \"%s\"", op);
        fill_placeholders(b, outs, n_out);
        return;
    }
    if (!fits_call(b, def, ins, n_in, attrs, outs, n_out)) {
        fill_placeholders(b, outs, n_out);
        return;
    }
    const tt_type *in_types[TT_MAX_INS];
    for (int i = 0; i < n_in; i++)
        in_types[i] = &ins[i]->type;
    const void *kept = def->attrs_size ? tt_arena_dup(b->arena, attrs, def->attrs_size) : NULL;
    tt_shape_query q = {sizeof q, n_in, in_types, kept, op};
    tt_type types[TT_MAX_OUTS];
    memset(types, 0, sizeof types);
    if (TT_PLUGIN_CALL(def->infer(&q, types, &e), &e, "op", def->name) != TT_OK) {
        op_fail(b, &e, outs, n_out);
        return;
    }
    if (says_ordered(def, n_in, types))
        tt_need_order(b, def, b->scope);
    const bool lacks = backend_lacks(b, def, &q, types);
    if (lacks && !waits_for_placement(b, def)) {
        decompose(b, def, &q, types, ins, outs);
        return;
    }
    if (b->g->placed) {
        emit_placed(b, def, &q, types, ins, kept, lacks, outs);
        return;
    }
    tt_node *n = tt_node_new(b, def, ins, n_in, types, NULL, n_out);
    n->attrs = kept;
    for (int i = 0; i < n_out; i++)
        outs[i] = n->out[i];
}

void tt_op_written_out(tt_builder *b, const tt_node *n, tt_value *const *in, tt_value **outs)
{
    const tt_type *in_types[TT_MAX_INS];
    tt_type types[TT_MAX_OUTS];
    for (int i = 0; i < n->n_in; i++)
        in_types[i] = &in[i]->type;
    for (int i = 0; i < n->n_out; i++)
        types[i] = n->out[i]->type;
    const tt_shape_query q = {sizeof q, n->n_in, in_types, n->attrs, n->op->name};
    if (n->op->flags & TT_OP_LOCAL) {
        emit_placed(b, n->op, &q, types, in, n->attrs, true, outs);
        return;
    }
    decompose(b, n->op, &q, types, in, outs);
}

tt_value *tt_custom_vjp(tt_builder *b, tt_value *const *xs, int n, tt_custom_fn fn,
                        tt_custom_vjp_fn vjp, void *user)
{
    if (b->failed)
        return tt_placeholder(b);
    if (n < 0 || n > TT_MAX_INS)
        return tt_builder_fail(b, TT_EINVAL, "tt_custom_vjp: %d inputs, at most %d", n, TT_MAX_INS);
    if (tt_builder_lacks_list(b, xs, n, "tt_custom_vjp: the list of values") ||
        tt_builder_lacks(b, fn ? b : NULL, "tt_custom_vjp: the function") ||
        tt_builder_lacks(b, vjp ? b : NULL, "tt_custom_vjp: the function of the derivative"))
        return tt_placeholder(b);
    for (int i = 0; i < n; i++)
        if (!xs[i])
            return tt_builder_fail(b, TT_EINVAL, "tt_custom_vjp: value %d is NULL", i);
    bool inner = b->inner;
    b->inner = true;
    tt_value *y = fn(b, xs, n, user);
    b->inner = inner;
    if (b->failed || tt_builder_lacks(b, y, "tt_custom_vjp: what its function returned"))
        return tt_placeholder(b);
    if (inner)
        return y;
    b->g->custom_vjp = true;
    tt_node *v = tt_node_new(b, &tt_op_custom, xs, n, NULL, NULL, 0);
    v->role = TT_NODE_EXPANDED;
    v->custom_vjp = vjp;
    v->custom_user = user;
    v->n_out = 1;
    v->out[0] = y; /* tt_node_new has made room for one */
    return y;
}

static void pass_through(tt_builder *b, tt_value *const *xs, int n, tt_value *y, tt_value *dy,
                         tt_value **dxs, void *user)
{
    (void)b, (void)xs, (void)n, (void)y, (void)user;
    dxs[0] = dy;
}

tt_value *tt_straight_through(tt_builder *b, tt_value *x, tt_value *y)
{
    if (b->failed)
        return y;
    tt_node *v = tt_node_new(b, &tt_op_custom, &x, 1, NULL, NULL, 0);
    v->role = TT_NODE_EXPANDED;
    v->custom_vjp = pass_through;
    v->n_out = 1;
    v->out[0] = y; /* tt_node_new has made room for one */
    return y;
}
