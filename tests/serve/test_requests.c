/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/messages_table.h"
#include "plugins/bytes_tokenizer.h"
#include "serve/api_impl.h"

/* A request's messages are what training makes of them: the table of tests/chat. */

static void check_request(size_t number, const table_case *c)
{
    tt_str body = {0};
    tt_ids ids = {0};
    tt_error err = {0};
    tt_chat_template *t = NULL;
    const tt_json *o;
    const tt_map *tools = NULL;
    if (c->tools && !strcmp(c->tools, "[]"))
        return; /* a request without tools */
    tt_arena *a = tt_arena_new();
    tt_str_printf(&body, "{\"messages\":%s,\"tools\":%s,\"chat_template_kwargs\":%s}", c->messages,
                  c->tools ? c->tools : "null", c->kwargs ? c->kwargs : "null");
    assert_int_equal(
        tt_chat_template_text("t", c->template, strlen(c->template), NULL, NULL, &t, &err), TT_OK);
    tt_api api = {
        .o = {.template = t, .vt = &bytes_tokenizer, .context = 1 << 20}
    };
    if (tt_json_parse(a, "body", tt_str_get(&body), body.n, &o, &err) != TT_OK ||
        tt_api_read_messages(&api, a, o, body.n, &ids, &tools, &err) != TT_OK)
        fail_msg("case %zu: %s", number, err.text);
    char *text = tt_arena_alloc(a, ids.n + 1);
    for (size_t i = 0; i < ids.n; i++)
        text[i] = (char)ids.ids[i];
    same_text(number, c, text);
    tt_chat_template_close(t);
    tt_ids_free(&ids);
    tt_str_free(&body);
    tt_arena_free(a);
}

static void test_requests_are_texts_of_transformers(void **state)
{
    (void)state;
    each_case(check_request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_are_texts_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
