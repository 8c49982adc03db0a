/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_GGUF_ROPE_H
#define TT_MODELS_DECODER_GGUF_ROPE_H
#include "decoder_args.h"
#include "rope_config.h"
#include <math.h>
#include <ttrun/ops.h>

/* Scaled rotary positions in GGUF files, as keys or as tensors of factors. */

/* LongRoPE's keys; its divisors are the tensors of decoder_gguf_longrope(). */
static inline void decoder_add_gguf_longrope(json_text *t, const tt_rope_opts *r)
{
    const double original = rope_original(r);
    json_add(t,
             ", \"rope.scaling.type\": \"longrope\", "
             "\"rope.scaling.original_context_length\": %.0f, ",
             original);
    json_add_real(t, "rope.scaling.attn_factor",
                  r->attention_factor > 0.0 ? r->attention_factor
                  : r->factor > 1.0         ? sqrt(1.0 + log(r->factor) / log(original))
                                            : 1.0);
}

/* Which scalings an architecture of llama.cpp has as tensors. */
enum { DECODER_GGUF_LLAMA3 = 1, DECODER_GGUF_LONGROPE = 2 };

/* rope.scaling.*, for the scalings that llama.cpp has keys for; the others are tensors of factors. */
static inline tt_status decoder_add_gguf_scaling(json_text *t, const decoder *c, int factors,
                                                 tt_error *err)
{
    const tt_rope_opts *r = &c->rope;
    if ((r->scaling == TT_ROPE_LLAMA3 && !(factors & DECODER_GGUF_LLAMA3)) ||
        (r->scaling == TT_ROPE_LONGROPE && !(factors & DECODER_GGUF_LONGROPE)))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.rope_scaling: llama.cpp does not scale as \"%s\" in this "
                       "architecture",
                       r->scaling == TT_ROPE_LLAMA3 ? "llama3" : "longrope");
    if (r->scaling == TT_ROPE_LONGROPE)
        decoder_add_gguf_longrope(t, r);
    if (r->scaling == TT_ROPE_LINEAR || r->scaling == TT_ROPE_YARN) {
        json_add(t, ", \"rope.scaling.type\": \"%s\", ",
                 r->scaling == TT_ROPE_YARN ? "yarn" : "linear");
        json_add_real(t, "rope.scaling.factor", r->factor > 0.0 ? r->factor : 1.0);
    }
    if (r->scaling != TT_ROPE_YARN)
        return TT_OK;
    if (r->no_truncate || r->attention_factor > 0.0)
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "model.args.rope_scaling: GGUF has no key for truncate and attention_factor");
    json_add(t, ", \"rope.scaling.original_context_length\": %.0f, ", rope_original(r));
    json_add_real(t, "rope.scaling.yarn_beta_fast", r->beta_fast > 0.0 ? r->beta_fast : 32.0);
    json_add(t, ", ");
    json_add_real(t, "rope.scaling.yarn_beta_slow", r->beta_slow > 0.0 ? r->beta_slow : 1.0);
    return TT_OK;
}

/* tt_model_gguf.vector: LongRoPE's divisors */
static inline int64_t decoder_gguf_longrope(const void *cfg, size_t i, const char **name,
                                            float *out, int64_t cap)
{
    const decoder *c = cfg;
    const double *from = i == 0 ? c->factors.long_factor : c->factors.short_factor;
    const int64_t n = c->rope.rotary_dim / 2;
    *name = i == 0 ? "rope_factors_long.weight" : "rope_factors_short.weight";
    if (i > 1 || c->rope.scaling != TT_ROPE_LONGROPE || n > cap)
        return 0;
    for (int64_t j = 0; j < n; j++)
        out[j] = (float)from[j];
    return n;
}

/* Llama 3's scaling: the number that each frequency is divided by. */
static inline int64_t decoder_rope_factors(const void *cfg, float *out, int64_t cap)
{
    const decoder *c = cfg;
    double plain[4096], scaled[4096];
    const int64_t n = c->head_dim / 2;
    tt_rope_opts r = c->rope; /* with its defaults filled in, as tt_rope_frequencies needs them */
    r.rotary_dim = c->head_dim;
    r.factor = r.factor > 0.0 ? r.factor : 1.0;
    r.low_freq_factor = r.low_freq_factor > 0.0 ? r.low_freq_factor : 1.0;
    r.high_freq_factor = r.high_freq_factor > 0.0 ? r.high_freq_factor : 4.0;
    r.original_max_position = rope_original(&r);
    if (c->rope.scaling != TT_ROPE_LLAMA3 || n > cap || n > (int64_t)TT_COUNT(plain))
        return 0;
    tt_rope_frequencies(&r, scaled, n);
    r.scaling = TT_ROPE_NONE;
    tt_rope_frequencies(&r, plain, n);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(plain[i] / scaled[i]);
    return n;
}

#endif
