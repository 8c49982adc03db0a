/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_BYTES_TOKENIZER_H
#define TT_TESTS_BYTES_TOKENIZER_H
#include <ttrun/tokenizer.h>

/* A tokenizer for tests of loaders: a byte is its value; bos 256 and eos 257. It has no state. */

static void bytes_info(void *self, tt_tokenizer_info *out)
{
    (void)self;
    out->vocab_size = 258;
    out->bos = 256;
    out->eos = 257;
}

static tt_status bytes_encode(void *self, const char *text, size_t n, tt_ids *out, tt_error *err)
{
    (void)self;
    for (size_t i = 0; i < n; i++)
        TT_TRY(tt_ids_push(out, (unsigned char)text[i], err));
    return TT_OK;
}

static size_t bytes_decode(void *self, int32_t id, char *out, size_t cap)
{
    (void)self;
    if (id > 255 || !cap)
        return id <= 255;
    *out = (char)id;
    return 1;
}

static const tt_tokenizer_vt bytes_tokenizer = {.struct_size = sizeof bytes_tokenizer,
                                                .info = bytes_info,
                                                .encode = bytes_encode,
                                                .decode = bytes_decode};

#endif
