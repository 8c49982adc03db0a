/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_GRAPH_H
#define TT_GRAPH_H
#include "base/base.h"
#include "graph/builder_opts.h"
#include "graph/op.h"
#include "graph/when.h"
#include "mesh/mesh.h"

/* core/graph: the graph of one step. SSA values inside regions; what crosses steps is named state
 * (R7). An unplaced graph is what describe() wrote; a placed one stores every value somewhere (R1).
 */

typedef struct tt_node tt_node;
typedef struct tt_graph tt_graph;

typedef enum tt_state_kind {
    TT_STATE_PARAM,
    TT_STATE_OPTIMIZER,
    TT_STATE_ACCUMULATOR, /* gradients, summed over micro-batches */
    TT_STATE_METRIC,      /* read by the host after the step */
    TT_STATE_SCALAR,      /* written by the host before the step: lr, step, inv_tokens, … */
    TT_STATE_MEMORY,      /* decoding: what ops keep of earlier tokens */
    TT_STATE_GATHERED,    /* hoist: a parameter as computed with, written once a step before it is
                             read */
    TT_STATE_BUFFER /* of a model, no parameter: read by its forward, written after the update */
} tt_state_kind;

/* Named state. Parameters of equal (shape, placement, group, stages) form one stack [n, …] (R13):
 * member i is elements [i*numel, (i+1)*numel) of it. */
typedef struct tt_state {
    int id;
    tt_state_kind kind;
    const char *name; /* "stack.3", "stack.3.exp_avg", "lr" */
    tt_type type;     /* stacks: dims[0] is the member */
    tt_placement place;
    uint64_t stages; /* bit s: lives on the ranks of stage s */
    bool accumulate_max;
    const char *suffix;                   /* OPTIMIZER: "exp_avg" */
    tt_init init;                         /* BUFFER */
    const float *values;                  /* BUFFER: initial, row-major; NULL = by init */
    bool transient;                       /* BUFFER: in no checkpoint */
    struct tt_stack *stack;               /* of PARAM, OPTIMIZER, ACCUMULATOR */
    const struct tt_param_info *gathered; /* GATHERED: the parameter that it holds */
} tt_state;

typedef struct tt_param_info {
    const char *name;
    int number; /* in tt_graph.params */
    tt_type type;
    tt_init init;
    const char *tags;
    bool frozen;
    const tt_storage *storage;
    size_t n_storage;
    int declared; /* above 1: declared again after it was used, so the uses share it */
    uint64_t stages;
    tt_placement compute, stored;
    int group;              /* of param_groups; -1 = the default */
    struct tt_stack *stack; /* after tt_graph_make_stacks */
    int index;              /* in the stack */
} tt_param_info;

typedef struct tt_stack {
    int id, n, group;
    tt_param_info **members;
    tt_state *param, *grad; /* grad NULL: frozen */
    /* A tied parameter, used on several stages: an accumulator for each, ascending (P6); grads[0]
     * is grad. n_grads 0: used on one. */
    tt_state **grads;
    int n_grads;
} tt_stack;
tt_state *tt_stack_grad(const tt_stack *s, int stage);

struct tt_value {
    int id;
    tt_type type;
    tt_placement place;
    tt_node *node;
    int out;      /* which output of node */
    bool chunked; /* lives inside a token-chunk loop only: graph->chunk_rows rows of it exist */
    /* It lies in that value's memory, at the rows of its own box: a slice of what is there, or a
     * piece of what a join makes whole. NULL: in memory of its own. */
    tt_value *within;
};

/* An op that runs as other ops, and the function of a tt_custom_vjp, are nodes of two kinds: those
 * that do the work, and one that stands for them all where derivatives are concerned. */
typedef enum tt_node_role {
    TT_NODE_PLAIN,   /* it runs, and its op says its derivative */
    TT_NODE_INNER,   /* it runs as part of an expansion or a custom function, and is not
                        differentiated itself */
    TT_NODE_EXPANDED /* it does not run: its outputs are inner nodes'; it has the derivative */
} tt_node_role;

struct tt_node {
    int id;
    const tt_op_def *op;
    int n_in, n_out;
    tt_value **in;
    tt_value **out;
    const void *attrs;
    const tt_when *when; /* of the graph's interned ones; never NULL */
    int block;           /* -1 = outside blocks */
    const char *scope;   /* "model.layers.3.mlp" */
    bool follow;         /* placed in follow mode */
    tt_node_role role;
    bool not_later; /* fuse: it may not run later than it stands, for it ends the life of large
                       operands */
    /* placement by letter; rule is NULL for nodes without a rule */
    const tt_rule *rule;
    tt_atom_list *letters;
    uint16_t *keep; /* pending partial atoms each input may carry */
    /* special nodes */
    tt_state *state;        /* state, accumulate, assign */
    tt_param_info *param;   /* param, fetch */
    const char *input_name; /* input */
    /* set by passes */
    tt_state *accumulate_into; /* fuse: out[0] is added to this state instead of stored */
    int accumulate_index;      /* member of a stack, -1 = all */
    bool accumulates; /* order: of several accumulations of a member in a micro-batch not the first:
                         the first stores, this one adds */
    tt_state **assign_to;      /* fuse: out[i] is written straight to this state */
    const tt_lower_step *step; /* lower: a collective */
    bool own_rows; /* async_tp: of the rows of one member alone. So an atom may cut its rows and,
                      too, cut or be pending in the rest: of each rank there is its own share */
    bool async; /* overlap: begun where it stands, waited for before the first that needs it to be
                   over (plan) */
    tt_custom_vjp_fn custom_vjp;
    void *custom_user;
};

typedef struct tt_loss_entry {
    const char *name;
    tt_value *value;
    double weight;
} tt_loss_entry;

typedef struct tt_metric_entry {
    const char *name, *state;
    tt_value *value; /* f32 scalar */
} tt_metric_entry;

typedef struct tt_buffer_entry {
    tt_state *state;
    tt_value *stat; /* f32, of a micro-batch */
    tt_state *sum;  /* its accumulator */
    tt_buffer_fn fn;
    void *user;
} tt_buffer_entry;

struct tt_graph {
    tt_arena *arena;
    const tt_op_table *ops;
    bool placed, custom_vjp;      /* custom_vjp: a derivative is written by hand (tt_custom_vjp) */
    const tt_mesh *mesh;          /* placed */
    const tt_label_table *labels; /* placed */
    int n_stages;
    int64_t tokens,
        sequences; /* of one micro-batch, global: rows of the batch, one after the other */
    tt_precision precision;
    tt_context context;
    bool sink;    /* gradients are accumulated unreduced, and reduced once a step */
    bool at_once; /* one micro-batch a step: over replicas they are reduced as they come */
    tt_when_table whens;
    TT_VEC(tt_node *) nodes;
    int n_values, n_ids;
    TT_VEC(tt_param_info *) params;
    TT_VEC(tt_state *) states;
    TT_VEC(tt_stack *) stacks;
    tt_map *outputs;                 /* name → tt_value */
    TT_VEC(tt_loss_entry) losses;    /* auxiliary terms */
    TT_VEC(tt_metric_entry) metrics; /* to log, in addition to the loss */
    TT_VEC(tt_buffer_entry) buffer_updates;
    int n_blocks;
    tt_value *loss;        /* per-token loss, f32 [tokens] */
    tt_state *seed, *step; /* i64 and f64 scalars, for random numbers and optimizers */
    tt_state *ok;       /* f32 scalar: the regions behind the epilogue run only where it is not 0;
                           NULL: always */
    int64_t chunk_rows; /* rows of a token chunk, 0 = no loop */
    struct {            /* async_tp: what of a micro-batch goes piece by piece, and what does not */
        int gathers, reductions, whole;
    } async_tp;
    /* Decoding: sequences at once, 0 = none. Dims labelled "tokens" and "picked" are then maxima:
     * the host says how many rows a call has (R8). */
    int64_t slots;
    int64_t length; /* generation: the most tokens of a sequence */
    int64_t stored; /* elements a micro-batch keeps in another dtype for its backward, on the
                       fullest rank, over all stages */
    tt_dtype store_dtype;
};
#define TT_LABEL_TOKENS "tokens" /* of the token dim */
#define TT_INPUT_SPREAD "@"      /* behind an input's name: per sample, as a value per token */
#define TT_MAX_LOGGED 64         /* metrics of a graph */
#define TT_LABEL_PICKED "picked" /* decoding: the tokens whose logits are asked for */

/* The structural ops (node.c), and three ops that passes recognize by their address. */
extern const tt_op_def tt_op_param, tt_op_input, tt_op_state, tt_op_fetch, tt_op_redistribute,
    tt_op_transfer, tt_op_accumulate, tt_op_assign, tt_op_custom, tt_op_stage_sum, tt_op_collective,
    tt_op_fused, tt_op_broadcast, tt_op_const;

/* ---- the builder ---- */
tt_builder *tt_builder_new(tt_arena *a, const tt_builder_opts *o);
/* A builder whose ops are placed as they are built. */
tt_builder *tt_builder_new_placed(tt_arena *a, const tt_builder_opts *o, const tt_mesh *m,
                                  const tt_label_table *t);
tt_graph *tt_builder_graph(tt_builder *b);
tt_status tt_builder_finish(tt_builder *b, tt_error *err); /* the sticky error, if any */
const tt_error *tt_builder_error(const tt_builder *b);     /* NULL = none so far */
void tt_builder_context(tt_builder *b, const char *what);  /* "plugin mini.so": prefixes errors */
tt_value *tt_builder_convert_linear(tt_builder *b, const char *param, tt_value *x, tt_value *w);

bool tt_node_is_cast(const tt_node *n);

/* Where what is built next goes. */
void tt_builder_at(tt_builder *b, tt_region region, int stage, int block, const char *scope);
bool tt_builder_follow(tt_builder *b, bool follow); /* returns the previous mode */
bool tt_builder_placed(const tt_builder *b);

/* Identity in meaning (R1): one node per (meaning, placement), from the cheapest version. */
tt_value *tt_redistribute(tt_builder *b, tt_value *v, const tt_placement *to);
tt_value *tt_fetch(tt_builder *b,
                   tt_param_info *p); /* at the current block: stored → compute placement */
tt_value *tt_state_read(tt_builder *b, tt_state *s);
tt_value *tt_transfer(tt_builder *b, tt_value *v, int to_stage); /* from stage to stage */
tt_value *tt_transfer_direct(tt_builder *b, tt_value *v, int to_stage);
void tt_builder_replicated(tt_builder *b, uint64_t stages); /* tt_when.replicated_stages, next */
tt_value *tt_to_stage(tt_builder *b,
                      tt_value *v); /* v at the current stage: cloned leaf or transfers */
void tt_accumulate(tt_builder *b, tt_state *s, int index, tt_value *v);
void tt_state_assign(tt_builder *b, tt_state *s, tt_value *v);
tt_value *tt_stage_sum(tt_builder *b, tt_value *const *xs,
                       int n); /* scalars of several stages → their sum, everywhere */
tt_state *tt_state_new(tt_graph *g, tt_state_kind kind, const char *name, const tt_type *type,
                       const tt_placement *place);
/* A replicated-input op whose single output is stored as told: broadcast of a scalar. */
tt_value *tt_broadcast_like(tt_builder *b, tt_value *scalar, tt_value *like);

/* Low level: append a node; outs get types and places. */
tt_node *tt_node_new(tt_builder *b, const tt_op_def *op, tt_value *const *in, int n_in,
                     const tt_type *types, const tt_placement *places, int n_out);
tt_value *tt_value_root(tt_value *v); /* through redistributes */

/* ---- printing, checking ---- */
void tt_graph_print(const tt_graph *g, tt_str *out);
/* Every op's inputs and outputs against its rule; SSA order; atoms; regions. Run after every pass.
 */
tt_status tt_graph_verify(const tt_graph *g, const char *after, tt_error *err);

#endif
