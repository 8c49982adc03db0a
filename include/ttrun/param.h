/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_PARAM_H
#define TTRUN_PARAM_H
#include <ttrun/tensor.h>

/* Parameters: what a model declares about its weights. Owner: the builder. [setup] */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_builder tt_builder;
typedef struct tt_value tt_value;

typedef enum tt_init_kind {
    TT_INIT_TRUNC_NORMAL =
        0, /* a = std, [lo, hi] absolute bounds (both 0 = ±2), by inverse CDF, mean 0 */
    TT_INIT_NORMAL = 1,   /* a = std */
    TT_INIT_CONSTANT = 2, /* a */
    TT_INIT_UNIFORM = 3   /* [lo, hi) */
} tt_init_kind;
/* Initial values: a function of (training.seed, full name, global element index), equal on every
 * mesh. */
typedef struct tt_init {
    tt_init_kind kind;
    double a, lo, hi;
} tt_init;

/* One file tensor a logical parameter is stored in outside ttrun (R14). Elements [begin,
 * begin+size) of the logical dim 0 lie in file tensor `name` from its element file_begin of that
 * dim on; transpose: the file holds [in, out], and that dim is its last. Several parameters may
 * lie in one file tensor (gpt2's c_attn: q, k, v).
 */
typedef struct tt_storage {
    const char *name;    /* NULL = the parameter's own name; copied by tt_param */
    int64_t begin, size; /* both 0 = all of dim 0 */
    int transpose;
    int32_t file_begin; /* 0 = the file tensor's start */
} tt_storage;

typedef struct tt_param_opts {
    tt_init init; /* zero = trunc_normal with std 0 → the default std 0.02 */
    const char
        *tags; /* "norm", "bias", "embedding", … comma-separated, for param_groups; NULL = none */
    int frozen;                /* 1: no gradient */
    const tt_storage *storage; /* NULL = one tensor of the parameter's own name */
    size_t n_storage;
} tt_param_opts;

/* A parameter named <scopes>.<name>, f32. Naming one twice returns the first (tied), dims must
 * agree. */
TT_EXPORT tt_value *tt_param(tt_builder *b, const char *name, const tt_dim *dims, int n_dims,
                             const tt_param_opts *opts);

/* A buffer: state of a model that is no parameter, f32: running statistics, the biases of a router.
 * It has no gradient, and does not change within a step. Checkpoints hold it under its full name.
 */
typedef struct tt_buffer_opts {
    tt_init init;  /* zero = zeros */
    int transient; /* 1: in no checkpoint, a resumed run begins with its initial value */
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

#ifdef __cplusplus
}
#endif
#endif
