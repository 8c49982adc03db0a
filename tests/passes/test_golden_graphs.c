/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"

#include "graph/llama.c"
#include "graph/sim.c"

/* The printed graph of small models after every pass equals tests/golden/graphs/<model>.<pass>.txt.
 * TT_UPDATE_GOLDEN=1 writes the files instead: read the diff before committing it. */

static void path_of(const char *model, const char *pass, char *path, size_t size)
{
    const char *src = getenv("SRC");
    snprintf(path, size, "%s/tests/golden/graphs/%s.%s.txt", src ? src : ".", model, pass);
}

static void first_difference(const char *path, const char *have, const char *want)
{
    int line = 1;
    size_t at = 0;
    for (size_t i = 0; have[i] && have[i] == want[i]; i++)
        if (have[i] == '\n') {
            line++;
            at = i + 1;
        }
    fail_msg("%s:%d\n  printed: %.*s\n  golden:  %.*s\n(TT_UPDATE_GOLDEN=1 rewrites it)", path,
             line, (int)strcspn(have + at, "\n"), have + at, (int)strcspn(want + at, "\n"),
             want + at);
}

static void compare_print(void *user, const char *pass, built *x)
{
    char path[1024];
    char *want = NULL;
    size_t n;
    tt_str have = {0};
    tt_error err;
    const job *j = ((void **)user)[1];
    const bool about_async_tp = !strcmp(pass, "async_tp");
    if ((!strcmp(pass, "metrics") && !j->metrics) ||
        (j->async_tp ? !about_async_tp && strcmp(pass, "epilogue")
                     : about_async_tp)) /* before, after */
        return;
    path_of(((void **)user)[0], pass, path, sizeof path);
    tt_graph_print(strcmp(pass, "describe") ? x->g : x->described, &have);
    if (getenv("TT_UPDATE_GOLDEN")) {
        if (tt_write_file_atomic(path, tt_str_get(&have), have.n, &err) != TT_OK)
            fail_msg("%s", err.text);
    } else {
        if (tt_read_file(path, 0, &want, &n, &err) != TT_OK)
            fail_msg("%s", err.text);
        if (strcmp(tt_str_get(&have), want))
            first_difference(path, tt_str_get(&have), want);
        free(want);
    }
    tt_str_free(&have);
}

static void check(char *name, job *j)
{
    built x;
    tt_error err = {0};
    void *user[2] = {name, j};
    const char *bad = build_job(j, NULL, compare_print, user, &x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
    built_free(&x);
}

static void test_printed_graph_of_one_rank(void **state)
{
    (void)state;
    job j = {.c = LLAMA_DEFAULT,
             .mesh = mesh_named("1"),
             .tokens = 12,
             .metrics = true,
             .optimizer = "adamw",
             .max_norm = 1,
             .fuse = true,
             .can_accumulate = true};
    j.c.L = 1;
    check((char[]){"llama"}, &j);
}

static void test_printed_graph_of_fsdp_tp_cp(void **state)
{
    (void)state;
    job j = {
        .c = LLAMA_DEFAULT,
        .mesh = mesh_named("fsdp2 tp2 cp2"),
        .tokens = 14,
        .metrics = true,
        .max_norm = 1,
        .fuse = true,
        .recompute = {TT_RECOMPUTE_SELECTIVE, true}
    };
    j.c.L = 1;
    j.c.tied = true;
    check((char[]){"llama-fsdp2-tp2-cp2"}, &j);
}

static void test_printed_graph_of_two_stages(void **state)
{
    (void)state;
    job j = {.c = LLAMA_DEFAULT,
             .mesh = mesh_named("tp2"),
             .tokens = 12,
             .metrics = true,
             .max_norm = 1,
             .n_stages = 2};
    check((char[]){"llama-tp2-two-stages"}, &j);
}

static void test_printed_graph_of_asynchronous_tensor_parallelism(void **state)
{
    (void)state;
    job j = {.c = LLAMA_DEFAULT,
             .mesh = mesh_named("tp3"),
             .tokens = 13,
             .fuse = true,
             .can_accumulate = true,
             .async_tp = true};
    j.c.L = 1;
    check((char[]){"llama-tp3-async_tp"}, &j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_printed_graph_of_one_rank),
        cmocka_unit_test(test_printed_graph_of_fsdp_tp_cp),
        cmocka_unit_test(test_printed_graph_of_two_stages),
        cmocka_unit_test(test_printed_graph_of_asynchronous_tensor_parallelism),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
