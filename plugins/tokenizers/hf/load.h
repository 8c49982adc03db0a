/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_LOAD_H
#define TT_TOKENIZER_HF_LOAD_H
#include "hf.h"
#include <jansson.h>

/* Reading tokenizer.json. Errors are "FILE: json.path: what". */

typedef struct hf_file {
    const char *name;
    tt_error *err;
} hf_file;

/* 128 bits of all that determines ids; not against an adversary. */
typedef struct hf_digest {
    uint64_t a, b;
} hf_digest;
void hf_digest_bytes(hf_digest *d, const void *s, size_t n);
void hf_digest_text(hf_digest *d, const char *s); /* with its length */
void hf_digest_number(hf_digest *d, int64_t v);

/* A token's text for an error: short, no control characters. */
typedef struct hf_shown {
    char text[64];
} hf_shown;
hf_shown hf_show(const char *text, size_t n);

/* The object in a file's text. A number too large for its type is read as a real: it is an error
 * only where something asks for it. */
tt_status hf_read_json(const char *name, const char *text, size_t n, json_t **out, tt_error *err);

#define HF_FAIL(f, ...) TT_FAIL((f)->err, TT_EFORMAT, __VA_ARGS__)
/* "type" of a part, "" where it has none. */
const char *hf_type(const json_t *part);
tt_status hf_bool(const hf_file *f, const json_t *object, const char *path, const char *key,
                  bool fallback, bool *out);

tt_status hf_load_model(hf_tokenizer *t, const hf_file *f, const json_t *root, hf_digest *d);
tt_status hf_load_splits(hf_tokenizer *t, const hf_file *f, const json_t *root, hf_digest *d);
bool hf_is_tiktoken(const char *text, size_t n); /* by its first character */
tt_status hf_load_tiktoken(hf_tokenizer *t, const hf_options *o, const char *text, size_t n,
                           hf_digest *d, tt_error *err);
/* Id of a token by its text, added ones first; -1. */
int32_t hf_find_token(const hf_tokenizer *t, const char *text, size_t n);

#endif
