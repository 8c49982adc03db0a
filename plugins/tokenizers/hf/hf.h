/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_H
#define TT_TOKENIZER_HF_H
#include "unicode.h"
#include "vocab.h"
#include <stdbool.h>
#include <stdint.h>
#include <ttrun/tokenizer.h>

/* Tokenizers as tokenizer.json describes them: added tokens → normalizer → added tokens →
 * pre-tokenizer, which splits the text into words → model, which turns a word into ids; and the
 * decoder. Everything in hf_tokenizer is fixed after open; encode writes only to an hf_work, one
 * per call in progress. */

typedef struct hf_tokenizer hf_tokenizer;
typedef struct hf_norm hf_norm;           /* normalize.h */
typedef struct hf_norm_room hf_norm_room; /* normalize.h */
typedef struct hf_subword hf_subword;     /* subword.h */
typedef struct hf_subword_room hf_subword_room;
typedef struct hf_pieces hf_pieces; /* pieces.c */

/* ---- words (scan.c, regex.c) ---- */

/* The length in bytes of the match that begins at s; 0: no match begins here. s < end. */
typedef size_t (*hf_scan)(const uint16_t *flags, const uint8_t *s, const uint8_t *end);

/* The regex engine that a pattern is written for. */
typedef enum hf_dialect {
    HF_ONIGURUMA,
    HF_RUST,
    HF_LITERAL,
} hf_dialect;

typedef struct hf_pattern { /* a pattern that has a hand-written scanner */
    const char *name, *regex;
    hf_scan scan;
    hf_dialect dialect; /* HF_RUST: as in tiktoken */
} hf_pattern;
const hf_pattern *hf_pattern_find(const char *regex);
extern const hf_pattern hf_patterns[];
extern const size_t hf_n_patterns;

typedef struct hf_regex hf_regex;
typedef struct hf_matcher hf_matcher; /* what one thread needs to run a regex: match data, stack */
tt_status hf_regex_new(const char *pattern, hf_dialect dialect, hf_regex **out, tt_error *err);
void hf_regex_free(hf_regex *r);
tt_status hf_matcher_new(const hf_regex *r, hf_matcher **out, tt_error *err);
void hf_matcher_free(hf_matcher *m);
/* The first non-empty match in s[from, n): *begin == n if there is none. */
tt_status hf_regex_find(const hf_regex *r, hf_matcher *m, const uint8_t *s, size_t n, size_t from,
                        size_t *begin, size_t *end, tt_error *err);

typedef enum hf_merging { /* of matches with their neighbours */
                          HF_ALONE,
                          HF_WITH_NEXT,
                          HF_WITH_PREVIOUS,
                          HF_CONTIGUOUS,
} hf_merging;

typedef struct hf_split { /* one step of the pre-tokenizer */
    hf_scan scan;         /* NULL: use the regex, or the one code point `point` */
    hf_regex *regex;
    uint32_t point;
    bool traits; /* scan takes hf_tokenizer.traits, not flags */
    bool blank;  /* the regex is the text " " */
    bool keep_matches, keep_gaps;
    hf_merging merging;
    bool prefix_space; /* ByteLevel's add_prefix_space comes before this split */
    /* Metaspace: blanks become this text first, which is also put before the piece: 'a'lways,
     * 'f'irst: if the piece begins the text, 'n'ever */
    char metaspace[5], prepend;
    bool whole; /* … and the piece is not split */
} hf_split;
#define HF_MAX_SPLITS 16
#define HF_MAX_NORMS 32
/* The scanners of the pre-tokenizers that have a name, over traits. */
size_t hf_scan_white(const uint16_t *traits, const uint8_t *s, const uint8_t *end);
size_t hf_scan_word(const uint16_t *traits, const uint8_t *s, const uint8_t *end);
size_t hf_scan_punctuation(const uint16_t *traits, const uint8_t *s, const uint8_t *end);
size_t hf_scan_bert_mark(const uint16_t *traits, const uint8_t *s, const uint8_t *end);
size_t hf_scan_digit(const uint16_t *traits, const uint8_t *s, const uint8_t *end);

/* The ways to split texts into words, by the name of the model that uses them (family.c). */
typedef struct hf_family {
    const char *name, *steps[3]; /* names of patterns, applied one after the other */
    bool nfc;
    /* it may be written to a tokenizer.json; false: Oniguruma would read it differently */
    bool json;
} hf_family;
/* Finds a family by name. *out is NULL, with an error that lists all names, if there is none. json:
 * only families that may be written to a tokenizer.json. */
tt_status hf_family_find(const char *name, bool json, const hf_family **out, tt_error *err);
/* only letters, digits, - and _? No expression is that plain */
bool hf_is_name(const char *pattern);
const hf_pattern *hf_pattern_named(const char *name);
/* Sets the splits of the family of this name, or else of this expression. [setup] */
tt_status hf_set_splits(hf_tokenizer *t, const char *pattern, bool json, hf_dialect dialect,
                        tt_error *err);

/* ---- added tokens (added.c) ---- */

typedef struct hf_added {
    /* sought: the content as it is searched, normalized if the texts are */
    hf_bytes content, sought;
    int32_t id;
    bool special, normalized, single_word, lstrip, rstrip;
} hf_added;

typedef struct hf_trie_node {
    uint32_t child, sibling; /* 0 = none; node 0 is the root */
    int32_t added;           /* index of the added token that ends here, or -1 */
    uint8_t byte;
} hf_trie_node;

typedef struct hf_trie { /* empty if n_nodes ≤ 1 */
    hf_trie_node *nodes;
    size_t n_nodes;
    uint32_t first[256]; /* the root's children */
} hf_trie;
tt_status hf_trie_new(const hf_added *added, size_t n, bool normalized, hf_trie *out,
                      tt_error *err);

/* Finds the next added token that counts, from s + *search on: [*begin, *end) including the spaces
 * it takes with it, and *which. If there is none: *begin == n, *which == -1. Text before `from` is
 * used already. *search becomes the end of the token without those spaces, so the next token may
 * begin within them, as in Hugging Face tokenizers. */
void hf_added_find(const hf_tokenizer *t, const hf_trie *trie, const uint8_t *s, size_t n,
                   size_t from, size_t *search, size_t *begin, size_t *end, int32_t *which);

/* ---- the decoder (decode.c) ---- */

/* The bytes of a token within a text, and at its beginning, where most decoders drop a blank. */
typedef struct hf_text {
    uint32_t at, n, first_at, first_n;
} hf_text;
size_t hf_decode_token(void *self, int32_t id, char *buf, size_t cap); /* tt_tokenizer_vt.decode */
size_t hf_decode_first(void *self, int32_t id, char *buf, size_t cap); /* … .decode_first */

/* ---- the whole ---- */

struct hf_tokenizer {
    char *path;
    uint16_t *flags;
    hf_vocab vocab;
    hf_added *added;
    size_t n_added;
    hf_trie raw, normalized;
    bool nfc, allow_special;
    hf_norm *norms; /* [n_norms]; none if NFC is the only step */
    size_t n_norms;
    uint16_t *traits; /* normalize.h; NULL: no step needs them */
    hf_split splits[HF_MAX_SPLITS];
    size_t n_splits;
    bool byte_level;
    bool prefix_space;   /* after the last split */
    hf_subword *subword; /* NULL: byte-level BPE */
    hf_text *texts;      /* [n_ids] what the decoder makes of a token; NULL: its bytes */
    hf_bytes text_bytes;
    bool trims_begin; /* tt_tokenizer_info.trims_begin */
    int32_t bos, eos, pad;
    int32_t begin; /* the id that tokenizer.json's post_processor puts before a text; -1: none; … */
#define HF_BEGIN_BOS (-2) /* … there is no such file: bos */
    int32_t end;          /* the id that it puts after a text; -1: none */
    bool omits_bos;       /* tt_tokenizer_info.omits_bos */
    bool adds_eos;        /* … .adds_eos */
    char fingerprint[33];
    struct hf_pool *pool;
    hf_pieces *pieces; /* NULL before hf_pieces_of */
};

typedef struct hf_options {
    const char *path;
    const char *bos_token, *eos_token, *pad_token;
    bool allow_special;
    /* for tiktoken files; special_tokens is JSON: {"text": id} */
    const char *pattern, *special_tokens;
} hf_options;
tt_status hf_load(hf_tokenizer *t, const hf_options *o, tt_error *err);
/* for fuzzing and tests: the text of a tokenizer.json; config may be NULL */
tt_status hf_load_text(hf_tokenizer *t, const char *text, size_t n, const char *config,
                       size_t n_config, tt_error *err);
void hf_release(hf_tokenizer *t);

/* A zeroed tokenizer with an empty pool; NULL: out of memory. hf_close frees it. */
hf_tokenizer *hf_new(void);
void hf_close(void *self);

/* Calls fn with the words of a text that encode would apply BPE to, in order. Bytes that are not
 * UTF-8 are left out. */
typedef tt_status (*hf_word_fn)(void *arg, const uint8_t *s, size_t n, tt_error *err);
tt_status hf_each_word(hf_tokenizer *t, const char *text, size_t n, hf_word_fn fn, void *arg,
                       tt_error *err);
size_t hf_cut(void *self, const char *text, size_t n, size_t from); /* tt_tokenizer_vt.cut */

tt_status hf_train(const tt_tokenizer_train *o, tt_error *err);

tt_status hf_pieces_of(void *self, tt_pieces *out, tt_error *err); /* tt_tokenizer_vt.pieces */
int hf_piece_of(void *self, int32_t id, tt_vocab_piece *out);      /* … .piece */
void hf_pieces_free(hf_pieces *p);

/* The length of SentencePiece's user-defined symbol that begins at s, the longest one, and its id;
 * 0: none. */
size_t hf_user_symbol(const hf_tokenizer *t, const uint8_t *s, size_t n, int32_t *id);

int hf_class_of(const uint16_t *flags, uint32_t c); /* combining class */
/* Appends the text in normalization form C to out. */
tt_status hf_nfc(const uint16_t *flags, const uint8_t *s, size_t n, hf_bytes *out, tt_error *err);
bool hf_nfc_stable(const uint16_t *flags, const uint8_t *s, size_t n);

#endif
