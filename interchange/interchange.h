/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INTERCHANGE_H
#define TT_INTERCHANGE_H
#include "interchange/formats/gguf.h"
#include "interchange/formats/hf.h"
#include "setup/setup.h"

/* interchange: converts a model from and to the folders of other programs, by the names that
 * the model's plugin gives. */

/* Tensors of an import or an export: those of what is read are taken or left, those of what is written are made. What a training
 * alone needs is not left where the other form has no place for it. */
typedef struct tt_tensor_counts {
    size_t taken, left, made;
} tt_tensor_counts;

/* Returns how the graph's parameters and exported buffers are stored in Hugging Face files. */
tt_hf_param *tt_setup_hf_params(const tt_setup *s, tt_arena *a, size_t *n);
/* Writes the weights of a step folder as a Hugging Face folder with config.json and the tokenizer's
 * files. Replaces what is in `folder`. */
typedef struct tt_hf_export {
    const tt_tokenizer_info *tokenizer; /* NULL = none */
    void *tokenizer_self;               /* it, open; NULL: not known */
    const char *step_folder, *folder;
    const char *run; /* the run folder of the step, whose copies are used (assets.h), or NULL */
    tt_export_dtype dtype; /* TT_EXPORT_AUTO: the job's checkpoint.export_dtype */
    /* Matrices of linear layers and experts in 8 or 4 bits with scales: those that the job's converter of this form
     * converts (TT_HF_FP8_ROW: float8 by rows; TT_HF_NVFP4: nvfp4); without one, and for TT_HF_FP8, all but
     * embeddings, head and routers. dtype is that of the rest */
    tt_hf_low low;
} tt_hf_export;
/* All exports: a tensor of the model that is in no file is an error, and so is one of the step folder that is not of the
 * model, unless checkpoint.initial_load_strict is false. counts: may be NULL. */
tt_status tt_setup_write_hf(const tt_setup *s, const tt_hf_export *o, tt_tensor_counts *counts,
                            tt_error *err);
/* gguf.c: writes the weights of a step folder as the GGUF file o->folder, matrices in `type`. */
tt_status tt_setup_write_gguf(const tt_setup *s, const tt_hf_export *o, tt_gguf_type type,
                              tt_tensor_counts *counts, tt_error *err);
/* export_dcp.c: writes all of a step folder in torch.distributed.checkpoint's own form, replacing what is
 * in `folder`. titan: with torchtitan's names of parameters. */
tt_status tt_setup_write_dcp(const tt_setup *s, const char *step_folder, bool titan,
                             const char *folder, tt_tensor_counts *counts, tt_error *err);
/* Fills pieces of parameters from a Hugging Face folder (tt_hf_load). */
tt_status tt_setup_load_hf(const tt_setup *s, const char *folder, const tt_ckpt_piece *pieces,
                           size_t n, const tt_ckpt_matching *how, tt_error *err);
/* adapter.c: low-rank adapters in PEFT's format. The first says whether a folder holds one; the
 * second writes those of a step folder to `folder`, replacing it; the third fills pieces of
 * parameters that are adapters, and fails if the folder's rank or scale is not the run's. */
bool tt_adapter_is_folder(const char *folder);
tt_status tt_setup_write_adapter(const tt_setup *s, const char *step_folder, tt_dtype dtype,
                                 const char *folder, tt_tensor_counts *counts, tt_error *err);
tt_status tt_setup_load_adapter(const tt_setup *s, const char *folder, const tt_ckpt_piece *pieces,
                                size_t n, const tt_ckpt_matching *how, tt_error *err);

#endif
