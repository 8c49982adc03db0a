/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_ASSETS_H
#define TT_ASSETS_H
#include "setup/setup.h"

/* Files that belong to a model besides its weights. A run folder keeps copies of them, so it needs
 * nothing outside itself: RUN/tokenizer has the tokenizer's files, RUN/model the config.json and
 * generation_config.json of the Hugging Face folder that training started from. */

/* The copy of a run's tokenizer in its folder; NULL: there is none. path: as the job names it. */
const char *tt_assets_tokenizer_of_run(tt_arena *a, const char *run, const char *path);
/* Copies the files of a tokenizer into a folder: all that the plugin and Hugging Face's AutoTokenizer read, of the folder
 * that path is or lies in. exported: a file of another name becomes tokenizer.json or tokenizer.model, which is what
 * programs look for. */
tt_status tt_assets_copy_tokenizer(tt_arena *a, const char *path, const char *folder, bool exported,
                                   tt_error *err);
/* Copies the Python files of the folder `from` where the config.json in the folder `config` names classes of such files
 * (auto_map). */
tt_status tt_assets_copy_code(tt_arena *a, const char *config, const char *from, const char *to,
                              tt_error *err);
/* The folder with config.json that the model's sizes came from: RUN/model, or hf_assets_path if
 * run is NULL or has no copy. NULL: flavor is not "hf", or there is none. */
const char *tt_assets_model(const tt_setup *s, tt_arena *a, const char *run);
/* Copies tokenizer and configs into the run folder. Files that are there and equal stay. resumed: a line
 * names each file of the tokenizer that has changed since. */
tt_status tt_assets_keep(const tt_setup *s, const char *run, bool resumed, tt_error *err);
/* Whether the run learns conversations. *named: what dataloader.template names; NULL: the tokenizer's own. */
bool tt_assets_talks(const tt_setup *s, const char **named);
/* The path of the chat template that a job names, for tt_chat_template_open: the run's copy, a folder; "chatml"; or what is
 * named, if it is there. NULL: none. */
const char *tt_assets_template(tt_arena *a, const char *run, const char *named);
/* Before the tokenizer is opened for a run that may go on: if the file that the job names has gone, the
 * run's copy is opened instead, and a line says so. */
void tt_assets_use_kept_tokenizer(const tt_setup *s, const char *run);
/* The run folder of a step folder, by the keys dump_folder and checkpoint.folder of its job. NULL:
 * it is in none. */
const char *tt_assets_run_of_step(tt_arena *a, const char *step, const tt_json *job);

#endif
