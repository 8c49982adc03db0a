/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_VOCAB_H
#define TT_TOKENIZER_HF_VOCAB_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/tokenizer.h>

/* The vocabulary, and BPE over it. */

/* ---- growing bytes ---- */

typedef struct hf_bytes {
    uint8_t *s;
    size_t n, cap;
} hf_bytes;
tt_status hf_bytes_room(hf_bytes *b, size_t more,
                        tt_error *err); /* room for n + more; s is not NULL then */
tt_status hf_bytes_add(hf_bytes *b, const void *s, size_t n, tt_error *err);

/* ---- BPE (bpe.c, bpe_long.c, vocab.c) ---- */

/* an entry of the merges table: open addressing, empty if rank is UINT32_MAX */
typedef struct hf_slot {
    uint32_t left, right, rank, id;
} hf_slot;

typedef struct hf_token {
    uint32_t at, n; /* its bytes in vocab.bytes; n == 0 if no token has the id */
    /* known: in the file; spelt: written in the byte alphabet, so a word may equal it */
    bool known, spelt;
    bool special; /* decodes to no text */
    bool merged;  /* a merge makes it */
} hf_token;

typedef struct hf_vocab {
    hf_token *tokens; /* [n_ids] */
    size_t n_ids;     /* highest id + 1, added tokens included */
    hf_bytes bytes;
    uint32_t *words; /* open addressing over the bytes of spelt tokens: id + 1, 0 = empty */
    size_t words_mask;
    hf_slot *merges;
    size_t merges_mask;
    uint32_t n_ranks; /* highest rank + 1 */
    /* bit b of row a: some merged token has the bytes a b next to each other */
    uint8_t beside[256][32];
    int32_t byte_ids[256]; /* -1: no token is this byte alone */
    bool gaps;             /* … for some byte: it becomes unk, or nothing if unk is -1 */
    bool fuse_unk;         /* neighbours that become unk become one */
    int32_t unk;
    bool ignore_merges;
} hf_vocab;

/* makes the table of words, empty, for n tokens */
tt_status hf_vocab_room(hf_vocab *v, size_t n, tt_error *err);
void hf_vocab_put(hf_vocab *v, uint32_t id);          /* adds one spelt token to it */
tt_status hf_vocab_index(hf_vocab *v, tt_error *err); /* fills it after all tokens are known */
int32_t hf_vocab_word(const hf_vocab *v, const uint8_t *s, size_t n); /* -1: not a token */
tt_status hf_merges_new(hf_vocab *v, size_t n, tt_error *err);
/* Later duplicates win, as in Hugging Face tokenizers. */
void hf_merges_set(hf_vocab *v, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);
/* NULL: the pair does not merge */
const hf_slot *hf_merges_get(const hf_vocab *v, uint32_t left, uint32_t right);
void hf_merges_finish(hf_vocab *v); /* fills `beside`, after all merges are set */
void hf_vocab_release(hf_vocab *v);
/* Converts a token's text from the byte alphabet (U+0100 … for the 68 bytes that do not print) to
 * bytes; false: some character is not in the alphabet. out has room for n bytes. */
bool hf_spell_bytes(const char *text, size_t n, uint8_t *out, size_t *n_out);
uint32_t hf_byte_letter(uint8_t byte); /* the character of the byte alphabet that stands for it */
uint64_t hf_hash(const void *s, size_t n);

/* Memory for long words. A place is where a token begins. */
typedef struct hf_bpe_room {
    uint32_t *ids, *next, *prev; /* [cap] */
    /* [cap_lists] the rank of the pair at a place, and its neighbours in that rank's list */
    uint32_t *rank, *after, *before;
    /* [n_first] the head of each rank's list; all empty between calls */
    uint32_t *first;
    uint64_t *heap;
    size_t cap, cap_lists, n_first, n_heap, cap_heap;
} hf_bpe_room;
void hf_bpe_room_release(hf_bpe_room *r);
tt_status hf_bpe_reserve(hf_bpe_room *r, size_t n, tt_error *err);
/* Merges r->ids[0, n), n > 0; what remains is r->ids[0] and so on by r->next, until UINT32_MAX. */
tt_status hf_bpe_long(const hf_vocab *v, hf_bpe_room *r, size_t n, tt_error *err);
#define HF_SHORT_WORD 48
#define HF_HEAP_WORD 4096
/* Appends the ids of a word. */
tt_status hf_bpe(const hf_vocab *v, hf_bpe_room *r, const uint8_t *s, size_t n, tt_ids *out,
                 tt_error *err);
uint32_t hf_rank_of(const hf_vocab *v, uint32_t left, uint32_t right, uint32_t *id);
/* Merges n ≤ HF_SHORT_WORD ids in place; returns how many remain. */
size_t hf_bpe_short(const hf_vocab *v, uint32_t *ids, size_t n);

#endif
