/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_H
#define TT_MODELS_DECODER_H
#include "mtp.h"

/* What Llama and the models derived from it share: a decoder with grouped-query attention, a gated
 * feed-forward layer, RMSNorm and rotary positions, under Hugging Face's names. A model's own file
 * has its flavors, its defaults and its differences (decoder_kind in decoder_block.h). T tokens, D
 * width, V vocabulary. Source: Touvron et al. 2023, arXiv:2302.13971. */

/* The root of D in the dtype of the embeddings: transformers rounds it, too. */
static inline double decoder_embedding_scale(const decoder *c, tt_dtype dtype)
{
    const float scale = (float)sqrt((double)c->dim);
    uint32_t bits;
    float rounded;
    memcpy(&bits, &scale, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u; /* halves to even */
    memcpy(&rounded, &bits, sizeof rounded);
    return (double)(dtype == TT_BF16 ? rounded : scale);
}

/* x [T,D] after its norm → logits [T,V]; w: the embedding */
static inline tt_value *decoder_head(tt_builder *b, const decoder *c, const decoder_init *init,
                                     tt_value *w, tt_value *x)
{
    const tt_dim V = TT_DIM(c->vocab_size, "vocab");
    x = c->tie_embeddings ? tt_linear_w(b, x, w)
                          : tt_linear(b, x, "lm_head", V, &(tt_linear_opts){.init = init->head});
    const double cap = c->final_logit_softcapping; /* NaN: none */
    return cap > 0.0 ? tt_scale(b, tt_tanh(b, tt_scale(b, x, 1.0 / cap)), cap) : x;
}

/* state: the argument of kind->feed_forward */
static inline void decoder_describe_with(const decoder_kind *kind, const decoder *c, tt_builder *b,
                                         void *state)
{
    const tt_dim V = TT_DIM(c->vocab_size, "vocab"), table[] = {V, TT_DIM(c->dim, "embed")};
    const decoder_init ends = kind->init(c, 0);
    const tt_param_opts embedding = {.init = ends.embedding, .tags = "embedding"};
    tt_value *w = tt_param(b, "model.embed_tokens.weight", table, 2, &embedding);
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), w); /* [T,D] */
    if (kind->scaled_embedding)
        x = tt_scale(b, x, decoder_embedding_scale(c, tt_value_type(x)->dtype));
    for (int64_t i = 0; i < c->n_layers; i++)
        x = decoder_block(b, kind, c, i, x, state);
    tt_value *ahead[MTP_MOST];
    mtp_blocks(b, kind, c, w, x, state, ahead);
    x = decoder_norm(b, kind, c, x, "model.norm");
    tt_output(b, "logits", decoder_head(b, c, &ends, w, x));
    for (int k = 1; k <= c->mtp_blocks && tt_builder_mode(b) == TT_BUILD_TRAIN; k++) {
        char name[16];
        snprintf(name, sizeof name, "logits+%d", k);
        tt_output(b, name, decoder_head(b, c, &ends, w, ahead[k - 1]));
    }
}

static inline void decoder_describe(const decoder_kind *kind, const decoder *c, tt_builder *b)
{
    decoder_describe_with(kind, c, b, NULL);
}

#endif
