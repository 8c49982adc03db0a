/* SPDX-License-Identifier: Apache-2.0 */
#include "sentencepiece.h"
#include "protobuf.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads tokenizer.model of sentencepiece, a protocol buffer: pieces with scores and types, a
 * normalizer, and what the trainer was told. Field numbers are those of its
 * sentencepiece_model.proto. */

/* The fields may have any order, and there may be others. */
bool hf_is_sentencepiece(const char *text, size_t n)
{
    hf_message m = {(const uint8_t *)text, (const uint8_t *)text + n, false};
    hf_field f;
    bool piece = false;
    while (hf_next_field(&m, &f))
        piece = piece || (f.number == 1 && f.wire == 2);
    return piece && !m.bad;
}

static tt_status read_piece(sp_model *sp, const hf_file *f, const hf_field *outer)
{
    hf_message m = {outer->text, outer->text + outer->n, false};
    sp_piece p = {.type = NORMAL};
    hf_field in;
    while (hf_next_field(&m, &in)) {
        if (in.number == 1 && in.wire == 2) {
            p.s = in.text;
            p.n = in.n;
        } else if (in.number == 2 && in.wire == 5) {
            p.score = hf_float(&in);
        } else if (in.number == 3 && in.wire == 0) {
            p.type = in.value <= BYTE ? (unsigned)in.value : 0;
        }
    }
    if (m.bad || p.n == 0 || !isfinite(p.score) || p.type < NORMAL || memchr(p.s, 0, p.n) ||
        hf_utf8_valid(p.s, p.n) != p.n)
        return HF_FAIL(f, "%s: piece %zu: not a text with a score and a type", f->name, sp->n);
    if (sp->n == MOST_PIECES)
        return HF_FAIL(f, "%s: more than %zu pieces", f->name, MOST_PIECES);
    if (sp->n == sp->cap) {
        const size_t cap = 2 * sp->cap + 1024;
        sp_piece *more = realloc(sp->pieces, cap * sizeof *more);
        if (!more)
            return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for %zu pieces", f->name, cap);
        sp->pieces = more;
        sp->cap = cap;
    }
    sp->pieces[sp->n++] = p;
    return TT_OK;
}

static void read_trainer(sp_model *sp, const hf_field *outer, bool *bad)
{
    hf_message m = {outer->text, outer->text + outer->n, false};
    hf_field in;
    while (hf_next_field(&m, &in)) {
        const sp_text text = {in.text, in.n};
        if (in.number == 3 && in.wire == 0)
            sp->model_type = in.value;
        else if (in.number == 24 && in.wire == 0)
            sp->suffix = in.value;
        else if (in.number == 35 && in.wire == 0)
            sp->byte_fallback = in.value;
        else if (in.number == 44 && in.wire == 2)
            sp->unk_surface = text;
        else if (in.number == 46 && in.wire == 2)
            sp->bos = text;
        else if (in.number == 47 && in.wire == 2)
            sp->eos = text;
        else if (in.number == 48 && in.wire == 2)
            sp->pad = text;
    }
    *bad = *bad || m.bad;
}

static void read_normalizer(sp_model *sp, const hf_field *outer, bool *bad)
{
    hf_message m = {outer->text, outer->text + outer->n, false};
    hf_field in;
    while (hf_next_field(&m, &in)) {
        if (in.number == 2 && in.wire == 2)
            sp->charsmap = (sp_text){in.text, in.n};
        else if (in.number == 3 && in.wire == 0)
            sp->dummy_prefix = in.value;
        else if (in.number == 4 && in.wire == 0)
            sp->trim_blanks = in.value;
        else if (in.number == 5 && in.wire == 0)
            sp->escape = in.value;
    }
    *bad = *bad || m.bad;
}

static void read_denormalizer(sp_model *sp, const hf_field *outer)
{
    hf_message m = {outer->text, outer->text + outer->n, false};
    hf_field in;
    while (hf_next_field(&m, &in))
        sp->denormalizer = sp->denormalizer || (in.number == 2 && in.wire == 2 && in.n > 0);
}

tt_status hf_read_sentencepiece(sp_model *sp, const hf_file *f, const char *text, size_t n)
{
    static const char surface[] = " \xe2\x81\x87 ";
    *sp = (sp_model){
        .model_type = UNIGRAM,
        .dummy_prefix = true,
        .trim_blanks = true,
        .escape = true,
        .unk_surface = {(const uint8_t *)surface, sizeof surface - 1},
        .bos = {(const uint8_t *)"<s>",   3                 },
        .eos = {(const uint8_t *)"</s>",  4                 },
        .pad = {(const uint8_t *)"<pad>", 5                 }
    };
    hf_message m = {(const uint8_t *)text, (const uint8_t *)text + n, false};
    hf_field in;
    bool bad = false;
    while (hf_next_field(&m, &in)) {
        if (in.wire != 2)
            continue;
        if (in.number == 1)
            TT_TRY(read_piece(sp, f, &in));
        else if (in.number == 2)
            read_trainer(sp, &in, &bad);
        else if (in.number == 3)
            read_normalizer(sp, &in, &bad);
        else if (in.number == 5)
            read_denormalizer(sp, &in);
    }
    if (m.bad || bad)
        return HF_FAIL(f, "%s: not a sentencepiece model: a field is cut short", f->name);
    if (sp->model_type != UNIGRAM && sp->model_type != BPE)
        return TT_FAIL(
            f->err, TT_EUNSUPPORTED,
            "%s: trainer_spec.model_type: %llu is not supported (1, Unigram, and 2, BPE, "
            "are)",
            f->name, (unsigned long long)sp->model_type);
    if (sp->denormalizer)
        return TT_FAIL(f->err, TT_EUNSUPPORTED, "%s: denormalizer_spec: not supported", f->name);
    sp->n_ids = sp->n;
    return TT_OK;
}
