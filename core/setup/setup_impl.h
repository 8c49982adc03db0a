/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SETUP_IMPL_H
#define TT_SETUP_IMPL_H
#include "setup/setup.h"

/* Shared by the files of core/setup. */
/* mixture.c: makes a loader from the section's list "mixture". fallback: the loader's name if
 * neither the source nor the section has one. c: the section's keys, which hold for sources that do not set them. */
void tt_mixture_set_seed(const tt_part *mixture, uint64_t seed);
tt_status tt_setup_mixture(tt_setup *s, const char *section, const char *fallback,
                           const tt_dataloader_config *c, uint64_t seed, tt_part *out,
                           tt_order *order, tt_error *err);
/* data.c */
/* The order of a loader's samples: its own options "shuffle" and "seed", or where it has none the core's. */
tt_order tt_setup_order(const tt_part *p, const tt_dataloader_config *c, uint64_t seed);
/* The loader of a section, or its mixture. *finite: its key `infinite` is false. */
tt_status tt_setup_loader(tt_setup *s, const char *section, const char *fallback, tt_part *out,
                          tt_order *order, bool *finite, tt_error *err);
/* Whether the job says how long the run is. */
tt_status tt_setup_check_length(tt_setup *s, tt_error *err);
/* The data sets of the validation. warn: say if they are not used. */
tt_status tt_setup_validation(tt_setup *s, tt_error *err);
void tt_setup_note_validation(const tt_setup *s); /* warns if it has data, but is not enabled */
/* setup_lists.c: hooks, metrics.sinks. */
tt_status tt_setup_hooks(tt_setup *s, tt_error *err);
tt_status tt_setup_metrics(tt_setup *s, tt_error *err);
/* The entries of a list of plugins: at most TT_MAX_PARTS. */
tt_status tt_setup_count_entries(const tt_setup *s, const char *list, size_t *n, tt_error *err);
/* setup.c: the inputs of the dataloader, and others if the setup takes them. */
void tt_setup_input_opts(tt_setup *s, tt_compile_opts *o);
/* setup_convert.c: the job's converters. */
tt_status tt_setup_converters(tt_setup *s, tt_error *err);
/* Makes the builder and the pass ask those that are active at s->converters_at. */
void tt_setup_convert_opts(tt_setup *s, tt_compile_opts *o);
/* After the graph is compiled: fails if a pattern of a filter failed. say: logs what was converted, and
 * which entries of filters match nothing. */
tt_status tt_setup_check_converters(const tt_setup *s, bool say, tt_error *err);
tt_status tt_setup_backend(tt_setup *s, tt_backend_section *out, tt_error *err);
/* setup_comm.c: the communicators of tensors and of the host. */
tt_status tt_setup_comm(tt_setup *s, const tt_setup_opts *o, tt_error *err);
/* setup_target.c: the backend that "auto" means on this machine: the first in the order of preference
 * that loads, and that finds its chip if it is one for a device. core: keys of the section that are no
 * backend's own. */
tt_status tt_setup_choose_backend(const tt_setup *s, const char *const *core,
                                  const tt_component **out, tt_error *err);
/* setup_kernels.c: finds the components that backend.kernels names. Must be called after
 * tt_setup_backend. */
tt_status tt_setup_kernels(tt_setup *s, const tt_strings *named, tt_error *err);
/* Fails if the job asks for what the backend cannot do. */
tt_status tt_setup_kernels_check(tt_setup *s, tt_error *err);
void tt_setup_expert_opts(const tt_setup *s, tt_compile_opts *o);
/* The kernel that runs an op; NULL = none. Only for use while graphs are compiled: the first call
 * for an op chooses and keeps the kernel. */
const tt_kernel *tt_setup_kernel(tt_setup *s, const char *op);
/* The kernel of an op after graphs are compiled. It chooses nothing, so any thread may call it. */
const tt_kernel *tt_setup_kernel_settled(const tt_setup *s, const char *op);
/* Chooses the kernel of every op of a compiled graph. Fails if a choice failed. quiet: logs nothing. */
tt_status tt_setup_kernels_settle(tt_setup *s, const tt_graph *g, bool quiet, tt_error *err);
/* setup_target.c: makes tt_setup.target for the machine that is planned for, or for this one. It is
 * closed with the setup's arena. */
tt_status tt_setup_target(tt_setup *s, tt_error *err);
/* Whether the backend's answers depend on the chip. */
bool tt_setup_has_target(const tt_setup *s);
tt_status tt_setup_mesh(tt_setup *s, const tt_setup_opts *o, tt_error *err);
void tt_setup_ops(tt_setup *s);   /* the ops that a model may use */
void tt_setup_shape(tt_setup *s); /* shape.c */
/* The block that a name in the job means, like "layers.3" or "model.layers.3.mlp"; -1: none. */
int tt_setup_block(const tt_setup *s, const char *name);
/* Whether the name means something that comes after the last block. */
bool tt_setup_is_head(const tt_setup *s, const char *name);
/* setup_offload.c: what lies in pinned host memory on a backend with a device. On a host backend
 * everything lies in host memory anyway, and nothing is copied. */
bool tt_setup_offloads_states(const tt_setup *s);
tt_status tt_setup_offload(const tt_setup *s, const tt_recompute_opts *recompute,
                           tt_offload_opts *out, tt_error *err);
tt_cut_way
tt_setup_offload_way(const tt_setup *s); /* what the job's `offload` means in mode budget */
int64_t tt_setup_most_offloaded(const tt_setup *s); /* tt_offload_opts.most_bytes */
/* The machine by whose speeds offload "auto" and mode budget choose on a device. The choice must be the
 * same on all ranks, so nothing is measured. */
tt_status tt_setup_find_machine(const tt_setup *s, const tt_machine **out, tt_error *err);
/* Refuses a model whose plan alone would take more than half of `have`, the bytes of this machine. */
tt_status tt_setup_check_size(const tt_setup *s, double have, tt_error *err);
void tt_setup_token_order(tt_setup *s);               /* after tt_setup_compile */
tt_status tt_setup_batch(tt_setup *s, tt_error *err); /* setup_batch.c: sizes of batches */
/* setup_pipeline.c: makes the schedule of a step's micro-batches, and sets the number of stages. */
tt_status tt_setup_pipeline(tt_setup *s, tt_error *err);

tt_status tt_setup_vocab(tt_setup *s, tt_error *err); /* setup_vocab.c */

/* setup_graph.c: compiles a graph of this mode into arena a. dump: a folder for printed graphs, or NULL.
 * quiet: the graph is one of several that are tried, and nothing is logged about it. */
tt_status tt_setup_compile_graph(tt_setup *s, tt_mode mode, const tt_recompute_opts *recompute,
                                 const char *dump, bool quiet, tt_arena *a, tt_graph **out,
                                 tt_error *err);
/* Whether gathered parameters are kept for the step. */
bool tt_setup_keeps_parameters(const tt_setup *s);
/* setup_step.c: can this job update parameters in the backward, and replay on another rank, if it asks for that? */
tt_status tt_setup_check_step(tt_setup *s, tt_error *err);
/* idle.c: keys that do nothing, because another key keeps them from it. */
void tt_setup_notice_idle(const tt_setup *s);
/* notices.c: what enable_async_tensor_parallel and qk_clip leave as it is, of the compiled graph. */
void tt_setup_notice_graph(const tt_setup *s);
/* setup_recompute.c: checks the section activation_checkpoint, and chooses the levels of mode budget. */
tt_status tt_setup_recompute(tt_setup *s, tt_error *err);
/* What the recompute pass gets: as the section says, after tt_setup_recompute. */
void tt_setup_recompute_opts(tt_setup *s, tt_recompute_opts *out);

/* setup_again.c: whether the programs of all scheduled changes of converters can be made: an error
 * now, not at their step. */
tt_status tt_setup_check_changes(const tt_setup *s, tt_error *err);

#endif
