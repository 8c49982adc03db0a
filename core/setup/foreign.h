/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FOREIGN_H
#define TT_FOREIGN_H
#include "setup/setup.h"

/* Models in folders of other programs, which a run starts from and exports to. What reads and writes them is no part of
 * the core: a program installs it (interchange/install.c). One that does not refuses jobs that need it. */

struct tt_ckpt_matching;
struct tt_ckpt_piece;
struct tt_ckpt_reader;

/* Fills pieces of parameters from a folder. [any-thread] */
typedef tt_status (*tt_foreign_load)(const tt_setup *s, const char *folder,
                                     const struct tt_ckpt_piece *pieces, size_t n,
                                     const struct tt_ckpt_matching *how, tt_error *err);

typedef struct tt_foreign {
    /* Is it a folder of another program with weights, or with low-rank adapters? */
    bool (*has_weights)(const char *folder);
    bool (*is_adapter)(const char *folder);
    /* Sets the keys of the job that follow from the folder model.hf, before its sections are parsed. */
    tt_status (*take_folder)(tt_setup *s, const tt_setup_opts *o, tt_error *err);
    /* The arguments of the model c in model.hf_assets_path, as JSON, and the path of the file that has them. */
    tt_status (*model_args)(const tt_setup *s, const tt_component *c, const char **path,
                            const char **args, tt_error *err);
    /* Opens the weights under the names that they have there. */
    tt_status (*open)(const char *folder, struct tt_ckpt_reader **out, tt_error *err);
    tt_foreign_load load, load_adapter;
    /* Keeps copies in a run's folder of what belongs to the model besides weights, so that the run needs nothing outside
     * itself. resumed: a line names each file of the tokenizer that has changed since. */
    tt_status (*keep)(const tt_setup *s, const char *run, bool resumed, tt_error *err);
    /* If the tokenizer that the job names has gone, takes the run's copy. */
    void (*use_kept_tokenizer)(const tt_setup *s, const char *run);
    /* Writes the weights of a step of this run as a folder, replacing what is there. tokenizer: it, open, or NULL. */
    tt_status (*export_step)(const tt_setup *s, const char *step_folder, const char *folder,
                             const tt_tokenizer_info *info, void *tokenizer, tt_error *err);
} tt_foreign;
void tt_foreign_install(const tt_foreign *f); /* once, before the first setup is made */
const tt_foreign *tt_foreign_installed(void); /* NULL: none; a setup has it (tt_setup.foreign) */

bool tt_setup_is_foreign(const tt_setup *s, const char *folder); /* has_weights */
bool tt_setup_is_adapter(const tt_setup *s, const char *folder);
/* The path of model.hf_assets_path; NULL: the job does not set it. */
const char *tt_setup_assets(const tt_setup *s);
/* checkpoint.initial_load_path if it is a folder of another program with weights; else NULL. */
const char *tt_setup_foreign_weights(const tt_setup *s);
/* hf_assets_path if the folder has weights that this run does not load; else NULL. */
const char *tt_setup_unused_weights(const tt_setup *s);

/* ---- for setup.c, in this order ---- */
tt_status tt_setup_check_foreign(const tt_setup *s, tt_error *err); /* does the program have it? */
void tt_setup_note_folder(const tt_setup *s);                       /* logs what model.hf means */
tt_status tt_setup_initial_load(tt_setup *s, tt_error *err);
tt_status tt_setup_check_exports(const tt_setup *s, tt_error *err);

#endif
