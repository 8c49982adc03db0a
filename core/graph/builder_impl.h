/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_GRAPH_BUILDER_IMPL_H
#define TT_GRAPH_BUILDER_IMPL_H
#include "graph/rewrite.h"

/* Inside of the builder. Private to core/graph; passes include graph/rewrite.h. */

typedef struct tt_fetch_key {
    tt_param_info *param;
    int block;
    const tt_when *when;
    tt_value *value;
    int before; /* 1 + index of the parameter's fetch before it; 0: none */
} tt_fetch_key;

typedef struct tt_versions { /* of one meaning: the root and its redistributes */
    TT_VEC(tt_value *) items;
} tt_versions;

typedef struct tt_clone { /* of a value computed from inputs alone, on another stage */
    const tt_value *of;
    tt_value *value;
} tt_clone;

struct tt_builder {
    tt_arena *arena;
    tt_graph *g;
    tt_builder_opts opts;
    tt_error err;
    bool failed;
    const char *context;
    /* of what is built next */
    const tt_when *when;
    int block;
    const char *scope;
    TT_VEC(const char *) scopes; /* of describe(): the enclosing scopes' full names */
    bool in_block, follow, inner;
    /* leaves and shared nodes */
    tt_map *inputs;       /* "name@stage@region" → tt_value */
    tt_map *param_values; /* unplaced: name → tt_value   */
    tt_map *rules;        /* rule text + ranks → tt_rule */
    TT_VEC(tt_fetch_key) fetches;
    tt_map *last_fetch;             /* parameter's name → 1 + index in fetches */
    TT_VEC(tt_versions *) versions; /* by root value id         */
    TT_VEC(tt_value *) transfers;
    TT_VEC(tt_clone) clones;
};

/* redistribute.c: a node that is the identity in meaning. It is shared by all who want the value so,
 * and so has a derivative even where the first of them is inside an expansion or a tt_custom_vjp. */
tt_node *tt_identity_node(tt_builder *b, const tt_op_def *op, tt_value *v, const tt_placement *to);

/* place.c: place inputs of op (redistributing them into `args`) and compute output placements. */
typedef struct tt_placing {
    const tt_rule *rule;
    tt_atom_list letters[TT_MAX_LETTERS];
    uint16_t keep[TT_MAX_INS];
    tt_placement out[TT_MAX_OUTS];
    bool
        expand; /* to be expanded: letters that would be whole are cut, the inner ops follow them */
} tt_placing;
tt_status tt_place(tt_builder *b, const tt_op_def *def, const tt_shape_query *q, const tt_type *out,
                   tt_value *const *in, tt_value **args, tt_placing *p, tt_error *err);
tt_status tt_op_rule(tt_builder *b, const tt_op_def *def, const tt_shape_query *q,
                     const tt_type *out, const tt_rule **rule, tt_error *err);
/* An operand's placement by the letters of its op, pending atoms aside. */
tt_placement tt_place_input(const tt_mesh *m, const tt_rule *r, int i, const tt_atom_list *letters);
tt_placement tt_place_output(const tt_mesh *m, const tt_rule *r, int o,
                             const tt_atom_list *letters);

#endif
