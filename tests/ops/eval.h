/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_OPS_EVAL_H
#define TT_TESTS_OPS_EVAL_H
#include "tensors.h"

/* A small interpreter of unplaced graphs. It gives leaves random values, runs every node on one rank
 * with a backend's kernel, and differentiates with the ops' own vjps. Values are f64, so that finite
 * differences are precise. */

#define EVAL_TOKENS 10 /* two sequences of five tokens; segments 3+2 | 2+3 */
#define EVAL_SEQUENCES 2

typedef struct leaf {
    tt_value *v;
    double lo, hi;
} leaf;

/* What an op without a kernel expands into on one rank: nodes [begin, end) of the graph, and its results. */
typedef struct eval_expansion {
    size_t begin, end;
    tt_value *outs[TT_MAX_OUTS];
} eval_expansion;

typedef struct eval {
    tt_arena *arena;
    tt_builder *b;
    tt_graph *g;
    const tt_backend_vt *backend;
    tt_op_table table;
    bool decompose; /* decompose every op that has a decomposition */
    leaf leaves[24];
    int n_leaves;
    tt_tensor *tensors;         /* by value id, after eval_prepare */
    eval_expansion *expansions; /* of the first n_nodes nodes; empty: the op runs as it is */
    size_t n_nodes;
    uint64_t random;
} eval;

static bool eval_has_kernel(void *user, const char *op)
{
    const eval *e = user;
    (void)op;
    return !e->decompose;
}

static inline void eval_init(eval *e, const tt_backend_vt *backend, bool decompose)
{
    memset(e, 0, sizeof *e);
    e->arena = tt_arena_new();
    e->backend = backend;
    e->decompose = decompose;
    e->random = 1;
    e->table.core = tt_core_ops(&e->table.n_core);
    tt_builder_opts o = {.ops = &e->table,
                         .tokens = EVAL_TOKENS,
                         .sequences = EVAL_SEQUENCES,
                         .has_kernel = eval_has_kernel,
                         .has_kernel_user = e};
    e->b = tt_builder_new(e->arena, &o);
    e->g = tt_builder_graph(e->b);
}

static inline void eval_release(eval *e)
{
    tt_arena_free(e->arena);
}

static inline tt_dim tokens_dim(void)
{
    return tt_dim_make(EVAL_TOKENS, "tokens", 1, EVAL_SEQUENCES);
}

/* A leaf of any dtype with values uniform in [lo, hi]; integers are rounded down. */
static inline tt_value *leaf_of(eval *e, tt_dtype dtype, double lo, double hi, int n,
                                const tt_dim *dims)
{
    char name[16];
    snprintf(name, sizeof name, "x%d", e->n_leaves);
    tt_value *v = tt_param(e->b, name, dims, n, NULL);
    v->type.dtype = dtype;
    e->leaves[e->n_leaves++] = (leaf){.v = v, .lo = lo, .hi = hi};
    return v;
}

static inline void eval_call(const eval *e, const tt_node *n, const tt_tensor *in, tt_tensor *out)
{
    tt_error err = {0};
    const tt_kernel *k = e->backend->kernel(NULL, n->op->name);
    if (k == NULL)
        fail_msg("no kernel for %s", n->op->name);
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = n->op->name,
                        .in = in,
                        .n_in = n->n_in,
                        .out = out,
                        .n_out = n->n_out,
                        .attrs = n->attrs,
                        .seed = &(const uint64_t){7},
                        .step = &(const double){3}};
    if (k->scratch_bytes != NULL)
        c.scratch_bytes = k->scratch_bytes(&c, 1);
    c.scratch = aligned_alloc(64, (c.scratch_bytes + 127) / 64 * 64);
    if (k->run(NULL, &c, &err) != TT_OK)
        fail_msg("%s", err.text);
    free(c.scratch);
}

static inline void eval_fill_input(tt_tensor *t, const char *name, uint64_t *random)
{
    static const int32_t pos[EVAL_TOKENS] = {0, 1, 2, 0, 1, 0, 1, 0, 1, 2},
                         seg[EVAL_TOKENS] = {0, 0, 0, 1, 1, 2, 2, 3, 3, 3};
    for (int i = 0; i < EVAL_TOKENS; i++)
        ((int32_t *)t->data)[i] = strcmp(name, "token_index") == 0 ? i
                                  : strcmp(name, "pos") == 0       ? pos[i]
                                  : strcmp(name, "seg") == 0       ? seg[i]
                                  : strcmp(name, "labels") == 0 && i == 4
                                      ? -100
                                      : (int32_t)(7.0 * eval_uniform(random));
}

/* Expands the nodes that have an expansion for every placement, as a mesh of one rank does. */
static inline void eval_expand(eval *e)
{
    static const tt_mesh one_rank;
    static const tt_label_table no_labels;
    e->n_nodes = e->g->nodes.n;
    e->expansions = tt_arena_array(e->arena, e->n_nodes + 1, sizeof *e->expansions);
    e->g->mesh = &one_rank;
    e->g->labels = &no_labels;
    for (size_t i = 0; i < e->n_nodes; i++) {
        const tt_node *n = e->g->nodes.items[i];
        const tt_type *in[TT_MAX_INS];
        eval_expansion *x = &e->expansions[i];
        if (!(n->op->flags & TT_OP_PLACES_OPERANDS))
            continue;
        for (int k = 0; k < n->n_in; k++)
            in[k] = &n->in[k]->type;
        const tt_shape_query q = {sizeof q, n->n_in, in, n->attrs, n->op->name};
        x->begin = e->g->nodes.n;
        n->op->expand(e->b, &q, n->in, x->outs);
        x->end = e->g->nodes.n;
    }
    e->g->mesh = NULL;
    e->g->labels = NULL;
}

/* Room for every value; leaves and inputs get their values. Stops the test if the builder failed.
 */
static inline void eval_prepare(eval *e)
{
    tt_error err = {0};
    eval_expand(e);
    if (tt_builder_finish(e->b, &err) != TT_OK)
        fail_msg("%s", err.text);
    e->tensors = tt_arena_array(e->arena, (size_t)e->g->n_values + 1, sizeof *e->tensors);
    for (size_t i = 0; i < e->g->nodes.n; i++) {
        const tt_node *n = e->g->nodes.items[i];
        for (int k = 0; k < n->n_out; k++)
            e->tensors[n->out[k]->id] = tensor_of(e->arena, &n->out[k]->type);
        if (n->input_name != NULL)
            eval_fill_input(&e->tensors[n->out[0]->id], n->input_name, &e->random);
    }
    for (int i = 0; i < e->n_leaves; i++) {
        tt_tensor *t = &e->tensors[e->leaves[i].v->id];
        for (int64_t j = 0; j < tt_tensor_numel(t); j++)
            put(t, j,
                e->leaves[i].lo + (e->leaves[i].hi - e->leaves[i].lo) * eval_uniform(&e->random));
    }
}

static inline void node_tensors(const eval *e, const tt_node *n, tt_tensor *in, tt_tensor *out)
{
    for (int k = 0; k < n->n_in; k++)
        in[k] = e->tensors[n->in[k]->id];
    for (int k = 0; k < n->n_out; k++)
        out[k] = e->tensors[n->out[k]->id];
}

static inline bool eval_is_leaf(const tt_node *n)
{
    return n->op == &tt_op_param || n->op == &tt_op_input || n->op == &tt_op_state;
}

static inline void eval_node(const eval *e, const tt_node *n)
{
    tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
    if (eval_is_leaf(n) || n->op == &tt_op_custom) /* the latter only says a derivative */
        return;
    node_tensors(e, n, in, out);
    eval_call(e, n, in, out);
}

/* Runs what node n expands into, and copies the results. */
static inline void eval_expanded(const eval *e, const tt_node *n, const eval_expansion *x)
{
    for (size_t i = x->begin; i < x->end; i++)
        eval_node(e, e->g->nodes.items[i]);
    for (int k = 0; k < n->n_out; k++) {
        const tt_tensor *from = &e->tensors[x->outs[k]->id], *to = &e->tensors[n->out[k]->id];
        memcpy(to->data, from->data, (size_t)tt_tensor_numel(to) * tt_dtype_size(to->dtype));
    }
}

/* The first n_nodes nodes; those of expansions come after all others. */
static inline void eval_run(eval *e, size_t n_nodes)
{
    for (size_t i = 0; i < n_nodes && i < e->n_nodes; i++)
        if (e->expansions[i].end > e->expansions[i].begin)
            eval_expanded(e, e->g->nodes.items[i], &e->expansions[i]);
        else
            eval_node(e, e->g->nodes.items[i]);
}

/* Reverse mode: cotangent of each leaf in grads (NULL = none) from those of the outputs. */
static inline void eval_backward(eval *e, tt_value *const *y, tt_value *const *dy, int n_y,
                                 tt_value **grads)
{
    size_t n_nodes = e->g->nodes.n;
    int n_values = e->g->n_values;
    tt_value **cot = tt_arena_array(e->arena, (size_t)n_values + 1, sizeof *cot);
    bool *needs = tt_arena_array(e->arena, (size_t)n_values + 1, sizeof *needs);
    for (size_t i = 0; i < n_nodes; i++) {
        const tt_node *n = e->g->nodes.items[i];
        bool any = n->op == &tt_op_param;
        for (int k = 0; k < n->n_in; k++)
            any |= needs[n->in[k]->id];
        for (int k = 0; k < n->n_out && !(n->op->flags & TT_OP_NO_GRADIENT); k++)
            needs[n->out[k]->id] = any && n->out[k]->type.dtype <= TT_F64;
    }
    for (int i = 0; i < n_y; i++)
        cot[y[i]->id] = dy[i];
    for (size_t i = n_nodes; i-- > 0;) {
        tt_node *n = e->g->nodes.items[i];
        tt_value *dout[TT_MAX_OUTS] = {0}, *din[TT_MAX_INS] = {0};
        unsigned char want[TT_MAX_INS] = {0};
        bool any = false, wanted = false;
        for (int k = 0; k < n->n_out; k++)
            any |= (dout[k] = cot[n->out[k]->id]) != NULL;
        for (int k = 0; k < n->n_in; k++)
            wanted |= want[k] = needs[n->in[k]->id];
        if (!any || !wanted || eval_is_leaf(n) || (n->op->flags & TT_OP_NO_GRADIENT))
            continue;
        if (n->custom_vjp)
            n->custom_vjp(e->b, n->in, n->n_in, n->out[0], dout[0], din, n->custom_user);
        if (n->custom_vjp) /* instead of the derivatives of the nodes that compute its output */
            cot[n->out[0]->id] = NULL;
        else if (n->op->vjp == NULL)
            fail_msg("%s has no derivative", n->op->name);
        tt_vjp c = {sizeof c, n->n_in, n->n_out, n->in, n->out, dout, want, din, n->attrs};
        if (!n->custom_vjp)
            n->op->vjp(e->b, &c);
        for (int k = 0; k < n->n_in; k++) {
            if (din[k] == NULL || !want[k])
                continue;
            tt_value **at = &cot[n->in[k]->id];
            *at = *at == NULL ? din[k] : tt_add(e->b, *at, din[k]);
        }
    }
    for (int i = 0; i < e->n_leaves; i++)
        grads[i] = e->leaves[i].v->id < n_values ? cot[e->leaves[i].v->id] : NULL;
}

#endif
