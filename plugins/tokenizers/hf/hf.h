/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_H
#define TT_TOKENIZER_HF_H
#include "unicode.h"
#include <stdbool.h>
#include <stdint.h>
#include <ttrun/tokenizer.h>

/* Byte-level BPE as tokenizer.json has it: added tokens → NFC → added tokens → splits → BPE of each
 * word. Everything in hf_tokenizer is fixed after open; what encode writes is in a hf_work, one for
 * each call under way. */

typedef struct hf_tokenizer hf_tokenizer;

/* ---- growing bytes ---- */

typedef struct hf_bytes {
    uint8_t *s;
    size_t n, cap;
} hf_bytes;
tt_status hf_bytes_room(hf_bytes *b, size_t more, tt_error *err); /* room for n + more */
tt_status hf_bytes_add(hf_bytes *b, const void *s, size_t n, tt_error *err);

/* ---- words (scan.c, regex.c) ---- */

/* Bytes of the match that begins at s, 0 = none begins here. s < end. */
typedef size_t (*hf_scan)(const uint16_t *flags, const uint8_t *s, const uint8_t *end);

/* What a pattern is written for. */
typedef enum hf_dialect {
    HF_ONIGURUMA,
    HF_RUST,
    HF_LITERAL,
} hf_dialect;

typedef struct hf_pattern { /* a pattern that has a scanner */
    const char *name, *regex;
    hf_scan scan;
    hf_dialect dialect; /* HF_RUST: written as tiktoken has it */
} hf_pattern;
const hf_pattern *hf_pattern_find(const char *regex);
extern const hf_pattern hf_patterns[];
extern const size_t hf_n_patterns;

typedef struct hf_regex hf_regex;
typedef struct hf_matcher hf_matcher; /* what one thread needs to run one: match data, stack */
tt_status hf_regex_new(const char *pattern, hf_dialect dialect, hf_regex **out, tt_error *err);
void hf_regex_free(hf_regex *r);
tt_status hf_matcher_new(const hf_regex *r, hf_matcher **out, tt_error *err);
void hf_matcher_free(hf_matcher *m);
/* The first non-empty match in s[from, n): *begin == n when there is none. */
tt_status hf_regex_find(const hf_regex *r, hf_matcher *m, const uint8_t *s, size_t n, size_t from,
                        size_t *begin, size_t *end, tt_error *err);

typedef struct hf_split { /* one step of the pre-tokenizer */
    hf_scan scan;         /* or else the regex */
    hf_regex *regex;
    bool keep_matches, keep_gaps;
    bool prefix_space; /* ByteLevel's add_prefix_space comes before this split */
} hf_split;
#define HF_MAX_SPLITS 16

/* Ways to cut texts into words by the name of the model that has them (family.c). */
typedef struct hf_family {
    const char *name, *steps[3]; /* names of patterns, one after the other */
    bool nfc;
    bool json; /* may be written to a tokenizer.json; false: Oniguruma would read it otherwise */
} hf_family;
/* By name; NULL and a line with all names: none. json: only such. */
tt_status hf_family_find(const char *name, bool json, const hf_family **out, tt_error *err);
bool hf_is_name(const char *pattern); /* letters, digits, - and _: no expression is so plain */
const hf_pattern *hf_pattern_named(const char *name);
/* Splits for a family's name or else an expression. [setup] */
tt_status hf_set_splits(hf_tokenizer *t, const char *pattern, bool json, hf_dialect dialect,
                        tt_error *err);

/* ---- BPE (bpe.c, bpe_long.c, vocab.c) ---- */

typedef struct hf_slot { /* of the merges: open addressing, empty where rank is UINT32_MAX */
    uint32_t left, right, rank, id;
} hf_slot;

typedef struct hf_token {
    uint32_t at, n;    /* its bytes in vocab.bytes; n == 0 in a gap */
    bool known, spelt; /* in the file; spelt: in the alphabet of bytes, so words may equal it */
    bool special;      /* no text when decoded */
} hf_token;

typedef struct hf_vocab {
    hf_token *tokens; /* [n_ids] */
    size_t n_ids;     /* highest id + 1, added tokens included */
    hf_bytes bytes;
    uint32_t *words; /* open addressing over the bytes of spelt tokens: id + 1, 0 = empty */
    size_t words_mask;
    hf_slot *merges;
    size_t merges_mask;
    uint32_t n_ranks;        /* highest rank + 1 */
    uint8_t beside[256][32]; /* bit b of row a: some merged token has the bytes a b in it */
    int32_t byte_ids[256];
    bool ignore_merges;
} hf_vocab;

tt_status hf_vocab_room(hf_vocab *v, size_t n, tt_error *err); /* words: of n tokens, none yet */
void hf_vocab_put(hf_vocab *v, uint32_t id);                   /* … and one of them, spelt */
tt_status hf_vocab_index(hf_vocab *v, tt_error *err); /* words, after all tokens are there */
int32_t hf_vocab_word(const hf_vocab *v, const uint8_t *s, size_t n); /* -1 = none */
tt_status hf_merges_new(hf_vocab *v, size_t n, tt_error *err);
/* Later duplicates win, as in the reference. */
void hf_merges_set(hf_vocab *v, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);
const hf_slot *hf_merges_get(const hf_vocab *v, uint32_t left, uint32_t right); /* NULL = none */
void hf_merges_finish(hf_vocab *v); /* beside; after all merges are set */
void hf_vocab_release(hf_vocab *v);
/* Token text in the alphabet of bytes (U+0100 … for the 68 bytes that do not print) → bytes; false:
 * some character is not in it. out has room for n bytes. */
bool hf_spell_bytes(const char *text, size_t n, uint8_t *out, size_t *n_out);
uint32_t hf_byte_letter(uint8_t byte); /* the character of the alphabet that stands for it */
uint64_t hf_hash(const void *s, size_t n);

/* Long words: a place is where a token begins. */
typedef struct hf_bpe_room {
    uint32_t *ids, *next, *prev;     /* [cap] */
    uint32_t *rank, *after, *before; /* [cap_lists] of the pair at a place; its list */
    uint32_t *first;                 /* [n_first] list of a rank; empty between calls */
    uint64_t *heap;
    size_t cap, cap_lists, n_first, n_heap, cap_heap;
} hf_bpe_room;
void hf_bpe_room_release(hf_bpe_room *r);
tt_status hf_bpe_long(const hf_vocab *v, hf_bpe_room *r, const uint8_t *s, size_t n, tt_ids *out,
                      tt_error *err);
#define HF_SHORT_WORD 48
#define HF_HEAP_WORD 4096
/* The ids of a word, appended. */
tt_status hf_bpe(const hf_vocab *v, hf_bpe_room *r, const uint8_t *s, size_t n, tt_ids *out,
                 tt_error *err);
uint32_t hf_rank_of(const hf_vocab *v, uint32_t left, uint32_t right, uint32_t *id);
/* ids has room for n ≤ HF_SHORT_WORD; returns how many. */
size_t hf_bpe_short(const hf_vocab *v, const uint8_t *s, size_t n, uint32_t *ids);

/* ---- added tokens (added.c) ---- */

typedef struct hf_added {
    hf_bytes content, sought; /* sought: in normal form where texts are */
    int32_t id;
    bool special, normalized, single_word, lstrip, rstrip;
} hf_added;

typedef struct hf_trie_node {
    uint32_t child, sibling; /* 0 = none; node 0 is the root */
    int32_t added;           /* index of the token that ends here, -1 */
    uint8_t byte;
} hf_trie_node;

typedef struct hf_trie { /* empty where n_nodes ≤ 1 */
    hf_trie_node *nodes;
    size_t n_nodes;
    uint32_t first[256]; /* the root's children */
} hf_trie;
tt_status hf_trie_new(const hf_added *added, size_t n, bool normalized, hf_trie *out,
                      tt_error *err);

/* The next added token from s + *search that counts: [*begin, *end) with the blanks it swallows,
 * *which; none: *begin == n, *which == -1. Text before `from` is spent. *search is past the token
 * without its blanks, so the next one may begin within them, as in the reference. */
void hf_added_find(const hf_tokenizer *t, const hf_trie *trie, const uint8_t *s, size_t n,
                   size_t from, size_t *search, size_t *begin, size_t *end, int32_t *which);

/* ---- the whole ---- */

struct hf_tokenizer {
    char *path;
    uint16_t *flags;
    hf_vocab vocab;
    hf_added *added;
    size_t n_added;
    hf_trie raw, normalized;
    bool nfc, allow_special;
    hf_split splits[HF_MAX_SPLITS];
    size_t n_splits;
    bool prefix_space; /* after the last split */
    int32_t bos, eos, pad;
    char fingerprint[33];
    struct hf_pool *pool;
};

typedef struct hf_options {
    const char *path;
    const char *bos_token, *eos_token, *pad_token;
    bool allow_special;
    const char *pattern, *special_tokens; /* of a tiktoken file; JSON: {"text": id} */
} hf_options;
tt_status hf_load(hf_tokenizer *t, const hf_options *o, tt_error *err);
/* fuzz and tests: the text of a tokenizer.json; config may be NULL */
tt_status hf_load_text(hf_tokenizer *t, const char *text, size_t n, const char *config,
                       size_t n_config, tt_error *err);
void hf_release(hf_tokenizer *t);

/* Zeroed, with room for the works of encode; NULL = out of memory. Ended by hf_close. */
hf_tokenizer *hf_new(void);
void hf_close(void *self);

/* The words of a text as encode would merge them, in order. Bytes that are no UTF-8 are not told
 * of. */
typedef tt_status (*hf_word_fn)(void *arg, const uint8_t *s, size_t n, tt_error *err);
tt_status hf_each_word(hf_tokenizer *t, const char *text, size_t n, hf_word_fn fn, void *arg,
                       tt_error *err);
size_t hf_cut(void *self, const char *text, size_t n, size_t from); /* tt_tokenizer_vt.cut */

tt_status hf_train(const tt_tokenizer_train *o, tt_error *err);

/* Text in normal form C: appended to out. */
tt_status hf_nfc(const uint16_t *flags, const uint8_t *s, size_t n, hf_bytes *out, tt_error *err);
bool hf_nfc_stable(const uint16_t *flags, const uint8_t *s, size_t n);

#endif
