/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule_impl.h"
#include <string.h>

/* Reads the file of torchtitan's parallelism.pipeline_parallel_schedule_csv (P7): one row per rank,
 * cells like 2F0. */

typedef struct reader {
    const char *where;
    tt_arena *a;
    TT_VEC(tt_action) cells;
    TT_VEC(int) row_end; /* cells before the end of each row */
    int stage_rank[TT_MAX_STAGES];
    int n_stages, n_micro; /* the highest seen, plus one */
} reader;

static void skip_blanks(const char **p, const char *end)
{
    while (*p < end && (**p == ' ' || **p == '\t' || **p == '\r'))
        (*p)++;
}

static int csv_number(const char **p, const char *end, int limit)
{
    int n = -1;
    for (; *p < end && **p >= '0' && **p <= '9' && n < limit; (*p)++)
        n = (n < 0 ? 0 : n) * 10 + (**p - '0');
    return n;
}

static tt_status wrong(const reader *r, int column, const char *cell, const char *end,
                       const char *what, tt_error *err)
{
    int n = 0;
    while (cell + n < end && cell[n] != ',' && cell[n] != '\n' && cell[n] != '\r' && n < 40)
        n++;
    return TT_FAIL(err, TT_EINVAL, "%s:%zu: cell %d, \"%.*s\": %s", r->where, r->row_end.n + 1,
                   column, n, cell, what);
}

static tt_status read_cell(reader *r, const char **p, const char *end, int column, tt_error *err)
{
    const char *cell = *p;
    const int stage = csv_number(p, end, TT_MAX_STAGES);
    const char *letter = *p < end && **p ? strchr(TT_ACTION_LETTERS, **p) : NULL;
    *p += *p < end;
    const int micro = letter ? csv_number(p, end, TT_MAX_MICRO) : -1;
    skip_blanks(p, end);
    if (stage < 0 || micro < 0 || !letter || (*p < end && **p != ',' && **p != '\n'))
        return wrong(r, column, cell, end, "is not <stage><F|B|I|W><micro-batch>", err);
    if (stage >= TT_MAX_STAGES || micro >= TT_MAX_MICRO)
        return wrong(r, column, cell, end, "at most 64 stages and 65536 micro-batches", err);
    const int rank = (int)r->row_end.n;
    if (r->stage_rank[stage] >= 0 && r->stage_rank[stage] != rank)
        return wrong(r, column, cell, end, "this stage is also in a row above", err);
    r->stage_rank[stage] = rank;
    r->n_stages = TT_MAXV(r->n_stages, stage + 1);
    r->n_micro = TT_MAXV(r->n_micro, micro + 1);
    const tt_action x = {(tt_action_kind)(letter - TT_ACTION_LETTERS), stage, micro};
    tt_vec_push(r->a, &r->cells, x);
    return TT_OK;
}

static tt_status read_row(reader *r, const char **p, const char *end, tt_error *err)
{
    const size_t before = r->cells.n;
    int column = 1;
    for (;; column++) {
        skip_blanks(p, end);
        if (*p < end && **p != ',' && **p != '\n')
            TT_TRY(read_cell(r, p, end, column, err));
        if (*p == end || *(*p)++ == '\n')
            break;
    }
    const int n = (int)r->cells.n;
    if (r->cells.n > before || column > 1) /* an empty line is not a rank */
        tt_vec_push(r->a, &r->row_end, n);
    return TT_OK;
}

tt_status tt_schedule_read_csv(const char *text, size_t n, const char *where, tt_arena *a,
                               tt_schedule **out, tt_error *err)
{
    reader r = {.where = where, .a = a};
    const char *p = text, *end = text + n;
    memset(r.stage_rank, 0xff, sizeof r.stage_rank);
    while (p < end)
        TT_TRY(read_row(&r, &p, end, err));
    if (!r.cells.n)
        return TT_FAIL(err, TT_EINVAL, "%s: it has no action (cells like 0F0, one row per rank)",
                       where);
    for (int s = 0; s < r.n_stages; s++)
        if (r.stage_rank[s] < 0)
            return TT_FAIL(err, TT_EINVAL, "%s: stages run from 0 to %d, but %d is missing", where,
                           r.n_stages - 1, s);
    const int n_ranks = (int)r.row_end.n;
    tt_schedule *s = tt_arena_alloc(a, sizeof *s);
    *s = (tt_schedule){.name = "CSV",
                       .n_ranks = n_ranks,
                       .n_stages = r.n_stages,
                       .n_micro = r.n_micro,
                       .actions = tt_arena_array(a, (size_t)n_ranks, sizeof *s->actions),
                       .n_actions = tt_arena_array(a, (size_t)n_ranks, sizeof *s->n_actions),
                       .stage_rank =
                           tt_arena_dup(a, r.stage_rank, sizeof(int) * (size_t)r.n_stages)};
    for (int k = 0, from = 0; k < n_ranks; from = r.row_end.items[k++]) {
        s->actions[k] = &r.cells.items[from];
        s->n_actions[k] = r.row_end.items[k] - from;
    }
    for (size_t i = 0; i < r.cells.n; i++)
        s->splits = s->splits || r.cells.items[i].kind == TT_ACTION_I;
    if (tt_schedule_check(s, false, err) != TT_OK)
        return tt_error_context(err, "%s", where);
    s->ascends = tt_schedule_check(s, true, NULL) == TT_OK;
    *out = s;
    return TT_OK;
}

void tt_schedule_write_csv(const tt_schedule *s, tt_str *out)
{
    for (int r = 0; r < s->n_ranks; r++) {
        for (int i = 0; i < s->n_actions[r]; i++) {
            const tt_action *x = &s->actions[r][i];
            tt_str_printf(out, "%s%d%c%d", i ? "," : "", x->stage, TT_ACTION_LETTERS[x->kind],
                          x->micro);
        }
        tt_str_addc(out, '\n');
    }
}
