/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <ttrun/tokenizer.h>

/* byte: each byte is a token, 0–255; bos is 256, eos 257, pad 258; 259–261 are reserved. Any input
 * is valid. */

enum { BOS = 256, EOS = 257, PAD = 258, VOCAB = 262 };

static const char nothing; /* the tokenizer has no state */

static tt_status open_byte(const void *config, void **self, tt_error *err)
{
    (void)config;
    (void)err;
    *self = (void *)(uintptr_t)&nothing;
    return TT_OK;
}

static void close_byte(void *self)
{
    (void)self;
}

static void info(void *self, tt_tokenizer_info *out)
{
    (void)self;
    out->vocab_size = VOCAB;
    out->bos = BOS;
    out->eos = EOS;
    out->pad = PAD;
    /* "ttrun byte v1" in hex, padded: a constant, as all byte tokenizers are equal */
    memcpy(out->fingerprint, "747472756e206279746520763100000000", sizeof out->fingerprint - 1);
    out->fingerprint[sizeof out->fingerprint - 1] = '\0';
}

static tt_status byte_encode(void *self, const char *text, size_t n_bytes, tt_ids *out,
                             tt_error *err)
{
    (void)self;
    for (size_t i = 0; i < n_bytes; i++)
        TT_TRY(tt_ids_push(out, (unsigned char)text[i], err));
    return TT_OK;
}

static size_t byte_decode(void *self, int32_t id, char *buf, size_t cap)
{
    (void)self;
    if (id < 0 || id > 255 || cap == 0)
        return 0;
    buf[0] = (char)(unsigned char)id;
    return 1;
}

static size_t byte_cut(void *self, const char *text, size_t n_bytes, size_t from)
{
    (void)self;
    (void)text;
    return from < n_bytes ? from : n_bytes;
}

static const tt_tokenizer_vt vt = {.struct_size = sizeof vt,
                                   .open = open_byte,
                                   .close = close_byte,
                                   .info = info,
                                   .encode = byte_encode,
                                   .decode = byte_decode,
                                   .cut = byte_cut};

static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_TOKENIZER, "byte", "one token per byte; vocabulary 262", &vt),
};

TT_PLUGIN("byte", "1.0", components);
