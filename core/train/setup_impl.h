/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SETUP_IMPL_H
#define TT_SETUP_IMPL_H
#include "train/train.h"
#include <ttrun/model.h>

/* Inside of setup. */
/* Raise a part's error: a text that begins with a key of the section ("model.args.n_heads: …", or
 * "dataloader.path: …" of the section validation.dataloader) at that key, any other at the section.
 */
tt_status tt_setup_fail(const tt_job *job, const char *section, const char *text, tt_error *err);
/* mixture.c: the section's list "mixture" as a loader. fallback: where neither says a name. */
tt_status tt_setup_mixture(tt_setup *s, const char *section, const char *fallback, uint64_t seed,
                           tt_part *out, tt_order *order, tt_error *err);
tt_status tt_setup_backend(tt_setup *s, tt_backend_section *out, tt_error *err);
/* setup_kernels.c: the components that backend.kernels names. After tt_setup_backend. */
tt_status tt_setup_kernels(tt_setup *s, const tt_strings *named, tt_error *err);
/* The kernel that runs an op, NULL = none: decided at the first question. While graphs are
 * compiled only; then tt_find_kernel. */
const tt_kernel *tt_setup_kernel(tt_setup *s, const char *op);
/* Decides for every op of a compiled graph, and reports what went wrong with any. */
tt_status tt_setup_kernels_settle(tt_setup *s, const tt_graph *g, tt_error *err);
tt_status tt_setup_mesh(tt_setup *s, const tt_setup_opts *o, tt_error *err);
void tt_setup_token_order(tt_setup *s); /* of a compiled setup */
/* setup_pipeline.c: the schedule of a step's micro-batches, and with it the number of stages. */
tt_status tt_setup_pipeline(tt_setup *s, tt_error *err);

/* hf_config.c: the arguments that hf_assets_path/config.json says, and its path. */
tt_status tt_setup_hf_args(const tt_setup *s, const tt_component *c, const char **path,
                           const char **args, tt_error *err);
tt_status tt_setup_check_hf(const tt_setup *s, tt_error *err);

const tt_model_meta *tt_setup_model_meta(const tt_component *c); /* NULL: it has no such names */
/* names.c: what a table of names makes of one, and its row; NULL: none matches. */
const char *tt_name_there(tt_arena *a, const tt_tensor_name *names, size_t n, size_t stride,
                          const char *name, const tt_tensor_name **row);
/* Rows of a head of a parameter; an error where it is not cut into heads of even width. */
tt_status tt_head_dim_of(const tt_setup *s, const char *param, int64_t *out, tt_error *err);

#endif
