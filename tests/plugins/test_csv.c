/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/metrics/csv.c"
#include "folder_test.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A model or a hook may name a metric as it likes. */

static char folder[TEST_FOLDER];

static int set_up(void **state)
{
    (void)state;
    return test_folder("csv", folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return test_folder_remove(folder) ? 0 : -1;
}

/* A start of the run that logs one step. */
static void log_step(int64_t step, const tt_metric *m, size_t n)
{
    const tt_metrics_env env = {
        .struct_size = sizeof env, .dump_folder = folder, .resume_step = step - 1};
    const tt_metrics_record r = {sizeof r, step, 1.5, m, n, 0};
    void *self = NULL;
    tt_error err = {0};
    if (open_sink(&(config){NULL}, &env, &self, &err) != TT_OK ||
        log_record(self, &r, &err) != TT_OK)
        fail_msg("%s", err.text);
    close_sink(self);
}

static void check_file(const char *want)
{
    char path[TEST_FOLDER + 60], got[1024];
    snprintf(path, sizeof path, "%s/metrics.csv", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(got, want);
}

/* Names are quoted as RFC 4180 says, and a resumed run finds its columns by them. */
static void test_csv_names_of_columns_are_quoted_and_found_again(void **state)
{
    static const tt_metric m[] = {
        {"plain",    1},
        {"a,b",      2},
        {"a \"b\"",  3},
        {"\"",       4},
        {"\"a\",\"", 5},
        {"last",     6}
    };
    static const char head[] =
        "step,wall,plain,\"a,b\",\"a \"\"b\"\"\",\"\"\"\",\"\"\"a\"\",\"\"\",last\n"
        "1,1.500,1,2,3,4,5,6\n";
    (void)state;
    log_step(1, m, TT_COUNT(m));
    check_file(head);
    log_step(2, m + 2, 2);
    char want[300];
    snprintf(want, sizeof want, "%s2,1.500,,,3,4,,\n", head);
    check_file(want);
}

/* RFC 4180 has names of several lines, and with them all rows must stay when the run goes on. */
static void test_csv_names_of_columns_may_have_several_lines(void **state)
{
    static const tt_metric m[] = {
        {"a",             1},
        {"two\nlines",    2},
        {"\"\n\"\n1,2\r", 3},
        {"b",             4}
    };
    static const char head[] = "step,wall,a,\"two\nlines\",\"\"\"\n\"\"\n1,2\r\",b\n";
    char want[300];
    (void)state;
    log_step(1, m, TT_COUNT(m));
    snprintf(want, sizeof want, "%s1,1.500,1,2,3,4\n", head);
    check_file(want);
    log_step(2, m + 1, 2);
    snprintf(want, sizeof want, "%s1,1.500,1,2,3,4\n2,1.500,,2,3,\n", head);
    check_file(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_csv_names_of_columns_are_quoted_and_found_again),
        cmocka_unit_test(test_csv_names_of_columns_may_have_several_lines),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
