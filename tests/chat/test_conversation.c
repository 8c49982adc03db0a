/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "chat/messages_table.h"
#include "folder_test.h"
#include "plugins/bytes_tokenizer.h"
#include <ttrun/chat.h>

/* What templates get of a conversation, and what is learned of it: which turns, from where and up to which token. */

static char root[TEST_FOLDER];

static int set_up(void **state)
{
    (void)state;
    return test_folder("conversation", root) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return test_folder_remove(root) ? 0 : -1;
}

static void check_text(size_t number, const table_case *c)
{
    char variables[4096] = "{}", *text = NULL;
    uint8_t *origins = NULL;
    size_t n = 0;
    tt_error err = {0};
    tt_chat_template *t = NULL;
    if (c->tools || c->kwargs) /* {"tools": …, those of kwargs} */
        snprintf(variables, sizeof variables, "{\"tools\":%s%s%s", c->tools ? c->tools : "null",
                 c->kwargs ? "," : "}", c->kwargs ? c->kwargs + 1 : "");
    const tt_conversation x = {.struct_size = sizeof x,
                               .messages = c->messages,
                               .n_messages = strlen(c->messages),
                               .variables = variables,
                               .now = 1750000000};
    if (tt_chat_template_text("t", c->template, strlen(c->template), NULL, NULL, &t, &err) !=
            TT_OK ||
        tt_chat_render(t, &x, &text, &origins, &n, &err) != TT_OK)
        fail_msg("case %zu: %s", number, err.text);
    same_text(number, c, text);
    free(text);
    free(origins);
    tt_chat_template_close(t);
}

static void test_texts_are_those_of_transformers(void **state)
{
    (void)state;
    each_case(check_text);
}

/* ---- what is learned ---- */

/* Bytes, and <…> as special tokens from 300 on, by their place in the list. */
static const char *const specials[] = {"<|user|>", "<|assistant|>", "<|end|>", "<think>",
                                       "<|start|>"};
static bool has_eos;

static void info(void *self, tt_tokenizer_info *out)
{
    bytes_info(self, out);
    out->eos = has_eos ? out->eos : -1;
}

static int special(void *self, size_t i, tt_special *out)
{
    (void)self;
    if (i >= sizeof specials / sizeof *specials)
        return 0;
    out->text = (tt_text){specials[i], strlen(specials[i])};
    out->id = 300 + (int32_t)i;
    return 1;
}

static const tt_tokenizer_vt tokenizer = {.struct_size = sizeof tokenizer,
                                          .info = info,
                                          .encode = bytes_encode,
                                          .decode = bytes_decode,
                                          .special = special};

/* The learned tokens: bytes, special ones by their texts, and $ for the tokenizer's end token; a bar between turns. */
static tt_status learned(const char *template, const char *messages, tt_chat_loss loss_on,
                         char *out, tt_error *err)
{
    tt_chat_template *t = NULL;
    tt_chat_tokens k = {0};
    const tt_conversation x = {.struct_size = sizeof x,
                               .messages = messages,
                               .n_messages = strlen(messages),
                               .loss_on = loss_on,
                               .now = 1750000000};
    *out = '\0';
    assert_int_equal(tt_chat_template_text("t", template, strlen(template), NULL, NULL, &t, err),
                     TT_OK);
    const tt_status s = tt_chat_encode(t, &x, &tokenizer, NULL, &k, err);
    for (size_t i = 0; i < k.n; i++) {
        if (k.origins[i] != TT_CHAT_GENERATED)
            continue;
        if (*out && k.origins[i - 1] != TT_CHAT_GENERATED)
            strcat(out, " | ");
        if (k.ids[i] < 256)
            sprintf(out + strlen(out), "%c", (char)k.ids[i]);
        else
            strcat(out, k.ids[i] >= 300 ? specials[k.ids[i] - 300] : "$");
    }
    tt_chat_tokens_free(&k);
    tt_chat_template_close(t);
    return s;
}

#define TURN "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
#define BLOCK                                                                                      \
    "{% for m in messages %}<|start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation "   \
    "%}{{ m.content }}<|end|>{% endgeneration %}{% else %}{{ m.content }}<|end|>{% endif %}{% "    \
    "endfor %}"
/* GLM-4.5's form: only the next role's marker ends a turn. */
#define OPEN                                                                                       \
    "{% for m in messages %}{% if m.role == 'user' %}<|user|>\n{{ m.content }}{% else "            \
    "%}<|assistant|>\n{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt "          \
    "%}<|assistant|>\n{% endif %}"
#define THINK                                                                                      \
    "{% for m in messages %}<|start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n{{ "       \
    "m.reasoning_content }}\n</think>\n{% endif %}{{ m.content }}<|end|>\n{% endfor %}{% if "      \
    "add_generation_prompt %}<|start|>assistant\n"
#define PARTS                                                                                      \
    "{% for message in messages %}{% if message['role'] == 'user' %}<|user|>{% else "              \
    "%}<|assistant|>{% endif %}{% for part in message['content'] %}{{ part['text'] }}{% endfor "   \
    "%}<|end|>{% endfor %}"
#define PART(role, text)                                                                           \
    "{\"role\":\"" role "\",\"content\":[{\"type\":\"text\",\"text\":\"" text "\"}]}"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ANSWER(text, more) "{\"role\":\"assistant\",\"content\":\"" text "\"" more "}"

static const struct {
    const char *template, *messages;
    tt_chat_loss loss_on;
    const char *learned;
} turns[] = {
    {TURN,                                 "[" USER("a") "," ANSWER("b",                            "") "," USER("c") "," ANSWER("d","") "]",
     TT_CHAT_ASSISTANT,"assistant\nb<|end|> | assistant\nd<|end|>"},
 /* messages that say that they are not learned */
    {BLOCK,                                    "[" USER("a") "," ANSWER("b",                                                                                       ",\"weight\":0") "," USER("c") "," ANSWER("d","") "]",
     TT_CHAT_ASSISTANT,"d<|end|>"},
    {BLOCK,                          "[" USER("a") "," ANSWER("b",                                                                                 "") "," USER("c") "," ANSWER("d",",\"train\":false") "]",
     TT_CHAT_ASSISTANT,"b<|end|>"},
    {OPEN,                    "[" USER("a") "," ANSWER("b",                                                                 ",\"weight\":0.0") "," USER("c") "," ANSWER("d","") "]",
     TT_CHAT_ASSISTANT,"d$"},
    {OPEN,
     "[" USER("a") "," ANSWER("b",                                                                             ",\"weight\":1") "," USER("c") "," ANSWER(
         "d",",\"train\":false") "]",
     TT_CHAT_ASSISTANT,"b<|user|>"},
    {OPEN,                         "[" USER("a") "," ANSWER("b",                                                         ",\"train\":true,\"weight\":null") "]",TT_CHAT_LAST,
     "b$"},
    {OPEN,"[" USER("a") "," ANSWER("b",",\"train\":false") "]",TT_CHAT_ALL,
     "<|user|>\na<|assistant|>\n"},
 /* turns that no token of the template's closes */
    {OPEN,                         "[" USER("a") "," ANSWER("b",                                                                                                                 "") "," USER("c") "," ANSWER("d",                                                                                                  "") "]",
     TT_CHAT_ASSISTANT,"b<|user|> | d$"},
    {OPEN,"[" USER("a") "," ANSWER("b","") "," USER("c") "," ANSWER("d","") "]",TT_CHAT_LAST,
     "d$"},
    {OPEN,                                 "[" USER("a") "," ANSWER("b",                                                                             "") "," USER("c") "]", TT_CHAT_ASSISTANT,                                                                                                                                                                                                                                                                                                                                                                         "b<|user|>"                                                                                                                                                                                                                                                                                                                                                                                                                                  },
    {OPEN "\n",                                    "[" USER("a") "," ANSWER("b",                                                                                        "") "]",TT_CHAT_ASSISTANT,"b$"},
    {OPEN "{% if not add_generation_prompt %}.{% endif %}",                                    "[" USER("a") "," ANSWER("b",                                                                                   "") "]",
     TT_CHAT_ASSISTANT,"\nb.$"},
    {TURN,                                    "[" USER("a") "," ANSWER("<|end|>",                                       "") "]",TT_CHAT_LAST,"assistant\n<|end|><|end|>"},
 /* contents of parts, of which one is empty */
    {PARTS,
     "[" PART("user",                                                                                        "a") "," PART("assistant","") "," PART("user","c") "," PART("assistant",
     "d") "]",
     TT_CHAT_ASSISTANT, "<|end|> | d<|end|>"},
 /* a generation prompt with tags that a turn need not have */
    {THINK "<think>\n{% endif %}",                                    "[" USER("a") "," ANSWER("b",                                                                                       "") "]",TT_CHAT_ASSISTANT,
     "b<|end|>"},
    {THINK "<think>\n{% endif %}",
     "[" USER("a") "," ANSWER("b",                                                                             ",\"reasoning_content\":\"r\"") "]",TT_CHAT_ASSISTANT,
     "r\n</think>\nb<|end|>"},
    {THINK "<think>\n\n</think>\n\n{% endif %}",                             "[" USER("a") "," ANSWER("b","") "]",
     TT_CHAT_ASSISTANT,"b<|end|>"},
    {THINK "<think>\n{% endif %}", "[" USER("a") "," ANSWER("","") "]",TT_CHAT_ASSISTANT,
     "<|end|>"  },
    {THINK "{% endif %}",                             "[" USER("a") "," ANSWER("b",                                                                             ",\"reasoning\":\"r\"") "]",
     TT_CHAT_ASSISTANT,"<think>\nr\n</think>\nb<|end|>"},
};

/* Mistral's form: nothing of an assistant's turn is printed but its content. */
#define BARE                                                                                       \
    "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}<|assistant|>{% else " \
    "%} {{ m.content | trim }}<|end|>{% endif %}{% endfor %}"
#define SILENT                                                                                     \
    "{% for m in messages %}{% if m.content %}<|start|>{{ m.role }} {{ m.content }}<|end|>{% "     \
    "endif %}{% endfor %}"

static const struct {
    const char *template, *answers[2], *learned; /* user a, an answer, user c, an answer */
} empty_turns[] = {
    {BARE,                                                        {"b", "d"}, " b<|end|> |  d<|end|>"},
    {BARE,                                                        {"", "d"},  " <|end|> |  d<|end|>" },
    {BARE,                                                        {"b", ""},  " b<|end|> |  <|end|>" },
    {BARE,                                                        {"", " "},  " <|end|> |  <|end|>"  },
    {OPEN,                                                        {"", "d"},  "<|user|> | d$"        },
    {OPEN,                                                        {"b", ""},  "b<|user|> | $"        },
    {OPEN,                                                        {"", ""},   "<|user|> | $"         },
    {SILENT,                                                      {"", "d"},  "assistant d<|end|>"   },
    {"{% for m in messages %}{{ m.content or '-' }}{% endfor %}", {"", "d"},  "d$"                   },
};

/* A turn without text ends, too: the model learns to say nothing. A template that leaves it out has none. */
static void test_an_empty_turn_is_learned(void **state)
{
    char got[256], messages[256];
    tt_error err = {0};
    (void)state;
    has_eos = true;
    for (size_t i = 0; i < sizeof empty_turns / sizeof *empty_turns; i++) {
        const char *const *answer = empty_turns[i].answers;
        snprintf(messages, sizeof messages,
                 "[" USER("a") "," ANSWER("%s", "") "," USER("c") "," ANSWER("%s", "") "]",
                 answer[0], answer[1]);
        if (learned(empty_turns[i].template, messages, TT_CHAT_ASSISTANT, got, &err) != TT_OK)
            fail_msg("case %zu: %s", i, err.text);
        if (strcmp(got, empty_turns[i].learned) != 0)
            fail_msg("case %zu: \"%s\", not \"%s\"", i, got, empty_turns[i].learned);
    }
}

static void test_turns_are_learned_up_to_a_token(void **state)
{
    char got[256];
    tt_error err = {0};
    (void)state;
    has_eos = true;
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
        if (learned(turns[i].template, turns[i].messages, turns[i].loss_on, got, &err) != TT_OK)
            fail_msg("case %zu: %s", i, err.text);
        if (strcmp(got, turns[i].learned) != 0)
            fail_msg("case %zu: %s: \"%s\", not \"%s\"", i, turns[i].messages, got,
                     turns[i].learned);
    }
}

static void test_a_turn_that_nothing_ends_is_an_error(void **state)
{
    char got[256];
    tt_error err = {0};
    (void)state;
    has_eos = false;
    assert_int_equal(learned(OPEN, "[" USER("a") "," ANSWER("b", "") "]", TT_CHAT_LAST, got, &err),
                     TT_EINVAL);
    assert_non_null(strstr(err.text, "would not learn to stop"));
    assert_int_equal(learned(OPEN, "[" USER("a") "," ANSWER("b", "") "," USER("c") "]",
                             TT_CHAT_ASSISTANT, got, &err),
                     TT_OK);
}

/* ---- templates by name, parts without text ---- */

static void put_file(const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_tool_use_is_for_conversations_with_tools(void **state)
{
    static const struct {
        const char *variables, *text;
    } cases[] = {
        {NULL,                             "plain"},
        {"{\"tools\":null}",               "plain"},
        {"{\"tools\":[{\"name\":\"f\"}]}", "tools"},
        {"{\"tools\":[]}",                 "tools"},
    };
    tt_error err = {0};
    (void)state;
    put_file("tokenizer_config.json",
             "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"tools\"},"
             "{\"name\":\"default\",\"template\":\"plain\"}]}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tt_chat_template *t = NULL;
        char *text = NULL;
        uint8_t *origins = NULL;
        size_t n = 0;
        const tt_conversation x = {.struct_size = sizeof x,
                                   .messages = "[" USER("a") "]",
                                   .n_messages = sizeof "[" USER("a") "]" - 1,
                                   .variables = cases[i].variables};
        assert_int_equal(tt_chat_template_open(root, &t, &err), TT_OK);
        assert_int_equal(tt_chat_render(t, &x, &text, &origins, &n, &err), TT_OK);
        assert_string_equal(text, cases[i].text);
        free(text);
        free(origins);
        tt_chat_template_close(t);
    }
}

static void test_parts_without_text_are_counted_or_refused(void **state)
{
    static const char messages[] =
        "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}},"
        "{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image\"}]}]";
    int64_t textless = 5;
    char *text = NULL;
    uint8_t *origins = NULL;
    size_t n = 0;
    tt_error err = {0};
    tt_chat_template *t = NULL;
    tt_conversation x = {.struct_size = sizeof x,
                         .messages = messages,
                         .n_messages = sizeof messages - 1,
                         .textless = &textless};
    (void)state;
    assert_int_equal(tt_chat_template_text("t", TURN, sizeof TURN - 1, NULL, NULL, &t, &err),
                     TT_OK);
    assert_int_equal(tt_chat_render(t, &x, &text, &origins, &n, &err), TT_OK);
    assert_string_equal(text, "<|start|>user\na<|end|>\n");
    assert_int_equal(textless, 7);
    free(text);
    free(origins);
    x.textless = NULL;
    assert_int_equal(tt_chat_render(t, &x, &text, &origins, &n, &err), TT_EINVAL);
    assert_string_equal(err.text, "messages[0]: part 0 of the content must be text");
    tt_chat_template_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_are_those_of_transformers),
        cmocka_unit_test(test_an_empty_turn_is_learned),
        cmocka_unit_test(test_turns_are_learned_up_to_a_token),
        cmocka_unit_test(test_a_turn_that_nothing_ends_is_an_error),
        cmocka_unit_test(test_tool_use_is_for_conversations_with_tools),
        cmocka_unit_test(test_parts_without_text_are_counted_or_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
