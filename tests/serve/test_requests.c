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

/* ---- how often a prompt is made ---- */

static int n_encoded;

static tt_status count_encode(void *self, const char *text, size_t n, tt_ids *out, tt_error *err)
{
    n_encoded++;
    return bytes_tokenizer.encode(self, text, n, out, err);
}

tt_status tt_engine_check(const tt_engine *e, const char *name, const int32_t *prompt, int64_t n,
                          tt_error *err)
{
    (void)e, (void)name, (void)prompt, (void)n, (void)err;
    return TT_OK;
}

/* A body with n texts: how many pieces of text are encoded, and how many texts there are. */
static int encoded(bool chat, const char *prompt, int n, int *n_texts)
{
    tt_tokenizer_vt vt = bytes_tokenizer;
    tt_str body = {0};
    tt_error err = {0};
    tt_chat_template *t = NULL;
    const tt_json *o = NULL;
    static const char template[] =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    vt.encode = count_encode;
    tt_arena *a = tt_arena_new();
    assert_int_equal(tt_chat_template_text("t", template, strlen(template), NULL, NULL, &t, &err),
                     TT_OK);
    tt_api api = {
        .o = {.template = t, .vt = &vt, .context = 1 << 20}
    };
    tt_api_call *c = tt_arena_alloc(a, sizeof *c);
    *c = (tt_api_call){.a = &api, .arena = tt_arena_new(), .chat = chat};
    n_encoded = 0;
    tt_str_printf(&body, "{%s,\"n\":%d}", prompt, n);
    if (tt_json_parse(a, "body", tt_str_get(&body), body.n, &o, &err) != TT_OK ||
        tt_api_read(o, body.n, c, &err) != TT_OK)
        fail_msg("%s: %s", tt_str_get(&body), err.text);
    *n_texts = c->n;
    for (int i = 0; i < c->n; i++) {
        assert_true(c->texts[i].r.n_prompt > 0);
        tt_ids_free(&c->texts[i].prompt);
    }
    tt_chat_template_close(t);
    tt_str_free(&body);
    tt_arena_free(c->arena);
    tt_arena_free(a);
    return n_encoded;
}

static void test_a_prompt_is_made_once_for_all_its_texts(void **state)
{
    static const struct {
        bool chat;
        const char *prompt;
        int n_prompts;
    } rows[] = {
        {true,  "\"messages\":[{\"role\":\"user\",\"content\":\"line 3\"}]", 1},
        {false, "\"prompt\":\"line 3\"",                                     1},
        {false, "\"prompt\":[\"line 3\",\"line 4\",\"line 5\"]",             3},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        int n_texts;
        const int once = encoded(rows[i].chat, rows[i].prompt, 1, &n_texts);
        assert_int_equal(once, rows[i].n_prompts);
        assert_int_equal(n_texts, rows[i].n_prompts);
        assert_int_equal(encoded(rows[i].chat, rows[i].prompt, 128, &n_texts), once);
        assert_int_equal(n_texts, 128 * rows[i].n_prompts);
    }
}

/* ---- the salt of a prompt's cache ---- */

static void test_a_salt_is_a_text_of_1_to_256_bytes(void **state)
{
    static const struct {
        const char *salt; /* JSON; NULL: a text of n bytes */
        int n;
        bool salted;      /* --salted-prefix-cache */
        const char *want; /* the request's salt; NULL: none */
        bool refused;
    } rows[] = {
        {"null",    0,   false, NULL,       false},
        {"null",    0,   true,  "alone id", false},
        {"\"a\"",   0,   false, "salt a",   false},
        {"\"a\"",   0,   true,  "salt a",   false},
        {NULL,      255, false, "salt xx",  false},
        {NULL,      256, false, "salt xx",  false},
        {NULL,      257, false, NULL,       true },
        {"\"\"",    0,   false, NULL,       true },
        {"1",       0,   false, NULL,       true },
        {"[\"a\"]", 0,   false, NULL,       true },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        tt_error err = {0};
        const tt_json *o = NULL;
        tt_arena *a = tt_arena_new();
        char text[300];
        memset(text, 'x', sizeof text);
        text[rows[i].n] = 0;
        const char *salt = rows[i].salt ? rows[i].salt : tt_arena_printf(a, "\"%s\"", text);
        const char *body = tt_arena_printf(a, "{\"prompt\":\"p\",\"cache_salt\":%s}", salt);
        tt_api api = {
            .o = {.vt = &bytes_tokenizer, .context = 1 << 20, .salted = rows[i].salted}
        };
        tt_api_call *c = tt_arena_alloc(a, sizeof *c);
        *c = (tt_api_call){.a = &api, .arena = a, .id = "id"};
        assert_int_equal(tt_json_parse(a, "body", body, strlen(body), &o, &err), TT_OK);
        const tt_status s = tt_api_read(o, strlen(body), c, &err);
        if (s != (rows[i].refused ? TT_EINVAL : TT_OK))
            fail_msg("%s: %s", body, err.text);
        if (rows[i].refused)
            assert_string_equal(err.text, "cache_salt must be a text of 1 to 256 bytes");
        const char *got = c->n ? c->texts[0].r.salt : NULL, *want = rows[i].want;
        if (want && got ? strncmp(got, want, strlen(want)) != 0 : want != got)
            fail_msg("%s: salt \"%s\"", body, got ? got : "none");
        if (rows[i].n && got)
            assert_int_equal(strlen(got), strlen("salt ") + (size_t)rows[i].n);
        for (int k = 0; k < c->n; k++)
            tt_ids_free(&c->texts[k].prompt);
        tt_arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_are_texts_of_transformers),
        cmocka_unit_test(test_a_prompt_is_made_once_for_all_its_texts),
        cmocka_unit_test(test_a_salt_is_a_text_of_1_to_256_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
