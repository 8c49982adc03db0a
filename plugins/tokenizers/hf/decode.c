/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "load.h"
#include "subword.h"
#include <stdlib.h>
#include <string.h>

/* The decoder. It is applied to every token once, at load, in both of the places where a token can
 * be: at the beginning of a text and after it. */

typedef enum step_kind {
    STEP_REPLACE,
    STEP_BYTES,
    STEP_FUSE,
    STEP_STRIP,
    STEP_METASPACE,
    STEP_WORDPIECE,
    STEP_BYTE_LEVEL,
    STEP_BLANKS, /* no decoder at all: tokenizers puts a blank between tokens */
} step_kind;

typedef struct decoder_step {
    step_kind kind;
    const char *from, *to; /* Replace; Metaspace's mark, WordPiece's prefix: from */
    size_t strip;
    bool flag;  /* Metaspace: a mark at the beginning is dropped; WordPiece: cleanup */
    bool fused; /* Strip: of the text, not of each token */
} decoder_step;

#define MAX_STEPS 16
typedef struct decoder {
    decoder_step steps[MAX_STEPS];
    size_t n;
} decoder;

/* ---- one token ---- */

static tt_status swap(hf_bytes *text, const char *from, const char *to, size_t most, tt_error *err)
{
    const size_t n = strlen(from), m = strlen(to);
    hf_bytes out = {0};
    tt_status s = hf_bytes_room(&out, 1, err);
    for (size_t at = 0; s == TT_OK && at < text->n;) {
        const uint8_t *found = most ? memmem(text->s + at, text->n - at, from, n) : NULL;
        const size_t end = found ? (size_t)(found - text->s) : text->n;
        s = hf_bytes_add(&out, text->s + at, end - at, err);
        if (s == TT_OK && found)
            s = hf_bytes_add(&out, to, m, err);
        most -= found && most > 0;
        at = found ? end + n : text->n;
    }
    free(text->s);
    *text = out;
    return s;
}

/* What WordPiece's cleanup does to each token. */
static tt_status clean_up(hf_bytes *text, tt_error *err)
{
    static const char *const pairs[][2] = {
        {" .",      "."     },
        {" ?",      "?"     },
        {" !",      "!"     },
        {" ,",      ","     },
        {" ' ",     "'"     },
        {" n't",    "n't"   },
        {" 'm",     "'m"    },
        {" do not", " don't"},
        {" 's",     "'s"    },
        {" 've",    "'ve"   },
        {" 're",    "'re"   }
    };
    for (size_t i = 0; i < TT_COUNT(pairs); i++)
        TT_TRY(swap(text, pairs[i][0], pairs[i][1], SIZE_MAX, err));
    return TT_OK;
}

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* <0x41>; false: it is not the text of a byte. */
bool hf_byte_token(const uint8_t *s, size_t n, uint8_t *byte)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>' || hex(s[3]) < 0 || hex(s[4]) < 0)
        return false;
    *byte = (uint8_t)(hex(s[3]) << 4 | hex(s[4]));
    return true;
}

static tt_status prepend(hf_bytes *text, const char *s, tt_error *err)
{
    const size_t n = strlen(s);
    TT_TRY(hf_bytes_room(text, n, err));
    memmove(text->s + n, text->s, text->n);
    memcpy(text->s, s, n);
    text->n += n;
    return TT_OK;
}

static tt_status word_piece(const decoder_step *p, bool first, hf_bytes *text, tt_error *err)
{
    const size_t n = strlen(p->from);
    if (text->n >= n && !first && memcmp(text->s, p->from, n) == 0)
        TT_TRY(swap(text, p->from, "", n > 0, err));
    else if (!first)
        TT_TRY(prepend(text, " ", err));
    return p->flag ? clean_up(text, err) : TT_OK;
}

static tt_status apply_step(const decoder_step *p, bool first, hf_bytes *text, tt_error *err)
{
    uint8_t byte;
    size_t m;
    switch (p->kind) {
    case STEP_REPLACE:
        return swap(text, p->from, p->to, SIZE_MAX, err);
    case STEP_BYTES:
        if (hf_byte_token(text->s, text->n, &byte)) {
            text->s[0] = byte;
            text->n = 1;
        }
        return TT_OK;
    case STEP_STRIP:
        for (size_t i = 0; (first || !p->fused) && i < p->strip; i++)
            if (text->n >= strlen(p->from) && memcmp(text->s, p->from, strlen(p->from)) == 0) {
                text->n -= strlen(p->from);
                memmove(text->s, text->s + strlen(p->from), text->n);
            }
        return TT_OK;
    case STEP_METASPACE:
        return swap(text, p->from, first && p->flag ? "" : " ", SIZE_MAX, err);
    case STEP_WORDPIECE:
        return word_piece(p, first, text, err);
    case STEP_BYTE_LEVEL:
        if (hf_spell_bytes((const char *)text->s, text->n, text->s, &m))
            text->n = m;
        return TT_OK;
    case STEP_BLANKS:
        return first ? TT_OK : prepend(text, " ", err);
    case STEP_FUSE:
        break;
    }
    return TT_OK;
}

/* The text of token id, which is spelt [spelt, spelt + n), in one of the two places, appended to
 * t->text_bytes. */
static tt_status put_text_of(hf_tokenizer *t, const decoder *d, size_t id, const uint8_t *spelt,
                             size_t n, bool first, tt_error *err)
{
    hf_text *text = &t->texts[id];
    hf_bytes b = {0}, *all = &t->text_bytes;
    tt_status s = hf_bytes_room(&b, 1, err);
    if (s == TT_OK)
        s = hf_bytes_add(&b, spelt, n, err);
    for (size_t i = 0; s == TT_OK && i < d->n; i++)
        s = apply_step(&d->steps[i], first, &b, err);
    if (s == TT_OK && all->n + b.n > UINT32_MAX)
        s = TT_FAIL(err, TT_EFORMAT, "%s: more than 4 GiB of tokens", t->path);
    /* The text at the beginning is mostly the end of the other one, which is there already. */
    if (s == TT_OK && first && text->n >= b.n &&
        memcmp(all->s + text->at + text->n - b.n, b.s, b.n) == 0) {
        text->first_at = text->at + text->n - (uint32_t)b.n;
        text->first_n = (uint32_t)b.n;
    } else if (s == TT_OK) {
        *(first ? &text->first_at : &text->at) = (uint32_t)all->n;
        *(first ? &text->first_n : &text->n) = (uint32_t)b.n;
        s = hf_bytes_add(all, b.s, b.n, err);
    }
    free(b.s);
    return s;
}

static tt_status put_texts_of(hf_tokenizer *t, const decoder *d, size_t id, const uint8_t *spelt,
                              size_t n, tt_error *err)
{
    TT_TRY(put_text_of(t, d, id, spelt, n, false, err));
    return put_text_of(t, d, id, spelt, n, true, err);
}

static tt_status make_texts(hf_tokenizer *t, const decoder *d, tt_error *err)
{
    t->texts = calloc(t->vocab.n_ids, sizeof *t->texts);
    if (!t->texts)
        return TT_FAIL(err, TT_ENOMEM, "%s: out of memory for %zu tokens", t->path, t->vocab.n_ids);
    TT_TRY(hf_bytes_room(&t->text_bytes, 1, err));
    for (size_t id = 0; id < t->vocab.n_ids; id++) {
        const hf_token *token = &t->vocab.tokens[id];
        if (!token->known || token->special)
            continue;
        TT_TRY(put_texts_of(t, d, id, t->vocab.bytes.s + token->at, token->n, err));
    }
    for (size_t i = 0; i < t->n_added; i++) { /* an added token decodes to what is sought */
        const hf_added *a = &t->added[i];
        if (a->normalized && !t->vocab.tokens[a->id].special)
            TT_TRY(put_texts_of(t, d, (size_t)a->id, a->sought.s, a->sought.n, err));
    }
    return TT_OK;
}

/* ---- the part of the file ---- */

static const char *text_or(const json_t *part, const char *key, const char *fallback)
{
    const json_t *v = json_object_get(part, key);
    const char *s = hf_text_of(v);
    return s ? s : json_is_string(v) ? "" : fallback;
}

static tt_status decoder_strip(const hf_file *f, const json_t *part, const char *path,
                               decoder_step *p)
{
    const json_int_t start = json_integer_value(json_object_get(part, "start"));
    const json_t *stop = json_object_get(part, "stop");
    p->kind = STEP_STRIP;
    p->from = text_or(part, "content", "");
    if (json_integer_value(stop) != 0)
        return TT_FAIL(f->err, TT_EUNSUPPORTED, "%s: %s.stop: only 0 is supported", f->name, path);
    if (!*p->from || start < 0)
        return HF_FAIL(f, "%s: %s: expected content and a start of 0 or more", f->name, path);
    p->strip = (size_t)start;
    return TT_OK;
}

static tt_status decoder_part(const hf_file *f, const json_t *part, const char *path, bool fused,
                              decoder_step *p)
{
    const char *type = hf_type(part);
    *p = (decoder_step){.fused = fused};
    if (strcmp(type, "Replace") == 0) {
        p->kind = STEP_REPLACE;
        p->from = text_or(json_object_get(part, "pattern"), "String", "");
        p->to = text_or(part, "content", "");
        if (!*p->from)
            return TT_FAIL(f->err, TT_EUNSUPPORTED,
                           "%s: %s.pattern: only {\"String\": …} is supported in a decoder",
                           f->name, path);
    } else if (strcmp(type, "ByteFallback") == 0) {
        p->kind = STEP_BYTES;
    } else if (strcmp(type, "Fuse") == 0) {
        p->kind = STEP_FUSE;
    } else if (strcmp(type, "Strip") == 0) {
        return decoder_strip(f, part, path, p);
    } else if (strcmp(type, "Metaspace") == 0) {
        bool prefix;
        TT_TRY(hf_bool(f, part, path, "add_prefix_space", true, &prefix));
        p->kind = STEP_METASPACE;
        p->from = text_or(part, "replacement", "\xe2\x96\x81");
        p->flag =
            strcmp(text_or(part, "prepend_scheme", prefix ? "always" : "never"), "never") != 0;
        if (!*p->from)
            return HF_FAIL(f, "%s: %s.replacement: expected a character", f->name, path);
    } else if (strcmp(type, "WordPiece") == 0) {
        p->kind = STEP_WORDPIECE;
        p->from = text_or(part, "prefix", "##");
        TT_TRY(hf_bool(f, part, path, "cleanup", true, &p->flag));
    } else if (strcmp(type, "ByteLevel") == 0) {
        p->kind = STEP_BYTE_LEVEL;
    } else {
        return TT_FAIL(f->err, TT_EUNSUPPORTED, "%s: %s: \"%s\" is not supported", f->name, path,
                       hf_show(type, strlen(type)).text);
    }
    return TT_OK;
}

tt_status hf_load_decoder(hf_tokenizer *t, const hf_file *f, const json_t *root)
{
    const json_t *part = json_object_get(root, "decoder"), *item;
    const json_t *list = json_object_get(part, "decoders");
    decoder d = {.n = 1, .steps = {{.kind = STEP_BLANKS}}};
    bool fused = false;
    size_t i;
    if (json_is_object(part) && strcmp(hf_type(part), "Sequence") != 0) {
        TT_TRY(decoder_part(f, part, "decoder", false, &d.steps[0]));
    } else if (json_is_object(part)) {
        if (!json_is_array(list) || json_array_size(list) > MAX_STEPS)
            return HF_FAIL(f, "%s: decoder.decoders: expected a list of at most %d", f->name,
                           MAX_STEPS);
        d.n = json_array_size(list);
        json_array_foreach(list, i, item)
        {
            char path[48];
            snprintf(path, sizeof path, "decoder.decoders[%zu]", i);
            TT_TRY(decoder_part(f, item, path, fused, &d.steps[i]));
            fused = fused || d.steps[i].kind == STEP_FUSE;
        }
    }
    return make_texts(t, &d, f->err);
}

tt_status hf_sentencepiece_decoder(hf_tokenizer *t, bool drop_first, const char *unk_text,
                                   size_t n_unk, tt_error *err)
{
    decoder d = {
        .n = 3,
        .steps = {{.kind = STEP_BYTES},
                  {.kind = STEP_REPLACE, .from = "\xe2\x96\x81", .to = " "},
                  {.kind = STEP_STRIP, .from = " ", .strip = drop_first, .fused = true}}
    };
    TT_TRY(make_texts(t, &d, err));
    hf_text *unk = &t->texts[t->subword->unk];
    const uint32_t at = (uint32_t)t->text_bytes.n, n = (uint32_t)n_unk;
    *unk = (hf_text){at, n, at, n};
    return hf_bytes_add(&t->text_bytes, unk_text, n_unk, err);
}

/* ---- tt_tokenizer_vt ---- */

static size_t copy_text(const uint8_t *s, size_t n, char *buf, size_t cap)
{
    n = n < cap ? n : cap;
    if (n)
        memcpy(buf, s, n);
    return n;
}

size_t hf_decode_token(void *self, int32_t id, char *buf, size_t cap)
{
    const hf_tokenizer *t = self;
    if (id < 0 || (size_t)id >= t->vocab.n_ids)
        return 0;
    const hf_token *token = &t->vocab.tokens[id];
    if (token->special)
        return 0;
    if (t->texts)
        return copy_text(t->text_bytes.s + t->texts[id].at, t->texts[id].n, buf, cap);
    return copy_text(t->vocab.bytes.s + token->at, token->n, buf, cap);
}

size_t hf_decode_first(void *self, int32_t id, char *buf, size_t cap)
{
    const hf_tokenizer *t = self;
    if (!t->texts || id < 0 || (size_t)id >= t->vocab.n_ids || t->vocab.tokens[id].special)
        return hf_decode_token(self, id, buf, cap);
    return copy_text(t->text_bytes.s + t->texts[id].first_at, t->texts[id].first_n, buf, cap);
}
