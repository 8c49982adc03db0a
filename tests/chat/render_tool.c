/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/chat.h>

/* render_tool FILE: FILE is a JSON list of {"template", "messages", "variables", "bos", "eos", "prompt",
 * "loss_on"}; prints a JSON list of {"text", "learned": [[begin, end], …]} or {"error"}, with bytes counted. */

static json_t *spans_of(const uint8_t *origins, size_t n)
{
    json_t *spans = json_array();
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (end < n && (origins[end] == TT_CHAT_GENERATED) == (origins[i] == TT_CHAT_GENERATED))
            end++;
        if (origins[i] == TT_CHAT_GENERATED)
            json_array_append_new(spans, json_pack("[I,I]", (json_int_t)i, (json_int_t)end));
    }
    return spans;
}

static json_t *render(const json_t *c)
{
    const char *text = json_string_value(json_object_get(c, "template"));
    const char *bos = json_string_value(json_object_get(c, "bos")),
               *eos = json_string_value(json_object_get(c, "eos"));
    char *messages = json_dumps(json_object_get(c, "messages"), JSON_ENCODE_ANY),
         *variables = json_object_get(c, "variables")
                          ? json_dumps(json_object_get(c, "variables"), 0)
                          : NULL,
         *out = NULL;
    uint8_t *origins = NULL;
    size_t n = 0;
    tt_chat_template *t = NULL;
    tt_error err = {0};
    json_t *result;
    tt_status s = tt_chat_template_text("template", text, strlen(text), bos, eos, &t, &err);
    const tt_conversation conversation = {
        .struct_size = sizeof conversation,
        .messages = messages,
        .n_messages = strlen(messages),
        .variables = variables,
        .add_generation_prompt = json_is_true(json_object_get(c, "prompt")),
        .loss_on = (tt_chat_loss)json_integer_value(json_object_get(c, "loss_on")),
        .now = 1750000000};
    if (s == TT_OK)
        s = tt_chat_render(t, &conversation, &out, &origins, &n, &err);
    if (s == TT_OK)
        result =
            json_pack("{s:o,s:o}", "text", json_stringn(out, n), "learned", spans_of(origins, n));
    else
        result = json_pack("{s:s}", "error", err.text);
    tt_chat_template_close(t);
    free(messages);
    free(variables);
    free(out);
    free(origins);
    return result;
}

int main(int argc, char **argv)
{
    json_error_t why;
    json_t *all = argc == 2 ? json_load_file(argv[1], 0, &why) : NULL, *c, *out = json_array();
    size_t i;
    if (!all) {
        fprintf(stderr, "render_tool FILE: %s\n", argc == 2 ? why.text : "a file is wanted");
        return 2;
    }
    json_array_foreach(all, i, c) json_array_append_new(out, render(c));
    json_dumpf(out, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(out);
    json_decref(all);
    return 0;
}
