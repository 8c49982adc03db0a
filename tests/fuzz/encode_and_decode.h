/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FUZZ_ENCODE_AND_DECODE_H
#define TT_FUZZ_ENCODE_AND_DECODE_H

/* Encodes a text, and decodes its ids, each as the first of a text, too. The includer has hf.h. */
static inline void encode_and_decode(hf_tokenizer *t, const uint8_t *text, size_t n)
{
    tt_ids ids = {0};
    tt_error err = {0};
    tt_tokenizer_info i = {.struct_size = sizeof i};
    char buf[64];
    info(t, &i);
    if (hf_encode(t, (const char *)text, n, &ids, &err) != TT_OK)
        TT_ASSERT(err.text[0] && ids.n == 0);
    for (size_t k = 0; k < ids.n; k++) {
        TT_ASSERT(ids.ids[k] >= 0 && ids.ids[k] < i.vocab_size);
        TT_ASSERT(hf_decode_token(t, ids.ids[k], buf, sizeof buf) <= sizeof buf);
        TT_ASSERT(hf_decode_first(t, ids.ids[k], buf, sizeof buf) <= sizeof buf);
    }
    tt_ids_free(&ids);
}

#endif
