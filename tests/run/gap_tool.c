/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For deviations.sh: gap_tool A B END
 * Compares all tensors of two checkpoints whose names end in END: an optimizer's state, a parameter, a
 * buffer. Prints "GAP NAME": the largest |b - a| of an element over the root mean square of its tensor
 * in A (at least 1e-3 of that of all these tensors), and the tensor that has it. */

typedef struct pair {
    const char *name;
    float *a, *b;
    int64_t n;
} pair;

typedef struct pairs {
    pair *items;
    size_t n;
    double squares, count;
} pairs;

static int fails(const tt_error *err)
{
    fprintf(stderr, "gap_tool: %s\n", err->text);
    return 1;
}

static tt_status read_floats(tt_ckpt_reader *r, const char *name, float **out, int64_t *n,
                             tt_error *err)
{
    const tt_entry *e = tt_map_get(r->entries, name);
    if (!e)
        return TT_FAIL(err, TT_ENOTFOUND, "%s: no tensor %s", r->path, name);
    *n = 1;
    for (int d = 0; d < e->n_dims; d++)
        *n *= e->global[d];
    *out = malloc((size_t)*n * sizeof **out + 1);
    if (!*out)
        return TT_FAIL(err, TT_ENOMEM, "%s: no memory", name);
    const tt_ckpt_piece p = tt_entry_rows(e, TT_F32, 0, e->n_dims ? e->global[0] : 1, *out);
    return tt_ckpt_load(r, &p, 1, err);
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

static tt_status read_pair(tt_ckpt_reader *a, tt_ckpt_reader *b, const char *name, pairs *all,
                           tt_error *err)
{
    pair *p = &all->items[all->n];
    int64_t n = 0;
    p->name = name;
    TT_TRY(read_floats(a, name, &p->a, &p->n, err));
    all->n++;
    TT_TRY(read_floats(b, name, &p->b, &n, err));
    if (n != p->n)
        return TT_FAIL(err, TT_EFORMAT, "%s: %lld elements and %lld", name, (long long)p->n,
                       (long long)n);
    for (int64_t i = 0; i < n; i++)
        all->squares += (double)p->a[i] * (double)p->a[i];
    all->count += (double)n;
    return TT_OK;
}

static double gap_of(const pair *p, double least)
{
    double squares = 0, worst = 0;
    for (int64_t i = 0; i < p->n; i++)
        squares += (double)p->a[i] * (double)p->a[i];
    const double size = fmax(sqrt(squares / (double)p->n), least);
    for (int64_t i = 0; i < p->n; i++) {
        const double d = fabs((double)p->b[i] - (double)p->a[i]);
        if (!(d <= worst)) /* NaN, too */
            worst = d;
    }
    return worst > 0 || !(worst <= 0) ? worst / size : 0;
}

static void print_worst(const pairs *all)
{
    const double least = 1e-3 * sqrt(all->squares / all->count);
    double worst = -1;
    const char *name = "";
    for (size_t i = 0; i < all->n; i++) {
        const double gap = gap_of(&all->items[i], least);
        if (!(gap <= worst)) {
            worst = gap;
            name = all->items[i].name;
        }
    }
    printf("%.3g %s\n", worst, name);
}

int main(int argc, char **argv)
{
    tt_error err = {0};
    tt_ckpt_reader *a = NULL, *b = NULL;
    pairs all = {0};
    if (argc != 4)
        return 2;
    tt_status st = tt_ckpt_open(argv[1], &a, &err);
    if (st == TT_OK)
        st = tt_ckpt_open(argv[2], &b, &err);
    if (st != TT_OK)
        return fails(&err);
    const size_t n = tt_map_size(a->entries);
    all.items = calloc(n + 1, sizeof *all.items);
    for (size_t i = 0; all.items && st == TT_OK && i < n; i++)
        if (ends_with(tt_map_key(a->entries, i), argv[3]))
            st = read_pair(a, b, tt_map_key(a->entries, i), &all, &err);
    if (st == TT_OK && !all.n)
        st = TT_FAIL(&err, TT_ENOTFOUND, "%s: no tensor ends in %s", argv[1], argv[3]);
    if (st == TT_OK)
        print_worst(&all);
    for (size_t i = 0; i < all.n; i++) {
        free(all.items[i].a);
        free(all.items[i].b);
    }
    free(all.items);
    tt_ckpt_close(a);
    tt_ckpt_close(b);
    return st == TT_OK ? 0 : fails(&err);
}
