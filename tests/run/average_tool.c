/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For test_averages.sh: average_tool STEP STATE B: fails unless optimizer.state.NAME.STATE is NAME to 1e-6, for
 * every parameter; average_tool STEP STATE B BEFORE: unless it is (1 - B) NAME of the step BEFORE + B NAME. */

static int fails(const tt_error *err)
{
    fprintf(stderr, "%s\n", err->text);
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
    const tt_ckpt_piece p = tt_entry_rows(e, TT_F32, 0, e->n_dims ? e->global[0] : 1, *out);
    return tt_ckpt_load(r, &p, 1, err);
}

/* The largest deviation of the state of one parameter. */
static tt_status deviation(tt_ckpt_reader *at, tt_ckpt_reader *before, const char *param,
                           const char *state, double b, double *worst, tt_error *err)
{
    char name[512];
    float *p = NULL, *mean = NULL, *first = NULL;
    int64_t n = 0;
    snprintf(name, sizeof name, "optimizer.state.%s.%s", param, state);
    tt_status s = read_floats(at, param, &p, &n, err);
    if (s == TT_OK)
        s = read_floats(at, name, &mean, &n, err);
    if (s == TT_OK && before)
        s = read_floats(before, param, &first, &n, err);
    for (int64_t i = 0; s == TT_OK && i < n; i++) {
        const double want = first ? (1 - b) * (double)first[i] + b * (double)p[i] : (double)p[i];
        *worst = fmax(*worst, fabs((double)mean[i] - want));
    }
    free(p);
    free(mean);
    free(first);
    return s;
}

int main(int argc, char **argv)
{
    tt_error err = {0};
    tt_ckpt_reader *at = NULL, *before = NULL;
    double worst = 0;
    int params = 0;
    if (argc != 4 && argc != 5)
        return 2;
    if (tt_ckpt_open(argv[1], &at, &err) != TT_OK ||
        (argc == 5 && tt_ckpt_open(argv[4], &before, &err) != TT_OK))
        return fails(&err);
    for (size_t i = 0; i < tt_map_size(at->entries); i++) {
        const char *name = tt_map_key(at->entries, i);
        if (strncmp(name, "optimizer.", 10) == 0)
            continue;
        params++;
        if (deviation(at, before, name, argv[2], strtod(argv[3], NULL), &worst, &err) != TT_OK)
            return fails(&err);
    }
    printf("%d parameters, worst %.3g\n", params, worst);
    tt_ckpt_close(at);
    if (before)
        tt_ckpt_close(before);
    return params == 0 || !(worst <= 1e-6);
}
