/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/metrics/jsonl.c"
#include "folder_test.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static char folder[TEST_FOLDER];

static int set_up(void **state)
{
    (void)state;
    return test_folder("jsonl", folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return test_folder_remove(folder) ? 0 : -1;
}

static void *open_at(int64_t resume_step)
{
    const tt_metrics_env env = {
        .struct_size = sizeof env, .dump_folder = folder, .resume_step = resume_step};
    void *self = NULL;
    tt_error err = {0};
    if (open_sink(NULL, &env, &self, &err) != TT_OK)
        fail_msg("%s", err.text);
    return self;
}

static void put(void *self, int64_t step, const tt_metric *m, size_t n, int validation)
{
    /* 2026-11-21T08:00:00.123Z */
    const tt_metrics_record r = {sizeof r, step, 1795248000.123, m, n, validation};
    tt_error err = {0};
    assert_int_equal(log_line(self, &r, &err), TT_OK);
}

static char *path_of(void)
{
    static char path[TEST_FOLDER + 60];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    return path;
}

static void check_file(const char *want)
{
    char got[4096];
    FILE *f = fopen(path_of(), "r");
    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(got, want);
}

static void write_file(const char *text)
{
    FILE *f = fopen(path_of(), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_jsonl_lines_have_the_documented_order(void **state)
{
    (void)state;
    static const tt_metric m[] = {
        {"time/data",             0.001                },
        {"step",                  1                    },
        {"loss",                  8.05                 },
        {"epoch",                 0                    },
        {"loss_max",              8.07                 },
        {"my \"metric\"",         1e-300               },
        {"grad_norm",             1.9                  },
        {"lr",                    4e-4                 },
        {"tokens",                16384                },
        {"n_tokens_seen",         1234567890123456789.0},
        {"tps",                   12345.678            },
        {"tps_global",            24691.356            },
        {"tflops",                0.1 + 0.2            },
        {"mfu",                   (double)NAN          },
        {"mem_gib",               0.41                 },
        {"time_s",                1.5                  },
        {"time/forward_backward", 1.25                 }
    };
    static const tt_metric endless[] = {
        {"loss", (double)INFINITY},
    };
    static const tt_metric v[] = {
        {"validation/loss",   7.5 },
        {"validation/tokens", 8192}
    };
    void *self = open_at(0);
    put(self, 1, m, TT_COUNT(m), 0);
    check_file("{\"step\":1,\"epoch\":0,\"loss\":8.05,\"loss_max\":8.07,\"grad_norm\":1.9,\"lr\":0."
               "0004,\"tokens\":16384,"
               "\"n_tokens_seen\":1234567890123456768,\"tps\":12345.678,\"tps_global\":24691.356,"
               "\"tflops\":0.30000000000000004,\"mfu\":null,\"mem_gib\":0.41,\"time_s\":1.5,"
               "\"time\":{\"data\":0.001,\"forward_backward\":1.25},\"my \\\"metric\\\"\":1e-300,"
               "\"wall\":\"2026-11-21T08:00:00.123Z\"}\n");
    close_sink(self);
    self = open_at(0); /* a fresh run keeps nothing */
    put(self, 1, v, TT_COUNT(v), 1);
    put(self, 2, endless, TT_COUNT(endless), 0);
    check_file(
        "{\"step\":1,\"validation\":{\"loss\":7.5,\"tokens\":8192},\"wall\":\"2026-11-21T08:00:00."
        "123Z\"}\n"
        "{\"step\":2,\"loss\":null,\"wall\":\"2026-11-21T08:00:00.123Z\"}\n");
    close_sink(self);
}

static void test_jsonl_resume_cuts_later_steps_and_a_torn_line(void **state)
{
    (void)state;
    static const tt_metric m[] = {
        {"loss", 2}
    };
    write_file("{\"step\":1,\"loss\":4}\n{\"step\":10,\"loss\":3}\n{\"step\":10,\"validation\":{"
               "\"loss\":3}}\n"
               "{\"step\":11,\"loss\":2.9}\nrubbish\n{\"step\":12,\"lo");
    void *self = open_at(10);
    check_file("{\"step\":1,\"loss\":4}\n{\"step\":10,\"loss\":3}\n{\"step\":10,\"validation\":{"
               "\"loss\":3}}\n");
    put(self, 11, m, 1, 0);
    close_sink(self);
    self = open_at(11);
    check_file("{\"step\":1,\"loss\":4}\n{\"step\":10,\"loss\":3}\n{\"step\":10,\"validation\":{"
               "\"loss\":3}}\n"
               "{\"step\":11,\"loss\":2,\"wall\":\"2026-11-21T08:00:00.123Z\"}\n");
    close_sink(self);
    write_file("{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":3}"); /* whole but for its newline:
                                                                       torn too */
    close_sink(open_at(5));
    check_file("{\"step\":1,\"loss\":4}\n");
}

static void test_jsonl_names_a_folder_it_cannot_write(void **state)
{
    (void)state;
    const tt_metrics_env env = {.struct_size = sizeof env, .dump_folder = "/nonexistent/run"};
    void *self = NULL;
    tt_error err;
    assert_int_equal(open_sink(NULL, &env, &self, &err), TT_ENOTFOUND);
    assert_null(self);
    assert_string_equal(err.text,
                        "cannot write /nonexistent/run/metrics.jsonl: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jsonl_lines_have_the_documented_order),
        cmocka_unit_test(test_jsonl_resume_cuts_later_steps_and_a_torn_line),
        cmocka_unit_test(test_jsonl_names_a_folder_it_cannot_write),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
