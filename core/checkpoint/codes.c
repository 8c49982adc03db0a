/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <stdlib.h>
#include <string.h>

/* Weights that a run of ttrun stores as codes (<ttrun/codes.h>): W.nf4 U8 [out, blocks, 32] or W.int8 U8
 * [out, in], and W.absmax F32 [out, blocks]. A reader sees W [out, in] too, in floats, so exports, and runs
 * that have W as floats, need not know of codes. */

struct tt_coded {
    tt_codes format;
    const tt_entry *codes, *absmax;
};

enum { RUN_ROWS = 64 };

static void add_coded(tt_ckpt_reader *r, tt_entry *e)
{
    static const tt_codes formats[] = {TT_CODES_NF4, TT_CODES_INT8};
    const char *dot = strrchr(e->name, '.');
    struct tt_coded c = {.codes = e};
    for (size_t i = 0; dot && i < TT_COUNT(formats); i++)
        if (!strcmp(dot + 1, tt_codes_name(formats[i])))
            c.format = formats[i];
    if (!c.format)
        return;
    const char *name = tt_arena_strn(r->arena, e->name, (size_t)(dot - e->name));
    tt_entry *s = tt_map_get(r->entries, tt_arena_printf(r->arena, "%s.absmax", name));
    const bool nf4 = c.format == TT_CODES_NF4;
    if (!s || tt_map_get(r->entries, name) || s->n_dims != 2 || tt_entry_dtype(s) != TT_F32 ||
        s->global[0] != e->global[0] || e->n_dims != (nf4 ? 3 : 2) ||
        (nf4 ? e->global[1] != s->global[1] || e->global[2] != TT_NF4_BYTES : s->global[1] != 1))
        return;
    tt_entry *w = tt_arena_alloc(r->arena, sizeof *w);
    c.absmax = s;
    *w = (tt_entry){.name = name, .n_dims = 2};
    w->global[0] = e->global[0];
    w->global[1] = nf4 ? e->global[1] * TT_NF4_BLOCK : e->global[1];
    w->coded = tt_arena_dup(r->arena, &c, sizeof c);
    r->coded = r->coded ? r->coded : tt_map_new(r->arena);
    tt_map_set(r->coded, name, w);
    e->is_scale = s->is_scale = true;
}

void tt_ckpt_find_coded(tt_ckpt_reader *r)
{
    for (size_t i = 0; i < tt_map_size(r->entries); i++) {
        tt_entry *e = tt_map_value(r->entries, i);
        if (e->shards.n && tt_entry_dtype(e) == TT_U8)
            add_coded(r, e);
    }
}

bool tt_ckpt_codes_fit(const tt_entry *e, const tt_ckpt_piece *p)
{
    return e->coded && e->coded->format == TT_CODES_NF4 && e->global[0] == p->global[0] &&
           tt_codes_blocks(TT_CODES_NF4, p->global[1]) * TT_NF4_BLOCK == e->global[1];
}

tt_status tt_ckpt_check_codes(const tt_ckpt_reader *r, const tt_entry *e, const tt_ckpt_piece *p,
                              tt_error *err)
{
    const tt_entry *parts[] = {e->coded ? e->coded->codes : NULL,
                               e->coded ? e->coded->absmax : NULL};
    for (size_t i = 0; e->coded && i < TT_COUNT(parts); i++) {
        const tt_ckpt_piece rows =
            tt_entry_rows(parts[i], tt_entry_dtype(parts[i]), p->box.begin[0], p->box.end[0], NULL);
        TT_TRY(tt_entry_check_disjoint(r, tt_map_get(r->entries, parts[i]->name), err));
        TT_TRY(tt_entry_check_covers(r, parts[i], &rows.box, err));
    }
    return TT_OK;
}

/* At most RUN_ROWS rows of a piece, whose codes and scales are in memory. */
static void decode_rows(const struct tt_coded *c, const tt_ckpt_piece *p, int64_t first, int64_t n,
                        const uint8_t *codes, const float *absmax)
{
    const int64_t cols = p->box.end[1] - p->box.begin[1];
    const int64_t bytes = c->codes->global[1] * (c->format == TT_CODES_NF4 ? TT_NF4_BYTES : 1);
    uint8_t *to = (uint8_t *)p->data + (size_t)(first * cols) * tt_dtype_size(p->dtype);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < cols; k++) {
            const float x = tt_codes_value(c->format, codes + i * bytes,
                                           absmax + i * c->absmax->global[1], p->box.begin[1] + k);
            tt_convert(to, p->dtype, &x, TT_F32, 1);
            to += tt_dtype_size(p->dtype);
        }
}

tt_status tt_ckpt_decode(tt_ckpt_reader *r, const tt_entry *e, const tt_ckpt_piece *p,
                         tt_error *err)
{
    const struct tt_coded *c = e->coded;
    const int64_t rows = p->box.end[0] - p->box.begin[0],
                  bytes = c->codes->global[1] * (c->format == TT_CODES_NF4 ? TT_NF4_BYTES : 1);
    uint8_t *codes = malloc((size_t)(RUN_ROWS * bytes) + 1);
    float *absmax = malloc((size_t)(RUN_ROWS * c->absmax->global[1]) * sizeof *absmax + 1);
    tt_status s =
        codes && absmax ? TT_OK : TT_FAIL(err, TT_ENOMEM, "no memory to decode '%s'", e->name);
    for (int64_t at = 0; s == TT_OK && at < rows; at += RUN_ROWS) {
        const int64_t n = TT_MIN((int64_t)RUN_ROWS, rows - at), begin = p->box.begin[0] + at;
        const tt_ckpt_piece parts[] = {tt_entry_rows(c->codes, TT_U8, begin, begin + n, codes),
                                       tt_entry_rows(c->absmax, TT_F32, begin, begin + n, absmax)};
        s = tt_ckpt_load(r, parts, TT_COUNT(parts), err);
        if (s == TT_OK)
            decode_rows(c, p, at, n, codes, absmax);
    }
    free(codes);
    free(absmax);
    return s;
}

bool tt_ckpt_is_coded(const tt_ckpt_reader *r, const char *name)
{
    return r->coded && tt_map_get(r->coded, name);
}
