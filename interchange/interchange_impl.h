/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INTERCHANGE_IMPL_H
#define TT_INTERCHANGE_IMPL_H
#include "chat/chat.h"
#include "interchange/interchange.h"

/* Shared by the files of interchange/. */

/* exported.c: fails if a tensor of the model was not read for the export, or only a part of it, or if the step folder has
 * tensors of another model. without: names of parameters that the export leaves out, each → anything; NULL: none. Sets
 * taken and left of counts. */
tt_status tt_export_check(const tt_setup *s, const tt_ckpt_reader *r, const char *step_folder,
                          const tt_map *without, tt_tensor_counts *counts, tt_error *err);

/* export_chat.c: the chat template that an export has. */
typedef struct tt_export_chat {
    tt_chat_source plain, tools; /* without a text: there is none */
    bool talks;                  /* the run learns conversations */
    bool own; /* the template is the run's own, not that of the tokenizer's folder */
    const tt_tokenizer_vt *vt;
    int32_t ends[2]; /* the special tokens behind an assistant's turns */
    size_t n_ends;
} tt_export_chat;
tt_status tt_export_chat_of(const tt_setup *s, const tt_hf_export *o, tt_arena *a,
                            tt_export_chat *out, tt_error *err);
/* The tokenizer's file or folder, the run's copy first, which is what the run was trained with; NULL: none. */
const char *tt_export_tokenizer(const tt_setup *s, const tt_hf_export *o, tt_arena *a);

/* hf_configs.c: writes config.json and generation_config.json. params: what was written; model: the folder of the
 * configs that the model came with, or NULL. */
tt_status tt_hf_write_configs(const tt_setup *su, const tt_hf_export *o, const tt_export_chat *c,
                              const tt_hf_param *params, size_t n_params, const char *model,
                              tt_dtype dtype, tt_arena *a, tt_error *err);
/* A member of the object that out begins with; the value of the first one follows. id below 0: null. */
void tt_hf_put_key(tt_str *out, const char *key);
void tt_hf_put_member(tt_str *out, const char *key, const tt_json *v);
void tt_hf_put_id(tt_str *out, const char *key, int32_t id);
/* Whether v is the id, or a list that has it. */
bool tt_hf_names_id(const tt_json *v, int32_t id);
/* hf_generation.c: generation_config.json. config: the source's config.json, or NULL. */
tt_status tt_hf_write_generation(const tt_hf_export *o, const tt_export_chat *c,
                                 const tt_json *config, const char *model, tt_arena *a,
                                 tt_error *err);
/* hf_tokenizer.c: the tokenizer's files. */
tt_status tt_hf_write_tokenizer(const tt_setup *s, const tt_hf_export *o, const tt_export_chat *c,
                                tt_arena *a, tt_error *err);
/* The max_position_embeddings of the config.json that an export has, or what the family calls so. */
tt_status tt_hf_written_positions(const tt_setup *su, const char *run, tt_arena *a, int64_t *out,
                                  tt_error *err);
/* hf_low.c: says for each of the parameters whether its matrices are written as `low`, and logs those that the
 * files cannot hold so. Fails if there are none. The other writes the quantization_config of such files. */
tt_status tt_hf_choose_low(const tt_setup *s, tt_hf_low low, tt_arena *a, tt_hf_param *params,
                           size_t n, tt_error *err);
tt_status tt_hf_put_quantization(tt_str *out, tt_hf_low low, const tt_hf_param *params,
                                 size_t n_params, tt_arena *a, tt_error *err);
/* The dtype that the config.json in `model` names; f32 if model is NULL or it names none. */
tt_status tt_hf_source_dtype(tt_arena *a, const char *model, tt_dtype *out, tt_error *err);
/* names.c: the names of another program. */
typedef struct tt_name_table {
    const void *names; /* rows that begin with a tt_tensor_name */
    size_t n, stride;
    const char *late; /* tt_model_titan.late, or NULL */
    int64_t n_blocks; /* of the model itself; later ones are named by `late` */
} tt_name_table;
/* Returns the other program's name of a tensor by the first row from *at on that matches, copies `size` bytes of the row
 * (what it has not is 0), and sets *at to the one after it; NULL: no row matches. */
const char *tt_name_next(tt_arena *a, const tt_name_table *t, const char *name, size_t *at,
                         void *row, size_t size);
/* The same for rows of tt_titan_name. zeros: looks at rows for zeros only, else at the others. */
const char *tt_name_there(tt_arena *a, const tt_name_table *t, const char *name, bool zeros,
                          size_t *at, tt_titan_name *row);
/* Fills the table of torchtitan's names; *out has no rows if the model's plugin gives none. Fails if torchtitan
 * stores a model of this config in another form. */
tt_status tt_titan_names(const tt_setup *s, tt_name_table *out, tt_error *err);
void tt_meta_names(const tt_setup *s, tt_name_table *out);

/* adapter.c: the layer of a weight in the base's files ("model.layers.0.mlp.up_proj"); NULL: no tensor there is this
 * weight alone. */
const char *tt_adapter_layer(tt_arena *a, const tt_param_info *w);
/* adapter_config.c: refuses an adapter that is not what the run's adapters compute. */
tt_status tt_adapter_check_config(const tt_setup *s, tt_arena *a, const char *path, tt_error *err);

/* layout.c: how the elements of a tensor are ordered in the other program's files. */
typedef struct tt_layout {
    int64_t head_dim; /* rows are in pairs within heads of so many; 0: they are as here */
    bool transpose;   /* the last two dims are swapped */
} tt_layout;
tt_status tt_layout_of(const tt_setup *s, const tt_titan_name *row, const char *param,
                       tt_layout *out, tt_error *err);
bool tt_layout_differs(const tt_layout *l);
/* Turns the shape here into the shape there, or back. */
void tt_layout_shape(const tt_layout *l, int n_dims, const int64_t *from, int64_t *to);
/* Copies a tensor of the shape `dims` here, elements of `size` bytes, to its order there, and back. */
void tt_layout_store(const tt_layout *l, uint8_t *there, const uint8_t *here, int n_dims,
                     const int64_t *dims, size_t size);
void tt_layout_load(const tt_layout *l, uint8_t *here, const uint8_t *there, int n_dims,
                    const int64_t *dims, size_t size);
/* Returns how many rows a head of a parameter has. Fails if its rows are not cut into heads, or
 * their number is odd. */
tt_status tt_head_dim_of(const tt_setup *s, const char *param, int64_t *out, tt_error *err);

#endif
