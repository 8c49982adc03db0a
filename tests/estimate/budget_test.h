/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BUDGET_TEST_H
#define TT_BUDGET_TEST_H
#include "estimate/estimate.h"
#include "heap.h"
#include "plan/memory.h"
#include "tier.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Plans jobs with activation_checkpoint.mode budget and with others, for the tests of the choice. */

static tt_registry *registry;

#define AC "activation_checkpoint."

typedef struct planned {
    double bytes, time; /* of the fullest pipeline rank; of a step, by the machine that chooses */
    double budget;      /* the largest of a rank; 0: another mode */
    double host;        /* bytes of activations that wait in host memory, of the ranks together */
    double late;        /* seconds of a step in which a copy to or from host memory is waited for */
    int n_plans;        /* that were made to choose */
    int n_blocks;
    tt_recomputed_block blocks[200];
} planned;

static const tt_machine *slow_link; /* if not NULL, the device's machine instead of h100 */

static const tt_machine *budget_machine(void)
{
    return slow_link ? slow_link : tt_machine_find("h100");
}

/* Of a job on one rank or more: `mode` says what of activation_checkpoint. */
static tt_status plan_try(const char *text, const char *mode, bool device, planned *out,
                          tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_setup *s = tt_arena_alloc(a, sizeof *s);
    tt_override all[40];
    size_t n = 0;
    char *words = tt_arena_printf(a, "%s %s", text, mode), *save = NULL;
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        all[n++] = (tt_override){w, strtok_r(NULL, " ", &save)};
    all[n++] = (tt_override){"dataloader.path", "[\"none.txt\"]"};
    all[n++] = (tt_override){"backend.name", device ? "cuda" : "cpu"};
    tt_job *job;
    tt_plan **plans;
    const tt_setup_opts o = {.mode = TT_MODE_TRAIN,
                             .compile = true,
                             .data = true,
                             .machine = device ? budget_machine() : NULL};
    tt_status st = tt_job_load_text(a, "test", "{}", 2, all, n, &job, err);
    if (st == TT_OK)
        st = tt_setup_make(&o, registry, job, a, s, err);
    if (st == TT_OK)
        st = tt_setup_plan_all(s, a, &plans, err);
    if (st == TT_OK) {
        tt_step_time time;
        const tt_recompute_choice *c = s->recompute_choice;
        *out = (planned){.n_blocks = s->recomputed.n_blocks, .n_plans = c ? c->n_plans : 0};
        for (int r = 0; r < s->pipeline_ranks; r++) {
            out->bytes = fmax(out->bytes, tt_setup_program_bytes(s, plans[r]));
            out->host += (double)tt_program_offloaded(plans[r]->program).bytes;
            if (c)
                out->budget = fmax(out->budget, c->budget[r]);
        }
        tt_step_time_of(s, s->recompute_machine, &time);
        out->time = time.step;
        out->late = time.copies_exposed;
        memcpy(out->blocks, s->recomputed.blocks, (size_t)out->n_blocks * sizeof *out->blocks);
        for (int i = 0; i < out->n_blocks; i++) /* their strings are the arena's */
            out->blocks[i].again = out->blocks[i].name = NULL;
    }
    tt_arena_free(a);
    return st;
}

static planned plan_anew(const char *text, const char *mode, bool device)
{
    planned p;
    tt_error err = {0};
    if (plan_try(text, mode, device, &p, &err) != TT_OK)
        fail_msg("%s %s: %s", text, mode, err.text);
    return p;
}

typedef struct kept_plan {
    struct kept_plan *next;
    char key[900];
    planned plan;
} kept_plan;

static kept_plan *kept_plans;

/* As plan_anew; what several tests plan is planned once. */
static planned plan(const char *text, const char *mode, bool device)
{
    kept_plan *x = malloc(sizeof *x);
    assert_non_null(x);
    const int n = snprintf(x->key, sizeof x->key, "%s|%s|%d|%g", text, mode, device,
                           device ? budget_machine()->host_bandwidth : 0);
    assert_in_range(n, 1, sizeof x->key - 1);
    for (const kept_plan *k = kept_plans; k; k = k->next)
        if (!strcmp(k->key, x->key)) {
            free(x);
            return k->plan;
        }
    x->plan = plan_anew(text, mode, device);
    x->next = kept_plans;
    kept_plans = x;
    return x->plan;
}

static int free_plans(void **state)
{
    (void)state;
    for (kept_plan *k = kept_plans, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    return 0;
}

#define P "parallelism."
#define BF16 " training.mixed_precision_param bfloat16"

static void budget_of(char *mode, size_t n, double bytes)
{
    snprintf(mode, n, AC "mode budget " AC "memory_gib %.17g", bytes / (1 << 30));
}

static int open_registry(void **state)
{
    (void)state;
    tt_error err = {0};
    const char *dir = getenv("PLUGINS");
    const char *const dirs[] = {dir ? dir : "./plugins"};
    const tt_registry_opts o = {.dirs = dirs, .n_dirs = 1};
    tt_log_setup(TT_ERROR, 0, 1, false);
    return tt_registry_new(&o, &registry, &err) == TT_OK ? 0 : -1;
}

#endif
