/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_FROM_CHECKPOINT_H
#define TT_CLI_FROM_CHECKPOINT_H
#include "cli/cli.h"
#include "interchange/hf_folder.h"

/* A model that is loaded from a checkpoint or a Hugging Face folder on one rank, with its own job
 * but without the mesh. For generate and eval. */

typedef struct tt_loaded_model {
    const char *path;     /* the step folder, or Hugging Face's */
    const char *run;      /* the run folder of the step; NULL: it is in none */
    const char *template; /* dataloader.template of its job; NULL: it names none */
    bool hf;
    tt_setup setup; /* no graphs yet */
    tt_registry *registry;
    tt_rank rank;
    void *tokenizer; /* NULL: not requested */
    tt_tokenizer_info info;
} tt_loaded_model;

/* Opens the command's word or --checkpoint: a step folder, a folder of step folders (the newest step), a run folder, or a
 * Hugging Face folder. `overrides` are applied to its job, then those of the command line. data:
 * the job's dataloader is needed. tt_loaded_model_close() must be called whatever this returns. */
tt_status tt_cli_open_model(const tt_cli *cli, bool data, const tt_override *overrides, size_t n,
                            tt_loaded_model *out, tt_error *err);
/* The first half of it: finds the folder. tt_cli_open_step() is the other one. */
tt_status tt_cli_find_model(const tt_cli *cli, tt_loaded_model *out, tt_error *err);
/* dataloader.name of the job of a model that is found; NULL: it names none. */
tt_status tt_cli_loader_of(const tt_cli *cli, const tt_loaded_model *m, const char **out,
                           tt_error *err);
/* The same for a known step folder: out is zero except its path. */
tt_status tt_cli_open_step(const tt_cli *cli, bool data, const tt_override *overrides, size_t n,
                           tt_loaded_model *out, tt_error *err);
/* Compiles the graphs, allocates memory and loads the weights. o: mode and sizes. */
tt_status tt_cli_load_model(tt_loaded_model *m, const tt_setup_opts *o, tt_error *err);

typedef struct tt_cli_decode { /* the sizes of a program that writes texts for others */
    int64_t context; /* tokens of a text, at most; 0: those that the model's config.json says … */
    int64_t otherwise; /* … or these, if it says none */
    int64_t at_once;   /* texts that are computed at once */
    bool fixed;        /* at_once is what the user wants; else fewer may be computed at once */
    bool scored;       /* logits of whole prompts are wanted */
    tt_cache cache;
} tt_cli_decode;
/* The same with mode DECODE. If the caches do not fit into memory, fewer texts are computed at once, then a context that
 * nobody asked for is shortened, and a line says so. d gets the sizes that were taken. */
tt_status tt_cli_load_decode(tt_loaded_model *m, tt_cli_decode *d, tt_error *err);
int64_t tt_cli_model_vocab(const tt_loaded_model *m); /* rows of the model's head */
/* The model's own list of ids that end a text; empty: it has none, and the tokenizer's eos does. */
tt_status tt_cli_stops(const tt_loaded_model *m, tt_arena *a, tt_hf_stops *out, tt_error *err);
void tt_loaded_model_close(tt_loaded_model *m);
/* Reads a number from the subcommand's own options; out keeps its default if it is not given. */
tt_status tt_cli_number(const tt_cli *cli, const char *name, double min, double max, double *out,
                        tt_error *err);
/* The same for an integer. */
tt_status tt_cli_integer(const tt_cli *cli, const char *name, int64_t min, int64_t max,
                         int64_t *out, tt_error *err);
/* --cache auto|latent|heads */
tt_status tt_cli_cache(const tt_cli *cli, tt_cache *out, tt_error *err);
/* The model of a command whose word may name it, too. */
#define TT_CLI_MODEL                                                                               \
    TT_CLI_VALUE("checkpoint", "DIR", NULL,                                                        \
                 "the model, if no word names it: a run folder, a step-N folder or a Hugging "     \
                 "Face folder",                                                                    \
                 .takes = TT_TAKES_FOLDER)
#define TT_CLI_CACHE                                                                               \
    TT_CLI_VALUE("cache", "auto|latent|heads", "auto",                                             \
                 "of earlier tokens: keys and values of heads, or latent vectors; "                \
                 "auto: the smaller")

#endif
