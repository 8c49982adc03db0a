/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For test_states.sh: states_tool EXACT ROUNDED STATE OTHER
 * Compares the optimizer states of two checkpoints of one run, the second one with rounded states.
 * Prints "error E spread S differ D": sum(rounded - exact) / sum(|exact|) of all elements of STATE, the
 * mean of |rounded - exact| / |exact|, and the share of elements in which the rounded STATE and
 * OTHER differ. */

typedef struct sums {
    double signed_error, size, spread;
    int64_t n, n_differ;
} sums;

static int fails(const tt_error *err)
{
    fprintf(stderr, "%s\n", err->text);
    return 1;
}

/* The tensor of a name as f32, from malloc. */
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
    const tt_ckpt_piece p = tt_entry_rows(e, TT_F32, 0, e->n_dims ? e->global[0] : 1, *out);
    return tt_ckpt_load(r, &p, 1, err);
}

static void add(sums *s, const float *exact, const float *rounded, const float *other, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)exact[i], d = (double)rounded[i] - x;
        const bool is_normal = fabs(x) > 1e-30;
        s->signed_error += x < 0 ? -d : d;
        s->size += fabs(x);
        s->spread += is_normal ? fabs(d / x) : 0;
        s->n += is_normal;
        s->n_differ += rounded[i] < other[i] || rounded[i] > other[i];
    }
}

static bool ends_with(const char *name, const char *state)
{
    const size_t n = strlen(name), m = strlen(state);
    return n > m && name[n - m - 1] == '.' && !strcmp(name + n - m, state);
}

static tt_status compare(tt_ckpt_reader *exact, tt_ckpt_reader *rounded, const char *name,
                         const char *state, const char *other, sums *s, tt_error *err)
{
    char twin[512];
    float *x = NULL, *y = NULL, *z = NULL;
    int64_t n = 0;
    snprintf(twin, sizeof twin, "%.*s%s", (int)(strlen(name) - strlen(state)), name, other);
    tt_status st = read_floats(exact, name, &x, &n, err);
    if (st == TT_OK)
        st = read_floats(rounded, name, &y, &n, err);
    if (st == TT_OK)
        st = read_floats(rounded, twin, &z, &n, err);
    if (st == TT_OK)
        add(s, x, y, z, n);
    free(x);
    free(y);
    free(z);
    return st;
}

int main(int argc, char **argv)
{
    tt_error err = {0};
    tt_ckpt_reader *exact = NULL, *rounded = NULL;
    sums s = {0};
    if (argc != 5)
        return 2;
    if (tt_ckpt_open(argv[1], &exact, &err) != TT_OK ||
        tt_ckpt_open(argv[2], &rounded, &err) != TT_OK)
        return fails(&err);
    for (size_t i = 0; i < tt_map_size(exact->entries); i++) {
        const char *name = tt_map_key(exact->entries, i);
        if (ends_with(name, argv[3]) &&
            compare(exact, rounded, name, argv[3], argv[4], &s, &err) != TT_OK)
            return fails(&err);
    }
    printf("error %.6f spread %.6f differ %.6f\n", s.signed_error / s.size, s.spread / (double)s.n,
           (double)s.n_differ / (double)s.n);
    tt_ckpt_close(exact);
    tt_ckpt_close(rounded);
    return 0;
}
