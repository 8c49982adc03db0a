/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_SUBWORD_H
#define TT_TOKENIZER_HF_SUBWORD_H
#include "hf.h"

/* Models over characters: BPE as SentencePiece and Hugging Face tokenizers have it (chars.c),
 * Unigram (unigram.c) and WordPiece (wordpiece.c). */

typedef enum hf_model_kind {
    HF_BYTE_LEVEL, /* BPE over bytes: bpe.c */
    HF_CHARS,      /* BPE over code points */
    HF_UNIGRAM,
    HF_WORDPIECE,
} hf_model_kind;

/* ---- a tree of texts (tree.c) ---- */

typedef struct hf_branch {
    uint32_t key;   /* parent << 8 | byte */
    uint32_t child; /* 0: empty */
} hf_branch;

/* A unit of the double array: a node, the root being 0. Its child for a byte is the unit
 * base + byte, if that unit's parent is the node. */
typedef struct hf_unit {
    uint32_t parent, base; /* parent: + 1; 0: the unit is free */
    int32_t id;            /* of the text that ends here, or -1 */
} hf_unit;

typedef struct hf_tree { /* a trie of bytes */
    hf_unit *units;      /* after hf_tree_finish; NULL before it, and without a text */
    /* while texts are added: nodes by number, 0 = the root */
    hf_branch *branches; /* open addressing */
    size_t mask;
    int32_t *ids; /* [n_nodes] */
    size_t n_nodes, cap_nodes;
} hf_tree;
#define HF_MOST_NODES ((size_t)1 << 24)
tt_status hf_tree_add(hf_tree *t, const uint8_t *s, size_t n, int32_t id, tt_error *err);
/* Makes the array in which hf_tree_next looks; then no text is added any more. */
tt_status hf_tree_finish(hf_tree *t, tt_error *err);
void hf_tree_release(hf_tree *t);

/* The child of a node, 0: there is none. */
static inline uint32_t hf_tree_next(const hf_tree *t, uint32_t node, uint8_t byte)
{
    const uint32_t next = t->units[node].base + byte;
    return t->units[next].parent == node + 1 ? next : 0;
}

/* ---- the models ---- */

/* Pairs of neighbouring code points that some merged token has: no merge joins others. */
typedef struct hf_pairs {
    uint8_t ascii[128][16]; /* bit b of row a */
    uint64_t *others;       /* open addressing: a << 32 | b, 0 = empty */
    size_t n, mask;
} hf_pairs;

struct hf_subword {
    hf_model_kind kind;
    bool sentencepiece; /* the rules of that package, not of tokenizers */
    int32_t unk;        /* -1: none */
    bool byte_fallback, fuse_unk;
    int32_t fallback[256]; /* the ids of <0x00> … <0xFF>, -1: none */
    size_t longest;        /* bytes of the longest token */
    hf_tree tree;          /* Unigram, WordPiece */
    hf_tree user_symbols;  /* SentencePiece: they are never cut and never joined */
    /* BPE: the symbol of each code point + 1; 0: none. A SentencePiece symbol that is no token is
     * HF_NO_TOKEN | code point. */
    uint32_t *symbols; /* [HF_CODE_POINTS] */
    hf_pairs pairs;
    bool whole; /* words must not be cut between pairs */
    /* Unigram */
    double *scores; /* [n_scores] */
    size_t n_scores;
    double unk_score;
    uint8_t *user; /* [n_ids] user-defined; NULL: none. SentencePiece */
    /* WordPiece */
    hf_bytes prefix;
    size_t most_chars;
    uint32_t inner; /* the node of the prefix; UINT32_MAX: no token begins with it */
};
#define HF_NO_TOKEN 0x80000000u
void hf_subword_release(hf_subword *m);

typedef struct hf_node { /* a place in a text, and the best way to it */
    double score;
    int32_t id;
    uint32_t from; /* UINT32_MAX: no way yet; after the search: the next place */
} hf_node;

struct hf_subword_room {
    hf_node *nodes;
    size_t cap;
};

tt_status hf_pairs_add(hf_pairs *p, uint32_t a, uint32_t b, tt_error *err);
tt_status hf_chars_finish(hf_tokenizer *t, tt_error *err); /* after vocabulary and merges */

/* Each appends the ids of a word. */
tt_status hf_chars(const hf_tokenizer *t, hf_bpe_room *r, const uint8_t *s, size_t n, tt_ids *out,
                   tt_error *err);
/* The end of the part of a word that begins at s: no merge joins it with what follows. *id is not
 * -1 if the part is a user-defined symbol. */
size_t hf_chars_part(const hf_tokenizer *t, const uint8_t *s, size_t n, int32_t *id);
bool hf_apart(const hf_subword *m, uint32_t a, uint32_t b);
tt_status hf_unigram(const hf_tokenizer *t, hf_subword_room *r, const uint8_t *s, size_t n,
                     tt_ids *out, tt_error *err);
tt_status hf_wordpiece(const hf_tokenizer *t, const uint8_t *s, size_t n, tt_ids *out,
                       tt_error *err);
/* Appends what stands for a text that is no token: the ids of its bytes, or unk. again: the last id
 * of out is an unk of the same word, which takes this one with it if the model fuses them. */
tt_status hf_put_unknown(const hf_subword *m, const uint8_t *s, size_t n, bool again, tt_ids *out,
                         tt_error *err);

#endif
