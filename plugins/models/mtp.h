/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_MTP_H
#define TT_MODELS_MTP_H
#include "decoder_block.h"

/* Multi-token prediction: M more blocks after a decoder's own, of which the k-th predicts from token t and
 * the k tokens after it the token t + k + 1:
 *
 *   h_k = norm_k(block_k(eh_proj_k [enorm_k(embedding of token t + k), hnorm_k(h_{k-1})]))
 *
 * h_0 is what the last block of the decoder gives, before its norm. All share the embedding and the head. Blocks
 * are numbered after the decoder's, with DeepSeek's names. The loss plugin adds the terms (outputs "logits+k");
 * where token t + k is of another document or sample, it has no label, and nothing else reads what is computed
 * there, since attention is causal. T tokens, D width. Sources: DeepSeek-AI 2024, arXiv:2412.19437, section 2.2;
 * torchtitan's models/deepseek_v3/mtp.py, for h_0 and norm_k. */

#define MTP_MOST 8

/* embedding [V,D], h [T,D] after block `layer` - 1 → h after block `layer`, which sees k tokens ahead */
static inline tt_value *mtp_block(tt_builder *b, const decoder_kind *kind, const decoder *c,
                                  tt_value *embedding, int64_t layer, int k, tt_value *h,
                                  void *state)
{
    const decoder_init init = kind->init(c, layer);
    const tt_linear_opts plain = {.init = init.plain};
    tt_block(b, "model.layers.%lld", (long long)layer);
    tt_value *both[2];
    both[0] = decoder_norm(b, kind, c, tt_embedding_w(b, tt_input_shifted(b, "ids", k), embedding),
                           "enorm");
    both[1] = decoder_norm(b, kind, c, h, "hnorm");
    h = tt_linear(b, tt_concat(b, both, 2, 1), "eh_proj", TT_DIM(c->dim, "embed"), &plain);
    h = decoder_block_inside(b, kind, c, layer, h, state);
    h = decoder_norm(b, kind, c, h, "shared_head.norm");
    tt_block_end(b);
    return h;
}

/* h: after the decoder's last block; out: what the heads read. */
static inline void mtp_blocks(tt_builder *b, const decoder_kind *kind, const decoder *c,
                              tt_value *embedding, tt_value *h, void *state, tt_value **out)
{
    for (int k = 1; k <= c->mtp_blocks; k++)
        h = out[k - 1] = mtp_block(b, kind, c, embedding, c->n_layers + k - 1, k, h, state);
}

#endif
