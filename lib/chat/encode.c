/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reserve.h"
#include "chat/chat.h"
#include <stdlib.h>
#include <string.h>

/* A rendered conversation as ids. The text is cut at the special tokens that the template has; each piece between
 * them is encoded as plain text. */

typedef struct specials { /* by the first byte */
    tt_text *texts;
    int32_t *ids;
    uint8_t *strips; /* TT_SPECIAL_STRIPS_… */
    size_t n, begin[257];
} specials;

static int by_first_byte(const void *x, const void *y)
{
    const tt_special *a = x, *b = y;
    const int first = (int)(unsigned char)a->text.s[0] - (int)(unsigned char)b->text.s[0];
    if (first)
        return first;
    return (a->text.n < b->text.n) - (a->text.n > b->text.n); /* longest first */
}

static void read_specials(tt_arena *a, const tt_tokenizer_vt *vt, void *tokenizer, specials *out)
{
    TT_VEC(tt_special) all = {0};
    *out = (specials){0};
    if (!TT_HAS(vt, tt_tokenizer_vt, special) || !vt->special)
        return;
    for (size_t i = 0;; i++) {
        tt_special s = {.struct_size = sizeof s};
        if (!vt->special(tokenizer, i, &s))
            break;
        if (s.text.n)
            tt_vec_push(a, &all, s);
    }
    if (all.n)
        qsort(all.items, all.n, sizeof *all.items, by_first_byte);
    out->n = all.n;
    out->texts = tt_arena_array(a, all.n + 1, sizeof *out->texts);
    out->ids = tt_arena_array(a, all.n + 1, sizeof *out->ids);
    out->strips = tt_arena_alloc(a, all.n + 1);
    for (size_t i = 0; i < all.n; i++) {
        out->texts[i] = all.items[i].text;
        out->ids[i] = all.items[i].id;
        out->strips[i] = (uint8_t)all.items[i].strips;
    }
    size_t at = 0;
    for (int c = 0; c <= 256; c++) {
        while (at < all.n && (unsigned char)out->texts[at].s[0] < c)
            at++;
        out->begin[c] = c == 256 ? all.n : at;
    }
}

/* The number of the special token that begins here, or -1. */
static int64_t find_special(const specials *p, const char *s, size_t n)
{
    const unsigned char c = n ? (unsigned char)s[0] : 0;
    for (size_t i = n ? p->begin[c] : p->n; i < p->n && i < p->begin[c + 1]; i++)
        if (p->texts[i].n <= n && !memcmp(p->texts[i].s, s, p->texts[i].n))
            return (int64_t)i;
    return -1;
}

static size_t special_length(const void *user, const char *s, size_t n)
{
    const specials *p = user;
    const int64_t i = find_special(p, s, n);
    return i < 0 ? 0 : p->texts[i].n;
}

/* The tokens that the tokenizer has as bos, eos and pad now, which the job may name, by their names in templates. */
static const tt_jvalue *named_tokens(tt_arena *a, const specials *p, const tt_tokenizer_vt *vt,
                                     void *tokenizer)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token"};
    tt_tokenizer_info info = {.struct_size = sizeof info, .bos = -1, .eos = -1, .pad = -1};
    tt_jvalue *out = tt_j_new(a, TT_J_DICT);
    vt->info(tokenizer, &info);
    const int32_t ids[] = {info.bos, info.eos, info.pad};
    for (size_t k = 0; k < TT_COUNT(ids); k++)
        for (size_t i = 0; ids[k] >= 0 && i < p->n; i++)
            if (p->ids[i] == ids[k]) {
                tt_j_append(a, out, tt_j_text(a, names[k], strlen(names[k]), TT_TAG_TEMPLATE),
                            tt_j_text(a, p->texts[i].s, p->texts[i].n, TT_TAG_TEMPLATE));
                break;
            }
    return out;
}

typedef struct encoding {
    const tt_tokenizer_vt *vt;
    void *tokenizer;
    const tt_chat_text *text;
    tt_ids ids; /* of a piece */
    tt_chat_tokens *out;
    tt_error *err;
} encoding;

static tt_status push_token(encoding *e, int32_t id, uint8_t origin)
{
    tt_chat_tokens *t = e->out;
    if (t->n == t->cap) {
        const size_t cap = 2 * t->cap + 256;
        int32_t *ids = tt_reserve_realloc(t->ids, cap * sizeof *ids);
        t->ids = ids ? ids : t->ids;
        uint8_t *origins = ids ? tt_reserve_realloc(t->origins, cap) : NULL;
        t->origins = origins ? origins : t->origins;
        if (!origins)
            return TT_FAIL(e->err, TT_ENOMEM, "out of memory for %zu tokens", cap);
        t->cap = cap;
    }
    t->ids[t->n] = id;
    t->origins[t->n++] = origin;
    return TT_OK;
}

/* Of the bytes [begin, end), of which a token has at least one. */
static uint8_t origin_of(const encoding *e, size_t begin, size_t end)
{
    uint8_t origin = TT_CHAT_TEMPLATE;
    for (size_t i = begin; i < TT_MIN(TT_MAXV(end, begin + 1), e->text->text.n); i++) {
        if (e->text->learned[i])
            return TT_CHAT_GENERATED;
        if (e->text->text.tags[i] != TT_TAG_TEMPLATE)
            origin = TT_CHAT_INPUT;
    }
    return origin;
}

static tt_status encode_text(encoding *e, const char *s, size_t n, bool begins)
{
    const bool after =
        !begins && TT_HAS(e->vt, tt_tokenizer_vt, encode_after) && e->vt->encode_after;
    e->ids.n = 0;
    return TT_PLUGIN_CALL(
        (after ? e->vt->encode_after : e->vt->encode)(e->tokenizer, s, n, &e->ids, e->err), e->err,
        "tokenizer", NULL);
}

/* The bytes that the ids decode to, when that is the piece's text or a blank and that text: then each token's
 * bytes are known. *blank: it begins with a blank that the text has not. */
static bool decodes_to(const encoding *e, const char *s, size_t n, size_t *length, bool *blank)
{
    char piece[4096];
    size_t at = 0;
    *blank = false;
    for (size_t i = 0; i < e->ids.n; i++) {
        const size_t k = e->vt->decode(e->tokenizer, e->ids.ids[i], piece, sizeof piece);
        const char *from = piece;
        size_t left = k;
        if (i == 0 && k && piece[0] == ' ' && (n == 0 || s[0] != ' ')) {
            *blank = true;
            from++;
            left--;
        }
        if (at + left > n || memcmp(s + at, from, left) != 0)
            return false;
        length[i] = k;
        at += left;
    }
    return at == n;
}

/* Where a piece's tokens are not known by their bytes, as many belong to what is before a byte as that text alone
 * has. */
static tt_status origins_by_prefix(encoding *e, size_t begin, size_t end, bool begins)
{
    tt_ids whole = e->ids;
    size_t at = begin, token = 0;
    e->ids = (tt_ids){0};
    tt_status s = TT_OK;
    while (s == TT_OK && token < whole.n) {
        const uint8_t origin = origin_of(e, at, at + 1);
        size_t to = at + 1, count = whole.n;
        while (to < end && origin_of(e, to, to + 1) == origin)
            to++;
        if (to < end) {
            s = encode_text(e, e->text->text.s + begin, to - begin, begins);
            count = TT_MIN(TT_MAXV(e->ids.n, token), whole.n);
        }
        for (; s == TT_OK && token < count; token++)
            s = push_token(e, whole.ids[token], origin);
        at = to;
    }
    tt_ids_free(&e->ids);
    e->ids = whole;
    return s;
}

static tt_status encode_piece(encoding *e, tt_arena *a, size_t begin, size_t end, bool begins)
{
    const char *s = e->text->text.s + begin;
    bool blank;
    if (begin == end)
        return TT_OK;
    if (tt_reserve_is_low())
        return TT_FAIL(e->err, TT_ENOMEM, "out of memory for the tokens of a conversation");
    TT_TRY(encode_text(e, s, end - begin, begins));
    size_t *length = tt_arena_array(a, e->ids.n + 1, sizeof *length), at = begin;
    if (!decodes_to(e, s, end - begin, length, &blank))
        return origins_by_prefix(e, begin, end, begins);
    for (size_t i = 0; i < e->ids.n; i++) {
        const size_t k = length[i] - (i == 0 && blank);
        TT_TRY(push_token(e, e->ids.ids[i], origin_of(e, at, at + k)));
        at += k;
    }
    return TT_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static tt_status encode_all(encoding *e, tt_arena *a, const specials *p)
{
    const tt_jtext *t = &e->text->text;
    size_t from = 0;
    for (size_t at = 0; at < t->n;) {
        const int64_t k =
            t->tags[at] == TT_TAG_TEMPLATE ? find_special(p, t->s + at, t->n - at) : -1;
        const size_t n = k < 0 ? 0 : p->texts[k].n;
        bool whole = n > 0;
        for (size_t i = 0; i < n; i++)
            whole = whole && t->tags[at + i] == TT_TAG_TEMPLATE;
        if (!whole) {
            at++;
            continue;
        }
        size_t begin = at, end = at + n;
        while ((p->strips[k] & TT_SPECIAL_STRIPS_LEFT) && begin > from && is_blank(t->s[begin - 1]))
            begin--;
        while ((p->strips[k] & TT_SPECIAL_STRIPS_RIGHT) && end < t->n && is_blank(t->s[end]))
            end++;
        TT_TRY(encode_piece(e, a, from, begin, from == 0));
        TT_TRY(push_token(e, p->ids[k], origin_of(e, at, at + n)));
        at = from = end;
    }
    return encode_piece(e, a, from, t->n, from == 0);
}

/* A template that puts no token behind the last turn of an assistant: the model learns to end it by the tokenizer's end
 * token. */
static tt_status end_turn(encoding *e, const tt_chat_template *t)
{
    tt_tokenizer_info info = {.struct_size = sizeof info, .eos = -1};
    e->vt->info(e->tokenizer, &info);
    if (info.eos < 0)
        return TT_FAIL(e->err, TT_EINVAL,
                       "%s puts no special token behind an assistant's turn, and the tokenizer has "
                       "no end token: the model would not learn to stop; name one as "
                       "tokenizer.eos_token, or a template that ends turns",
                       t->name);
    return push_token(e, info.eos, TT_CHAT_GENERATED);
}

tt_status tt_chat_encode_json(const tt_chat_template *t, const tt_conversation *c,
                              const tt_chat_json *j, const tt_tokenizer_vt *vt, void *tokenizer,
                              tt_chat_tokens *out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_chat_text text = {0};
    specials p;
    encoding e = {.vt = vt, .tokenizer = tokenizer, .text = &text, .out = out, .err = err};
    const size_t before = out->n;
    read_specials(a, vt, tokenizer, &p);
    tt_chat_json with = *j;
    with.tokens = named_tokens(a, &p, vt, tokenizer);
    tt_status s = tt_chat_turns(a, t, c, &with, special_length, &p, &text, err);
    if (s == TT_OK)
        s = encode_all(&e, a, &p);
    if (s == TT_OK && text.open_end)
        s = end_turn(&e, t);
    if (s != TT_OK)
        out->n = before;
    tt_ids_free(&e.ids);
    tt_arena_free(a);
    return s;
}

tt_status tt_chat_encode(const tt_chat_template *t, const tt_conversation *c,
                         const tt_tokenizer_vt *vt, void *tokenizer, tt_chat_tokens *out,
                         tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_chat_json j;
    tt_status s = tt_chat_read(a, c, &j, err);
    if (s == TT_OK)
        s = tt_chat_encode_json(t, c, &j, vt, tokenizer, out, err);
    tt_arena_free(a);
    return s;
}

void tt_chat_tokens_free(tt_chat_tokens *t)
{
    free(t->ids);
    free(t->origins);
    *t = (tt_chat_tokens){0};
}

int32_t tt_chat_turn_end(const tt_chat_template *t, const tt_tokenizer_vt *vt, void *tokenizer,
                         bool last)
{
    static const char between[] =
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},"
        "{\"role\":\"user\",\"content\":\"a\"}]";
    static const char final[] =
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]";
    const tt_conversation c = {.struct_size = sizeof c,
                               .messages = last ? final : between,
                               .n_messages = last ? sizeof final - 1 : sizeof between - 1};
    tt_chat_tokens x = {0};
    tt_error ignored = {0};
    char piece[64];
    int32_t id = -1;
    if (tt_chat_encode(t, &c, vt, tokenizer, &x, &ignored) == TT_OK)
        for (size_t i = x.n; i-- > 0;)
            if (x.origins[i] == TT_CHAT_GENERATED) { /* a special token decodes to nothing */
                if (!vt->decode(tokenizer, x.ids[i], piece, sizeof piece))
                    id = x.ids[i];
                break;
            }
    tt_chat_tokens_free(&x);
    return id;
}
