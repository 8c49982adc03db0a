/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRAIN_IMPORT_H
#define TT_TRAIN_IMPORT_H
#include "interchange/interchange.h"

/* Folders of other programs as step folders of ours. */

typedef enum tt_import_from {
    TT_IMPORT_HF,   /* Hugging Face: config.json, model*.safetensors */
    TT_IMPORT_META, /* params.json, consolidated*.safetensors */
    TT_IMPORT_TITAN /* torchtitan: safetensors under Meta's names, of PyTorch's writer */
} tt_import_from;

/* import_job.c: the text of a job with the model's sizes as the folder says them (torchtitan's says
 * none: they come from the command line). spec: NULL = by config.json's model_type, or a job's default. */
tt_status tt_import_job(tt_registry *r, tt_import_from from, const char *folder, const char *spec,
                        tt_arena *a, tt_str *out, tt_error *err);
/* import.c: the weights as out/step-0, with `state`, whose world it sets. */
tt_status tt_setup_import(const tt_setup *s, tt_import_from from, const char *folder,
                          tt_trainer_state *state, const char *out, tt_error *err);

#endif
