/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PASSES_H
#define TT_PASSES_H
#include "cost/cost.h"
#include "graph/graph.h"
#include "passes/loss_scale.h"
#include "passes/offload.h"
#include "passes/recompute.h"
#include "passes/skip.h"
#include <ttrun/backend.h>
#include <ttrun/converter.h>
#include <ttrun/loss.h>
#include <ttrun/model.h>
#include <ttrun/optimizer.h>

/* core/passes: each pass transforms the graph and has one entry; compile.c has their order. A pass
 * that adds ops adds them through the placed builder `b`, which places each of them. The graph is
 * verified after each pass. */

/* ---- convert: the job's converters replace single products of the forward and, after autodiff, of
 * the backward (<ttrun/converter.h>) ---- */
typedef struct tt_convert_opts {
    int n; /* converters, asked in this order; 0: nothing is converted */
    /* The value by which converter i replaces this product, or NULL. param: whose weight it is; NULL:
     * attention's. */
    tt_value *(*product)(void *user, int i, tt_builder *b, const tt_product *p,
                         const tt_param_info *param);
    /* May no converter change what converter i leaves (TT_CONVERTER_FINAL)? */
    bool (*is_final)(void *user, int i);
    const char *(*name)(void *user, int i); /* for messages: "converters[0] (float8)" */
    void *user;
} tt_convert_opts;
tt_status tt_pass_convert(tt_builder *b, const tt_convert_opts *o, tt_error *err);
/* For place: the operand v (0 q, 1 k, 2 v) of an attention op in the current scope as the converters
 * leave it. Its derivative is that of v. */
tt_value *tt_convert_operand(tt_builder *b, const tt_convert_opts *o, int operand, tt_value *v);

/* ---- place: emits the described graph again, with a placement for every value ---- */
typedef struct tt_place_opts {
    const int *block_stage; /* stage of each block, ascending; NULL = all 0 */
    int n_stages;
    /* Builds the outputs of a described node from `in` by other ops, or returns false: the node is
     * emitted as it is. NULL = no node is replaced. */
    bool (*replace)(void *user, tt_builder *b, const tt_node *n, tt_value **in, tt_value **out);
    void *replace_user;
    const tt_convert_opts *convert; /* operands of attention; NULL = they are as described */
} tt_place_opts;
tt_status tt_pass_place(const tt_graph *described, const tt_place_opts *o, tt_builder *b,
                        tt_error *err);

/* ---- decode: the nodes that tt_pass_place uses for a graph that takes a few new tokens per
 * call (R18). Ops that mix tokens are replaced by their incremental forms, which keep states;
 * nodes after the last of these ops are computed for the picked tokens alone (input "pick").
 * ---- */
#define TT_INPUT_PICK "pick"
/* The N of the graph's input "longer_than.N"; 0: it has none. */
int64_t tt_decode_border(const tt_graph *g);
typedef struct tt_decode tt_decode;
/* Before place. An error of TT_EUNSUPPORTED says which op has no incremental form. */
tt_status tt_pass_decode_find(const tt_graph *described, int64_t slots, int64_t n_picked,
                              int64_t length, tt_arena *a, tt_decode **out, tt_error *err);
/* Bytes that its ops keep for each further token of a sequence. */
double tt_decode_token_bytes(const tt_decode *d);
bool tt_pass_decode_replace(void *decode, tt_builder *b, const tt_node *n, tt_value **in,
                            tt_value **out);
/* After place: writes the logits to the state TT_METRIC_LOGITS. decode NULL: of all tokens. */
tt_status tt_pass_decode_logits(tt_decode *decode, tt_builder *b, tt_error *err);
/* The most tokens that a sequence can have, by the tables that describe() looks up by position;
 * INT64_MAX = any number. */
int64_t tt_decode_positions(const tt_graph *described);

/* ---- metrics: of a placed forward (loss sum, loss_max), summed over micro-batches. weights: the loss's, or NULL ---- */
tt_status tt_pass_metrics(tt_builder *b, const char *weights, tt_error *err);
/* Instead, of a graph that computes a number per token: writes it to the state TT_METRIC_PER_TOKEN. */
tt_status tt_pass_per_token(tt_builder *b, tt_error *err);
/* expert_loads.c: sums the slots of each expert in the forward; before buffer_sums, which they serve. */
tt_status tt_pass_expert_loads(tt_builder *b, tt_error *err);
/* measure.c: attention's largest logits, in every step or in measured ones, and as metrics. Before autodiff. */
tt_status tt_pass_measure_logits(tt_builder *b, bool every_step, bool metrics, tt_error *err);
/* buffers.c: sums the statistics of buffers in the forward; updates the buffers. */
tt_status tt_pass_buffer_sums(tt_builder *b, tt_error *err);
tt_status tt_pass_buffers(tt_builder *b, tt_error *err);

/* ---- autodiff: reverse mode (R1, R6, R16); makes stacks and gradient accumulators ---- */
typedef struct tt_autodiff_opts {
    tt_loss_scale_opts loss_scale;
    bool sink;    /* gradients are accumulated as partial sums, and reduced once per step */
    bool at_once; /* a step has one micro-batch, so gradients are reduced in its backward */
    bool early;   /* tt_update_opts.early: each parameter is a stack of its own */
} tt_autodiff_opts;
tt_status tt_pass_autodiff(tt_builder *b, const tt_autodiff_opts *o, tt_error *err);

/* ---- stacks of a program without gradients; own: its parameters have memory of their own, not
 * another program's ---- */
void tt_pass_stacks(tt_graph *g, bool own);
/* n parameters of one type and placement as one value: with a replicated dim in front. */
tt_type tt_stack_type(const tt_type *t, int n);
tt_placement tt_stack_placement(const tt_placement *p);

/* ---- update: epilogue (reductions, norm, clip) and the optimizer of every stack (R13) ---- */
typedef struct tt_group {
    const tt_optimizer_vt *vt;
    const void *config; /* with the group's overrides */
    double lr_factor;
    bool unclipped; /* its gradients are not clipped, nor part of the norm */
} tt_group;
typedef struct tt_update_opts {
    const tt_group *groups; /* [param->group + 1]: 0 = the default */
    int n_groups;
    double max_norm;      /* <= 0: no clipping */
    double norm_order;    /* of the gradients' norm: 2 (also 0), 1, INFINITY or any above 0 */
    bool skip_nonfinite;  /* a step that is not finite updates nothing and is counted */
    double skip_norm;     /* likewise one whose gradients have a larger norm; <= 0: no limit */
    bool offload;         /* optimizer states lie in host memory */
    tt_dtype state_dtype; /* f32; bf16 or float8, rounded stochastically; u8: dynamic codes */
    double ema_weight;    /* of a step in the mean of each parameter over steps; 0: none is kept */
    bool measure;         /* measured steps compute sums over gradients and parameters */
    bool measure_updates; /* and over the changes of parameters */
    bool early;           /* each parameter is updated in the backward (early.c says when not) */
    bool live;            /* averages are kept, but the parameters themselves are evaluated */
    double qk_clip; /* the largest logit that attention's weights shall give (qk_clip.h); 0: none */
} tt_update_opts;
tt_status tt_pass_update(tt_builder *b, const tt_update_opts *o, tt_error *err);
/* early.c: moves the updates of tt_update_opts.early to where each gradient is complete. */
tt_status tt_pass_early(tt_graph *g, tt_error *err);

/* ---- offload: copies of states in host memory run concurrently with the update ---- */
tt_status tt_pass_offload(tt_graph *g, tt_error *err);

/* ---- expert_passes: of a described graph's experts, each in so many passes ---- */
tt_status tt_pass_expert_passes(tt_builder *b, int n_passes, tt_error *err);

/* ---- interleave: a described graph runs k micro-batches per call (graph/copies.h) ---- */
tt_status tt_pass_interleave(tt_graph *g, int k, tt_error *err);

/* ---- extents: on the host, rows that the graph counts (R8) ---- */
void tt_pass_extents(tt_graph *g);

/* ---- share: scalars that the updates of several stacks need are computed once ---- */
tt_status tt_pass_share(tt_graph *g, tt_error *err);

/* ---- store: large f32 values are kept for the backward in another dtype ---- */
typedef struct tt_store_opts {
    tt_dtype dtype; /* TT_F32 (0): as computed */
    bool apart;     /* each reader casts back for itself: for the parts of a split backward */
} tt_store_opts;
tt_status tt_pass_store(tt_builder *b, const tt_store_opts *o, tt_error *err);

/* ---- hoist: fetched parameters, or weights of replicas, are kept in states for all micro-batches of a step ---- */
tt_status tt_pass_hoist(tt_graph *g, bool replicas, tt_error *err);

/* ---- chunk: the per-token end of the forward, from the head's matmul to the loss, runs with its
 * gradient as a loop over token chunks (R17): no array of tokens × vocab exists. mark runs before
 * autodiff, whose nodes inherit the mark; move runs after it. ---- */
typedef struct tt_chunk_opts {
    int64_t bytes; /* about the size of a chunk's logits; 0 = no loop */
    bool (*can_accumulate)(void *user, const char *op);
    bool (*supports)(void *user, const tt_kernel_call *c); /* as in tt_fuse_opts */
    void *user;
} tt_chunk_opts;
tt_status tt_pass_chunk_mark(tt_graph *g, const tt_chunk_opts *o, tt_error *err);
tt_status tt_pass_chunk_move(tt_graph *g, const tt_chunk_opts *o, tt_error *err);
/* Gives the loop up if its nodes cannot run chunk by chunk; move does so, too. tt_graph.unchunked then
 * says why. */
void tt_pass_chunk_check(tt_graph *g, const tt_chunk_opts *o);

/* ---- lower: redistribute and fetch → collectives ---- */
tt_status tt_pass_lower(tt_graph *g, tt_error *err);

/* Drops the nodes of a described model that neither its outputs nor the loss depend on, such as blocks that
 * are there for training alone. Inputs, parameters and buffers stay, but no buffer is changed. */
void tt_pass_drop_unread(tt_graph *g);
/* ---- order: accumulations directly after the values they add; dead nodes are dropped ---- */
tt_status tt_pass_order(tt_graph *g, tt_error *err);

/* ---- split: every stage's backward into I, then W (R10, P4), for schedules that do so ---- */
tt_status tt_pass_split(tt_graph *g, tt_error *err);

/* ---- the readers of each value ---- */
typedef struct tt_readers { /* by value id, as positions in the graph's list */
    int *index;             /* of the node that makes it */
    int **of, *n;           /* of the nodes that read it, ascending, each once */
} tt_readers;
tt_readers tt_find_readers(tt_graph *g); /* in the graph's arena */

/* ---- supports.c: asks the backend about a node that a pass has made and not yet put into the
 * graph, or about adding to its first output (tt_kernel.supports); supports NULL: it takes all ---- */
bool tt_pass_supports(bool (*supports)(void *user, const tt_kernel_call *c), void *user,
                      const tt_node *n, bool accumulates);

/* ---- fuse: chains of pointwise ops become one kernel; accumulate and assign join their producer
 * ---- */
typedef struct tt_fuse_opts {
    bool pointwise;                                     /* false: --debug.disable_fusion */
    bool (*can_accumulate)(void *user, const char *op); /* the backend's kernel adds to out[0] */
    bool (*has_kernel)(void *user, const char *op);     /* NULL = every op has one */
    /* The backend's kernel takes these attrs and dtypes; NULL = it takes all. */
    bool (*supports)(void *user, const tt_kernel_call *c);
    void *user;
} tt_fuse_opts;
tt_status tt_pass_fuse(tt_graph *g, const tt_fuse_opts *o, tt_error *err);
/* Do both run over the same elements, in the same part of the step? */
bool tt_fuse_same_iteration(const tt_node *a, const tt_node *b);
/* A pointwise node as an instruction; its sources are still to be named. */
tt_fused_instr tt_fuse_instr(const tt_node *n);

/* ---- epilogue: pointwise nodes join the matrix product that they read ---- */
tt_status tt_pass_epilogue(tt_graph *g, const tt_fuse_opts *o, tt_error *err);
/* ---- rope_fusion: RoPE joins the projection whose result it rotates; after epilogue ---- */
tt_status tt_pass_rope_fusion(tt_graph *g, const tt_fuse_opts *o, tt_error *err);

/* ---- async_tp: asynchronous tensor parallelism. A gather of rows and the products that read it
 * run piece by piece, and so do products and the reduce-scatter of their rows. No bit changes.
 * ---- */
tt_status tt_pass_async_tp(tt_graph *g, tt_error *err);

/* ---- overlap: a collective begins as long before its reader as it takes, by the plan's costs.
 * Nodes for which nothing waits (gradients of weights and their sums) run meanwhile. No bit
 * changes; it takes more memory, at most for the parameters and gradients of a block. ---- */
typedef struct tt_overlap_opts {
    const tt_machine
        *machine; /* on which nodes take their time; NULL: a CPU, by the planner's costs */
} tt_overlap_opts;
tt_status tt_pass_overlap(tt_graph *g, const tt_overlap_opts *o, tt_error *err);

/* The names of the scalars that the host writes and of the metrics that it reads. */
#define TT_SCALAR_INV_TOKENS "inv_tokens" /* f32: 1 / counted tokens of the global batch */
#define TT_SCALAR_INV_MICRO "inv_micro"   /* f32: 1 / micro-batches; only with scalar loss terms */
#define TT_SCALAR_LR "lr"                 /* f64: the learning rate of this step          */
#define TT_SCALAR_STEP "step"             /* f64: 1 for the first step (tt_graph.step)    */
#define TT_SCALAR_SEED "seed"             /* i64: training.seed (tt_graph.seed)           */
/* Makes the states seed and step on every stage, for any kernel (tt_kernel_call). */
void tt_graph_run_numbers(tt_graph *g);
#define TT_METRIC_LOSS "loss_sum" /* f32: sum of token losses                     */
#define TT_METRIC_LOSS_MAX "loss_max"
#define TT_METRIC_NORM "grad_norm"
#define TT_METRIC_OK "ok" /* f32: 1 if loss_sum and grad_norm are finite, else 0 (tt_graph.ok) */
#define TT_METRIC_LOSS_SCALE "loss_scale" /* f32: that of this step; only with a loss scale */
#define TT_METRIC_PER_TOKEN "per_token"   /* f32 [tokens]: tt_loss_vt.reference of each */
#define TT_METRIC_LOGITS "logits"         /* generation: f32 [tokens or picked, vocab] */

#endif
