/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_OUTPUT_OPTIONS_H
#define TT_OUTPUT_OPTIONS_H

/* Part of core_options.c, whose macros it uses: the tables of metrics, profiling and comm. */

static const tt_option sinks_names[] = {
    KEY(name, STRING, NULL,
        "console (whose lines a job has without it, too), or a metrics plugin: jsonl, tensorboard, "
        "csv, prometheus, wandb, trackio or your "
        "own"),
};

static const tt_option console_options[] = {
    INT(console, freq, "null", 0, 1e12,
        "steps from one line to the next, of those that metrics.log_freq logs; null = a line for "
        "each of them; the last step has one always; 0 = no lines",
        .flags = TT_OPT_NULLABLE),
};

static const tt_option metrics_options[] = {
    INT(metrics, log_freq, "10", 1, 1e12, "steps from one line to the next"),
    CHOICE(metrics, norms, "\"off\"", TT_CHOICES(TT_NORMS),
           "of which parameters logged steps also have norms: off, of each layer or of each "
           "parameter; grad_norms, weight_norms, weight_rms, update_ratios (of the change's norm "
           "to the weight's) and weight_norm (of all)"),
    INT(metrics, norms_freq, "1", 1, 1e12,
        "of the logged steps the multiples have norms and largest logits, and the first and last"),
    BOOL(metrics, attention_max_logits, "false",
         "log the largest logit of each layer's attention, scale times q·k, before softcap and "
         "bias, over the pairs that attention sees"),
    INT(metrics, lag, "0", 0, 1,
        "1: while a GPU computes a step, the host prepares the next one and only then waits for "
        "the step's loss and norm, so the GPU does not stand idle; lines come a step later, "
        "numbers are the same; no effect on a CPU, with hooks, or with debug.detect_nan, poison or "
        "sync"),
    CHOICE(
        metrics, on_error, "\"continue\"", TT_CHOICES(TT_ON_ERRORS),
        "when a sink cannot write a record: continue after a line and try again with each record, "
        "or stop the run"),
    BOOL(metrics, enable_tensorboard, "true", "write TensorBoard event files"),
    STRING(metrics, save_tb_folder, "\"tb\"",
           "folder of the TensorBoard files, below dump_folder unless absolute"),
    BOOL(metrics, save_for_all_ranks, "false",
         "every rank writes TensorBoard files, with its own times and memory, in rank_N of that "
         "folder"),
    BOOL(
        metrics, log_experts, "true",
        "of models with experts, in each layer: the largest number of tokens of an expert over the "
        "mean of all experts, and the entropy of their shares from 0 (one has all) to 1 (all have "
        "the same); of a step's whole batch"),
    BOOL(metrics, enable_progress_bar, "true",
         "draw a bar while training, or write lines of progress if stderr is not a terminal"),
};

static const tt_option profiling_options[] = {
    BOOL(profiling, enable, "false",
         "trace a step now and then, as Chrome/Perfetto JSON; a table of all ops at the end",
         .aliases = "enable_profiling"),
    INT(profiling, freq, "10", 1, 1e12,
        "steps of a cycle, of which the last are traced; without repeat the run's last step is, "
        "too",
        .aliases = "profile_freq"),
    INT(profiling, active, "1", 1, 1e12, "steps that are traced at the end of each cycle",
        .aliases = "profiler_active"),
    INT(profiling, skip_first, "0", 0, 1e12, "steps of this start before the first cycle",
        .aliases = "profiler_skip_first"),
    INT(profiling, repeat, "0", 0, 1e12, "cycles of this start; 0 = until the run ends",
        .aliases = "profiler_repeat"),
    STRING(profiling, ranks, "\"all\"",
           "ranks whose ops are traced: \"0\", \"0,3\" or \"all\"; the table of ops is rank 0's"),
    STRING(profiling, save_traces_folder, "\"profile\"",
           "folder of the traces, below dump_folder unless absolute"),
    BOOL(
        profiling, enable_memory_snapshot, "false",
        "now and then measure the memory of the process while a step runs; `ttrun report` draws it "
        "beside what the plan allocates"),
    INT(profiling, memory_snapshot_freq, "10", 1, 1e12,
        "steps from one such step to the next; the first and the last one of a start are, too"),
    INT(profiling, memory_snapshot_max_entries, "10000", 2, 1e7,
        "samples of a step; of a longer step every second, fourth, … millisecond is sampled"),
    STRING(profiling, save_memory_snapshot_folder, "\"memory_snapshot\"",
           "folder of the measurements, below dump_folder unless absolute"),
};

static const tt_option comm_options[] = {
    STRING(comm, backend, "\"auto\"",
           "how ranks talk: local = as threads of one process, shm = as processes of one machine; "
           "any other name = by that comm plugin alone (mpi); auto = shared memory within a "
           "machine, the comm plugin between machines"),
    STRING(comm, host, "\"auto\"",
           "beside a comm plugin of devices (nccl): what carries the host's own numbers, and with "
           "that what a rank is; values as of backend (local = a thread of one process)"),
    INT(comm, train_timeout_seconds, "100", 1, 1e6,
        "longest wait for another rank after the first step"),
    INT(comm, init_timeout_seconds, "300", 1, 1e6,
        "longest wait for another rank until the first step of this start is done"),
    CHOICE(comm, overlap, "\"auto\"", TT_CHOICES(TT_OVERLAPS),
           "run collectives concurrently with computation: each group of ranks has a thread that "
           "starts them early; same results, for at most the memory of one more block's parameters "
           "and gradients; auto = on devices, and on CPUs with spare cores"),
    INT(comm, trace_buf_size, "2000", 0, 1e7,
        "collectives and messages that each rank remembers. When a rank has waited too long for "
        "another, or has died, they are written to files; 0 = none"),
    STRING(comm, save_traces_folder, "\"comm_traces\"",
           "folder of these files, below dump_folder unless absolute"),
    STRING(comm, save_traces_file_prefix, "\"rank_\"",
           "what the names of these files begin with; the rank and .json follow"),
};

#endif
