/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_MODEL_H
#define TTRUN_MODEL_H
#include <ttrun/builder.h>
#include <ttrun/plugin.h>

/* A model: describe() builds the graph of the forward pass. It reads tt_input(b, "ids"), "pos", …,
 * and ends with tt_output(b, "logits", v). The core adds gradients, sharding, pipelining and
 * precision. */

#ifdef __cplusplus
extern "C" {
#endif

/* A named size of the model: its arguments as JSON text, which replace the options' defaults. */
typedef struct tt_flavor {
    const char *name;
    const char *args_json; /* {"dim": 256, …} */
} tt_flavor;

typedef struct tt_model_vt {
    size_t struct_size;
    const tt_flavor *flavors;
    size_t n_flavors;
    /* (optional) Fills derived arguments (hidden_dim by the flavor's rule) and checks whether the
     * arguments fit together. [setup] */
    tt_status (*finish)(void *config, tt_error *err);
    void (*describe)(const void *config, tt_builder *b); /* errors stick in b. [setup] */
    int64_t (*vocab_size)(const void *config);           /* rows of the embedding table. [setup] */
    /* For FLOP counts: layers × heads × (d_qk + d_v), as of full attention. [setup] */
    int64_t (*attention_width)(const void *config);
    /* (optional) The name of the INT option that is the number of blocks; NULL = none. With it,
     * `plan --search` estimates a large model from a copy with few blocks. */
    const char *blocks;
} tt_model_vt;

/* The extension of a model that transformers has, too: with it the flavor "hf" and saves in Hugging
 * Face's format work. Its parameters' names (or their storage maps) are Hugging Face's. */
#define TT_MODEL_HF "ttrun.model.hf/1"
typedef struct tt_model_hf {
    size_t struct_size;
    const char *model_types; /* allowed values of config.json's model_type, comma-separated */
    const char *defaults;    /* JSON object: values of keys that a config.json leaves out */
    const char *fixed;       /* JSON object: keys that must be absent or have these values; a list
                                holds several allowed values */
    /* Writes config.json's text, an object: model_type, architectures, sizes.
     *   Errors: a text longer than size; arguments that transformers does not have.   [setup] */
    tt_status (*config_json)(const void *config, char *json, size_t size, tt_error *err);
    /* (optional) A prefix of tensor names ("transformer.") that files of the model without its
     * output layer omit: tensors are found with it or without. */
    const char *prefix;
} tt_model_hf;

/* The extension of a model with blocks that a folder of Hugging Face may lack although its config.json counts them:
 * transformers drops those of multi-token prediction when it saves, and writes their number. */
#define TT_MODEL_HF_IF "ttrun.model.hf_if/1"
typedef struct tt_model_hf_if {
    size_t struct_size;
    const char *key; /* of config.json: it counts only if the folder has `tensor` */
    const char *
        tensor; /* "model.layers.{num_hidden_layers}.enorm.weight": {KEY} is a number of config.json */
} tt_model_hf_if;

/* A tensor's name and layout in another program's files. */
typedef struct tt_tensor_name {
    /* "model.layers.*.mlp.up_proj.weight" is theirs "layers.*.feed_forward.w3.weight"; the star
     * stands for the block's number */
    const char *ours, *theirs;
    int pairs;  /* 1: the rows (j, j + head_dim/2) of a head here are rows (2j, 2j+1) there */
    int in_f32; /* 1: always written in f32, as vectors are */
} tt_tensor_name;

/* The extension of a model whose weights have other names in Meta's releases and torchtitan's
 * checkpoints: with it such folders can be imported. */
#define TT_MODEL_META "ttrun.model.meta/1"
typedef struct tt_model_meta {
    size_t struct_size;
    const tt_tensor_name *names; /* of parameters */
    size_t n_names, name_size;   /* count and stride */
} tt_model_meta;

/* The extension of a model that torchtitan has, with torchtitan's names, for checkpoints of
 * torch.distributed.checkpoint. A model without it has there the names of TT_MODEL_META. */
#define TT_MODEL_TITAN "ttrun.model.torchtitan/1"
typedef struct tt_titan_name {
    tt_tensor_name name; /* first */
    int transpose;       /* 1: the last two dims are swapped there */
    /* 1: no tensor of ours is this one: f32 zeros stand there, one for each row of `ours`, unless another row
     * gives a tensor of the model this name */
    int zeros;
} tt_titan_name;

typedef struct tt_model_titan {
    size_t struct_size;
    /* of parameters and of exported buffers. Of several rows for one tensor the first that matches is written;
     * a folder may have the names of any */
    const tt_titan_name *names;
    size_t n_names, name_size; /* count and stride */
    /* (optional) In the names of blocks after the model's own (multi-token prediction) this stands in place of what
     * is before the star, and the first of these blocks has the number 0: "mtp_layers." */
    const char *late;
    /* (optional) Fails if torchtitan stores the model of this config in another form: says which
     * argument differs, and how. [setup] */
    tt_status (*check)(const void *config, tt_error *err);
} tt_model_titan;

/* The extension of a model that llama.cpp runs: with it checkpoints can be exported as GGUF. `ours`
 * are the names in Hugging Face's files (the parameters' or those of their storage maps). Experts that have
 * a tensor each in those files are one tensor here, [experts, rows, columns], and `ours` is the parameter's
 * name: "model.layers.*.mlp.experts.up_proj.weight". */
#define TT_MODEL_GGUF "ttrun.model.gguf/1"
typedef struct tt_gguf_part { /* a tensor there that is a part of ours */
    tt_tensor_name name;      /* first */
    int step, first;          /* step > 1: of the last dim every step-th element, from `first` on */
    int transpose;            /* 1: then the last two dims are swapped */
    /* (optional) The rows are cut into heads. Of each head *size rows from *begin on stand there, as
     * [heads, size, columns]. [setup] */
    void (*of_head)(const void *config, int64_t *begin, int64_t *size);
} tt_gguf_part;

typedef struct tt_model_gguf {
    size_t struct_size;
    const char *architecture; /* "llama" */
    /* Every row of these, and of `parts`, that matches a tensor is written; a tensor that matches none is an error,
     * but in blocks after the key block_count (multi-token prediction), which are left out */
    const tt_tensor_name *names;
    size_t n_names, name_size; /* count and stride */
    /* Writes the file's keys as a flat JSON object, without the prefix of the architecture. Whole
     * numbers become u32, numbers with a point f32, texts and booleans stay what they are. Without the key
     * context_length, the file gets max_position_embeddings of the config.json that an export has.
     *   Errors: a text longer than size; arguments that llama.cpp cannot run.   [setup] */
    tt_status (*keys_json)(const void *config, char *json, size_t size, tt_error *err);
    /* (optional) Writes rope_freqs.weight, the divisors of the rotary frequencies, to out[cap].
     * Returns their number; 0: the model has no such tensor. [setup] */
    int64_t (*rope_factors)(const void *config, float *out, int64_t cap);
    /* (optional) Tensors whose name in Hugging Face's files ends so have 1 added to each element:
     * "norm.weight". */
    const char *plus_one;
    /* (optional) Writes vector i of those that the file has besides the parameters, and its name, a
     * constant; called with i = 0, 1, … Returns its length; 0: there are no more. [setup] */
    int64_t (*vector)(const void *config, size_t i, const char **name, float *out, int64_t cap);
    const tt_gguf_part *parts; /* (optional) */
    size_t n_parts, part_size; /* count and stride */
} tt_model_gguf;

#ifdef __cplusplus
}
#endif
#endif
