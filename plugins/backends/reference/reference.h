/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BACKEND_REFERENCE_H
#define TT_BACKEND_REFERENCE_H
#include <stdbool.h>
#include <ttrun/backend.h>
#include <ttrun/ops.h>

/* The reference backend: one plain loop per kernel, sums in f64, no threads. Every other backend is
 * tested against it: it is the oracle. */

double ref_load_any(const tt_tensor *t, int64_t i);
void ref_store_any(const tt_tensor *t, int64_t i, double v);

/* Most elements are f32, and tests compute whole jobs here: those are read and written in place. */
static inline double ref_load(const tt_tensor *t, int64_t i)
{
    return t->dtype == TT_F32 ? (double)((const float *)t->data)[i] : ref_load_any(t, i);
}

static inline void ref_store(const tt_tensor *t, int64_t i,
                             double v) /* rounded once to the dtype */
{
    if (t->dtype == TT_F32)
        ((float *)t->data)[i] = (float)v;
    else
        ref_store_any(t, i, v);
}

double ref_round_any(double v, tt_dtype dtype);

/* the value as it reads back after it was stored */
static inline double ref_round(double v, tt_dtype dtype)
{
    return dtype == TT_F32 ? (double)(float)v : ref_round_any(v, dtype);
}

int64_t ref_index(const tt_tensor *t, int64_t i); /* element of an i32 or i64 tensor */
void ref_clear(const tt_tensor *t);
/* Strides that broadcast `in` to the shape of `out`: 0 in dims that are broadcast; dims are aligned
 * at the right. */
void ref_strides(const tt_tensor *in, const tt_tensor *out, int64_t stride[TT_MAX_DIMS]);
/* Advances an odometer over shape by one; offsets[k] follow strides[k]. */
void ref_step(const tt_tensor *out, int64_t index[TT_MAX_DIMS], int n,
              int64_t (*strides)[TT_MAX_DIMS], int64_t *offsets);
/* The number of elements before, of and after dim. */
void ref_split(const tt_tensor *t, int dim, int64_t *outer, int64_t *n, int64_t *inner);
int ref_dim(const tt_tensor *t, int dim); /* a negative index counts from the end */

/* The kernel of an op; the kernel of a pointwise op; or NULL. */
const tt_kernel *ref_kernel(const char *op);
const tt_kernel *ref_pointwise_kernel(const char *op);

typedef tt_status ref_kernel_fn(void *backend, const tt_kernel_call *c, tt_error *err);
ref_kernel_fn ref_pointwise, ref_scale, ref_cast, ref_copy, ref_fused, ref_fused_product,
    ref_linear_fused_rope, ref_const, ref_iota, ref_random, ref_random_keys;
ref_kernel_fn ref_linear, ref_linear_dx, ref_linear_dw, ref_matmul, ref_grouped_linear,
    ref_grouped_linear_dx, ref_grouped_linear_dw, ref_expert_sort, ref_expert_count;
ref_kernel_fn ref_dispatch_sort, ref_dispatch_expert, ref_dispatch_gather, ref_dispatch_scatter,
    ref_dispatch_pack, ref_dispatch_unpack;
ref_kernel_fn ref_rms_norm, ref_rms_norm_bwd, ref_layer_norm, ref_layer_norm_bwd, ref_softmax,
    ref_softmax_bwd;
ref_kernel_fn ref_rope, ref_attention, ref_attention_max, ref_attention_bwd, ref_attention_cached,
    ref_latent_cached, ref_linear_heads, ref_attention_merge, ref_conv1d, ref_conv1d_bwd;
ref_kernel_fn ref_cross_entropy, ref_cross_entropy_bwd, ref_max_last, ref_sum_exp, ref_pick,
    ref_pick_bwd;
ref_kernel_fn ref_embedding, ref_embedding_dw, ref_gather, ref_scatter_add, ref_top_k,
    ref_top_k_bwd;
ref_kernel_fn ref_reduce_sum, ref_reduce_max, ref_argmax, ref_line_sum, ref_segment_sum,
    ref_sum_squares, ref_member_stats;
ref_kernel_fn ref_eigenbasis, ref_decode_codes, ref_cumsum, ref_scan, ref_scan_bwd, ref_scan_cached,
    ref_conv1d_cached, ref_delta_rule, ref_delta_rule_bwd, ref_delta_rule_cached;
ref_kernel_fn ref_broadcast, ref_transpose, ref_slice, ref_slice_bwd, ref_concat, ref_roll;

size_t ref_rope_scratch(const tt_kernel_call *c, int n_threads);
size_t ref_linear_fused_rope_scratch(const tt_kernel_call *c, int n_threads);
size_t ref_scan_bwd_scratch(const tt_kernel_call *c, int n_threads);
size_t ref_delta_rule_scratch(const tt_kernel_call *c, int n_threads);
size_t ref_delta_rule_bwd_scratch(const tt_kernel_call *c, int n_threads);
/* For an op with the inputs slot, pos, state from at_slot on and the state as its second output: copies the
 * state where it has other memory, and refuses tokens whose sequence has no room. */
tt_status ref_begin_cached(const tt_kernel_call *c, int at_slot, tt_error *err);
size_t ref_eigenbasis_scratch(const tt_kernel_call *c, int n_threads);
size_t ref_attention_scratch(const tt_kernel_call *c, int n_threads);
/* the element of a row of attention's bias that belongs to a distance pos[query] - pos[key] */
int64_t ref_bias_at(const tt_attrs_attention *a, const tt_tensor *bias, int64_t distance);

#endif
