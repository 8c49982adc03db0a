/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/trace.h"
#include "train/train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the interpreter adds to an op: a model of many tiny ops, run by a backend whose kernels do
 * nothing, so that a step's time is the interpreter's alone. Prints ns per op, median of 201 steps,
 * with tracing off and on. PLUGINS: the plugins' folder. */

static tt_backend_vt empty;

static tt_status nothing(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)self;
    (void)c;
    (void)err;
    return TT_OK;
}

/* The cpu backend's answers, but for what runs. */
static const tt_backend_vt *real;
static tt_kernel kernels[512];
static size_t n_kernels;

static const tt_kernel *kernel(void *self, const char *op)
{
    const tt_kernel *k = real->kernel(self, op);
    for (size_t i = 0; k && i < n_kernels; i++)
        if (!strcmp(kernels[i].op, op))
            return &kernels[i];
    if (!k || n_kernels == TT_COUNT(kernels))
        return k;
    kernels[n_kernels] = *k;
    kernels[n_kernels].run = nothing;
    return &kernels[n_kernels++];
}

static tt_status fill(void *user, const char *input, int micro, int64_t begin, int64_t end,
                      int32_t *dst, tt_error *err)
{
    (void)user;
    (void)input;
    (void)micro;
    (void)err;
    memset(dst, 0, (size_t)(end - begin) * sizeof *dst);
    return TT_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double step_ns(tt_rank *r, bool trace)
{
    enum { STEPS = 201 };
    static double ns[STEPS];
    tt_error err = {0};
    for (int i = 0; i < STEPS; i++) {
        if (trace)
            tt_exec_trace(r->exec, true);
        const int64_t t0 = tt_now_ns();
        if (tt_exec_micro_batches(r->exec, i + 1, fill, NULL, &err) != TT_OK ||
            tt_exec_epilogue(r->exec, &err) != TT_OK || tt_exec_update(r->exec, &err) != TT_OK) {
            fprintf(stderr, "%s\n", err.text);
            exit(1);
        }
        ns[i] = (double)(tt_now_ns() - t0);
    }
    tt_exec_trace(r->exec, false);
    qsort(ns, STEPS, sizeof *ns, compare);
    return ns[STEPS / 2];
}

static int64_t ops_of(const tt_rank *r)
{
    tt_op_sum sums[128];
    const tt_machine none = {0};
    int64_t n = 0;
    const size_t k = tt_trace_sums(tt_exec_traced(r->exec), &none, sums, 0, TT_COUNT(sums));
    for (size_t i = 0; i < k; i++)
        n += sums[i].calls;
    return n;
}

static tt_status measure(tt_arena *a, tt_registry **registry, tt_error *err)
{
    static const char text[] =
        "{\"model\":{\"args\":{\"dim\":8,\"n_layers\":64,\"n_heads\":1,\"hidden_dim\":8,"
        "\"vocab_size\":262}},\"training\":{\"local_batch_size\":1,\"seq_len\":4},"
        "\"dataloader\":{\"path\":[\"none\"]},\"backend\":{\"name\":\"cpu\",\"threads\":1}}";
    const char *dir = getenv("PLUGINS");
    const tt_registry_opts ro = {&dir, 1, NULL};
    const tt_setup_opts so = {.mode = TT_MODE_TRAIN, .compile = true, .data = true};
    const tt_dist d = {.world = 1};
    tt_setup *s = tt_arena_alloc(a, sizeof *s);
    tt_rank *r = tt_arena_alloc(a, sizeof *r);
    tt_job *job;
    TT_TRY(tt_registry_new(&ro, registry, err));
    TT_TRY(tt_job_load_text(a, "interpreter", text, sizeof text - 1, NULL, 0, &job, err));
    TT_TRY(tt_setup_make(&so, *registry, job, a, s, err));
    tt_component c = *s->backend.component;
    real = c.vtable;
    empty = *real;
    empty.kernel = kernel;
    c.vtable = &empty;
    s->backend.component = &c;
    s->kernels.backend = &empty;
    TT_TRY(tt_rank_open(s, &d, false, r, err));
    TT_TRY(tt_exec_trace_open(r->exec, err));
    const double off = step_ns(r, false), on = step_ns(r, true);
    const double n = (double)ops_of(r);
    printf("interpreter: %.0f ops per step, %.0f ns per op; %.0f ns traced\n", n, off / n, on / n);
    tt_rank_close(r);
    return TT_OK;
}

int main(void)
{
    tt_arena *a = tt_arena_new();
    tt_registry *r = NULL;
    tt_error err = {0};
    tt_log_setup(TT_ERROR, 0, 1, false);
    const tt_status s = measure(a, &r, &err);
    if (s != TT_OK)
        fprintf(stderr, "%s\n", err.text);
    tt_registry_free(r);
    tt_arena_free(a);
    return s != TT_OK;
}
