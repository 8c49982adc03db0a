/* SPDX-License-Identifier: Apache-2.0 */
#include "normalize.h"
#include "subword.h"
#include <string.h>

/* Where a long text may be cut so that the ids of the parts are those of the whole. */

/* Added tokens must neither contain the place nor reach over it. */
static bool tokens_allow(const hf_tokenizer *t)
{
    const bool sought = t->raw.n_nodes > 1 || t->normalized.n_nodes > 1;
    for (size_t i = 0; sought && i < t->n_added; i++) {
        const hf_bytes *text = &t->added[i].sought;
        if (t->added[i].lstrip || (text->n && memchr(text->s, '\n', text->n)))
            return false;
    }
    return true;
}

/* Every known pattern splits between a newline and a letter after it, and unless the character
 * before the newline is a space, matching never looks past the newline. Other expressions may look
 * anywhere. */
static bool bytes_allow(const hf_tokenizer *t)
{
    if (t->prefix_space || t->n_norms)
        return false;
    for (size_t i = 0; i < t->n_splits; i++) {
        const hf_split *s = &t->splits[i];
        if (s->regex || s->prefix_space || s->metaspace[0] || s->merging)
            return false;
    }
    return true;
}

/* A pre-tokenizer drops the newline, and no step before it looks past a newline. */
static bool white_allows(const hf_tokenizer *t)
{
    for (size_t i = 0; i < t->n_norms; i++)
        if (t->norms[i].kind == HF_STRIP || t->norms[i].kind == HF_NMT ||
            t->norms[i].kind >= HF_REPLACE)
            return false;
    return t->n_splits && (t->splits[0].scan == hf_scan_white || t->splits[0].scan == hf_scan_word);
}

/* The text is one word, and no merge joins the newline with the letter. */
static bool merges_allow(const hf_tokenizer *t, uint8_t letter)
{
    const hf_subword *m = t->subword;
    if (m->kind != HF_CHARS || m->sentencepiece || m->whole || t->vocab.ignore_merges)
        return false;
    for (size_t i = 0; i < t->n_norms; i++) {
        const hf_norm *p = &t->norms[i];
        if (p->kind != HF_REPLACE || p->regex || p->from.n != 1 || p->from.s[0] != ' ')
            return false;
    }
    for (size_t i = 0; i < t->n_splits; i++)
        if (!t->splits[i].blank)
            return false;
    return m->symbols[letter] && hf_apart(m, '\n', letter);
}

size_t hf_cut(void *self, const char *text, size_t n, size_t from)
{
    const hf_tokenizer *t = self;
    const char *p;
    const bool any = t->subword ? white_allows(t) : bytes_allow(t);
    if (!tokens_allow(t) || n < 3 || (!any && !(t->subword && t->subword->kind == HF_CHARS)))
        return n;
    for (size_t at = from > 2 ? from - 1 : 1; at + 1 < n; at = (size_t)(p - text) + 1) {
        p = memchr(text + at, '\n', n - 1 - at);
        if (!p)
            break;
        const unsigned char before = (unsigned char)p[-1], letter = (unsigned char)p[1] | 0x20;
        if (before > 0x20 && before < 0x7f && letter >= 'a' && letter <= 'z' &&
            (any || merges_allow(t, (uint8_t)p[1])))
            return (size_t)(p - text) + 1;
    }
    return n;
}
