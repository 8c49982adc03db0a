/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_PARAM_H
#define TTRUN_PARAM_H
#include <ttrun/codes.h>
#include <ttrun/tensor.h>

/* Parameters: what a model declares about its weights. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_builder tt_builder;
typedef struct tt_value tt_value;

typedef enum tt_init_kind {
    /* mean 0, a = std, absolute bounds [lo, hi] (both 0 = ±2); by inverse CDF */
    TT_INIT_TRUNC_NORMAL = 0,
    TT_INIT_NORMAL = 1,   /* mean 0, a = std */
    TT_INIT_CONSTANT = 2, /* a */
    TT_INIT_UNIFORM = 3   /* [lo, hi) */
} tt_init_kind;
/* Initial values depend on (training.seed, full name, global element index) only, so they are equal
 * on every mesh. */
typedef struct tt_init {
    tt_init_kind kind;
    double a, lo, hi;
} tt_init;

/* A part of a parameter as it is stored in Hugging Face's files (R14). Elements
 * [begin, begin + size) of the parameter's dim 0 are in the file tensor `name`, from element
 * file_begin of the same dim on. transpose 1: the file holds [in, out], so that this dim is its last.
 * transpose TT_STORAGE_ITEM: size is 1, and the file's tensor has the other dims only, as of one expert of
 * [E,F,D]; file_begin is 0. Several parameters may share one file tensor (gpt2's c_attn holds q, k, v). */
#define TT_STORAGE_ITEM 2
typedef struct tt_storage {
    const char *name;    /* NULL = the parameter's own name; copied by tt_param */
    int64_t begin, size; /* both 0 = all of dim 0 */
    int transpose;
    int32_t file_begin; /* 0 = the file tensor's start */
} tt_storage;

/* The tag of parameters that a converter adds to a model. Unless the job says training.trainable,
 * they alone are trained. */
#define TT_TAG_ADAPTER "adapter"

typedef struct tt_param_opts {
    tt_init init;     /* zero = trunc_normal with std 0 → the default std 0.02 */
    const char *tags; /* for param_groups, comma-separated: "norm", "bias", …; NULL = none */
    int frozen;       /* 1: no gradient */
    const tt_storage *storage; /* NULL = one tensor of the parameter's own name */
    size_t n_storage;
} tt_param_opts;

/* Declares the parameter <scopes>.<name>, f32 with these dims. The same name again returns the same
 * value (a tied weight).
 *   Errors (sticky): the dims differ from those of the first declaration.
 *   Owner: the builder; names, tags and storage are copied.   opts: NULL = defaults.   [setup] */
TT_EXPORT tt_value *tt_param(tt_builder *b, const char *name, const tt_dim *dims, int n_dims,
                             const tt_param_opts *opts);

/* A low-rank adapter (LoRA): the layer computes x·wᵀ + scale · (x·aᵀ)·bᵀ. */
typedef struct tt_adapter_opts {
    double alpha;        /* scale = alpha / r, or alpha / √r */
    double dropout;      /* of x, for the adapter's configuration file; the converter applies it */
    int rank_stabilized; /* 1: alpha / √r */
} tt_adapter_opts;
/* Says that the parameters a [r,in] and b [out,r] are an adapter of the parameter w [out,in]: an
 * export adds it to w, or writes it apart. Returns the scale.
 *   Errors (sticky): the shapes differ from these, or w has an adapter already.   [setup] */
TT_EXPORT double tt_param_adapter(tt_builder *b, tt_value *w, tt_value *a, tt_value *bb,
                                  const tt_adapter_opts *opts);

/* DoRA (Liu et al. 2024, arXiv:2402.09353): the parameter m [out] is the magnitude of w, which has an adapter:
 * the layer computes x·vᵀ with row i of v that of w + scale · b·a, made m[i] long. m starts as the norms of w's
 * rows; exports multiply by it, or write it apart.
 *   Errors (sticky): m is no parameter [out], or w has no adapter.   [setup] */
TT_EXPORT void tt_param_magnitude(tt_builder *b, tt_value *w, tt_value *m);

/* Stores the frozen parameter w [out,in] as codes, in memory and in checkpoints (QLoRA): <name>.nf4 u8
 * [out, blocks, 32] or <name>.int8 u8 [out, in], and <name>.absmax f32 [out, blocks]. Whatever reads w gets
 * the numbers that the codes stand for, in the dtype that the model computes in, made where they are read
 * and again for the backward. Initial values and weights that are loaded as floats are rounded to codes.
 *   Errors (sticky): w is no parameter of two dims, is stored so already, or another layer reads it, too.
 *   [setup] */
TT_EXPORT void tt_param_store_codes(tt_builder *b, tt_value *w, tt_codes format);

/* A buffer: state of a model that is no parameter, f32: running statistics, the biases of a router.
 * It has no gradient, and does not change within a step. Checkpoints hold it under its full name.
 */
typedef struct tt_buffer_opts {
    tt_init init;  /* zero = zeros */
    int transient; /* 1: in no checkpoint, a resumed run begins with its initial value */
    int exported;  /* 1: Hugging Face's files have it too, under its full name */
} tt_buffer_opts;
/* The buffer <scopes>.<name>, as it is during this step. Naming one twice returns the first. */
TT_EXPORT tt_value *tt_buffer(tt_builder *b, const char *name, const tt_dim *dims, int n_dims,
                              const tt_buffer_opts *opts);
/* Its next value, once per step of training, after the parameters' update: fn gets the buffer and
 * the mean of `stat` over the step's micro-batches (stat: any value of the forward without a token
 * dim) and returns the new value. Not run by validation and generation. Once per buffer; user
 * outlives the graph. */
typedef tt_value *(*tt_buffer_fn)(tt_builder *b, tt_value *buffer, tt_value *stat, void *user);
TT_EXPORT void tt_buffer_update(tt_builder *b, tt_value *buffer, tt_value *stat, tt_buffer_fn fn,
                                void *user);
/* The same, but fn gets the sum of `stat` over the step's micro-batches, in f64: counts are exact up to
 * 2^53. */
TT_EXPORT void tt_buffer_update_sum(tt_builder *b, tt_value *buffer, tt_value *stat,
                                    tt_buffer_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
