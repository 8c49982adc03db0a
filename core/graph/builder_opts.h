/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BUILDER_OPTS_H
#define TT_BUILDER_OPTS_H
#include "base/base.h"
#include "graph/op.h"
#include <ttrun/backend.h>
#include <ttrun/dataloader.h>

/* The options of a builder. */

/* Dtypes (R6): `param` stores parameters, `compute` is the dtype of parameters and activations in ops,
 * `reduce` that of gradients in a reduction. All zero: f32 everywhere. */
typedef struct tt_precision {
    tt_dtype param, compute, reduce;
} tt_precision;

/* How an op that mixes tokens (attention) reads tokens of its sequence that other ranks have. */
typedef enum tt_context {
    TT_CONTEXT_GATHER, /* all-gather of keys and values */
    TT_CONTEXT_RING,   /* ring attention: keys and values go from rank to rank */
    TT_CONTEXT_HEADS,  /* Ulysses: the op's heads are cut instead of its tokens */
} tt_context;

/* What decoding keeps of earlier tokens. */
typedef enum tt_cache {
    TT_CACHE_AUTO,   /* what has fewer bytes per token */
    TT_CACHE_LATENT, /* what keys and values are products of (tt_latent_attention) */
    TT_CACHE_HEADS,  /* keys and values of heads */
} tt_cache;

typedef struct tt_builder_opts {
    const tt_op_table *ops;
    tt_builder_use use;
    const tt_input_info *inputs; /* what the dataloader adds to ids, labels, pos and seg; or NULL */
    int n_inputs;
    /* Makes an input of another name, if it can; NULL: such a name is an error. */
    bool (*open_input)(void *user, const char *name, tt_input_info *out);
    void *open_user;
    int64_t tokens, sequences; /* per micro-batch, over all ranks; all sequences are equally long */
    tt_precision precision;
    tt_context context;
    int64_t alignment; /* of the program's memory; 0: TT_ALIGNMENT */
    int64_t line;      /* as in tt_graph */
    bool
        device; /* values lie in a device's memory: the host does not know counts among them, and so
                    messages have the size that they may have at most */
    bool force_load_balance; /* debug.moe_force_load_balance */
    double expert_room;      /* of the first pass of experts (tt_expert_passes) */
    bool log_experts;        /* metrics.log_experts */
    int64_t length;          /* tokens of the longest sequence; 0: of each sequence of `tokens` */
    /* Does the backend have a kernel for this op? An op without one is decomposed. NULL: it has all. */
    bool (*has_kernel)(void *user, const char *op);
    /* Does its kernel take the dtypes of this call? NULL: kernels take all dtypes. */
    bool (*supports)(void *user, const tt_kernel_call *c);
    void *has_kernel_user;
    /* Asks the job's converters, from number `first` on, for the value that replaces a linear; NULL:
     * none replaces it. */
    tt_value *(*convert_linear)(void *user, tt_builder *b, int first, const char *param,
                                tt_value *x, tt_value *w);
    void *convert_user;
    bool
        latents; /* the graph decodes: keep what keys and values are made of, where that is described */
} tt_builder_opts;

/* An input of graphs that generate, with a number N: is the token's text longer than N tokens? */
#define TT_INPUT_LONGER "longer_than."

#endif
