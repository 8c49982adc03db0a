/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: one token per byte; 256 begins and 257 ends a document. */
#include <string.h>
#include <ttrun/tokenizer.h>

static tt_status open_tokenizer(const void *cfg, void **self, tt_error *err)
{
    (void)cfg;
    (void)err;
    *self = NULL; /* no tables to load */
    return TT_OK;
}

static void close_tokenizer(void *self)
{
    (void)self;
}

static void info(void *self, tt_tokenizer_info *out)
{
    (void)self;
    out->vocab_size = 258;
    out->bos = 256;
    out->eos = 257;
    out->pad = -1;
    strcpy(out->fingerprint, "@NAME@-1"); /* part of cache keys: change it when an id changes */
}

static tt_status encode(void *self, const char *text, size_t n, tt_ids *out, tt_error *err)
{
    (void)self;
    for (size_t i = 0; i < n; i++)
        TT_TRY(tt_ids_push(out, (unsigned char)text[i], err));
    return TT_OK;
}

static size_t decode(void *self, int32_t id, char *buf, size_t cap)
{
    (void)self;
    if (id < 0 || id > 255 || cap < 1)
        return 0;
    buf[0] = (char)id;
    return 1;
}

static const tt_tokenizer_vt vt = {
    sizeof(vt), open_tokenizer, close_tokenizer, info, encode, decode, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
};
static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_TOKENIZER, "@NAME@", "bytes", &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
