/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/decoder.h"

tt_decoder tt_decoder_of(const tt_tokenizer_vt *vt, void *tokenizer, const tt_tokenizer_info *info)
{
    return (tt_decoder){.vt = vt,
                        .tokenizer = tokenizer,
                        .vocab = info->vocab_size,
                        .trims_begin = info->trims_begin == 1};
}

void tt_decoder_show(const tt_decoder *d, int32_t id, tt_str *out)
{
    tt_decoder copy = *d;
    tt_decoder_add(&copy, id, out);
}

void tt_decoder_add(tt_decoder *d, int32_t id, tt_str *out)
{
    char piece[4096];
    if (!d->vt || id < 0 || id >= d->vocab)
        return;
    size_t n = d->vt->decode(d->tokenizer, id, piece, sizeof piece);
    if (n && !d->begun && TT_HAS(d->vt, tt_tokenizer_vt, decode_first) && d->vt->decode_first) {
        n = d->vt->decode_first(d->tokenizer, id, piece, sizeof piece);
        d->begun = n || !d->trims_begin;
    } else if (n) {
        d->begun = true;
    }
    tt_str_addn(out, piece, TT_MIN(n, sizeof piece));
}

void tt_decoder_pass(tt_decoder *d, const int32_t *ids, size_t n)
{
    tt_str text = {0};
    for (size_t i = 0; i < n && !d->begun; i++)
        tt_decoder_add(d, ids[i], &text);
    tt_str_free(&text);
}
