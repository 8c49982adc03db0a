/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/dataloaders/chat.c"
#include "chat/messages_table.h"
#include "folder_test.h"
#include "plugins/bytes_tokenizer.h"

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

static FILE *open_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    return f;
}

static tt_status open_with(const char *template, const char *loss_on, void **self, tt_error *err)
{
    const char *path = "chats.jsonl";
    char file[256];
    snprintf(file, sizeof file, "%s/%s", root, template);
    const config c = {
        .path = {&path, 1},
        .format = "auto",
        .template = strcmp(template, "chatml") ? file : template,
        .loss_on = loss_on,
        .truncation = "right",
        .packing = "none"
    };
    const tt_dataloader_env env = {.struct_size = sizeof env,
                                   .seq_len = 1000,
                                   .vocab_size = 258,
                                   .tokenizer = &bytes_tokenizer,
                                   .tokenizer_self = root,
                                   .job_dir = root,
                                   .stop = stop};
    *self = NULL;
    *err = (tt_error){0};
    return open_chat(&c, &env, self, err);
}

/* Opens a file of n lines, of which line `bad` is no JSON. */
static tt_status open_lines(int n, int bad, int stops, void **self, tt_error *err)
{
    FILE *f = open_file("chats.jsonl");
    for (int i = 1; i <= n; i++)
        fputs(i == bad ? "{\"prompt\n" : "{\"prompt\": \"a\", \"completion\": \"b\"}\n", f);
    fclose(f);
    looks = 0;
    stop_at = stops;
    return open_with("chatml", "assistant", self, err);
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

static void put_text(const char *name, const char *text)
{
    FILE *f = open_file(name);
    fputs(text, f);
    fclose(f);
}

/* The bytes of a loader's conversations. */
static void get_text(void *self, char *out)
{
    const loader *l = self;
    for (size_t i = 0; i < l->tokens.n; i++)
        if (l->tokens.ids[i] < 256)
            *out++ = (char)l->tokens.ids[i];
    *out = '\0';
}

static void check_line(size_t number, const table_case *c)
{
    char line[8192], text[8192];
    void *self;
    tt_error err;
    snprintf(
        line, sizeof line,
        "{\"id\":12345678901234567890,\"messages\":%s,\"tools\":%s,\"chat_template_kwargs\":%s}\n",
        c->messages, c->tools ? c->tools : "null", c->kwargs ? c->kwargs : "null");
    put_text("chats.jsonl", line);
    put_text("template", c->template);
    if (open_with("template", "all", &self, &err) != TT_OK)
        fail_msg("case %zu: %s", number, err.text);
    get_text(self, text);
    same_text(number, c, text);
    close_chat(self);
}

/* Training sees what is served: the table of tests/chat. */
static void test_chat_texts_are_those_of_transformers(void **state)
{
    (void)state;
    stop_at = 0;
    each_case(check_line);
}

/* A number is JSON as it is in the line; tools may be JSON in a text. */
static void test_chat_numbers_keep_their_digits(void **state)
{
    static const char *const tools[] = {
        "[1.0, 12345678901234567890, -98765432109876543210, 1e+16, 0.1, 9223372036854775807]",
        "\"[1.0, 12345678901234567890, -98765432109876543210, 1e+16, 0.1, 9223372036854775807]\""};
    char text[400], line[500];
    void *self;
    tt_error err;
    (void)state;
    put_text("template", "{{ tools | tojson }}");
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\"}],\"tools\":%s}\n",
                 tools[i]);
        put_text("chats.jsonl", line);
        if (open_with("template", "all", &self, &err) != TT_OK)
            fail_msg("%s", err.text);
        get_text(self, text);
        assert_string_equal(text, tools[0]);
        close_chat(self);
    }
    put_text("chats.jsonl", "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\"}],\"x\":"
                            "012345678901234567890}\n");
    assert_int_equal(open_with("template", "all", &self, &err), TT_EINVAL);
}

/* A row of a table has all members of a struct: those without a value are not there. */
static void test_chat_rows_have_no_nulls(void **state)
{
    json_t *v = json_loads(
        "{\"a\":null,\"b\":[{\"c\":null,\"d\":{\"e\":null,\"f\":0}},null],\"g\":\"\"}", 0, NULL);
    (void)state;
    drop_nulls(v);
    char *text = chat_dump(v);
    assert_string_equal(text, "{\"b\":[{\"d\":{\"f\":0}},null],\"g\":\"\"}");
    free(text);
    json_decref(v);
}

/* Conversations in which nothing is to be learned are left out; another weight than 0 and 1 is an error. */
static void test_chat_weights_choose_turns(void **state)
{
    void *self;
    tt_error err;
    (void)state;
    put_text(
        "chats.jsonl",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
        "\"b\",\"weight\":0}]}\n"
        "{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":"
        "\"b\","
        "\"train\":false}]}\n"
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
        "\"b\",\"weight\":1}]}\n");
    if (open_with("chatml", "assistant", &self, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(n_samples(self), 1);
    assert_int_equal(((loader *)self)->dropped, 2);
    close_chat(self);
    put_text("chats.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
                            "\"assistant\",\"content\":\"b\",\"weight\":0.5}]}\n");
    assert_int_equal(open_with("chatml", "assistant", &self, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "chats.jsonl:1: message 1 has the weight 0.5"));
}

/* A list of records is as their lines are. Where pandas wrote NaN there is no value. */
static void test_chat_takes_the_items_of_a_list(void **state)
{
    static const char *const cases[][2] = {
        {"[\n {\"instruction\": \"a\",\n  \"input\": \"\", \"output\": \"b\"},\n {\"prompt\": "
         "\"c\", "
         "\"completion\": \"d\"}\n]\n", "a|b|c|d|"},
        {"[{\"instruction\":\"a\",\"input\":NaN,\"system\":NaN,\"conversations\":NaN,\"score\":-"
         "Infinity,"
         "\"output\":\"b NaN\"}]",      "a|b NaN|"},
    };
    static const char *const faults[][2] = {
        {"[{\"prompt\":\"a\",\"completion\":\"b\"},\n{\"prompt\":\"a\",\"completion\":}]",
         "chats.jsonl:2: row 2: not JSON: "                                                                                 },
        {"{\"instruction\":Infinity,\"output\":\"b\"}",                                    "\"instruction\" is not a string"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":NaN}]}",
         "chats.jsonl:1: messages:1:32: NaN and Infinity are not JSON"                                                      },
        {"{\"messages\":Nan}",                                                             "chats.jsonl:1: not JSON: "      },
    };
    char text[400];
    void *self;
    tt_error err;
    (void)state;
    put_text("template", "{% for m in messages %}{{ m.content }}|{% endfor %}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text("chats.jsonl", cases[i][0]);
        if (open_with("template", "all", &self, &err) != TT_OK)
            fail_msg("%s", err.text);
        get_text(self, text);
        assert_string_equal(text, cases[i][1]);
        close_chat(self);
    }
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        put_text("chats.jsonl", faults[i][0]);
        assert_int_not_equal(open_with("template", "all", &self, &err), TT_OK);
        if (!strstr(err.text, faults[i][1]))
            fail_msg("\"%s\", not \"%s\"", err.text, faults[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_errors_name_the_line),
        cmocka_unit_test(test_chat_texts_are_those_of_transformers),
        cmocka_unit_test(test_chat_numbers_keep_their_digits),
        cmocka_unit_test(test_chat_rows_have_no_nulls),
        cmocka_unit_test(test_chat_weights_choose_turns),
        cmocka_unit_test(test_chat_takes_the_items_of_a_list),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
