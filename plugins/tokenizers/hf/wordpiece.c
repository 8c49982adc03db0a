/* SPDX-License-Identifier: Apache-2.0 */
#include "subword.h"

/* WordPiece: the longest token that a word begins with, then the longest one with the prefix of
 * inner tokens, and so on. A word that cannot be cut in this way is one unk. */

/* The longest token at s below `node`: its id, and *bytes of it; -1: none. */
static int32_t longest_token(const hf_tree *t, uint32_t node, const uint8_t *s, size_t n,
                             size_t *bytes)
{
    int32_t id = -1;
    for (size_t i = 0; i < n && (node = hf_tree_next(t, node, s[i])) != 0; i++)
        if (t->units[node].id >= 0) {
            id = t->units[node].id;
            *bytes = i + 1;
        }
    return id;
}

static bool too_long(const uint8_t *s, size_t n, size_t most)
{
    size_t chars = 0;
    for (size_t i = 0; i < n && chars <= most; i++)
        chars += (s[i] & 0xc0) != 0x80;
    return chars > most;
}

tt_status hf_wordpiece(const hf_tokenizer *t, const uint8_t *s, size_t n, tt_ids *out,
                       tt_error *err)
{
    const hf_subword *m = t->subword;
    const size_t before = out->n;
    if (too_long(s, n, m->most_chars))
        return tt_ids_push(out, m->unk, err);
    for (size_t at = 0, bytes = 0; at < n; at += bytes) {
        int32_t id = -1;
        if (at == 0 || m->inner != UINT32_MAX)
            id = longest_token(&m->tree, at ? m->inner : 0, s + at, n - at, &bytes);
        if (id < 0) {
            out->n = before;
            return tt_ids_push(out, m->unk, err);
        }
        TT_TRY(tt_ids_push(out, id, err));
    }
    return TT_OK;
}
