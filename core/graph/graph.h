/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_GRAPH_H
#define TT_GRAPH_H
#include "base/base.h"
#include "graph/builder_opts.h"
#include "graph/experts.h"
#include "graph/measured.h"
#include "graph/op.h"
#include "graph/state.h"
#include "graph/when.h"
#include "mesh/mesh.h"

/* core/graph: the graph of one step. Its values are in SSA form: one node defines each of them. Only
 * state (graph/state.h) lives from one step to the next (R7). The graph that describe() writes has no
 * placements; in a placed graph every value has one, which says what part each rank stores (R1).
 * Nodes, values and all that they point to are in the arena of the graph. */

typedef struct tt_node tt_node;
typedef struct tt_graph tt_graph;

struct tt_value {
    int id;
    tt_type type;
    tt_placement place;
    tt_node *node;
    int out;      /* which output of node */
    bool chunked; /* it exists in the loop over token chunks only, with graph->chunk_rows rows */
    /* The value whose memory this one shares, at the rows of its own box: it is a slice of that
     * value, or one of the pieces that a join puts together. NULL: it has memory of its own. */
    tt_value *within;
    struct tt_copies *copies; /* graph/copies.h; NULL: there are none */
};

/* An expansion (an op that runs as other ops) and a function of tt_custom_vjp give nodes of two kinds:
 * INNER nodes, which run, and one EXPANDED node, which autodiff differentiates instead of them. */
typedef enum tt_node_role {
    TT_NODE_PLAIN,   /* it runs, and autodiff uses the vjp of its op */
    TT_NODE_INNER,   /* it runs as part of an expansion or custom function; autodiff skips it */
    TT_NODE_EXPANDED /* it does not run: inner nodes compute its outputs; it has the derivative */
} tt_node_role;

struct tt_node {
    int id;
    const tt_op_def *op;
    int n_in, n_out;
    tt_value **in;
    tt_value **out;
    const void *attrs;
    const tt_when *when; /* interned in this graph, never NULL */
    int block;           /* -1: outside the blocks */
    const char *scope;   /* "model.layers.3.mlp" */
    bool follow, finest; /* it was placed in these modes (R3) */
    tt_node_role role;
    bool again; /* recompute: whatever the mode, the backward computes it again (expert_passes) */
    bool not_later; /* fuse: the last reader of large operands, which no pass may move behind */
    /* how it is placed: the atoms of each letter of its rule. rule is NULL for nodes without one */
    const tt_rule *rule;
    tt_atom_list *letters;
    uint16_t *keep; /* for each input the atoms over which it may be a partial sum */
    /* of structural ops */
    tt_state *state;              /* state, accumulate, assign */
    tt_param_info *param;         /* param, fetch */
    const char *input_name;       /* input */
    const tt_node *derivative_of; /* autodiff: the forward node of whose derivative it is part */
    /* set by passes */
    tt_state *accumulate_into; /* fuse: its kernel adds out[0] to this state */
    int accumulate_index;      /* the member of a stack; -1: all members */
    bool accumulates;     /* order: it adds to what an earlier node of its micro-batch stored */
    tt_state **assign_to; /* fuse: its kernel writes out[i] to assign_to[i] */
    const tt_lower_step *step; /* lower: the collective, or the local step */
    bool scaled;        /* an overflow of its results is handled by the loss scale, which changes */
    bool before_gather; /* tt_quantize: a gather of its operand is to carry its result instead */
    bool own_rows; /* async_tp: it computes the rows of one member of the group alone, so an atom
                      that cuts its rows may also cut another dim, or be pending */
    bool async; /* overlap: it starts at its place in the order, and the program waits for it before
                   the first node that needs its result or its memory (plan) */
    tt_value *counts; /* extents: its sum is the number of rows of in[i] (bit i) and out[i] (R8) */
    uint32_t counted_in, counted_out;
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
    bool of_tokens;  /* a sum over tokens, divided as the loss is; else a mean over micro-batches */
} tt_metric_entry;

typedef struct tt_buffer_entry {
    tt_state *state;
    tt_value *stat; /* of one micro-batch: f32, f64 of a sum */
    tt_state *sum;  /* the sum over micro-batches, or the maximum; NULL: `load` has it */
    int load;       /* 1 + the index in tt_graph.loads, whose counts are the statistic; 0: none */
    bool max, whole_sum; /* whole_sum: fn gets the sum, not the mean */
    int more;            /* of a converter: interleaved micro-batches after the first */
    tt_buffer_fn fn;
    void *user;
} tt_buffer_entry;

struct tt_graph {
    tt_arena *arena;
    const tt_op_table *ops;
    bool placed, custom_vjp;      /* custom_vjp: the model uses tt_custom_vjp */
    const tt_mesh *mesh;          /* of a placed graph */
    const tt_label_table *labels; /* of a placed graph */
    int n_stages, interleaved;    /* the latter: micro-batches per call of the program; 0: one */
    int64_t tokens,
        sequences; /* of one micro-batch, over all ranks; the sequences follow each other
                                  in the token dim */
    tt_precision precision;
    tt_context context;
    int64_t line; /* > 0: the inputs pos and seg say that each run of `line` tokens is one segment
                          with the positions 0, 1, …, on every rank (tt_attrs_attention.line) */
    int64_t alignment; /* of memory that the plan gives out: a power of two, at least 64 */
    /* The first op that needs tokens in their order, as 'op roll (in "layers.0")'; NULL: there is none. */
    const char *ordered;
    tt_when_table whens;
    TT_VEC(tt_node *) nodes;
    int n_values, n_ids;
    TT_VEC(tt_param_info *) params;
    TT_VEC(tt_state *) states;
    TT_VEC(tt_stack *) stacks;
    tt_map *outputs;                      /* name → tt_value */
    TT_VEC(tt_loss_entry) losses;         /* auxiliary terms of the loss */
    TT_VEC(tt_metric_entry) metrics;      /* to log, in addition to the loss */
    TT_VEC(tt_measured) measured, logits; /* logits: accumulators, before they are metrics */
    struct tt_qk_clip *qk_clip;           /* NULL: no weights are clipped */
    TT_VEC(tt_buffer_entry) buffer_updates;
    TT_VEC(tt_expert_load) loads; /* of the layers with experts */
    int n_blocks;
    const int *block_stage; /* by block; NULL: one stage */
    tt_value *loss;         /* per-token loss, f32 [tokens] */
    tt_state *seed, *step;  /* i64 and f64 scalars, for random numbers and optimizers */
    tt_state *ok;      /* f32 scalar: if it is 0, the regions after the epilogue do not run; NULL:
                           they always run */
    tt_state *skipped; /* steps that updated nothing, f32; NULL: they are not counted */
    struct tt_loss_scale *loss_scale; /* NULL: the loss is not scaled */
    int64_t chunk_rows;               /* rows of a token chunk; 0: there is no loop over chunks */
    /* The node because of which the loop was given up: "op max in \"mtp\""; NULL: none. */
    const char *unchunked;
    struct { /* async_tp: gathers and reductions in pieces, and those that stay whole */
        int gathers, reductions, whole;
    } async_tp;
    /* Decoding: the most sequences at a time; 0: this graph does not decode. Dims labelled "tokens"
     * and "picked" are then maxima, and so are those of their experts' rows, a multiple of them; the host
     * gives the number of tokens and of picked ones of each call (R8). */
    int64_t slots;
    int64_t length, picked; /* decoding: the most tokens of a sequence, picked ones of a call */
    /* Decoding: bytes that are kept per token of a sequence, and that keys and values of heads would have. */
    double kept_bytes, heads_bytes;
    int64_t stored; /* elements kept for a micro-batch's backward, on the fullest rank */
    tt_dtype store_dtype;
    double expert_skew; /* the busiest rank's rows over the mean, for costs; 0: 1 */
    double expert_room; /* as in tt_builder_opts */
    tt_expert_replicas replicas;
};
#define TT_LABEL_TOKENS "tokens" /* of the token dim */
#define TT_INPUT_SHIFT "+"  /* suffix with a number k: of the token k further ahead (batch.c) */
#define TT_INPUT_COPY "#"   /* suffix with the number of an interleaved micro-batch (copies.h) */
#define TT_INPUT_SPREAD "@" /* suffix of an input's name: a value per sample, repeated per token */
#define TT_MAX_LOGGED 64    /* the most metrics of a graph */
#define TT_LABEL_PICKED "picked" /* decoding: the tokens whose logits the host wants */
/* The rows of an expert layer: the slots, k of each (picked) token. */
#define TT_LABEL_ROWS "expert_rows"
#define TT_LABEL_PICKED_ROWS "picked_expert_rows"

/* The structural ops (node.c), and ops that passes know by their address. */
extern const tt_op_def tt_op_param, tt_op_input, tt_op_state, tt_op_fetch, tt_op_redistribute,
    tt_op_transfer, tt_op_accumulate, tt_op_assign, tt_op_load, tt_op_offload, tt_op_reload,
    tt_op_custom, tt_op_stage_sum, tt_op_collective, tt_op_fused, tt_op_broadcast, tt_op_const,
    tt_op_random_keys, tt_op_linear, tt_op_linear_dx, tt_op_linear_dw, tt_op_grouped_linear,
    tt_op_grouped_linear_dx, tt_op_grouped_linear_dw, tt_op_attention, tt_op_attention_bwd,
    tt_op_attention_bias_bwd, tt_op_concat, tt_op_reshape, tt_op_expert_sort, tt_op_dispatch_sort,
    tt_op_dispatch_pack, tt_op_expert_route, tt_op_expert_slots;

/* ---- the builder ---- */
tt_builder *tt_builder_new(tt_arena *a, const tt_builder_opts *o);
/* A builder that gives each value a placement when its node is built. */
tt_builder *tt_builder_new_placed(tt_arena *a, const tt_builder_opts *o, const tt_mesh *m,
                                  const tt_label_table *t);
tt_graph *tt_builder_graph(tt_builder *b);
/* The name of dropout's random numbers: `name` in the scope that is open. */
const char *tt_dropout_stream(tt_builder *b, const char *name);
tt_status tt_builder_finish(tt_builder *b, tt_error *err); /* the first error, if there was one */
const tt_error *tt_builder_error(const tt_builder *b);     /* NULL: no error so far */
/* token_order.c: finds out whether the described graph needs tokens in their order (graph->ordered). */
void tt_graph_find_order(tt_builder *b);
/* "plugin mini.so": prefixes errors. Returns the context before. */
const char *tt_builder_context(tt_builder *b, const char *what);

bool tt_node_is_cast(const tt_node *n);

/* Where the nodes that are built next belong. */
void tt_builder_at(tt_builder *b, tt_region region, int stage, int block, const char *scope);
const char *tt_builder_scope(const tt_builder *b);  /* of the nodes that are built next */
bool tt_builder_follow(tt_builder *b, bool follow); /* returns the previous mode */
/* A form of follow mode: each letter has the atoms of the operand that is cut most finely, so that
 * whole operands (constants) are sliced, not the others gathered. Returns the previous mode. */
bool tt_builder_finest(tt_builder *b, bool finest);

/* The same value in another placement (R1). A value has at most one node per placement; a new one
 * starts from the version with the lowest cost. */
tt_value *tt_redistribute(tt_builder *b, tt_value *v, const tt_placement *to);
/* A parameter in its compute placement, for the current block. */
tt_value *tt_fetch(tt_builder *b, tt_param_info *p);
/* v, which was computed from p's shards, in another placement: what p's fetch carries instead of p. */
tt_value *tt_fetch_value(tt_builder *b, tt_param_info *p, tt_value *v, const tt_placement *to);
tt_value *tt_state_read(tt_builder *b, tt_state *s);
/* A copy of members first … first + n - 1 of a state's value, where kernels can read it. */
tt_value *tt_load(tt_builder *b, tt_value *v, int first, int n);
/* Writes these members; n is that of the value. */
void tt_state_assign_members(tt_builder *b, tt_state *s, int first, tt_value *v);
/* v on another stage: by one transfer per stage boundary, or by one transfer in all. */
tt_value *tt_transfer(tt_builder *b, tt_value *v, int to_stage);
tt_value *tt_transfer_direct(tt_builder *b, tt_value *v, int to_stage);
/* Of the nodes that are built next: */
void tt_builder_replicated(tt_builder *b, uint64_t stages); /* tt_when.replicated_stages */
void tt_builder_early_update(tt_builder *b, bool early);    /* tt_when.early_update */
void tt_builder_measured(tt_builder *b, bool measured); /* do they run in measured steps only? */
bool tt_builder_measures(const tt_builder *b);
/* v on the current stage: computed again if that is cheap, otherwise transferred. */
tt_value *tt_to_stage(tt_builder *b, tt_value *v);
void tt_accumulate(tt_builder *b, tt_state *s, int index, tt_value *v);
void tt_state_assign(tt_builder *b, tt_state *s, tt_value *v);
/* The sum of scalars of several stages; every stage has it. */
tt_value *tt_stage_sum(tt_builder *b, tt_value *const *xs, int n);
tt_state *tt_state_new(tt_graph *g, tt_state_kind kind, const char *name, const tt_type *type,
                       const tt_placement *place);
/* A scalar broadcast to the dims and the placement of `like`. */
tt_value *tt_broadcast_like(tt_builder *b, tt_value *scalar, tt_value *like);

/* Appends a node whose outputs have these types and placements (places NULL: none). */
tt_node *tt_node_new(tt_builder *b, const tt_op_def *op, tt_value *const *in, int n_in,
                     const tt_type *types, const tt_placement *places, int n_out);
/* The value before all redistributes. */
tt_value *tt_value_root(tt_value *v);

/* ---- printing, checking ---- */
void tt_graph_print(const tt_graph *g, tt_str *out);
/* Is the graph well formed: SSA order, regions, and each op's inputs and outputs placed as its rule
 * says? It runs after every pass; `after` is the name of the pass, for the message. */
tt_status tt_graph_verify(const tt_graph *g, const char *after, tt_error *err);

#endif
