/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Every option of the core's sections and of every component that loads, given what it does not
 * take, through the path a run takes: job file, parts, cross-checks. Each must be refused at its
 * place: job.json:2:COLUMN: path: … */

typedef struct world {
    tt_arena *arena;
    tt_registry *registry;
    tt_section_doc *docs;
    size_t n;
} world;

static world w;

static int setup(void **state)
{
    tt_error err = {0};
    const char *dir = getenv("PLUGINS");
    const tt_registry_opts o = {.dirs = &dir, .n_dirs = dir ? 1 : 0};
    (void)state;
    w.arena = tt_arena_new();
    if (tt_registry_new(&o, &w.registry, &err) == TT_OK &&
        tt_setup_docs(w.registry, w.arena, &w.docs, &w.n, &err) == TT_OK)
        return 0;
    fprintf(stderr, "%s\n", err.text);
    return 1;
}

static int teardown(void **state)
{
    (void)state;
    tt_registry_free(w.registry);
    tt_arena_free(w.arena);
    return 0;
}

/* The core's own rows of a list describe what every element has beside its component's, and a
 * component must be named: test_lists.sh has these. comm.host_args are read only beside a comm of
 * devices, which a machine without GPUs has not; the rows are those of comm.args. */
static bool testable(const tt_section_doc *d)
{
    return strcmp(d->key, "comm.host_args") != 0 && (d->component || !strstr(d->key, "[]"));
}

/* A job whose line 2 is `"key": value` in the section, with the component named. The path errors
 * name goes to `path`. */
static void write_job(const tt_section_doc *d, const char *key, const char *value, tt_str *job,
                      tt_str *path)
{
    const char *const dot = strstr(d->key, ".args");
    const bool args = dot != NULL;
    size_t n = strlen(d->key);
    const bool list = n > 2 && strcmp(d->key + n - 2, "[]") == 0;
    const char *in = list ? strchr(d->key, '.') : NULL; /* metrics.sinks[] */
    if (list)
        n -= 2;
    tt_str_printf(path, "%.*s%s%s%s", (int)n, d->key, list ? "[0]" : "", n ? "." : "", key);
    if (args && d->component)
        tt_str_printf(job, "{\"%.*s\": {\"%s\": \"%s\", \"args\": {", (int)(dot - d->key), d->key,
                      strncmp(d->key, "comm", 4) == 0 ? "backend" : "name", d->component);
    else if (in)
        tt_str_printf(job, "{\"%.*s\": {\"%.*s\": [{", (int)(in - d->key), d->key,
                      (int)(d->key + n - in - 1), in + 1);
    else if (n)
        tt_str_printf(job, "{\"%.*s\": %s{", (int)n, d->key, list ? "[" : "");
    else
        tt_str_add(job, "{");
    if (d->component && !args)
        tt_str_printf(job, "\"name\": \"%s\",", d->component);
    tt_str_printf(job, "\n\"%s\": %s\n%s", key, value,
                  args   ? "}}}"
                  : in   ? "}]}}"
                  : list ? "}]}"
                  : n    ? "}}"
                         : "}");
}

static tt_status run_job(const tt_str *job, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_job *j;
    tt_setup s;
    const tt_setup_opts o = {.data = true};
    tt_status st = tt_job_load_text(a, "job.json", tt_str_get(job), job->n, NULL, 0, &j, err);
    if (st == TT_OK)
        st = tt_setup_make(&o, w.registry, j, a, &s, err);
    tt_arena_free(a);
    return st;
}

/* at: the column of the value (0), or of the key (1). */
static void refused(const tt_section_doc *d, const char *key, const char *value, int at_key)
{
    tt_str job = {0}, path = {0}, start = {0};
    tt_error err = {0};
    write_job(d, key, value, &job, &path);
    tt_str_printf(&start, "job.json:2:%zu: %s: ", at_key ? (size_t)1 : strlen(key) + 5,
                  tt_str_get(&path));
    const tt_status s = run_job(&job, &err);
    if (s != TT_EINVAL || strncmp(err.text, tt_str_get(&start), start.n) != 0 ||
        strchr(err.text, '\n'))
        fail_msg("%s %s: status %d, \"%s\"; wanted \"%s…\" of\n%s",
                 d->component ? d->component : "core", tt_str_get(&path), (int)s, err.text,
                 tt_str_get(&start), tt_str_get(&job));
    tt_str_free(&job);
    tt_str_free(&path);
    tt_str_free(&start);
}

typedef int (*each_fn)(const tt_section_doc *d, const tt_option *o);

static void each(each_fn fn, int at_least)
{
    int cases = 0;
    for (size_t i = 0; i < w.n; i++)
        for (size_t k = 0; testable(&w.docs[i]) && k < w.docs[i].n_options; k++)
            cases +=
                fn(&w.docs[i], (const tt_option *)(const void *)((const char *)w.docs[i].options +
                                                                 k * w.docs[i].option_size));
    print_message("%d cases\n", cases);
    assert_true(cases >= at_least);
}

static int wrong_type(const tt_section_doc *d, const tt_option *o)
{
    static const char *const bad[][4] = {
        [TT_OPT_BOOL] = {"\"yes\"",  "1",                  "[true]",  "{}"   },
        [TT_OPT_INT] = {"\"many\"", "1.5",                "true",    "[1]"  },
        [TT_OPT_FLOAT] = {"\"much\"", "true",               "[0.5]",   "{}"   },
        [TT_OPT_STRING] = {"3",        "true",               "[\"a\"]", "{}"   },
        [TT_OPT_ENUM] = {"3",        "\"no such choice\"", "[]",      "false"},
        [TT_OPT_CHOICE] = {"3",        "\"no such choice\"", "[]",      "false"},
        [TT_OPT_STRINGS] = {"3",        "0.5",                "{}",      "true" },
    };
    if (o->type == TT_OPT_JSON)
        return 0;
    for (int i = 0; i < 4; i++)
        refused(d, o->name, bad[o->type][i], 0);
    return 4;
}

static bool ranged(const tt_option *o)
{
    return (o->type == TT_OPT_INT || o->type == TT_OPT_FLOAT) && (o->min != 0 || o->max != 0);
}

static int below(const tt_section_doc *d, const tt_option *o)
{
    char text[64];
    if (!ranged(o) || !isfinite(o->min))
        return 0;
    snprintf(text, sizeof text, o->type == TT_OPT_INT ? "%.0f" : "%.17g", o->min - 1);
    refused(d, o->name, text, 0);
    return 1;
}

static int above(const tt_section_doc *d, const tt_option *o)
{
    char text[64];
    if (!ranged(o) || !isfinite(o->max))
        return 0;
    snprintf(text, sizeof text, o->type == TT_OPT_INT ? "%.0f" : "%.17g",
             o->type == TT_OPT_INT && o->max < 9e15 ? o->max + 1 : 2 * o->max + 1);
    refused(d, o->name, text, 0);
    return 1;
}

static int null(const tt_section_doc *d, const tt_option *o)
{
    if ((o->flags & TT_OPT_NULLABLE) || o->type == TT_OPT_JSON)
        return 0;
    refused(d, o->name, "null", 0);
    return 1;
}

static int unknown(const tt_section_doc *d, const tt_option *o)
{
    char key[128];
    snprintf(key, sizeof key, "%s_x", o->name);
    refused(d, key, "1", 1);
    return 1;
}

static int twice(const tt_section_doc *d, const tt_option *o)
{
    char key[256];
    if (!o->aliases || !o->default_json || (o->flags & TT_OPT_NOT_YET))
        return 0;
    const int n = (int)strcspn(o->aliases, "|");
    tt_str job = {0}, path = {0};
    tt_error err = {0};
    snprintf(key, sizeof key, "%s\": %s,\n\"%.*s", o->name, o->default_json, n, o->aliases);
    write_job(d, key, o->default_json, &job, &path);
    const tt_status s = run_job(&job, &err);
    if (s != TT_EINVAL || strncmp(err.text, "job.json:", 9) != 0)
        fail_msg("status %d, \"%s\" of\n%s", (int)s, err.text, tt_str_get(&job));
    tt_str_free(&job);
    tt_str_free(&path);
    return 1;
}

static int not_yet(const tt_section_doc *d, const tt_option *o)
{
    int cases = 0;
    char value[128];
    if ((o->flags & TT_OPT_NOT_YET) && o->type == TT_OPT_BOOL) {
        refused(d, o->name, "true", 0);
        cases++;
    }
    for (const char *p = o->choices ? strchr(o->choices, '~') : NULL; p; p = strchr(p + 1, '~')) {
        snprintf(value, sizeof value, "\"%.*s\"", (int)strcspn(p + 1, "|"), p + 1);
        refused(d, o->name, value, 0);
        cases++;
    }
    return cases;
}

static void test_option_of_a_wrong_type_is_refused(void **state)
{
    (void)state;
    each(wrong_type, 300);
}

static void test_option_below_its_range_is_refused(void **state)
{
    (void)state;
    each(below, 40);
}

static void test_option_above_its_range_is_refused(void **state)
{
    (void)state;
    each(above, 40);
}

static void test_option_that_is_not_nullable_refuses_null(void **state)
{
    (void)state;
    each(null, 60);
}

static void test_unknown_sibling_of_each_option_is_refused(void **state)
{
    (void)state;
    each(unknown, 80);
}

static void test_option_by_two_names_is_refused(void **state)
{
    (void)state;
    each(twice, 8);
}

static void test_option_not_built_yet_is_refused(void **state)
{
    (void)state;
    each(not_yet, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_option_of_a_wrong_type_is_refused),
        cmocka_unit_test(test_option_below_its_range_is_refused),
        cmocka_unit_test(test_option_above_its_range_is_refused),
        cmocka_unit_test(test_option_that_is_not_nullable_refuses_null),
        cmocka_unit_test(test_unknown_sibling_of_each_option_is_refused),
        cmocka_unit_test(test_option_by_two_names_is_refused),
        cmocka_unit_test(test_option_not_built_yet_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
