/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include "checkpoint/match.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A reader knows of every tensor the boxes that lie in files (tt_entry). Filling a piece = copying
 * the intersections of its box with those, after a check that they cover it. */

/* What a load copies as it is: per file of the reader, runs of it that are read by threads. */
typedef struct file_runs {
    TT_VEC(tt_file_run) runs;
} file_runs;

typedef struct loading {
    const tt_ckpt_reader *reader;
    tt_arena *arena;
    file_runs *files;
    const tt_shard *from;
    const tt_ckpt_piece *to;
} loading;

/* Shorter runs are copied from the mapping of the file. */
#define LEAST_RUN ((size_t)512)

static bool is_mapped(const tt_shard *s)
{
    const tt_mapping *m = &s->file->map;
    const uint8_t *p = s->tensor->data;
    return m->n > 0 && p >= m->p && p + s->tensor->bytes <= m->p + m->n;
}

/* Cut at the multiples of TT_READ_BLOCK. */
static void add_run(loading *l, size_t at, size_t bytes, uint8_t *to)
{
    file_runs *f = &l->files[l->from->file - l->reader->files];
    while (bytes > 0) {
        const size_t n = TT_MIN(bytes, TT_READ_BLOCK - at % TT_READ_BLOCK);
        tt_vec_push(l->arena, &f->runs, ((tt_file_run){at, n, to}));
        at += n;
        to += n;
        bytes -= n;
    }
}

static void convert_run(void *user, int64_t from, int64_t to, int64_t n)
{
    loading *l = user;
    const tt_st_tensor *t = l->from->tensor;
    const uint8_t *p = (const uint8_t *)t->data + (size_t)from * tt_dtype_size(t->dtype);
    uint8_t *data = (uint8_t *)l->to->data + (size_t)to * tt_dtype_size(l->to->dtype);
    const size_t bytes = (size_t)n * tt_dtype_size(t->dtype);
    if (t->dtype == l->to->dtype && bytes >= LEAST_RUN && is_mapped(l->from))
        add_run(l, (size_t)(p - l->from->file->map.p), bytes, data);
    else
        tt_convert(data, l->to->dtype, p, t->dtype, (size_t)n);
}

static void load_piece(loading *l, const tt_entry *e, const tt_ckpt_piece *p)
{
    l->to = p;
    for (size_t k = 0; k < e->shards.n; k++) {
        tt_box both;
        l->from = &e->shards.items[k];
        if (tt_box_intersect(&l->from->box, &p->box, e->n_dims, &both))
            tt_box_walk(&both, &l->from->box, &p->box, p->n_dims, convert_run, l);
    }
}

static int by_place_in_file(const void *a, const void *b)
{
    const tt_file_run *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static tt_status read_files(loading *l, tt_error *err)
{
    for (size_t i = 0; i < l->reader->n_files; i++) {
        file_runs *f = &l->files[i];
        if (!f->runs.n)
            continue;
        qsort(f->runs.items, f->runs.n, sizeof *f->runs.items, by_place_in_file);
        tt_file_check *check = l->reader->checks ? &l->reader->checks[i] : NULL;
        TT_TRY(tt_read_runs(l->reader->files[i].path, f->runs.items, f->runs.n,
                            check && check->file ? check : NULL, err));
    }
    return TT_OK;
}

/* ---- coverage ---- */

static void add_range(tt_str *s, const tt_box *b, int n_dims)
{
    tt_str_addc(s, '[');
    for (int d = 0; d < n_dims; d++)
        tt_str_printf(s, "%s%lld:%lld", d ? ", " : "", (long long)b->begin[d],
                      (long long)b->end[d]);
    tt_str_addc(s, ']');
}

tt_status tt_entry_check_disjoint(const tt_ckpt_reader *r, tt_entry *e, tt_error *err)
{
    for (size_t i = 0; i < e->shards.n && !e->known_disjoint; i++) {
        const tt_shard *x = &e->shards.items[i];
        for (size_t j = i + 1; j < e->shards.n; j++) {
            const tt_shard *y = &e->shards.items[j];
            tt_box both;
            if (e->n_dims > 0 && y->box.begin[0] >= x->box.end[0])
                break; /* sorted: nor do those behind it */
            if (!tt_box_intersect(&x->box, &y->box, e->n_dims, &both))
                continue;
            tt_str range = {0};
            add_range(&range, &both, e->n_dims);
            tt_status status = TT_FAIL(err, TT_EFORMAT,
                                       "%s: tensor '%s': %s is in two files, %s and %s; remove one",
                                       r->path, e->name, range.s, x->file->path, y->file->path);
            tt_str_free(&range);
            return status;
        }
    }
    e->known_disjoint = true;
    return TT_OK;
}

/* A part of `box` that no shard from the first-th on covers: what a shard leaves of it is cut off
 * side by side. */
static bool find_uncovered(const tt_entry *e, size_t first, const tt_box *box, int depth,
                           tt_box *out)
{
    tt_box both, rest = *box;
    while (first < e->shards.n &&
           !tt_box_intersect(&e->shards.items[first].box, box, e->n_dims, &both))
        first++;
    if (first == e->shards.n || depth == 0) {
        *out = *box;
        return true;
    }
    for (int d = 0; d < e->n_dims; d++) {
        tt_box side = rest;
        side.end[d] = both.begin[d];
        if (side.end[d] > side.begin[d] && find_uncovered(e, first + 1, &side, depth - 1, out))
            return true;
        side = rest;
        side.begin[d] = both.end[d];
        if (side.end[d] > side.begin[d] && find_uncovered(e, first + 1, &side, depth - 1, out))
            return true;
        rest.begin[d] = both.begin[d];
        rest.end[d] = both.end[d];
    }
    return false;
}

tt_status tt_entry_check_covers(const tt_ckpt_reader *r, const tt_entry *e, const tt_box *box,
                                tt_error *err)
{
    int64_t wanted = 1, there = 0;
    for (int d = 0; d < e->n_dims; d++)
        if (!tt_mul_i64(wanted, box->end[d] - box->begin[d], &wanted))
            return TT_FAIL(err, TT_EFORMAT, "%s: tensor '%s': its size overflows", r->path,
                           e->name);
    for (size_t i = 0; i < e->shards.n && wanted > 0; i++) {
        tt_box both;
        if (tt_box_intersect(&e->shards.items[i].box, box, e->n_dims, &both))
            there += tt_box_numel(&both, e->n_dims);
    }
    if (there == wanted || wanted == 0)
        return TT_OK;
    tt_box hole = *box;
    tt_str range = {0};
    find_uncovered(e, 0, box, 1000, &hole);
    add_range(&range, &hole, e->n_dims);
    tt_status status =
        TT_FAIL(err, TT_EFORMAT,
                "%s: tensor '%s': %s is in no file (%lld of %lld elements are); a shard is missing",
                r->path, e->name, range.s, (long long)there, (long long)wanted);
    tt_str_free(&range);
    return status;
}

/* ---- load ---- */

tt_entry *tt_ckpt_entry(const tt_ckpt_reader *r, const char *name)
{
    tt_entry *e = tt_map_get(r->entries, name);
    return e || !r->coded ? e : tt_map_get(r->coded, name);
}

void tt_ckpt_add_shape(tt_str *s, const int64_t *shape, int n_dims)
{
    tt_str_addc(s, '[');
    for (int d = 0; d < n_dims; d++)
        tt_str_printf(s, "%s%lld", d ? "," : "", (long long)shape[d]);
    tt_str_addc(s, ']');
}

static tt_status shape_differs(const tt_ckpt_reader *r, const tt_entry *e, const tt_ckpt_piece *p,
                               tt_error *err)
{
    tt_str have = {0}, want = {0};
    tt_ckpt_add_shape(&have, e->global, TT_MIN(e->n_dims, TT_MAX_DIMS));
    tt_ckpt_add_shape(&want, p->global, p->n_dims);
    tt_status status = TT_FAIL(
        err, TT_EINVAL,
        "%s: tensor '%s' is %s there, %s in the model; load what this model wrote%s", r->path,
        e->name, have.s, want.s, r->has_manifest ? "" : " (or a shard file is missing)");
    tt_str_free(&have);
    tt_str_free(&want);
    return status;
}

const char *tt_ckpt_nearest(const tt_ckpt_reader *r, tt_arena *a, const char *name)
{
    const size_t n = tt_map_size(r->entries);
    const char **names = tt_arena_array(a, n, sizeof *names);
    for (size_t i = 0; i < n; i++)
        names[i] = tt_map_key(r->entries, i);
    return tt_nearest(name, names, n);
}

const char *tt_ckpt_why_absent(const tt_ckpt_reader *r, tt_arena *a)
{
    tt_trainer_state st;
    if (!r->has_manifest || tt_ckpt_read_state(r->path, a, &st, NULL) != TT_OK || !st.frozen_from)
        return "";
    return tt_arena_printf(
        a,
        "; this step may leave out frozen parameters (checkpoint.save_frozen), which %s has: "
        "take the run's last step or one of checkpoint.hf_interval",
        st.frozen_from);
}

/* others: how many more of the pieces are in no file. */
static tt_status absent(const tt_ckpt_reader *r, const tt_ckpt_piece *p, size_t others,
                        tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const char *near = tt_ckpt_nearest(r, a, p->name);
    tt_status status = TT_FAIL(
        err, TT_ENOTFOUND, "%s: no tensor '%s'%s%s%s%s%s", r->path, p->name,
        near ? " (there is '" : "", near ? near : "", near ? "')" : "",
        others ? tt_arena_printf(a, ", and %zu more of the model's are not there", others) : "",
        tt_ckpt_why_absent(r, a));
    tt_arena_free(a);
    return status;
}

/* A piece of the quantized dtype itself gets its bytes as they are. */
static bool is_dequantized(const tt_entry *e, const tt_ckpt_piece *p)
{
    return e->coded || (e->quantized && (!e->shards.n || p->dtype != tt_entry_dtype(e)));
}

static bool fits_by_rows(const tt_entry *e, const tt_ckpt_piece *p)
{
    return e->rows_as && e->rows_as == p->global[0] &&
           !memcmp(e->global + 1, p->global + 1, sizeof(int64_t) * (size_t)(p->n_dims - 1));
}

bool tt_ckpt_fits(const tt_entry *e, const tt_ckpt_piece *p)
{
    return e->n_dims == p->n_dims &&
           (memcmp(e->global, p->global, sizeof(int64_t) * (size_t)p->n_dims) == 0 ||
            fits_by_rows(e, p) || tt_ckpt_codes_fit(e, p));
}

static tt_status check_piece(const tt_ckpt_reader *r, const tt_ckpt_piece *p, size_t others,
                             tt_error *err)
{
    tt_entry *e = tt_ckpt_entry(r, p->name);
    int64_t global = 1;
    if (!tt_st_dtype_of(p->dtype) || p->n_dims < 0 || p->n_dims > TT_MAX_DIMS)
        return TT_FAIL(err, TT_EINVAL,
                       "checkpoint: tensor '%s' has an invalid dtype or number of dims", p->name);
    for (int d = 0; d < p->n_dims; d++) {
        if (p->box.begin[d] < 0 || p->box.end[d] < p->box.begin[d] || p->box.end[d] > p->global[d])
            return TT_FAIL(err, TT_EINVAL, "checkpoint: tensor '%s': a box beyond its shape",
                           p->name);
        global = p->global[d] == 0 ? 0 : TT_MIN(global, 1);
    }
    if (!e) /* a tensor without elements is in no file */
        return global == 0 ? TT_OK : absent(r, p, others, err);
    if (!tt_ckpt_fits(e, p))
        return shape_differs(r, e, p, err);
    if (is_dequantized(e, p) && tt_dtype_is_float(p->dtype))
        return tt_ckpt_check_codes(r, e, p, err);
    for (size_t i = 0; i < e->shards.n; i++) {
        const tt_st_tensor *t = e->shards.items[i].tensor;
        if (!tt_can_convert(p->dtype, t->dtype))
            return TT_FAIL(
                err, TT_EINVAL,
                "%s: tensor '%s' is %s there, %s in the model; only floating-point ones convert",
                r->path, p->name, t->dtype_name, tt_dtype_name(p->dtype));
        if ((t->dtype == TT_F8E4M3 || t->dtype == TT_F8E5M2) && p->dtype != t->dtype)
            return TT_FAIL(
                err, TT_EUNSUPPORTED,
                "%s: tensor '%s' is %s there, but no '%s_scale_inv' or '%s_scale' of a form that "
                "is "
                "read is beside it: one number, one per row, or one per block of weight_block_size",
                r->path, p->name, t->dtype_name, p->name, p->name);
    }
    TT_TRY(tt_entry_check_disjoint(r, e, err));
    tt_box box = p->box;
    if (e->rows_as)
        box.end[0] = TT_MIN(box.end[0], e->global[0]);
    return e->rows_as && box.begin[0] >= box.end[0] ? TT_OK
                                                    : tt_entry_check_covers(r, e, &box, err);
}

tt_status tt_entry_check_whole(const tt_ckpt_reader *r, tt_entry *e, tt_error *err)
{
    tt_box whole = {{0}, {0}};
    memcpy(whole.end, e->global, sizeof whole.end);
    TT_TRY(tt_entry_check_disjoint(r, e, err));
    return tt_entry_check_covers(r, e, &whole, err);
}

/* ---- the order of the files ---- */

typedef struct placed {
    size_t file, index;
    const uint8_t *at;
    tt_ckpt_piece piece;
} placed;

/* The first byte of a piece's tensor in the first file that has some of the piece. */
static placed placed_at(const tt_ckpt_reader *r, const tt_ckpt_piece *p, size_t index)
{
    const tt_entry *e = tt_ckpt_entry(r, p->name);
    placed out = {.file = r->n_files, .index = index, .piece = *p};
    for (size_t k = 0; e && e->n_dims == p->n_dims && k < e->shards.n; k++) {
        tt_box both;
        const tt_shard *s = &e->shards.items[k];
        const size_t file = (size_t)(s->file - r->files);
        if (file < out.file && tt_box_intersect(&s->box, &p->box, e->n_dims, &both)) {
            out.file = file;
            out.at = s->tensor->data;
        }
    }
    return out;
}

static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

void tt_ckpt_sort(const tt_ckpt_reader *r, tt_ckpt_piece *pieces, size_t n)
{
    tt_arena *a = tt_arena_new();
    placed *p = tt_arena_array(a, n + 1, sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = placed_at(r, &pieces[i], i);
    qsort(p, n, sizeof *p, by_place);
    for (size_t i = 0; i < n; i++)
        pieces[i] = p[i].piece;
    tt_arena_free(a);
}

static tt_status load_rows(void *user, const tt_ckpt_piece *rows, tt_error *err);

/* Pieces that were checked. */
static tt_status load_checked(tt_ckpt_reader *r, const tt_ckpt_piece *pieces, size_t n,
                              tt_error *err)
{
    loading l = {.reader = r, .arena = tt_arena_new()};
    tt_status status = TT_OK;
    l.files = tt_arena_array(l.arena, r->n_files + 1, sizeof *l.files);
    for (size_t i = 0; status == TT_OK && i < n; i++) {
        tt_entry *e = tt_ckpt_entry(r, pieces[i].name);
        if (!e)
            continue;
        if (pieces[i].take) {
            status = tt_ckpt_by_rows(&pieces[i], load_rows, r, err);
            continue;
        }
        e->n_read += tt_box_numel(&pieces[i].box, e->n_dims);
        if (is_dequantized(e, &pieces[i]))
            status = tt_ckpt_dequantize(r, e, &pieces[i], err);
        else
            load_piece(&l, e, &pieces[i]);
    }
    if (status == TT_OK)
        status = read_files(&l, err);
    tt_arena_free(l.arena);
    return status;
}

static tt_status load_rows(void *user, const tt_ckpt_piece *rows, tt_error *err)
{
    return load_checked(user, rows, 1, err);
}

tt_status tt_ckpt_load(tt_ckpt_reader *r, const tt_ckpt_piece *pieces, size_t n, tt_error *err)
{
    size_t missing = 0;
    for (size_t i = 0; i < n; i++)
        missing += !tt_ckpt_entry(r, pieces[i].name);
    for (size_t i = 0; i < n; i++) /* all before the first byte is copied */
        TT_TRY(check_piece(r, &pieces[i], missing ? missing - 1 : 0, err));
    return load_checked(r, pieces, n, err);
}

tt_dtype tt_entry_dtype(const tt_entry *e)
{
    return e->shards.n ? e->shards.items[0].tensor->dtype : TT_F32;
}

tt_status tt_entry_bytes(const tt_ckpt_reader *r, const tt_entry *e, tt_dtype dtype, int64_t *out,
                         tt_error *err)
{
    int64_t n = dtype < TT_N_DTYPES ? (int64_t)tt_dtype_size(dtype) : 0;
    if (!n)
        return TT_FAIL(err, TT_EUNSUPPORTED, "%s: tensor '%s' is of a type that is not read here",
                       r->path, e->name);
    for (int d = 0; d < e->n_dims; d++)
        if (!tt_mul_i64(n, e->global[d], &n))
            return TT_FAIL(err, TT_EFORMAT, "%s: tensor '%s': its size overflows", r->path,
                           e->name);
    *out = n;
    return TT_OK;
}

tt_ckpt_piece tt_entry_rows(const tt_entry *e, tt_dtype dtype, int64_t begin, int64_t end,
                            void *data)
{
    tt_ckpt_piece p = {.name = e->name, .dtype = dtype, .n_dims = e->n_dims, .data = data};
    for (int d = 0; d < e->n_dims; d++)
        p.global[d] = p.box.end[d] = e->global[d];
    if (e->n_dims) {
        p.box.begin[0] = begin;
        p.box.end[0] = end;
    }
    p.owner = true;
    return p;
}

int64_t tt_ckpt_rows(const tt_ckpt_reader *r, const char *name)
{
    const tt_entry *e = tt_map_get(r->entries, name);
    return e && e->n_dims ? e->global[0] : -1;
}

tt_dtype tt_ckpt_dtype(const tt_ckpt_reader *r, const char *name)
{
    const tt_entry *e = tt_ckpt_entry(r, name);
    if (e && e->quantized)
        return TT_BF16;
    return e && e->shards.n ? tt_entry_dtype(e) : TT_N_DTYPES;
}

bool tt_ckpt_has(const tt_ckpt_reader *r, const char *name)
{
    return tt_ckpt_entry(r, name) != NULL;
}

bool tt_ckpt_was_read(const tt_ckpt_reader *r, const char *name)
{
    const tt_entry *e = tt_ckpt_entry(r, name);
    tt_box whole = {{0}, {0}};
    if (e)
        memcpy(whole.end, e->global, sizeof whole.end);
    return e && e->n_read >= tt_box_numel(&whole, e->n_dims);
}

size_t tt_ckpt_n_tensors(const tt_ckpt_reader *r)
{
    return tt_map_size(r->entries);
}

tt_ckpt_tensor tt_ckpt_tensor_at(const tt_ckpt_reader *r, size_t i)
{
    const tt_entry *e = tt_map_value(r->entries, i);
    tt_ckpt_tensor t = {.name = e->name, .n_dims = e->n_dims};
    t.dtype_name = e->shards.n ? e->shards.items[0].tensor->dtype_name : "F32";
    memcpy(t.shape, e->global, sizeof t.shape);
    return t;
}

size_t tt_ckpt_others(const tt_ckpt_reader *r, const tt_map *used, bool (*skip)(const char *),
                      tt_arena *a, const char **out)
{
    TT_VEC(const char *) names = {0};
    for (size_t i = 0; i < tt_map_size(r->entries); i++) {
        const char *name = tt_map_key(r->entries, i);
        if (tt_map_get(used, name) || ((const tt_entry *)tt_map_value(r->entries, i))->is_scale ||
            (skip && skip(name)))
            continue;
        tt_vec_push(a, &names, name);
    }
    *out = names.n ? tt_names_fold(a, names.items, names.n) : "";
    return names.n;
}

void tt_ckpt_log_others(const tt_ckpt_reader *r, const tt_map *used, bool (*skip)(const char *))
{
    tt_arena *a = tt_arena_new();
    const char *names;
    const size_t n = tt_ckpt_others(r, used, skip, a, &names);
    if (n)
        tt_log(TT_INFO, "checkpoint", "%s: %zu tensor%s not of this model ignored: %s", r->path, n,
               n > 1 ? "s" : "", names);
    tt_arena_free(a);
}
