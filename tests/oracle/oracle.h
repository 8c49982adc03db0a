/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#ifndef TT_TESTS_ORACLE_H
#define TT_TESTS_ORACLE_H
#include "folder_test.h"
#include "train/train.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cmocka.h>

/* Whole runs of ttrun inside the test: a job of tests/golden/oracle/ (written by oracle.py),
 * overrides as on the command line, and afterwards the files that a user finds in the folder:
 * metrics.jsonl and the last checkpoint. */

enum { ORACLE_SAMPLES = 64, ORACLE_SIGNS = 4, ORACLE_SUFFIXES = 4 };

static const char *const oracle_suffixes[ORACLE_SUFFIXES] = {NULL, "momentum_buffer", "exp_avg",
                                                             "exp_avg_sq"};

typedef struct oracle_tensor {
    const char *name, *suffix; /* of a parameter; "momentum_buffer": its optimizer state */
    int64_t n;
    float *data;
} oracle_tensor;

typedef struct oracle_run {
    tt_arena *arena;
    int n_steps, n_tensors;
    double *loss, *loss_max, *norm, *lr; /* [n_steps] */
    double *clipped;        /* [n_steps]: qk_clip_heads; NaN: it is not in the record */
    const tt_json **losses; /* [n_steps]; NULL: the record has none */
    oracle_tensor *tensors;
} oracle_run;

/* The largest relative distance of n values. */
static inline double oracle_farthest(const double *a, const double *b, int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++)
        worst = fmax(worst, fabs(a[i] / b[i] - 1));
    return worst;
}

typedef struct oracle_golden {
    tt_arena *arena;
    const char *path, *job; /* of the file; the job's text */
    const tt_json *root;
} oracle_golden;

static inline const char *oracle_env(const char *name, const char *fallback)
{
    const char *v = getenv(name);
    return v ? v : fallback;
}

static inline const tt_json *oracle_get(const tt_json *o, const char *key)
{
    const tt_json *v = tt_json_get(o, key);
    if (!v)
        fail_msg("no \"%s\" in the golden file", key);
    return v;
}

static inline void oracle_open(const char *name, oracle_golden *g)
{
    tt_error err = {0};
    char *text = NULL;
    size_t n = 0;
    tt_str job = {0};
    g->arena = tt_arena_new();
    g->path =
        tt_arena_printf(g->arena, "%s/tests/golden/oracle/%s.json", oracle_env("SRC", "."), name);
    if (tt_read_file(g->path, 0, &text, &n, &err) != TT_OK ||
        tt_json_parse(g->arena, g->path, tt_arena_strn(g->arena, text, n), n, &g->root, &err) !=
            TT_OK)
        fail_msg("%s", err.text);
    free(text);
    tt_json_write(oracle_get(g->root, "job"), &job);
    g->job = tt_arena_str(g->arena, tt_str_get(&job));
    tt_str_free(&job);
}

/* ---- after a run ---- */

static inline void oracle_metrics(oracle_run *r, const char *folder)
{
    tt_error err = {0};
    char *text = NULL;
    size_t n = 0;
    if (tt_read_file(tt_path_join(r->arena, folder, "metrics.jsonl"), 0, &text, &n, &err) != TT_OK)
        fail_msg("%s", err.text);
    const size_t lines = n / 10 + 1;
    r->loss = tt_arena_array(r->arena, lines, sizeof *r->loss);
    r->loss_max = tt_arena_array(r->arena, lines, sizeof *r->loss_max);
    r->norm = tt_arena_array(r->arena, lines, sizeof *r->norm);
    r->lr = tt_arena_array(r->arena, lines, sizeof *r->lr);
    r->clipped = tt_arena_array(r->arena, lines, sizeof *r->clipped);
    r->losses = tt_arena_array(r->arena, lines, sizeof *r->losses);
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        const tt_json *o;
        if (tt_json_parse(r->arena, "metrics.jsonl", line, (size_t)(end - line), &o, &err) != TT_OK)
            fail_msg("%s", err.text);
        r->loss[r->n_steps] = oracle_get(o, "loss")->real;
        r->loss_max[r->n_steps] = oracle_get(o, "loss_max")->real;
        r->losses[r->n_steps] = tt_json_get(o, "losses");
        const tt_json *clipped = tt_json_get(o, "qk_clip_heads");
        r->clipped[r->n_steps] = clipped ? clipped->real : (double)NAN;
        r->norm[r->n_steps] = oracle_get(o, "grad_norm")->real;
        r->lr[r->n_steps++] = oracle_get(o, "lr")->real;
    }
    free(text);
}

static inline void oracle_tensors(oracle_run *r, const tt_setup *s, const char *step_folder)
{
    tt_error err = {0};
    tt_ckpt_reader *reader;
    if (tt_ckpt_open(step_folder, &reader, &err) != TT_OK)
        fail_msg("%s", err.text);
    r->tensors = tt_arena_array(r->arena, s->graph->params.n * ORACLE_SUFFIXES, sizeof *r->tensors);
    for (size_t i = 0; i < s->graph->params.n; i++)
        for (int k = 0; k < ORACLE_SUFFIXES; k++) {
            const tt_param_info *p = s->graph->params.items[i];
            const char *suffix = oracle_suffixes[k];
            tt_ckpt_piece piece = {
                .name = p->name, .dtype = TT_F32, .n_dims = p->type.n_dims, .owner = true};
            if (suffix)
                piece.name = tt_arena_printf(r->arena, "optimizer.state.%s.%s", p->name, suffix);
            if (suffix &&
                (!tt_ckpt_has(reader, piece.name) ||
                 tt_ckpt_has(reader, tt_arena_printf(r->arena, "%s_block_scale", piece.name))))
                continue; /* not there, or codes */
            const int64_t n = tt_type_numel(&p->type);
            for (int d = 0; d < piece.n_dims; d++)
                piece.global[d] = piece.box.end[d] = p->type.dims[d].size;
            oracle_tensor *t = &r->tensors[r->n_tensors++];
            *t = (oracle_tensor){tt_arena_str(r->arena, p->name), suffix, n,
                                 tt_arena_array(r->arena, (size_t)n, sizeof(float))};
            piece.data = t->data;
            if (tt_ckpt_load(reader, &piece, 1, &err) != TT_OK)
                fail_msg("%s", err.text);
        }
    tt_ckpt_close(reader);
}

/* ---- a run ---- */

static inline const char *oracle_folder(tt_arena *a)
{
    char path[TEST_FOLDER];
    assert_true(test_folder("oracle", path));
    return tt_arena_str(a, path);
}

static inline tt_status oracle_try(const oracle_golden *g, const tt_override *more, size_t n_more,
                                   oracle_run **out, tt_error *err)
{
    oracle_run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->arena = tt_arena_new();
    const char *folder = oracle_folder(r->arena);
    static tt_registry *registry; /* for all runs, since opening plugins takes long */
    const char *const dirs[] = {oracle_env("PLUGINS", "plugins")};
    const tt_registry_opts ro = {.dirs = dirs, .n_dirs = 1};
    const tt_setup_opts so = {.mode = TT_MODE_TRAIN, .compile = true, .data = true};
    const tt_run_opts run = {.verbose = -1};
    tt_override *all = tt_arena_array(r->arena, n_more + 1, sizeof *all);
    tt_setup s;
    tt_job *job;
    all[0] = (tt_override){"dump_folder", folder};
    for (size_t i = 0; i < n_more; i++)
        all[i + 1] = more[i];
    for (size_t i = 1; i <= n_more; i++) /* the files beside the golden values */
        if (strstr(all[i].key, "_csv"))
            all[i].value = tt_path_join(r->arena, tt_path_dir(r->arena, g->path), all[i].value);
    tt_log_setup(TT_WARN, 0, 1, false);
    tt_status st =
        tt_job_load_text(r->arena, g->path, g->job, strlen(g->job), all, n_more + 1, &job, err);
    if (st == TT_OK && !registry)
        st = tt_registry_new(&ro, &registry, err);
    if (st == TT_OK)
        st = tt_setup_make(&so, registry, job, r->arena, &s, err);
    if (st == TT_OK)
        st = tt_train(&s, &run, err);
    if (st == TT_OK) {
        oracle_metrics(r, folder);
        oracle_tensors(r, &s,
                       tt_arena_printf(r->arena, "%s/checkpoint/step-%lld", folder,
                                       (long long)s.core.training.steps));
        *out = r;
    }
    (void)tt_remove_tree(folder, NULL);
    return st;
}

static inline oracle_run *oracle_run_job(const oracle_golden *g, const tt_override *more,
                                         size_t n_more)
{
    oracle_run *r = NULL;
    tt_error err = {0};
    if (oracle_try(g, more, n_more, &r, &err) != TT_OK)
        fail_msg("%s", err.text);
    return r;
}

static inline void oracle_free(oracle_run *r)
{
    if (!r)
        return;
    tt_arena_free(r->arena);
    free(r);
}

static inline const oracle_tensor *oracle_find(const oracle_run *r, const char *name,
                                               const char *suffix)
{
    for (int i = 0; i < r->n_tensors; i++) {
        const oracle_tensor *t = &r->tensors[i];
        const bool same = suffix ? t->suffix && !strcmp(t->suffix, suffix) : !t->suffix;
        if (same && !strcmp(t->name, name))
            return t;
    }
    fail_msg("no %s%s%s in the checkpoint", name, suffix ? "." : "", suffix ? suffix : "");
    return NULL;
}

/* ---- measures ---- */

/* Fails unless the bits are equal. */
static inline void oracle_assert_same_tensor(const oracle_tensor *a, const oracle_tensor *b)
{
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++)
        if (memcmp(&a->data[i], &b->data[i], sizeof(float)) != 0)
            fail_msg("%s%s%s[%lld]: %.9g and %.9g", a->name, a->suffix ? "." : "",
                     a->suffix ? a->suffix : "", (long long)i, (double)a->data[i],
                     (double)b->data[i]);
}

static inline void oracle_assert_same_run(const oracle_run *a, const oracle_run *b)
{
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (int i = 0; i < a->n_tensors; i++)
        oracle_assert_same_tensor(&a->tensors[i],
                                  oracle_find(b, a->tensors[i].name, a->tensors[i].suffix));
    assert_memory_equal(a->loss, b->loss, (size_t)a->n_steps * sizeof *a->loss);
    assert_memory_equal(a->norm, b->norm, (size_t)a->n_steps * sizeof *a->norm);
}

static inline double oracle_square_sum(const oracle_tensor *t)
{
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++)
        sum += (double)t->data[i] * (double)t->data[i];
    return sum;
}

/* The allowed difference of an element of a gradient. */
static inline double oracle_tolerance(double rms, double rms_all)
{
    return 1e-5 * fmax(rms, 1e-3 * rms_all);
}

#endif
