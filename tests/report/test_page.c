/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The report page is well-formed whatever the run contains, uses nothing from the network, is the
 * same each time, and does not grow with a million steps. */

static void check_tags(const char *page)
{
    char open[64][16];
    int depth = 0;
    const char *p = strstr(page, "<html");
    while ((p = strchr(p, '<'))) {
        char name[16] = "";
        const bool end = p[1] == '/';
        const char *n = p + 1 + end, *close = strchr(p, '>');
        assert_non_null(close);
        for (int i = 0; i < 15 && isalnum((unsigned char)n[i]); i++)
            name[i] = n[i];
        if (end) {
            if (!depth || strcmp(open[depth - 1], name))
                fail_msg("</%s> closes <%s>", name, depth ? open[depth - 1] : "");
            depth--;
        } else if (close[-1] != '/' && strcmp(name, "meta")) {
            assert_true(depth < 64 && name[0]);
            strcpy(open[depth++], name);
        }
        p = close;
        if (!strcmp(name, "script") && !end)
            p = strstr(p, "</script");
        if (!strcmp(name, "style") && !end)
            p = strstr(p, "</style");
    }
    assert_int_equal(depth, 0);
    assert_null(strstr(page, "http:"));
    assert_null(strstr(page, "https:"));
    assert_null(strstr(page, "nan"));
    assert_null(strstr(page, "=\"inf"));
}

static char *page_of(const tt_run_report *runs, size_t n)
{
    tt_str a = {0}, b = {0};
    tt_report_page(runs, n, &a);
    tt_report_page(runs, n, &b);
    assert_string_equal(tt_str_get(&a), tt_str_get(&b));
    check_tags(tt_str_get(&a));
    tt_str_free(&b);
    return a.s;
}

static tt_run_report run_of(tt_arena *a, const char *name, const char *metrics)
{
    tt_run_report r = {.folder = name, .name = name};
    tt_report_metrics(metrics, strlen(metrics), a, &r);
    return r;
}

static void test_page_of_an_empty_run(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    const tt_run_report r = run_of(a, "empty", "");
    char *page = page_of(&r, 1);
    assert_non_null(strstr(page, "nothing recorded"));
    free(page);
    tt_arena_free(a);
}

static void test_page_escapes_texts_of_the_run(void **state)
{
    (void)state;
    static const char text[] = "{\"host\":\"<img src=x onerror=alert(1)>\",\"job\":{\"model\":{"
                               "\"flavor\":\"</style><script>alert(1)</script>\",\"a\\\"b\":[1]},"
                               "\"<b>\":\"&amp;\"},\"plugins\":[{\"name\":\"<i>\"}]}";
    tt_arena *a = tt_arena_new();
    tt_run_report r = run_of(a, "<a & \"b\" 'c' \xff\xc3>", "{\"step\":1,\"loss\":2}");
    tt_op_row op = {"<op>", 1, 1, 1, 1, 1};
    tt_error err = {0};
    assert_int_equal(tt_json_parse(a, "run.json", text, sizeof text - 1, &r.facts, &err), TT_OK);
    r.ops = &op;
    r.n_ops = 1;
    tt_vec_push(a, &r.notes, "<note>");
    char *page = page_of(&r, 1);
    assert_null(strstr(page, "<img"));
    assert_null(strstr(page, "<script>alert"));
    assert_non_null(strstr(page, "&lt;a &amp; &quot;b&quot; &#39;c&#39; &#xFFFD;&#xFFFD;&gt;"));
    assert_non_null(strstr(page, "&lt;op&gt;"));
    assert_non_null(strstr(page, "&amp;amp;"));
    free(page);
    tt_arena_free(a);
}

/* The y of a curve's points as the page's script has them. */
static const char *data_of(const char *page, const char *curve)
{
    char key[64];
    snprintf(key, sizeof key, "data-name=\"%s\" data-p=\"", curve);
    const char *p = strstr(page, key);
    assert_non_null(p);
    return p + strlen(key);
}

static void test_page_of_a_million_steps_keeps_every_spike(void **state)
{
    (void)state;
    enum { N = 1000000 };
    tt_arena *a = tt_arena_new();
    tt_str s = {0};
    for (int i = 1; i <= N; i++)
        tt_str_printf(&s, "{\"step\":%d,\"loss\":%s,\"grad_norm\":%d}\n", i,
                      i == 777777   ? "99.5"
                      : i == 600000 ? "null"
                                    : "2.5",
                      i % 7 + 1);
    const tt_run_report r = run_of(a, "long", tt_str_get(&s));
    tt_str_free(&s);
    assert_int_equal(r.train.n, N);
    char *page = page_of(&r, 1);
    assert_true(strlen(page) < 500000);
    const char *loss = data_of(page, "training");
    const char *spike = strstr(loss, "777777 99.5 ");
    assert_true(spike && spike < strchr(loss, '"'));
    assert_null(strstr(page, "600000 "));
    free(page);
    tt_arena_free(a);
}

static void test_page_shows_a_gap_where_the_loss_is_nan(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    const tt_run_report r = run_of(a, "gap",
                                   "{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":3}\n"
                                   "{\"step\":3,\"loss\":null}\n{\"step\":4,\"loss\":2}\n");
    char *page = page_of(&r, 1);
    assert_memory_equal(data_of(page, "training"), "1 4 2 3 3 NaN 4 2 \"", 19);
    const char *path = strstr(page, "<path class=\"line s0\" d=\"M");
    assert_non_null(path);
    const char *second = strchr(path + 26, 'M');
    assert_true(second && second < strchr(path + 26, '"'));
    free(page);
    tt_arena_free(a);
}

static void test_page_draws_several_runs_in_one_chart(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    const tt_run_report runs[] = {
        run_of(a, "one", "{\"step\":1,\"loss\":4}\n{\"step\":1,\"validation\":{\"loss\":5}}\n"),
        run_of(a, "two", "{\"step\":1,\"loss\":3}\n"),
    };
    char *page = page_of(runs, 2);
    assert_memory_equal(data_of(page, "one, training"), "1 4 ", 4);
    assert_memory_equal(data_of(page, "one, validation"), "1 5 ", 4);
    assert_memory_equal(data_of(page, "two, training"), "1 3 ", 4);
    free(page);
    tt_arena_free(a);
}

static const tt_json *facts_of(tt_arena *a, const char *text)
{
    const tt_json *v = NULL;
    tt_error err = {0};
    assert_int_equal(tt_json_parse(a, "run.json", text, strlen(text), &v, &err), TT_OK);
    return v;
}

static void test_page_lists_runs_and_the_keys_that_differ(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_run_report runs[] = {
        run_of(a, "one",
               "{\"step\":2,\"loss\":4,\"time_s\":3,\"tps_global\":500,\"mfu\":0.25}\n"
               "{\"step\":4,\"loss\":4.5,\"time_s\":2,\"tps_global\":500,\"mfu\":0.25}\n"),
        run_of(a, "two", "{\"step\":1,\"loss\":3}\n"),
    };
    runs[0].facts = facts_of(a, "{\"ttrun\":\"1.2\",\"world\":2,\"mesh\":{\"tp\":2},\"job\":{"
                                "\"dump_folder\":\"a\",\"optimizer\":"
                                "{\"lr\":0.5,\"eps\":1e-8},\"hooks\":[]}}");
    runs[1].facts = facts_of(
        a,
        "{\"job\":{\"dump_folder\":\"b\",\"optimizer\":{\"lr\":0.25,\"eps\":1e-8,\"<i>\":\"<b>\"},"
        "\"hooks\":[]}}");
    char *page = page_of(runs, 2);
    const char *table = strstr(page, "<h2>Runs</h2>"), *curves = strstr(page, "<h2>Curves</h2>"),
               *keys = strstr(page, "Keys of the jobs that");
    assert_true(table && curves && keys && table < curves && curves < keys);
    static const char *const cells[] = {">4</td>",   ">4.5</td>",    ">25 %</td>",
                                        ">500</td>", ">10.0 s</td>", ">2 ranks: tp 2</td>",
                                        ">1.2</td>"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        const char *cell = strstr(table, cells[i]);
        if (!cell || cell > curves)
            fail_msg("no cell %s", cells[i]);
    }
    assert_non_null(strstr(keys, "<code>optimizer.lr</code></td><td><code>0.5</code></td><td><code>"
                                 "0.25</code></td>"));
    assert_non_null(strstr(keys, "<code>optimizer.&lt;i&gt;</code></td><td><code>–</code></td><td>"
                                 "<code>&quot;&lt;b&gt;&quot;</code>"));
    const char *end = strstr(keys, "</table>");
    const char *same[] = {"optimizer.eps", "dump_folder", "hooks"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const char *at = strstr(keys, same[i]);
        assert_true(!at || at > end);
    }
    free(page);
    runs[1].facts = NULL; /* a run without run.json */
    page = page_of(runs, 2);
    assert_non_null(strstr(page, "<code>optimizer.eps</code>"));
    free(page);
    tt_arena_free(a);
}

/* Few keys are shown, many are folded. */
static void test_page_folds_many_keys(void **state)
{
    (void)state;
    for (int n_keys = 12; n_keys <= 13; n_keys++) {
        tt_arena *a = tt_arena_new();
        tt_run_report runs[] = {run_of(a, "one", ""), run_of(a, "two", "")};
        for (int r = 0; r < 2; r++) {
            tt_str s = {0};
            tt_str_add(&s, "{\"job\":{\"same\":1");
            for (int k = 0; k < n_keys; k++)
                tt_str_printf(&s, ",\"key%d\":%d", k, r);
            tt_str_add(&s, "}}");
            runs[r].facts = facts_of(a, tt_str_get(&s));
            tt_str_free(&s);
        }
        char *page = page_of(runs, 2);
        assert_non_null(strstr(page, n_keys == 12
                                         ? "<details open><summary>Keys of the jobs that differ"
                                           "<small>12</small>"
                                         : "<details><summary>Keys of the jobs that differ"
                                           "<small>13</small>"));
        free(page);
        tt_arena_free(a);
    }
}

/* A chart for each number of the model and the loss, whatever its name, with the runs that have it. */
static void test_page_draws_what_a_loss_logs(void **state)
{
    static const char *const has[] = {
        "<figcaption>rewards/margin</figcaption>",
        "data-name=\"one\" data-p=\"1 0.25 2 NaN 3 0.75 \"",
        "<figcaption>losses/mtp_1</figcaption>",
        "data-name=\"two\" data-p=\"1 7 \"",
        "<figcaption>router</figcaption>",
    };
    static const char *const has_not[] = {
        "<figcaption>loss_max", "<figcaption>time/",      "<figcaption>validation",
        "<figcaption>weight_",  "<figcaption>loss_scale", "<figcaption>?",
        "<figcaption>x",        "<figcaption>experts",
    };
    (void)state;
    tt_arena *a = tt_arena_new();
    const tt_run_report runs[] = {
        run_of(a, "one",
               "{\"step\":1,\"loss\":4,\"loss_max\":5,\"rewards\":{\"margin\":0.25},\"router\":1,"
               "\"experts\":{\"entropy\":1},\"loss_scale\":2,\"weight_norms\":{\"all\":1}}\n"
               "{\"step\":2,\"loss\":4,\"rewards\":{\"margin\":0.5},\"time\":{\"left\":3}}\n"
               "{\"step\":2,\"rewards\":{\"margin\":null},\"list\":[{\"x\":1}],\"o\":{\"o\":{\"x\":"
               "1}}}\n"
               "{\"step\":2,\"validation\":{\"loss\":4,\"wiki/loss\":2}}\n"
               "{\"rewards\":{\"margin\":0.75},\"step\":3}\n{\"step\":4,\"rewards\":{\"margin\":9},"
               "\n"),
        run_of(a, "two", "{\"step\":1,\"losses\":{\"mtp_1\":7}}\n"),
    };
    char *page = page_of(runs, 2);
    for (size_t i = 0; i < sizeof has / sizeof *has; i++)
        if (!strstr(page, has[i]))
            fail_msg("the page has no %s", has[i]);
    for (size_t i = 0; i < sizeof has_not / sizeof *has_not; i++)
        if (strstr(page, has_not[i]))
            fail_msg("the page has %s", has_not[i]);
    free(page);
    tt_arena_free(a);
}

/* Of 480 steps two are a column, with their mean; columns of one shade are one rectangle. Of the newest step each expert is one. */
static void test_page_draws_the_load_of_experts(void **state)
{
    static const char *const has[] = {
        ">layers.0, step 1 – 480: 2</title>",
        ">layers.1, step 1 – 240: 1</title>",
        ">layers.1, step 241 – 480: 8</title>",
        ">layers.2, step 1 – 480: 2</title>",
        ">step 1</text>",
        " text-anchor=\"end\">480</text></svg>",
        "Tokens of each expert in step 480",
        ">layers.0, expert 0: 0.5</title>",
        ">layers.0, expert 1 – 2: 1</title>",
        ">layers.0, expert 3: 1.5</title>",
    };
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_str s = {0};
    for (int step = 1; step <= 480; step++)
        tt_str_printf(&s,
                      "{\"step\":%d,\"experts\":{\"layers.0/max_over_mean\":2,\"layers.1/"
                      "max_over_mean\":%d,\"layers.2/max_over_mean\":%d}}\n",
                      step, step <= 240 ? 1 : 8, step % 2 ? 1 : 3);
    tt_run_report r = run_of(a, "one", tt_str_get(&s));
    r.experts.last =
        facts_of(a, "{\"step\":480,\"layers\":[{\"name\":\"layers.0\",\"tokens\":[2,4,4,6]}]}");
    char *page = page_of(&r, 1);
    for (size_t i = 0; i < TT_COUNT(has); i++)
        if (!strstr(page, has[i]))
            fail_msg("the page has no %s", has[i]);
    free(page);
    tt_str_free(&s);
    tt_arena_free(a);
}

/* On a narrow screen a table scrolls in its box; it does not leave the page. */
static void test_page_has_each_table_in_a_box(void **state)
{
    static const char *const boxes[] = {"<div class=\"card\">", "<div class=\"card ops\">",
                                        "</summary>", "<div class=\"ops\">"};
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_run_report runs[] = {run_of(a, "one", ""), run_of(a, "two", "")};
    runs[0].facts = facts_of(
        a, "{\"starts\":[{\"started\":\"2026-01-01\",\"host\":\"h\"}],\"job\":{\"m\":{\"k\":1}}}");
    char *page = page_of(runs, 2);
    int tables = 0;
    assert_non_null(strstr(page, "<h3>Starts</h3>"));
    for (const char *p = page; (p = strstr(p, "<table>")) != NULL; p++, tables++) {
        bool boxed = false;
        for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
            boxed |= !strncmp(p - strlen(boxes[i]), boxes[i], strlen(boxes[i]));
        if (!boxed)
            fail_msg("a table that cannot scroll: %.120s", p);
    }
    assert_true(tables >= 4);
    free(page);
    tt_arena_free(a);
}

/* What the page's script needs to draw a curve again, and nothing of the run in the script. */
static void test_page_gives_its_script_the_curves(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    const tt_run_report r =
        run_of(a, "'+alert(1)+'",
               "{\"step\":10,\"loss\":4,\"n_tokens_seen\":200,\"time_s\":36}\n"
               "{\"step\":20,\"loss\":3,\"n_tokens_seen\":400,\"time_s\":36}\n");
    char *page = page_of(&r, 1);
    assert_non_null(strstr(page, "data-k=\"c0\" data-c=\"0\" data-m=\"0\" data-s=\"20 20 0.01 \" "
                                 "data-name=\"training\" data-p=\"10 4 20 3 \""));
    const char *script = strstr(page, "<script>");
    assert_non_null(script);
    assert_null(strstr(script, "alert(1)"));
    assert_non_null(
        strstr(page, "<svg viewBox=\"0 0 620 250\" role=\"img\" data-x=")); /* without a script */
    free(page);
    tt_arena_free(a);
}

/* Each part of a step's time is what the record says, communication is taken out of what computes, and the rest is what is left. */
static void test_page_splits_the_time_of_steps(void **state)
{
    static const char *const want[] = {
        "data-name=\"data\" data-p=\"10 6 20 4 \"",
        "data-name=\"forward and backward\" data-p=\"10 10 20 16 \"",
        "data-name=\"exposed communication\" data-p=\"10 8 20 0 \"",
        "data-name=\"optimizer\" data-p=\"10 3 20 2 \"",
        "data-name=\"the rest\" data-p=\"10 9 20 10 \"",
    };
    (void)state;
    tt_arena *a = tt_arena_new();
    const tt_run_report r = run_of(a, "split",
                                   "{\"step\":10,\"loss\":4,\"time_s\":36,\"time\":{\"data\":6,"
                                   "\"forward_backward\":18,\"optimizer\":3,\"comm_exposed\":8}}\n"
                                   "{\"step\":15,\"loss\":4}\n"
                                   "{\"step\":20,\"loss\":3,\"time_s\":32,\"time\":{\"data\":4,"
                                   "\"forward_backward\":16,\"optimizer\":2}}\n");
    char *page = page_of(&r, 1);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!strstr(page, want[i]))
            fail_msg("the page has no %s: %s", want[i], strstr(page, "Where a step"));
    free(page);
    tt_arena_free(a);
}

/* Of stacked areas with more points than columns, a column shows the point where their sum is largest, wherever in the
 * column it is. */
static void test_areas_keep_the_highest_point_of_a_column(void **state)
{
    enum { N = 901 }; /* columns of four points */
    static const int spikes[] = {1, 402, 503, 900};
    static double v[3 * N];
    (void)state;
    for (int i = 0; i < N; i++) {
        v[3 * i] = i;
        v[3 * i + 1] = 1;
        v[3 * i + 2] = 2;
    }
    for (size_t k = 0; k < sizeof spikes / sizeof *spikes; k++)
        v[3 * spikes[k] + 2] = 9;
    tt_curve c[2] = {
        {.name = "low",  .x = v, .y = v + 1, .n = N, .stride = 3},
        {.name = "high", .x = v, .y = v + 2, .n = N, .stride = 3}
    };
    tt_str o = {0};
    tt_chart_print(
        &(tt_chart){.title = "t", .unit = "u", .x_name = "x", .curves = c, .n = 2, .stacked = true},
        &o);
    const char *high = strstr(tt_str_get(&o), "data-name=\"high\" data-p=\"1 9 4 2 8 2 ");
    assert_non_null(high);
    assert_non_null(strstr(high, " 396 2 402 9 404 2 "));
    assert_non_null(strstr(high, " 496 2 503 9 504 2 "));
    assert_non_null(strstr(high, " 896 2 900 9 \"/>"));
    tt_str_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_of_an_empty_run),
        cmocka_unit_test(test_page_escapes_texts_of_the_run),
        cmocka_unit_test(test_page_of_a_million_steps_keeps_every_spike),
        cmocka_unit_test(test_page_shows_a_gap_where_the_loss_is_nan),
        cmocka_unit_test(test_page_draws_several_runs_in_one_chart),
        cmocka_unit_test(test_page_lists_runs_and_the_keys_that_differ),
        cmocka_unit_test(test_page_folds_many_keys),
        cmocka_unit_test(test_page_draws_what_a_loss_logs),
        cmocka_unit_test(test_page_draws_the_load_of_experts),
        cmocka_unit_test(test_page_has_each_table_in_a_box),
        cmocka_unit_test(test_page_gives_its_script_the_curves),
        cmocka_unit_test(test_page_splits_the_time_of_steps),
        cmocka_unit_test(test_areas_keep_the_highest_point_of_a_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
