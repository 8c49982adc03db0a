/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRAIN_IMPORT_H
#define TT_TRAIN_IMPORT_H
#include "interchange/interchange.h"

/* Converts the folders of other programs to step folders. */

typedef enum tt_import_from {
    TT_IMPORT_HF,    /* Hugging Face: config.json, model*.safetensors */
    TT_IMPORT_META,  /* params.json, consolidated*.safetensors */
    TT_IMPORT_TITAN, /* torchtitan's names, in either form of TT_IMPORT_DCP */
    TT_IMPORT_DCP /* torch.distributed.checkpoint, its own form or safetensors: our names or torchtitan's */
} tt_import_from;

/* import_job.c: returns the text of a job with the model's sizes from the folder. torchtitan's
 * folders do not hold them; they come from the command line. spec: NULL = chosen by config.json's
 * model_type, or the default spec. */
tt_status tt_import_job(tt_registry *r, tt_import_from from, const char *folder, const char *spec,
                        tt_arena *a, tt_str *out, tt_error *err);
/* The spec of the model that reads FOLDER/config.json. */
tt_status tt_import_spec(tt_registry *r, tt_arena *a, const char *folder, const char **out,
                         tt_error *err);
/* import.c: writes the weights as out/step-0 with the trainer state `state`. Optimizer states of
 * TT_IMPORT_TITAN and TT_IMPORT_DCP are written too, as out/step-N of the step that the folder names. Sets
 * world, step, tokens_seen and samples_seen of the state. Tensors of the folder that are none of the model's are an error,
 * unless checkpoint.initial_load_strict is false. counts: may be NULL. */
tt_status tt_setup_import(const tt_setup *s, tt_import_from from, const char *folder,
                          tt_trainer_state *state, const char *out, tt_tensor_counts *counts,
                          tt_error *err);

#endif
