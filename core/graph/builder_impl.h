/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_GRAPH_BUILDER_IMPL_H
#define TT_GRAPH_BUILDER_IMPL_H
#include "graph/rewrite.h"

/* The fields of the builder. Only core/graph includes this header; passes include graph/rewrite.h. */

typedef struct tt_fetch_key {
    tt_param_info *param;
    int block;
    const tt_when *when;
    tt_value *value;
    int before; /* 1 + index of this parameter's previous fetch; 0: it is the first */
} tt_fetch_key;

typedef struct tt_versions { /* a value (the root) in all placements that it has so far */
    TT_VEC(tt_value *) items;
} tt_versions;

typedef struct tt_clone { /* a value of inputs alone that another stage computes again */
    const tt_value *of;
    tt_value *value;
} tt_clone;

typedef struct tt_placing tt_placing;

typedef struct tt_local { /* an op with TT_OP_LOCAL while its decomposition is written */
    const tt_op_def *def;
    const tt_shape_query *q;
    const tt_placing *placing;
    const char *placed_op; /* the op of the decomposition that is placed now, for messages */
    struct tt_local *outer;
} tt_local;

struct tt_builder {
    tt_arena *arena;
    tt_graph *g;
    tt_builder_opts opts;
    tt_error err;
    bool failed;
    const char *context;
    /* where the nodes that are built next belong */
    const tt_when *when;
    int block;
    const char *scope;
    TT_VEC(const char *) scopes; /* full names of the enclosing scopes of describe() */
    bool in_block, follow, finest, inner, again;
    int converting;    /* 1 + the converter whose linear() runs; 0: none */
    const char *owner; /* the converter whose product() runs; NULL: none */
    tt_local *local;   /* NULL: no local decomposition is written */
    /* nodes that are built once and shared */
    tt_map *inputs;       /* "name@stage@region" → tt_value */
    tt_map *param_values; /* unplaced graph: name → tt_value */
    tt_map *rules;        /* rule text + ranks → tt_rule */
    TT_VEC(tt_fetch_key) fetches;
    tt_map *last_fetch;             /* parameter's name → 1 + index in fetches */
    TT_VEC(tt_versions *) versions; /* by the id of the root    */
    TT_VEC(tt_value *) transfers;
    TT_VEC(tt_clone) clones;
};

/* redistribute.c: a node that gives the same value in another placement or stage. All readers share it,
 * so it has a derivative even if its first reader is inside an expansion or a tt_custom_vjp. */
tt_node *tt_identity_node(tt_builder *b, const tt_op_def *op, tt_value *v, const tt_placement *to);

/* place.c: redistributes the inputs of an op into `args`, and computes the placements of its outputs. */
struct tt_placing {
    const tt_rule *rule;
    tt_atom_list letters[TT_MAX_LETTERS];
    uint16_t keep[TT_MAX_INS];
    tt_placement out[TT_MAX_OUTS];
    bool expand; /* the op must be expanded: a letter is cut that the op itself needs whole */
};
/* The parsed rule of an op for operands and results of these types. */
tt_status tt_op_rule(tt_builder *b, const tt_op_def *def, const tt_shape_query *q,
                     const tt_type *out, const tt_rule **rule, tt_error *err);
tt_status tt_place(tt_builder *b, const tt_op_def *def, const tt_shape_query *q, const tt_type *out,
                   tt_value *const *in, tt_value **args, tt_placing *p, tt_error *err);
/* The placement of an operand from the letters of its op, without pending atoms. */
tt_placement tt_place_input(const tt_mesh *m, const tt_rule *r, int i, const tt_atom_list *letters);
tt_placement tt_place_output(const tt_mesh *m, const tt_rule *r, int o,
                             const tt_atom_list *letters);

/* local.c: writes the decomposition of an op with TT_OP_LOCAL on its placed operands. */
void tt_emit_local(tt_builder *b, const tt_op_def *def, const tt_shape_query *q,
                   const tt_type *types, tt_value **args, const tt_placing *p, const void *attrs,
                   tt_value **outs);
/* v, which a decomposition gives as output o, if it has the sizes and the dtype of t; otherwise the builder
 * fails. */
tt_value *tt_decomposed(tt_builder *b, const tt_op_def *def, int o, const tt_type *t, tt_value *v);
/* May v be redistributed so here? In a local decomposition only without communication; otherwise the
 * builder fails. */
bool tt_local_allows(tt_builder *b, const tt_value *v, const tt_placement *to);
/* In a local decomposition: a whole value of scalars and constants alone, computed again in this
 * placement, so that no rank computes the whole. NULL: v is no such value. */
tt_value *tt_local_source(tt_builder *b, tt_value *v, const tt_placement *to);
/* For functions that only describe() may call: fails in a local decomposition. Returns whether the
 * builder has failed. */
bool tt_local_refuses(tt_builder *b, const char *what);

/* token_order.c: the graph needs tokens in their order, because of this op. */
void tt_need_order(tt_builder *b, const tt_op_def *def, const char *scope);

/* node.c: the EXPANDED node, which has the derivative of outputs that inner nodes compute. */
void tt_expanded_node(tt_builder *b, const tt_op_def *def, tt_value *const *in, int n_in,
                      const void *attrs, tt_value *const *outs);

#endif
