/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_FROM_CHECKPOINT_H
#define TT_CLI_FROM_CHECKPOINT_H
#include "cli/cli.h"
#include "interchange/hf_folder.h"

/* A model as a checkpoint or a Hugging Face folder has it, on one rank: its own job with the mesh
 * taken away. For generate and eval. */

typedef struct tt_loaded_model {
    const char *path; /* the step folder, or Hugging Face's */
    bool hf;
    tt_setup setup; /* no graphs yet */
    tt_registry *registry;
    tt_rank rank;
    void *tokenizer; /* NULL: not asked for */
    tt_tokenizer_info info;
} tt_loaded_model;

/* --checkpoint: a step folder, a folder of step folders (the newest), a run's folder, or a Hugging
 * Face folder; its job with `overrides` laid over it, then the command line's. data: the job's
 * dataloader is needed. Call tt_loaded_model_close whatever it returns. */
tt_status tt_cli_open_model(const tt_cli *cli, bool data, const tt_override *overrides, size_t n,
                            tt_loaded_model *out, tt_error *err);
/* The same where the step folder is known: out is zero but for its path. */
tt_status tt_cli_open_step(const tt_cli *cli, bool data, const tt_override *overrides, size_t n,
                           tt_loaded_model *out, tt_error *err);
/* Graphs, memory and weights. o: mode and sizes. */
tt_status tt_cli_load_model(tt_loaded_model *m, const tt_setup_opts *o, tt_error *err);
void tt_loaded_model_close(tt_loaded_model *m);
/* A number among the subcommand's own options; out keeps its default where it is not given. */
tt_status tt_cli_number(const tt_cli *cli, const char *name, double min, double max, double *out,
                        tt_error *err);
/* The same, whole. */
tt_status tt_cli_integer(const tt_cli *cli, const char *name, int64_t min, int64_t max,
                         int64_t *out, tt_error *err);

#endif
