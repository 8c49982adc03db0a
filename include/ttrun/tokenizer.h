/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_TOKENIZER_H
#define TTRUN_TOKENIZER_H
#include <ttrun/plugin.h>

/* A tokenizer turns text into token ids and back, and may be trained on texts. */

/* The files of a folder, as the hub has them, from which the plugin hf reads a tokenizer: the first one
 * that is there. vocab.json needs merges.txt beside it. */
#define TT_TOKENIZER_FILES                                                                         \
    "tokenizer.json", "tokenizer.model", "tiktoken.model", "qwen.tiktoken", "vocab.json"
/* The files beside it that belong to it: this plugin reads them, or Hugging Face's programs do. */
#define TT_TOKENIZER_BESIDE                                                                        \
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt",         \
        "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "tekken.json"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_tokenizer_info {
    size_t struct_size;
    int64_t vocab_size;    /* largest id + 1, added tokens included */
    int32_t bos, eos, pad; /* -1 = none */
    char fingerprint[33];  /* hex; two tokenizers with equal ones give equal ids (for caches) */
    /* 1: decode_first is for every id until the text has a byte, not for one id: the tokenizer drops
     * all blanks at the beginning of a text. */
    int32_t trims_begin;
    /* 1: a text or document does not begin with bos, which only templates and options put somewhere.
     * 0: it begins with bos, if there is one. encode leaves that to the caller. */
    int32_t omits_bos;
    /* 1: the tokenizer's own programs put eos after every text, also one that is to be continued. encode does not. */
    int32_t adds_eos;
} tt_tokenizer_info;

/* A growable list of ids, zero at first. Owner: the caller, by tt_ids_free; it grows by tt_ids_push
 * only, whose error is TT_ENOMEM. */
typedef struct tt_ids {
    int32_t *ids;
    size_t n, cap;
} tt_ids;
TT_EXPORT tt_status tt_ids_push(tt_ids *list, int32_t id, tt_error *err);
TT_EXPORT void tt_ids_free(tt_ids *list);

typedef struct tt_text {
    const char *s;
    size_t n;
} tt_text;

/* A special token, which text never stands for by itself: of bos, of the end of a turn. */
#define TT_SPECIAL_STRIPS_LEFT 1  /* takes the blanks before it */
#define TT_SPECIAL_STRIPS_RIGHT 2 /* … after it */
typedef struct tt_special {
    size_t struct_size;
    tt_text text; /* lives as long as the tokenizer */
    int32_t id;
    int32_t strips; /* of TT_SPECIAL_STRIPS_… */
} tt_special;

/* What a tokenizer does to a text, for programs that have the algorithm and take its tokens from a file. Blanks are U+2581
 * in the tokens. */
typedef enum tt_pieces_kind {
    TT_PIECES_MERGES, /* byte-level BPE: its merges, and how it cuts texts into words, stand in its files */
    /* of neighbours, those whose join is the piece of highest score are joined first; a character that is no piece becomes
     * the pieces of its bytes */
    TT_PIECES_BPE,
    TT_PIECES_UNIGRAM
} tt_pieces_kind;
typedef struct tt_pieces {
    size_t struct_size;
    int32_t kind; /* a tt_pieces_kind */
    int32_t
        blank_before; /* 1: a blank is put before a text, and before what follows a special token, … */
    int32_t first_only; /* … or 1: not there */
    int32_t one_blank;  /* 1: several blanks become one, and those at both ends are dropped */
    int32_t nfc;        /* 1: texts are first brought into the normalization form C */
    tt_text
        map; /* SentencePiece's precompiled_charsmap, or n = 0; lives as long as the tokenizer */
} tt_pieces;
typedef enum tt_piece_kind { /* the numbers of SentencePiece */
                             TT_PIECE_NORMAL = 1,
                             TT_PIECE_UNKNOWN,
                             TT_PIECE_CONTROL, /* no text stands for it by itself */
                             TT_PIECE_USER,    /* texts are cut at it before anything else */
                             TT_PIECE_UNUSED,
                             TT_PIECE_BYTE
} tt_piece_kind;
typedef struct tt_vocab_piece {
    size_t struct_size;
    tt_text text; /* lives as long as the tokenizer */
    double score;
    int32_t kind; /* a tt_piece_kind */
} tt_vocab_piece;

/* The arguments of train. */
typedef struct tt_pool tt_pool; /* <ttrun/backend.h> */
typedef struct tt_tokenizer_train {
    size_t struct_size;
    const tt_text *texts; /* documents; no token spans two of them */
    size_t n_texts;
    int64_t vocab_size;         /* the most ids, special tokens included */
    const char *pattern;        /* splits texts into words: a name or a regular expression */
    const char *const *special; /* texts of special tokens, which get the first ids in this order */
    size_t n_special;
    const char *bos, *eos, *pad; /* each one of special, or NULL = none */
    const char *out;             /* the folder for the files, which exists */
    tt_pool *pool;
    /* May be NULL; train calls it from its own thread now and then. stage: what is counted. */
    void (*progress)(void *arg, const char *stage, int64_t done, int64_t total);
    void *progress_arg;
} tt_tokenizer_train;

typedef struct tt_tokenizer_vt {
    size_t struct_size;
    /* *self is the tokenizer's own state, which close frees. [setup] */
    tt_status (*open)(const void *config, void **self, tt_error *err);
    void (*close)(void *self);
    void (*info)(void *self, tt_tokenizer_info *out); /* [any-thread] */
    /* Appends the ids of text to *out, without bos and eos. Special tokens in the text are plain
     * text. [any-thread] */
    tt_status (*encode)(void *self, const char *text, size_t n_bytes, tt_ids *out, tt_error *err);
    /* Writes the bytes of one id to buf, at most cap, without a NUL; returns their number, 0 for
     * special ids. [any-thread] */
    size_t (*decode)(void *self, int32_t id, char *buf, size_t cap);
    /* (optional) The first offset in [from, n_bytes] where text may be split, so that the ids of
     * the two parts in order are the ids of the whole; n_bytes if there is none. NULL: texts are
     * never split. [any-thread] */
    size_t (*cut)(void *self, const char *text, size_t n_bytes, size_t from);
    /* (optional) Trains a tokenizer and writes the files that open reads. The same texts give the
     * same files for any number of threads. [setup] */
    tt_status (*train)(const tt_tokenizer_train *o, tt_error *err);
    /* (optional) As decode, for the first id of a text that decodes to anything: many tokenizers put
     * a blank before a text and drop it here (see also trims_begin). NULL: as decode. [any-thread] */
    size_t (*decode_first)(void *self, int32_t id, char *buf, size_t cap);
    /* (optional) Special token i, in any order; returns 0 behind the last one. [any-thread] */
    int (*special)(void *self, size_t i, tt_special *out);
    /* (optional) As encode, for text that follows a special token: some tokenizers put a blank before the
     * first text alone. NULL: as encode. [any-thread] */
    tt_status (*encode_after)(void *self, const char *text, size_t n_bytes, tt_ids *out,
                              tt_error *err);
    /* (optional) Says what kind the tokenizer is of. Fails, and says what is other, if it is of none. [setup] */
    tt_status (*pieces)(void *self, tt_pieces *out, tt_error *err);
    /* (optional) The token of an id, once pieces() has not failed; returns 0 if there is none. [setup] */
    int (*piece)(void *self, int32_t id, tt_vocab_piece *out);
} tt_tokenizer_vt;

#ifdef __cplusplus
}
#endif
#endif
