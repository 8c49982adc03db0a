/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_MODEL_H
#define TTRUN_MODEL_H
#include <ttrun/builder.h>
#include <ttrun/plugin.h>

/* A model: describe() writes down the forward pass. It reads tt_input(b, "ids"), "pos", …, and ends
 * in tt_output(b, "logits", v). Gradients, sharding, pipelining and precision are the core's. */

#ifdef __cplusplus
extern "C" {
#endif

/* A named size: the model's arguments as JSON text, laid over the option defaults. */
typedef struct tt_flavor {
    const char *name;
    const char *args_json; /* {"dim": 256, …} */
} tt_flavor;

typedef struct tt_model_vt {
    size_t struct_size;
    const tt_flavor *flavors;
    size_t n_flavors;
    /* Fill derived arguments (hidden_dim by the flavor's rule) and check their combination; may be
     * NULL. [setup] */
    tt_status (*finish)(void *config, tt_error *err);
    void (*describe)(const void *config, tt_builder *b); /* [setup] */
    int64_t (*vocab_size)(const void *config);           /* rows of the embedding table */
    /* For FLOP counts: layers × heads × (d_qk + d_v) of full attention, summed. */
    int64_t (*attention_width)(const void *config);
    /* The option that is the number of blocks, an INT; NULL = none. `plan --search` estimates large
     * models from the same with few blocks. */
    const char *blocks;
} tt_model_vt;

/* A model that Hugging Face has too gives this as its extension of that id: then the flavor "hf"
 * and saves in Hugging Face's form work. Parameter names (or storage maps) are Hugging Face's. */
#define TT_MODEL_HF "ttrun.model.hf/1"
typedef struct tt_model_hf {
    size_t struct_size;
    const char *model_types; /* config.json's model_type: those it can be, comma-separated */
    const char *defaults;    /* JSON object: what a config.json without these keys means */
    const char *fixed;       /* JSON object: keys that must have these values, or be absent; a list
                                holds the values a key may have */
    /* config.json's text, an object: model_type, architectures, sizes. Longer than size: an error.
     * [setup] */
    tt_status (*config_json)(const void *config, char *json, size_t size, tt_error *err);
    /* What files of the model without its output layer leave off the names ("transformer."): their
     * tensors are found with or without; NULL = nothing. */
    const char *prefix;
} tt_model_hf;

/* How a tensor is called elsewhere, and how it lies there. */
typedef struct tt_tensor_name {
    /* "model.layers.*.mlp.up_proj.weight", "layers.*.feed_forward.w3.weight"; the star is the
     * block's number */
    const char *ours, *theirs;
    int pairs;  /* 1: a head's rows, halves (j, j + head_dim/2) here, are pairs (2j, 2j+1) there */
    int in_f32; /* 1: written in f32 whatever is asked for; vectors always are */
} tt_tensor_name;

/* A model whose weights Meta's releases and torchtitan's checkpoints have under names of their own
 * gives these as its extension of that id: then such folders can be imported. */
#define TT_MODEL_META "ttrun.model.meta/1"
typedef struct tt_model_meta {
    size_t struct_size;
    const tt_tensor_name *names; /* of parameters */
    size_t n_names, name_size;   /* count and stride */
} tt_model_meta;

/* A model that llama.cpp runs gives this as its extension of that id: then checkpoints go out as
 * GGUF. `ours` are the names of Hugging Face's files (parameters', or of their storage maps). */
#define TT_MODEL_GGUF "ttrun.model.gguf/1"
typedef struct tt_model_gguf {
    size_t struct_size;
    const char *architecture;    /* "llama" */
    const tt_tensor_name *names; /* a tensor that matches none is an error */
    size_t n_names, name_size;   /* count and stride */
    /* Its keys as a flat JSON object, without the architecture before them: whole numbers are
     * written as u32, numbers with a point as f32, texts and booleans as such. An error where
     * llama.cpp cannot run what the arguments say. [setup] */
    tt_status (*keys_json)(const void *config, char *json, size_t size, tt_error *err);
    /* What the rotary frequencies are divided by: rope_freqs.weight. Returns how many, at most cap;
     * 0: no such tensor. May be NULL. [setup] */
    int64_t (*rope_factors)(const void *config, float *out, int64_t cap);
} tt_model_gguf;

#ifdef __cplusplus
}
#endif
#endif
