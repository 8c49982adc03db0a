/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "folder_test.h"
#include "report/watch.h"
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A run is followed by its files: lines that are added, cut off and replaced, locks, and names that a
 * terminal must not obey. */

typedef struct place {
    char path[TEST_FOLDER];
    tt_arena *a;
    tt_watches list;
} place;

static const char *in(const place *p, const char *name)
{
    return tt_arena_printf(p->a, "%s/%s", p->path, name);
}

static void put_file(const place *p, const char *name, const char *mode, const char *text)
{
    FILE *f = fopen(in(p, name), mode);
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static place make_place(void)
{
    place p = {.a = tt_arena_new()};
    assert_true(test_folder("watch", p.path));
    return p;
}

static void end_place(place *p)
{
    assert_true(test_folder_remove(p->path));
    tt_arena_free(p->a);
}

static tt_watch *watch_of(place *p, const char *run)
{
    tt_error err = {0};
    assert_int_equal(tt_watch_find(in(p, run), p->a, &p->list, &err), TT_OK);
    assert_int_equal(p->list.n, 1);
    tt_watch_look(p->list.items[0]);
    return p->list.items[0];
}

static void test_watch_reads_only_whole_lines_and_what_is_new(void **state)
{
    (void)state;
    place p = make_place();
    mkdir(in(&p, "run"), 0777);
    put_file(&p, "run/metrics.jsonl", "w",
             "{\"step\":1,\"loss\":5,\"time_s\":2}\n{\"step\":2,\"lo");
    tt_watch *w = watch_of(&p, "run");
    assert_true(w->row[TT_COL_STEP] == 1 && w->n == 1 && w->bad_lines == 0);
    put_file(&p, "run/metrics.jsonl", "a",
             "ss\":4,\"time_s\":2}\n{\"step\":2,\"validation\":{\"loss\":7}}\n");
    tt_watch_look(w);
    assert_true(w->row[TT_COL_STEP] == 2 && w->row[TT_COL_LOSS] == 4 && w->n == 2);
    assert_true(w->validation == 7 && w->step_s == 2);
    put_file(&p, "run/metrics.jsonl", "a", "nonsense\n\n{\"step\":3,\"loss\":null}\n");
    tt_watch_look(w);
    assert_true(w->bad_lines == 1 && w->row[TT_COL_STEP] == 3 && isnan(w->row[TT_COL_LOSS]));
    assert_int_equal(w->n, 2);
    end_place(&p);
}

static void test_watch_follows_a_resumed_run(void **state)
{
    (void)state;
    place p = make_place();
    mkdir(in(&p, "run"), 0777);
    put_file(&p, "run/metrics.jsonl", "w",
             "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n{\"step\":3,\"loss\":3}\n");
    tt_watch *w = watch_of(&p, "run");
    assert_int_equal(w->n, 3);
    /* shorter: the lines after step 1 were cut, and one was written again */
    put_file(&p, "run/metrics.jsonl", "w", "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4.5}\n");
    tt_watch_look(w);
    assert_true(w->n == 2 && w->y[1] == 4.5);
    /* longer, but other bytes before where it was read to */
    put_file(&p, "run/metrics.jsonl", "w",
             "{\"step\":1,\"loss\":6}\n{\"step\":2,\"loss\":5.5}\n{\"step\":3,\"loss\":5.25}\n");
    tt_watch_look(w);
    assert_true(w->n == 3 && w->y[0] == 6 && w->y[2] == 5.25);
    unlink(in(&p, "run/metrics.jsonl"));
    tt_watch_look(w);
    assert_true(w->n == 0 && isnan(w->row[TT_COL_STEP]));
    end_place(&p);
}

static void test_watch_keeps_the_shape_of_a_long_run(void **state)
{
    (void)state;
    enum { N = 100000 };
    place p = make_place();
    mkdir(in(&p, "run"), 0777);
    FILE *f = fopen(in(&p, "run/metrics.jsonl"), "w");
    assert_non_null(f);
    for (int i = 1; i <= N; i++)
        fprintf(f, "{\"step\":%d,\"loss\":%g}\n", i, 10.0 - 9.0 * i / N);
    fclose(f);
    const tt_watch *w = watch_of(&p, "run");
    assert_true(w->row[TT_COL_STEP] == N && w->n >= TT_WATCH_POINTS / 2 && w->n <= TT_WATCH_POINTS);
    for (int i = 1; i < w->n; i++)
        assert_true(w->x[i] > w->x[i - 1] && w->y[i] < w->y[i - 1]);
    assert_true(w->y[0] > 9.9 && w->y[w->n - 1] < 1.01 && w->x[w->n - 1] > N - 100);
    end_place(&p);
}

/* It reads more at once for a line that is longer than a block, up to a length that no line of metrics has. */
static void test_watch_reads_long_lines(void **state)
{
    static const struct {
        int length;
        bool bad;
    } lines[] = {
        {65535,   false}, /* a block with its end */
        {65536,   false},
        {65537,   false},
        {200000,  false},
        {1100000, true }, /* more than is taken for a line */
    };
    (void)state;
    place p = make_place();
    mkdir(in(&p, "run"), 0777);
    put_file(&p, "run/metrics.jsonl", "w", "{\"step\":1,\"loss\":5}\n");
    tt_watch *w = watch_of(&p, "run");
    for (size_t i = 0; i < TT_COUNT(lines); i++) {
        const int step = 2 * (int)i + 2;
        put_file(&p, "run/metrics.jsonl", "a",
                 tt_arena_printf(p.a, "{\"step\":%d,\"loss\":4%*s}\n", step,
                                 lines[i].length - (int)strlen("{\"step\":2,\"loss\":4}\n"), ""));
        tt_watch_look(w);
        assert_true(w->row[TT_COL_STEP] == step - lines[i].bad &&
                    (w->bad_lines > 0) == lines[i].bad);
        put_file(&p, "run/metrics.jsonl", "a",
                 tt_arena_printf(p.a, "{\"step\":%d,\"loss\":3}\n", step + 1));
        tt_watch_look(w);
        assert_true(w->row[TT_COL_STEP] == step + 1);
    }
    end_place(&p);
}

static void test_watch_knows_the_state_of_a_run(void **state)
{
    (void)state;
    place p = make_place();
    mkdir(in(&p, "run"), 0777);
    mkdir(in(&p, "run/kept"), 0777);
    mkdir(in(&p, "run/kept/step-5"), 0777);
    mkdir(in(&p, "run/kept/step-10"), 0777);
    mkdir(in(&p, "run/kept/step-11.tmp"), 0777);
    put_file(&p, "run/run.json", "w",
             "{\"job\":{\"training\":{\"steps\":12},\"checkpoint\":{\"folder\":\"kept\"}}}");
    put_file(&p, "run/metrics.jsonl", "w", "{\"step\":11,\"loss\":5}\n");
    put_file(&p, "run/.lock", "w", "1\n");
    tt_watch *w = watch_of(&p, "run");
    assert_true(w->state == TT_RUN_STOPPED && w->steps == 12 && w->saved == 10);
    const int fd = open(in(&p, "run/.lock"), O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    tt_watch_look(w);
    assert_int_equal(w->state, TT_RUN_RUNNING);
    close(fd);
    put_file(&p, "run/metrics.jsonl", "a", "{\"step\":12,\"loss\":5}\n");
    tt_watch_look(w);
    assert_int_equal(w->state, TT_RUN_DONE);
    put_file(&p, "run/new.json", "w",
             "{\"starts\":[{\"status\":\"done\"},{\"status\":\"failed: no room\"}],"
             "\"job\":{\"training\":{\"steps\":12}}}");
    assert_int_equal(rename(in(&p, "run/new.json"), in(&p, "run/run.json")), 0);
    tt_watch_look(w);
    assert_int_equal(w->state, TT_RUN_FAILED);
    put_file(&p, "run/new.json", "w",
             "{\"starts\":[{\"status\":\"failed: no room\"},{\"status\":\"done\"}],"
             "\"job\":{\"training\":{\"steps\":12}}}");
    assert_int_equal(rename(in(&p, "run/new.json"), in(&p, "run/run.json")), 0);
    tt_watch_look(w);
    assert_int_equal(w->state, TT_RUN_DONE);
    /* a start that was killed after step 12: its save may be missing */
    put_file(&p, "run/new.json", "w",
             "{\"starts\":[{\"status\":\"done\"},{\"from_step\":10}],"
             "\"job\":{\"training\":{\"steps\":12},\"checkpoint\":{\"folder\":\"kept\"}}}");
    assert_int_equal(rename(in(&p, "run/new.json"), in(&p, "run/run.json")), 0);
    tt_watch_look(w);
    assert_int_equal(w->state, TT_RUN_STOPPED);
    mkdir(in(&p, "run/kept/step-12"), 0777);
    tt_watch_look(w);
    assert_int_equal(w->state, TT_RUN_DONE);
    end_place(&p);
}

static void test_watch_finds_runs_below_a_folder(void **state)
{
    (void)state;
    place p = make_place();
    tt_error err = {0};
    const char *folders[] = {"a", "a/run1", "a/run1/before-1", "a/b", "a/b/run2", "a/empty"};
    for (size_t i = 0; i < TT_COUNT(folders); i++)
        mkdir(in(&p, folders[i]), 0777);
    put_file(&p, "a/run1/run.json", "w", "{}");
    put_file(&p, "a/run1/before-1/run.json", "w", "{}");
    put_file(&p, "a/b/run2/metrics.jsonl", "w", "");
    assert_int_equal(symlink(p.path, in(&p, "a/loop")), 0);
    assert_int_equal(tt_watch_find(in(&p, "a"), p.a, &p.list, &err), TT_OK);
    assert_int_equal(tt_watch_find(in(&p, "a/"), p.a, &p.list, &err), TT_OK); /* none twice */
    assert_int_equal(p.list.n, 2);
    tt_watch_sort(&p.list);
    assert_string_equal(p.list.items[0]->name, "b/run2");
    assert_string_equal(p.list.items[1]->name, "run1");
    place q = p;
    q.list = (tt_watches){0};
    assert_int_equal(tt_watch_find(in(&p, "a/r*"), p.a, &q.list, &err), TT_OK);
    assert_int_equal(q.list.n, 1);
    assert_int_equal(tt_watch_find(in(&p, "none*"), p.a, &q.list, &err), TT_ENOTFOUND);
    end_place(&p);
}

static void check_any_width(const char *run)
{
    place p = make_place();
    mkdir(in(&p, run), 0777);
    put_file(
        &p, tt_arena_printf(p.a, "%s/metrics.jsonl", run), "w",
        "{\"step\":1,\"loss\":5,\"lr\":0.001,\"tps_global\":12345,\"mfu\":0.5,\"mem_gib\":1}\n"
        "{\"step\":9,\"loss\":3,\"lr\":0.001,\"tps_global\":12345,\"mfu\":0.5,\"mem_gib\":1}\n");
    tt_watch *w = watch_of(&p, run);
    for (int columns = 1; columns < 200; columns++) {
        tt_str o = {0};
        tt_top_print(&p.list, &(tt_top_opts){columns, 20, columns % 2, w->written + 5}, &o);
        int at = 0;
        for (const char *c = tt_str_get(&o); *c; c++) {
            assert_true(*c != '\033' && *c != (char)0x9b);
            at = *c == '\n' ? 0 : at + (((unsigned char)*c & 0xc0) != 0x80);
            assert_true(at <= TT_MAXV(columns, 12));
        }
        assert_non_null(strstr(tt_str_get(&o), "r?[31m"));
        if (columns == 120)
            assert_non_null(strstr(tt_str_get(&o), "  12,345  50.0%  1.00 GiB  "));
        if (columns == 80)
            assert_non_null(strstr(tt_str_get(&o), "stopped     9  3.0000  "));
        tt_str_free(&o);
    }
    end_place(&p);
}

/* Every line fits the width, and nothing of a name reaches the terminal as a command. */
static void test_top_fits_any_width(void **state)
{
    (void)state;
    check_any_width("r\033[31m\xc2\x9b\xffun");
    check_any_width("r\033[31m\xc2\x9bun"); /* UTF-8 */
}

/* A loss curve's largest and smallest value are rounded to their columns, not cut. */
static void test_top_cuts_no_number(void **state)
{
    (void)state;
    place p = make_place();
    tt_str o = {0};
    mkdir(in(&p, "run"), 0777);
    put_file(&p, "run/metrics.jsonl", "w",
             "{\"step\":1,\"loss\":1234567.25,\"mem_gib\":0.04}\n"
             "{\"step\":2,\"loss\":4321.5,\"mem_gib\":0.04}\n");
    tt_watch *w = watch_of(&p, "run");
    tt_top_print(&p.list, &(tt_top_opts){100, 20, false, w->written + 1090}, &o);
    assert_non_null(strstr(tt_str_get(&o), "\n 1.2e+06 "));
    assert_non_null(strstr(tt_str_get(&o), "\n 4.3e+03 "));
    assert_non_null(strstr(tt_str_get(&o), "  41 MiB  "));
    assert_non_null(strstr(tt_str_get(&o), "  18m10s\n"));
    tt_str_free(&o);
    end_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watch_reads_only_whole_lines_and_what_is_new),
        cmocka_unit_test(test_watch_follows_a_resumed_run),
        cmocka_unit_test(test_watch_keeps_the_shape_of_a_long_run),
        cmocka_unit_test(test_watch_reads_long_lines),
        cmocka_unit_test(test_watch_knows_the_state_of_a_run),
        cmocka_unit_test(test_watch_finds_runs_below_a_folder),
        cmocka_unit_test(test_top_fits_any_width),
        cmocka_unit_test(test_top_cuts_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
