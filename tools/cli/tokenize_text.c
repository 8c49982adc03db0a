/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tokenize_text.h"
#include "base/pool.h"
#include <stdlib.h>
#include <string.h>

/* The text is cut into pieces of at least PIECE bytes, after a line or where the tokenizer allows a
 * cut. Any free thread encodes a piece; the results are printed in order, one round at a time. */

#define PIECE ((size_t)256 << 10)
#define ROUND 8 /* pieces per thread that are encoded before they are printed */

typedef struct piece {
    const char *s;
    size_t n;
    bool first, last; /* of the text */
    tt_str out;
    tt_status status;
    tt_error err;
} piece;

typedef struct round_ {
    const tt_tokenize_opts *o;
    tt_tokenizer_info info;
    piece *pieces;
} round_;

static void add_id(tt_str *out, int32_t id, bool first)
{
    char digits[12];
    size_t k = sizeof digits;
    do
        digits[--k] = (char)('0' + id % 10);
    while ((id /= 10) > 0);
    if (!first)
        digits[--k] = ' ';
    tt_str_addn(out, digits + k, sizeof digits - k);
}

/* A document, or the part of one in a piece. */
static tt_status add_ids(const round_ *r, piece *p, const char *s, size_t n, bool first, bool last,
                         tt_ids *ids)
{
    const tt_tokenize_opts *o = r->o;
    ids->n = 0;
    if (first && o->bos && r->info.bos >= 0)
        TT_TRY(tt_ids_push(ids, r->info.bos, &p->err));
    TT_TRY(TT_PLUGIN_CALL(o->vt->encode(o->self, s, n, ids, &p->err), &p->err, "tokenizer", NULL));
    if (last && o->eos && r->info.eos >= 0)
        TT_TRY(tt_ids_push(ids, r->info.eos, &p->err));
    for (size_t i = 0; i < ids->n; i++)
        add_id(&p->out, ids->ids[i], i == 0 && first);
    if (last)
        tt_str_addc(&p->out, '\n');
    return TT_OK;
}

static void encode_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const round_ *r = arg;
    tt_ids ids = {0};
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        piece *p = &r->pieces[i];
        tt_str_clear(&p->out);
        if (!r->o->lines) {
            p->status = add_ids(r, p, p->s, p->n, p->first, p->last, &ids);
            continue;
        }
        p->status = TT_OK;
        for (size_t at = 0; p->status == TT_OK && at < p->n;) {
            const char *newline = memchr(p->s + at, '\n', p->n - at);
            const size_t n = newline ? (size_t)(newline - p->s) - at : p->n - at;
            p->status = add_ids(r, p, p->s + at, n, true, true, &ids);
            at += n + 1;
        }
    }
    tt_ids_free(&ids);
}

/* The end of the piece that begins at `at`. */
static size_t end_of_piece(const tt_tokenize_opts *o, const char *text, size_t n, size_t at)
{
    if (n - at <= PIECE)
        return n;
    if (o->lines) {
        const char *newline = memchr(text + at + PIECE, '\n', n - at - PIECE);
        return newline ? (size_t)(newline - text) + 1 : n;
    }
    const size_t cut = TT_HAS(o->vt, tt_tokenizer_vt, cut) && o->vt->cut
                           ? o->vt->cut(o->self, text, n, at + PIECE)
                           : n;
    return cut > at && cut < n ? cut : n;
}

tt_status tt_tokenize_text(const tt_tokenize_opts *o, const char *text, size_t n,
                           void (*put)(const tt_str *piece), tt_error *err)
{
    round_ r = {.o = o, .info = {.struct_size = sizeof r.info}};
    tt_pool *pool = NULL;
    TT_TRY(tt_pool_new(o->threads, &pool, err));
    const size_t most = (size_t)o->threads * ROUND;
    tt_status s = TT_OK;
    o->vt->info(o->self, &r.info);
    r.pieces = calloc(most, sizeof *r.pieces);
    if (!r.pieces)
        s = TT_FAIL(err, TT_ENOMEM, "out of memory for %zu pieces of text", most);
    bool first = true;
    for (size_t at = 0; s == TT_OK && (at < n || (first && !o->lines));) {
        size_t k = 0;
        for (; k < most && (at < n || (first && !o->lines)); k++) {
            const size_t end = end_of_piece(o, text, n, at);
            r.pieces[k].s = text + at;
            r.pieces[k].n = end - at;
            r.pieces[k].first = first;
            r.pieces[k].last = end == n;
            first = false;
            at = end;
        }
        tt_parallel_for(pool, (int64_t)k, 1, encode_piece, &r);
        for (size_t i = 0; s == TT_OK && i < k; i++) {
            s = r.pieces[i].status;
            if (s == TT_OK)
                put(&r.pieces[i].out);
            else if (err)
                *err = r.pieces[i].err;
        }
    }
    for (size_t i = 0; r.pieces && i < most; i++)
        tt_str_free(&r.pieces[i].out);
    free(r.pieces);
    tt_pool_free(pool);
    return s;
}
