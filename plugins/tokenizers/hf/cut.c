/* SPDX-License-Identifier: Apache-2.0 */
#include "normalize.h"
#include "subword.h"
#include <string.h>

/* Where a long text may be cut so that the ids of the parts are those of the whole. */

/* Every known pattern splits between a newline and a letter after it, and unless the character
 * before the newline is a space, matching never looks past the newline. Other expressions may look
 * anywhere. */
static bool may_cut(const hf_tokenizer *t)
{
    if (t->prefix_space)
        return false;
    for (size_t i = 0; i < t->n_splits; i++)
        if (t->splits[i].regex || t->splits[i].prefix_space)
            return false;
    const bool sought = t->raw.n_nodes > 1 || t->normalized.n_nodes > 1;
    for (size_t i = 0; sought && i < t->n_added; i++) {
        const hf_bytes *text = &t->added[i].sought;
        if (t->added[i].lstrip || (text->n && memchr(text->s, '\n', text->n)))
            return false;
    }
    return true;
}

size_t hf_cut(void *self, const char *text, size_t n, size_t from)
{
    const hf_tokenizer *t = self;
    const char *p;
    if (!may_cut(t) || n < 3)
        return n;
    for (size_t at = from > 2 ? from - 1 : 1; at + 1 < n; at = (size_t)(p - text) + 1) {
        p = memchr(text + at, '\n', n - 1 - at);
        if (!p)
            break;
        const unsigned char before = (unsigned char)p[-1], letter = (unsigned char)p[1] | 0x20;
        if (before > 0x20 && before < 0x7f && letter >= 'a' && letter <= 'z')
            return (size_t)(p - text) + 1;
    }
    return n;
}

