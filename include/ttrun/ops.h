/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_OPS_H
#define TTRUN_OPS_H
#include <ttrun/attributes.h>
#include <ttrun/op.h>

/* The core's ops: the operands and attributes that a backend's kernel of that name receives in
 * tt_kernel_call.{in,out,attrs}. docs/ops.md says what each op computes, its gradient and properties.
 *   T tokens, S keys, D width, V vocabulary, H query heads, K kv heads (of conv1d taps),
 *   hd head_dim, dv v_head_dim, E experts, R rows
 *   f  f32 (bf16 after a cast to it)    i  i32    [, sinks]  an operand that may be missing
 *   "as x": the shape and dtype of x; "by shape": the op writes its rule from its operands' shapes.
 *   A kernel of an op without attributes gets attrs NULL.
 * Operands of pointwise ops broadcast: dims are aligned at the right, and a dim that is missing or
 * has size 1 is repeated.
 * dtypes: pointwise ops promote (a scalar operand does not widen a tensor); comparisons and
 * is_finite give bool; argmax, iota and top_k's indices are i32; weight gradients (…_dw, dw, db),
 * max_last, sum_exp, pick, nll and lse are f32; other outputs are as the first operand. Floats may differ in dtype.
 * Order of sums: embedding_dw and scatter_add add rows in ascending order.
 * conv1d: tap j counts if seg[t-j] == seg[t] and pos[t-j] == pos[t]-j.
 * scan: h[t] = a[t] h[t-1] + x[t] if seg[t-1] == seg[t] and pos[t-1] == pos[t]-1, else x[t]. a's token
 * dim and its trailing dims may have size 1. da has a row for each token.
 * conv1d_cached, scan_cached: the state keeps of sequence slot[t] the last K - 1 rows of x, that of position
 * p at p mod (K-1), or the last h. At position 0 nothing of the state is read; a token with a negative
 * slot is in no sequence and its result is 0.
 * cross_entropy_bwd, pick: index i selects column i - begin[1] of the operand, if that is in its box.
 * attention_cached: for S sequences of at most P tokens, B = ceil(P / TT_CACHE_BLOCK), keys are
 * [S,K,B,hd,TT_CACHE_BLOCK], positions last, values [S,K,B*TT_CACHE_BLOCK,dv]. Token t has position
 * pos[t] in sequence slot[t] and sees that sequence up to itself; with a negative slot it is in no
 * sequence and its out is 0. The part of a block after its last token is not read.
 * attention with bias f32 [H,N], in all its forms: bias[h,i] is added to the score of query t and key s
 * of head h, after scale and softcap, with i = clamp(pos[t] - pos[s] + zero, 0, N - 1), where zero is 0,
 * and N / 2 if bidirectional. The operand is there if attributes say so; only token_index is after it.
 * attention with dropout p, and its derivatives: each weight of the softmax is multiplied by 0 or by
 * 1 / (1 - p), as random.h says, before the sum over values; lse is that of all weights. token_index i32 [T]
 * is the last operand then. The derivatives draw the same numbers again.
 * These nodes have no kernels, because core/exec runs them: param, input, state, fetch, redistribute,
 * transfer, accumulate, assign. */

#ifdef __cplusplus
extern "C" {
#endif

/* Made by `make docs` from the definitions in core/graph/ops; do not edit. */
/* name               rule                  operands → results · attributes
 * argmax             by shape              x f[..] → i32, one dim removed, or kept with size 1 · tt_attrs_arg
 * attention          by shape              q [T,H*hd], k [S,K*hd], v [S,K*dv], pos_q i[T], seg_q i[T], pos_k i[S], seg_k i[S][, sinks f[H]][, bias f[H,N]][, token_index i[T]] → out [T,H*dv], lse f[T,H] · tt_attrs_attention
 * attention_bias_bwd by shape              as attention_bwd, bias f[H,N] → dq, dk, dv, dbias f[H,N] · tt_attrs_attention
 * attention_bwd      by shape              q, k, v, out, lse, dout, pos_q, seg_q, pos_k, seg_k[, bias][, token_index] (as in attention) → dq, dk, dv · tt_attrs_attention
 * attention_cached   by shape              q, k, v [T,..], pos i[T], slot i[T], keys, values[, sinks f[H]][, bias f[H,N]] → out [T,H*dv], keys, values · tt_attrs_attention
 * attention_latent   by shape              q f[T,H*(n+r)], latent f[T,R], key f[T,r], w f[H*(n+v),R], pos i[T], seg i[T][, sinks f[H]] → out [T,H*v] · tt_attrs_attention
 * attention_max      by shape              q [T,H*hd], k [S,K*hd], pos_q, seg_q i[T], pos_k, seg_k i[S] → f32 [H] · tt_attrs_attention
 * attention_merge    (below)               out, lse of each of two sets of keys → out, lse of their union
 *                    t h, t h, t h, t h -> t h, t h
 * attention_ring     by shape              as attention → out, lse · tt_attrs_attention
 * attention_ring_bias_bwdby shape              as attention_bias_bwd → dq, dk, dv, dbias · tt_attrs_attention
 * attention_ring_bwd by shape              as attention_bwd → dq, dk, dv · tt_attrs_attention
 * broadcast          by shape              x → dims · tt_attrs_dims
 * cast               * -> *                x → x in the dtype of the attributes · tt_attrs_cast
 * cast_down          * -> *                x → x in the dtype of the attributes; the same kernel as cast · tt_attrs_cast
 * concat             by shape              x, y, … → as x, with the sum of the sizes in dim · tt_attrs_concat
 * const              ->                    → scalar · tt_attrs_const
 * conv1d             (below)               x f[T,D], w f[D,K], seg i[T], pos i[T] → [T,D]
 *                    t=(b !q) d, d !k, t, t -> t d
 * conv1d_bwd         (below)               x f[T,D], w f[D,K], seg i[T], pos i[T], dy f[T,D] → dx [T,D], dw f32 [D,K]
 *                    t=(b !q) d, d !k, t, t, t d -> t d, d k
 * conv1d_cached      (below)               x f[T,D], w f[D,K], slot i[T], pos i[T], state f32 [S,max(K-1,1),D] → [T,D], state
 *                    !t d, d !k, !t, !t, !s !r d -> t d, s r d
 * cross_entropy      t !v, t -> t, t       logits f[T,V], labels i[T] → nll f[T], lse f[T]
 * cross_entropy_bwd  t v, t, t, t -> t v   logits f[T,V], labels i[T], lse f[T], dnll f[T] → dlogits [T,V]
 * cumsum             by shape              x → as x · tt_attrs_cumsum
 * decode_codes       by shape              codes u8, absmax f32 → numbers · tt_attrs_codes
 * delta_rule         (below)               q, k f[T,K,dk], v f[T,K,H,dv], g, beta f[T,K,H], seg i[T], pos i[T] → [T,K,H,dv]
 *                    t=(b !q) k !d, t k !d, t k !r !e, t k r, t k r, t, t -> t k r e
 * delta_rule_bwd     (below)               q, k, v, g, beta, seg, pos, do f[T,K,H,dv] → dq, dk, dv, dgates [T,K,2,H]
 *                    t=(b !q) k !d, t k !d, t k !r !e, t k r, t k r, t, t, t k r e -> t k d, t k d, t k r e, t k !z r
 * delta_rule_cached  (below)               q, k, v, g, beta, slot i[T], pos i[T], state f32 [S,K,H,dk,dv] → [T,K,H,dv], state
 *                    !t k !d, t k !d, t k !r !e, t k r, t k r, t, t, !s k !r !d !e -> t k r e, s k r d e
 * eigenbasis         by shape              a f32[..,n,n] symmetric, q f32[..,n,n], how f32[..,1,1] → [..,n,n]
 * embedding          t, v d -> t d         ids i[T], w f[V,D] → [T,D]
 * embedding_dw       t, t d -> v d         ids i[T], dy f[T,D] → [V,D] · tt_attrs_dims (V)
 * expert_count       t !k -> !e            assign i[T,k] → f64[E] · tt_attrs_dims (E)
 * expert_sort        !t !k -> !n, !e       assign i[T,k] → order i[T*k], counts i[E] · tt_attrs_dims (E)
 * fused              by shape              operands of the program → results of the program · tt_fused (backend.h)
 * gather             by shape              x f[N,..], idx i[n] → [n,..]
 * grouped_linear     by shape              x f[R,i], w f[E,o,i], counts i[E] or i[G,P,E] → [R,o]
 * grouped_linear_dw  by shape              dy f[R,o], x f[R,i], counts i[E] or i[G,P,E] → [E,o,i]
 * grouped_linear_dx  by shape              dy f[R,o], w f[E,o,i], counts i[E] or i[G,P,E] → [R,i]
 * iota               -> n                  → i[n] · tt_attrs_dims (n)
 * latent_cached      by shape              q f[T,H*d], kv f[T,d], pos i[T], slot i[T], cache f[S,P,d][, sinks f[H]][, bias f[H,N]] → out [T,H*dv], cache · tt_attrs_attention
 * layer_norm         by shape              x f[T,D], w f[D], b f[D] → [T,D] · tt_attrs_norm
 * layer_norm_bwd     by shape              x, w, dy → dx [T,D], dw [D], db [D] · tt_attrs_norm
 * line_sum           t=(b q) -> b          x f[T] → [sequences]
 * linear             t i, o i -> t o       x f[T,i], w f[o,i] → [T,o]
 * linear_dw          t o, t i -> o i       dy f[T,o], x f[T,i] → [o,i]
 * linear_dx          t o, o i -> t i       dy f[T,o], w f[o,i] → [T,i]
 * linear_dx_fused    by shape              dy f[T,o], w f[o,i], other operands of the program → results of the program · tt_fused_product (backend.h)
 * linear_fused       by shape              x f[T,i], w f[o,i], other operands of the program → results of the program · tt_fused_product (backend.h)
 * linear_fused_rope  by shape              x f[T,i], w f[o,i], other operands of the program, pos i[T] → [T,o] · tt_fused_rope (backend.h)
 * linear_heads       t h, h !r -> t h      x f[T,H*i], w f[H*p,R] → [T,H*o] · tt_attrs_heads
 * matmul             by shape              a f[..,m,k], b f[..,k,n] → [..,m,n] · tt_attrs_matmul
 * max_last           t v -> t              x f[T,V] → [T]
 * member_stats       by shape              x f[N,..] → f32 [N,4]
 * pick               t v, t -> t           x f[T,V], idx i[T] → [T]
 * pick_bwd           t v, t, t -> t v      x f[T,V] (its type only), idx i[T], dy f[T] → [T,V]
 * random             by shape              [index i[T]] → dims, f32 · tt_attrs_random
 * random_keys        by shape              → dims, f32 · tt_attrs_random_keys
 * reduce_max         by shape              x → as x, without that dim or with size 1 there · tt_attrs_reduce
 * reduce_sum         by shape              x → as x, without that dim or with size 1 there · tt_attrs_reduce
 * reshape            by shape              x → dims · tt_attrs_dims
 * rms_norm           by shape              x f[T,D], w f[D] → [T,D]; w f[hd]: each head by itself · tt_attrs_norm
 * rms_norm_bwd       by shape              x, w, dy → dx [T,D], dw [D] · tt_attrs_norm
 * roll               by shape              x → as x · tt_attrs_roll
 * rope               t h, t -> t h         x f[T,H*hd], pos i[T] → [T,H*hd] · tt_attrs_rope
 * scale              * -> *                x → as x · tt_attrs_scale
 * scan               by shape              x f[T,..], a f[T,..], seg i[T], pos i[T] → h [T,..]; a's dims of size 1 stretch
 * scan_bwd           by shape              h, a, dh f[T,..], seg, pos → dx, da [T,..]
 * scan_cached        by shape              x, a f[T,..], slot i[T], pos i[T], state f32 [S,..] → h [T,..], state
 * scatter_add        by shape              x f[n,..], idx i[n] → [N,..] · tt_attrs_dims (N)
 * segment_sum        t=(b !q), t -> t      x f[T], number i[T] → [T] · tt_attrs_dims (tokens of a sequence)
 * slice              by shape              x → as x, with end - begin elements in dim · tt_attrs_slice
 * slice_bwd          by shape              dy → as dy, with the size of `full` in dim · tt_attrs_slice
 * softmax            by shape              x f[..,n] → [..,n]
 * softmax_bwd        by shape              y f[..,n], dy f[..,n] → dx
 * stop_gradient      * -> *                x → as x
 * sum_exp            t v, t -> t           x f[T,V], m f[T] → [T]
 * sum_squares        * ->                  x f[..] → f32 scalar
 * top_k              by shape              x f[..,n] → values [..,k], indices i[..,k] · tt_attrs_dims (k)
 * top_k_bwd          by shape              idx i[..,k], dy f[..,k] → [..,n] · tt_attrs_dims (n)
 * transpose          by shape              x → dims in the order of perm · tt_attrs_perm
 * pointwise: abs(x) add(x, y) cos(x) decode8(x) decode8u(x) div(x, y) encode8(x) encode8u(x)
 *    equal(x, y) erf(x) exp(x) floor_div(x, y) floor_pow2(x) gelu(x) gelu_bwd(x, dy) gelu_tanh(x)
 *    gelu_tanh_bwd(x, dy) is_finite(x) keyed_uniform(a, b f32) less(x, y) less_equal(x, y) log(x)
 *    max_bwd(x, y, dy) maximum(x, y) minimum(x, y) mod(x, y) mul(x, y) neg(x) pow(x, y) relu(x)
 *    relu_bwd(x, dy) round(x) rsqrt(x) scale_by(x, s) select(cond bool, x, y) sigmoid(x)
 *    sigmoid_bwd(y, dy) silu(x) silu_bwd(x, dy) sin(x) softplus(x) sqrt(x)
 *    stochastic_round(x f32, u f32 in [0,1)) sub(x, y) tanh(x) tanh_bwd(y, dy) */

TT_EXPORT tt_value *tt_abs(tt_builder *b, tt_value *x);        /* |x| */
TT_EXPORT tt_value *tt_cos(tt_builder *b, tt_value *x);        /* cosine of radians */
TT_EXPORT tt_value *tt_erf(tt_builder *b, tt_value *x);        /* error function */
TT_EXPORT tt_value *tt_exp(tt_builder *b, tt_value *x);        /* e to the power of x */
TT_EXPORT tt_value *tt_floor_pow2(tt_builder *b, tt_value *x); /* largest power of 2 up to |x| */
TT_EXPORT tt_value *tt_gelu(tt_builder *b, tt_value *x);       /* x times the normal CDF of x */
TT_EXPORT tt_value *tt_gelu_tanh(tt_builder *b, tt_value *x);  /* gelu approximated by tanh */
TT_EXPORT tt_value *tt_is_finite(tt_builder *b, tt_value *x);  /* neither infinite nor NaN */
TT_EXPORT tt_value *tt_log_e(tt_builder *b, tt_value *x);      /* natural logarithm; `tt_log_e` */
TT_EXPORT tt_value *tt_neg(tt_builder *b, tt_value *x);        /* -x */
TT_EXPORT tt_value *tt_relu(tt_builder *b, tt_value *x);       /* max(x, 0) */
TT_EXPORT tt_value *tt_round(tt_builder *b, tt_value *x);      /* nearest integer, halves to even */
TT_EXPORT tt_value *tt_rsqrt(tt_builder *b, tt_value *x);      /* 1 / square root */
TT_EXPORT tt_value *tt_sigmoid(tt_builder *b, tt_value *x);    /* 1 / (1 + e^-x) */
TT_EXPORT tt_value *tt_silu(tt_builder *b, tt_value *x);       /* x times sigmoid(x) */
TT_EXPORT tt_value *tt_sin(tt_builder *b, tt_value *x);        /* sine of radians */
TT_EXPORT tt_value *tt_softplus(tt_builder *b, tt_value *x);   /* log(1 + e^x) */
TT_EXPORT tt_value *tt_sqrt(tt_builder *b, tt_value *x);       /* square root */
TT_EXPORT tt_value *tt_tanh(tt_builder *b, tt_value *x);       /* hyperbolic tangent */
/* End of what is made. */

#ifdef __cplusplus
}
#endif

/* Writes the inverse frequencies of rope for these options, inv_freq[n], n = rotary_dim / 2, and
 * returns the factor on cos and sin. All backends use it, so that all rotate alike. Source:
 * transformers modeling_rope_utils. [any-thread] */
#ifdef __cplusplus
extern "C" {
#endif
TT_EXPORT double tt_rope_frequencies(const tt_rope_opts *o, double *inv_freq, int64_t n);
#ifdef __cplusplus
}
#endif
#endif
