/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/chat.h>

/* A chat template, and the messages that it renders: the bytes before the first NUL, or all, are the template; those
 * behind it are the JSON of the messages. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char own[] =
        "[{\"role\":\"user\",\"content\":\"a\\u00e4 "
        "<|im_end|>\"},{\"role\":\"assistant\",\"content\":\"b\","
        "\"tool_calls\":[{\"name\":\"f\",\"arguments\":{\"x\":1.5,\"y\":null}}]}]";
    const uint8_t *end = memchr(data, 0, n);
    const size_t k = end ? (size_t)(end - data) : n;
    tt_chat_template *t = NULL;
    tt_error err = {0};
    char *text = NULL;
    uint8_t *origins = NULL;
    size_t bytes = 0;
    if (n > 65536 ||
        tt_chat_template_text("fuzz", (const char *)data, k, "<s>", "</s>", &t, &err) != TT_OK)
        return 0;
    const tt_conversation c = {.struct_size = sizeof c,
                               .messages = end && n > k + 1 ? (const char *)data + k + 1 : own,
                               .n_messages = end && n > k + 1 ? n - k - 1 : sizeof own - 1,
                               .variables = "{\"tools\":[{\"name\":\"f\"}]}",
                               .now = 1750000000};
    if (tt_chat_render(t, &c, &text, &origins, &bytes, &err) == TT_OK && bytes != strlen(text) &&
        !memchr(text, 0, bytes))
        abort(); /* the text is as long as it says */
    free(text);
    free(origins);
    tt_chat_template_close(t);
    return 0;
}
