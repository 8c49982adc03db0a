/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/gguf_vocab.h"
#include <string.h>

/* Tokenizers of SentencePiece's kinds as GGUF keys: llama.cpp has their algorithms, and the file has the pieces. */

#define MARK "\xe2\x96\x81" /* U+2581 stands for a blank */

/* A text of the arena. llama.cpp seeks user-defined tokens before it turns blanks into U+2581. U+0000 is c0 80, as
 * in gguf.c. */
static const char *spelt(tt_arena *a, tt_text text, bool user)
{
    tt_str out = {0};
    for (size_t i = 0; i < text.n; i++) {
        if (user && text.n - i >= 3 && !memcmp(text.s + i, MARK, 3)) {
            tt_str_addc(&out, ' ');
            i += 2;
        } else if (text.s[i] == '\0') {
            tt_str_add(&out, "\xc0\x80");
        } else {
            tt_str_addc(&out, text.s[i]);
        }
    }
    const char *own = tt_arena_str(a, tt_str_get(&out));
    tt_str_free(&out);
    return own;
}

static tt_status read_pieces(tt_gguf *g, const tt_gguf_tokenizer *t, tt_gguf_tokens *to,
                             int32_t *unknown, tt_error *err)
{
    for (int64_t i = 0; i < t->info->vocab_size; i++) {
        tt_vocab_piece p = {.struct_size = sizeof p};
        if (!t->vt->piece(t->self, (int32_t)i, &p))
            continue;
        if (i >= to->n && p.kind == TT_PIECE_CONTROL)
            continue; /* the model has no row for it */
        if (i >= to->n)
            return TT_FAIL(err, TT_EFORMAT,
                           "%s: token '%.*s' has the id %lld, and the model has %lld rows", t->path,
                           (int)TT_MIN(p.text.n, (size_t)40), p.text.s, (long long)i,
                           (long long)to->n);
        to->texts[i] = spelt(g->arena, p.text, p.kind == TT_PIECE_USER);
        to->kinds[i] = p.kind;
        to->scores[i] = (float)p.score;
        if (p.kind == TT_PIECE_UNKNOWN)
            *unknown = (int32_t)i;
    }
    return TT_OK;
}

tt_status tt_gguf_pieces(tt_gguf *g, const tt_gguf_tokenizer *t, const tt_pieces *form,
                         int64_t n_vocab, tt_error *err)
{
    const bool unigram = form->kind == TT_PIECES_UNIGRAM;
    tt_gguf_tokens tokens = tt_gguf_tokens_new(g->arena, n_vocab);
    int32_t unknown = -1;
    TT_TRY(read_pieces(g, t, &tokens, &unknown, err));
    tt_gguf_string(g, "tokenizer.ggml.model", unigram ? "t5" : "llama");
    tt_gguf_string(g, "tokenizer.ggml.pre", "default");
    tt_gguf_strings(g, "tokenizer.ggml.tokens", tokens.texts, (size_t)n_vocab);
    tt_gguf_f32s(g, "tokenizer.ggml.scores", tokens.scores, (size_t)n_vocab);
    tt_gguf_i32s(g, "tokenizer.ggml.token_type", tokens.kinds, (size_t)n_vocab);
    tt_gguf_bool(g, "tokenizer.ggml.add_space_prefix", form->blank_before);
    if (unigram)
        tt_gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", form->one_blank);
    if (form->map.n)
        tt_gguf_u8s(g, "tokenizer.ggml.precompiled_charsmap", (const uint8_t *)form->map.s,
                    form->map.n);
    if (unknown >= 0)
        tt_gguf_u32(g, "tokenizer.ggml.unknown_token_id", (uint32_t)unknown);
    if (form->blank_before && form->first_only)
        tt_log(TT_INFO, "checkpoint",
               "%s puts a blank before a text; llama.cpp puts one after special tokens, too",
               t->path);
    return TT_OK;
}
