/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/dataloaders/chat.c"
#include "folder_test.h"
#include "plugins/bytes_tokenizer.h"
#include <setjmp.h>

#include <cmocka.h>

static char root[TEST_FOLDER];

static int set_up(void **state)
{
    (void)state;
    return test_folder("chat", root) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return test_folder_remove(root) ? 0 : -1;
}

static int looks, stop_at; /* at whether the run is to stop; 0: never */

static int stop(void *user)
{
    (void)user;
    return ++looks == stop_at;
}

/* Opens a file of n lines, of which line `bad` is no JSON. */
static tt_status open_lines(int n, int bad, int stops, void **self, tt_error *err)
{
    const char *path = "chats.jsonl";
    char file[256];
    const config c = {
        .path = {&path, 1},
        .format = "auto",
        .template = "chatml",
        .loss_on = "assistant",
        .truncation = "right",
        .packing = "none"
    };
    const tt_dataloader_env env = {.struct_size = sizeof env,
                                   .seq_len = 100,
                                   .vocab_size = 258,
                                   .tokenizer = &bytes_tokenizer,
                                   .tokenizer_self = root,
                                   .job_dir = root,
                                   .stop = stop};
    snprintf(file, sizeof file, "%s/%s", root, path);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    for (int i = 1; i <= n; i++)
        fputs(i == bad ? "{\"prompt\n" : "{\"prompt\": \"a\", \"completion\": \"b\"}\n", f);
    fclose(f);
    looks = 0;
    stop_at = stops;
    *self = NULL;
    *err = (tt_error){0};
    return open_chat(&c, &env, self, err);
}

/* Where a line is wrong, the error names it; where the run is to stop, no line is to blame. */
static void test_chat_errors_name_the_line(void **state)
{
    void *self;
    tt_error err;
    char place[300];
    (void)state;
    if (open_lines(200, 0, 0, &self, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(n_samples(self), 200);
    assert_true(looks > 1);
    close_chat(self);
    for (int bad = 1; bad <= 200; bad += 199) {
        assert_int_equal(open_lines(200, bad, 0, &self, &err), TT_EINVAL);
        snprintf(place, sizeof place, "dataloader.path: %s/chats.jsonl:%d: not JSON: ", root, bad);
        assert_memory_equal(err.text, place, strlen(place));
    }
    for (int look = 1; look <= 2; look++) {
        assert_int_equal(open_lines(200, 0, look, &self, &err), TT_ESIGNAL);
        assert_int_equal(looks, look);
        assert_string_equal(err.text, "stopped");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_errors_name_the_line),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
