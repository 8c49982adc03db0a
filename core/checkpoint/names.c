/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/match.h"
#include <stdlib.h>
#include <string.h>

/* Names of tensors in few words: those that differ in a number alone become one, with the range. A number
 * is a whole part of a name between dots. */

#define MOST_NUMBERS 8
#define MOST_DIGITS 9

typedef struct group { /* names that differ in one number alone */
    const char *before, *after;
    TT_VEC(int64_t) numbers;
} group;

/* Where the k-th number of the name begins; its digits are *n. NULL: the name has fewer. */
static const char *number_at(const char *name, int k, size_t *n)
{
    for (const char *p = name; p; p = strchr(p, '.') ? strchr(p, '.') + 1 : NULL) {
        *n = strspn(p, "0123456789");
        if (*n && *n <= MOST_DIGITS && (p[*n] == '.' || !p[*n]) && !k--)
            return p;
    }
    return NULL;
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* "layers.{0-3,7}.weight" */
static const char *folded_text(tt_arena *a, group *g)
{
    tt_str text = {0};
    const size_t n = g->numbers.n;
    int64_t *x = g->numbers.items;
    if (!n)
        return g->before;
    qsort(x, n, sizeof *x, by_number);
    tt_str_printf(&text, n > 1 ? "%s{" : "%s", g->before);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && x[end] <= x[end - 1] + 1; end++)
            continue;
        tt_str_printf(&text, i ? ",%lld" : "%lld", (long long)x[i]);
        if (x[end - 1] > x[i])
            tt_str_printf(&text, "-%lld", (long long)x[end - 1]);
    }
    tt_str_printf(&text, n > 1 ? "}%s" : "%s", g->after);
    const char *out = tt_arena_str(a, tt_str_get(&text));
    tt_str_free(&text);
    return out;
}

/* Folds the k-th number; returns how many names are left. */
static size_t fold_number(tt_arena *a, const char **names, size_t n, int k)
{
    tt_map *groups = tt_map_new(a);
    for (size_t i = 0; i < n; i++) {
        size_t digits = 0;
        const char *at = number_at(names[i], k, &digits), *key = names[i];
        if (at)
            key = tt_arena_printf(a, "%.*s\n%s", (int)(at - names[i]), names[i], at + digits);
        group *g = tt_map_get(groups, key);
        if (!g) {
            g = tt_arena_alloc(a, sizeof *g);
            g->before = at ? tt_arena_strn(a, names[i], (size_t)(at - names[i])) : names[i];
            g->after = at ? at + digits : "";
            tt_map_set(groups, key, g);
        }
        if (at)
            tt_vec_push(a, &g->numbers, strtoll(at, NULL, 10));
    }
    for (size_t i = 0; i < tt_map_size(groups); i++)
        names[i] = folded_text(a, tt_map_value(groups, i));
    return tt_map_size(groups);
}

const char *tt_names_fold(tt_arena *a, const char *const *names, size_t n)
{
    tt_str text = {0};
    const char **left = tt_arena_dup(a, names, n * sizeof *names);
    for (int k = MOST_NUMBERS - 1; k >= 0; k--)
        n = fold_number(a, left, n, k);
    for (size_t i = 0; i < n; i++)
        tt_str_printf(&text, "%s%s", i ? ", " : "", left[i]);
    const char *out = tt_arena_str(a, tt_str_get(&text));
    tt_str_free(&text);
    return out;
}
