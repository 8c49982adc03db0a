/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_BUILDER_H
#define TTRUN_BUILDER_H
#include <ttrun/attention.h>
#include <ttrun/param.h>

/* The graph builder: models, losses, optimizers and derivatives are written with these functions.
 *   Errors: a function never returns NULL. The first error sticks in the builder with op, parameter
 *   name and plugin; the core reports it once, when it finishes the graph.
 *   Owner: values and everything else that is returned belong to the builder; texts that are passed
 *   in are copied, except dims' labels.   Threads: one thread uses a builder. All are [setup].
 *   A value stands for the global tensor (R1): no function here knows about ranks. Activations are
 *   [tokens, …] (R4). Options that are NULL or zero mean the defaults. */

#ifdef __cplusplus
extern "C" {
#endif

/* dtype and labelled dims of a value */
typedef struct tt_type {
    tt_dtype dtype;
    int32_t n_dims;
    tt_dim dims[TT_MAX_DIMS];
} tt_type;
TT_EXPORT const tt_type *tt_value_type(const tt_value *v);

/* Raises a sticky error from a describe() or vjp(). Returns a placeholder value. */
TT_EXPORT tt_value *tt_builder_fail(tt_builder *b, tt_status code, const char *fmt, ...)
    TT_PRINTF(3, 4);

/* ---- names, blocks, inputs, outputs ---- */

/* Until tt_scope_end, parameter names get the prefix "<name>."; scopes nest. */
TT_EXPORT void tt_scope(tt_builder *b, const char *fmt, ...) TT_PRINTF(2, 3);
TT_EXPORT void tt_scope_end(tt_builder *b);
/* A block, usually a layer, is a scope that is also the unit of FSDP's gathers, of recomputation
 * and of pipeline stages. Blocks do not nest. */
TT_EXPORT void tt_block(tt_builder *b, const char *fmt, ...) TT_PRINTF(2, 3);
TT_EXPORT void tt_block_end(tt_builder *b);

/* An input of the step: "ids", "pos", "seg", "labels", "token_index" i32 [tokens], or one of those the
 * dataloader declares, i32 or f32, [tokens] or [samples]. The samples of a micro-batch are equal parts
 * of the token dim, in order: as many as its dim's `lines`. token_index: (number of its sample in the global
 * batch) * seq_len + (place in it), modulo 2^32. TT_BUILD_GENERATE: also "longer_than.N" (0, 1) of one N. */
TT_EXPORT tt_value *tt_input(tt_builder *b, const char *name);
/* The same as [tokens]: each token has its sample's value, if the input is per sample. */
TT_EXPORT tt_value *tt_input_per_token(tt_builder *b, const char *name);
/* An input per token, k tokens ahead: token t has the value of token t + k, if that is of the same document
 * and sample, else -100 ("labels") or 0. k >= 0. */
TT_EXPORT tt_value *tt_input_shifted(tt_builder *b, const char *name, int k);
/* Declares an output: "logits" [tokens, vocab]; "logits+K": of the token K further ahead than the next one.
 * Losses and metrics read outputs by name. */
TT_EXPORT void tt_output(tt_builder *b, const char *name, tt_value *v);
TT_EXPORT int tt_has_output(tt_builder *b, const char *name); /* 1: there is one of this name */
TT_EXPORT tt_value *tt_get_output(tt_builder *b, const char *name);
/* Adds the auxiliary loss weight * v to the value that training minimises. v is a scalar (averaged
 * over micro-batches) or [tokens] (summed and divided by the counted tokens). The logged loss stays
 * the loss plugin's alone. */
TT_EXPORT void tt_loss_term(tt_builder *b, const char *name, tt_value *v, double weight);

/* A number to log: a scalar of the forward; its mean over the step's micro-batches is in the step's
 * record as `name` ("router/entropy"). Or f32 [tokens] or [samples]: the sum over the global batch, divided as
 * the loss is. Loss terms are logged as "losses/<name>", those of [tokens] divided as the loss is. */
TT_EXPORT void tt_log_metric(tt_builder *b, const char *name, tt_value *v);

/* What the graph is built for. Parameters and buffers must be the same in all. */
typedef enum tt_builder_use {
    TT_BUILD_TRAIN = 0,
    TT_BUILD_EVAL = 1,    /* the loss alone: validation, ttrun eval */
    TT_BUILD_GENERATE = 2 /* logits */
} tt_builder_use;
TT_EXPORT tt_builder_use tt_builder_mode(const tt_builder *b);
/* The number of the block that is being described, from 0; -1: none (embedding, head). */
TT_EXPORT int tt_builder_block(const tt_builder *b);
/* The tokens of the longest sequence that the graph is for: training.seq_len, or the context of
 * generation, where the token dim does not tell. 0: not known. */
TT_EXPORT int64_t tt_builder_length(const tt_builder *b);

/* ---- layers (an op and its parameters) ---- */

typedef struct tt_linear_opts {
    int bias;     /* 1: adds <name>.bias [out], zeros */
    tt_init init; /* of the weight */
    const char *tags;
} tt_linear_opts;
/* x [T,in] · Wᵀ, W "<name>.weight" [out,in] → [T,out] */
TT_EXPORT tt_value *tt_linear(tt_builder *b, tt_value *x, const char *name, tt_dim out,
                              const tt_linear_opts *opts);
/* ids i32 [T], table "<name>.weight" [vocab, width] → [T,width]. The core rejects data with ids
 * outside the table. */
TT_EXPORT tt_value *tt_embedding(tt_builder *b, tt_value *ids, const char *name, tt_dim vocab,
                                 tt_dim width, const tt_param_opts *opts);
/* RMSNorm over the last dim D, with parameter "<name>.weight" [D], initially ones, tag "norm". */
TT_EXPORT tt_value *tt_rms_norm(tt_builder *b, tt_value *x, const char *name, double eps);
/* LayerNorm over the last dim, with "<name>.weight" as above and "<name>.bias" [D], zeros. */
TT_EXPORT tt_value *tt_layer_norm(tt_builder *b, tt_value *x, const char *name, double eps);

/* ---- ops on values ---- */

/* x [T,i], w [o,i] → [T,o]: a linear whose weight is a given value, for tied output layers */
TT_EXPORT tt_value *tt_linear_w(tt_builder *b, tt_value *x, tt_value *w);
/* ids [T], w [V,D] → [T,D] */
TT_EXPORT tt_value *tt_embedding_w(tt_builder *b, tt_value *ids, tt_value *w);
/* w [D], D = x's last dim; or w [head_dim] if x's last dim has unit head_dim: a norm per head
 * (qwen3) */
TT_EXPORT tt_value *tt_rms_norm_w(tt_builder *b, tt_value *x, tt_value *w, double eps);
TT_EXPORT tt_value *tt_layer_norm_w(tt_builder *b, tt_value *x, tt_value *w, tt_value *bias,
                                    double eps);
TT_EXPORT tt_value *tt_softmax(tt_builder *b, tt_value *x); /* over the last dim */
/* log Σ exp(x) over the last dim of x [T,V] → f32 [T], and x - logsumexp(x) → f32 [T,V]. V may be cut
 * (vocab), and the first keeps no [T,V] but x for the backward: losses of logits are built from it. */
TT_EXPORT tt_value *tt_logsumexp(tt_builder *b, tt_value *x);
TT_EXPORT tt_value *tt_log_softmax(tt_builder *b, tt_value *x);
/* x [..,m,k] · y [..,k,n] → [..,m,n] with the same leading batch dims, or none; trans_x, trans_y:
 * the operand's last two dims are swapped first */
TT_EXPORT tt_value *tt_matmul(tt_builder *b, tt_value *x, tt_value *y, int trans_x, int trans_y);

typedef enum tt_rope_scaling {
    TT_ROPE_NONE = 0,
    TT_ROPE_LINEAR = 1,
    TT_ROPE_LLAMA3 = 2,
    TT_ROPE_YARN = 3,
    TT_ROPE_LONGROPE = 4
} tt_rope_scaling;
/* Rotary position embedding: rotates pairs of elements (j, j + rotary_dim/2) of every head. Su et
 * al. 2021, arXiv:2104.09864. */
typedef struct tt_rope_opts {
    int64_t head_dim;
    int64_t rotary_dim; /* 0 = head_dim; the other elements of a head are copied */
    double theta;       /* 0 = 10000 */
    tt_rope_scaling scaling;
    int32_t reserved;                         /* 0 */
    double factor;                            /* all scalings; 0 = 1 */
    double low_freq_factor, high_freq_factor; /* llama3; 0 = 1, 4 */
    double original_max_position;             /* llama3, yarn, longrope; 0 = 8192 */
    double beta_fast, beta_slow;              /* yarn; 0 = 32, 1 */
    double attention_factor; /* yarn, longrope: cos and sin are multiplied by it; 0 = for yarn
                                0.1 ln(factor) + 1, for longrope the root of
                                1 + ln(factor) / ln(original_max_position) */
    int no_truncate;         /* yarn: keep fractional correction bounds (gpt-oss) */
    int interleaved;         /* 1: pairs (2j, 2j+1) (DeepSeek, Meta) */
    const double *divisors;  /* longrope: [rotary_dim/2], positive; frequency j is divided by
                                divisors[j]; copied */
} tt_rope_opts;
/* x [T, heads*head_dim], pos i32 [T] → as x */
TT_EXPORT tt_value *tt_rope(tt_builder *b, tt_value *x, tt_value *pos, const tt_rope_opts *opts);

/* Per-token cross-entropy of logits [T,V] at labels i32 [T] → f32 [T]; 0 where the label is
 * negative (ignored). *lse: the log of the sum of e^logits of each token, also of ignored ones. */
TT_EXPORT tt_value *tt_cross_entropy(tt_builder *b, tt_value *logits, tt_value *labels);
TT_EXPORT tt_value *tt_cross_entropy_lse(tt_builder *b, tt_value *logits, tt_value *labels,
                                         tt_value **lse);

/* Depthwise causal convolution along tokens within a segment: x [T,D], w [D,K] → [T,D];
 * y[t] = Σ_j w[:,K-1-j]·x[t-j] */
TT_EXPORT tt_value *tt_conv1d(tt_builder *b, tt_value *x, tt_value *w);

/* Pointwise, with numpy broadcasting (dims aligned at the right, size 1 stretches). */
TT_EXPORT tt_value *tt_add(tt_builder *b, tt_value *x, tt_value *y);
TT_EXPORT tt_value *tt_sub(tt_builder *b, tt_value *x, tt_value *y);
TT_EXPORT tt_value *tt_mul(tt_builder *b, tt_value *x, tt_value *y);
TT_EXPORT tt_value *tt_div(tt_builder *b, tt_value *x, tt_value *y);
TT_EXPORT tt_value *tt_maximum(tt_builder *b, tt_value *x, tt_value *y);
TT_EXPORT tt_value *tt_minimum(tt_builder *b, tt_value *x, tt_value *y);
TT_EXPORT tt_value *tt_pow(tt_builder *b, tt_value *x, tt_value *y);
TT_EXPORT tt_value *tt_less(tt_builder *b, tt_value *x, tt_value *y);       /* → bool */
TT_EXPORT tt_value *tt_less_equal(tt_builder *b, tt_value *x, tt_value *y); /* → bool */
TT_EXPORT tt_value *tt_equal(tt_builder *b, tt_value *x, tt_value *y);      /* → bool */
TT_EXPORT tt_value *tt_select(tt_builder *b, tt_value *cond, tt_value *x,
                              tt_value *y); /* cond bool ? x : y */
TT_EXPORT tt_value *tt_scale(tt_builder *b, tt_value *x, double factor);
TT_EXPORT tt_value *tt_clamp(tt_builder *b, tt_value *x, double low, double high);
TT_EXPORT tt_value *tt_floor(tt_builder *b, tt_value *x); /* derivative 0, as tt_round's */
TT_EXPORT tt_value *tt_sign(tt_builder *b, tt_value *x);  /* -1, 0, 1; derivative 0 */
/* ops.h, which this header includes, declares tt_exp, tt_silu and all others of one operand; arrays.h
 * floor division, indices, sorting, gathering, padding and repeating; experts.h mixtures of experts. */
/* To another dtype. A float becomes the nearest float, halves to even, and infinite where it is too
 * large; an integer by truncation towards 0, the nearest integer of the dtype where that is too large
 * or too small, and 0 for NaN; a bool is x != 0, so true for NaN. */
TT_EXPORT tt_value *tt_cast(tt_builder *b, tt_value *x, tt_dtype to);
TT_EXPORT tt_value *tt_const(tt_builder *b, double value, tt_dtype dtype); /* a scalar */
/* An array of constants, f32, row-major, copied: masks, slopes, sinusoids. In a model's describe(). */
TT_EXPORT tt_value *tt_const_array(tt_builder *b, const float *values, const tt_dim *dims,
                                   int n_dims);

/* Reductions over dim (negative: counted from the end). keep 0 removes the dim; 1 leaves it with
 * size 1. */
TT_EXPORT tt_value *tt_sum(tt_builder *b, tt_value *x, int dim, int keep);
TT_EXPORT tt_value *tt_mean(tt_builder *b, tt_value *x, int dim, int keep);
TT_EXPORT tt_value *tt_max(tt_builder *b, tt_value *x, int dim, int keep);
TT_EXPORT tt_value *tt_sum_all(tt_builder *b, tt_value *x);     /* → scalar        */
TT_EXPORT tt_value *tt_sum_squares(tt_builder *b, tt_value *x); /* Σx² → f32 scalar */
TT_EXPORT tt_value *tt_line_sum(tt_builder *b,
                                tt_value *x); /* f [tokens] → [sequences]: one sum per sequence */
/* x [T,V], idx i32 [T] → f32 [T]: one element of each row */
TT_EXPORT tt_value *tt_pick(tt_builder *b, tt_value *x, tt_value *idx);

/* Shapes. perm: output dim i is x's dim perm[i]; [begin,end) are elements of dim. A dim that is split
 * or merged stays distributed by its outermost factor: tokens T as [T.lines, T.size / T.lines] are
 * sequences and positions, [heads*hd] in units of hd are [heads, hd]. */
TT_EXPORT tt_value *tt_reshape(tt_builder *b, tt_value *x, const tt_dim *dims, int n_dims);
TT_EXPORT tt_value *tt_transpose(tt_builder *b, tt_value *x, const int *perm); /* n_dims entries */
TT_EXPORT tt_value *tt_slice(tt_builder *b, tt_value *x, int dim, int64_t begin, int64_t end);
TT_EXPORT tt_value *tt_concat(tt_builder *b, tt_value *const *xs, int n, int dim);
TT_EXPORT tt_value *tt_broadcast_to(tt_builder *b, tt_value *x, const tt_dim *dims, int n_dims);

/* Random numbers that depend on (training.seed, step, stream, global index) only, never on the
 * mesh (R20): uniform [0,1) or, if `normal`, standard normal. Two uses of one stream draw the same
 * numbers: name the stream after its place ("layers.3.drop"). stream must outlive the graph.
 * If dim 0 is the token dim (label "tokens"), or dims 0 and 1 are so labelled sequences and their positions, the
 * index of a row is the input token_index: each token of the step's global batch has its own numbers,
 * the same ones for every mesh, order of tokens, size of micro-batches and number of them. All other
 * shapes are indexed by their own places, so the micro-batches of a step draw the same numbers; and so
 * are values in the decomposition of an op with TT_OP_LOCAL. */
TT_EXPORT tt_value *tt_random(tt_builder *b, const tt_dim *dims, int n_dims, const char *stream,
                              int normal);
/* x, f32, rounded to bf16: up or down, as u f32 in [0,1) says (tt_random). If u is uniform, the
 * result's mean is x. */
TT_EXPORT tt_value *tt_stochastic_round(tt_builder *b, tt_value *x, tt_value *u);

/* x with a share p of its elements set to 0 and the others divided by 1 - p, drawn anew for each
 * step, in training; x itself elsewhere. name: unique in its scope. */
TT_EXPORT tt_value *tt_dropout(tt_builder *b, tt_value *x, double p, const char *name);

TT_EXPORT tt_value *tt_stop_gradient(tt_builder *b, tt_value *x); /* x, with derivative 0 */
/* Computes y by fn's ops but takes the derivative from vjp: for straight-through estimators and
 * float8 linears.
 *   fn(b, xs, n, user)               returns y
 *   vjp(b, xs, n, y, dy, dxs, user)  writes dxs[i], or leaves it NULL for a zero derivative
 * user must outlive the graph. */
typedef tt_value *(*tt_custom_fn)(tt_builder *b, tt_value *const *xs, int n, void *user);
typedef void (*tt_custom_vjp_fn)(tt_builder *b, tt_value *const *xs, int n, tt_value *y,
                                 tt_value *dy, tt_value **dxs, void *user);
TT_EXPORT tt_value *tt_custom_vjp(tt_builder *b, tt_value *const *xs, int n, tt_custom_fn fn,
                                  tt_custom_vjp_fn vjp, void *user);

/* Adds any registered op by name, for op plugins. attrs: the op's own struct, which is copied. The
 * op's n_out outputs are written to outs. */
TT_EXPORT void tt_op(tt_builder *b, const char *op, tt_value *const *ins, int n_in,
                     const void *attrs, tt_value **outs, int n_out);

#ifdef __cplusplus
}
#endif

#include <ttrun/arrays.h>
#include <ttrun/experts.h>
#include <ttrun/ops.h>
#include <ttrun/recurrence.h>
#endif
