/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "folder_test.h"
#include "plugin/registry.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A part is named by the job or by the fallback, and the component's table parses its options. */
typedef struct fixture {
    tt_arena *arena;
    const char *dir;
    tt_registry *registry;
} fixture;

/* As in liar.c. */
typedef struct liar_config {
    int64_t steps;
    double power;
    const char *mode;
} liar_config;

static int set_up(void **state)
{
    const char *src = getenv("SRC");
    tt_arena *a = tt_arena_new();
    fixture *f = tt_arena_alloc(a, sizeof *f);
    f->arena = a;
    char dir[TEST_FOLDER];
    if (!test_folder("part", dir))
        return -1;
    f->dir = tt_arena_str(a, dir);
    src = src ? src : ".";
    const char *command =
        tt_arena_printf(a,
                        "mkdir %s/lr_schedulers && cc -w -shared -fPIC -I%s/include "
                        "-DNAME='\"ramp\"' %s/tests/abi/liar.c -o %s/lr_schedulers/ramp.so",
                        dir, src, src, dir);
    tt_registry_opts o = {.dirs = &f->dir, .n_dirs = 1};
    *state = f;
    return system(command) == 0 && tt_registry_new(&o, &f->registry, NULL) == TT_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    tt_registry_free(f->registry);
    int rc = tt_remove_tree(f->dir, NULL) == TT_OK ? 0 : -1;
    tt_arena_free(f->arena);
    return rc;
}

static tt_status part(fixture *f, const char *text, const char *fallback, tt_part *out,
                      tt_error *err)
{
    static const char *const ignore[] = {"others", NULL};
    tt_job *job = NULL;
    tt_status status =
        tt_job_load_text(f->arena, "job.json", text, strlen(text), NULL, 0, &job, err);
    assert_int_equal(status, TT_OK);
    return tt_registry_part(f->registry, job, TT_KIND_LR_SCHEDULER, "lr_scheduler", fallback,
                            ignore, f->arena, out, err);
}

static void test_part_reads_defaults_and_values(void **state)
{
    tt_part p = {0};
    tt_error err = {0};
    assert_int_equal(part(*state, "{}", "ramp", &p, &err), TT_OK);
    assert_string_equal(p.name, "ramp");
    assert_non_null(strstr(p.file, "lr_schedulers/ramp.so"));
    const liar_config *c = p.config;
    assert_int_equal(c->steps, 10);
    assert_true(fabs(c->power - 1.0) < 1e-15);
    assert_string_equal(c->mode, "up");

    assert_int_equal(part(*state,
                          "{\"lr_scheduler\": {\"name\": \"ramp\", \"n_steps\": 7, \"mode\": "
                          "\"down\", \"others\": [1]}}",
                          "none", &p, &err),
                     TT_OK);
    c = p.config;
    assert_int_equal(c->steps, 7);
    assert_string_equal(c->mode, "down");
}

static void refuse(void **state, const char *text, const char *fallback, const char *words)
{
    tt_part p = {0};
    tt_error err = {0};
    assert_int_not_equal(part(*state, text, fallback, &p, &err), TT_OK);
    assert_null(p.component);
    if (!strstr(err.text, words))
        fail_msg("expected \"%s\" in: %s", words, err.text);
}

static void test_part_reports_mistakes_where_they_are(void **state)
{
    refuse(state, "{\"lr_scheduler\": {\"name\": \"rmap\"}}", "ramp", "job.json:1:");
    refuse(state, "{\"lr_scheduler\": {\"name\": \"rmap\"}}", "ramp",
           "lr_scheduler.name: lr_scheduler \"rmap\" is unknown; did you mean \"ramp\"?");
    refuse(state, "{}", "absent", "lr_scheduler \"absent\" is unknown");
    refuse(state, "{}", NULL, "needs a \"name\"");
    refuse(state, "{\"lr_scheduler\": {\"stepz\": 3}}", "ramp", "did you mean lr_scheduler.steps?");
    refuse(state, "{\"lr_scheduler\": {\"steps\": 0}}", "ramp", "lr_scheduler.steps");
    refuse(state, "{\"lr_scheduler\": {\"mode\": \"sideways\"}}", "ramp", "lr_scheduler.mode");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_part_reads_defaults_and_values),
        cmocka_unit_test(test_part_reports_mistakes_where_they_are),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
