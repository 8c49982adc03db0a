/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PASSES_H
#define TT_PASSES_H
#include "cost/cost.h"
#include "graph/graph.h"
#include <ttrun/backend.h>
#include <ttrun/loss.h>
#include <ttrun/model.h>
#include <ttrun/optimizer.h>

/* core/passes: each a transformation of the graph with one entry; compile.c is their order. Passes
 * that add ops add them through the placed builder `b`, so everything they build is placed as it is
 * built. Verified after each. */

/* ---- place: the described graph, re-emitted with every value stored somewhere ---- */
typedef struct tt_place_opts {
    const int *block_stage; /* stage of each block, ascending; NULL = all 0 */
    int n_stages;
    /* Builds outs of a described node by other ops, from `in`; false: as it is. NULL = none. */
    bool (*replace)(void *user, tt_builder *b, const tt_node *n, tt_value **in, tt_value **out);
    void *replace_user;
} tt_place_opts;
tt_status tt_pass_place(const tt_graph *described, const tt_place_opts *o, tt_builder *b,
                        tt_error *err);

/* ---- decode: what tt_pass_place puts in place of nodes so that tokens can come a few at a time
 * (R18). Ops that mix tokens are replaced by their incremental forms, which keep states; what comes
 * after the last of them is computed for the picked tokens alone (input "pick"). ---- */
#define TT_INPUT_PICK "pick"
typedef struct tt_decode tt_decode;
/* Before place. An error of TT_EUNSUPPORTED says which op has no incremental form. */
tt_status tt_pass_decode_find(const tt_graph *described, int64_t slots, int64_t length, tt_arena *a,
                              tt_decode **out, tt_error *err);
bool tt_pass_decode_replace(void *decode, tt_builder *b, const tt_node *n, tt_value **in,
                            tt_value **out);
/* After place: the logits as the state TT_METRIC_LOGITS. decode NULL: of all tokens. */
tt_status tt_pass_decode_logits(tt_decode *decode, tt_builder *b, tt_error *err);
/* Most tokens of a sequence by the tables that describe() looks up by position; INT64_MAX = any. */
int64_t tt_decode_positions(const tt_graph *described);

/* ---- loss: the metrics of a placed forward (loss sum, loss_max), summed over micro-batches ----
 */
tt_status tt_pass_metrics(tt_builder *b, tt_error *err);
/* buffers.c: the statistics that buffers are updated by, in the forward; and the updates. */
tt_status tt_pass_buffer_sums(tt_builder *b, tt_error *err);
tt_status tt_pass_buffers(tt_builder *b, tt_error *err);

/* ---- autodiff: derivative on meanings (R1, R6, R16); makes stacks, gradient accumulators ---- */
tt_status tt_pass_autodiff(tt_builder *b, tt_error *err);

/* ---- stacks, of a program without gradients; own: its parameters have memory, not another
 * program's ---- */
void tt_pass_stacks(tt_graph *g, bool own);
/* n parameters of one type and placement as one value: a whole dim in front. */
tt_type tt_stack_type(const tt_type *t, int n);
tt_placement tt_stack_placement(const tt_placement *p);

/* ---- update: epilogue (reductions, norm, clip) and the optimizer of every stack (R13) ---- */
typedef struct tt_group {
    const tt_optimizer_vt *vt;
    const void *config; /* with the group's overrides */
    double lr_factor;
} tt_group;
typedef struct tt_update_opts {
    const tt_group *groups; /* [param->group + 1]: 0 = the default */
    int n_groups;
    double max_norm; /* <= 0: no clipping */
} tt_update_opts;
tt_status tt_pass_update(tt_builder *b, const tt_update_opts *o, tt_error *err);

/* ---- share: scalars that the updates of several stacks compute alike are computed once ---- */
tt_status tt_pass_share(tt_graph *g, tt_error *err);

/* ---- recompute: forward values read by the backward are cloned there, by mode ---- */
typedef enum tt_recompute_mode {
    TT_RECOMPUTE_NONE,
    TT_RECOMPUTE_SELECTIVE,
    TT_RECOMPUTE_FULL
} tt_recompute_mode;
typedef struct tt_recompute_opts {
    tt_recompute_mode mode;
    bool fetches; /* reshard after forward: gathered parameters are fetched again */
} tt_recompute_opts;
tt_status tt_pass_recompute(tt_graph *g, const tt_recompute_opts *o, tt_error *err);

/* ---- store: large f32 values that the forward keeps for the backward are kept in another dtype
 * ---- */
typedef struct tt_store_opts {
    tt_dtype dtype; /* TT_F32 (0): as they are */
    bool apart;     /* each reader widens for itself: the parts of a split backward */
} tt_store_opts;
tt_status tt_pass_store(tt_builder *b, const tt_store_opts *o, tt_error *err);

/* ---- hoist: what fetches bring is kept in states, for all micro-batches of a step ---- */
tt_status tt_pass_hoist(tt_graph *g, tt_error *err);

/* ---- chunk: the per-token suffix, head matmul to loss, runs as a loop over token chunks with its
 * gradient in the forward (R17): tokens × vocab is never held. mark: before autodiff, whose nodes
 * inherit the mark; move: after it. */
typedef struct tt_chunk_opts {
    int64_t bytes; /* logits of a chunk are about this large; 0 = no loop */
    bool (*can_accumulate)(void *user, const char *op);
    void *user;
} tt_chunk_opts;
tt_status tt_pass_chunk_mark(tt_graph *g, const tt_chunk_opts *o, tt_error *err);
tt_status tt_pass_chunk_move(tt_graph *g, const tt_chunk_opts *o, tt_error *err);

/* ---- lower: redistribute and fetch → collectives ---- */
tt_status tt_pass_lower(tt_graph *g, tt_error *err);

/* ---- order: accumulations right after what they add; dead nodes dropped ---- */
tt_status tt_pass_order(tt_graph *g, tt_error *err);

/* ---- split: every stage's backward into I, then W (R10, P4), for schedules that place them apart
 * ---- */
tt_status tt_pass_split(tt_graph *g, tt_error *err);

/* ---- who reads what ---- */
typedef struct tt_readers { /* by value id, as places in the graph's list */
    int *index;             /* of the node that makes it */
    int **of, *n;           /* of the nodes that read it, ascending, each once */
} tt_readers;
tt_readers tt_find_readers(tt_graph *g); /* in the graph's arena */

/* ---- fuse: pointwise chains → one kernel; accumulate and assign into their producer ---- */
typedef struct tt_fuse_opts {
    bool pointwise;                                     /* false: --debug.disable_fusion */
    bool (*can_accumulate)(void *user, const char *op); /* the backend's kernel adds to out[0] */
    bool (*has_kernel)(void *user, const char *op);     /* NULL = every op has one */
    void *user;
} tt_fuse_opts;
tt_status tt_pass_fuse(tt_graph *g, const tt_fuse_opts *o, tt_error *err);
/* Do both run over the same elements, in the same part of the step? */
bool tt_fuse_same_iteration(const tt_node *a, const tt_node *b);
/* A pointwise node as an instruction; its sources are still to be named. */
tt_fused_instr tt_fuse_instr(const tt_node *n);

/* ---- epilogue: pointwise nodes into the matrix product they read ---- */
tt_status tt_pass_epilogue(tt_graph *g, const tt_fuse_opts *o, tt_error *err);
/* ---- rope_fusion: RoPE into the projection whose result it rotates; after epilogue ---- */
tt_status tt_pass_rope_fusion(tt_graph *g, const tt_fuse_opts *o, tt_error *err);

/* ---- async_tp: a gather of rows and the products that read it, products and the reduce-scatter of
 * their rows, piece by piece (asynchronous tensor parallelism). Same bits. ---- */
tt_status tt_pass_async_tp(tt_graph *g, tt_error *err);

/* ---- overlap: collectives are begun as long before they are needed as they take, by the plan's
 * costs; what nobody waits for (gradients' work and sums) moves behind them. Same bits, more
 * memory: at most a block's parameters and gradients. ---- */
typedef struct tt_overlap_opts {
    const tt_machine
        *machine; /* that its durations are of; NULL: a CPU's, by the planner's costs */
} tt_overlap_opts;
tt_status tt_pass_overlap(tt_graph *g, const tt_overlap_opts *o, tt_error *err);

/* The names of the host's scalars and metrics. */
#define TT_SCALAR_INV_TOKENS "inv_tokens" /* f32: 1 / counted tokens of the global batch */
#define TT_SCALAR_INV_MICRO "inv_micro"   /* f32: 1 / micro-batches; only with scalar loss terms */
#define TT_SCALAR_LR "lr"                 /* f64: the schedule's rate of this step        */
#define TT_SCALAR_STEP "step"             /* f64: 1 for the first step (tt_graph.step)    */
#define TT_SCALAR_SEED "seed"             /* i64: training.seed (tt_graph.seed)           */
/* The states that any kernel may read (tt_kernel_call): made once, on every stage. */
void tt_graph_run_numbers(tt_graph *g);
#define TT_METRIC_LOSS "loss_sum" /* f32: sum of token losses                     */
#define TT_METRIC_LOSS_MAX "loss_max"
#define TT_METRIC_NORM "grad_norm"
#define TT_METRIC_OK "ok" /* f32: 1 if loss_sum and grad_norm are finite, else 0 (tt_graph.ok) */
#define TT_METRIC_LOGITS "logits" /* generation: f32 [tokens or picked, vocab] */

#endif
