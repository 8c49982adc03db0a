/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include <jansson.h>
#include <stdlib.h>

#include "loop_count.h"

#include "../../plugins/dataloaders/json_line.h"

#include "loop_count_end.h"

/* A line of a jsonl file. What jansson accepts is accepted, with the same string, and the result is
 * UTF-8. Jansson converts numbers, so it refuses more; it overlooks a NUL after a number. The work
 * grows with the bytes, and not with their square. */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    unsigned char *line = malloc(n + 1);
    char *out = malloc(n + 1), *scratch = malloc(n + 1);
    if (line && out && scratch) {
        memcpy(line, n > 0 ? bytes : line, n);
        json_reader r = {line, line, line + n, NULL};
        size_t out_n = 0;
        bool found, is_string;
        loop_passes = 0;
        const bool fine = json_field(&r, "text", out, &out_n, scratch, &found, &is_string);
        TT_ASSERT(loop_passes <= 64 + 5 * (int64_t)n);
        TT_ASSERT(r.at >= r.s && r.at <= r.end && fine == (r.fault == NULL));
        TT_ASSERT(out_n <= n && (!is_string || found));
        TT_ASSERT(!fine || !is_string || tt_utf8_valid(out, out_n) == out_n);
        json_error_t why;
        json_t *root =
            memchr(line, 0, n) ? NULL : json_loadb((const char *)line, n, JSON_ALLOW_NUL, &why);
        if (root && json_is_object(root)) {
            const json_t *text = json_object_get(root, "text");
            const bool deep = r.fault && strstr(r.fault, "deep");
            TT_ASSERT(fine || deep);
            if (fine && json_is_string(text))
                TT_ASSERT(is_string && json_string_length(text) == out_n &&
                          memcmp(json_string_value(text), out, out_n) == 0);
            if (fine)
                TT_ASSERT(found == (text != NULL) && is_string == json_is_string(text));
        }
        json_decref(root);
    }
    free(line);
    free(out);
    free(scratch);
    return 0;
}
