/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_FROM_CHECKPOINT_H
#define TT_CLI_FROM_CHECKPOINT_H
#include "cli/cli.h"

/* A model as a checkpoint has it, on one rank: its own job with the mesh taken away. For generate
 * and eval. */

typedef struct tt_loaded_model {
    tt_setup setup;
    tt_registry *registry;
    tt_rank rank;
    void *tokenizer; /* NULL: not asked for */
    tt_tokenizer_info info;
} tt_loaded_model;

/* --checkpoint: a step folder, a folder of step folders (the newest), or a run's folder. */
tt_status tt_cli_find_step(const tt_cli *cli, const char **out, tt_error *err);
/* The job of the checkpoint, laid over by `overrides` and then by the command line's; compiled for
 * `mode`. Call tt_loaded_model_close whatever it returns. */
tt_status tt_cli_load_job(const tt_cli *cli, const char *step, tt_mode mode,
                          const tt_override *overrides, size_t n, tt_loaded_model *out,
                          tt_error *err);
/* Memory and weights. */
tt_status tt_cli_load_weights(const char *step, tt_loaded_model *m, tt_error *err);
void tt_loaded_model_close(tt_loaded_model *m);
/* A number among the subcommand's own options; out keeps its default where it is not given. */
tt_status tt_cli_number(const tt_cli *cli, const char *name, double min, double max, double *out,
                        tt_error *err);

#endif
