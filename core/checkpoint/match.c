/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/match.h"
#include "checkpoint/internal.h"
#include <string.h>

/* ---- new names ---- */

static tt_status rename_into(const tt_map *from, tt_renames *rules, tt_ckpt_reader *r, tt_map *to,
                             tt_map *old, tt_error *err)
{
    for (size_t i = 0; i < tt_map_size(from); i++) {
        const char *was = tt_map_key(from, i), *name = NULL;
        TT_TRY(tt_renames_apply(rules, r->arena, was, &name, err));
        if (tt_map_get(to, name))
            return TT_FAIL(err, TT_EINVAL, "tensors '%s' and '%s' would both be '%s'",
                           (const char *)tt_map_get(old, name), was, name);
        tt_entry *e = tt_arena_dup(r->arena, tt_map_value(from, i), sizeof *e);
        e->name = name;
        tt_map_set(to, name, e);
        tt_map_set(old, name, (void *)was);
    }
    return TT_OK;
}

static tt_status rename_entries(tt_ckpt_reader *r, tt_renames *rules, tt_error *err)
{
    tt_map *entries = tt_map_new(r->arena), *coded = r->coded ? tt_map_new(r->arena) : NULL;
    TT_TRY(rename_into(r->entries, rules, r, entries, tt_map_new(r->arena), err));
    if (coded)
        TT_TRY(rename_into(r->coded, rules, r, coded, tt_map_new(r->arena), err));
    r->entries = entries;
    r->coded = coded;
    for (size_t i = 0; i < rules->n; i++)
        if (!rules->items[i].used)
            return TT_FAIL(err, TT_EINVAL, "\"%.80s\" matches no tensor's name",
                           rules->items[i].text);
    return TT_OK;
}

tt_status tt_ckpt_rename(tt_ckpt_reader *r, const tt_strings *texts, tt_error *err)
{
    tt_renames rules;
    if (!texts || !texts->n)
        return TT_OK;
    tt_status s = tt_renames_make(r->arena, texts, &rules, err);
    if (s == TT_OK)
        s = rename_entries(r, &rules, err);
    return s == TT_OK ? TT_OK
                      : tt_error_context(err, "%s: checkpoint.initial_load_rename", r->path);
}

/* ---- what is there and what is not ---- */

typedef TT_VEC(const char *) names;

typedef struct mismatch {
    names absent, reshaped, shapes; /* shapes: "name [2,3] (the model's: [4,3])" */
    names by_rows;                  /* the same of those whose rows are tokens */
    size_t matching;
} mismatch;

static const char *shape_text(tt_arena *a, const int64_t *shape, int n_dims)
{
    tt_str s = {0};
    tt_ckpt_add_shape(&s, shape, n_dims);
    const char *out = tt_arena_str(a, tt_str_get(&s));
    tt_str_free(&s);
    return out;
}

/* Whether the entry is that of another vocabulary alone. */
static bool has_other_tokens(const tt_entry *e, const tt_ckpt_tensor *t)
{
    bool same = t->vocab && e->n_dims == t->n_dims && t->n_dims > 0 && e->global[0] > 0 &&
                !e->quantized && !e->coded;
    for (int d = 1; same && d < t->n_dims; d++)
        same = e->global[d] == t->shape[d];
    return same;
}

static void compare(const tt_ckpt_reader *r, const tt_ckpt_tensor *t, bool partial, tt_arena *a,
                    mismatch *m)
{
    tt_ckpt_piece p = {.name = t->name, .n_dims = t->n_dims};
    tt_entry *e = tt_ckpt_entry(r, t->name);
    bool empty = false; /* a tensor without elements is in no file */
    for (int d = 0; d < t->n_dims; d++) {
        p.global[d] = t->shape[d];
        empty = empty || t->shape[d] == 0;
    }
    if (!e && !empty) {
        tt_vec_push(a, &m->absent, t->name);
    } else if (e && !tt_ckpt_fits(e, &p)) {
        const char *text = tt_arena_printf(a, "%s %s (the model's: %s)", t->name,
                                           shape_text(a, e->global, TT_MIN(e->n_dims, TT_MAX_DIMS)),
                                           shape_text(a, t->shape, t->n_dims));
        if (partial && has_other_tokens(e, t)) {
            e->rows_as = t->shape[0];
            tt_vec_push(a, &m->by_rows, text);
            m->matching++;
            return;
        }
        tt_vec_push(a, &m->reshaped, t->name);
        tt_vec_push(a, &m->shapes, text);
    } else {
        m->matching++;
    }
}

static tt_status absent_error(const tt_ckpt_reader *r, const mismatch *m, tt_arena *a,
                              tt_error *err)
{
    const char *first = m->absent.items[0], *near = tt_ckpt_nearest(r, a, first);
    const size_t others = m->absent.n - 1;
    const char *more = others
                           ? tt_arena_printf(a, ", and %zu more of the model's are not there: %s",
                                             others, tt_names_fold(a, m->absent.items + 1, others))
                           : "";
    return TT_FAIL(err, TT_ENOTFOUND, "%s: no tensor '%s'%s%s%s%s%s", r->path, first,
                   near ? " (there is '" : "", near ? near : "", near ? "')" : "", more,
                   tt_ckpt_why_absent(r, a));
}

static tt_status reshaped_error(const tt_ckpt_reader *r, const tt_ckpt_tensor *first,
                                const mismatch *m, tt_arena *a, tt_error *err)
{
    const tt_entry *e = tt_ckpt_entry(r, first->name);
    const size_t others = m->shapes.n - 1;
    return TT_FAIL(err, TT_EINVAL,
                   "%s: tensor '%s' is %s there, %s in the model; load what this model wrote%s%s",
                   r->path, first->name, shape_text(a, e->global, TT_MIN(e->n_dims, TT_MAX_DIMS)),
                   shape_text(a, first->shape, first->n_dims),
                   r->has_manifest ? "" : " (or a shard file is missing)",
                   others ? tt_arena_printf(a, "; %zu more differ%s in shape: %s", others,
                                            others > 1 ? "" : "s",
                                            tt_names_fold(a, m->shapes.items + 1, others))
                          : "");
}

static const tt_ckpt_tensor *find_wanted(const tt_ckpt_tensor *wanted, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (wanted[i].name == name)
            return &wanted[i];
    return wanted;
}

static void report_mismatch(const tt_ckpt_reader *r, const mismatch *m, tt_arena *a)
{
    const size_t n = m->absent.n, k = m->shapes.n;
    if (n)
        tt_log(TT_WARN, "checkpoint",
               "%s: lacks %zu tensor%s of this model, which keep%s initial values: %s", r->path, n,
               n > 1 ? "s" : "", n > 1 ? "" : "s", tt_names_fold(a, m->absent.items, n));
    if (m->by_rows.n)
        tt_log(
            TT_WARN, "checkpoint",
            "%s: has %zu tensor%s of another vocabulary: the rows of the tokens that both have are "
            "taken, others keep initial values: %s",
            r->path, m->by_rows.n, m->by_rows.n > 1 ? "s" : "",
            tt_names_fold(a, m->by_rows.items, m->by_rows.n));
    if (k)
        tt_log(TT_WARN, "checkpoint",
               "%s: has %zu tensor%s in another shape, which keep%s initial values: %s", r->path, k,
               k > 1 ? "s" : "", k > 1 ? "" : "s", tt_names_fold(a, m->shapes.items, k));
}

tt_status tt_ckpt_match(const tt_ckpt_reader *r, const tt_ckpt_tensor *wanted, size_t n,
                        const tt_ckpt_matching *how, tt_arena *a, tt_map **out, tt_error *err)
{
    mismatch m = {0};
    *out = tt_map_new(a);
    for (size_t i = 0; i < n; i++)
        compare(r, &wanted[i], how->partial, a, &m);
    const bool fails = !how->partial && (m.absent.n || m.shapes.n);
    if (fails) {
        const char *first = m.absent.n ? m.absent.items[0] : m.reshaped.items[0];
        tt_map_set(*out, first, (void *)first);
    }
    if (fails && m.absent.n)
        return absent_error(r, &m, a, err);
    if (fails)
        return reshaped_error(r, find_wanted(wanted, n, m.reshaped.items[0]), &m, a, err);
    if (n && !m.matching)
        return TT_FAIL(err, TT_EINVAL,
                       "%s: none of its tensors is one of this model's: the model has '%s'",
                       r->path, wanted[0].name);
    for (size_t i = 0; i < m.absent.n; i++)
        tt_map_set(*out, m.absent.items[i], (void *)m.absent.items[i]);
    for (size_t i = 0; i < m.reshaped.n; i++)
        tt_map_set(*out, m.reshaped.items[i], (void *)m.reshaped.items[i]);
    if (how->report)
        report_mismatch(r, &m, a);
    return TT_OK;
}
