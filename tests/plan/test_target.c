/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/steps.h"

/* tt_backend_vt.target: what answers a backend's questions before the backend is opened, with the
 * test backend "far" (tests/plugins/far). */

static tt_backend_vt watching;
static const tt_backend_vt *real;
static tt_kernel kernels[512];
static const tt_kernel *kernels_real[512];
static size_t n_kernels;
static void *made, *asked_kernel, *asked_scratch;
static const char *made_for;
static int64_t n_asked, n_scratch;
static int n_made, n_closed;

static size_t watch_scratch(const tt_kernel_call *c, int n_threads)
{
    size_t i = 0;
    while (strcmp(kernels[i].op, c->op))
        i++;
    asked_scratch = c->backend;
    n_scratch++;
    return kernels_real[i]->scratch_bytes(c, n_threads);
}

static const tt_kernel *watch_kernel(void *self, const char *op)
{
    const tt_kernel *k = real->kernel(self, op);
    asked_kernel = self;
    n_asked++;
    for (size_t i = 0; k && i < n_kernels; i++)
        if (!strcmp(kernels[i].op, op))
            return &kernels[i];
    if (!k)
        return NULL;
    kernels[n_kernels] = *k;
    kernels_real[n_kernels] = k;
    if (k->scratch_bytes)
        kernels[n_kernels].scratch_bytes = watch_scratch;
    return &kernels[n_kernels++];
}

static tt_status watch_target(const void *config, const char *machine, void **out, tt_error *err)
{
    TT_TRY(real->target(config, machine, out, err));
    made = *out;
    made_for = machine;
    n_made++;
    return TT_OK;
}

static void watch_close(void *self)
{
    n_closed += self == made;
    real->close(self);
}

/* Makes the parts; compile is still to be called. */
static void open_far(job *j, const char *backend, const char *overrides, tt_setup_opts *o)
{
    tt_override all[20] = {
        {"backend.name",    backend             },
        {"dataloader.path", "[\"/nowhere.txt\"]"}
    };
    size_t n = 2;
    tt_error err = {0};
    memset(j, 0, sizeof *j);
    tt_log_setup(TT_ERROR, 0, 1, false);
    j->arena = tt_arena_new();
    char *words = tt_arena_str(j->arena, overrides), *save = NULL;
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        all[n++] = (tt_override){w, strtok_r(NULL, " ", &save)};
    const char *dirs[] = {getenv("PLUGINS"),
                          tt_arena_printf(j->arena, "%s/tests/plugins/far", getenv("BUILD"))};
    const tt_registry_opts ro = {.dirs = dirs, .n_dirs = 2};
    tt_job *parsed;
    *o = (tt_setup_opts){.mode = TT_MODE_TRAIN, .data = true, .machine = o->machine};
    if (tt_job_load_text(j->arena, "test", job_text, strlen(job_text), all, n, &parsed, &err) !=
            TT_OK ||
        tt_registry_new(&ro, &j->registry, &err) != TT_OK ||
        tt_setup_make(o, j->registry, parsed, j->arena, &j->setup, &err) != TT_OK)
        fail_msg("%s", err.text);
    real = j->setup.kernels.backend;
    watching = *real;
    watching.kernel = watch_kernel;
    watching.close = watch_close;
    if (real->target)
        watching.target = watch_target;
    j->setup.kernels.backend = &watching;
    made = asked_kernel = asked_scratch = NULL;
    made_for = "nothing";
    n_kernels = 0;
    n_asked = n_scratch = 0;
    n_made = n_closed = 0;
}

static void compile(job *j, const tt_setup_opts *o)
{
    tt_error err = {0};
    if (tt_setup_compile(&j->setup, o, &err) != TT_OK)
        fail_msg("%s", err.text);
}

static void test_plan_asks_the_target_of_the_named_machine(void **state)
{
    const tt_machine far = {.name = "far"};
    tt_setup_opts o = {.machine = &far};
    tt_plan **plans;
    tt_error err = {0};
    job j;
    (void)state;
    open_far(&j, "far", "parallelism.pipeline_parallel_degree 2", &o);
    compile(&j, &o);
    assert_string_equal(made_for, "far");
    assert_true(n_asked > 20 && made && asked_kernel == made && j.setup.target == made);
    assert_int_equal(tt_setup_plan_all(&j.setup, j.arena, &plans, &err), TT_OK);
    assert_true(n_scratch > 10 && asked_scratch == made);
    assert_int_equal(n_made, 1);
    assert_int_equal(n_closed, 0);
    job_close(&j); /* the plugins first */
    assert_int_equal(n_closed, 1);
    open_far(&j, "far", "", &o);
    compile(&j, &o);
    tt_arena_free(j.arena); /* the setup first */
    assert_int_equal(n_closed, 1);
    tt_registry_free(j.registry);
    assert_int_equal(n_closed, 1);
}

static void test_an_unknown_machine_is_an_error(void **state)
{
    const tt_machine h200 = {.name = "h200"};
    tt_setup_opts o = {.machine = &h200};
    tt_error err = {0};
    job j;
    (void)state;
    open_far(&j, "far", "", &o);
    assert_int_not_equal(tt_setup_compile(&j.setup, &o, &err), TT_OK);
    if (!strstr(err.text, "backend far") || !strstr(err.text, "machine \"h200\"") ||
        strchr(err.text, '\n'))
        fail_msg("%s", err.text);
    job_close(&j);
}

static void test_training_asks_the_rank(void **state)
{
    const tt_dist d = {.world = 1};
    tt_setup_opts o = {0};
    tt_error err = {0};
    tt_rank r;
    job j;
    (void)state;
    open_far(&j, "far", "", &o);
    compile(&j, &o);
    assert_null(made_for); /* the chip that is here */
    assert_true(made && asked_kernel == made);
    n_scratch = 0;
    if (tt_rank_open(&j.setup, &d, false, &r, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_true(n_scratch > 10 && asked_scratch == r.backend && asked_kernel == r.backend);
    assert_ptr_not_equal(made, r.backend);
    tt_rank_close(&r);
    job_close(&j);
    assert_int_equal(n_closed, 1);
}

static void test_a_backend_without_targets_is_asked_as_ever(void **state)
{
    const tt_machine h200 = {.name = "h200"};
    tt_setup_opts o = {.machine = &h200};
    tt_plan **plans;
    tt_error err = {0};
    job j;
    (void)state;
    open_far(&j, "reference", "", &o);
    asked_kernel = &j;
    compile(&j, &o);
    assert_null(j.setup.target);
    assert_null(asked_kernel);
    asked_scratch = &j;
    assert_int_equal(tt_setup_plan_all(&j.setup, j.arena, &plans, &err), TT_OK);
    assert_null(asked_scratch);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_asks_the_target_of_the_named_machine),
        cmocka_unit_test(test_an_unknown_machine_is_an_error),
        cmocka_unit_test(test_training_asks_the_rank),
        cmocka_unit_test(test_a_backend_without_targets_is_asked_as_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
