/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_LOAD_H
#define TT_TOKENIZER_HF_LOAD_H
#include "hf.h"
#include <jansson.h>

/* Reads tokenizer.json. Errors have the form "FILE: json.path: what". */

typedef struct hf_file {
    const char *name;
    tt_error *err;
    const char *merges; /* the file of the merges, a line each; NULL: they are in model.merges */
} hf_file;

/* A 128-bit hash of everything that determines ids; not cryptographic. */
typedef struct hf_digest {
    uint64_t a, b;
} hf_digest;
void hf_digest_bytes(hf_digest *d, const void *s, size_t n);
void hf_digest_string(hf_digest *d, const char *s, size_t n); /* hashes the length too */
void hf_digest_text(hf_digest *d, const char *s);             /* … of a C string */
void hf_digest_number(hf_digest *d, int64_t v);

/* A token's text for an error message: short, without control characters. */
typedef struct hf_shown {
    char text[64];
} hf_shown;
hf_shown hf_show(const char *text, size_t n);

/* ---- load_config.c: the files beside a tokenizer ---- */

typedef enum hf_config_file {
    HF_TOKENIZER_CONFIG, /* tokenizer_config.json   */
    HF_SPECIAL_MAP,      /* special_tokens_map.json */
    HF_ADDED_TOKENS,     /* added_tokens.json       */
    HF_N_CONFIGS,
} hf_config_file;
extern const char *const hf_config_names[HF_N_CONFIGS];

typedef struct hf_configs {
    char *names[HF_N_CONFIGS];   /* for messages */
    json_t *roots[HF_N_CONFIGS]; /* NULL: there is no such file */
} hf_configs;
void hf_configs_release(hf_configs *c);
/* The token that the files name as bos_token, unk_token, …: its text or an object with its content;
 * NULL: none. *file: where it is named. special_tokens_map.json counts where tokenizer_config.json
 * has no added_tokens_decoder, and before that file, as in transformers. */
const json_t *hf_configs_token(const hf_configs *c, const char *key, hf_config_file *file);
/* bos, eos and pad */
tt_status hf_load_configs(hf_tokenizer *t, const hf_configs *c, tt_error *err);
/* t->begin and t->end: the special tokens that the post_processor of a tokenizer.json puts first and last. After the
 * tokens. */
void hf_load_begin(hf_tokenizer *t, const json_t *root);
/* t->omits_bos and t->adds_eos, by what the files say: add_bos_token and add_eos_token of tokenizer_config.json, else
 * t->begin and t->end. named: the job names a bos, which then begins texts. */
void hf_choose_begin(hf_tokenizer *t, const hf_configs *c, bool named);

/* ---- tokenizer.json ---- */

/* The object in a file's text. A number too large for its type is read as a real, which is an error
 * only if something asks for an integer there. */
tt_status hf_read_json(const char *name, const char *text, size_t n, json_t **out, tt_error *err);

#define HF_FAIL(f, ...) TT_FAIL((f)->err, TT_EFORMAT, __VA_ARGS__)
/* The text of a string without U+0000, which tokens may have, but no name and no pattern has; NULL:
 * v is not that. */
const char *hf_text_of(const json_t *v);
/* The "type" of a part, "" if it has none. */
const char *hf_type(const json_t *part);
/* The type of "model"; files of before 2021 have none, and its keys say it, as in Hugging Face
 * tokenizers. */
const char *hf_model_type(const json_t *model);
tt_status hf_bool(const hf_file *f, const json_t *object, const char *path, const char *key,
                  bool fallback, bool *out);

/* Each takes its part of root, a tokenizer.json. Splits come after the normalizer. */
tt_status hf_load_normalizer(hf_tokenizer *t, const hf_file *f, const json_t *root);
tt_status hf_load_decoder(hf_tokenizer *t, const hf_file *f, const json_t *root);
tt_status hf_load_model(hf_tokenizer *t, const hf_file *f, const json_t *root, hf_digest *d);
tt_status hf_load_splits(hf_tokenizer *t, const hf_file *f, const json_t *root, hf_digest *d);
/* Is it named as tiktoken files are, or is its first line one of theirs? */
bool hf_is_tiktoken(const char *path, const char *text, size_t n);
/* c: the configuration files in its folder, or NULL. */
tt_status hf_load_tiktoken(hf_tokenizer *t, const hf_options *o, const hf_configs *c,
                           const char *text, size_t n, hf_digest *d, tt_error *err);
bool hf_base64(const uint8_t *s, size_t n, uint8_t *out, size_t *n_out);

/* ---- load_subword.c ---- */

/* The models other than byte-level BPE: what tokenizer.json says of them. vocab: tokens and ids. */
tt_status hf_subword_begin(hf_tokenizer *t, const hf_file *f, const json_t *model);
tt_status hf_subword_tokens(hf_tokenizer *t, const hf_file *f, const json_t *model,
                            const json_t *vocab);
tt_status hf_subword_fallback(hf_tokenizer *t, const hf_file *f);
tt_status hf_subword_symbols(hf_tokenizer *t, const hf_file *f);
/* Unigram's list of [token, score] as an object of ids, which the caller releases. */
tt_status hf_unigram_vocab(hf_tokenizer *t, const hf_file *f, const json_t *model, json_t **out);
/* Sets a token of the vocabulary, which a word may equal. */
tt_status hf_set_token(hf_tokenizer *t, const hf_file *f, size_t id, const char *text, size_t n,
                       bool alphabet, bool in_words);
bool hf_byte_token(const uint8_t *s, size_t n, uint8_t *byte);

/* ---- beside.c: the tokens that the configs add to a vocabulary ---- */

typedef struct hf_beside {
    const char *path; /* the vocabulary's, for messages */
    /* the id of a text in the vocabulary; -1: none */
    json_int_t (*id_of)(void *arg, const char *text, size_t n);
    /* An id of the vocabulary is given to another text, a string that lives as long as the list. NULL:
     * hf_load_added refuses that. */
    tt_status (*rename)(void *arg, size_t id, const json_t *text, tt_error *err);
    void *arg;
    size_t n, n_ids; /* ids of the vocabulary; and with what is added, which hf_added_beside sets */
} hf_beside;
/* *list, which the caller releases, also after a failure: the added tokens, as tokenizer.json has
 * them; NULL: c is NULL. */
tt_status hf_added_beside(hf_beside *b, const hf_configs *c, json_t **list, tt_error *err);

/* ---- load_sentencepiece.c: tokenizer.model ---- */

bool hf_is_sentencepiece(const char *text, size_t n);
/* c: the configuration files in its folder, or NULL. */
tt_status hf_load_sentencepiece(hf_tokenizer *t, const char *text, size_t n, const hf_configs *c,
                                hf_digest *d, tt_error *err);
/* drop_first: the blank that was put before the text. unk_text: what an unknown token shows. */
tt_status hf_sentencepiece_decoder(hf_tokenizer *t, bool drop_first, const char *unk_text,
                                   size_t n_unk, tt_error *err);

/* ---- load_pair.c: vocab.json and merges.txt ---- */

/* text: of vocab.json, t->path. Special tokens that no file names are put into c. */
tt_status hf_load_pair(hf_tokenizer *t, const char *text, size_t n, hf_configs *c, hf_digest *d,
                       tt_error *err);

/* ---- load_tiktoken_beside.c: what a folder says of a tiktoken file ---- */

typedef enum hf_reserved {
    HF_RESERVED_NONE,
    HF_RESERVED_KIMI, /* 256 ids */
    HF_RESERVED_QWEN, /* 208 ids */
} hf_reserved;

typedef struct hf_tiktoken_rule {
    const char *pattern; /* a family's name */
    bool nfc;
    hf_reserved reserved;
    const char *bos, *eos; /* if no file names others; NULL: none */
} hf_tiktoken_rule;
/* The rule of tokenizer_config.json's tokenizer_class; TT_EINVAL, TT_EUNSUPPORTED: none is known. */
tt_status hf_tiktoken_rule_of(const hf_tokenizer *t, const hf_configs *c, hf_tiktoken_rule *out,
                              tt_error *err);
/* Adds the class's own special tokens and those of the files. */
tt_status hf_tiktoken_added(hf_tokenizer *t, const hf_file *f, const hf_tiktoken_rule *rule,
                            const hf_configs *c, hf_digest *d);

/* ---- load.c ---- */

/* *text, which the caller frees, is NULL if the file does not exist and need not. */
tt_status hf_read_file(const char *path, bool must, char **text, size_t *n, tt_error *err);
/* The path of another file of the folder; the caller frees it; NULL: out of memory. */
char *hf_path_beside(const char *path, const char *name);
/* Loads what a tokenizer.json holds. */
tt_status hf_load_root(hf_tokenizer *t, const hf_file *f, const json_t *root, hf_digest *d);

/* added_tokens, in load_model.c; vocab: the texts and ids that the model has already, next: the
 * first id after the model's. */
tt_status hf_load_added(hf_tokenizer *t, const hf_file *f, const json_t *added, json_t *vocab,
                        json_int_t next, hf_digest *d);

/* The id of a token by its text, added tokens first; -1: not a token. */
int32_t hf_find_token(const hf_tokenizer *t, const char *text, size_t n);

#endif
