/* SPDX-License-Identifier: Apache-2.0 */
#include "config/job_core.h"
#include <math.h>

/* The option tables of the core's sections. Aliases are torchtitan's names, of 2025 and of today.
 * For a section with a component (tokenizer … lr_scheduler, converters, hooks) this file documents
 * the options that every component has; the component's own table has the others. */

#define ANY ((double)INFINITY)
/* INT(section, field, default, …, doc, further designators): the field is the key. */
#define ROW(section, field, type_, default_)                                                       \
    .name = #field, .type = type_, .offset = offsetof(tt_##section##_config, field),               \
    .default_json = default_
#define BOOL(section, field, default_, ...)                                                        \
    {                                                                                              \
        ROW(section, field, TT_OPT_BOOL, default_), .doc = __VA_ARGS__                             \
    }
#define STRING(section, field, default_, ...)                                                      \
    {                                                                                              \
        ROW(section, field, TT_OPT_STRING, default_), .doc = __VA_ARGS__                           \
    }
#define ENUM(section, field, default_, choices_, ...)                                              \
    {                                                                                              \
        ROW(section, field, TT_OPT_ENUM, default_), .choices = choices_, .doc = __VA_ARGS__        \
    }
#define CHOICE(section, field, default_, choices_, ...)                                            \
    {                                                                                              \
        ROW(section, field, TT_OPT_CHOICE, default_), .choices = choices_, .doc = __VA_ARGS__      \
    }
#define INT(section, field, default_, min_, max_, ...)                                             \
    {                                                                                              \
        ROW(section, field, TT_OPT_INT, default_), .min = min_, .max = max_, .doc = __VA_ARGS__    \
    }
#define FLOAT(section, field, default_, min_, max_, ...)                                           \
    {                                                                                              \
        ROW(section, field, TT_OPT_FLOAT, default_), .min = min_, .max = max_, .doc = __VA_ARGS__  \
    }
#define KEY(key, type_, default_, ...)                                                             \
    {                                                                                              \
        .name = #key, .type = TT_OPT_##type_, .default_json = default_, .doc = __VA_ARGS__         \
    }

typedef tt_core_config tt_top_config, tt_model_config;
typedef tt_backend_section tt_backend_config;

static const tt_option top_options[] = {
    STRING(top, spec, "\"llama3\"",
           "TrainSpec: the named set of model, tokenizer, dataloader, loss, optimizer and metrics"),
    STRING(top, dump_folder, "\"./outputs\"",
           "folder of the run: metrics, checkpoints, event files", .flags = TT_OPT_PATH),
    STRING(top, description, "null", "what the run is for: its first line says it, and run.json",
           .flags = TT_OPT_NULLABLE),
    {ROW(top, plugin_dirs, TT_OPT_STRINGS, "[]"),
                              .doc = "folders with plugins that this job needs, searched after those of --plugin-dir",
                              .flags = TT_OPT_PATH},
};

static const tt_option model_options[] = {
    STRING(
        model, hf, "null",
        "a Hugging Face folder, or the id of a model in the hub's local cache (ORG/NAME), as the "
        "whole fine-tuning job: keys that the job does not set are "
        "spec by config.json's model_type, flavor hf, hf_assets_path, "
        "checkpoint.initial_load_path and tokenizer in that folder, and seq_len, the smaller of "
        "the model's positions and 2048",
        .flags = TT_OPT_NULLABLE | TT_OPT_PATH | TT_OPT_HUB),
    STRING(model, flavor, "\"debugmodel\"",
           "named size of the model; \"hf\" takes the sizes from hf_assets_path/config.json"),
    STRING(
        model, hf_assets_path, "null",
        "folder with config.json, tokenizer and weights in Hugging Face format; its tokenizer is "
        "used unless the section tokenizer names another",
        .flags = TT_OPT_NULLABLE | TT_OPT_PATH | TT_OPT_HUB),
    BOOL(model, vocab_from_tokenizer, "false",
         "the model's vocabulary has the size of the tokenizer's, unless model.args.vocab_size is "
         "set"),
};

static const tt_option model_names[] = {
    KEY(name, STRING, NULL, "model plugin; without it the spec's"),
};

static const tt_option tokenizer_options[] = {
    KEY(name, STRING, NULL, "tokenizer plugin; without it the spec's"),
};

static const tt_option dataloader_options[] = {
    BOOL(dataloader, infinite, "true",
         "after an epoch the next one begins; false: the run ends with the data, at the latest, "
         "and its last step has the samples that are left",
         .aliases = "repeat"),
    BOOL(dataloader, shuffle, "true", "draw the samples of each epoch in a seeded random order"),
    INT(dataloader, seed, "null", 0, 9007199254740992.0, "of the order; null = training.seed",
        .flags = TT_OPT_NULLABLE),
};

static const tt_option dataloader_names[] = {
    KEY(name, STRING, NULL, "dataloader plugin: text, jsonl or bin; without it the spec's"),
    KEY(mixture, JSON, "[]",
        "instead of path, several loaders with weights: list of {\"path\": …, \"name\": …, "
        "\"weight\": 2.5, keys of that loader}; each has epochs of its own, and that of the "
        "mixture "
        "has as many samples as all of them together"),
};

static const tt_option loss_options[] = {
    KEY(name, STRING, NULL, "loss plugin; without it the spec's"),
};

static const tt_option optimizer_options[] = {
    CHOICE(optimizer, state_dtype, "\"float32\"", TT_FLOATS "|float8_e4m3fn|dynamic8",
           "dtype of the optimizer's states, of any optimizer; bfloat16 takes half their memory, "
           "float8_e4m3fn a quarter, with a scale for 256 elements: the update reads them as "
           "float32 and rounds what it stores stochastically. dynamic8 takes a quarter, too: the "
           "8-bit codes of bitsandbytes, rounded to the nearest"),
    FLOAT(
        optimizer, qk_clip, "null", 1e-30, 1e30,
        "QK-clip: after a step in which a head's largest attention logit was above this, weights "
        "of "
        "its queries and keys are scaled such that it would be this; 100 in Kimi-K2; null = never",
        .flags = TT_OPT_NULLABLE),
    BOOL(optimizer, early_step_in_backward, "false",
         "each parameter is updated in the backward as soon as its gradient is complete, so that "
         "gradients need not all exist at once; wants training.max_norm 0 and one micro-batch"),
};

static const tt_option optimizer_names[] = {
    KEY(name, STRING, NULL, "optimizer plugin; without it the spec's"),
    KEY(param_groups, JSON, "[]",
        "list of {\"match\": regex on names or \"tag:…\", options…}; the first match wins, an "
        "empty match is an error; with \"name\" the group has another optimizer, and that one's "
        "options"),
};

static const tt_option lr_scheduler_options[] = {
    INT(lr_scheduler, total_steps, "null", 1, 1e12,
        "steps of the schedule, if they are not those of the run; after them the rate stays as at "
        "their end",
        .flags = TT_OPT_NULLABLE),
    INT(lr_scheduler, warmup_tokens, "null", 0, 1e18,
        "length of the warm-up in tokens, in place of warmup_steps; rounded up to whole steps",
        .flags = TT_OPT_NULLABLE),
    INT(lr_scheduler, rewarm_steps, "0", 0, 1e12,
        "steps over which the rate rises again, linearly, whenever a run is resumed; 0 = it goes "
        "on "
        "as if it had not stopped"),
};

static const tt_option lr_scheduler_names[] = {
    KEY(name, STRING, NULL, "learning-rate scheduler plugin; without it the spec's"),
};

static const tt_option training_options[] = {
    INT(training, local_batch_size, "8", 1, 1e6,
        "samples per data rank and forward, or per pass through a pipeline"),
    INT(training, global_batch_size, "-1", -1, 1e9,
        "samples per optimizer step over all ranks; -1 = local_batch_size times data ranks"),
    INT(training, intra_layer_micro_batch, "1", 1, 8,
        "micro-batches that run interleaved in each layer, so that communication of one hides "
        "behind "
        "computation of another (docs/parallel.md); must divide a step's micro-batches"),
    INT(training, seq_len, "2048", 1, 1e9, "tokens per sample", .aliases = "max_context_length"),
    INT(training, steps, "10000", 0, 1e12,
        "optimizer steps of the whole run; null: num_train_epochs or dataloader.infinite says",
        .flags = TT_OPT_NULLABLE),
    FLOAT(
        training, num_train_epochs, "null", 0, 1e9,
        "instead of steps, how often the data is gone through: each epoch ends with a step of the "
        "samples that are left, and 2.5 epochs end in the middle of the third; null = steps says",
        .flags = TT_OPT_NULLABLE),
    FLOAT(training, ema_decay, "null", 0, 0.9999999999,
          "keep a mean of the weights over steps: after each update it moves by 1 - ema_decay of "
          "the way to them; null = none",
          .flags = TT_OPT_NULLABLE),
    BOOL(training, ema_evaluate, "true",
         "validation, eval, generate, chat and exports take the mean of the weights (ema_decay, or "
         "that of the optimizer), not the weights of the last step"),
    FLOAT(training, max_norm, "1.0", 0, ANY,
          "gradients are clipped to this global norm; 0 = not clipped"),
    KEY(clip_norm_type, JSON, "2",
        "order of the gradients' norm, which max_norm, max_grad_norm_skip and the metric grad_norm "
        "are "
        "about: 2, 1, any number above 0, or \"inf\", the largest element; as norm_type of "
        "torch.nn.utils.clip_grad_norm_",
        .offset = offsetof(tt_training_config, clip_norm_type)),
    BOOL(training, skip_nonfinite, "false",
         "a step whose loss or gradients are NaN or infinite updates nothing, and training goes "
         "on; 100 such steps in a row end the run with status 3, as the first does where this is "
         "false"),
    FLOAT(training, max_grad_norm_skip, "0", 0, ANY,
          "a step whose gradient norm, before clipping, is larger updates nothing; 0 = no limit"),
    CHOICE(training, dtype, "\"float32\"", TT_FLOATS,
           "dtype of stored parameters; that of optimizer states is optimizer.state_dtype"),
    CHOICE(training, mixed_precision_param, "\"float32\"", TT_FLOATS "|float16",
           "dtype of the forward and backward pass: parameters are cast to it before they are "
           "gathered; with float16 the loss is scaled"),
    FLOAT(training, loss_scale, "65536", 1, 0x1p60,
          "with float16: the first scale of the loss, a power of two; after a step whose gradients "
          "overflow, which updates nothing, it is halved",
          .aliases = "initial_loss_scale"),
    INT(training, loss_scale_window, "2000", 0, 1e6,
        "with float16: steps in a row without an overflow after which the loss scale is doubled; 0 "
        "= it "
        "never changes"),
    CHOICE(training, mixed_precision_reduce, "\"float32\"", TT_FLOATS,
           "dtype gradients are rounded to before ranks sum them; micro-batches are summed in "
           "float32"),
    BOOL(training, enable_cpu_offload, "false",
         "on a device (a GPU): optimizer states lie in pinned host memory and pass through the "
         "device's once per step, one stack of parameters after the other; same results"),
    INT(training, seed, "0", 0, ANY,
        "determines initial values, the order of data and random ops; null: each run draws one, "
        "which a line and run.json name and a resume keeps",
        .flags = TT_OPT_NULLABLE),
    {ROW(training, trainable, TT_OPT_STRINGS, "null"),
                              .doc = "parameters that are trained: regular expressions on names, or \"tag:…\", as in "
            "optimizer.param_groups; all others are frozen; null = all are trained, or the "
            "adapters alone if a converter adds some", .flags = TT_OPT_NULLABLE},
};

static const tt_option training_budgets[] = {
    KEY(num_tokens_per_microbatch_per_dp_rank, INT, "null",
        "torchtitan's spelling of local_batch_size times seq_len", .flags = TT_OPT_NULLABLE,
        .min = -1, .max = 1e15),
    KEY(num_tokens_per_train_step, INT, "null",
        "torchtitan's spelling of global_batch_size times seq_len", .flags = TT_OPT_NULLABLE,
        .min = -1, .max = 1e15),
};

#include "config/parallelism_options.h"

static const tt_option activation_checkpoint_options[] = {
    CHOICE(
        activation_checkpoint, mode, "\"none\"", TT_CHOICES(TT_CHECKPOINT_MODES),
        "which activations the backward recomputes: full: all but the layers' inputs; selective: "
        "what is cheap to compute; budget: as little as memory_gib or memory_budget allows; same "
        "results in all modes"),
    STRING(activation_checkpoint, selective_ac_option, "\"op\"",
           "of mode selective: op keeps the results of some ops in every layer; a number n: every "
           "n-th layer recomputes all, the others nothing"),
    {ROW(activation_checkpoint, save_ops, TT_OPT_STRINGS, "[]"),
       .doc = "of mode selective: the ops whose results are kept, like [\"linear\", \"attention\"] "
            "(docs/ops.md); empty: those that are dear to compute, and sums over ranks "
            "(redistribute)"},
    FLOAT(
        activation_checkpoint, memory_gib, "0", 0, 1e9,
        "of mode budget: the GiB per rank that training may take by its plan, with parameters and "
        "optimizer (ttrun plan prints it); 0 = memory_budget decides"),
    FLOAT(activation_checkpoint, memory_budget, "0.5", 0, 1,
          "of mode budget, without memory_gib: 0 = the memory of mode full, 1 = that of mode none, "
          "linear between them"),
    CHOICE(activation_checkpoint, store_dtype, "\"float32\"", TT_FLOATS,
           "bfloat16 halves the memory of stored activations: the forward is unchanged, the "
           "backward reads rounded copies (except attention's inputs)"),
    CHOICE(activation_checkpoint, offload, "\"none\"", TT_CHOICES(TT_OFFLOADS),
           "on a device (a GPU): stored activations wait for the backward in pinned host memory, "
           "those of the first layers first; auto: those whose copies hide behind computation, "
           "in mode budget chosen together with what is recomputed; "
           "all: of every layer but the last of a stage; same results"),
    FLOAT(activation_checkpoint, offload_budget_gb, "0", 0, 1e9,
          "most GiB of host memory that the offloaded activations of a micro-batch take per stage; "
          "0 = no limit"),
    INT(activation_checkpoint, offload_prefetch_n_layers, "1", 1, 1e6,
        "offloaded activations are copied back so many layers before the backward reads them"),
    STRING(activation_checkpoint, offload_hardware, "null",
           "the machine by whose speeds offload auto and mode budget choose on a device: a name "
           "that ttrun plan --hardware knows; null: "
           "that of --hardware, and in a run h100",
           .flags = TT_OPT_NULLABLE),
};

#define CONVERTER(field, type_, default_, ...)                                                     \
    {                                                                                              \
        ROW(converter, field, TT_OPT_##type_, default_), .doc = __VA_ARGS__                        \
    }
static const tt_option converters_options[] = {
    CONVERTER(filter, STRINGS, "[]",
              "layers that are not converted, by their parameter's full name "
              "(model.layers.0.mlp.up_proj.weight): a word that the name contains, a regular "
              "expression, or tag:NAME"),
    CONVERTER(from_step, INT, "0", "completed steps from which on it applies", .min = 0,
              .max = 1e12),
    CONVERTER(to_step, INT, "null",
              "completed steps from which on it no longer applies; null = always applies", .min = 0,
              .max = 1e12, .flags = TT_OPT_NULLABLE),
    CONVERTER(roles, STRINGS, "[\"forward\", \"grad_input\", \"grad_weight\"]",
              "which of a layer's products it applies to"),
};

static const tt_option converters_names[] = {
    KEY(name, STRING, NULL, "converter plugin"),
};

static const tt_option checkpoint_options[] = {
    BOOL(checkpoint, enable, "true", "save, and resume from what was saved",
         .aliases = "enable_checkpoint"),
    STRING(checkpoint, folder, "\"checkpoint\"",
           "folder of the checkpoints, below dump_folder unless absolute"),
    INT(checkpoint, interval, "500", -1, 1e12,
        "steps, seconds or epochs from one save to the next; the last step is always saved; -1 = "
        "only the last step; null = nothing is saved, as with load_only",
        .flags = TT_OPT_NULLABLE),
    CHOICE(
        checkpoint, interval_type, "\"steps\"", TT_CHOICES(TT_INTERVALS),
        "what interval counts; seconds are those of rank 0's clock, and all ranks save after the "
        "same step; epochs: after the step that takes an epoch's last sample"),
    BOOL(checkpoint, enable_first_step_checkpoint, "false", "save after step 1, too"),
    CHOICE(checkpoint, async_mode, "\"async\"", TT_CHOICES(TT_ASYNC_MODES),
           "write in the background while training continues, by a thread of each rank; "
           "async_with_pinned_mem is the same as async"),
    INT(checkpoint, keep_latest_k, "10", 0, 1e6,
        "checkpoints kept; 0 = all. An older one goes when the next is complete; 1 leaves none to "
        "go back to if a file of it is damaged later"),
    INT(checkpoint, keep_every, "0", 0, 1e12,
        "steps that are multiples of this are never removed, and keep_latest_k does not count "
        "them; 0 = none"),
    INT(checkpoint, snapshot_interval, "0", 0, 1e12,
        "steps from one snapshot to the next: a checkpoint between those of interval, of which "
        "only the newest is kept and which keep_latest_k does not count; 0 = none"),
    FLOAT(checkpoint, keep_gb, "0", 0, 1e9,
          "limit on all checkpoints together in GB: after a save the oldest are removed until they "
          "fit, but none of keep_every, not the newest snapshot and not the step just saved, for "
          "which the disk needs room beside; 0 = none"),
    CHOICE(
        checkpoint, on_error, "\"stop\"", TT_CHOICES(TT_ON_ERRORS),
        "when a save fails: stop the run, or continue and try again at the next save; if the last "
        "one fails, the run does"),
    STRING(
        checkpoint, after_save, "null",
        "shell command that rank 0 runs after each save: $1 is the folder of the step, $2 and so "
        "on its files. The next save waits for it; if it fails, a line says so",
        .flags = TT_OPT_NULLABLE),
    INT(checkpoint, save_timeout_seconds, "3000", 0, 1e9,
        "how long the next save, and the end of the run, wait for a save that does not get on; "
        "then the run ends, or goes on without it (on_error). after_save is ended after as long; "
        "0 = no limit"),
    BOOL(
        checkpoint, save_frozen, "true",
        "save frozen parameters, too; false: the last step and those of hf_interval have them, and "
        "where other steps are resumed they come from initial_load_path"),
    BOOL(checkpoint, accept_changed_frozen, "false",
         "resume also if the weights at initial_load_path are no longer those that the run began "
         "with, and frozen parameters (save_frozen) or a loss's reference are taken from there"),
    BOOL(checkpoint, load_only, "false", "resume from checkpoints, but save none"),
    STRING(checkpoint, initial_load_path, "null",
           "weights to start from if no checkpoint is resumed: a step folder, a run's folder (its "
           "newest step), or a Hugging Face folder; null = random ones",
           .flags = TT_OPT_NULLABLE | TT_OPT_PATH | TT_OPT_HUB),
    STRING(
        checkpoint, initial_load_command, "null",
        "shell command that fetches the weights to start from, if no checkpoint is resumed: the "
        "last line that it prints takes the place of initial_load_path. Rank 0 runs it; all ranks "
        "read the folder",
        .flags = TT_OPT_NULLABLE),
    BOOL(checkpoint, initial_load_model_only, "true",
         "of initial_load_path load weights alone; false: the whole state of another run's "
         "checkpoint, so that training goes on where that run was"),
    BOOL(
        checkpoint, initial_load_strict, "true",
        "the weights of initial_load_path must be the model's, in its shapes; false: tensors that "
        "are absent there, or have another shape, keep their initial values, and the log names "
        "them all; of another vocabulary, embedding and head keep the rows of the tokens that both "
        "have. ckpt import and exports refuse tensors of the folder or checkpoint that the model "
        "has "
        "not; false: they leave them out"),
    {ROW(checkpoint, initial_load_rename,  TT_OPT_STRINGS, "[]"),
       .doc = "rules \"PATTERN=NAME\" for the names of the tensors of initial_load_path: what the "
            "regular "
            "expression matches becomes NAME, in which $1 is its first group. The first rule that "
            "matches "
            "a name is applied. Example: \"^module\\.=\" takes away a prefix"},
    {ROW(checkpoint, exclude_from_loading, TT_OPT_STRINGS, "[]"),
       .doc = "what of a checkpoint's state begins anew: optimizer, lr_scheduler, dataloader, "
            "train_state (the numbers of steps and tokens). Where a run resumes, only once: what "
            "it saves from then on is loaded whole"                          },
    BOOL(checkpoint, create_seed_checkpoint, "false",
         "save the weights as they are before the first step as step-0, and end"),
    BOOL(checkpoint, initial_load_in_hf, "false",
         "start from a Hugging Face folder; without initial_load_path that is "
         "model.hf_assets_path. A "
         "folder that looks like one is read as one without this key, too"),
    INT(checkpoint, load_step, "-1", -1, 1e12,
        "step to go back to: later ones are set aside, and a restart continues from where the job "
        "got since then; -1 = resume from the newest"),
    BOOL(checkpoint, last_save_model_only, "false", "the last save contains only weights"),
    BOOL(checkpoint, last_save_in_hf, "false",
         "after the last save write the weights as a Hugging Face folder too, hf/step-N"),
    INT(checkpoint, peer_copy_interval, "0", 0, 1e12,
        "steps between copies of the states that a supervisor (--max-restarts) keeps in memory, "
        "two per rank, with --nnodes on two nodes, and restarts go on from; 0 = none"),
    INT(checkpoint, hf_interval, "0", 0, 1e12,
        "steps from one Hugging Face folder, hf/step-N, to the next, and one after the last step; "
        "these steps are saved as checkpoints first, and training goes on meanwhile; 0 = none"),
    INT(checkpoint, hf_keep, "0", 0, 1e6, "newest Hugging Face folders kept; 0 = all"),
    CHOICE(checkpoint, export_dtype, "\"auto\"", TT_CHOICES(TT_EXPORT_DTYPES),
           "dtype of an exported Hugging Face folder, and of the weights that last_save_model_only "
           "saves; auto: of a Hugging Face folder that of the folder that the model came from, "
           "else float32; of weights their own"),
};

static const tt_option validation_options[] = {
    BOOL(validation, enable, "false", "measure the loss on other data from time to time"),
    INT(validation, freq, "100", 1, 1e12, "training steps from one validation to the next"),
    INT(validation, steps, "-1", -1, 1e12,
        "batches per validation and data set, of local_batch_size samples per data-parallel rank; "
        "-1 = every sample once"),
    BOOL(validation, at_start, "false", "validate before the first step too"),
    INT(validation, local_batch_size, "null", 1, 1e6,
        "samples per data rank and forward of the validation; null = as in training",
        .flags = TT_OPT_NULLABLE),
    INT(validation, seq_len, "null", 1, 1e9,
        "tokens per sample of the validation; null = training.seq_len", .flags = TT_OPT_NULLABLE),
    INT(validation, early_stopping_patience, "0", 0, 1e9,
        "the run ends, with a save and status 0, when so many validations in a row have no lower "
        "loss than the best one before; 0 = it does not"),
    FLOAT(validation, early_stopping_threshold, "0", 0, ANY,
          "a validation loss is lower if it is below the best one by more than this"),
};

static const tt_option validation_names[] = {
    KEY(datasets, JSON, "{}",
        "instead of validation.dataloader, several data sets by name, each with the keys of a "
        "dataloader: {\"wiki\": {\"path\": …}, \"code\": {\"path\": …}}; the loss of each is "
        "logged under its name, and that of all their tokens as the validation's loss"),
};

#include "config/output_options.h"

static const tt_option backend_options[] = {
    STRING(backend, name, "\"auto\"",
           "backend plugin; auto = the best one that loads and whose chip this machine has"),
    INT(backend, threads, "0", 0, 4096,
        "threads per rank; 0 = cores of the machine divided by its ranks"),
    {ROW(backend, kernels, TT_OPT_STRINGS, "[]"),
       .doc = "plugins of kind kernels whose kernels go before the backend's own, first to last"},
};

static const tt_option hooks_options[] = {
    KEY(name, STRING, NULL, "hook plugin"),
};

static const tt_option debug_options[] = {
    BOOL(debug, detect_nan, "false",
         "check every op's result, unfused; names the first op, step and rank with a NaN or Inf, "
         "unless the loss scale of float16 handles it",
         .aliases = "detect_anomaly"),
    STRING(debug, dump_graph, "null", "folder for the graph, printed after every pass",
           .flags = TT_OPT_NULLABLE | TT_OPT_PATH),
    STRING(debug, dump_program, "null",
           "folder for every rank's program: its instructions in order, with addresses",
           .flags = TT_OPT_NULLABLE | TT_OPT_PATH),
    STRING(debug, save_config_file, "null",
           "file for the resolved job, every default included, below dump_folder unless absolute; "
           "it is a job file, whose relative paths start in its own folder",
           .flags = TT_OPT_NULLABLE),
    BOOL(debug, poison, "false",
         "fill freed memory with NaN and check the bytes around each value"),
    BOOL(debug, disable_fusion, "false", "run pointwise ops one by one"),
    CHOICE(debug, capture, "\"auto\"", TT_CHOICES(TT_CAPTURES),
           "auto: a device runs what repeats in each step as graphs (CUDA graphs), with the same "
           "results; off: it gets every op anew"),
    BOOL(debug, moe_force_load_balance, "false",
         "choice j of token t is expert (t*k + j) mod E, whatever the router says: for measuring "
         "speed with equally busy experts"),
    INT(debug, health_check_freq, "0", 0, 1e12,
        "steps between checks of weights and gradients: counts NaN, Inf, zeros and elements beyond "
        "65504 (the largest float16), and names the worst parameter; 0 = none"),
    CHOICE(debug, health_check_policy, "\"warn\"", TT_CHOICES(TT_HEALTHS),
           "when a check finds NaN, Inf or elements beyond 65504: warn, or stop the run"),
    INT(debug, replay_interval, "0", 0, 1e12,
        "compute gradients and update of every so many steps a second time and compare the bits, "
        "which finds faults of processors and memory that nothing reports; a third time decides; 0 "
        "= never"),
    CHOICE(
        debug, check_products, "\"off\"", TT_CHOICES(TT_CHECKS),
        "check matrix products by checksums of rows and columns in every step; again: where they "
        "do not agree, compute the step's gradients again, and stop if that does not help; stop: "
        "stop at once"),
    CHOICE(
        debug, replay_on, "\"same\"", TT_CHOICES(TT_REPLAYS),
        "which rank computes a rank's micro-batches of such a step the second time: the same one, "
        "or the next one of its replicas, else of its FSDP shards, which finds processors that "
        "are wrong in the same way each time"),
    BOOL(debug, sync, "false",
         "wait for the device after each op, so that a failure names op, step and rank (as "
         "CUDA_LAUNCH_BLOCKING=1)"),
};

static const tt_option log_options[] = {
    KEY(ranks, STRING, "\"0\"", "ranks whose log lines are shown: \"0\", \"0,3\" or \"all\"",
        .offset = offsetof(tt_core_config, log_ranks)),
    KEY(files, BOOL, "false",
        "each rank also writes its lines to DUMP_FOLDER/logs/rank-N.log, which keeps those of "
        "earlier "
        "starts",
        .offset = offsetof(tt_core_config, log_files)),
};

#define DOC(key, table, doc)                                                                       \
    {                                                                                              \
        key, NULL, doc, table, TT_COUNT(table), sizeof(tt_option), NULL                            \
    }

static const tt_section_doc docs[] = {
    DOC("", top_options, "the run as a whole"),
    DOC("model", model_options, "the model and its size; sizes one by one in model.args"),
    DOC("model", model_names, ""),
    DOC("tokenizer", tokenizer_options, "text to tokens"),
    DOC("dataloader", dataloader_options, "the source of samples"),
    DOC("dataloader", dataloader_names, ""),
    DOC("loss", loss_options, "the value that training minimises"),
    DOC("optimizer", optimizer_options, "how parameters change"),
    DOC("optimizer", optimizer_names, ""),
    DOC("lr_scheduler", lr_scheduler_options, "the learning rate over the steps"),
    DOC("lr_scheduler", lr_scheduler_names, ""),
    DOC("training", training_options, "batch, length and precision of the training"),
    DOC("training", training_budgets, ""),
    DOC("parallelism", parallelism_options, "how the work is spread over ranks"),
    DOC("activation_checkpoint", activation_checkpoint_options,
        "less memory for more time: recomputation"),
    DOC("converters[]", converters_options, "rewrites of the model's layers, in order"),
    DOC("converters[]", converters_names, ""),
    DOC("checkpoint", checkpoint_options, "saving, resuming, starting from weights"),
    DOC("validation", validation_options, "loss on other data (torchtitan today: validator)"),
    DOC("validation", validation_names, ""),
    {"validation.dataloader", NULL,
                                          "the data of the validation, which validation.enable needs: it has the keys of the section "
     "dataloader, and without a name that section's loader", NULL, 0, sizeof(tt_option), "dataloader"},
    DOC("metrics", metrics_options, "what is logged, and how often"),
    DOC("metrics.sinks[]", sinks_names,
        "where the numbers go, besides the console; without this list to the spec's plugins: jsonl "
        "and "
        "tensorboard"),
    DOC("profiling", profiling_options, "traces (torchtitan today: profiler)"),
    DOC("comm", comm_options, "communication between ranks"),
    DOC("backend", backend_options, "the kernels that compute"),
    DOC("hooks[]", hooks_options, "plugins called around every step"),
    DOC("debug", debug_options, "finding faults"),
    DOC("log", log_options, "log lines"),
};

const tt_section_doc *tt_core_config_docs(size_t *n)
{
    *n = TT_COUNT(docs);
    return docs;
}

const tt_section_doc *tt_console_doc(void)
{
    static const tt_section_doc doc = {"metrics.sinks[]",
                                       "console",
                                       "the line of a step in the log",
                                       console_options,
                                       TT_COUNT(console_options),
                                       sizeof(tt_option),
                                       NULL};
    return &doc;
}
