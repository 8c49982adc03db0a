/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PARALLELISM_OPTIONS_H
#define TT_PARALLELISM_OPTIONS_H

/* Part of core_options.c, whose macros it uses: the table of parallelism. */

static const tt_option parallelism_options[] = {
    INT(parallelism, data_parallel_replicate_degree, "1", 1, 1e6,
        "copies of the model that share no state (DDP, HSDP)"),
    INT(parallelism, data_parallel_shard_degree, "-1", -1, 1e6,
        "ranks that shard parameters and optimizer state (FSDP); -1 = all remaining ranks"),
    INT(parallelism, tensor_parallel_degree, "1", 1, 1e6, "ranks that shard each layer's matrices"),
    INT(parallelism, context_parallel_degree, "1", 1, 1e6, "ranks that shard each sequence"),
    CHOICE(parallelism, context_parallel_load_balancer, "\"headtail\"",
           TT_CHOICES(TT_LOAD_BALANCERS),
           "headtail: each rank gets tokens from the head and the tail of a sequence, so that "
           "causal attention is balanced; none: consecutive tokens"),
    CHOICE(parallelism, context_parallel_rotate_method, "\"allgather\"",
           TT_CHOICES(TT_ROTATE_METHODS),
           "attention over a sequence that is cut: allgather gathers keys and values, ring "
           "(torchtitan: alltoall) passes them around the ranks, ulysses gives each rank the whole "
           "sequence for some of the heads"),
    INT(parallelism, pipeline_parallel_degree, "1", 1, 1e6, "ranks that share the layers"),
    INT(parallelism, expert_parallel_degree, "1", 1, 1e6,
        "ranks that share the experts of a layer: a divisor of tp, tp × a divisor of cp, or "
        "cp × tp × a divisor of dp_shard"),
    FLOAT(parallelism, expert_buffer_factor, "null", 1, 1e6,
          "with expert_parallel_degree: a rank has room for so many times the rows of balanced "
          "routing; what is beyond is done in up to three more passes, which the backward computes "
          "again; a GPU runs all passes and sends all of the room; null = room for all rows. No "
          "token is dropped",
          .flags = TT_OPT_NULLABLE),
    INT(parallelism, expert_replicas, "0", -1, 1e6,
        "with expert_parallel_degree: so many experts of a layer, those with most tokens in the "
        "steps before, are on all ranks of ep; -1 = as many as the cost model finds faster"),
    FLOAT(parallelism, expert_replicas_gb, "1", 0, 1e9, "GB that replicas may take; 0 = any"),
    FLOAT(parallelism, expert_replicas_skew, "2", 1, 1e6,
          "with expert_replicas -1: rows of the busiest rank over the mean, as expected without"),
    STRING(
        parallelism, pipeline_parallel_schedule, "\"1F1B\"",
        "order of the pipeline's work: 1F1B, GPipe; with several stages per rank Interleaved1F1B, "
        "InterleavedZeroBubble, LoopedBFS, ZBVZeroBubble, DualPipeV"),
    STRING(parallelism, pipeline_parallel_schedule_csv, "\"\"",
           "CSV file of a schedule of your own: one row per rank, cells like 2F0 "
           "(<stage><F|B|I|W><micro-batch>), empty = idle",
           .flags = TT_OPT_PATH),
    INT(parallelism, pipeline_parallel_layers_per_stage, "null", 1, 1e6,
        "layers per stage, embedding and head counting as one each; null: as many stages per rank "
        "as the schedule has by itself",
        .flags = TT_OPT_NULLABLE),
    KEY(pipeline_parallel_split_points, STRINGS, "[]",
        "first layer of each stage but the first, like layers.2, for the last also norm: the head "
        "alone; empty: cut so that stages cost the same",
        .offset = offsetof(tt_parallelism_config, pipeline_parallel_split_points)),
    KEY(module_fqns_per_model_part, JSON, "null",
        "lists of the modules of each stage, like [[\"tok_embeddings\", \"layers.0\"], "
        "[\"layers.1\", \"norm\", \"output\"]]",
        .flags = TT_OPT_NULLABLE,
        .offset = offsetof(tt_parallelism_config, module_fqns_per_model_part),
        .aliases = "pipeline_parallel_module_fqns_per_model_part"),
    INT(parallelism, pipeline_parallel_microbatches, "-1", -1, 1e6,
        "micro-batches that local_batch_size is split into; -1 = twice the pipeline degree if "
        "it divides, "
        "else the largest divisor",
        .aliases = "num_pp_microbatches"),
    CHOICE(parallelism, fsdp_reshard_after_forward, "\"default\"", TT_CHOICES(TT_RESHARDS),
           "always: free parameters after the forward and gather them again for the backward; "
           "never: gather them once per step and reduce gradients once per step, for more memory; "
           "default: always, but with a pipeline parameters are gathered once per step"),
    BOOL(parallelism, enable_sequence_parallel, "true",
         "with tensor parallelism, cut tokens over its ranks between the matrix products"),
    BOOL(parallelism, enable_async_tensor_parallel, "false",
         "asynchronous tensor parallelism: with sequence parallelism, gather and reduce rows piece "
         "by piece, each while another is multiplied"),
};

#endif
