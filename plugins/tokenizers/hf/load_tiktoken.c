/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include <stdlib.h>
#include <string.h>

/* tiktoken files: one line per token with its bytes in base64, a space, and its rank, which is its
 * id. There are no merges: two neighbours merge if their bytes together are a token, the one of
 * lowest rank first. That is BPE with one merge for every way to split a token into two tokens. */

#define LONGEST_TOKEN 512             /* longest token in bytes; cl100k's longest has 128 */
#define MOST_MERGES ((size_t)1 << 22) /* ways to split tokens into two; o200k has fewer than 2^20 */
#define MOST_RANKS ((uint64_t)1 << 22)

static int digit64(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool ends_in(const char *path, const char *end)
{
    const size_t n = strlen(path), k = strlen(end);
    return n >= k && strcmp(path + n - k, end) == 0;
}

bool hf_is_tiktoken(const char *path, const char *text, size_t n)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t i = 0, from;
    if (ends_in(path, ".tiktoken") || ends_in(path, "tiktoken.model"))
        return true;
    while (i < n && (s[i] == '\r' || s[i] == '\n'))
        i++;
    for (from = i; i < n && (digit64(s[i]) >= 0 || s[i] == '='); i++)
        continue;
    if (i == from || i >= n || s[i] != ' ')
        return false;
    for (from = ++i; i < n && s[i] >= '0' && s[i] <= '9'; i++)
        continue;
    return i > from && (i == n || s[i] == '\r' || s[i] == '\n');
}

/* Decodes n characters at s into out, which has enough room; false: not base64. */
bool hf_base64(const uint8_t *s, size_t n, uint8_t *out, size_t *n_out)
{
    size_t m = 0, pad = 0;
    while (n > 0 && pad < 2 && s[n - 1] == '=') {
        n--;
        pad++;
    }
    if ((n + pad) % 4 != 0 || n % 4 == 1)
        return false;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t v = 0;
        const size_t k = n - i < 4 ? n - i : 4;
        for (size_t j = 0; j < 4; j++) {
            const int d = j < k ? digit64(s[i + j]) : 0;
            if (d < 0)
                return false;
            v = v << 6 | (uint32_t)d;
        }
        for (size_t j = 0; j + 1 < k; j++)
            out[m++] = (uint8_t)(v >> (16 - 8 * j));
    }
    *n_out = m;
    return true;
}

/* Parses one line [s, end) and appends the token's bytes to bytes. */
static tt_status read_line(const hf_file *f, size_t number, const uint8_t *s, const uint8_t *end,
                           hf_bytes *bytes, uint64_t *rank)
{
    const uint8_t *blank = memchr(s, ' ', (size_t)(end - s));
    size_t n = 0;
    if (!blank || blank + 1 == end)
        return HF_FAIL(f, "%s:%zu: expected a token in base64, a blank and its rank", f->name,
                       number);
    const bool too_long = (size_t)(blank - s) > (LONGEST_TOKEN + 2) / 3 * 4;
    TT_TRY(hf_bytes_room(bytes, too_long ? 0 : (size_t)(blank - s), f->err));
    if (!too_long && (blank == s || !hf_base64(s, (size_t)(blank - s), bytes->s + bytes->n, &n)))
        return HF_FAIL(f, "%s:%zu: \"%s\" is not base64", f->name, number,
                       hf_show((const char *)s, (size_t)(blank - s)).text);
    if (too_long || n > LONGEST_TOKEN)
        return HF_FAIL(f, "%s:%zu: a token of more than %d bytes", f->name, number, LONGEST_TOKEN);
    *rank = 0;
    for (const uint8_t *p = blank + 1; p < end; p++) {
        if (*p < '0' || *p > '9')
            return HF_FAIL(f, "%s:%zu: the rank is not a number", f->name, number);
        *rank = *rank * 10 + (uint64_t)(*p - '0');
        if (*rank >= MOST_RANKS)
            return HF_FAIL(f, "%s:%zu: a rank above %llu", f->name, number,
                           (unsigned long long)MOST_RANKS - 1);
    }
    bytes->n += n;
    return TT_OK;
}

static tt_status room_for(hf_vocab *v, const hf_file *f, size_t rank, size_t *cap)
{
    if (rank < *cap)
        return TT_OK;
    const size_t want = rank + rank / 2 + 1024;
    hf_token *more = realloc(v->tokens, want * sizeof *more);
    if (!more)
        return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for %zu ids", f->name, want);
    memset(more + *cap, 0, (want - *cap) * sizeof *more);
    v->tokens = more;
    *cap = want;
    return TT_OK;
}

static tt_status read_tokens(hf_vocab *v, const hf_file *f, const char *text, size_t n)
{
    const uint8_t *s = (const uint8_t *)text, *const end = s + n;
    size_t cap = 0, number = 1;
    for (const uint8_t *stop; s < end; s = stop + 1, number++) {
        const uint8_t *newline = memchr(s, '\n', (size_t)(end - s));
        stop = newline ? newline : end;
        const uint8_t *last = stop > s && stop[-1] == '\r' ? stop - 1 : stop;
        const size_t at = v->bytes.n;
        uint64_t rank = 0;
        if (last == s)
            continue;
        TT_TRY(read_line(f, number, s, last, &v->bytes, &rank));
        if (v->bytes.n > UINT32_MAX)
            return HF_FAIL(f, "%s: more than 4 GiB of tokens", f->name);
        TT_TRY(room_for(v, f, (size_t)rank, &cap));
        if (v->tokens[rank].known)
            return HF_FAIL(f, "%s:%zu: rank %llu is another token's too", f->name, number,
                           (unsigned long long)rank);
        v->tokens[rank] = (hf_token){
            .at = (uint32_t)at, .n = (uint32_t)(v->bytes.n - at), .known = true, .spelt = true};
        v->n_ids = rank >= v->n_ids ? (size_t)rank + 1 : v->n_ids;
    }
    return v->n_ids ? TT_OK : HF_FAIL(f, "%s: no tokens", f->name);
}

static tt_status check_tokens(hf_vocab *v, const hf_file *f, hf_digest *d)
{
    TT_TRY(hf_vocab_index(v, f->err));
    for (size_t id = 0; id < v->n_ids; id++) {
        const hf_token *t = &v->tokens[id];
        if (!t->known)
            continue;
        if (hf_vocab_word(v, v->bytes.s + t->at, t->n) != (int32_t)id)
            return HF_FAIL(f, "%s: the tokens of ranks %d and %zu are equal", f->name,
                           (int)hf_vocab_word(v, v->bytes.s + t->at, t->n), id);
        hf_digest_number(d, (int64_t)id);
        hf_digest_number(d, t->n);
        hf_digest_bytes(d, v->bytes.s + t->at, t->n);
    }
    for (int b = 0; b < 256; b++) {
        const uint8_t byte = (uint8_t)b;
        v->byte_ids[b] = hf_vocab_word(v, &byte, 1);
        if (v->byte_ids[b] < 0)
            return HF_FAIL(f, "%s: no token for the byte 0x%02x; all 256 are needed", f->name, b);
    }
    return TT_OK;
}

/* The tokens by a hash that gives the hash of any part of a text in constant time:
 * sum of (s[i] + 1) * FACTOR^i. A token of n bytes can be split in n - 1 ways, and hashing each half
 * anew took seconds for tokens of hundreds of bytes. */
#define FACTOR 0x9e3779b97f4a7c15u

typedef struct {
    uint64_t hash;
    uint32_t id, n; /* n: the token's bytes; 0: the place is empty */
} whole_token;

typedef struct {
    whole_token *tokens; /* open addressing */
    size_t mask;
    uint64_t power[LONGEST_TOKEN + 1]; /* FACTOR^i */
} token_index;

static size_t place_of(uint64_t hash)
{
    hash *= 0xff51afd7ed558ccdu;
    return (size_t)(hash ^ hash >> 32);
}

/* sums[k]: the hash of the token's first k bytes. */
static void hash_token(const token_index *x, const uint8_t *s, uint32_t n, uint64_t *sums)
{
    sums[0] = 0;
    for (uint32_t i = 0; i < n; i++)
        sums[i + 1] = sums[i] + (s[i] + 1u) * x->power[i];
}

/* shifted: the hash of s, which has n bytes, times FACTOR^shift. */
static int64_t find_token(const token_index *x, const hf_vocab *v, const uint8_t *s, uint32_t n,
                          uint64_t shifted, uint32_t shift)
{
    const uint64_t all = shifted * x->power[LONGEST_TOKEN - shift];
    for (size_t i = place_of(all) & x->mask; x->tokens[i].n; i = (i + 1) & x->mask) {
        const whole_token *t = &x->tokens[i];
        if (t->hash == all && t->n == n && !memcmp(v->bytes.s + v->tokens[t->id].at, s, n))
            return t->id;
    }
    return -1;
}

static tt_status index_tokens(const hf_vocab *v, token_index *x, tt_error *err)
{
    uint64_t sums[LONGEST_TOKEN + 1];
    for (x->mask = 1024; x->mask < 2 * v->n_ids; x->mask *= 2)
        continue;
    x->tokens = calloc(x->mask--, sizeof *x->tokens);
    if (!x->tokens)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu tokens", v->n_ids);
    x->power[0] = 1;
    for (int i = 0; i < LONGEST_TOKEN; i++)
        x->power[i + 1] = x->power[i] * FACTOR;
    for (size_t id = 0; id < v->n_ids; id++) {
        const hf_token *t = &v->tokens[id];
        if (!t->known)
            continue;
        hash_token(x, v->bytes.s + t->at, t->n, sums);
        const uint64_t hash = sums[t->n] * x->power[LONGEST_TOKEN];
        size_t i = place_of(hash) & x->mask;
        while (x->tokens[i].n)
            i = (i + 1) & x->mask;
        x->tokens[i] = (whole_token){hash, (uint32_t)id, t->n};
    }
    return TT_OK;
}

/* All ways to split a token into two; set: adds them as merges, otherwise only counts them, up to
 * one more than MOST_MERGES. */
static size_t each_merge(hf_vocab *v, const token_index *x, bool set)
{
    uint64_t sums[LONGEST_TOKEN + 1];
    size_t n = 0;
    for (size_t id = 0; id < v->n_ids; id++) {
        const hf_token *t = &v->tokens[id];
        const uint8_t *s = v->bytes.s + t->at;
        hash_token(x, s, t->n, sums);
        for (uint32_t k = 1; k < t->n; k++) {
            const int64_t left = find_token(x, v, s, k, sums[k], 0);
            const int64_t right =
                left < 0 ? -1 : find_token(x, v, s + k, t->n - k, sums[t->n] - sums[k], k);
            if (right < 0)
                continue;
            if (n++ > MOST_MERGES)
                return n;
            if (set)
                hf_merges_set(v, (uint32_t)left, (uint32_t)right, (uint32_t)id, (uint32_t)id);
        }
    }
    return n;
}

static tt_status make_merges(hf_vocab *v, const hf_file *f)
{
    token_index x;
    TT_TRY(index_tokens(v, &x, f->err));
    const size_t n = each_merge(v, &x, false);
    tt_status s = TT_OK;
    if (n > MOST_MERGES)
        s = HF_FAIL(f, "%s: more than %zu ways to split its tokens into two tokens", f->name,
                    MOST_MERGES);
    if (s == TT_OK)
        s = hf_merges_new(v, n, f->err);
    if (s == TT_OK)
        each_merge(v, &x, true);
    free(x.tokens);
    if (s == TT_OK)
        hf_merges_finish(v);
    return s;
}

static tt_status add_special(hf_tokenizer *t, const hf_file *f, const char *text, size_t n,
                             const json_t *id, hf_added *a, hf_digest *d)
{
    hf_vocab *v = &t->vocab;
    const json_int_t k = json_integer_value(id);
    if (n == 0 || !json_is_integer(id) || k < 0 || k >= (json_int_t)MOST_RANKS)
        return TT_FAIL(f->err, TT_EINVAL,
                       "tokenizer.special_tokens.\"%s\": expected an id from 0 to %llu",
                       hf_show(text, n).text, (unsigned long long)MOST_RANKS - 1);
    if ((size_t)k < v->n_ids && v->tokens[k].known)
        return TT_FAIL(f->err, TT_EINVAL,
                       "tokenizer.special_tokens.\"%s\": %lld is another token's id",
                       hf_show(text, n).text, (long long)k);
    size_t cap = v->n_ids;
    TT_TRY(room_for(v, f, (size_t)k, &cap));
    v->n_ids = (size_t)k >= v->n_ids ? (size_t)k + 1 : v->n_ids;
    v->tokens[k] =
        (hf_token){.at = (uint32_t)v->bytes.n, .n = (uint32_t)n, .known = true, .special = true};
    TT_TRY(hf_bytes_add(&v->bytes, text, n, f->err));
    a->id = (int32_t)k;
    a->special = true;
    hf_digest_number(d, k);
    hf_digest_string(d, text, n);
    TT_TRY(hf_bytes_add(&a->content, text, n, f->err));
    return hf_bytes_add(&a->sought, text, n, f->err);
}

static tt_status add_specials(hf_tokenizer *t, const hf_file *f, json_t *list, hf_digest *d)
{
    const char *text;
    json_t *id;
    size_t n;
    if (!json_is_object(list))
        return TT_FAIL(f->err, TT_EINVAL,
                       "tokenizer.special_tokens: expected an object of texts and ids");
    t->added = calloc(json_object_size(list) + 1, sizeof *t->added);
    if (!t->added)
        return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for special tokens", f->name);
    json_object_keylen_foreach(list, text, n, id)
        TT_TRY(add_special(t, f, text, n, id, &t->added[t->n_added++], d));
    return t->allow_special ? hf_trie_new(t->added, t->n_added, false, &t->raw, f->err) : TT_OK;
}

tt_status hf_load_tiktoken(hf_tokenizer *t, const hf_options *o, const hf_configs *c,
                           const char *text, size_t n, hf_digest *d, tt_error *err)
{
    const hf_file f = {.name = t->path, .err = err};
    hf_tiktoken_rule rule = {.pattern = o->pattern};
    hf_vocab *v = &t->vocab;
    if (!o->pattern || !*o->pattern)
        TT_TRY(hf_tiktoken_rule_of(t, c, &rule, err));
    TT_TRY(read_tokens(v, &f, text, n));
    TT_TRY(check_tokens(v, &f, d));
    TT_TRY(make_merges(v, &f));
    v->ignore_merges = true; /* ignore_merges: a word that is a token becomes that token */
    TT_TRY(hf_set_splits(t, rule.pattern, false, HF_RUST, err));
    t->nfc = rule.nfc;
    TT_TRY(hf_unicode_new(t->nfc, &t->flags, err));
    hf_digest_text(d, rule.pattern);
    if (t->nfc)
        hf_digest_text(d, "NFC");
    if (!o->special_tokens)
        return hf_tiktoken_added(t, &f, &rule, c, d);
    json_t *list = json_loads(o->special_tokens, JSON_REJECT_DUPLICATES, NULL);
    const tt_status s = add_specials(t, &f, list, d);
    json_decref(list);
    return s;
}
