/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_ATTENTION_H
#define TTRUN_ATTENTION_H
#include <ttrun/param.h>

/* Attention and its biases, as the other functions of the graph builder (builder.h). */

#ifdef __cplusplus
extern "C" {
#endif

/* Scaled dot-product attention, causal within a segment: query t sees key s iff seg[s] = seg[t],
 * pos[s] <= pos[t] and, with a window w, pos[t] - pos[s] < w.
 *   q [T, H*head_dim]    k [S, K*head_dim]    v [S, K*v_head_dim]    K divides H; S = T but with pos_k
 *   Returns [T, H*v_head_dim]. Reads the inputs "pos" and "seg".
 *   Dao et al. 2022, arXiv:2205.14135.
 * Cross attention: keys and values of other tokens, with pos_k and seg_k of their own and, as a rule,
 * bidirectional. The keys' tokens are of as many sequences as the queries' (tt_dim.lines), and keys that a
 * query sees are of its sequence.
 * Prefix-LM: query t also sees the keys of its segment with pos[s] < prefix, where prefix is the same for
 * all tokens of a segment. Not with bias, window, bidirectional or pos_k.
 * Neither decodes with a memory: generation computes the whole context for every token.
 * Chunks: not with pos_k, seg_k, prefix, bidirectional or bias. Generation keeps all tokens; its sums
 * have another order than the whole context's. */
typedef struct tt_attention_opts {
    int64_t v_head_dim; /* 0 = head_dim                                                          */
    int64_t window;     /* 0 = none                                                              */
    double softcap;  /* s ← cap·tanh(s/cap) before the mask; 0 = none                          */
    double scale;    /* 0 = 1/sqrt(head_dim)                                                   */
    tt_value *sinks; /* [H] learned logits that only enter the softmax's sum; NULL = none      */
    int bidirectional; /* 1: no causal mask                                                     */
    tt_value *bias;    /* [H, n], added to scores by distance, see below; NULL = none           */
    tt_value *pos_k, *seg_k; /* i32 [S] of the keys; NULL = the inputs "pos" and "seg"          */
    tt_value *prefix; /* i32, [T] or a scalar: prefix-LM, see below; NULL = none                */
    double
        dropout; /* in training, the share of the softmax's weights that is set to 0, see below  */
    const char *dropout_name; /* of its random numbers, unique in its scope; NULL = "attention"   */
    int64_t chunk; /* a query sees keys with floor(pos / chunk) of its own only; 0 = all          */
} tt_attention_opts;
TT_EXPORT tt_value *tt_attention(tt_builder *b, tt_value *q, tt_value *k, tt_value *v,
                                 int64_t head_dim, const tt_attention_opts *opts);
/* Attention whose keys and values are products of one vector per token (multi-head latent attention,
 * DeepSeek-AI 2024, arXiv:2405.04434), with the parameter "<name>.weight" [H*(n+v), R]:
 *   q [T, H*(n+r)], with n + r as its dim's unit    latent [T, R]    key [T, r], shared by all heads and rotated
 *   key of head h: [W_h[0, n) latent, key]    value of head h: W_h[n, n+v) latent    v = opts->v_head_dim > 0
 *   Returns [T, H*v]. up: init, tags and bias of the product, or NULL.
 * `ttrun generate` keeps latent and key of each token instead of keys and values of H heads (--cache), unless the
 * product has a bias, a converter may replace it, or opts has bias, bidirectional, pos_k, seg_k or prefix. */
struct tt_linear_opts; /* builder.h */
TT_EXPORT tt_value *tt_latent_attention(tt_builder *b, tt_value *q, tt_value *latent, tt_value *key,
                                        const char *name, const struct tt_linear_opts *up,
                                        const tt_attention_opts *opts);
/* linear_heads: of each head's `unit` rows of the weight, rows [begin, begin + n); trans 1: their transpose */
typedef struct tt_attrs_heads {
    int64_t unit, begin, n, trans; /* no padding: equal attributes are equal bytes */
} tt_attrs_heads;
/* tt_attention_opts.dropout: the weights that are not set to 0 are divided by 1 - dropout. Which ones are
 * depends on (training.seed, step, scope and name, token_index of the query, head, position of the key) only,
 * and is drawn again in the backward. None in validation, eval and generate. Not with prefix. */
/* tt_attention_opts.bias: the score of query t and key s of head h gets bias[h, i] added, after scale
 * and softcap, in f32, with
 *   i = min(pos[t] - pos[s], n - 1), and if bidirectional
 *   i = clamp(pos[t] - pos[s] + n/2, 0, n - 1), so that n = 2 * seq_len - 1 has all distances.
 * It may be any value, such as a parameter; a gradient flows into it. No [T,S] array is made. An
 * element may be -INFINITY (not seen) as long as every query sees some key.
 * tt_alibi: minus distance times the head's slope, Press et al. 2022, arXiv:2108.12409. */
TT_EXPORT tt_value *tt_alibi(tt_builder *b, tt_dim heads, int64_t n, int bidirectional);
/* T5's buckets of distances, each with a learned bias per head, Raffel et al. 2020, arXiv:1910.10683:
 * a parameter `name` [buckets, heads], as Hugging Face stores it. T5 has it once for all blocks, so
 * call it outside of them, and gives attention the scale 1. */
typedef struct tt_t5_bias_opts {
    int64_t buckets;      /* 0 = 32 */
    int64_t max_distance; /* all distances from here on share the last bucket; 0 = 128 */
    int bidirectional;    /* 1: the second half of the buckets is for keys after the query */
    tt_init init;         /* as tt_param_opts.init */
} tt_t5_bias_opts;
TT_EXPORT tt_value *tt_t5_bias(tt_builder *b, const char *name, tt_dim heads, int64_t n,
                               const tt_t5_bias_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
