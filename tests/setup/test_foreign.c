/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/job.h"
#include "interchange/install.h"

/* A program has what reads and writes folders of other programs only if it installs it. */

static void fails(const char *overrides, const char *place, const char *text)
{
    const tt_setup_opts o = {.mode = TT_MODE_TRAIN, .data = true};
    tt_error err = {0};
    job j;
    tt_log_setup(TT_ERROR, 0, 1, false);
    assert_int_not_equal(job_try(&j, job_text, overrides, &o, &err), TT_OK);
    if (!strstr(err.text, place) || !strstr(err.text, text))
        fail_msg("%s: %s", overrides, err.text);
    job_close(&j);
}

static void test_foreign_keys_are_refused_by_a_program_without(void **state)
{
    static const char nothing[] = "this program has nothing that reads or writes the folders";
    (void)state;
    fails("model.hf none", "model.hf: ", nothing);
    fails("model.flavor hf model.hf_assets_path none", "model.flavor: ", nothing);
    fails("checkpoint.initial_load_in_hf true", "checkpoint.initial_load_in_hf: ", nothing);
    fails("checkpoint.last_save_in_hf true", "checkpoint.last_save_in_hf: ", nothing);
    fails("checkpoint.hf_interval 2", "checkpoint.hf_interval: ", nothing);
}

static void test_foreign_keys_mean_something_once_it_is_installed(void **state)
{
    (void)state;
    tt_interchange_install();
    fails("model.hf none", "model.hf: ", "none/config.json");
    fails("model.flavor hf model.hf_assets_path none",
          "model.hf_assets_path: ", "none/config.json");
    fails("checkpoint.initial_load_in_hf true",
          "checkpoint.initial_load_in_hf: ", "needs checkpoint.initial_load_path");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foreign_keys_are_refused_by_a_program_without),
        cmocka_unit_test(test_foreign_keys_mean_something_once_it_is_installed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
