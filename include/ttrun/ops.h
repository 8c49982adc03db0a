/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_OPS_H
#define TTRUN_OPS_H
#include <ttrun/op.h>

/* The core's ops: operands, sharding rule, attributes. What a backend's kernel of that name gets in
 * tt_kernel_call.{in,out,attrs}. T tokens, D width, V vocabulary, H query heads, K kv heads, hd
 * head_dim. f = f32 (bf16 where a cast put it), i = i32. Attributes "none": attrs is NULL.
 *
 * name              in → out                                                        rule
 * embedding         ids i[T], w f[V,D] → [T,D]; rows outside w's box give 0         t, v d -> t d
 * none embedding_dw      ids i[T], dy f[T,D] → [V,D], ascending t                         t, t d ->
 * v d         tt_attrs_dims (V) linear            x f[T,i], w f[o,i] → [T,o] t i, o i -> t o none
 * linear_dx         dy f[T,o], w f[o,i] → [T,i]        linear in dy                 t o, o i -> t i
 * none linear_dw         dy f[T,o], x f[T,i] → [o,i]        linear in dy                 t o, t i
 * -> o i       none matmul            a, b, 2 or 3 dims by shape              tt_attrs_matmul
 * rms_norm          x f[T,D], w f[D] → [T,D]    (w [hd]: per head, "t h, !d -> t h")  t !i, i -> t
 * i        tt_attrs_norm rms_norm_bwd      x, w, dy → dx [T,D], dw [D] t !i, i, t i -> t i, i
 * tt_attrs_norm layer_norm        x f[T,D], w f[D], b f[D] → [T,D] t !i, i, i -> t i tt_attrs_norm
 * layer_norm_bwd    x, w, dy → dx [T,D], dw [D], db [D] tt_attrs_norm softmax           x f[..,n] →
 * same, over the last dim                             .. !n -> .. n         none softmax_bwd y, dy
 * → dx                                                                            none rope x
 * f[T,H*hd], pos i[T] → same          linear in x               t h, t -> t h         tt_attrs_rope
 * attention         q, k, v, pos_q, seg_q, pos_k, seg_k[, sinks f[H]]               (tt_op_def of
 * it)     tt_attrs_attention → out [T,H*dv], lse f[T,H]; a query that sees no key: out 0, lse -inf
 * attention_merge   out, lse of two sets of keys, each → out, lse of both t h, t h, t h, t h -> t
 * h, t h none attention_cached  q, k, v [T,..], pos i[T], slot i[T], keys, values[, sinks f[H]] →
 * out [T,H*dv], keys, values with k and v in them. For S sequences of at most P tokens, B = ceil(P
 * / TT_CACHE_BLOCK): keys [S,K,B,hd,TT_CACHE_BLOCK], positions last, values
 * [S,K,B*TT_CACHE_BLOCK,dv]. Token t is number pos[t] of sequence slot[t] and sees that sequence up
 * to itself; a negative slot is none, out 0. What a block held beyond its last token is not read.
 * tt_attrs_attention attention_bwd     q, k, v, out, lse, dout, pos_q, seg_q, pos_k, seg_k → dq,
 * dk, dv tt_attrs_attention (lse holds the sinks already; their derivative is made of other ops)
 * cross_entropy     logits f[T,V], labels i[T] → nll f[T], lse f[T]; 0 where label < 0   t !v, t ->
 * t, t   none cross_entropy_bwd logits, labels, lse f[T], dnll f[T] → dlogits                    t
 * v, t, t, t -> t v   none labels are looked up in logits' box of v (begin[1]); (exp(logits-lse) -
 * onehot)*dnll, 0 where label < 0 max_last          x f[T,V] → [T] (max; -inf for an empty box) t v
 * -> t (max)        none sum_exp           x f[T,V], m f[T] → Σ_v exp(x-m) [T] t v, t -> t none
 * pick              x f[T,V], idx i[T] → x[t,idx[t]] or 0 outside the box            t v, t -> t
 * none pick_bwd          x f[T,V] (only its type), idx i[T], dy f[T] → [T,V]: dy[t] at idx[t], else
 * 0   t v, t, t -> t v conv1d            x f[T,D], w f[D,K], seg i[T], pos i[T] → [T,D] t=(b !q)
 * ...          none tap j counts where seg[t-j] == seg[t] and pos[t-j] == pos[t]-j conv1d_bwd x, w,
 * seg, pos, dy → dx, dw f32 top_k             x f[..,n] → values [..,k], indices i[..,k] .. !n ->
 * .. k, .. k   tt_attrs_dims (k) top_k_bwd         idx i[..,k], dy f[..,k] → [..,n] tt_attrs_dims
 * (n) gather            x f[N,..], idx i[n] → [n,..]; idx outside → 0                    rows whole
 * none scatter_add       x f[n,..], idx i[n] → [N,..], ascending                          rows
 * whole            tt_attrs_dims (N) expert_sort       assign i[T,k] → order i[T*k], counts i[E]
 * whole                 tt_attrs_dims (E) grouped_linear    x f[R,i], w f[E,o,i], counts i[E] →
 * [R,o]                        r i, !e o i, !e -> r o (r whole) none grouped_linear_dx dy f[R,o],
 * w, counts → [R,i] grouped_linear_dw dy f[R,o], x f[R,i], counts i[E] → [E,o,i] reduce_sum,
 * reduce_max   x → one dim removed, or kept with size 1                  contraction
 * tt_attrs_reduce line_sum          x f[T] → [lines]: sum over each line of the token dim t=(b q)
 * -> b          none sum_squares       x f[..] → f32 scalar * ->                  none broadcast x
 * → dims (numpy alignment)                                      by shape              tt_attrs_dims
 * reshape, transpose, slice, concat                                                 by shape
 * tt_attrs_dims, _perm, _slice, _concat slice_bwd         dy → zeros of dims with dy at [begin,end)
 * tt_attrs_slice (full size in `full`) random            → dims !*, bound by output tt_attrs_random
 * const             → scalar tt_attrs_const cast              x → dtype linear tt_attrs_cast
 * cast_down         the same kernel as cast, for narrowing and for integers: not linear, so a
 * pending sum is reduced first stop_gradient     x → x fused             pointwise program by shape
 * tt_fused (backend.h) pointwise: add sub mul div maximum minimum pow less less_equal equal select
 * neg exp log sqrt rsqrt abs tanh sigmoid silu relu gelu gelu_tanh is_finite, scale
 * (tt_attrs_scale), scale_by(x, s scalar): x*s like mul, linear in x, silu_bwd(x,dy) gelu_bwd(x,dy)
 * gelu_tanh_bwd(x,dy) relu_bwd(x,dy) tanh_bwd(y,dy) sigmoid_bwd(y,dy) max_bwd(x,y,dy): dy where x
 * >= y else 0; operands broadcast: a missing or size-1 dim stretches. less, less_equal, equal,
 * is_finite → bool. dtypes: pointwise promotes (a scalar operand does not widen a tensor); what is
 * a weight's gradient (…_dw, dw, db) is f32; max_last, sum_exp, pick, nll, lse are f32; all else
 * has its first operand's dtype. Mixed float operands are allowed. Nodes without kernels, run by
 * core/exec: param, input, state, fetch, redistribute, transfer, accumulate, assign. */

typedef struct tt_attrs_dims { /* dims of the output, or in dims[0] the one named above */
    int32_t n_dims;
    tt_dim dims[TT_MAX_DIMS];
} tt_attrs_dims;
typedef struct tt_attrs_matmul {
    int32_t trans_a, trans_b; /* that operand's last two dims are swapped */
} tt_attrs_matmul;
typedef struct tt_attrs_norm {
    double eps;
} tt_attrs_norm;
typedef struct tt_attrs_rope {
    tt_rope_opts opts; /* defaults resolved: no zero means "default" any more */
    int32_t inverse;   /* 1: rotate by -angle: the derivative */
} tt_attrs_rope;
typedef struct tt_attrs_attention {
    int64_t head_dim, v_head_dim;
    int64_t window; /* 0 = none */
    double softcap; /* 0 = none */
    double scale;
    int32_t bidirectional;
    /* Of a ring of as many ranks, 0 = none: each has one piece of a line's queries, and its keys
     * are the piece `ring_step` ranks further. For the sharding rule: a kernel sees these alone. */
    int32_t ring, ring_step;
} tt_attrs_attention;
#define TT_CACHE_BLOCK 32 /* positions of attention_cached's keys that lie together */
typedef struct tt_attrs_reduce {
    int32_t dim, keep;
} tt_attrs_reduce;
typedef struct tt_attrs_perm {
    int32_t perm[TT_MAX_DIMS];
} tt_attrs_perm;
typedef struct tt_attrs_slice {
    int32_t dim;
    int64_t begin, end;
    tt_dim full; /* slice_bwd: the dim as it was */
} tt_attrs_slice;
typedef struct tt_attrs_concat {
    int32_t dim;
} tt_attrs_concat;
typedef struct tt_attrs_random {
    tt_attrs_dims dims;
    const char *stream;
    int32_t normal;
} tt_attrs_random;
typedef struct tt_attrs_const {
    double value;
    tt_dtype dtype;
} tt_attrs_const;
typedef struct tt_attrs_cast {
    tt_dtype to;
} tt_attrs_cast;
typedef struct tt_attrs_scale {
    double factor;
} tt_attrs_scale;

/* The inverse frequencies of rope for these options, n = rotary_dim / 2 values, and the factor on
 * cos and sin: shared by backends so that all rotate alike. Source: transformers
 * modeling_rope_utils. [any-thread] */
#ifdef __cplusplus
extern "C" {
#endif
TT_EXPORT double tt_rope_frequencies(const tt_rope_opts *o, double *inv_freq, int64_t n);
/* Element `index` of stream (seed, step, stream): uniform [0,1) or normal. [any-thread] */
TT_EXPORT double tt_random_at(uint64_t seed, int64_t step, const char *stream, uint64_t index,
                              int normal);
#ifdef __cplusplus
}
#endif
#endif
