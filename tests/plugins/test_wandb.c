/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/metrics/wandb.c"
#include "folder_test.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A start that resumes goes on with the run of the start before, a new run in the same folder is another. */
static void test_wandb_only_a_resumed_run_keeps_its_id(void **state)
{
    static const char before[] = "zzzz9999"; /* which a drawn one is not: 36^8 */
    static const struct {
        int64_t resume_step;
        bool same;
    } rows[] = {
        {1, true },
        {7, true },
        {0, false},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        char folder[TEST_FOLDER], path[TEST_FOLDER + 20], id[9] = "";
        void *self = NULL;
        tt_error err = {0};
        assert_true(test_folder("wandb", folder));
        const tt_metrics_env env = {
            .struct_size = sizeof env, .dump_folder = folder, .resume_step = rows[i].resume_step};
        snprintf(path, sizeof path, "%s/wandb", folder);
        assert_int_equal(mkdir(path, 0777), 0);
        snprintf(path, sizeof path, "%s/wandb/id", folder);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(fprintf(f, "%s\n", before), 9);
        fclose(f);
        if (open_sink(&(config){.project = "p"}, &env, &self, &err) != TT_OK)
            fail_msg("%s", err.text);
        close_sink(self);
        f = fopen(path, "r");
        assert_non_null(f);
        assert_int_equal(fread(id, 1, 8, f), 8);
        fclose(f);
        assert_true(is_id(id));
        assert_int_equal(strcmp(id, before) == 0, rows[i].same);
        assert_true(test_folder_remove(folder));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wandb_only_a_resumed_run_keeps_its_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
