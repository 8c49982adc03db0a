/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_COMPILE_H
#define TT_COMPILE_H
#include "passes/expert_replicas.h"
#include "passes/passes.h"

/* compile: makes the finished graph of a step from the model and loss plugins. compile.c calls the
 * passes in the order of docs/design/architecture.md. */

typedef enum tt_mode {
    TT_MODE_TRAIN,
    TT_MODE_EVAL, /* forward and the loss's metrics: validation */
    TT_MODE_REFERENCE, /* forward; the state TT_METRIC_PER_TOKEN has what reference() of the loss returns */
    TT_MODE_LOGITS, /* forward only; the state TT_METRIC_LOGITS has the logits of one sequence:
                       generation without a cache */
    TT_MODE_DECODE  /* the same for a few new tokens of several sequences. If an op of the model
                       has no incremental form, a warning says so and the mode is LOGITS */
} tt_mode;

typedef struct tt_decode_opts { /* TT_MODE_DECODE: the sizes that a program is made for */
    int64_t rows;               /* the largest number of tokens per call */
    int64_t slots;              /* the number of sequences at once */
    int64_t length;             /* the largest number of tokens per sequence */
    tt_cache cache;
    int64_t picked; /* rows of a call whose logits are computed, at most; 0: slots */
} tt_decode_opts;

typedef struct tt_compile_opts {
    tt_mode mode;
    bool foreign_params; /* they are in another program's memory: validation in a training run */
    const tt_op_table *ops;
    int64_t line;                /* as in tt_graph */
    const tt_input_info *inputs; /* the dataloader's own; NULL = there is no loader */
    int n_inputs;
    bool (*open_input)(void *user, const char *name, tt_input_info *out); /* tt_builder_opts */
    void *open_user;
    const tt_model_vt *model;
    const void *model_config;
    const char *model_name; /* "plugin models/llama3.so": before errors */
    const tt_loss_vt *loss; /* not for LOGITS */
    const void *loss_config;
    const tt_mesh *mesh;
    const tt_label_table *labels;
    int64_t sequences,
        seq_len; /* of one micro-batch on all data ranks; tokens = sequences * seq_len */
    tt_decode_opts decode;
    int n_stages;
    const int *stage_begin; /* by stage: its first block; NULL = as tt_cut_blocks finds it */
    const int *
        block_stage; /* the stage of each block, as in the program whose parameters this one reads; NULL:
                               as stage_begin says */
    bool split_backward; /* the schedule has I and W */
    tt_precision precision;
    tt_context context;
    bool force_load_balance;  /* debug.moe_force_load_balance */
    double expert_room;       /* parallelism.expert_buffer_factor; 0 = for all rows */
    tt_replica_opts replicas; /* parallelism.expert_replicas, for TRAIN */
    bool log_experts;         /* metrics.log_experts */
    int64_t alignment;        /* of the program's memory; 0 = 64 */
    bool device;              /* as in tt_builder_opts */
    /* the optimizer, for TRAIN */
    tt_update_opts update;
    int (*group_of)(void *user,
                    const tt_param_info *p); /* -1 = the default group; NULL = all default */
    void *group_user;
    /* Freezes parameters of the described graph; checked: names that it looks for must be there.
     * NULL: only those that the model freezes. */
    tt_status (*freeze)(void *user, const tt_graph *described, bool checked, tt_error *err);
    void *freeze_user;
    tt_recompute_opts recompute;
    tt_dtype store_dtype; /* of what the forward keeps for the backward; f32 = as it is */
    tt_autodiff_opts autodiff;
    bool measure_logits; /* measured steps have attention's largest logits */
    int interleaved;     /* micro-batches per call of the program, for TRAIN; 0: one */
    bool several;        /* a step has several calls of the program */
    bool hoist;          /* parameters are gathered once per step (R6) */
    bool async_tp;       /* asynchronous tensor parallelism */
    bool overlap;        /* communication concurrent with computation */
    tt_overlap_opts overlapping;
    tt_offload_opts offload; /* for TRAIN */
    int64_t chunk_bytes;     /* larger logits exist in chunks only; 0 = no chunks */
    /* the backend */
    bool (*has_kernel)(void *user, const char *op);
    bool (*supports)(void *user, const tt_kernel_call *c);
    bool (*can_accumulate)(void *user, const char *op);
    void *backend_user;
    bool no_fusion;
    tt_value *(*convert_linear)(void *user, tt_builder *b, int first, const char *param,
                                tt_value *x, tt_value *w); /* as in tt_builder_opts */
    void *convert_user;
    tt_convert_opts convert; /* for TRAIN and EVAL */
    void (*described)(void *user,
                      tt_builder *b); /* the model has described itself; NULL = nothing */
    const char *dump_folder;          /* printed graphs after every pass; NULL = none */
} tt_compile_opts;

tt_status tt_compile(const tt_compile_opts *o, tt_arena *a, tt_graph **out, tt_error *err);

/* cut.c: assigns each block to a stage. The blocks of a stage are contiguous. Only a first stage
 * with an embedding and a last stage with a head may have no block. begin: the first block of
 * each stage (a number above the last block: none); NULL: so that the stage that costs most
 * costs as little as possible, embedding and head included. */
tt_status tt_cut_blocks(const tt_graph *described, int n_stages, const int *begin, tt_arena *a,
                        int **block_stage, tt_error *err);

/* Parameters and FLOPs per token: 6 per parameter that is multiplied, 4 if it is frozen (it has no
 * gradient), and those of attention. */
typedef struct tt_model_size {
    int64_t parameters, embedding; /* embedding: parameters that are only looked up */
    int64_t trained;               /* parameters that are not frozen */
    double flops_per_token;
} tt_model_size;
tt_status tt_model_measure(const tt_graph *g, int64_t attention_width, int64_t seq_len,
                           tt_model_size *out);

#endif
