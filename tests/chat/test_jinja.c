/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/chat.h>

#include "tier.h"

#include <cmocka.h>

/* Templates beside jinja2 with transformers' settings: tests/golden/chat.json, which chat_golden.py writes. Then what
 * a hostile template or conversation gets. */

typedef struct rendered {
    char *text;
    uint8_t *origins;
    size_t n;
    tt_error err;
} rendered;

static tt_status render(const char *template, const char *messages, const char *variables,
                        int prompt, tt_chat_loss loss_on, rendered *out)
{
    tt_chat_template *t = NULL;
    const tt_conversation c = {.struct_size = sizeof c,
                               .messages = messages,
                               .n_messages = strlen(messages),
                               .variables = variables,
                               .add_generation_prompt = prompt,
                               .loss_on = loss_on,
                               .now = 1750000000};
    *out = (rendered){0};
    tt_status s =
        tt_chat_template_text("template", template, strlen(template), "<s>", "</s>", &t, &out->err);
    if (s == TT_OK)
        s = tt_chat_render(t, &c, &out->text, &out->origins, &out->n, &out->err);
    tt_chat_template_close(t);
    return s;
}

static void release(rendered *r)
{
    free(r->text);
    free(r->origins);
}

/* The learned bytes between marks: "user [answer] more" */
static char *marked(const rendered *r)
{
    char *out = malloc(3 * r->n + 1);
    size_t n = 0;
    bool in = false;
    for (size_t i = 0; i <= r->n; i++) {
        const bool learned = i < r->n && r->origins[i] == TT_CHAT_GENERATED;
        if (learned != in)
            out[n++] = learned ? '<' : '>';
        in = learned;
        if (i < r->n)
            out[n++] = r->text[i];
    }
    out[n] = '\0';
    return out;
}

static void check_case(size_t i, const json_t *c)
{
    const json_t *want = json_object_get(c, "want"), *ranges = json_object_get(want, "learned"),
                 *range;
    const char *template = json_string_value(json_object_get(c, "template"));
    char *messages = json_dumps(json_object_get(c, "messages"), 0), *variables = NULL;
    size_t k;
    rendered r;
    if (json_object_get(c, "variables"))
        variables = json_dumps(json_object_get(c, "variables"), 0);
    const tt_status s = render(template, messages, variables,
                               json_is_true(json_object_get(c, "prompt")), TT_CHAT_ASSISTANT, &r);
    if (json_object_get(want, "error")) {
        if (s == TT_OK)
            fail_msg("case %zu: %.80s: jinja2 fails, and this gives \"%s\"", i, template, r.text);
        assert_true(strncmp(r.err.text, "template:", 9) == 0); /* with its line */
    } else {
        if (s != TT_OK)
            fail_msg("case %zu: %.80s: %s", i, template, r.err.text);
        if (strcmp(r.text, json_string_value(json_object_get(want, "text"))) != 0)
            fail_msg("case %zu: %.80s: \"%s\", not \"%s\"", i, template, r.text,
                     json_string_value(json_object_get(want, "text")));
        if (json_array_size(ranges)) {
            size_t learned = 0, wanted = 0;
            for (size_t b = 0; b < r.n; b++)
                learned += r.origins[b] == TT_CHAT_GENERATED;
            json_array_foreach(ranges, k, range)
            {
                const size_t begin = (size_t)json_integer_value(json_array_get(range, 0)),
                             end = (size_t)json_integer_value(json_array_get(range, 1));
                wanted += end - begin;
                for (size_t b = begin; b < end; b++)
                    assert_int_equal(r.origins[b], TT_CHAT_GENERATED);
            }
            assert_int_equal(learned, wanted);
        }
    }
    free(messages);
    free(variables);
    release(&r);
}

static void test_texts_and_masks_are_those_of_jinja2(void **state)
{
    json_t *all = json_load_file("tests/golden/chat.json", 0, NULL), *c;
    size_t i;
    (void)state;
    assert_non_null(all);
    json_array_foreach(all, i, c) check_case(i, c);
    assert_true(i > 80);
    json_decref(all);
}

static const char plain[] = "{% for m in messages %}[{{ m.role }}] {{ m.content }};{% endfor %}{% "
                            "if add_generation_prompt %}[assistant] {% endif %}";
static const char chat[] =
    "[{\"role\":\"user\",\"content\":\"a [assistant] "
    "b\"},{\"role\":\"assistant\",\"content\":\"yes\"},"
    "{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"assistant\",\"content\":\"assistant\"}]";

static void test_turns_are_found_without_generation_blocks(void **state)
{
    rendered r;
    (void)state;
    assert_int_equal(render(plain, chat, NULL, 0, TT_CHAT_ASSISTANT, &r), TT_OK);
    char *m = marked(&r);
    assert_string_equal(
        m, "[user] a [assistant] b;[assistant] <yes>;[user] c;[assistant] <assistant>;");
    free(m);
    release(&r);
    assert_int_equal(render(plain, chat, NULL, 0, TT_CHAT_LAST, &r), TT_OK);
    m = marked(&r);
    assert_string_equal(m,
                        "[user] a [assistant] b;[assistant] yes;[user] c;[assistant] <assistant>;");
    free(m);
    release(&r);
}

/* Of an answer without content nothing of the header is learned, and the prompt is found where an assistant begins. */
static void test_turns_without_content_or_before_a_user(void **state)
{
    rendered r;
    (void)state;
    assert_int_equal(render(plain,
                            "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
                            "\"content\":\"\"},{\"role\":\"assistant\",\"content\":\"b\"}]",
                            NULL, 0, TT_CHAT_ASSISTANT, &r),
                     TT_OK);
    char *m = marked(&r);
    assert_string_equal(m, "[user] a;[assistant] ;[assistant] <b>;");
    free(m);
    release(&r);
    assert_int_equal(render(plain,
                            "[{\"role\":\"assistant\",\"content\":\"hello\"},{\"role\":\"user\","
                            "\"content\":\"a\"}]",
                            NULL, 0, TT_CHAT_ASSISTANT, &r),
                     TT_OK);
    m = marked(&r);
    assert_string_equal(m, "[assistant] <hello>;[user] a;");
    free(m);
    release(&r);
}

static void check_hostile(const char *const *templates, size_t n)
{
    rendered r;
    for (size_t i = 0; i < n; i++) {
        if (render(templates[i], chat, NULL, 0, TT_CHAT_ALL, &r) == TT_OK)
            fail_msg("%.200s: no error", templates[i]);
        release(&r);
    }
}

static void test_hostile_templates_are_errors(void **state)
{
    static const char *const hostile[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{{ a "
        "}}{% endfor %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for a in range(60) %}{% set ns.s = ns.s "
        "~ ns.s %}{% endfor %}{{ ns.s }}",
        "{{ 'x' * 9223372036854775807 }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ messages.foo.bar }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ 'a'.replace('', 'b') }}{{ [].append(1) }}",
        "{{ '{:>9999999999}'.format(1) }}",
        "{{ messages|tojson(indent=2000000000) }}",
        "{{ messages|tojson(indent=20000000000000000000) }}",
    };
    char deep[4096];
    rendered r;
    (void)state;
    check_hostile(hostile, sizeof hostile / sizeof hostile[0]);
    memset(deep, '(', sizeof deep);
    memcpy(deep, "{{ ", 3);
    deep[sizeof deep - 1] = '\0';
    assert_int_not_equal(render(deep, chat, NULL, 0, TT_CHAT_ASSISTANT, &r), TT_OK);
    release(&r);
}

#define DOUBLED_TWICE "{% set a=[a,a] %}{% set b=[b,b] %}{% set a=[a,a] %}{% set b=[b,b] %}"
#define DOUBLED DOUBLED_TWICE DOUBLED_TWICE DOUBLED_TWICE DOUBLED_TWICE

/* Items, bytes and comparisons are work, too, which no node of the tree counts. */
static void test_work_within_a_node_is_bounded(void **state)
{
    static const char *const hostile[] = {
        "{% for c in 'a' * 16000000 %}{% endfor %}",
        "{% set a=[1] %}{% set b=[1] %}" DOUBLED DOUBLED DOUBLED DOUBLED "{{ a == b }}",
        "{% for i in range(99999) %}{% set x = range(99999) | unique %}{% endfor %}",
        "{% set t = 'a' * 999999 %}{% for i in range(99999) %}{{ t | length }}{% endfor %}",
        /* the long tier */
        "{% set t = 'a' * 999999 %}{% for i in range(99999) %}{{ t == t ~ '' }}{% endfor %}",
        "{% set t = 'a' * 999999 %}{% for i in range(99999) %}{{ 'ab' in t }}{% endfor %}",
        "{% set t = 'a' * 8000000 %}{{ t.rfind(t[:4000000] ~ 'b') }}",
        "{% set t = 'a' * 999999 %}{% for i in range(99999) %}{{ t.count('ab') }}{% endfor %}",
        "{% for i in range(99999) %}{% set x = range(10000) | sort(reverse=true) %}{% endfor %}",
    };
    (void)state;
    check_hostile(hostile, is_long() ? sizeof hostile / sizeof hostile[0] : 4);
}

/* A chain of operators is a tree as deep as it is long. What is long enough for templates is evaluated, and what would
 * overflow the stack is an error; so is a chain within each of many macros. */
static void test_long_chains_are_errors(void **state)
{
    static const struct {
        const char *begin, *link, *end;
    } chains[] = {
        {"{{ 1",                     "+1",           " }}"                        },
        {"{{ 1",                     "~1",           " }}"                        },
        {"{{ 1",                     " and 1",       " }}"                        },
        {"{{ 1",                     " or 1",        " }}"                        },
        {"{{ 1",                     "<1",           " }}"                        },
        {"{{ 1",                     "**1",          " }}"                        },
        {"{{ 1",                     "|trim",        " }}"                        },
        {"{{ 1",                     " is defined",  " }}"                        },
        {"{{ 1",                     " if 1",        " }}"                        },
        {"{{ 1",                     " if 0 else 1", " }}"                        },
        {"{{ ",                      "not ",         "1 }}"                       },
        {"{{ ",                      "-",            "1 }}"                       },
        {"{{ x",                     ".x",           " }}"                        },
        {"{{ x",                     "[0]",          " }}"                        },
        {"{% filter trim",           "|trim",        " %}{% endfilter %}"         },
        {"{% set ",                  "(",            "a = 1 %}"                   },
        {"",                         "{% if 1 %}",   ""                           },
        {"{% macro m(a) %}{{ a(a) ", " ~ 1",         " }}{% endmacro %}{{ m(m) }}"},
    };
    char *long_one = malloc(2000000);
    rendered r;
    (void)state;
    assert_non_null(long_one);
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
        size_t n = (size_t)sprintf(long_one, "%s", chains[i].begin);
        for (int k = 0; k < 70000; k++)
            n += (size_t)sprintf(long_one + n, "%s", chains[i].link);
        sprintf(long_one + n, "%s", chains[i].end);
        assert_int_not_equal(render(long_one, chat, NULL, 0, TT_CHAT_ALL, &r), TT_OK);
        release(&r);
    }
    size_t n = (size_t)sprintf(long_one, "{%% if 0 %%}"); /* not a tree: as long as one likes */
    for (int k = 0; k < 20000; k++)
        n += (size_t)sprintf(long_one + n, "{%% elif 0 %%}");
    sprintf(long_one + n, "{%% else %%}x{%% endif %%}");
    assert_int_equal(render(long_one, chat, NULL, 0, TT_CHAT_ALL, &r), TT_OK);
    assert_string_equal(r.text, "x");
    release(&r);
    n = (size_t)sprintf(long_one, "{{ 1");
    for (int k = 0; k < 900; k++)
        n += (size_t)sprintf(long_one + n, "+1");
    sprintf(long_one + n, " }}");
    assert_int_equal(render(long_one, chat, NULL, 0, TT_CHAT_ALL, &r), TT_OK);
    assert_string_equal(r.text, "901");
    release(&r);
    free(long_one);
}

/* Lines are counted within comments, texts, tags and the whitespace that tags take away. */
static void test_errors_name_the_line(void **state)
{
    static const struct {
        const char *template, *says;
    } cases[] = {
        {"a\nb {# c\nd #} {{ 1 + }}",           "template:3: "},
        {"{# a\n\n#}\n{{ 1 + }}",               "template:4: "},
        {"{% if true -%}\n\n {{ 1 + }}",        "template:3: "},
        {"{% if true %}\n{{ 1 + }}{% endif %}", "template:2: "},
        {"{{ 1 +\n 2 +\n }}",                   "template:3: "},
        {"a\n{# b",                             "template:2: "},
    };
    rendered r;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_not_equal(render(cases[i].template, chat, NULL, 0, TT_CHAT_ALL, &r), TT_OK);
        if (!strstr(r.err.text, cases[i].says))
            fail_msg("case %zu: %s", i, r.err.text);
        release(&r);
    }
}

static void test_bad_conversations_are_errors(void **state)
{
    static const char *const bad[] = {
        "[]", "{}", "[1]", "[{\"content\":\"x\"}]", "[{\"role\":3}]", "nonsense"};
    rendered r;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_not_equal(render(plain, bad[i], NULL, 0, TT_CHAT_ASSISTANT, &r), TT_OK);
        assert_true(strstr(r.err.text, "messages") != NULL);
        release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_and_masks_are_those_of_jinja2),
        cmocka_unit_test(test_turns_are_found_without_generation_blocks),
        cmocka_unit_test(test_turns_without_content_or_before_a_user),
        cmocka_unit_test(test_hostile_templates_are_errors),
        cmocka_unit_test(test_work_within_a_node_is_bounded),
        cmocka_unit_test(test_long_chains_are_errors),
        cmocka_unit_test(test_errors_name_the_line),
        cmocka_unit_test(test_bad_conversations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
