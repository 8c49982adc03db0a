/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SETUP_IMPL_H
#define TT_SETUP_IMPL_H
#include "setup/setup.h"

/* Inside of setup. */
/* mixture.c: the section's list "mixture" as a loader. fallback: where neither says a name. */
tt_status tt_setup_mixture(tt_setup *s, const char *section, const char *fallback, uint64_t seed,
                           tt_part *out, tt_order *order, tt_error *err);
/* setup_lists.c: hooks, converters, metrics.sinks. */
tt_status tt_setup_hooks(tt_setup *s, tt_error *err);
tt_status tt_setup_converters(tt_setup *s, tt_error *err);
tt_status tt_setup_metrics(tt_setup *s, tt_error *err);
/* The first converter that has a replacement of x·wᵀ and does not leave out w's full name. */
tt_value *tt_setup_convert_linear(void *setup, tt_builder *b, const char *param, tt_value *x,
                                  tt_value *w);
void tt_setup_check_filters(const tt_setup *s); /* warns of words that leave nothing out */
tt_status tt_setup_backend(tt_setup *s, tt_backend_section *out, tt_error *err);
/* setup_kernels.c: the components that backend.kernels names. After tt_setup_backend. */
tt_status tt_setup_kernels(tt_setup *s, const tt_strings *named, tt_error *err);
/* The kernel that runs an op, NULL = none: decided at the first question. While graphs are
 * compiled only; then tt_find_kernel. */
const tt_kernel *tt_setup_kernel(tt_setup *s, const char *op);
/* Decides for every op of a compiled graph, and reports what went wrong with any. */
tt_status tt_setup_kernels_settle(tt_setup *s, const tt_graph *g, tt_error *err);
tt_status tt_setup_mesh(tt_setup *s, const tt_setup_opts *o, tt_error *err);
void tt_setup_ops(tt_setup *s);   /* what a model may be described in */
void tt_setup_shape(tt_setup *s); /* shape.c */
/* The block that a name of the job means, as "layers.3", "model.layers.3.mlp"; -1: none. */
int tt_setup_block(const tt_setup *s, const char *name);
/* Does the name mean something that comes after the last block? */
bool tt_setup_is_head(const tt_setup *s, const char *name);
/* Refuses a model whose plan alone would take more than half of `have`, the bytes of this machine. */
tt_status tt_setup_check_size(const tt_setup *s, double have, tt_error *err);
void tt_setup_token_order(tt_setup *s); /* of a compiled setup */
/* setup_pipeline.c: the schedule of a step's micro-batches, and with it the number of stages. */
tt_status tt_setup_pipeline(tt_setup *s, tt_error *err);

/* hf_config.c: the arguments that hf_assets_path/config.json says, and its path. */
tt_status tt_setup_hf_args(const tt_setup *s, const tt_component *c, const char **path,
                           const char **args, tt_error *err);
tt_status tt_setup_check_hf(const tt_setup *s, tt_error *err);
/* hf_defaults.c: what model.hf_assets_path says where the job does not. */
tt_status tt_setup_tokenizer_part(tt_setup *s, tt_error *err);
void tt_setup_note_tokenizer(const tt_setup *s); /* warns of another tokenizer than the folder's */
tt_status tt_setup_initial_load(tt_setup *s, tt_error *err);

#endif
