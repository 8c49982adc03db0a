/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Compares two folders tensor by tensor. */

#define CHUNK_BYTES ((int64_t)8 << 20)

static int diff_by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* Names of both, sorted, each once. */
static const char **all_names(tt_arena *a, const tt_ckpt_reader *x, const tt_ckpt_reader *y,
                              size_t *n)
{
    tt_map *seen = tt_map_new(a);
    const tt_map *both[] = {x->entries, y->entries};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < tt_map_size(both[k]); i++)
            tt_map_set(seen, tt_map_key(both[k], i), seen);
    *n = tt_map_size(seen);
    const char **names = tt_arena_array(a, *n + 1, sizeof *names);
    for (size_t i = 0; i < *n; i++)
        names[i] = tt_map_key(seen, i);
    qsort(names, *n, sizeof *names, diff_by_name);
    return names;
}

typedef struct difference {
    int64_t n, n_differ;
    double most;
} difference;

static void compare_values(const uint8_t *x, const uint8_t *y, int64_t n, tt_dtype dtype,
                           difference *out)
{
    const size_t size = tt_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++, x += size, y += size) {
        if (!memcmp(x, y, size))
            continue;
        out->n_differ++;
        double a = 0, b = 0;
        if (dtype == TT_F64) {
            memcpy(&a, x, sizeof a);
            memcpy(&b, y, sizeof b);
        }
        const double d = fabs(a - b);
        out->most = d > out->most || isnan(d) ? d : out->most;
    }
    out->n += n;
}

/* Floats as f64, which holds all of them; anything else must have one dtype. */
static tt_status diff_compare(tt_ckpt_reader *a, tt_ckpt_reader *b, const tt_entry *x,
                              const tt_entry *y, tt_dtype dtype, difference *out, tt_error *err)
{
    int64_t row = 0;
    const int64_t rows = x->n_dims ? x->global[0] : 1;
    TT_TRY(tt_entry_bytes(a, x, dtype, &row, err));
    row = rows > 0 ? row / rows : 0;
    const int64_t step = TT_MAXV(CHUNK_BYTES / TT_MAXV(row, (int64_t)1), (int64_t)1);
    uint8_t *data = malloc((size_t)(2 * step * row) + 1);
    if (!data)
        return TT_FAIL(err, TT_ENOMEM, "no memory to compare tensor '%s'", x->name);
    tt_status s = TT_OK;
    for (int64_t r = 0; r < rows && row > 0 && s == TT_OK; r += step) {
        const int64_t n = TT_MIN(step, rows - r);
        const tt_ckpt_piece p = tt_entry_rows(x, dtype, r, r + n, data);
        const tt_ckpt_piece q = tt_entry_rows(y, dtype, r, r + n, data + n * row);
        s = tt_ckpt_load(a, &p, 1, err);
        if (s == TT_OK)
            s = tt_ckpt_load(b, &q, 1, err);
        if (s == TT_OK)
            compare_values(data, data + n * row, n * row / (int64_t)tt_dtype_size(dtype), dtype,
                           out);
    }
    free(data);
    return s;
}

static void add_shape(tt_str *out, const tt_entry *e)
{
    for (int d = 0; d < e->n_dims; d++)
        tt_str_printf(out, "%s%lld", d ? "," : "", (long long)e->global[d]);
}

/* A folder without any optimizer state, such as Hugging Face's, gets one line for all of them.
 * Removes their names from the list. */
static size_t fold_states(const tt_ckpt_reader *a, const tt_ckpt_reader *b, const char **names,
                          size_t n, tt_str *out, size_t *n_differ)
{
    static const char prefix[] = "optimizer.state.";
    size_t of_a = 0, of_b = 0, kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!strncmp(names[i], prefix, sizeof prefix - 1)) {
            of_a += tt_map_get(a->entries, names[i]) != NULL;
            of_b += tt_map_get(b->entries, names[i]) != NULL;
        }
    if (of_a + of_b < 2 || (of_a && of_b))
        return n;
    for (size_t i = 0; i < n; i++)
        if (strncmp(names[i], prefix, sizeof prefix - 1) != 0)
            names[kept++] = names[i];
    tt_str_printf(out, "%zu optimizer states: only in %s\n", n - kept, of_a ? a->path : b->path);
    *n_differ += n - kept;
    return kept;
}

static tt_status diff_entry(tt_ckpt_reader *a, tt_ckpt_reader *b, const char *name, tt_str *out,
                            size_t *n_differ, tt_error *err)
{
    const tt_entry *x = tt_map_get(a->entries, name), *y = tt_map_get(b->entries, name);
    difference d = {0};
    *n_differ += 1;
    if (!x || !y) {
        tt_str_printf(out, "%s: only in %s\n", name, x ? a->path : b->path);
        return TT_OK;
    }
    bool same = x->n_dims == y->n_dims;
    for (int k = 0; k < x->n_dims && same; k++)
        same = x->global[k] == y->global[k];
    if (!same) {
        tt_str_printf(out, "%s: [", name);
        add_shape(out, x);
        tt_str_add(out, "] and [");
        add_shape(out, y);
        tt_str_add(out, "]\n");
        return TT_OK;
    }
    const tt_dtype p = tt_entry_dtype(x), q = tt_entry_dtype(y);
    const bool codes = p == q && (p == TT_F8E4M3 || p == TT_F8E5M2); /* nothing without scales */
    const bool floats = !codes && tt_can_convert(TT_F64, p) && tt_can_convert(TT_F64, q);
    if (!floats && (p != q || p == TT_N_DTYPES)) {
        tt_str_printf(out, "%s: the dtypes cannot be compared\n", name);
        return TT_OK;
    }
    TT_TRY(diff_compare(a, b, x, y, floats ? TT_F64 : p, &d, err));
    if (!d.n_differ) {
        *n_differ -= 1;
        return TT_OK;
    }
    tt_str_printf(out, "%s: %lld of %lld elements differ", name, (long long)d.n_differ,
                  (long long)d.n);
    if (floats)
        tt_str_printf(out, ", by %.3g at most", d.most);
    tt_str_add(out, "\n");
    return TT_OK;
}

tt_status tt_ckpt_diff(const char *a, const char *b, tt_str *out, size_t *n_tensors,
                       size_t *n_differ, tt_error *err)
{
    tt_arena *arena = tt_arena_new();
    tt_ckpt_reader *x = NULL, *y = NULL;
    const char **names = NULL;
    size_t n = 0;
    *n_differ = 0;
    tt_status s = tt_ckpt_open(a, &x, err);
    if (s == TT_OK)
        s = tt_ckpt_open(b, &y, err);
    if (s == TT_OK)
        names = all_names(arena, x, y, &n);
    *n_tensors = n;
    if (s == TT_OK)
        n = fold_states(x, y, names, n, out, n_differ);
    for (size_t i = 0; i < n && s == TT_OK; i++)
        s = diff_entry(x, y, names[i], out, n_differ, err);
    tt_ckpt_close(x);
    tt_ckpt_close(y);
    tt_arena_free(arena);
    return s;
}
