/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_MESSAGES_TABLE_H
#define TT_TESTS_MESSAGES_TABLE_H
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* tests/golden/chat_messages.json: conversations as JSON, and their text by transformers; training and serving give
 * the same. */

typedef struct table_case {
    const char *template, *messages, *tools,
        *kwargs; /* JSON but the template; tools, kwargs: NULL is none */
    const char *text;
} table_case;

static void each_case(void (*check)(size_t number, const table_case *c))
{
    json_t *all = json_load_file("tests/golden/chat_messages.json", 0, NULL), *c;
    size_t i;
    assert_non_null(all);
    json_array_foreach(all, i, c)
    {
        const table_case one = {json_string_value(json_object_get(c, "template")),
                                json_string_value(json_object_get(c, "messages")),
                                json_string_value(json_object_get(c, "tools")),
                                json_string_value(json_object_get(c, "kwargs")),
                                json_string_value(json_object_get(c, "text"))};
        check(i, &one);
    }
    assert_true(i > 50);
    json_decref(all);
}

static void same_text(size_t number, const table_case *c, const char *got)
{
    if (strcmp(c->text, got) != 0)
        fail_msg("case %zu: %.100s: \"%s\", not \"%s\"", number, c->template, got, c->text);
}

#endif
